"""Intervals by the percentile bootstrap (Efron 1979), without measuring anything twice.

A metric here is a function of how often each kind of example occurs. So a resample is one row of weights, drawn from a
multinomial distribution over the kinds, and all resamples are measured together by products of matrices. That is
exactly the ordinary bootstrap: to draw n examples with replacement and count the kinds is to draw the counts.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

LEVEL = 0.95
_ROOM = 2_000_000  # weights that are held at a time


class Sample(NamedTuple):
    """Examples by kind, and how to measure any number of each."""

    counts: Ints
    """How many examples are of each kind."""
    measures: Callable[[Floats], dict[str, Floats]]
    """From weights of the kinds, a row for each resample, to each metric's value for each resample."""


def measured(sample: Sample, *, seed: int = 0, samples: int = 1000) -> dict[str, Any]:
    """The value of each metric and, as `<metric>_interval`, what 95% of the resamples lie between.

    >>> right = sums_sample(np.array([[1.0], [1.0], [0.0], [1.0]]), lambda sums, n: {"accuracy": sums[:, 0] / n})
    >>> measured(right)
    {'accuracy': 0.75, 'accuracy_interval': [0.25, 1.0]}
    """
    drawn = [sample.measures(weights) for weights in resamples(sample.counts, seed, samples)]
    result: dict[str, Any] = {}
    for metric, value in values(sample).items():
        result[metric] = value
        if not drawn:
            continue
        result[f"{metric}_interval"] = interval(np.concatenate([block[metric] for block in drawn]))
    return result


def values(sample: Sample) -> dict[str, float]:
    """The value of each metric, without intervals."""
    everything = sample.counts[None].astype(np.float64)
    return {metric: float(value[0]) for metric, value in sample.measures(everything).items()}


def interval(drawn: Floats, level: float = LEVEL) -> list[float]:
    """What the middle `level` of the drawn values lies between."""
    beside = (1 - level) / 2
    low, high = np.quantile(drawn, [beside, 1 - beside])
    return [float(low), float(high)]


def resamples(counts: Ints, seed: int, samples: int) -> Iterator[Floats]:
    """Weights of the kinds in resamples of the examples, some rows at a time; row i depends on the seed and i alone."""
    total = int(counts.sum())
    shares = counts / total
    rows = max(1, _ROOM // len(counts))
    for first in range(0, samples, rows):
        numbers = range(first, min(first + rows, samples))
        drawn = [np.random.default_rng((seed, number)).multinomial(total, shares) for number in numbers]
        yield np.array(drawn, dtype=np.float64)


def sums_sample(rows: Floats, measures: Callable[[Floats, Floats], dict[str, Floats]]) -> Sample:
    """For metrics of sums over examples: `rows` has a row of numbers for each example.

    `measures` is given the sums, a row for each resample, and the number of examples, as a column's worth of numbers.
    """
    kinds, counts = np.unique(rows, axis=0, return_counts=True)
    return Sample(counts.astype(np.int64), lambda weights: measures(weights @ kinds, weights.sum(axis=1)))


def kinds_of(examples: Sequence[Hashable]) -> tuple[list[Any], Ints]:
    """The different examples in order of first appearance, and how often each occurs."""
    counts: dict[Any, int] = {}
    for example in examples:
        counts[example] = counts.get(example, 0) + 1
    return list(counts), np.array(list(counts.values()), dtype=np.int64)


def sums_by_code(weights: Floats, codes: Ints, size: int) -> Floats:
    """For each resample, the weights of the kinds that have the same code, codes being 0 to size - 1."""
    order = np.argsort(codes, kind="stable")
    present, starts = np.unique(codes[order], return_index=True)
    sums = np.zeros((len(weights), size))
    if len(present):
        sums[:, present] = np.add.reduceat(weights[:, order], starts, axis=1)
    return sums


def ratio(part: Floats, whole: Floats) -> Floats:
    """part / whole, and 0 where there is nothing to divide by."""
    result: Floats = np.divide(part, whole, out=np.zeros(np.broadcast(part, whole).shape), where=whole != 0)
    return result
