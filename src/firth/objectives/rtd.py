"""Replaced-token detection: settings."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

from firth.errors import RecipeError
from firth.nets.objective import Objective
from firth.nets.recipe import NetRecipe, OutputRecipe
from firth.objectives.masking import Masking
from firth.objectives.mlm import MaskedLM

if TYPE_CHECKING:
    from firth.nets.model import NetModel
    from firth.nets.network import Network, Vocabulary
    from firth.objectives.heads.head import ObjectiveHead

_HEAD_WIDTH = 64
_MULTIPLE = 8  # of the generator's width: odd ones are slow


@dataclass(frozen=True, kw_only=True)
class Generator:
    """The size of the generator, relative to the discriminator."""

    width: float = 1 / 3
    """Factor of the width, of the feed-forward layers and of the number of heads (small and large ELECTRA: 0.25)."""
    layers: float = 1.0
    """Factor of the number of layers."""

    def __post_init__(self) -> None:
        if not 0 < self.width <= 4 or not 0 < self.layers <= 4:
            raise RecipeError("rtd.generator.width and rtd.generator.layers must be above 0 and at most 4.")


@dataclass(frozen=True, kw_only=True)
class ReplacedTokens(Objective):
    """Masked tokens are replaced by samples of a generator, and each token is judged: original or replaced.

    The network is the discriminator; the generator is a masked language model (Clark et al. 2020).
    """

    weight: float = 50.0
    """Factor of the discriminator's mean loss."""
    generator_weight: float = 1.0
    """Factor of the generator's mean loss."""
    generator: Generator = field(default_factory=Generator)
    masking: Masking = field(default_factory=lambda: Masking(mask=0.85, random=0.0))

    name: ClassVar[str] = "rtd"
    needs_output: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.generator_weight < math.inf:
            raise RecipeError(f"rtd.generator_weight={self.generator_weight} must be 0 or more.")

    def check(self, recipe: NetRecipe) -> None:
        super().check(recipe)
        if recipe.objective(MaskedLM.name) is not None:
            raise RecipeError("rtd trains a masked language model of its own, so mlm is one too many: leave mlm out.")
        if recipe.encoder.kind != "transformer" or recipe.embedding.characters:
            raise RecipeError(
                "rtd has a generator that shares a table of token vectors, so it needs encoder.kind=transformer and "
                "embedding.characters=false: set both."
            )

    def build(self, recipe: NetRecipe, vocabulary: Vocabulary, network: Network) -> ObjectiveHead:
        from firth.objectives.heads.rtd import ReplacedTokensHead

        generator = replace(self, weight=self.generator_weight)
        return ReplacedTokensHead(self, generator, self.second_network(recipe), network, self.masking)

    def model_type(self, recipe: NetRecipe) -> type[NetModel]:
        from firth.nets.electra import ElectraNet

        return ElectraNet

    def second_network(self, recipe: NetRecipe) -> NetRecipe:
        """The generator: a narrower network with the output layer of BERT."""
        encoder = recipe.encoder
        width = max(1, round(self.generator.width * encoder.width / _MULTIPLE)) * _MULTIPLE
        heads = next(count for count in range(max(1, width // _HEAD_WIDTH), 0, -1) if width % count == 0)
        narrow = replace(
            encoder,
            width=width,
            ffn_width=max(1, encoder.ffn_width * width // encoder.width),
            heads=heads,
            layers=max(1, round(self.generator.layers * encoder.layers)),
        )
        output = OutputRecipe(kind="tied", transform=True)
        return replace(recipe, encoder=narrow, objectives=(MaskedLM(masking=self.masking),), output=output)

    @property
    def variants(self) -> int:
        return self.masking.variants

    def published_noise(self) -> dict[str, float]:
        return self.masking.published_noise()
