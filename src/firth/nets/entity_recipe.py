"""EntitiesRecipe: the entities that a network reads beside tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from firth.errors import RecipeError
from firth.nets.field_checks import check_ranges

if TYPE_CHECKING:
    from firth.nets.recipe import NetRecipe


@dataclass(frozen=True, kw_only=True)
class EntitiesRecipe:
    """Entities of a knowledge graph as a second input (Zhang et al. 2019, ERNIE of Tsinghua)."""

    width: int = 0
    """Dimension of entity vectors: in training, that of the graph's; 0: the network reads no entities."""
    heads: int = 4
    """Attention heads over entities."""
    text_layers: int = 0
    """Layers before the first one that fuses tokens and entities."""
    trained: bool = False
    """Train the entity vectors, too, instead of keeping those of the graph."""
    count: int = 0
    """Number of entities: in training, that of the graph, as are the following."""
    names: int = 0
    """Number of names by which entities are linked."""
    name_bytes: int = 0
    """Bytes of all names."""
    forms: int = 0
    """Number of distinct token sequences of names."""

    def __post_init__(self) -> None:
        check_ranges(self, width=(0, 100_000), heads=(1, 1000), text_layers=(0, 1000), count=(0, 1 << 31))
        check_ranges(self, names=(0, 1 << 31), name_bytes=(0, 1 << 40), forms=(0, 1 << 31))
        if self.width % self.heads:
            raise RecipeError(f"entities.width={self.width} must be a multiple of entities.heads={self.heads}.")

    def check(self, recipe: NetRecipe) -> None:
        """Raise `RecipeError` if the network cannot fuse tokens and entities."""
        encoder = recipe.encoder
        if not self.width:
            return
        plain = encoder.positions == "none" and encoder.norm == "post" and encoder.tie_layers == "none"
        if encoder.kind != "transformer" or recipe.visibility != "bidirectional" or not plain or encoder.gated:
            raise RecipeError(
                "entities are fused in a bidirectional Transformer as BERT's, with encoder.norm=post and layers of "
                "their own, neither gated nor tied: set entities.width=0, or change these."
            )
        if recipe.decoder is not None or recipe.ends_with_class:
            raise RecipeError("entities are fused in an encoder that begins with [CLS]: set entities.width=0.")
        if not self.text_layers < encoder.layers:
            raise RecipeError(
                f"entities.text_layers={self.text_layers} of encoder.layers={encoder.layers} leave no layer that fuses "
                "entities: set it lower."
            )
