"""Unified language modelling: settings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

from firth.errors import RecipeError
from firth.nets.objective import Objective
from firth.nets.recipe import NetRecipe
from firth.objectives.masking import Masking
from firth.objectives.pairs import NextSentence

if TYPE_CHECKING:
    from firth.nets.model import NetModel
    from firth.nets.network import Network, Vocabulary
    from firth.objectives.heads.head import ObjectiveHead

SEGMENTS = 6
"""0 and 1 bidirectional, 2 left to right, 3 right to left, 4 and 5 sequence to sequence."""


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """The fractions of the sequences that are read in each way."""

    bidirectional: float = 1 / 3
    left_to_right: float = 1 / 6
    right_to_left: float = 1 / 6
    seq2seq: float = 1 / 3

    def __post_init__(self) -> None:
        shares = (self.bidirectional, self.left_to_right, self.right_to_left, self.seq2seq)
        if not (min(shares) >= 0 and abs(sum(shares) - 1) <= 1e-6):  # or one is NaN
            raise RecipeError("the fractions of unilm.mixture must be 0 or more, and 1 together.")


@dataclass(frozen=True, kw_only=True)
class UnifiedLM(Objective):
    """Masked tokens are predicted from both sides, from the left, from the right, or from a source (Dong et al. 2019).

    Pairs that are read from both sides are classified, too: whether the second segment follows the first.
    """

    mixture: Mixture = field(default_factory=Mixture)
    masking: Masking = field(default_factory=Masking)
    ngrams: float = 0.2
    """Fraction of the masked spans that are two or three tokens, and not one."""

    name: ClassVar[str] = "unilm"
    needs_pairs: ClassVar[bool] = True
    classifies_pairs: ClassVar[bool] = True
    orders_attention: ClassVar[bool] = True
    predicts: ClassVar[Literal["next", "masked"] | None] = "masked"
    generation_segments: ClassVar[tuple[int, int]] = (4, 5)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.ngrams <= 1 or self.masking.policy != "token":
            raise RecipeError("unilm.ngrams must be from 0 to 1, and unilm.masking.policy token: spans are of tokens.")

    def check(self, recipe: NetRecipe) -> None:
        super().check(recipe)
        if recipe.embedding.segments < SEGMENTS:
            raise RecipeError(
                f"unilm tells its four ways of reading by segments, and embedding.segments is "
                f"{recipe.embedding.segments}: set embedding.segments={SEGMENTS}."
            )
        if recipe.objective(NextSentence.name) is not None:
            raise RecipeError("unilm classifies pairs itself, so nsp is one too many: set objectives=unilm.")

    def build(self, recipe: NetRecipe, vocabulary: Vocabulary, network: Network) -> ObjectiveHead:
        from firth.objectives.heads.unilm import UnifiedLMHead

        mixture = self.mixture
        shares = (mixture.bidirectional, mixture.left_to_right, mixture.right_to_left, mixture.seq2seq)
        return UnifiedLMHead(self, recipe, vocabulary, shares, self.masking, self.span_lengths())

    def model_type(self, recipe: NetRecipe) -> type[NetModel]:
        from firth.nets.unified import UnifiedNet

        return UnifiedNet

    @property
    def predicted(self) -> float:
        return self.masking.rate

    @property
    def variants(self) -> int:
        return self.masking.variants

    def span_lengths(self) -> list[float]:
        """The probabilities of spans of one, two and three tokens.

        >>> UnifiedLM().span_lengths()
        [0.8, 0.1, 0.1]
        """
        return [1 - self.ngrams, self.ngrams / 2, self.ngrams / 2]

    def published_noise(self) -> dict[str, float]:
        lengths = self.span_lengths()
        found = self.masking.published_noise()
        found["mean span"] = sum(number * share for number, share in enumerate(lengths, 1))
        found |= {f"spans of {number}": share for number, share in enumerate(lengths, 1)}
        mixture = {"bidirectional": self.mixture.bidirectional, "left to right": self.mixture.left_to_right}
        mixture |= {"right to left": self.mixture.right_to_left, "seq2seq": self.mixture.seq2seq}
        return found | {f"read {way}": share for way, share in mixture.items()} | {"negative": 0.5}
