"""Contextual vectors: pooled hidden states of texts, words and tokens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from firth.abilities import LAYERS, POOLINGS
from firth.errors import AbilityError, ArgumentError, near_miss
from firth.nets.scoring import (
    Integers,
    causal_windows,
    centred_windows,
    length_groups,
    make_batch,
    max_length,
    one_line,
)
from firth.progress import progress
from firth.text.layout import sentences_of
from firth.tokens.tokenizer import BOS, EOS, FIRST_WORD, UNK, Tokens

if TYPE_CHECKING:
    from firth.nets.model import NetModel

Floats = npt.NDArray[np.float32]
LayerName = str | int
_MAX_LENGTH = 2048  # tokens that are encoded at once by networks without a limit
_SENTENCES = 512  # whose states are kept at once


class EncodedText(NamedTuple):
    """The ids of a text with special tokens."""

    ids: Integers
    is_own: npt.NDArray[np.bool_]
    """Which are tokens of the text, not special tokens around it or between its sentences."""


class Occurrence(NamedTuple):
    """A word in a sentence, and its similarity to the query."""

    word: str
    score: float
    context: str


class WordSpan(NamedTuple):
    """A word of a sentence and the range of its tokens."""

    word: str
    first: int
    end: int


def embed_texts(model: NetModel, texts: Sequence[str], layer: LayerName, pooling: str) -> Floats:
    """(texts, width): pooled hidden states; zeros for texts without tokens."""
    if pooling not in POOLINGS:
        raise ArgumentError(f"there is no pooling {pooling!r:.80}: {near_miss(str(pooling), POOLINGS)}")
    check_layer(model, layer)
    encoded = encode_texts(model, texts)
    pools = [_Pool(pooling, one) for one in encoded]
    width = 0
    with progress("reading", len(texts), "texts") as advance:
        for number, first, states in encode_windows(model, [one.ids for one in encoded], layer):
            pools[number].add(first, states)
            width = states.shape[1]
            advance(first == 0)
    found = np.zeros((len(texts), width or _width(model, layer)), dtype=np.float32)
    for number, pool in enumerate(pools):
        if encoded[number].is_own.any():
            found[number] = pool.result()
    return found


def pooled_sentences(model: NetModel, texts: Sequence[str]) -> Floats:
    """(texts, width): the vectors of the network's `SentencePooler`; zeros for texts without tokens."""
    encoded, pooling = encode_texts(model, texts), model.network.sentence
    found = np.zeros((len(texts), pooling.width), dtype=np.float32)
    with progress("reading", len(texts), "texts") as advance:
        for begin in range(0, len(texts), _SENTENCES):
            some = range(begin, min(begin + _SENTENCES, len(texts)))
            own = [number for number in some if encoded[number].is_own.any()]
            if own:
                states = token_states(model, [encoded[number] for number in own], "last")
                ids = [encoded[number].ids[encoded[number].is_own] for number in own]
                groups = np.repeat(np.arange(len(own)), [one.size for one in ids])
                given = (np.concatenate(states), np.concatenate(ids), groups)
                with torch.inference_mode():
                    found[own] = pooling(*map(torch.from_numpy, given), len(own)).numpy()
            advance(len(some))
    return found


class _Pool:
    """Pools the states of a text, which arrive window by window."""

    def __init__(self, pooling: str, text: EncodedText) -> None:
        self.pooling = pooling
        own = np.flatnonzero(text.is_own)
        first = 0 if text.ids[0] == BOS else int(own[0]) if own.size else 0  # [CLS] represents the text
        last = int(own[-1]) if own.size else 0
        self.position = first if pooling == "first" else last
        is_whole = pooling == "whole"
        self.own = torch.ones(text.is_own.size, dtype=torch.bool) if is_whole else torch.from_numpy(text.is_own)
        self.value: Tensor | None = None

    def add(self, first: int, states: Tensor) -> None:
        """Add the states from the position `first` on."""
        own = states[self.own[first : first + len(states)]]
        if self.pooling in ("first", "last"):
            if 0 <= self.position - first < len(states):
                self.value = states[self.position - first].clone()
        elif len(own):
            part = own.amax(0) if self.pooling == "max" else own.sum(0)
            combine = torch.maximum if self.pooling == "max" else torch.add
            self.value = part if self.value is None else combine(self.value, part)

    def result(self) -> Floats:
        assert self.value is not None
        value = self.value / int(self.own.sum()) if self.pooling in ("mean", "whole") else self.value
        return value.numpy()


