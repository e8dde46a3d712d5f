"""Causal language modelling and sequence autoencoding: settings."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from firth.errors import RecipeError
from firth.nets.combination import RECURRENT
from firth.nets.objective import Objective, Visibility
from firth.nets.recipe import STREAMS, NetRecipe

if TYPE_CHECKING:
    from firth.nets.model import NetModel
    from firth.nets.network import Network, Vocabulary
    from firth.objectives.heads.head import ObjectiveHead


@dataclass(frozen=True, kw_only=True)
class CausalLM(Objective):
    """Each token is predicted from those before it (Bengio et al. 2003)."""

    activation_penalty: float = 0.0
    """Factor of the mean square of the last hidden states, after dropout (AR, Merity et al. 2018)."""
    temporal_penalty: float = 0.0
    """Factor of the mean square of the difference of the last states of adjacent tokens (TAR, same)."""

    name: ClassVar[str] = "clm"
    visibilities: ClassVar[tuple[Visibility, ...]] = ("causal",)
    predicts: ClassVar[Literal["next", "masked"] | None] = "next"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("activation_penalty", "temporal_penalty"):
            if not 0 <= getattr(self, name) < math.inf:
                raise RecipeError(f"{self.name}.{name}={getattr(self, name)} must be 0 or more, such as 1.")

    def check(self, recipe: NetRecipe) -> None:
        super().check(recipe)
        if (self.activation_penalty or self.temporal_penalty) and recipe.encoder.kind not in RECURRENT:
            raise RecipeError(
                f"{self.name}.activation_penalty and temporal_penalty are of recurrent states, not of a "
                f"{recipe.encoder.kind}: set both to 0."
            )

    def build(self, recipe: NetRecipe, vocabulary: Vocabulary, network: Network) -> ObjectiveHead:
        from firth.objectives.heads.clm import CausalLMHead

        return CausalLMHead(self, recipe, vocabulary, self.activation_penalty, self.temporal_penalty)

    def model_type(self, recipe: NetRecipe) -> type[NetModel]:
        from firth.nets.causal import CausalNet, StreamNet
        from firth.nets.segments import MemoryNet

        if recipe.memory.length:
            return MemoryNet
        return StreamNet if recipe.sequence.format in STREAMS else CausalNet


@dataclass(frozen=True, kw_only=True)
class Autoencoding(CausalLM):
    """A sequence is read and then predicted again by the same network (Dai and Le 2015)."""

    name: ClassVar[str] = "autoencoding"

    def check(self, recipe: NetRecipe) -> None:
        super().check(recipe)
        if recipe.sequence.format in STREAMS:
            raise RecipeError("autoencoding needs sequences, not a stream: set sequence.format=sentences.")

    def build(self, recipe: NetRecipe, vocabulary: Vocabulary, network: Network) -> ObjectiveHead:
        from firth.objectives.heads.clm import AutoencodingHead

        return AutoencodingHead(self, recipe, vocabulary, self.activation_penalty, self.temporal_penalty)

    @property
    def predicted(self) -> float:
        return 1 / self.copies

    @property
    def copies(self) -> int:
        return 2
