"""Permutation language modelling: settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from firth.errors import RecipeError
from firth.nets.objective import Objective
from firth.nets.recipe import STREAMS, NetRecipe

if TYPE_CHECKING:
    from firth.nets.model import NetModel
    from firth.nets.network import Network, Vocabulary
    from firth.objectives.heads.head import ObjectiveHead


@dataclass(frozen=True, kw_only=True)
class PermutationLM(Objective):
    """Some tokens are predicted one after the other in a random order, each from the rest (Yang et al. 2019)."""

    context: int = 6
    """K: the number of tokens of which one is predicted."""
    max_length: int = 5
    """Maximal tokens of a predicted span."""
    lengths: Literal["harmonic", "uniform"] = "harmonic"
    """Lengths n of spans: harmonic has p(n) proportional to 1 / n, as in the authors' program, uniform equal ones."""
    unit: Literal["token", "word-start", "word"] = "token"
    """A span is n tokens (the paper), n tokens from the begin of a word (the authors' program), or n whole words (what
    the program was meant to do)."""

    name: ClassVar[str] = "plm"
    orders_attention: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.context <= 1000 or not 1 <= self.max_length <= 100:
            raise RecipeError("plm.context must be from 1 to 1000 and plm.max_length from 1 to 100, such as 6 and 5.")

    def check(self, recipe: NetRecipe) -> None:
        super().check(recipe)
        if len(recipe.objectives) > 1:
            raise RecipeError(
                f"plm predicts by a second stream of states, so it is trained alone, not with objectives="
                f"{'+'.join(recipe.names)}: set objectives=plm."
            )
        if recipe.sequence.format not in STREAMS:
            raise RecipeError(
                f"plm predicts ends of sentences, too, which sequence.format={recipe.sequence.format} has around texts "
                "alone: set sequence.format=stream, contiguous or contiguous-pair."
            )
        if not recipe.embedding.query or recipe.encoder.positions != "relative":
            raise RecipeError(
                "plm predicts by queries that know their position alone, so it needs embedding.query=true and "
                "encoder.positions=relative: set both."
            )

    def build(self, recipe: NetRecipe, vocabulary: Vocabulary, network: Network) -> ObjectiveHead:
        from firth.objectives.heads.plm import PermutationLMHead

        spans = (self.span_lengths(), self.context, self.unit)
        return PermutationLMHead(self, recipe, vocabulary, *spans)

    def model_type(self, recipe: NetRecipe) -> type[NetModel]:
        from firth.nets.permutation import PermutationNet

        return PermutationNet

    @property
    def predicted(self) -> float:
        return 1 / self.context

    def span_lengths(self) -> list[float]:
        """The probabilities of spans of 1, 2, ... tokens or words.

        >>> [round(one, 3) for one in PermutationLM().span_lengths()]
        [0.438, 0.219, 0.146, 0.109, 0.088]
        """
        weights = [1 / n if self.lengths == "harmonic" else 1.0 for n in range(1, self.max_length + 1)]
        return [weight / sum(weights) for weight in weights]

    def published_noise(self) -> dict[str, float]:
        lengths = self.span_lengths()
        found = {"masked": 0.0, "random": 0.0, "kept": 1.0}
        if self.unit == "token":  # longer and shorter words change the rest
            found |= dict.fromkeys(("chosen", "first", "last"), 1 / self.context)
        if self.unit != "word-start":
            found["mean span"] = sum(number * share for number, share in enumerate(lengths, 1))
            found |= {f"spans of {number}": share for number, share in enumerate(lengths, 1)}
        return found
