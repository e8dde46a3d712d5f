"""The abilities of models as protocols: callers require an ability, never a kind of model."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol, get_args, runtime_checkable

from firth.errors import AbilityError
from firth.summaries import html_table

Context = Literal["line", "document"]
"""What a line is scored after: nothing, or the lines before it in its document, which a blank line ends."""
CONTEXTS: tuple[Context, ...] = get_args(Context)
LAYERS = ("last", "mix", "all")
"""Names of layers of hidden states beside their numbers: the last, the mean of all, and all concatenated."""
POOLINGS = ("mean", "whole", "first", "last", "max")
"""Ways to make one vector of the hidden states of a text: see `NetModel.embed`."""


class Score(NamedTuple):
    """The log-probability of a text with its counts. The sum of scores is the score of all the texts.

    >>> one = Score(logprob=-math.log(8), tokens=3, words=2, sentences=1, bytes=5)
    >>> both = one + one
    >>> round(both.perplexity, 6), round(both.bits_per_byte, 6)
    (2.0, 0.6)
    """

    logprob: float = 0.0
    """Natural logarithm of the probability, including the ends of sentences."""
    tokens: int = 0
    """Predictions: all tokens and an end for each sentence."""
    words: int = 0
    """Words as `firth check` counts them, whatever the tokenizer."""
    sentences: int = 0
    bytes: int = 0
    """UTF-8 bytes of the sentences, without the white space around them."""
    oov: int = 0
    """Out-of-vocabulary words."""
    oov_logprob: float = 0.0
    """The part of `logprob` for out-of-vocabulary words."""
    spelling: float = 0.0
    """Natural logarithm of the probability of the characters of unknown words, which `logprob` leaves out."""
    silent: int = 0
    """Sentences whose ends were not predicted, as by masked models."""

    def __add__(self, other: object) -> Score:
        if not isinstance(other, Score):
            return NotImplemented
        return Score(*map(operator.add, self, other))

    @property
    def perplexity(self) -> float:
        return _exp(-self.logprob / self.tokens) if self.tokens else math.nan

    @property
    def word_perplexity(self) -> float:
        """Perplexity per word and end of sentence, independent of the tokens."""
        predicted = self.words + self.sentences - self.silent
        return _exp(-self.logprob / predicted) if predicted else math.nan

    @property
    def known_perplexity(self) -> float:
        """Perplexity without out-of-vocabulary tokens."""
        known = self.tokens - self.oov
        return _exp(-(self.logprob - self.oov_logprob) / known) if known else math.nan

    @property
    def bits_per_byte(self) -> float:
        """Bits per byte, comparable between tokenizers: unknown words cost their characters."""
        return -(self.logprob + self.spelling) / math.log(2) / self.bytes if self.bytes else math.nan

    def _repr_html_(self) -> str:
        names = ("bits_per_byte", "perplexity", "word_perplexity", "logprob", "tokens", "words", "bytes", "oov")
        return html_table("Score", {name: getattr(self, name) for name in names})


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf


class TextPiece(NamedTuple):
    """The sentences of a text, or of a part of a document."""

    sentences: Sequence[str]
    """Stripped, without line breaks."""
    starts_document: bool = True
    """Whether the sentences do not continue the document of the piece before."""


@runtime_checkable
class Scores(Protocol):
    """Assigns probabilities to texts."""

    score_kind: Literal["causal", "pseudo"]

    def score(self, texts: Sequence[str]) -> list[Score]:
        """The score of each text by itself."""

    def score_pieces(self, pieces: Iterable[TextPiece]) -> Iterator[Score]:
        """The score of each piece; context is carried within a document, which may be larger than memory."""


@runtime_checkable
class ScoresTokens(Protocol):
    """Assigns probabilities to single tokens of texts."""

    @property
    def token_scorer(self) -> Any:
        """The `LanguageModel` over ids that scores them."""

    @property
    def max_tokens(self) -> int | None:
        """Tokens of text, special ones included, that it reads at once; None if there is no limit."""


@runtime_checkable
class ScoresBackwards(Protocol):
    """Scores texts from right to left, too."""

    def score_pieces_backwards(self, pieces: Iterable[TextPiece]) -> Iterator[Score]:
        """The score of each piece, read backwards."""


@runtime_checkable
class ScoresFromBothSides(Protocol):
    """Scores each token of a text given all others, too."""

    def pseudo_score(self, texts: Sequence[str]) -> list[Score]:
        """The pseudo-log-likelihood of each text."""


@runtime_checkable
class Explains(Protocol):
    """Explains the probability of each token."""

    def explain(self, text: str) -> list[list[dict[str, Any]]]:
        """The steps of computing the probability of each token."""


@runtime_checkable
class PredictsNext(Protocol):
    """Predicts the next token."""

    def next(self, history: str = "", top: int | None = 10) -> list[tuple[str, float]]:
        """The most probable next tokens with their probabilities, in descending order."""


@runtime_checkable
class Generates(Protocol):
    """Generates text."""

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
        beams: int = 1,
    ) -> list[str]:
        """`count` continuations of the prompt, of at most `length` tokens each; several `beams` are for networks."""


class Translation(NamedTuple):
    """A text generated from a source."""

    text: str
    logprob: float
    """Natural logarithm of its probability given the source, the end included if it is finished."""
    tokens: int
    """Predictions: its tokens and, if it is finished, its end."""
    finished: bool
    """Whether it has ended before the limit of its length."""


@runtime_checkable
class Translates(Protocol):
    """Generates a text from another one."""

    def translate(self, sources: Sequence[str], *, beams: int = 4, length: int | None = None) -> list[Translation]:
        """The best text for each source by beam search, of at most `length` tokens."""


@runtime_checkable
class ScoresPairs(Protocol):
    """Assigns probabilities to texts given another text."""

    def score_pairs(self, pairs: Iterable[tuple[str, str]]) -> Iterator[Score]:
        """The score of each target given its source."""


class Filling(NamedTuple):
    """A prediction for a masked token."""

    token: str
    probability: float
    text: str | None = None
    """The completed text, if it had a single mask."""


@runtime_checkable
class Fills(Protocol):
    """Predicts masked tokens."""

    def fill(self, text: str, top: int = 5) -> list[list[Filling]]:
        """The most probable tokens for each mask of the text, in descending order."""


@runtime_checkable
class HasVectors(Protocol):
    """Compares words by their vectors."""

    words: list[str]
    counts: Any
    """Occurrences of each word in the training text, or None where they are not known."""

    def row(self, word: str) -> int:
        """The index of a word; unknown words raise `AbilityError`."""

    def similarity(self, one: str, two: str) -> float:
        """The similarity of two words, at most 1."""

    def similar(self, word: str, count: int = 10, *, context: str | None = None) -> list[tuple[str, float]]:
        """The nearest words with their similarities, in descending order."""


@runtime_checkable
class HasDenseVectors(HasVectors, Protocol):
    """Has a vector for each word, so that vectors can be added and compared."""

    vectors: Any

    def vector(self, word: str) -> Any:
        """The vector of a word; one that is not there raises `AbilityError`."""

    def analogy(
        self,
        positive: Sequence[str],
        negative: Sequence[str] = (),
        count: int = 10,
        method: Literal["add", "mul"] = "add",
    ) -> list[tuple[str, float]]:
        """The words near to all of `positive` and far from all of `negative`, nearest first."""

    def answers(self, questions: Any, kinds: Any, among: Any, method: Literal["add", "mul"] = "add") -> Any:
        """For each row (a, b, c) of word indices, the index of the word that is to c as b is to a."""

    def odd_one_out(self, words: Sequence[str]) -> str:
        """The word that is farthest from the mean of all."""


@runtime_checkable
class HasSenses(HasVectors, Protocol):
    """Has several vectors for a word, one for each sense."""

    names: list[str]
    """The word of each row, whatever its sense."""

    def similarity_in_context(self, one: str, context: str, two: str, other: str) -> float:
        """The mean cosine of the senses, weighted by their probability in the texts (AvgSimC)."""

    def max_similarity_in_context(self, one: str, context: str, two: str, other: str) -> float:
        """The cosine of the senses that are most probable in the texts (MaxSimC)."""


@runtime_checkable
class Embeds(Protocol):
    """Embeds texts."""

    def embed(self, texts: Sequence[str]) -> Any:
        """(texts, dimension), as an array or a sparse matrix."""


@runtime_checkable
class HasLayers(Protocol):
    """Has hidden states of several layers for each token of a text."""

    def layers(self, texts: Sequence[str]) -> list[list[Any]]:
        """The hidden states (tokens, width) of each layer for each text."""


@runtime_checkable
class ComparesTexts(Protocol):
    """Says how the vectors of two texts are compared."""

    @property
    def text_similarity(self) -> str:
        """cosine or angular."""


@runtime_checkable
class Predicts(Protocol):
    """Classifies texts."""

    labels: list[str]

    def predict(self, texts: Sequence[str], count: int = 1) -> list[list[tuple[str, float]]]:
        """The `count` most probable labels of each text with their probabilities, in descending order."""


@runtime_checkable
class TaskPredictor(Protocol):
    """Predicts for a task that it was fine-tuned for."""

    task: str
    columns: Sequence[str]
    """The columns of files that hold the parts of examples."""

    def stream(self, examples: Iterable[Any]) -> Iterator[dict[str, Any]]:
        """The prediction for each example."""

    def measure(
        self, examples: Sequence[Any], answers: Sequence[Any], seed: int = 0, samples: int = 1000
    ) -> dict[str, Any]:
        """The metrics of predictions."""


@runtime_checkable
class HasTasks(Protocol):
    """Was fine-tuned for several tasks."""

    tasks: Mapping[str, TaskPredictor]

    def of(self, task: str | None) -> TaskPredictor:
        """The predictor of one task; a name that is not there, or none, raises `AbilityError`."""


def for_task(model: Any, task: str | None) -> Any:
    """The part of a model for one of its tasks; a model without several tasks as it is, if none is named."""
    if isinstance(model, HasTasks):
        return model.of(task)
    if task is not None:
        raise AbilityError("the model was not fine-tuned for several tasks: leave --task out.")
    return model


@runtime_checkable
class FineTuned(Protocol):
    """Was fine-tuned from a network."""

    @property
    def pretrained(self) -> Any:
        """The network as a model of its own, which still scores, fills masks or embeds texts as it could before."""


def without_tasks(model: Any) -> Any:
    """The network of a fine-tuned model as a model of its own; any other model as it is."""
    return model.pretrained if isinstance(model, FineTuned) else model


@runtime_checkable
class Model(Protocol):
    """The members of every trained model."""

    recipe: Any

    @property
    def tokenizer(self) -> Any: ...

    def arrays(self) -> dict[str, Any]:
        """The arrays that an artifact saves."""


def total(scores: Iterable[Score]) -> Score:
    """The sum of scores."""
    result = Score()
    for score in scores:
        result += score
    return result
