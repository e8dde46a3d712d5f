"""Span corruption, and other objectives of text to text: settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from firth.errors import RecipeError
from firth.nets.recipe import NetRecipe
from firth.objectives.restoring import RestoringObjective

if TYPE_CHECKING:
    from firth.nets.model import NetModel
    from firth.nets.network import Network, Vocabulary
    from firth.objectives.heads.head import ObjectiveHead

Style = Literal["spans", "prefix", "bert", "drop", "deshuffle"]


@dataclass(frozen=True, kw_only=True)
class SpanCorruption(RestoringObjective):
    """Spans of a text are predicted from the rest, each after the sentinel in its place (Raffel et al. 2020)."""

    style: Style = "spans"
    """spans; the rest of a text from its beginning (prefix); the text from its masked (bert) or shuffled (deshuffle)
    tokens; the dropped tokens from the others (drop)."""
    rate: float = 0.15
    """Fraction of the tokens that are chosen: exactly, or of bert and drop with this probability."""
    span_length: float = 3.0
    """Mean number of tokens of a span."""
    roll: bool = False
    """Begin anywhere in a text; otherwise its first token is never chosen, and its last one always."""

    name: ClassVar[str] = "spans"
    writes_labels: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.rate < 1:
            raise RecipeError(f"spans.rate={self.rate} must be above 0 and below 1, such as 0.15.")
        if not 1 <= self.span_length <= 100:
            raise RecipeError(f"spans.span_length={self.span_length} must be from 1 to 100, such as 3.")

    def check(self, recipe: NetRecipe) -> None:
        super().check(recipe)
        needed = self.sentinels(recipe.sequence.length)
        if recipe.tokenizer.sentinels < needed:
            raise RecipeError(
                f"spans in sequences of sequence.length={recipe.sequence.length} need {needed} sentinels, and "
                f"tokenizer.sentinels={recipe.tokenizer.sentinels}: set tokenizer.sentinels={max(needed, 100)}."
            )

    def sentinels(self, length: int) -> int:
        """The most sentinels that a sequence of a length needs, its special tokens included.

        >>> SpanCorruption().sentinels(570)
        28
        """
        if self.style != "spans":
            return 0
        tokens = max(length - 2, 1)
        noise = min(max(round(tokens * self.rate), 1), tokens - 1)
        return min(max(round(noise / self.span_length), 1), max(tokens - noise, 1)) + self.roll

    def published_noise(self) -> dict[str, float]:
        if self.style != "spans":
            return {"chosen": self.rate} if self.style in ("bert", "drop") else {}
        ends = {} if self.roll else {"first": 0.0, "last": 1.0}
        return {"chosen": self.rate, **ends, "mean span": self.span_length}

    def build(self, recipe: NetRecipe, vocabulary: Vocabulary, network: Network) -> ObjectiveHead:
        from firth.objectives.heads.spans import SpanCorruptionHead

        return SpanCorruptionHead(self, recipe, vocabulary, self.style, self.rate, self.span_length, self.roll)

    def model_type(self, recipe: NetRecipe) -> type[NetModel]:
        from firth.nets.sentinels import SentinelNet

        return SentinelNet

    def small_run_defaults(self) -> dict[str, tuple[Any, str]]:
        """Short texts have one span, which would always be their end: a single mask elsewhere could not be filled."""
        return {} if self.roll or self.style != "spans" else {"roll": (True, "spans anywhere in a text")}

    @property
    def sides(self) -> tuple[float, float]:
        """Each span of the source is one sentinel; each of the target has one before it."""
        if self.style in ("bert", "deshuffle"):
            return 1.0, 1.0
        if self.style == "prefix":
            return 0.5, self.predicted
        return 1 - self.rate + (self.rate / self.span_length if self.style == "spans" else 0), self.predicted

    @property
    def predicted(self) -> float:
        """Of the decoder's tokens all are predicted, but they are few."""
        if self.style in ("bert", "deshuffle"):
            return 1.0
        return 0.5 if self.style == "prefix" else min(1.0, self.rate * (1 + 1 / self.span_length))
