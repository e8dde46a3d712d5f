"""Numba kernels that turn counts into probabilities, one history after the other.

With c the count of an n-gram, d its discount and e what is added for its history h:

    alpha(w|h) = (c(hw) - d(hw)) / (c(h.) + e(h))        rest(h) = (sum of d + e(h)) / (c(h.) + e(h))

Interpolated models add rest(h) times the probability after the shorter history to every alpha; back-off models give it
to the words never seen after h alone.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

INTERPOLATED, BACK_OFF, FLAT_INTERPOLATED, FLAT_BACK_OFF, UNSCALED = range(5)
"""How the rest is given on: to the shorter history, the same for unseen words only, equally to all words, equally to
unseen words, or by a constant weight (stupid back-off)."""


@njit(cache=True, nogil=True)
def logarithms(p: Any, begin: Any, end: Any, offset: Any, out: Any) -> Any:
    """Natural logarithms of `p[begin:end]`, written `offset` places further on; of 0 minus infinity."""
    for i in range(begin, end):
        out[offset + i] = math.log(p[i]) if p[i] > 0.0 else -np.inf


@njit(cache=True, nogil=True)
def totals(first: Any, begin: Any, end: Any, base: Any, counts: Any, out: Any, distinct: Any) -> Any:
    """The sum of the counts after each of the histories from `begin` to `end`, and the number of different words.

    `counts` are those of the level above, whose first node is `base`; `out[0]` is for node `begin`.
    """
    for g in range(begin, end):
        total = 0.0
        for child in range(first[g] - base, first[g + 1] - base):
            total += counts[child]
        out[g - begin] = total
        distinct[g - begin] = first[g + 1] - first[g]


@njit(cache=True, nogil=True)
def _gather(lower: Any, lower_base: Any, links: Any, begin: Any, end: Any) -> Any:
    """The probabilities one level down, fetched in a loop that does nothing else, so that the waits overlap."""
    under = np.empty(end - begin)
    for i in range(begin, end):
        under[i - begin] = lower[np.int64(links[i]) - lower_base]
    for i in range(end - begin):
        under[i] = math.exp(under[i])
    return under


@njit(cache=True, nogil=True)
def estimate(
    first: Any, parents: Any, origin: Any, base: Any, counts: Any, links: Any, lower: Any, lower_base: Any, table: Any,
    slope: Any, extra: Any, taken: Any, spare: Any, combine: Any, flat: Any, weight: Any, words: Any, rounded: Any,
    logp: Any, bow: Any,
) -> Any:  # fmt: skip
    """Fills `logp` for the children of the nodes in `parents`, and `bow` for the nodes themselves.

    `lower` holds the logarithms of one level down. Discounts are `table[min(c, last)] + slope[h] * c + taken[node]`,
    each where given; `flat` is 1/V; `words` is V. `rounded` probabilities are those that float32 logarithms stand for,
    and `bow` is then made to fit them, so that they still sum to one. `origin` is the first node of the histories'
    level. Where nothing is discounted, `spare` is added to the count of the history: unseen words get something.
    """
    offset = np.int64(first[parents[0]]) - base
    under = _gather(lower, lower_base, links, offset, np.int64(first[parents[1]]) - base)
    p = np.empty(under.size)
    for g in range(parents[0], parents[1]):
        begin, end = np.int64(first[g]) - base - offset, np.int64(first[g + 1]) - base - offset
        h = g - origin
        if begin == end:
            bow[h] = 1.0
            continue
        total, discounted, below = 0.0, 0.0, 0.0
        for child in range(begin, end):
            count = counts[offset + child]
            total += count
            discount = 0.0
            if table.size:
                discount = table[min(np.int64(count), table.size - 1)]
            if slope.size:
                discount += slope[h] * count
            if taken.size:
                discount += taken[offset + child]
            discounted += discount
            p[child] = count - discount
            below += under[child]
        more = extra[h] if extra.size else 0.0
        if discounted + more == 0.0:
            more = spare
        rest = (discounted + more) / (total + more)
        scale = 1.0 / (total + more)
        if combine in (FLAT_INTERPOLATED, FLAT_BACK_OFF):
            below = flat * (end - begin)
        given = rest
        if combine == UNSCALED:
            given = weight
        elif combine in (BACK_OFF, FLAT_BACK_OFF):
            if end - begin >= words or 1.0 - below < 1e-13:  # no word is left to give the rest to
                scale /= 1.0 - rest
                given = 0.0
            else:
                given = rest / (1.0 - below)
        if combine == INTERPOLATED:
            for child in range(begin, end):
                p[child] = p[child] * scale + rest * under[child]
        elif combine == FLAT_INTERPOLATED:
            for child in range(begin, end):
                p[child] = p[child] * scale + rest * flat
        else:
            for child in range(begin, end):
                p[child] = p[child] * scale
        if rounded and combine != UNSCALED:
            given = _round(p, logp, begin, end, offset, below, given)
        else:
            logarithms(p, begin, end, offset, logp)
        bow[h] = given


@njit(cache=True, nogil=True)
def _round(p: Any, logp: Any, begin: Any, end: Any, offset: Any, below: Any, given: Any) -> Any:
    """Rounds logarithms to float32; the weight that makes the probabilities that they stand for sum to one again."""
    seen = 0.0
    for child in range(begin, end):
        logp[offset + child] = np.float32(math.log(p[child])) if p[child] > 0.0 else -np.inf
        seen += math.exp(np.float64(logp[offset + child]))
    if given > 0.0 and seen < 1.0 and below < 1.0:
        return (1.0 - seen) / (1.0 - below)
    return given


@njit(cache=True, nogil=True)
def renormalise(
    first: Any, parents: Any, origin: Any, base: Any, links: Any, lower: Any, lower_base: Any, flat: Any, p: Any,
    bow: Any,
) -> Any:  # fmt: skip
    """Back-off weights that make the probabilities `p`, whatever they are, sum to one after every history.

    With `flat` above 0 the rest is shared equally among unseen words.
    """
    for g in range(parents[0], parents[1]):
        begin, end = np.int64(first[g]) - base, np.int64(first[g + 1]) - base
        seen, below = 0.0, 0.0
        for child in range(begin, end):
            seen += p[child]
            below += flat if flat > 0.0 else lower[np.int64(links[child]) - lower_base]
        if begin == end:
            bow[g - origin] = 1.0
        elif seen >= 1.0 or 1.0 - below < 1e-13:
            bow[g - origin] = 0.0
        else:
            bow[g - origin] = (1.0 - seen) / (1.0 - below)


@njit(cache=True, nogil=True)
def round_in_turn(p: Any, order: Any) -> Any:
    """Rounds each probability to what a float32 logarithm holds, in the given order; the next one takes the error."""
    owed = 0.0
    for word in order:
        if p[word] > 0.0:
            wanted = p[word] + owed
            p[word] = math.exp(np.float64(np.float32(math.log(wanted)))) if wanted > 0.0 else p[word]
            owed = wanted - p[word]
