"""Objectives of sentence vectors: what their settings have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from firth.errors import RecipeError
from firth.nets.objective import Objective, Source, Visibility
from firth.nets.recipe import NetRecipe

NLI_LABELS = ("entailment", "neutral", "contradiction")


@dataclass(frozen=True, kw_only=True)
class SentenceObjective(Objective):
    """Trains the vectors of sentences, in batches of groups of sentences: each sentence is a sequence of its own."""

    share: float = 0.0
    """Fraction of the training steps; 0: an equal part of the steps that other objectives leave."""

    groups_sentences: ClassVar[bool] = True
    needs_output: ClassVar[bool] = False
    visibilities: ClassVar[tuple[Visibility, ...]] = ("bidirectional", "causal", "forward+backward")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.share < 1:
            raise RecipeError(f"{self.name}.share={self.share} must be from 0 to 1, such as 0.1; 0: an equal part.")

    def check(self, recipe: NetRecipe) -> None:
        super().check(recipe)
        if recipe.memory.length:
            raise RecipeError(
                f"{self.name} reads single sentences, which have no memory of others: set memory.length=0."
            )

    @property
    def predicted(self) -> float:
        return 0.0  # a few for each group of sentences


@dataclass(frozen=True, kw_only=True)
class LabelledObjective(SentenceObjective):
    """Trains on labelled pairs of sentences."""

    source: ClassVar[Source] = "labels"

    @property
    def known_labels(self) -> tuple[str, ...]:
        """The labels that it uses; every one must occur."""
        return NLI_LABELS

    @property
    def needs_all_labelled(self) -> bool:
        """Whether a pair with another label is an error; otherwise it is not used."""
        return True


def check_labels(objective: Objective, labels: tuple[str, ...]) -> None:
    """Raise `RecipeError` unless there are two different labels or more."""
    folded = {one.casefold() for one in labels}
    if len(labels) < 2 or len(folded) < len(labels):
        raise RecipeError(
            f"{objective.name} tells two or more different labels apart, not {','.join(labels) or 'none':.80}: name "
            "them as in the file, with commas between them."
        )
