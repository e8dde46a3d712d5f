"""CountModel: text in, probabilities and text out. Each kind of count model only has to know ids."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from firth.abilities import Score
from firth.errors import RecipeError
from firth.text.layout import Layout, sentences_of
from firth.tokens.encoder import Encoder
from firth.tokens.spelling import Spelling
from firth.tokens.tokenizer import BOS, EOS, UNK, Tokenizer

FIRST_WORD = EOS + 2
"""Ids below are special tokens."""
_FRESH = np.ones(1, dtype=np.bool_)


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


class CountModel(ABC):
    """A language model over ids that were counted.

    A history is a list of ids, the words before the one to predict, sentence after sentence; `</s>` (EOS) closes each.
    The sentence that is going on begins after the last EOS, or at the start of the history.
    """

    score_kind: ClassVar[Literal["causal", "pseudo"]] = "causal"
    remembers: ClassVar[bool] = False
    """Whether what was said in earlier sentences changes the probabilities of the next."""

    def __init__(self, recipe: Any, tokenizer: Tokenizer, layout: Layout, spelling: Spelling) -> None:
        self.recipe = recipe
        self.tokenizer = tokenizer
        self.layout = layout
        self.spelling = spelling
        self._encoder = Encoder(tokenizer)

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
        split = [sentences_of(text, self.layout) for text in texts]
        sentences = [sentence for one in split for sentence in one]
        stream, words = self.stream(sentences, [len(one) for one in split], together)
        logs = self.log_tokens(stream)
        bounds = stream.bounds[np.concatenate([[0], np.cumsum([len(one) for one in split], dtype=np.int64)])]
        sums = [float(logs[begin:end].sum()) for begin, end in pairwise(bounds)]
        unknown = stream.ids == UNK
        scores, first = [], 0
        for number, (text, one) in enumerate(zip(texts, split, strict=True)):
            begin, end = int(bounds[number]), int(bounds[number + 1])
            places = np.flatnonzero(unknown[begin:end])
            oov = int(places.size) - (self._written_out(one) if places.size else 0)
            scores.append(
                Score(
                    logprob=sums[number],
                    tokens=end - begin,
                    words=int(words[first : first + len(one)].sum()),
                    sentences=len(one),
                    bytes=len(text.encode()),
                    oov=oov,
                    oov_logprob=float(logs[begin + places].sum()) if oov else 0.0,
                    spelling=self._spell(one) if oov else 0.0,
                )
            )
            first += len(one)
        return scores

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
        ids = encoded.ids
        ids[ids < FIRST_WORD] = UNK  # a special token written out in the text
        ends = np.cumsum(encoded.lengths)
        bounds = np.concatenate([[0], ends + np.arange(1, ends.size + 1)])
        starts = np.concatenate([[0], np.cumsum(encoded.starts, dtype=np.int64)])
        words = np.diff(starts[np.concatenate([[0], ends])])
        fresh = np.zeros(len(sentences), dtype=np.bool_)
        begins = np.cumsum([0, *lengths])[:-1]
        fresh[begins[begins < len(sentences)]] = True
        if together:
            fresh[1:] = False
        return Stream(np.insert(ids, ends, EOS), bounds, fresh), words

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

    def _written_out(self, sentences: Sequence[str]) -> int:
        """How often the text itself says `<unk>`, as the Penn Treebank does: a word like any other."""
        return sum(sentence.count(self.tokenizer.vocabulary[UNK]) for sentence in sentences)

    def _spell(self, sentences: Sequence[str]) -> float:
        """The probability of the letters of all unknown tokens."""
        cost = 0.0
        for sentence in sentences:
            text = self.tokenizer.spaced(sentence)
            tokens = self.tokenizer.encode(sentence)
            for number, (begin, end) in zip(tokens.ids, tokens.offsets, strict=True):
                if number == UNK and text[begin:end] != self.tokenizer.vocabulary[UNK]:
                    cost += self.spelling.log_probability(text[begin:end])
        return cost


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
    if not temperature > 0:
        raise RecipeError(f"temperature={temperature} must be above 0; 0.1 is nearly greedy.")
    weights = log_probabilities / temperature
    weights = np.exp(weights - weights.max())
    order = np.argsort(-weights, kind="stable")
    if top_k is not None:
        weights[order[top_k:]] = 0
    if top_p is not None:
        reached = np.cumsum(weights[order]) / weights.sum()
        weights[order[int(np.searchsorted(reached, top_p)) + 1 :]] = 0
    return np.asarray(weights / weights.sum())
