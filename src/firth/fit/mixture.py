"""MixtureSource: weighted mixtures of sources of batches, each step from one source."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol

import numpy as np
import numpy.typing as npt

from firth.fit.batches import Cursor
from firth.nets.batch import Batch
from firth.objectives.sequences import Integers

ROUND = 1000
"""Steps of a round, after which each source has had exactly its share."""


class EpochSource(Protocol):
    """A source of batches that knows the number of steps of each epoch, as `Batches` does."""

    @property
    def tokens(self) -> int:
        """Tokens of an epoch."""

    @property
    def split(self) -> int:
        """Sentences or examples longer than the maximum sequence length."""

    @property
    def rows(self) -> int:
        """By how much a step advances the cursor."""

    def steps(self, epoch: int = 0) -> int:
        """The number of steps of an epoch."""

    def step(self, cursor: Cursor, length: int | None = None) -> tuple[list[Batch], Cursor]:
        """The batches of the step at a cursor, and the cursor of the next step."""

    def fixed(self, tokens: int) -> list[Batch]:
        """Validation batches of about `tokens` tokens."""


class MixtureSource:
    """A weighted mixture; every source is read in its own order, epoch after epoch.

    Steps are in rounds. A round has exactly `quotas` steps of each source, evenly spread from a random beginning, so
    any number of steps is close to the weights. The source of a step, and its position there, are functions of the
    seed and the step: a cursor is the number of the round and the step in it.
    """

    def __init__(self, sources: Sequence[EpochSource], weights: Sequence[float], seed: int) -> None:
        self.sources, self.seed = tuple(sources), seed
        self.quotas = make_quotas(weights, ROUND)
        self._ends: list[list[int]] = [[0] for _ in sources]  # steps before each epoch
        self._order = lru_cache(maxsize=4)(self._shuffle)

    @property
    def tokens(self) -> int:
        """Tokens of all sources."""
        return sum(source.tokens for source in self.sources)

    @property
    def split(self) -> int:
        """Sentences longer than a sequence in all sources."""
        return sum(source.split for source in self.sources)

    def source_at(self, cursor: Cursor) -> tuple[int, int]:
        """The number of the source of a step, and how many steps of it were before."""
        order = self._order(cursor.epoch)
        chosen = int(order[cursor.row])
        done = int(np.count_nonzero(order[: cursor.row] == chosen))
        return chosen, cursor.epoch * self.quotas[chosen] + done

    def step(self, cursor: Cursor, length: int | None = None) -> tuple[list[Batch], Cursor]:
        """The batches of the step at a cursor, and the cursor of the next step."""
        chosen, done = self.source_at(cursor)
        batches, _ = self.sources[chosen].step(self._own_cursor(chosen, done), length)
        after = Cursor(cursor.epoch, cursor.row + 1)
        return batches, after if after.row < ROUND else Cursor(cursor.epoch + 1, 0)

    def fixed(self, tokens: int) -> list[Batch]:
        """Validation batches of about `tokens` tokens, from each source by its size."""
        shares = [max(1, tokens * source.tokens // max(self.tokens, 1)) for source in self.sources]
        return [batch for source, share in zip(self.sources, shares, strict=True) for batch in source.fixed(share)]

    def _own_cursor(self, chosen: int, done: int) -> Cursor:
        """The position in a source after so many steps of it; epochs may differ in their number of steps."""
        source, ends = self.sources[chosen], self._ends[chosen]
        while ends[-1] <= done:
            ends.append(ends[-1] + source.steps(len(ends) - 1))
        epoch = int(np.searchsorted(ends, done, side="right")) - 1
        return Cursor(epoch, (done - ends[epoch]) * source.rows)

    def _shuffle(self, epoch: int) -> npt.NDArray[np.int64]:
        """The source of each step of a round: the j-th step of one with k steps is due at (j + u) / k, u being random.

        >>> MixtureSource([], [], 0)._shuffle(0).tolist()
        []
        """
        rng = np.random.Generator(np.random.SFC64([self.seed, epoch]))
        due = [(np.arange(quota) + rng.random()) / quota for quota in self.quotas]
        owners = np.repeat(np.arange(len(self.quotas)), self.quotas)
        return np.asarray(owners[np.argsort(np.concatenate([*due, []]), kind="stable")], dtype=np.int64)


def make_quotas(weights: Sequence[float], steps: int) -> list[int]:
    """How many of the steps each source has: in proportion to the weights, by largest remainders, at least one.

    >>> make_quotas([2, 1, 0.0001], 10), make_quotas([1, 1, 1], 10)
    ([6, 3, 1], [4, 3, 3])
    """
    if not weights:
        return []
    exact = np.array(weights, dtype=np.float64) / sum(weights) * steps
    quotas = np.maximum(np.floor(exact).astype(np.int64), 1)
    while (missing := steps - int(quotas.sum())) != 0:
        gaps = exact - quotas
        allowed = quotas > 1 if missing < 0 else np.ones(quotas.size, dtype=bool)
        change = int(np.argmax(np.where(allowed, gaps * np.sign(missing), -np.inf)))
        quotas[change] += np.sign(missing)
    return [int(quota) for quota in quotas]


def power_weights(sizes: Sequence[float] | Integers, alpha: float) -> list[float]:
    """p^alpha, normalised, p being the fraction of each size (Lample and Conneau 2019, equation 1).

    >>> [round(weight, 4) for weight in power_weights([90, 10], 0.5)]
    [0.75, 0.25]
    """
    powers = (np.array(sizes, dtype=np.float64) / np.sum(sizes)) ** alpha
    return [float(power) for power in powers / powers.sum()]
