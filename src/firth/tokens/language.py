"""LanguageModel: text in, probabilities and text out. Each kind of model only has to know ids."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain, pairwise, starmap
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from firth.abilities import Score
from firth.errors import RecipeError
from firth.text.layout import Layout, sentences_of
from firth.tokens import _language_kernels as kernels
from firth.tokens.encoder import Encoder
from firth.tokens.spelling import Spelling
from firth.tokens.tokenizer import BOS, EOS, UNK, Tokenizer

FIRST_WORD = EOS + 2
"""Ids below are special tokens."""
_FRESH = np.ones(1, dtype=np.bool_)
_MOST_SPELT = 100_000  # unknown words whose spelling is remembered


class Stream(NamedTuple):
    """Sentences as ids, one after the other, each closed by the end of the sentence.

    >>> Stream.of([[5, 6], [7]]).ids.tolist()
    [5, 6, 3, 7, 3]
    """

    ids: npt.NDArray[np.uint32]
    bounds: npt.NDArray[np.int64]
    """Sentence s is `ids[bounds[s]:bounds[s + 1]]`; its last id is that of the end."""
    fresh: npt.NDArray[np.bool_]
    """Whether each sentence begins a new text, so that a model that remembers forgets what was before."""

    @classmethod
    def of(cls, sentences: Sequence[Sequence[int]], fresh: bool = False) -> Stream:
        """The stream of some sentences, all of one text, or with `fresh` each of its own."""
        lengths = [len(sentence) + 1 for sentence in sentences]
        ids = [number for sentence in sentences for number in (*sentence, EOS)]
        flags = np.full(len(sentences), fresh)
        flags[:1] = True
        return cls(np.array(ids, dtype=np.uint32), np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]), flags)


class LanguageModel(ABC):
    """A language model over ids.

    A history is a list of ids, the words before the one to predict, sentence after sentence; `</s>` (EOS) closes each.
    The sentence that is going on begins after the last EOS, or at the start of the history.
    """

    score_kind: Literal["causal", "pseudo"] = "causal"
    """Whether scores are probabilities of texts, word after word, or only stand for some."""
    remembers: ClassVar[bool] = False
    """Whether what was said in earlier sentences changes the probabilities of the next."""

    def __init__(self, recipe: Any, tokenizer: Tokenizer, layout: Layout, spelling: Spelling) -> None:
        self.recipe = recipe
        self.tokenizer = tokenizer
        self.layout = layout
        self.spelling = spelling
        self._encoder = Encoder(tokenizer)
        self._spelt: dict[str, float] = {}

    @abstractmethod
    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The numbers that an artifact keeps."""

    @abstractmethod
    def log_tokens(self, stream: Stream) -> npt.NDArray[np.float64]:
        """The log-probability (nats) of every id of the stream, given those before it."""

    @abstractmethod
    def log_next(self, history: Sequence[int]) -> npt.NDArray[np.float64]:
        """The log-probability of every word of the vocabulary after `history`; -inf for `<pad>`, `<s>` and `<mask>`."""

    def score(self, texts: Sequence[str], *, together: bool = False) -> list[Score]:
        """The score of each text; a text of several sentences has an end for each of them.

        A model that remembers takes each text for a document of its own, or with `together` all for one document.
        """
        split = [self._sentences(text) for text in texts]
        sizes = [len(one) for one in split]
        stream, words = self.stream(list(chain.from_iterable(split)), sizes, together)
        firsts = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        bounds = stream.bounds[firsts]
        logs = self.log_tokens(stream)
        sums = _sums(logs, bounds).tolist()
        unknown = np.flatnonzero(_sums(stream.ids == UNK, bounds)).tolist()
        rows = zip(
            sums,
            np.diff(bounds).tolist(),
            _sums(words, firsts).tolist(),
            sizes,
            [len(text) if text.isascii() else len(text.encode()) for text in texts],
            strict=True,
        )
        scores = list(starmap(Score, rows))
        spellings = self._spell([split[number] for number in unknown])
        for number, (oov, spelling) in zip(unknown, spellings, strict=True):
            if oov:
                begin, end = bounds[number], bounds[number + 1]
                places = begin + np.flatnonzero(stream.ids[begin:end] == UNK)
                share = float(logs[places].sum()) * oov / places.size
                scores[number] = scores[number]._replace(oov=oov, oov_logprob=share, spelling=spelling)
        return scores

    def _sentences(self, text: str) -> list[str]:
        if self.layout == "lines" and "\n" not in text:
            line = text.strip()
            return [line] if line else []
        return sentences_of(text, self.layout)

    def log_probabilities(self, sentences: Sequence[str]) -> npt.NDArray[np.float64]:
        """The log-probability (nats) of each sentence and its end: as `score` gives it, with nothing around it."""
        stream, _ = self.stream(sentences, [1] * len(sentences) if self.remembers else ())
        return _sums(self.log_tokens(stream), stream.bounds)

    def log_probability(self, sentence: str) -> float:
        """The log-probability (nats) of one sentence and its end: as `score` gives it, with less around it."""
        ids = self._encoder.encode_one(sentence)
        stream = np.empty(ids.size + 1, dtype=np.uint32)
        stream[:-1] = ids
        stream[-1] = EOS
        if ids.size and ids.min() < FIRST_WORD:
            stream[:-1][ids < FIRST_WORD] = UNK
        return float(self.log_tokens(Stream(stream, np.array([0, stream.size]), _FRESH)).sum())

    def stream(
        self, sentences: Sequence[str], lengths: Sequence[int] = (), together: bool = False
    ) -> tuple[Stream, npt.NDArray[np.int64]]:
        """The ids of sentences, and the words of each; `lengths` gives the number of sentences of each text."""
        encoded = self._encoder.encode(sentences)
        bounds = np.zeros(len(sentences) + 1, dtype=np.int64)
        ids = np.empty(encoded.ids.size + len(sentences), dtype=np.uint32)
        kernels.close_sentences(encoded.ids, encoded.lengths, FIRST_WORD, UNK, EOS, ids, bounds)
        words = np.zeros(len(sentences), dtype=np.int64)
        kernels.count_in(encoded.starts, bounds, words)
        fresh = np.zeros(len(sentences), dtype=np.bool_)
        begins = np.cumsum([0, *lengths])[:-1]
        fresh[begins[begins < len(sentences)]] = True
        if together:
            fresh[1:] = False
        return Stream(ids, bounds, fresh), words

    def next(self, history: str = "", top: int | None = 10) -> list[tuple[str, float]]:
        """The likeliest next tokens after the text, with their probabilities; all with `top=None`."""
        logs = self.log_next(self.history(history))
        best = np.argsort(-logs, kind="stable")
        best = best[logs[best] > -np.inf][:top]
        return [(self.tokenizer.vocabulary[word], float(np.exp(logs[word]))) for word in best.tolist()]

    def explain(self, text: str) -> list[list[dict[str, Any]]]:
        """For each sentence of a text its tokens, with their log-probabilities and what the model can say of them."""
        stream, _ = self.stream(sentences_of(text, self.layout))
        logs = self.log_tokens(stream)
        names = self.tokenizer.vocabulary
        return [
            [{"token": names[stream.ids[place]], "logprob": float(logs[place])} for place in range(begin, end)]
            for begin, end in pairwise(stream.bounds.tolist())
        ]

    def history(self, text: str) -> list[int]:
        """The ids of a text that goes on: its last sentence has no end yet."""
        sentences = sentences_of(text, self.layout)
        ids: list[int] = []
        for number, sentence in enumerate(sentences):
            found = self.tokenizer.encode(sentence).ids
            ids += [UNK if one < FIRST_WORD else one for one in found] + [EOS] * (number + 1 < len(sentences))
        return ids

    def generate(
        self,
        prompt: str = "",
        *,
        count: int = 1,
        length: int = 50,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int = 0,
    ) -> list[str]:
        """`count` continuations of the prompt, of at most `length` tokens each."""
        rng = np.random.default_rng(seed)
        begun = self.history(prompt)
        texts = []
        for _ in range(count):
            history = list(begun)
            for _ in range(length):
                logs = self.log_next(history)
                weights = sharpen(logs, temperature=temperature, top_k=top_k, top_p=top_p)
                word = int(rng.choice(weights.size, p=weights))
                if word == EOS:
                    break
                history.append(word)
            texts.append(self.tokenizer.decode(history))
        return texts

    def _spell(self, texts: Sequence[Sequence[str]]) -> list[tuple[int, float]]:
        """For each text, given as its sentences, how many words are unknown and the log-probability of their letters.

        A literal `<unk>`, as the Penn Treebank has it, is a word like any other.
        """
        sentences = [sentence for text in texts for sentence in text]
        found = self._unknown_words(sentences)
        results = []
        for text in texts:
            words = [word for _ in text for word in next(found)]
            results.append((len(words), sum(map(self._spelling_of, words))))
        return results

    def _unknown_words(self, sentences: Sequence[str]) -> Iterator[list[str]]:
        """The unknown words of each sentence."""
        recipe = self.tokenizer.recipe
        apart = recipe.model == "words" and recipe.split == "space" and not recipe.lowercase
        plain = [apart and sentence.isascii() for sentence in sentences]  # nothing to normalise or segment
        texts = [self.tokenizer.spaced(one) for one, easy in zip(sentences, plain, strict=True) if not easy]
        others = zip(texts, self.tokenizer.backend.encode_batch(texts, add_special_tokens=False), strict=True)
        literal = self.tokenizer.vocabulary[UNK]
        for sentence, easy in zip(sentences, plain, strict=True):
            if easy:
                yield [word for word in sentence.split() if word not in self._known]
                continue
            text, tokens = next(others)
            places = zip(tokens.ids, tokens.offsets, strict=True)
            words = [text[begin:end] for number, (begin, end) in places if number == UNK]
            yield [word for word in words if word != literal]

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(self.tokenizer.vocabulary)

    def _spelling_of(self, word: str) -> float:
        if word not in self._spelt:
            if len(self._spelt) > _MOST_SPELT:
                self._spelt.clear()
            self._spelt[word] = self.spelling.log_probability(word)
        return self._spelt[word]


