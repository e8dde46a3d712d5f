"""Reference discounts from counts of counts: n[r] is the number of distinct n-grams that occur r times."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction


def one_discount(n: Mapping[int, int]) -> Fraction:
    """D = n1 / (n1 + 2 n2) of Ney, Essen and Kneser (1994); 1/2 if there are no n1 or no n2."""
    n1, n2 = n.get(1, 0), n.get(2, 0)
    return Fraction(n1, n1 + 2 * n2) if n1 and n2 else Fraction(1, 2)


def three_discounts(n: Mapping[int, int]) -> tuple[Fraction, Fraction, Fraction]:
    """D_1, D_2 and D_3+ of Chen and Goodman (1998); 1/2, 1 and 3/2 if n1 ... n4 do not give 0 < D_j <= j."""
    fallback = (Fraction(1, 2), Fraction(1), Fraction(3, 2))
    if not all(n.get(r, 0) for r in (1, 2, 3, 4)):
        return fallback
    y = Fraction(n[1], n[1] + 2 * n[2])
    d1, d2, d3 = (j - (j + 1) * y * Fraction(n[j + 1], n[j]) for j in (1, 2, 3))
    return (d1, d2, d3) if 0 < d1 <= 1 and 0 < d2 <= 2 and 0 < d3 <= 3 else fallback


def averaging_transform(n: Mapping[int, int]) -> dict[int, float]:
    """Z_r = n_r / ((t - q)/2), q and t being the neighbours of r that occur (Gale and Sampson 1995)."""
    rs = sorted(r for r in n if n[r])
    z = {}
    for position, r in enumerate(rs):
        q = rs[position - 1] if position > 0 else 0
        t = rs[position + 1] if position + 1 < len(rs) else 2 * r - q
        z[r] = n[r] / (0.5 * (t - q))
    return z


def slope_of(z: Mapping[int, float]) -> float:
    """The slope of the line through (log r, log Z_r) with the least squares."""
    points = [(math.log(r), math.log(value)) for r, value in z.items()]
    x_mean = math.fsum(x for x, _ in points) / len(points)
    y_mean = math.fsum(y for _, y in points) / len(points)
    above = math.fsum((x - x_mean) * (y - y_mean) for x, y in points)
    return above / math.fsum((x - x_mean) ** 2 for x, _ in points)


def simple_good_turing(n: Mapping[int, int]) -> dict[int, Fraction] | None:
    """r* for each r that occurs, not yet scaled; None without an r = 1 and another r, or if the line is too flat.

    Turing's estimate (r+1) n_{r+1} / n_r for small r, and the line's, r (1 + 1/r)^(slope + 1), from the first r on
    where the two differ by at most 1.65 standard deviations of Turing's.
    """
    rs = sorted(r for r in n if n[r])
    if len(rs) < 2 or rs[0] != 1:
        return None
    slope = slope_of(averaging_transform(n))
    if slope > -1 - 1e-9:  # at -1 itself r* = r: rounding must not decide whether anything is left for unseen words
        return None
    stars: dict[int, Fraction] = {}
    line_from_here = False
    for r in rs:
        line = r * (1 + 1 / r) ** (slope + 1)
        following = n.get(r + 1, 0)
        if not line_from_here:
            turing = Fraction((r + 1) * following, n[r])
            deviation = math.sqrt((r + 1) ** 2 * following / n[r] ** 2 * (1 + following / n[r]))
            line_from_here = following == 0 or abs(turing - line) <= 1.65 * deviation
        stars[r] = Fraction(line) if line_from_here else turing
    return stars


def good_turing_ratios(n: Mapping[int, int]) -> dict[int, Fraction] | None:
    """r*/r for each r, at most 1."""
    stars = simple_good_turing(n)
    return None if stars is None else {r: min(star / r, Fraction(1)) for r, star in stars.items()}


def katz_ratios(n: Mapping[int, int], k: int) -> dict[int, Fraction] | None:
    """d_r of Katz (1987) for r = 1 ... k, or None if one of them is not above 0 and at most 1.

    1 - d_r is in proportion to 1 - r*/r, so the factor 1 / (1 - (k+1) n_{k+1} / n_1) has to be above 0 too.
    """
    if not all(n.get(r, 0) for r in range(1, k + 2)):
        return None
    common = Fraction((k + 1) * n[k + 1], n[1])
    if common >= 1:
        return None
    ratios = {r: (Fraction((r + 1) * n[r + 1], r * n[r]) - common) / (1 - common) for r in range(1, k + 1)}
    return ratios if all(0 < ratio <= 1 for ratio in ratios.values()) else None
