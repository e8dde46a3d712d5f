"""The inputs and results of vector trainers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from firth.errors import BudgetError
from firth.records import MetricsFile, Record
from firth.text.layout import Layout
from firth.tokens.tokenizer import Tokenizer
from firth.training import Checkpointer
from firth.vectors.phrases import Phrases
from firth.vectors.text import TrainingText


@dataclass(frozen=True)
class VectorJob:
    """The inputs of a trainer besides its recipe."""

    text: TrainingText  # with the recipe's phrases joined
    tokenizer: Tokenizer
    layout: Layout
    seed: int = 0
    threads: int = 1
    tokens: int | None = None  # budget in words of text; it overrides the recipe's epochs, as do seconds and flops
    seconds: float | None = None
    flops: float | None = None
    checkpointer: Checkpointer | None = None
    file: MetricsFile = field(default_factory=MetricsFile)
    lr_field: str = "lr"  # the field of the recipe with the learning rate, for messages
    phrases: Phrases | None = None  # phrases of the text, for the model to join in other texts
    start: Any = None  # a model to continue training: its words are the first of the text's vocabulary
    labels: npt.NDArray[np.int32] | None = None  # label indices of each document, for classifiers
    names: tuple[str, ...] = ()  # label names

    @property
    def has_budget(self) -> bool:
        return self.tokens is not None or self.seconds is not None or self.flops is not None

    def refuse_budget(self, reason: str) -> None:
        """Raises `BudgetError` if there is a budget."""
        if self.has_budget:
            raise BudgetError(f"{reason}: leave --budget out and give less text instead.")

    def build(self, model_class: type[Any], recipe: Any, vectors: Any, **others: Any) -> Any:
        """A `VectorModel` of trained vectors with the counts and phrases of the text."""
        others = {"counts": self.text.counts, "phrases": self.phrases} | others
        return model_class(recipe, self.tokenizer, self.layout, vectors, **others)


@dataclass(frozen=True)
class VectorResult:
    """A trained model and its metrics."""

    model: Any  # its `recipe` is the given one with defaults resolved
    tokens: int  # words of text processed, summed over epochs
    metrics: dict[str, Any] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)  # of training step by step
