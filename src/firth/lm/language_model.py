"""LanguageModel: scores and generates text; subclasses only work with ids."""
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import chain, pairwise, starmap
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from firth.abilities import Score, TextPiece
from firth.errors import ArtifactError
from firth.lm.pieces import document_sizes, piece_batches
from firth.lm.text_generator import TextGenerator
from firth.summaries import SummarisedModel
from firth.text.layout import Layout, sentences_of
from firth.tokens.encoder import EncodedSentences, TextEncoder
from firth.tokens.tokenizer import BOS, EOS, FIRST_WORD, UNK, Tokenizer
from firth.tokens.word_counts import SentenceCounts

Integers = npt.NDArray[np.int64]
LogProbs = npt.NDArray[np.float64]
_ONE_DOCUMENT = np.ones(1, dtype=np.bool_)
_CONTEXT_TOKENS = 1 << 17  # of a document that are read again before its next piece; more than any cache holds
_MAX_CACHED_WORDS = 100_000  # unknown words with a cached log-probability
_MAX_SPELLING = 1 << 53  # a count whose sums are exact


class TokenStream(NamedTuple):
    """The concatenated ids of sentences, each ended by EOS.

    >>> TokenStream.of([[5, 6], [7]]).ids.tolist()
    [5, 6, 3, 7, 3]
    """

    ids: npt.NDArray[np.uint32]
    bounds: npt.NDArray[np.int64]  # sentence s is `ids[bounds[s]:bounds[s + 1]]`; its last id is EOS
    starts_document: npt.NDArray[np.bool_]  # for each sentence; models that carry context reset it there

    @classmethod
    def of(cls, sentences: Sequence[Sequence[int]], starts_document: bool = False) -> TokenStream:
        """The stream of sentences of one document, or with `starts_document` of a document each."""
        lengths = [len(sentence) + 1 for sentence in sentences]
        ids = [token for sentence in sentences for token in (*sentence, EOS)]
        flags = np.full(len(sentences), starts_document)
        flags[:1] = True
        return cls(np.array(ids, dtype=np.uint32), np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]), flags)


def join_streams(one: TokenStream, two: TokenStream) -> TokenStream:
    """Two streams as one; the first document of the second continues the last one of the first.

    >>> join_streams(TokenStream.of([[5]]), TokenStream.of([[6], [7]])).starts_document.tolist()
    [True, False, False]
    """
    starts_document = np.concatenate([one.starts_document, two.starts_document])
    starts_document[one.starts_document.size :][:1] = False
    bounds = np.concatenate([one.bounds, one.bounds[-1] + two.bounds[1:]])
    return TokenStream(np.concatenate([one.ids, two.ids]), bounds, starts_document)


def last_sentences(stream: TokenStream, tokens: int) -> TokenStream:
    """The last sentences of the last document of a stream, with at least `tokens` tokens if it has them.

    >>> last_sentences(TokenStream.of([[5, 6], [7], [8]]), 3).ids.tolist()
    [7, 3, 8, 3]
    """
    documents = np.flatnonzero(stream.starts_document)
    first = int(documents[-1]) if documents.size else 0
    enough = int(np.searchsorted(stream.bounds, stream.ids.size - tokens, side="right")) - 1
    begin = max(first, enough)
    bounds = stream.bounds[begin:]
    return TokenStream(stream.ids[bounds[0] :], bounds - bounds[0], stream.starts_document[begin:])


