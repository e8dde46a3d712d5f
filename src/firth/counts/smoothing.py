"""The smoothing methods: discounts and pseudo-counts, n-gram length by n-gram length.

    alpha(w|h) = (c(hw) - d(hw)) / (c(h.) + e(h))        gamma(h) = (sum of d + e(h)) / (c(h.) + e(h))

A method defines the discounts d, the pseudo-counts e, and the distribution of gamma. The papers: Laplace 1812 and
Lidstone 1920 (additive), Good 1953, Katz 1987, Jelinek and Mercer 1980, Witten and Bell 1991, Ney et al. 1994
(absolute), Kneser and Ney 1995, Chen and Goodman 1998 (modified), MacKay and Peto 1995 (bayes), Teh 2006 (pitman-yor),
Brants et al. 2007 (stupid).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from firth.counts import _count_kernels, parameters
from firth.counts import _estimate_kernels as kernels
from firth.counts.parameters import simple_good_turing
from firth.counts.recipe import NgramRecipe
from firth.counts.trie import NEVER_PREDICTED, ArrayAllocator, Floats, Integers, Trie
from firth.progress import note
from firth.tokens.tokenizer import BOS

Counts = list[npt.NDArray[Any]]
_NONE: Floats = np.zeros(0)


class Discounts(NamedTuple):
    """The discounts and pseudo-counts of one n-gram length; empty arrays where a method has none of a kind."""

    by_count: Floats = _NONE  # discount by count; the last one holds for all larger counts
    proportional: Floats = _NONE  # discount as a fraction of the count, by history
    pseudo_counts: Floats = _NONE  # pseudo-count added to each history
    by_ngram: Floats = _NONE  # discount by n-gram


@dataclass(frozen=True)
class SmoothingPlan:
    """Everything needed to turn a trie into probabilities."""

    counts: Counts  # the counts of each n-gram length, raw or continuation counts
    discounts: list[Discounts]
    combine: int
    weight: float  # the constant weight of stupid back-off
    min_pseudo_count: float  # of a history without discounts, for unseen words
    parameters: dict[str, Any]  # the estimated parameters, for the manifest


@dataclass
class SmoothingInput:
    """The input of a smoothing method."""

    trie: Trie
    recipe: NgramRecipe
    words: int  # the number of words that may follow
    counts: Counts
    heldout: Trie | None
    fitted: list[Floats] = field(default_factory=list)  # the probabilities of the events of each length so far
    remarks: dict[str, list[int]] = field(default_factory=dict)  # remark -> the n-gram lengths that it applies to

    def remark(self, n: int, message: str) -> None:
        """Note at the end, once for all lengths: the counts of counts of n-grams support `message`."""
        self.remarks.setdefault(message, []).append(n)

    @cached_property
    def events(self) -> list[parameters.Events]:
        if self.heldout is None:
            return parameters.leave_one_out(self.trie)
        return parameters.held_out(self.trie, self.heldout)

    def lower_order(self, n: int) -> Floats:
        """The lower-order probability of each event of length `n`."""
        events = self.events[n - 1]
        if events.below is None:
            return np.full(events.weight.size, 1 / self.words)
        return np.asarray(self.fitted[-1][events.below])

    def totals(self, n: int) -> tuple[Floats, Floats]:
        """For each history of the n-grams of length `n`, the sum of its counts and the number of distinct words."""
        if n == 1:
            return np.array([self.counts[0].sum(dtype=np.float64)]), np.array([float(np.count_nonzero(self.counts[0]))])
        begin, end = int(self.trie.levels[n - 2]), int(self.trie.levels[n - 1])
        sums, distinct = np.empty(end - begin), np.empty(end - begin)
        kernels.totals(self.trie.first, begin, end, end, self.counts[n - 1], sums, distinct)
        return sums, distinct

    def for_all_histories(self, n: int, value: float) -> Floats:
        return np.full(self.totals(n)[0].size, value)

    def counts_of_counts(self, n: int, highest: int | None = None) -> Integers:
        """n[r]: the number of n-grams of length `n` that occur r times; counts above `highest` count as `highest`."""
        counts = self.counts[n - 1]
        if counts.dtype.kind == "f":
            counts = counts.astype(np.int64)
        found = np.bincount(counts if highest is None else np.minimum(counts, highest), minlength=(highest or 5) + 1)
        found[0] = 0
        return found.astype(np.int64)


def plan_smoothing(
    trie: Trie,
    recipe: NgramRecipe,
    words: int,
    heldout: Trie | None = None,
    seed: int = 0,
    allocator: ArrayAllocator | None = None,
    consume: bool = False,
) -> SmoothingPlan:
    """The discounts of the recipe's method; `words` is V, `consume` allows overwriting the trie's counts."""
    smoothing = recipe.smoothing
    counts: Counts = [trie.counts[trie.level(n)] for n in range(1, trie.order + 1)]
    counts[0] = counts[0].copy()
    counts[0][list(NEVER_PREDICTED)] = 0
    if smoothing == "pitman-yor":
        counts, discounts, estimated = _pitman_yor(trie, words, recipe.sweeps, seed)
    else:
        if smoothing in ("kneser-ney", "modified-kneser-ney"):
            counts = continuation_counts(trie, counts, allocator or ArrayAllocator(), consume)
        method, name = METHODS[smoothing]
        data = SmoothingInput(trie, recipe, words, counts, heldout)
        found = [method(data, n) for n in range(1, trie.order + 1)]
        for remark, lengths in data.remarks.items():
            note(f"{smoothing}: the counts of counts of {', '.join(map(str, lengths))}-grams support {remark}.")
        discounts = [discount for discount, _ in found]
        values = {str(n): value for n, (_, value) in enumerate(found, 1) if value is not None}
        estimated = {name: values} if values else {}
    weight = 0.4 if recipe.weight is None else recipe.weight
    min_pseudo_count = 1.0 if smoothing in ("katz", "good-turing") else 0.0
    return SmoothingPlan(counts, discounts, _combination(recipe), weight, min_pseudo_count, estimated)


def _combination(recipe: NgramRecipe) -> int:
    fixed = {
        "stupid": kernels.CONSTANT_WEIGHT,
        "additive": kernels.UNIFORM_INTERPOLATED,
        "good-turing": kernels.UNIFORM_BACK_OFF if recipe.uniform_backoff else kernels.BACK_OFF,
        "katz": kernels.BACK_OFF,
        "mle": kernels.BACK_OFF,
    }
    return fixed.get(recipe.smoothing, kernels.INTERPOLATED if recipe.interpolate else kernels.BACK_OFF)


def continuation_counts(trie: Trie, raw: Counts, allocator: ArrayAllocator, consume: bool = False) -> Counts:
    """Below the highest order, the number of distinct words before each n-gram; raw counts for n-grams with `<s>`."""
    counts = list(raw)
    begin, end = BOS, BOS + 1
    for n in range(1, trie.order):
        level = trie.level(n)
        with_bos = slice(begin - level.start, end - level.start)
        kept = raw[n - 1][with_bos].copy()
        found = raw[n - 1] if consume else allocator.empty(level.stop - level.start, np.uint32)
        found[:] = 0
        _count_kernels.count_links(trie.links[trie.level(n + 1)], level.start, found)
        if n == 1:
            found[list(NEVER_PREDICTED)] = 0
        else:
            found[with_bos] = kept
        counts[n - 1] = found
        begin, end = int(trie.first[begin]), int(trie.first[end])
    return counts


Result = tuple[Discounts, Any]  # discounts, and the parameter for the manifest or None


def _additive(data: SmoothingInput, n: int) -> Result:
    delta = data.recipe.delta or parameters.fit_additive(data.events[n - 1], data.words)
    return Discounts(pseudo_counts=data.for_all_histories(n, delta * data.words)), delta


def _good_turing(data: SmoothingInput, n: int) -> Result:
    found = data.counts_of_counts(n)
    expected = simple_good_turing(found)
    if expected is None:
        return _fall_back(data, n)
    r = np.arange(found.size, dtype=np.float64)
    discount = np.clip(r - expected, 0.0, None)
    too_large = discount >= r
    discount[too_large] = 0.5 * np.minimum(r, 1)[too_large]
    discount[0] = 0
    return Discounts(by_count=np.append(discount, 0.0)), [float(value) for value in (r - discount)[1:6]]


def _fall_back(data: SmoothingInput, n: int) -> Result:
    """Absolute discounting, for an n-gram length whose counts of counts the method cannot use."""
    discount = _absolute_discount(data, n)
    data.remark(n, f"no estimate; taking {discount:.3g} off each count")
    return Discounts(by_count=np.array([0.0, discount])), {"discount": discount}


def _absolute_discount(data: SmoothingInput, n: int) -> float:
    """D = n1 / (n1 + 2 n2) (Ney et al. 1994); one half where it cannot be estimated."""
    if data.recipe.discount is not None:
        return data.recipe.discount
    found = data.counts_of_counts(n, 5)
    one, two = int(found[1]), int(found[2])
    return one / (one + 2 * two) if one and two else 0.5


def _katz(data: SmoothingInput, n: int) -> Result:
    highest = data.recipe.katz_cutoff
    found = data.counts_of_counts(n, highest + 2).astype(np.float64)
    for cutoff in range(highest, 0, -1):
        ratios = _katz_ratios(found, cutoff)
        if ratios is not None:
            if cutoff < highest:
                data.remark(n, f"discounts up to counts of {cutoff} only")
            r = np.arange(cutoff + 1)
            return Discounts(by_count=np.append(r * (1 - ratios), 0.0)), [float(ratio) for ratio in ratios[1:]]
    return _fall_back(data, n)


def _katz_ratios(n: Floats, cutoff: int) -> Floats | None:
    """d_r for r up to `cutoff` (Katz 1987), or None where one of them is not a discount."""
    if not n[1 : cutoff + 2].all():
        return None
    r = np.arange(1, cutoff + 1)
    beyond = (cutoff + 1) * n[cutoff + 1] / n[1]
    if beyond >= 1:
        return None
    ratios = ((r + 1) * n[r + 1] / n[r] / r - beyond) / (1 - beyond)
    return np.concatenate([[1.0], ratios]) if ((ratios > 0) & (ratios <= 1)).all() else None


def _jelinek_mercer(data: SmoothingInput, n: int) -> Result:
    if data.recipe.weight is not None:
        return Discounts(proportional=data.for_all_histories(n, 1 - data.recipe.weight)), data.recipe.weight
    events, lower = data.events[n - 1], data.lower_order(n)
    weights = parameters.fit_weights(events, lower)
    data.fitted.append(parameters.interpolate(events, parameters.weight_of(weights, events.total), lower))
    return Discounts(proportional=1 - parameters.weight_of(weights, data.totals(n)[0])), weights.tolist()


def _by_count(discount: float | list[float]) -> Result:
    return Discounts(by_count=np.append(0.0, discount)), discount


def _modified_discounts(data: SmoothingInput, n: int) -> list[float]:
    """D1, D2 and D3+ (Chen and Goodman 1998, equation 26)."""
    if data.recipe.discounts is not None:
        return [float(value) for value in data.recipe.discounts.split(",")]
    found = data.counts_of_counts(n, 5).astype(np.float64)
    if found[1:5].all():
        y = found[1] / (found[1] + 2 * found[2])
        values = [float(j - (j + 1) * y * found[j + 1] / found[j]) for j in (1, 2, 3)]
        if all(0 < value <= j for j, value in enumerate(values, 1)):
            return values
    data.remark(n, "no estimate; taking 0.5, 1 and 1.5")
    return [0.5, 1.0, 1.5]


def _bayes(data: SmoothingInput, n: int) -> Result:
    prior = data.recipe.prior
    if prior is None:
        events, lower = data.events[n - 1], data.lower_order(n)
        prior = parameters.fit_prior(events, lower)
        data.fitted.append(np.asarray((events.count + prior * lower) / (events.total + prior)))
    return Discounts(pseudo_counts=data.for_all_histories(n, prior)), prior


def _pitman_yor(trie: Trie, words: int, sweeps: int, seed: int) -> tuple[Counts, list[Discounts], dict[str, Any]]:
    from firth.counts.pitman_yor import infer

    found = infer(trie, words, sweeps=sweeps, burn_in=sweeps // 3, seed=seed)
    counts: Counts = []
    discounts = []
    for n in range(1, trie.order + 1):
        level = trie.level(n)
        counts.append(np.asarray(found.customers[level], dtype=np.float64))
        by_ngram = found.discounts[n - 1] * np.asarray(found.tables[level], dtype=np.float64)
        histories = 1 if n == 1 else int(trie.levels[n - 1] - trie.levels[n - 2])
        discounts.append(Discounts(by_ngram=by_ngram, pseudo_counts=np.full(histories, found.concentrations[n - 1])))
    estimated = {
        name: {str(n): float(value) for n, value in enumerate(getattr(found, name), 1)}
        for name in ("discounts", "concentrations")
    }
    return counts, discounts, estimated


METHODS: dict[str, tuple[Callable[[SmoothingInput, int], Result], str]] = {
    "mle": (lambda data, n: (Discounts(), None), ""),
    "additive": (_additive, "delta"),
    "good-turing": (_good_turing, "expected_counts"),
    "katz": (_katz, "ratios"),
    "jelinek-mercer": (_jelinek_mercer, "weights"),
    "witten-bell": (lambda data, n: (Discounts(pseudo_counts=data.totals(n)[1]), None), ""),
    "absolute": (lambda data, n: _by_count(_absolute_discount(data, n)), "discounts"),
    "kneser-ney": (lambda data, n: _by_count(_absolute_discount(data, n)), "discounts"),
    "modified-kneser-ney": (lambda data, n: _by_count(_modified_discounts(data, n)), "discounts"),
    "bayes": (_bayes, "prior"),
    "stupid": (lambda data, n: (Discounts(), None), ""),
}
"""The method of each smoothing and the name of its parameter in the manifest."""
