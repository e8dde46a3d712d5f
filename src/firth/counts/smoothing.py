"""The smoothing methods: what each takes from the counts, level by level.

    alpha(w|h) = (c(hw) - d(hw)) / (c(h.) + e(h))        rest(h) = (sum of d + e(h)) / (c(h.) + e(h))

A method is the discounts d, the additions e, and what is done with the rest. The papers: Laplace 1812 and Lidstone 1920
(additive), Good 1953, Katz 1987, Jelinek and Mercer 1980, Witten and Bell 1991, Ney et al. 1994 (absolute), Kneser and
Ney 1995, Chen and Goodman 1998 (modified), MacKay and Peto 1995 (bayes), Teh 2006 (pitman-yor), Brants et al. 2007
(stupid).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from firth.counts import _count_kernels, _estimate_kernels
from firth.counts._estimate_kernels import BACK_OFF, FLAT_BACK_OFF, FLAT_INTERPOLATED, INTERPOLATED, UNSCALED
from firth.counts.good_turing import simple_good_turing
from firth.counts.parameters import (
    Events,
    buckets_of,
    fit_additive,
    fit_prior,
    fit_weights,
    held_out,
    interpolate,
    leave_one_out,
)
from firth.counts.recipe import NgramRecipe
from firth.counts.room import Room
from firth.counts.trie import NEVER_PREDICTED, Trie
from firth.progress import note
from firth.tokens.tokenizer import BOS

Floats = npt.NDArray[np.float64]
_NONE: Floats = np.zeros(0)


@dataclass(frozen=True)
class Rates:
    """What a method takes at one level; empty where it takes nothing of that kind."""

    table: Floats = field(default_factory=lambda: _NONE)
    """Discount by count; the last one holds for all larger counts."""
    slope: Floats = field(default_factory=lambda: _NONE)
    """Share of the count that is taken, by history."""
    extra: Floats = field(default_factory=lambda: _NONE)
    """What is added to the count of each history."""
    taken: Floats = field(default_factory=lambda: _NONE)
    """Discount by n-gram."""


@dataclass(frozen=True)
class Plan:
    """All that turns a trie into probabilities."""

    counts: list[npt.NDArray[Any]]
    """The counts that each level goes by."""
    rates: list[Rates]
    combine: int
    weight: float
    spare: float
    """What is added to the count of a history after which nothing is discounted, so that unseen words get something."""
    parameters: dict[str, Any]
    """What was estimated, for the manifest."""


@dataclass(frozen=True)
class Job:
    """What a method is given."""

    trie: Trie
    recipe: NgramRecipe
    words: int
    """Words that may follow."""
    counts: list[npt.NDArray[Any]]
    heldout: Trie | None
    seed: int

    def totals(self, n: int) -> tuple[Floats, Floats]:
        """For each history of the n-grams of length `n`, the sum of its counts and the number of different words."""
        if n == 1:
            return np.array([self.counts[0].sum(dtype=np.float64)]), np.array([float(np.count_nonzero(self.counts[0]))])
        begin, end = int(self.trie.levels[n - 2]), int(self.trie.levels[n - 1])
        sums, distinct = np.empty(end - begin), np.empty(end - begin)
        _estimate_kernels.totals(self.trie.first, begin, end, end, self.counts[n - 1], sums, distinct)
        return sums, distinct

    def events(self) -> list[Events]:
        return leave_one_out(self.trie) if self.heldout is None else held_out(self.trie, self.heldout)

    def counts_of_counts(self, n: int, most: int | None = None) -> npt.NDArray[np.int64]:
        """n[r]: how many n-grams of length `n` occur r times; all beyond `most` are counted as `most`."""
        counts = self.counts[n - 1]
        if counts.dtype.kind == "f":
            counts = counts.astype(np.int64)
        found = np.bincount(counts if most is None else np.minimum(counts, most), minlength=(most or 5) + 1)
        found[0] = 0
        return found.astype(np.int64)


def make_plan(
    trie: Trie,
    recipe: NgramRecipe,
    words: int,
    heldout: Trie | None = None,
    seed: int = 0,
    room: Room | None = None,
    consume: bool = False,
) -> Plan:
    """What the method makes of the trie's counts; `words` is the number of words that may follow.

    With `consume` the counts may be overwritten, which saves memory.
    """
    smoothing = recipe.smoothing
    counts = _raw_counts(trie)
    if smoothing in ("kneser-ney", "modified-kneser-ney"):
        counts = continuation_counts(trie, counts, room or Room(), consume)
    job = Job(trie, recipe, words, counts, heldout, seed)
    counts, rates, parameters = METHODS[smoothing](job)
    return Plan(counts, rates, _combination(recipe), _weight(recipe), _spare(smoothing), parameters)


def _combination(recipe: NgramRecipe) -> int:
    smoothing = recipe.smoothing
    if smoothing == "stupid":
        return UNSCALED
    if smoothing == "additive":
        return FLAT_INTERPOLATED
    if smoothing == "good-turing":
        return FLAT_BACK_OFF if recipe.equal else BACK_OFF
    if smoothing in ("katz", "mle"):
        return BACK_OFF
    return INTERPOLATED if recipe.interpolate else BACK_OFF


def _weight(recipe: NgramRecipe) -> float:
    return 0.4 if recipe.weight is None else recipe.weight


def _spare(smoothing: str) -> float:
    return 1.0 if smoothing in ("katz", "good-turing") else 0.0


def _raw_counts(trie: Trie) -> list[npt.NDArray[Any]]:
    counts = [trie.counts[trie.level(n)] for n in range(1, trie.order + 1)]
    counts[0] = counts[0].copy()
    counts[0][list(NEVER_PREDICTED)] = 0
    return counts


def continuation_counts(
    trie: Trie, raw: list[npt.NDArray[Any]], room: Room, consume: bool = False
) -> list[npt.NDArray[Any]]:
    """Below the highest level, the number of different words before each n-gram; raw where it begins a sentence.

    With `consume` they take the place of the raw counts, which are gone then.
    """
    counts = list(raw)
    begin, end = BOS, BOS + 1
    for n in range(1, trie.order):
        level = trie.level(n)
        starts = slice(begin - level.start, end - level.start)
        kept = raw[n - 1][starts].copy()
        found = raw[n - 1] if consume else room.zeros(level.stop - level.start, np.uint32)
        found[:] = 0
        _count_kernels.count_links(trie.links[trie.level(n + 1)], level.start, found)
        if n == 1:
            found[list(NEVER_PREDICTED)] = 0
        else:
            found[starts] = kept
        counts[n - 1] = found
        begin, end = int(trie.first[begin]), int(trie.first[end])
    return counts


Result = tuple[list[npt.NDArray[Any]], list[Rates], dict[str, Any]]


def _by_level(job: Job, rate: Callable[[int], tuple[Rates, Any]], name: str) -> Result:
    """The rates of each level, and its parameters under its length."""
    found = [rate(n) for n in range(1, job.trie.order + 1)]
    parameters = {name: {str(n): value for n, (_, value) in enumerate(found, 1) if value is not None}}
    return job.counts, [rates for rates, _ in found], parameters if parameters[name] else {}


def _mle(job: Job) -> Result:
    return job.counts, [Rates() for _ in job.counts], {}


def _additive(job: Job) -> Result:
    events = job.events() if job.recipe.delta is None else []

    def rate(n: int) -> tuple[Rates, Any]:
        delta = job.recipe.delta or fit_additive(events[n - 1], job.words)
        return Rates(extra=np.full(job.totals(n)[0].size, delta * job.words)), delta

    return _by_level(job, rate, "delta")


def _good_turing(job: Job) -> Result:
    def rate(n: int) -> tuple[Rates, Any]:
        found = job.counts_of_counts(n)
        stars = simple_good_turing(found)
        if stars is None:
            return _fallen_back(job, n, "good-turing")
        r = np.arange(found.size, dtype=np.float64)
        taken = np.clip(r - stars, 0.0, None)
        unsupported = taken >= r
        taken[unsupported] = 0.5 * np.minimum(r, 1)[unsupported]
        taken[0] = 0
        return Rates(table=np.append(taken, 0.0)), [float(one) for one in (r - taken)[1:6]]

    return _by_level(job, rate, "expected_counts")


def _fallen_back(job: Job, n: int, method: str) -> tuple[Rates, Any]:
    """Absolute discounts for a level whose counts of counts the method cannot use."""
    discount = _one_discount(job, n)
    note(f"{method}: the counts of counts of {n}-grams support no estimate; taking {discount:.3g} off each count.")
    return Rates(table=np.array([0.0, discount])), {"discount": discount}


def _one_discount(job: Job, n: int) -> float:
    """D = n1 / (n1 + 2 n2) (Ney et al. 1994); one half where it cannot be estimated."""
    if job.recipe.discount is not None:
        return job.recipe.discount
    found = job.counts_of_counts(n, 5)
    one, two = int(found[1]), int(found[2])
    return one / (one + 2 * two) if one and two else 0.5


def _katz(job: Job) -> Result:
    def rate(n: int) -> tuple[Rates, Any]:
        found = job.counts_of_counts(n, job.recipe.top + 2).astype(np.float64)
        for top in range(job.recipe.top, 0, -1):
            ratios = _katz_ratios(found, top)
            if ratios is not None:
                if top < job.recipe.top:
                    note(f"katz: the counts of counts of {n}-grams support discounts up to counts of {top} only.")
                r = np.arange(top + 1)
                return Rates(table=np.append(r * (1 - ratios), 0.0)), [float(ratio) for ratio in ratios[1:]]
        return _fallen_back(job, n, "katz")

    return _by_level(job, rate, "ratios")


def _katz_ratios(n: Floats, top: int) -> Floats | None:
    """d_r for r up to `top` (Katz 1987), or None where one of them is not a discount."""
    if not n[1 : top + 2].all():
        return None
    r = np.arange(1, top + 1)
    beyond = (top + 1) * n[top + 1] / n[1]
    if beyond >= 1:
        return None
    ratios = ((r + 1) * n[r + 1] / n[r] / r - beyond) / (1 - beyond)
    return np.concatenate([[1.0], ratios]) if ((ratios > 0) & (ratios <= 1)).all() else None


def _jelinek_mercer(job: Job) -> Result:
    events = job.events() if job.recipe.weight is None else []
    below: list[Floats] = []

    def rate(n: int) -> tuple[Rates, Any]:
        totals = job.totals(n)[0]
        if job.recipe.weight is not None:
            return Rates(slope=np.full(totals.size, 1 - job.recipe.weight)), job.recipe.weight
        here = events[n - 1]
        under = np.full(here.weight.size, 1 / job.words) if here.below is None else below[-1][here.below]
        weights = fit_weights(here, under)
        below.append(interpolate(here, weights[np.clip(buckets_of(here.total), 0, weights.size - 1)], under))
        chosen = weights[np.clip(buckets_of(totals), 0, weights.size - 1)]
        return Rates(slope=1 - chosen), [float(weight) for weight in weights]

    return _by_level(job, rate, "weights")


def _witten_bell(job: Job) -> Result:
    return _by_level(job, lambda n: (Rates(extra=job.totals(n)[1]), None), "none")


def _absolute(job: Job) -> Result:
    def rate(n: int) -> tuple[Rates, Any]:
        discount = _one_discount(job, n)
        return Rates(table=np.array([0.0, discount])), discount

    return _by_level(job, rate, "discounts")


def _modified(job: Job) -> Result:
    def rate(n: int) -> tuple[Rates, Any]:
        values = _three_discounts(job, n)
        return Rates(table=np.array([0.0, *values])), values

    return _by_level(job, rate, "discounts")


def _three_discounts(job: Job, n: int) -> list[float]:
    """D1, D2 and D3+ (Chen and Goodman 1998, equation 26)."""
    if job.recipe.discounts is not None:
        return [float(value) for value in job.recipe.discounts.split(",")]
    found = job.counts_of_counts(n, 5).astype(np.float64)
    if found[1:5].all():
        y = found[1] / (found[1] + 2 * found[2])
        values = [float(j - (j + 1) * y * found[j + 1] / found[j]) for j in (1, 2, 3)]
        if all(0 < value <= j for j, value in enumerate(values, 1)):
            return values
    note(f"modified-kneser-ney: the counts of counts of {n}-grams support no estimate; taking 0.5, 1 and 1.5.")
    return [0.5, 1.0, 1.5]


def _bayes(job: Job) -> Result:
    events = job.events() if job.recipe.prior is None else []
    below: list[Floats] = []

    def rate(n: int) -> tuple[Rates, Any]:
        size = job.totals(n)[0].size
        if job.recipe.prior is not None:
            return Rates(extra=np.full(size, job.recipe.prior)), job.recipe.prior
        here = events[n - 1]
        under = np.full(here.weight.size, 1 / job.words) if here.below is None else below[-1][here.below]
        prior = fit_prior(here, under)
        below.append(np.asarray((here.count + prior * under) / (here.total + prior)))
        return Rates(extra=np.full(size, prior)), prior

    return _by_level(job, rate, "prior")


def _pitman_yor(job: Job) -> Result:
    from firth.counts.pitman_yor import infer

    found = infer(job.trie, job.words, sweeps=job.recipe.sweeps, burn_in=job.recipe.sweeps // 3, seed=job.seed)
    counts: list[npt.NDArray[Any]] = []
    rates = []
    for n in range(1, job.trie.order + 1):
        level = job.trie.level(n)
        counts.append(np.asarray(found.customers[level], dtype=np.float64))
        taken = found.discounts[n - 1] * np.asarray(found.tables[level], dtype=np.float64)
        size = 1 if n == 1 else int(job.trie.levels[n - 1] - job.trie.levels[n - 2])
        rates.append(Rates(taken=taken, extra=np.full(size, found.concentrations[n - 1])))
    names = [str(n) for n in range(1, job.trie.order + 1)]
    parameters = {
        "discounts": dict(zip(names, map(float, found.discounts), strict=True)),
        "concentrations": dict(zip(names, map(float, found.concentrations), strict=True)),
    }
    return counts, rates, parameters


METHODS: dict[str, Callable[[Job], Result]] = {
    "mle": _mle,
    "additive": _additive,
    "good-turing": _good_turing,
    "katz": _katz,
    "jelinek-mercer": _jelinek_mercer,
    "witten-bell": _witten_bell,
    "absolute": _absolute,
    "kneser-ney": _absolute,
    "modified-kneser-ney": _modified,
    "bayes": _bayes,
    "pitman-yor": _pitman_yor,
    "stupid": _mle,
}
