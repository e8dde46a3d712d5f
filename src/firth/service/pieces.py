"""What a model reads of a text: the number of its tokens, those that it does not know, and where each of them is."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from firth.text.layout import sentences_of
from firth.tokens.offsets import original_offsets, without_leading_spaces
from firth.tokens.tokenizer import EOS, FIRST_WORD, MASK, Tokenizer

if TYPE_CHECKING:
    from firth.service.models import ServedModel

_SPECIAL = 2  # tokens around a text
_LINE_ENDS = {ord(one): " " for one in "\0\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"}


class ReadText(NamedTuple):
    """The numbers of tokens of a text, and of those that are unknown."""

    tokens: int
    unknown: int

    def is_longer(self, max_tokens: int | None) -> bool:
        """Whether the text is longer than a model reads at once."""
        return max_tokens is not None and self.tokens + _SPECIAL > max_tokens

    def facts(self, max_tokens: int | None) -> dict[str, Any]:
        """For an operation that reads long texts in windows."""
        return {**self._asdict(), "truncated": False, "windowed": self.is_longer(max_tokens)}

    def clipped(self, max_tokens: int | None) -> dict[str, Any]:
        """For an operation that reads a part of long texts."""
        return {**self._asdict(), "truncated": self.is_longer(max_tokens)}


def read_texts(served: ServedModel, texts: Sequence[str], *, keep_masks: bool = False) -> list[ReadText]:
    """The numbers of tokens of texts; special tokens that are written in them are unknown words."""
    tokenizer = served.model.tokenizer
    lines = [tokenizer.presegment(text.translate(_LINE_ENDS)) for text in texts]
    found = []
    for encoding in tokenizer.backend.encode_batch(lines, add_special_tokens=False):
        ids = encoding.ids
        unknown = sum(one < FIRST_WORD and not (keep_masks and one == MASK) for one in ids)
        found.append(ReadText(len(ids), unknown))
    return found


def tokenized(tokenizer: Tokenizer, texts: Sequence[str]) -> list[dict[str, Any]]:
    """The tokens of each text with ids and offsets."""
    found = []
    for text in texts:
        line = text.translate(_LINE_ENDS)
        tokens = tokenizer.encode(line)
        offsets = _offsets(tokenizer, line, tokens.offsets)
        names = [tokenizer.vocabulary[one] for one in tokens.ids]
        unknown = sum(one < FIRST_WORD for one in tokens.ids)
        found.append(
            {"tokens": names, "ids": list(tokens.ids), "offsets": offsets, "word_starts": list(tokens.word_starts)}
            | {"unknown": unknown}
        )
    return found


def _offsets(tokenizer: Tokenizer, line: str, offsets: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Offsets into a line, of tokens of the line as its tokenizer splits it, without leading spaces."""
    found = np.array(offsets, dtype=np.int64).reshape(-1, 2)
    spaced = tokenizer.presegment(line)
    if spaced != line:
        found = original_offsets(line, spaced)[found]
    return [[int(begin), int(end)] for begin, end in without_leading_spaces(line, found)]


def token_pieces(network: Any, text: str) -> list[dict[str, Any]]:
    """The log-probability of each token of a text with its offsets in it."""
    scorer = network.token_scorer
    sentences = sentences_of(text, network.layout)
    if not sentences:
        return []
    stream, _ = scorer.stream(sentences, [len(sentences)] if scorer.carries_context else ())
    logprobs = scorer.token_logprobs(stream)
    names = network.tokenizer.vocabulary
    pieces, begin_of = [], _begins(text, sentences)
    for sentence, start, (begin, end) in zip(sentences, begin_of, pairwise(stream.bounds.tolist()), strict=True):
        line = sentence.translate(_LINE_ENDS)
        spans = _offsets(network.tokenizer, line, network.tokenizer.encode(line).offsets)
        is_aligned = start is not None and len(spans) == end - begin - 1
        for index in range(begin, end):
            token = int(stream.ids[index])
            low, high = spans[index - begin] if is_aligned and index < end - 1 else (None, None)
            if token == EOS and index == end - 1:
                if network.score_kind == "pseudo":
                    continue  # ends are not predicted
                low = high = None
            pieces.append(
                {
                    "token": names[token],
                    "logprob": float(logprobs[index]),
                    "start": None if low is None or start is None else start + low,
                    "end": None if high is None or start is None else start + high,
                    "unknown": token < FIRST_WORD and token != EOS,
                }
            )
    return pieces


def _begins(text: str, sentences: Sequence[str]) -> list[int | None]:
    """Where each sentence begins in the text; None if it is not there as it is."""
    found: list[int | None] = []
    done = 0
    for sentence in sentences:
        begin = text.find(sentence, done)
        found.append(None if begin < 0 else begin)
        done = done if begin < 0 else begin + len(sentence)
    return found
