"""The best labels of a row whose neighbours depend on each other, and how probable they are: any CRF is read so."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.floating[Any]]
UNLIKELY = -100.0
"""What a forbidden step counts where probabilities are told: their sum is above 0 even where every row is forbidden."""


class Decoded(NamedTuple):
    """The labels of a row."""

    labels: Numbers
    chances: Floats
    """The probability of each, whatever the others are."""


def decode(emissions: Floats, steps: Floats) -> Decoded:
    """The best labels by the emissions (places, labels) and the scores of steps, as `_linear_kernels` has them.

    Of equally good rows of labels it is that with the lowest last label, then the lowest last but one, and so on.

    >>> decode(np.array([[0.0, 2.0], [1.0, 0.0]]), np.zeros((3, 3))).labels.tolist()
    [1, 0]
    """
    from firth.tasks._linear_kernels import marginals, viterbi

    given = np.ascontiguousarray(emissions, dtype=np.float64)
    best = viterbi(given, steps)
    moves = np.exp(np.maximum(steps, UNLIKELY))
    return Decoded(best, marginals(given, moves, np.zeros_like(moves))[np.arange(best.size), best])