def _sums(values: npt.NDArray[Any], bounds: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """The sum of the values between each two bounds; 0 where there are none."""
    kind = np.float64 if values.dtype == np.float64 else np.int64
    sums = np.zeros(bounds.size - 1, dtype=kind)
    filled = bounds[1:] > bounds[:-1]
    if filled.any():
        sums[filled] = np.add.reduceat(values, bounds[:-1][filled], dtype=kind)
    return sums


def going_on(history: Sequence[int]) -> list[int]:
    """`<s>` and the words of the sentence that goes on at the end of a history.

    >>> going_on([5, 6, EOS, 7])
    [2, 7]
    """
    words = list(history)
    if EOS in words:
        words = words[len(words) - words[::-1].index(EOS) :]
    return [BOS, *words]


def sharpen(
    log_probabilities: npt.NDArray[np.float64], *, temperature: float, top_k: int | None, top_p: float | None
) -> npt.NDArray[np.float64]:
    """The distribution to draw from: cooled or heated, cut to the k likeliest or to the likeliest with mass p.

    >>> sharpen(np.log([0.5, 0.3, 0.2]), temperature=1.0, top_k=2, top_p=None).round(3).tolist()
    [0.625, 0.375, 0.0]
    """
    if not temperature >= 0:
        raise RecipeError(f"temperature={temperature} must not be below 0; 0 always takes the likeliest.")
    if temperature == 0:
        return np.asarray(np.arange(log_probabilities.size) == log_probabilities.argmax(), dtype=np.float64)
    weights = log_probabilities / temperature
    weights = np.exp(weights - weights.max())
    order = np.argsort(-weights, kind="stable")
    if top_k is not None:
        weights[order[top_k:]] = 0
    if top_p is not None:
        reached = np.cumsum(weights[order]) / weights.sum()
        weights[order[int(np.searchsorted(reached, top_p)) + 1 :]] = 0
    return np.asarray(weights / weights.sum())
