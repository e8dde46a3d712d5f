"""Good-Turing: what an n-gram that occurred r times would occur in as much new text, from counts of counts."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_SURE = 1.65  # standard deviations by which the two estimates must differ for Turing's to be used

Counts = npt.NDArray[np.int64]


def simple_good_turing(n: Counts) -> npt.NDArray[np.float64] | None:
    """r* for every r up to the largest count, where `n[r]` is the number of n-grams that occur r times.

    Turing's (r + 1) n[r+1] / n[r] while the counts of counts are dense, and from a line through them on the log-log
    scale once they are holed (Gale and Sampson 1995). None where they do not support a line that falls fast enough.

    >>> n = np.zeros(8, dtype=np.int64)
    >>> n[1:8] = 120, 40, 24, 13, 15, 5, 11
    >>> simple_good_turing(n)[1:3].round(3).tolist()
    [0.75, 1.69]
    """
    r = np.flatnonzero(n)
    r = r[r > 0]
    if r.size < 2 or r[0] != 1:
        return None
    slope = _fit_slope(r, n[r])
    if slope > -1 - 1e-9:
        return None
    every = np.arange(n.size, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        line = (every + 1) * np.exp(slope * (np.log(every + 1) - np.log(every)))
    line[0] = 0
    stars = line.copy()
    for one in range(1, n.size - 1):
        here, after = int(n[one]), int(n[one + 1])
        if here == 0 or after == 0:
            break
        turing = (one + 1) * after / here
        spread = np.sqrt((one + 1) ** 2 * after / here**2 * (1 + after / here))
        if abs(turing - line[one]) <= _SURE * spread:
            break
        stars[one] = turing
    return np.asarray(stars)


def _fit_slope(r: Counts, n: Counts) -> float:
    """The slope of log Z over log r, Z being the counts of counts spread over the gaps beside them."""
    before = np.concatenate([[0], r[:-1]])
    after = np.concatenate([r[1:], [2 * r[-1] - before[-1]]])
    z = 2 * n / (after - before)
    slope, _ = np.polyfit(np.log(r), np.log(z), 1)
    return float(slope)
