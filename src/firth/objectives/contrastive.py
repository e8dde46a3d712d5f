"""Contrastive learning of sentence vectors: settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from firth.errors import RecipeError
from firth.nets.objective import Objective
from firth.nets.recipe import NetRecipe
from firth.objectives.sentences import LabelledObjective, check_labels

if TYPE_CHECKING:
    from firth.nets.network import Network, Vocabulary
    from firth.objectives.heads.head import ObjectiveHead


@dataclass(frozen=True, kw_only=True)
class Contrastive(Objective):
    """A sentence is nearer to itself, read again with other dropout, than to the others of its batch (SimCSE)."""

    name: ClassVar[str] = "contrastive"
    needs_output: ClassVar[bool] = False
    needs_dropout: ClassVar[bool] = True
    compares_sequences: ClassVar[bool] = True
    temperature: float = 0.05
    """Divisor of the cosines."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_temperature(self, self.temperature)

    def build(self, recipe: NetRecipe, vocabulary: Vocabulary, network: Network) -> ObjectiveHead:
        from firth.objectives.heads.contrastive import ContrastiveHead

        return ContrastiveHead(self, recipe, vocabulary, self.temperature)


@dataclass(frozen=True, kw_only=True)
class ContrastiveNLI(LabelledObjective):
    """A premise is nearer to a sentence that it entails than to the other sentences of its batch (SimCSE with labels).

    A sentence that contradicts the premise is in the batch, too, as a hard negative.
    """

    temperature: float = 0.05
    """Divisor of the cosines."""
    positive: str = "entailment"
    """The label of pairs that are near each other."""
    negative: str = "contradiction"
    """The label of hard negatives."""

    name: ClassVar[str] = "contrastive-nli"
    compares_sequences: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_temperature(self, self.temperature)
        check_labels(self, self.known_labels)

    @property
    def known_labels(self) -> tuple[str, ...]:
        return self.positive, self.negative

    @property
    def needs_all_labelled(self) -> bool:
        return False  # neutral pairs are not used

    def build(self, recipe: NetRecipe, vocabulary: Vocabulary, network: Network) -> ObjectiveHead:
        from firth.objectives.heads.contrastive import HardNegativesHead

        return HardNegativesHead(self, recipe, vocabulary, self.temperature)


def _check_temperature(objective: Objective, value: float) -> None:
    if not 0 < value <= 100:
        raise RecipeError(f"{objective.name}.temperature={value} must be above 0, such as 0.05.")
