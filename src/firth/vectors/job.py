"""What a trainer of vectors is given and what it gives back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from firth.text.layout import Layout
from firth.tokens.tokenizer import Tokenizer
from firth.vectors.phrases import Phrases
from firth.vectors.text import TrainingText

Arrays = dict[str, npt.NDArray[Any]]


class Keeper(Protocol):
    """Keeps the state of a training run, so that it can go on after a crash."""

    def due(self) -> bool:
        """Whether it is time to keep the state."""
        ...

    def keep(self, arrays: Mapping[str, npt.NDArray[Any]], state: Mapping[str, Any]) -> None:
        """Writes the state, whole or not at all."""
        ...

    def kept(self) -> tuple[Arrays, dict[str, Any]] | None:
        """What was kept last, if there is something and it is to be gone on with."""
        ...


@dataclass(frozen=True)
class Job:
    """What a trainer is given beside its recipe."""

    text: TrainingText
    """With the recipe's phrases joined."""
    tokenizer: Tokenizer
    layout: Layout
    seed: int = 0
    threads: int = 1
    tokens: int | None = None
    """Budget: go through so many words of text, whatever the recipe's epochs."""
    seconds: float | None = None
    flops: float | None = None
    keeper: Keeper | None = None
    phrases: Phrases | None = None
    """Those of the text, for the model to find in other texts."""
    start: Any = None
    """A model to go on from: its words are the first of the text's."""
    labels: npt.NDArray[np.int32] | None = None
    """Of each document, for those that learn to tell them."""
    names: tuple[str, ...] = ()
    """Of the labels."""


@dataclass(frozen=True)
class Result:
    """What a trainer gives back."""

    model: Any
    """Its `recipe` is the one that was asked for, with what was left open filled in."""
    tokens: int
    """Words of text that were gone through, again and again if there were several passes."""
    metrics: dict[str, Any] = field(default_factory=dict)
