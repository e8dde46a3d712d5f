"""Sequence to sequence: settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from firth.errors import RecipeError
from firth.nets.recipe import NetRecipe, Objective

if TYPE_CHECKING:
    from firth.nets.model import NetModel
    from firth.nets.network import Network, Vocabulary
    from firth.objectives.heads.head import ObjectiveHead


@dataclass(frozen=True, kw_only=True)
class SequenceToSequence(Objective):
    """Each token of a target is predicted from those before it and from the source (Vaswani et al. 2017)."""

    label_smoothing: float = 0.1
    """Probability that is spread over the vocabulary in training; 0: none."""
    smoothed: Literal["all", "others"] = "all"
    """Tokens that it is spread over: all (Szegedy et al. 2016, which the paper cites), or all but the target
    (tensor2tensor, fairseq)."""

    name: ClassVar[str] = "seq2seq"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.label_smoothing < 1:
            raise RecipeError(f"seq2seq.label_smoothing={self.label_smoothing} must be from 0 to 1, such as 0.1.")

    def check(self, recipe: NetRecipe) -> None:
        super().check(recipe)
        if recipe.decoder is None:
            raise RecipeError("seq2seq predicts by a decoder, and the recipe has none: train transformer, say.")
        if recipe.sequence.format != "parallel":
            raise RecipeError(
                f"seq2seq needs a source and a target, not sequence.format={recipe.sequence.format}: set "
                "sequence.format=parallel."
            )
        if self.label_smoothing and recipe.output.kind not in ("full", "tied"):
            raise RecipeError(
                f"seq2seq.label_smoothing={self.label_smoothing} needs probabilities of all tokens, which "
                f"output.kind={recipe.output.kind} does not compute: set seq2seq.label_smoothing=0 or output.kind=tied."
            )

    def build(self, recipe: NetRecipe, vocabulary: Vocabulary, network: Network) -> ObjectiveHead:
        from firth.objectives.heads.seq2seq import SequenceToSequenceHead

        return SequenceToSequenceHead(self, recipe, vocabulary, self.label_smoothing, self.smoothed == "all")

    def model_type(self, recipe: NetRecipe) -> type[NetModel]:
        from firth.nets.seq2seq import Seq2SeqNet

        return Seq2SeqNet