class LanguageModel(SummarisedModel, TextGenerator):
    """A language model over ids. A history is the list of ids before the one to predict; EOS ends each sentence."""

    score_kind: Literal["causal", "pseudo"] = "causal"  # log-probabilities of texts, or pseudo-log-likelihoods
    carries_context: ClassVar[bool] = False  # whether probabilities depend on the document's previous sentences

    def __init__(self, recipe: Any, tokenizer: Tokenizer, layout: Layout, unknown_word_model: UnknownWordModel) -> None:
        self.recipe = recipe
        self.tokenizer = tokenizer
        self.layout = layout
        self.unknown_word_model = unknown_word_model
        self._encoder = TextEncoder(tokenizer)
        self._unknown_word_score = lru_cache(_MAX_CACHED_WORDS)(unknown_word_model.log_probability)

    @abstractmethod
    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays that an artifact saves."""

    @abstractmethod
    def token_logprobs(self, stream: TokenStream) -> LogProbs:
        """The log-probability (nats) of every id of the stream given its history."""

    @abstractmethod
    def next_logprobs(self, history: Sequence[int]) -> npt.NDArray[np.float64]:
        """The log-probability of every token after `history`: (vocabulary,); -inf for `<pad>`, `<s>` and `<mask>`."""

    def wanted_logprobs(self, stream: TokenStream, wanted: npt.NDArray[np.bool_]) -> LogProbs:
        """`token_logprobs` of the wanted ids; others may have any value, which saves time where each id takes some."""
        return self.token_logprobs(stream)

    @property
    def token_scorer(self) -> LanguageModel:
        """The model itself: see `ScoresTokens`."""
        return self

    @property
    def max_tokens(self) -> int | None:
        """Tokens that the model reads at once; None if there is no limit."""
        return None

    def continue_document(self, stream: TokenStream, context: Any, keep: bool) -> tuple[LogProbs, Any]:
        """`token_logprobs` of a stream that continues a document, and with `keep` the context for the next stream.

        `context` is that of the stream before; None starts a document. Here it is the last sentences of the document,
        which are scored again; recurrent networks keep their state instead.
        """
        joined = stream if context is None else join_streams(context, stream)
        logprobs = self.token_logprobs(joined)[joined.ids.size - stream.ids.size :]
        return logprobs, last_sentences(joined, _CONTEXT_TOKENS) if keep and self.carries_context else None

    def score(self, texts: Sequence[str], *, as_document: bool = False) -> list[Score]:
        """The score of each text by itself, or with `as_document` of each as a part of one document."""
        split = [self._sentences(text) for text in texts]
        return self._score_batch(split, np.full(len(split), not as_document), None, False)[0]

    def score_pieces(self, pieces: Iterable[TextPiece]) -> Iterator[Score]:
        """The score of each piece; context is carried within a document, which may be larger than memory."""
        context: Any = None
        for batch, continues in piece_batches(pieces):
            split = [piece.sentences for piece in batch]
            starts = np.array([piece.starts_document for piece in batch])
            scores, context = self._score_batch(split, starts, None if starts[0] else context, continues)
            yield from scores

    def _score_batch(
        self, split: Sequence[Sequence[str]], starts: npt.NDArray[np.bool_], context: Any, keep: bool
    ) -> tuple[list[Score], Any]:
        """The scores of texts given as sentences, and with `keep` the context after them.

        `starts` says which of them start a document; the first one continues that of `context`.
        """
        sizes = np.fromiter(map(len, split), dtype=np.int64, count=len(split))
        firsts = np.concatenate([[0], np.cumsum(sizes)])
        documents = document_sizes(sizes, starts)
        stream, counts = self.stream(list(chain.from_iterable(split)), documents)
        bounds = stream.bounds[firsts]
        keep = keep and bool(documents[-1] or not starts.any())  # there is no context in a new document without text
        logprobs, context = self.continue_document(stream, context, keep)
        columns = zip(
            _segment_sums(logprobs, bounds).tolist(),
            np.diff(bounds).tolist(),
            _segment_sums(counts.words, firsts).tolist(),
            sizes.tolist(),
            _segment_sums(counts.bytes, firsts).tolist(),
            strict=True,
        )
        scores = list(starmap(Score, columns))
        with_unknown = np.flatnonzero(_segment_sums(stream.ids == UNK, bounds)).tolist()
        unknown_words = self._unknown_words([sentence for index in with_unknown for sentence in split[index]])
        for index in with_unknown:
            found = [word for _ in split[index] for word in next(unknown_words)]
            if found:
                begin, end = bounds[index], bounds[index + 1]
                positions = begin + np.flatnonzero(stream.ids[begin:end] == UNK)
                oov_logprob = float(logprobs[positions].sum()) * len(found) / positions.size
                spelling = sum(map(self._unknown_word_score, found))
                scores[index] = scores[index]._replace(oov=len(found), oov_logprob=oov_logprob, spelling=spelling)
        return scores, context

    def _sentences(self, text: str) -> list[str]:
        if self.layout == "lines" and "\n" not in text:
            line = text.strip()
            return [line] if line else []
        return sentences_of(text, self.layout)

    def log_probabilities(self, sentences: Sequence[str]) -> npt.NDArray[np.float64]:
        """The log-probability (nats) of each sentence and its EOS, as in `score` but without word and byte counts."""
        lengths = [1] * len(sentences) if self.carries_context else ()
        stream = close_stream(self._encoder.encode(sentences), lengths)
        return _segment_sums(self.token_logprobs(stream), stream.bounds)

    def log_probability(self, sentence: str) -> float:
        """The log-probability (nats) of one sentence and its EOS, with the least overhead."""
        ids = self._encoder.encode_one(sentence)
        closed = np.empty(ids.size + 1, dtype=np.uint32)
        closed[:-1], closed[-1] = ids, EOS
        if ids.size and ids.min() < FIRST_WORD:
            closed[:-1][ids < FIRST_WORD] = UNK
        return float(self.token_logprobs(TokenStream(closed, np.array([0, closed.size]), _ONE_DOCUMENT)).sum())

    def stream(
        self, sentences: Sequence[str], lengths: Sequence[int] | Integers = ()
    ) -> tuple[TokenStream, SentenceCounts]:
        """The ids of sentences, and their words and bytes; `lengths` are the numbers of sentences of the documents."""
        encoded, counts = self._encoder.encode_counted(sentences)
        return close_stream(encoded, lengths), counts

    def next(self, history: str = "", top: int | None = 10) -> list[tuple[str, float]]:
        """The most probable next tokens after the text, with their probabilities; all with `top=None`."""
        logprobs = self.next_logprobs(self.history(history))
        best = np.argsort(-logprobs, kind="stable")
        best = best[logprobs[best] > -np.inf][:top]
        return [(self.tokenizer.vocabulary[token], float(np.exp(logprobs[token]))) for token in best.tolist()]

    def explain(self, text: str) -> list[list[dict[str, Any]]]:
        """For each sentence of a text its tokens with log-probabilities and model-specific details."""
        sentences = sentences_of(text, self.layout)
        stream, _ = self.stream(sentences, [len(sentences)] if sentences and self.carries_context else ())
        logprobs = self.token_logprobs(stream)
        names = self.tokenizer.vocabulary
        return [
            [{"token": names[stream.ids[index]], "logprob": float(logprobs[index])} for index in range(begin, end)]
            for begin, end in pairwise(stream.bounds.tolist())
        ]

    def history(self, text: str) -> list[int]:
        """The ids of an unfinished text: its last sentence has no EOS."""
        ids: list[int] = []
        for sentence in sentences_of(text, self.layout):
            ids += [UNK if token < FIRST_WORD else token for token in self.tokenizer.encode(sentence).ids] + [EOS]
        return ids[:-1]

    def _unknown_words(self, sentences: Sequence[str]) -> Iterator[list[str]]:
        """The unknown words of each sentence; a literal `<unk>`, as in the Penn Treebank, is a known word."""
        recipe = self.tokenizer.recipe
        is_plain = recipe.model == "words" and recipe.split == "space" and not recipe.lowercase
        plain = [is_plain and sentence.isascii() for sentence in sentences]  # nothing to normalise or segment
        texts = [self.tokenizer.presegment(one) for one, easy in zip(sentences, plain, strict=True) if not easy]
        others = zip(texts, self.tokenizer.backend.encode_batch(texts, add_special_tokens=False), strict=True)
        literal = self.tokenizer.vocabulary[UNK]
        for sentence, easy in zip(sentences, plain, strict=True):
            if easy:
                yield [word for word in sentence.split() if word not in self._known]
                continue
            text, tokens = next(others)
            spans = zip(tokens.ids, tokens.offsets, strict=True)
            words = [text[begin:end] for token, (begin, end) in spans if token == UNK]
            yield [word for word in words if word != literal]

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(self.tokenizer.vocabulary)


def close_stream(encoded: EncodedSentences, lengths: Sequence[int] | Integers = ()) -> TokenStream:
    """The stream of encoded sentences; `lengths` are the numbers of sentences of the documents."""
    count = encoded.lengths.size
    bounds = np.zeros(count + 1, dtype=np.int64)
    ids = np.empty(encoded.ids.size + count, dtype=np.uint32)
    close_sentences(encoded.ids, encoded.lengths, FIRST_WORD, UNK, EOS, ids, bounds)
    starts_document = np.zeros(count, dtype=np.bool_)
    begins = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])[:-1]
    starts_document[begins[begins < count]] = True
    return TokenStream(ids, bounds, starts_document)


def _segment_sums(values: npt.NDArray[Any], bounds: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    kind = np.float64 if values.dtype == np.float64 else np.int64
    sums = np.zeros(bounds.size - 1, dtype=kind)
    filled = bounds[1:] > bounds[:-1]
    if filled.any():
        sums[filled] = np.add.reduceat(values, bounds[:-1][filled], dtype=kind)
    return sums


def current_sentence(history: Sequence[int]) -> list[int]:
    """BOS and the tokens of the current sentence of a history.

    >>> current_sentence([5, 6, EOS, 7])
    [2, 7]
    """
    ids = list(history)
    if EOS in ids:
        ids = ids[len(ids) - ids[::-1].index(EOS) :]
    return [BOS, *ids]


@njit(cache=True, nogil=True)
def close_sentences(ids: Any, lengths: Any, first_word: Any, unk: Any, eos: Any, out: Any, bounds: Any) -> Any:
    """Copy the ids of sentences with EOS after each; special tokens in the text become UNK."""
    position, written = 0, 0
    for sentence in range(lengths.size):
        for _ in range(lengths[sentence]):
            token = ids[position]
            out[written] = token if token >= first_word else unk
            position += 1
            written += 1
        out[written] = eos
        written += 1
        bounds[sentence + 1] = written


END = 256  # the symbol before the first and after the last byte of a word


class UnknownWordModel:
    """The characters of unknown words: a byte bigram model with add-one smoothing, a distribution over all words.

    A word model gives all unknown words the one probability of `<unk>`, so a smaller vocabulary would score better in
    bits per byte. Charging unknown words for their characters makes models with different vocabularies comparable.

    >>> model = UnknownWordModel.train(["ab", "ab", "b"])
    >>> probability = (1 + 1) / (3 + 257) * (3 + 1) / (3 + 257)  # first b, then the end after b
    >>> round(float(np.exp(model.log_probability("b"))) / probability, 9)
    1.0
    """

    def __init__(self, counts: npt.NDArray[np.int64]) -> None:
        self.counts = counts  # (previous byte, byte), both with END
        self._log = np.log(counts + 1.0) - np.log(counts.sum(axis=1, keepdims=True) + counts.shape[1])

    @classmethod
    def train(cls, words: Iterable[str]) -> UnknownWordModel:
        """The model of `words`: those that occur once resemble unknown words most."""
        counts = np.zeros((END + 1, END + 1), dtype=np.int64)
        data = "\n".join(words).encode()
        if data:
            codes = np.frombuffer(b"\n" + data + b"\n", dtype=np.uint8).astype(np.int64)
            codes[codes == ord("\n")] = END
            np.add.at(counts, (codes[:-1], codes[1:]), 1)
        return cls(counts)

    def log_probability(self, word: str) -> float:
        codes = [END, *word.encode(), END]
        return float(self._log[codes[:-1], codes[1:]].sum())


def restore_spelling(arrays: Mapping[str, npt.NDArray[Any]]) -> UnknownWordModel:
    """The model of unknown words from the array `spelling` of a saved artifact."""
    counts = arrays.get("spelling")
    if counts is None or counts.dtype != np.int64 or counts.shape != (END + 1, END + 1):
        raise ArtifactError(f"the array 'spelling' is missing or not int64 of {END + 1} x {END + 1}: train it again.")
    if counts.min() < 0 or counts.max() > _MAX_SPELLING:
        raise ArtifactError("the array 'spelling' holds no counts: train the model again.")
    return UnknownWordModel(np.array(counts))
