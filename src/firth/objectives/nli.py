"""Natural language inference: settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from firth.nets.field_checks import check_ranges
from firth.nets.recipe import NetRecipe
from firth.objectives.sentences import NLI_LABELS, LabelledObjective, check_labels

if TYPE_CHECKING:
    from firth.nets.network import Network, Vocabulary
    from firth.objectives.heads.head import ObjectiveHead


@dataclass(frozen=True, kw_only=True)
class NaturalLanguageInference(LabelledObjective):
    """Whether a sentence follows from another one, by their vectors alone (Conneau et al. 2017)."""

    labels: tuple[str, ...] = NLI_LABELS
    """The labels of the file, upper or lower case."""
    hidden: int = 512
    """Width of the layers before the last one of the classifier."""
    layers: int = 2
    """Their number."""
    activation: Literal["none", "tanh", "relu"] = "none"
    """Between them; none as published: three linear layers."""

    name: ClassVar[str] = "nli"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ranges(self, hidden=(1, 100_000), layers=(0, 100))
        check_labels(self, self.labels)

    @property
    def known_labels(self) -> tuple[str, ...]:
        return self.labels

    def build(self, recipe: NetRecipe, vocabulary: Vocabulary, network: Network) -> ObjectiveHead:
        from firth.objectives.heads.nli import InferenceHead

        widths = (*[self.hidden] * self.layers, len(self.labels))
        return InferenceHead(self, recipe, vocabulary, widths, self.activation)