def layer_states(model: NetModel, texts: Sequence[str]) -> list[list[Floats]]:
    """For each text the hidden states of its tokens, layer by layer, of both directions apart."""
    widths = _widths(model)
    found = token_states(model, encode_texts(model, texts), "all")
    if model.recipe.directions == 2:
        widths = [width // 2 for width in widths for _ in range(2)]
    split = [np.split(states, np.cumsum(widths)[:-1], axis=1) for states in found]
    if model.recipe.directions == 2:  # the embedding is the same for both
        return [layers[1:] for layers in split]
    return split


def token_states(model: NetModel, texts: Sequence[EncodedText], layer: LayerName) -> list[Floats]:
    """(tokens, width) for each text: the hidden states of its own tokens."""
    width = _width(model, layer)
    found = [np.empty((text.ids.size, width), dtype=np.float32) for text in texts]
    for number, first, states in encode_windows(model, [text.ids for text in texts], layer):
        found[number][first : first + len(states)] = states.numpy()
    return [states[text.is_own] for states, text in zip(found, texts, strict=True)]


def encode_texts(model: NetModel, texts: Sequence[str]) -> list[EncodedText]:
    """Texts with special tokens as in training: see `NetModel.start_token`."""
    split = [[one_line(sentence) for sentence in sentences_of(text, model.layout)] for text in texts]
    encoded = iter(model.encode([sentence for one in split for sentence in one]))
    return [_add_special_tokens(list(islice(encoded, len(one))), model.start_token) for one in split]


def _add_special_tokens(sentences: Sequence[Integers], start_token: int) -> EncodedText:
    parts, own = [np.array([start_token])], [np.zeros(1, dtype=np.bool_)]
    for number, ids in enumerate(sentences):
        has_end = int(start_token == EOS or number + 1 == len(sentences))
        parts += [np.where(ids >= FIRST_WORD, ids, UNK), np.full(has_end, EOS)]
        own += [np.ones(ids.size, dtype=np.bool_), np.zeros(has_end, dtype=np.bool_)]
    return EncodedText(np.concatenate(parts), np.concatenate(own))


def encode_windows(model: NetModel, texts: Sequence[Integers], layer: LayerName) -> Iterator[tuple[int, int, Tensor]]:
    """(number of the text, first position, states from there on) for all texts, long ones in windows."""
    most = max_length(model.recipe) or _MAX_LENGTH
    is_causal = model.recipe.visibility == "causal"
    numbers, windows = [], []
    for number, ids in enumerate(texts):
        parts = causal_windows(ids.size, most, most // 2) if is_causal else centred_windows(ids.size, most)
        numbers += [number] * len(parts)
        windows += parts
    lengths = np.array([window.end - window.begin for window in windows], dtype=np.int64)
    for group in length_groups(lengths, equal=True):
        chosen = [(numbers[one], windows[one]) for one in group.tolist()]
        ids = np.array([texts[number][window.begin : window.end] for number, window in chosen])
        with torch.inference_mode():
            states = choose_layer(model.network(make_batch(torch.from_numpy(ids))).layers, layer)
        for (number, window), one in zip(chosen, states, strict=True):
            yield number, window.first, one[window.first - window.begin : window.last - window.begin]


def choose_layer(layers: Sequence[Tensor], layer: LayerName) -> Tensor:
    """A layer by its number, or last, mix (the mean of all) or all (concatenated)."""
    if layer == "all":
        return torch.cat(list(layers), -1)
    if layer == "mix":
        if len({one.shape[-1] for one in layers}) > 1:
            raise AbilityError("the layers have different widths, so they have no mean: choose one, or all.")
        return torch.stack(list(layers)).mean(0)
    return layers[-1] if layer == "last" else layers[int(layer)]


def check_layer(model: NetModel, layer: LayerName) -> None:
    """Raise `AbilityError` if the network has no layer of that number, `ArgumentError` for any other name."""
    depth = model.recipe.encoder.layers + 1
    if layer in LAYERS or (isinstance(layer, int) and -depth <= layer < depth):
        return
    kind = AbilityError if isinstance(layer, int) else ArgumentError
    raise kind(f"there is no layer {layer!s:.80}: choose from 0 to {depth - 1}, {', '.join(LAYERS)}.")


def _width(model: NetModel, layer: LayerName) -> int:
    widths = _widths(model)
    return sum(widths) if layer == "all" else widths[layer if isinstance(layer, int) else -1]


def _widths(model: NetModel) -> list[int]:
    with torch.inference_mode():
        return [one.shape[-1] for one in model.network(make_batch(torch.tensor([[EOS]]))).layers]


def word_spans(text: str, tokens: Tokens) -> list[WordSpan]:
    """The words of a sentence; the offsets of the tokens are into `text`.

    >>> word_spans("play on", Tokens([7, 8, 9], [True, False, True], [(0, 2), (2, 4), (4, 7)]))
    [WordSpan(word='play', first=0, end=2), WordSpan(word='on', first=2, end=3)]
    """
    begins = [index for index, is_start in enumerate(tokens.word_starts) if is_start]
    spans, done = [], 0
    for first, end in zip(begins, [*begins[1:], len(tokens.ids)], strict=True):
        low, high = max(tokens.offsets[first][0], done), tokens.offsets[end - 1][1]
        word, done = text[low:high].strip(), high  # a token of bytes may contain the end of the previous word
        if word:
            spans.append(WordSpan(word, first, end))
    return spans


def word_states(model: NetModel, sentences: Sequence[str], layer: LayerName) -> list[tuple[list[WordSpan], Floats]]:
    """The words of each sentence and their states (words, width), the means of their tokens' states."""
    lines = [one_line(sentence) for sentence in sentences]
    found = model.tokenizer.encode_batch(lines)
    texts = [_add_special_tokens([np.array(tokens.ids, dtype=np.int64)], model.start_token) for tokens in found]
    words = []
    for line, tokens, states in zip(lines, found, token_states(model, texts, layer), strict=True):
        spans = word_spans(model.tokenizer.presegment(line), tokens)
        means = [states[span.first : span.end].mean(axis=0) for span in spans]
        words.append((spans, np.array(means, dtype=np.float32).reshape(len(spans), states.shape[1])))
    return words


def range_states(
    model: NetModel, texts: Sequence[str], ranges: Sequence[tuple[int, int]], layer: LayerName = "last"
) -> Floats:
    """(texts, width): the mean state of the tokens of a range of characters of each text; NaN if it has none."""
    check_layer(model, layer)
    lines = [one_line(text) for text in texts]
    found = model.tokenizer.encode_batch(lines)
    encoded = [_add_special_tokens([np.array(tokens.ids, dtype=np.int64)], model.start_token) for tokens in found]
    means = np.full((len(texts), _width(model, layer)), np.nan, dtype=np.float32)
    for number, states in enumerate(token_states(model, encoded, layer)):
        begin, end = (_count_letters(lines[number][:bound]) for bound in ranges[number])
        split = model.tokenizer.presegment(lines[number])  # which offsets are into
        offsets = [[_count_letters(split[:bound]) for bound in each] for each in found[number].offsets]
        chosen = [row for row, (first, last) in enumerate(offsets) if first < end and begin < last]
        if chosen:
            means[number] = states[chosen].mean(axis=0)
    return means


def _count_letters(text: str) -> int:
    """The number of characters that are not white space, which segmentation does not change."""
    return sum(not character.isspace() for character in text)


def nearest_occurrences(
    model: NetModel, word: str, context: str, sentences: Iterable[str] = (), count: int = 10, layer: LayerName = "last"
) -> list[Occurrence]:
    """The words of sentences that are nearest to a word in its context, nearest first.

    Without sentences those of the context are searched. The word in its own context is left out, and the same word in
    the same sentence is returned once.
    """
    check_layer(model, layer)
    with progress("reading", None, "sentences") as advance:
        own_sentences = sentences_of(context, model.layout)
        home, query = _find_word(model, word, own_sentences, layer)
        best: dict[tuple[str, str], float] = {}
        stream = iter(sentences or own_sentences)
        while part := list(islice(stream, _SENTENCES)):
            for sentence, (spans, states) in zip(part, word_states(model, part, layer), strict=True):
                for span, score in zip(spans, _cosines(states, query).tolist(), strict=True):
                    if sentence.strip() != home.strip() or span.word.casefold() != word.casefold():
                        key = (span.word, sentence.strip())
                        best[key] = max(score, best.get(key, -2.0))
            best = dict(sorted(best.items(), key=lambda one: -one[1])[: max(count, 0)])
            advance(len(part))
    return [Occurrence(near, score, where) for (near, where), score in best.items()]


def _find_word(model: NetModel, word: str, sentences: Sequence[str], layer: LayerName) -> tuple[str, Floats]:
    """The first sentence with the word, and the word's state in it."""
    wanted = one_line(word).strip().casefold()
    for exact in (True, False):
        for sentence, (spans, states) in zip(sentences, word_states(model, sentences, layer), strict=True):
            for span, state in zip(spans, states, strict=True):
                found = span.word.casefold()
                if wanted and (found == wanted if exact else wanted in found):
                    return sentence, np.asarray(state)
    raise AbilityError(f"the context does not have the word {word!r}: give a text that contains it.")


def _cosines(rows: Floats, vector: Floats) -> Floats:
    lengths = np.linalg.norm(rows, axis=1) * np.linalg.norm(vector)
    return np.asarray(rows @ vector / np.maximum(lengths, 1e-12))
