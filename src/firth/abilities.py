"""What models can do, as protocols: callers ask for an ability, never for a kind of model."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, Protocol, cast, runtime_checkable


class Score(NamedTuple):
    """How probable a text is. Scores add up: a sum of scores is the score of all the texts together.

    >>> one = Score(logprob=-math.log(8), tokens=3, words=2, sentences=1, bytes=5)
    >>> both = one + one
    >>> round(both.perplexity, 6), round(both.bits_per_byte, 6)
    (2.0, 0.6)
    """

    logprob: float = 0.0
    """Natural logarithm of the probability, ends of sentences included."""
    tokens: int = 0
    """Predictions made: all tokens and an end for each sentence."""
    words: int = 0
    sentences: int = 0
    bytes: int = 0
    """UTF-8 bytes of the text."""
    oov: int = 0
    """Words that the model does not know."""
    oov_logprob: float = 0.0
    """The part of `logprob` that is for words the model does not know: take it off for the probability without them."""
    spelling: float = 0.0
    """Natural logarithm of the probability of the unknown words' letters, which `logprob` leaves out."""
    silent: int = 0
    """Sentences whose ends were not predicted: masked models do not."""

    def __add__(self, other: object) -> Score:
        if not isinstance(other, Score):
            return NotImplemented
        return Score(*map(operator.add, self, other))

    @property
    def perplexity(self) -> float:
        return _exp(-self.logprob / self.tokens) if self.tokens else math.nan

    @property
    def word_perplexity(self) -> float:
        """Perplexity per word and end of sentence, whatever the tokens are."""
        predicted = self.words + self.sentences - self.silent
        return _exp(-self.logprob / predicted) if predicted else math.nan

    @property
    def known_perplexity(self) -> float:
        """Perplexity over the tokens that the model knows, the unknown ones left out."""
        known = self.tokens - self.oov
        return _exp(-(self.logprob - self.oov_logprob) / known) if known else math.nan

    @property
    def bits_per_byte(self) -> float:
        """What compares models with different tokens: unknown words are charged for their spelling."""
        return -(self.logprob + self.spelling) / math.log(2) / self.bytes if self.bytes else math.nan


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf


@runtime_checkable
class Scores(Protocol):
    """Gives texts probabilities."""

    score_kind: Literal["causal", "pseudo"]

    def score(self, texts: Sequence[str]) -> list[Score]:
        """The score of each text."""
        ...


@runtime_checkable
class Remembers(Protocol):
    """Scores a sentence by what was said before it, too."""

    remembers: bool

    def score(self, texts: Sequence[str], *, together: bool = False) -> list[Score]:
        """The score of each text; with `together` they are one document."""
        ...


@runtime_checkable
class Generates(Protocol):
    """Writes text."""

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
        ...


class Filling(NamedTuple):
    """A token for a hidden place."""

    token: str
    probability: float
    text: str | None = None
    """The text with it, where there was one place to fill."""


@runtime_checkable
class Fills(Protocol):
    """Finds what stands at hidden places of a text."""

    def fill(self, text: str, top: int = 5) -> list[list[Filling]]:
        """For each mask of the text the likeliest tokens, likeliest first."""
        ...


@runtime_checkable
class HasVectors(Protocol):
    """Knows which words are near each other."""

    words: list[str]

    def row(self, word: str) -> int:
        """The row of a word; one that is not there raises `AbilityError`."""
        ...

    def similarity(self, one: str, two: str) -> float:
        """How alike two words are, 1 at most."""
        ...

    def similar(self, word: str, count: int = 10, *, context: str | None = None) -> list[tuple[str, float]]:
        """The nearest words and how alike they are, nearest first."""
        ...


@runtime_checkable
class Embeds(Protocol):
    """Makes vectors of texts."""

    def embed(self, texts: Sequence[str]) -> Any:
        """A row for each text, in an array or a sparse matrix."""
        ...


@runtime_checkable
class Predicts(Protocol):
    """Tells which labels texts have."""

    labels: list[str]

    def predict(self, texts: Sequence[str], count: int = 1) -> list[list[tuple[str, float]]]:
        """The `count` likeliest labels of each text and their probabilities, likeliest first."""
        ...


@runtime_checkable
class Solves(Protocol):
    """Does a task that it was fine-tuned for."""

    task: str
    fields: Sequence[str]
    """Where the parts of examples stand in files."""

    def stream(self, examples: Iterable[Any]) -> Iterator[dict[str, Any]]:
        """The answers to examples, one after the other."""
        ...

    def measure(
        self, examples: Sequence[Any], answers: Sequence[Any], seed: int = 0, samples: int = 1000
    ) -> dict[str, Any]:
        """How good answers are."""
        ...


class Model(Protocol):
    """What every trained model has."""

    recipe: Any

    @property
    def tokenizer(self) -> Any: ...

    def arrays(self) -> dict[str, Any]:
        """The numbers that an artifact keeps."""
        ...


def total(scores: Iterable[Score]) -> Score:
    """The score of all texts together."""
    result = Score()
    for score in scores:
        result += score
    return result


_BATCH = 20_000  # sentences scored at once


def score_documents(model: Scores, documents: Iterable[Sequence[str]]) -> Score:
    """The score of all documents, each a sequence of sentences, together."""
    at_once = getattr(model, "score_documents", None)
    if at_once is not None:  # a model that is quicker with many side by side
        return cast(Score, at_once(documents))
    if isinstance(model, Remembers) and model.remembers:
        return total(score for document in documents for score in model.score(document, together=True))
    result = Score()
    stream = itertools.chain.from_iterable(documents)
    while batch := list(itertools.islice(stream, _BATCH)):
        result += total(model.score(batch))
    return result
