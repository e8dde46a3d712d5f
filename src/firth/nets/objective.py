"""Objective: a training objective as a part of a recipe."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from firth.errors import RecipeError

if TYPE_CHECKING:
    from torch import nn

    from firth.nets.model import NetModel
    from firth.nets.network import Network, Vocabulary
    from firth.nets.recipe import NetRecipe

Visibility = Literal["causal", "bidirectional", "forward+backward"]
Source = Literal["text", "translations", "labels", "trees"]
PAIRS = ("segment-pair", "sentence-pair")
"""Formats of sequences of two segments."""


@dataclass(frozen=True, kw_only=True)
class Objective(ABC):
    """A training objective: what it needs of a recipe, and what a network trained with it can do.

    The subclasses in `firth.objectives` add their settings. `build` makes the noise, the layers and the loss, which are
    in `firth.objectives.heads`, apart from the settings: recipes are read without loading torch.
    """

    weight: float = 1.0
    """Factor of the mean loss."""
    begin: float = 0.0
    """The fraction of the training from which on it is trained."""
    end: float = 1.0
    """The fraction of the training up to which it is trained."""

    name: ClassVar[str]
    visibilities: ClassVar[tuple[Visibility, ...]] = ("bidirectional",)
    """The visibilities with which it can be trained."""
    needs_pairs: ClassVar[bool] = False
    """Whether sequences must be pairs of segments."""
    classifies_pairs: ClassVar[bool] = False
    """Whether its head has the layers of next-sentence prediction: a pooler and a classifier."""
    source: ClassVar[Source] = "text"
    """What it is trained on: running text, translations, labelled pairs of sentences, or sentences with trees."""
    groups_sentences: ClassVar[bool] = False
    """Whether it has batches of its own, of groups of sentences that it finds (`SentenceHead.find`)."""
    needs_sentences: ClassVar[bool] = False
    """Whether its noise needs the begins of sentences within sequences (`Batch.sentence_starts`)."""
    lays_out: ClassVar[bool] = False
    """Whether it has sequences of its own, which its head makes of the text (`ObjectiveHead.lay_out`)."""
    is_optional: ClassVar[bool] = False
    """Whether it is left out if there is no text of its kind."""
    needs_output: ClassVar[bool] = True
    """Whether its loss uses the network's output layer."""
    reads_both_sides: ClassVar[bool] = False
    """Whether the output layer reads the states on both sides of a token (output.kind=negative)."""
    needs_dropout: ClassVar[bool] = False
    """Whether it is trained by the differences that dropout makes."""
    compares_sequences: ClassVar[bool] = False
    """Whether the loss of a sequence depends on the others of its batch."""
    orders_attention: ClassVar[bool] = False
    """Whether its batches have an order of attention, which is the visibility of training; the recipe's is that of
    use."""
    predicts_early: ClassVar[bool] = False
    """Whether a masked token is predicted from the state of the position before it."""
    predicts: ClassVar[Literal["next", "masked"] | None] = None
    """Which tokens the network's output layer predicts: each from those before it, or masked ones from all others."""

    hides_masks: ClassVar[bool] = False
    """Whether the decoder of a network trained with it does not attend to masks of the source."""
    writes_labels: ClassVar[bool] = False
    """Whether a network trained with it is fine-tuned to write labels as text, and not with a layer for them."""
    generation_segments: ClassVar[tuple[int, int]] = (0, 1)
    """The segments of a source and its target when a network trained with it generates."""

    def __post_init__(self) -> None:
        if not 0 <= self.weight < math.inf:
            raise RecipeError(f"{self.name}.weight={self.weight} must be 0 or more.")
        if not 0 <= self.begin < self.end <= 1:
            raise RecipeError(
                f"{self.name} is trained from {self.begin} to {self.end} of the run: set {self.name}.begin and "
                f"{self.name}.end to ascending numbers from 0 to 1."
            )

    def check(self, recipe: NetRecipe) -> None:
        """Raise `RecipeError`, which names both parts, if the objective does not go with the rest of a recipe."""
        if recipe.visibility not in self.visibilities:
            raise RecipeError(
                f"{self.name} cannot be trained with visibility={recipe.visibility}: "
                f"set visibility={self.visibilities[0]}."
            )
        if self.needs_pairs and recipe.sequence.format not in PAIRS:
            raise RecipeError(
                f"{self.name} needs pairs, not sequence.format={recipe.sequence.format}: set "
                "sequence.format=segment-pair or sentence-pair."
            )
        if recipe.sequence.format == "contiguous-pair" and not self.orders_attention:
            raise RecipeError(
                f"sequence.format=contiguous-pair is made for a permuted order, which {self.name} does not have: set "
                "sequence.format=contiguous."
            )
        if self.needs_output and self.reads_both_sides != (recipe.output.kind == "negative"):
            kinds = "negative" if self.reads_both_sides else "tied or full"
            raise RecipeError(
                f"{self.name} cannot be trained with output.kind={recipe.output.kind}: set output.kind={kinds}."
            )
        if self.needs_output and recipe.output.kind == "none":
            raise RecipeError(f"{self.name} predicts tokens, but output.kind is none: set output.kind=tied or full.")

    @abstractmethod
    def build(self, recipe: NetRecipe, vocabulary: Vocabulary, network: Network) -> nn.Module:
        """The objective's noise, layers and loss, an `ObjectiveHead`; it may share parts of the network."""

    def model_type(self, recipe: NetRecipe) -> type[NetModel] | None:
        """The class of models trained with it; None if it adds no ability."""
        return None

    def second_network(self, recipe: NetRecipe) -> NetRecipe | None:
        """The network that its head owns, which shares the embedding of the first one; None: there is none."""
        return None

    @property
    def needs_translations(self) -> bool:
        """Whether it is trained on parallel text, and not on texts of one language."""
        return self.source == "translations"

    @property
    def predicted(self) -> float:
        """The approximate fraction of tokens at which it predicts."""
        return 1.0

    @property
    def sides(self) -> tuple[float, float] | None:
        """Positions of the source and of the decoder's input that it makes of a token of text; None: it makes none."""
        return None

    def lacks(self, store: Any) -> str:
        """What a text, in a token store, must have for it and has not; empty: nothing."""
        return ""

    @property
    def own_segments(self) -> int:
        """Segment embeddings that it alone uses."""
        return 0

    @property
    def requires(self) -> tuple[str, ...]:
        """The columns of the token store that its noise or its labels are made of."""
        return ()

    @property
    def stages(self) -> tuple[float, ...]:
        """The fractions of the training at which its noise changes."""
        return ()

    @property
    def stage_name(self) -> str:
        """What tells its stage from others."""
        return ""

    def at(self, progress: float) -> Objective:
        """The objective as it is after a fraction of the training."""
        return self

    @property
    def copies(self) -> int:
        """Segments that it makes of each one: sequences leave space for them."""
        return 1

    @property
    def variants(self) -> int:
        """How many versions of layout and noise the epochs repeat in turn; 0: each epoch has its own."""
        return 0

    def published_noise(self) -> dict[str, float]:
        """What its paper states about its noise, with these settings: the names and numbers of `firth noise`."""
        return {}

    def small_run_defaults(self) -> dict[str, tuple[Any, str]]:
        """Settings that suit short runs better than the published ones: field -> value and reason."""
        return {}

    def weight_at(self, progress: float) -> float:
        """The factor of the mean loss after a fraction of the training."""
        return self.weight if self.begin <= progress < self.end or progress == self.end == 1 else 0.0
