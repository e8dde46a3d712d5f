"""StagedSource: batches that differ between the stages of a training run."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from typing import Protocol

from firth.fit.batches import Cursor
from firth.nets.batch import Batch


class StageSource(Protocol):
    """The batches of a stage."""

    @property
    def tokens(self) -> int:
        """Tokens of an epoch."""

    @property
    def split(self) -> int:
        """Sentences longer than a sequence."""

    def step(self, cursor: Cursor, length: int | None = None) -> tuple[list[Batch], Cursor]:
        """The batches of the step at a cursor, and the cursor of the next step."""

    def fixed(self, tokens: int) -> list[Batch]:
        """Validation batches of about `tokens` tokens."""


class StagedSource:
    """A source of batches for each stage. Cursors go on from stage to stage; without a stage, it is the last one.

    >>> from typing import cast
    >>> staged = StagedSource(cast("dict[float, StageSource]", {0.0: "first", 0.5: "second"}))
    >>> staged.at(0.49), staged.at(0.5), staged.last
    ('first', 'second', 'second')
    """

    def __init__(self, stages: Mapping[float, StageSource]) -> None:
        """`stages`: the fraction of the training at which each begins -> its batches."""
        self.begins, self.sources = sorted(stages), [stages[begin] for begin in sorted(stages)]

    def at(self, progress: float) -> StageSource:
        """The batches after a fraction of the training."""
        return self.sources[max(bisect_right(self.begins, progress) - 1, 0)]

    @property
    def last(self) -> StageSource:
        """The batches of the last stage."""
        return self.sources[-1]

    @property
    def tokens(self) -> int:
        """Tokens of an epoch."""
        return self.last.tokens

    @property
    def split(self) -> int:
        """Sentences longer than a sequence."""
        return self.last.split

    def step(self, cursor: Cursor, length: int | None = None) -> tuple[list[Batch], Cursor]:
        """The batches of the step at a cursor of the last stage, and the cursor of the next step."""
        return self.last.step(cursor, length)

    def fixed(self, tokens: int) -> list[Batch]:
        """Validation batches of the last stage."""
        return self.last.fixed(tokens)
