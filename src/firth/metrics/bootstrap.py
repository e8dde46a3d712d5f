"""Confidence intervals by the percentile bootstrap (Efron 1979), vectorised over resamples.

Examples that count alike for a metric are of one kind. A resample is a vector of counts of the kinds, drawn from a
multinomial distribution, which equals drawing examples with replacement; metrics are computed for all resamples at once
by matrix products.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

LEVEL = 0.95
_MAX_WEIGHTS = 2_000_000  # held in memory at a time


class Sample(NamedTuple):
    """Counts of the kinds of examples and the metrics as a function of such counts."""

    counts: Ints
    measures: Callable[[Floats], dict[str, Floats]]  # from weights (resamples, kinds) to values (resamples)


def measured(sample: Sample, *, seed: int = 0, samples: int = 1000) -> dict[str, Any]:
    """The value of each metric and its 95% interval as `<metric>_interval`.

    >>> right = sums_sample(np.array([[1.0], [1.0], [0.0], [1.0]]), lambda sums, n: {"accuracy": sums[:, 0] / n})
    >>> measured(right)
    {'accuracy': 0.75, 'accuracy_interval': [0.25, 1.0]}
    """
    drawn = [sample.measures(weights) for weights in resamples(sample.counts, seed, samples)]
    result: dict[str, Any] = {}
    for metric, value in values(sample).items():
        result[metric] = value
        if drawn:
            result[f"{metric}_interval"] = interval(np.concatenate([block[metric] for block in drawn]))
    return result


def values(sample: Sample) -> dict[str, float]:
    """The value of each metric without its interval."""
    everything = sample.counts[None].astype(np.float64)
    return {metric: float(value[0]) for metric, value in sample.measures(everything).items()}


def interval(drawn: Floats, level: float = LEVEL) -> list[float]:
    """The central interval that contains the fraction `level` of the values."""
    tail = (1 - level) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail])
    return [float(low), float(high)]


def resamples(counts: Ints, seed: int, samples: int) -> Iterator[Floats]:
    """Weights (resamples, kinds), a block at a time; row i depends on the seed and i alone."""
    total = int(counts.sum())
    probabilities = counts / total
    rows = max(1, _MAX_WEIGHTS // len(counts))
    for first in range(0, samples, rows):
        numbers = range(first, min(first + rows, samples))
        drawn = [np.random.default_rng((seed, number)).multinomial(total, probabilities) for number in numbers]
        yield np.array(drawn, dtype=np.float64)


def sums_sample(rows: Floats, measures: Callable[[Floats, Floats], dict[str, Floats]]) -> Sample:
    """The sample of metrics of sums over examples.

    rows: (examples, statistics). measures: from sums (resamples, statistics) and counts (resamples) to metrics.
    """
    kinds, counts = np.unique(rows, axis=0, return_counts=True)
    return Sample(counts.astype(np.int64), lambda weights: measures(weights @ kinds, weights.sum(axis=1)))


def kinds_of(examples: Sequence[Hashable]) -> tuple[list[Any], Ints]:
    """The distinct examples in order of first occurrence, and their counts."""
    counts = Counter(examples)
    return list(counts), np.array(list(counts.values()), dtype=np.int64)


def sums_by_code(weights: Floats, codes: Ints, size: int) -> Floats:
    """(resamples, size): the summed weights of the kinds with each code from 0 to size - 1."""
    order = np.argsort(codes, kind="stable")
    present, starts = np.unique(codes[order], return_index=True)
    sums = np.zeros((len(weights), size))
    if len(present):
        sums[:, present] = np.add.reduceat(weights[:, order], starts, axis=1)
    return sums


def ratio(part: Floats, whole: Floats) -> Floats:
    """part / whole, and 0 where whole is 0."""
    result: Floats = np.divide(part, whole, out=np.zeros(np.broadcast(part, whole).shape), where=whole != 0)
    return result
