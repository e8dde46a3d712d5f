"""Hierarchical Pitman-Yor smoothing: Kneser-Ney as Bayesian inference (Teh 2006).

The words after a history u are drawn from a Pitman-Yor process with discount d, concentration theta and, for its mean,
the distribution after the history without its first word, down to 1/V. Seen as a restaurant, the c customers of u sit
at t tables, each with one word:

    p(w|u) = (c(uw) - d t(uw)) / (theta + c(u)) + (theta + d t(u)) / (theta + c(u)) p(w|u')

Every table sends a customer to the restaurant of the shorter history u'. Kneser-Ney smoothing is the case theta = 0
with one table for every word of a history. Here the tables are not known: they, and d and theta for every length of
history, are drawn from their posterior by Gibbs sampling.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from firth.counts import _pitman_yor_kernels as kernels
from firth.counts.trie import Trie
from firth.errors import RecipeError
from firth.progress import progress
from firth.tokens.tokenizer import BOS

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

DISCOUNT_PRIOR = (1.0, 1.0)
"""Beta(a, b): every discount is as likely as any other."""

CONCENTRATION_PRIOR = (1.0, 1.0)
"""Gamma(shape, rate)."""

_DRAWS = 5  # of the parameters after each sweep; they are cheap and move slowly
_MARGIN = 1e-6  # inferred discounts stay this far from 0 and 1
_MOST = 1 << 28  # occurrences of one n-gram; more could not be seated in any reasonable time or memory
_FEW = 64  # restaurants with at most so many customers are handled together


@dataclass(frozen=True)
class PitmanYor:
    """Customers and tables of every n-gram; discount and concentration of each length of history, from 0 on.

    With these means over samples in place of one sample's numbers, the formula above still gives shares that are not
    negative and add up to one, since it needs only 0 <= d t <= c and that c(u) and t(u) are sums over w.
    """

    customers: Floats
    tables: Floats
    discounts: Floats
    concentrations: Floats


def infer(
    trie: Trie,
    predictable: int,
    *,
    sweeps: int = 30,
    burn_in: int = 10,
    seed: int = 0,
    discounts: Sequence[float] | None = None,
    concentrations: Sequence[float] | None = None,
) -> PitmanYor:
    """The posterior means over the sweeps after the first `burn_in`, for `predictable` equally likely words at the end.

    `discounts` and `concentrations`, one for each length of history from 0 on, fix what is otherwise inferred. The trie
    must be whole: prune afterwards.

    >>> from firth.counts.counting import count_sentences
    >>> trie = count_sentences([[5, 6], [5, 7], [5, 6]], vocabulary=8, order=2)
    >>> found = infer(trie, 5, discounts=[0.5, 0.5], concentrations=[1, 1])
    >>> found.customers[trie.find([5, 6])], found.tables[trie.find([5, 7])]
    (np.float64(2.0), np.float64(1.0))
    """
    if not 0 <= burn_in < sweeps:
        raise RecipeError(
            f"of {sweeps} sweeps the first {burn_in} cannot be left out: make sweeps larger than burn_in."
        )
    _check(trie)
    seating = Seating(trie)
    d, theta = seating.kneser_ney(), np.ones(trie.order)
    if discounts is not None:
        d = _fixed("discounts", discounts, trie.order, 1.0)
    if concentrations is not None:
        theta = _fixed("concentrations", concentrations, trie.order)
    if not np.all(d + theta > 0):
        raise RecipeError("a discount and a concentration of 0 leave nothing for unseen words: set one above 0.")
    rng = np.random.default_rng(seed)
    tables, d_sum, theta_sum = np.zeros(trie.words.size), np.zeros(trie.order), np.zeros(trie.order)
    with progress("seating", total=sweeps, unit="sweeps") as advance:
        for sweep in range(sweeps):
            seating.sweep(d, theta, 1 / predictable, rng)
            d, theta = seating.draw(d, theta, rng, discounts is not None, concentrations is not None)
            if sweep >= burn_in:
                tables += seating.seen[:, 1]
                d_sum += d
                theta_sum += theta
            advance(1)
    kept = sweeps - burn_in
    tables /= kept
    return PitmanYor(customers_of(trie, tables), tables, d_sum / kept, theta_sum / kept)


class Seating:
    """Who sits where in all restaurants: the state of the sampler. It begins with one table for every n-gram.

    >>> from firth.counts.counting import count_sentences
    >>> trie = count_sentences([[5, 6], [5, 7], [5, 6]], vocabulary=8, order=2)
    >>> seating = Seating(trie)
    >>> seating.sizes(trie.find([5, 6])), seating.sizes(trie.find([6]))
    ([2], [1])
    """

    def __init__(self, trie: Trie) -> None:
        self.trie = trie
        counts = trie.counts
        self.seen = np.empty((counts.size, 2), dtype=np.int32)
        """(customers, tables) of each node."""
        self.seen[:, 1] = counts > 0
        self.seen[BOS, 1] = 0
        self.seen[:, 0] = customers_of(trie, self.seen[:, 1])
        self.held = _whole_restaurants(trie, self.seen)
        """(customers, tables) of each history, the empty one last."""
        self.starts = _rooms(counts)
        self.pool = np.zeros((int(self.starts[-1]), 2), dtype=np.int32)
        """The pairs (size, number of tables) of each node."""
        many = np.flatnonzero((counts > 1) & (self.seen[:, 1] > 0))
        self.pool[self.starts[many], 0] = self.seen[many, 0]
        self.pool[self.starts[many], 1] = 1

    def sizes(self, node: int) -> list[int]:
        """How many customers sit at each table of an n-gram, the largest first."""
        if self.trie.counts[node] < 2:
            return [1] * int(self.seen[node, 0])
        pairs = self.pool[self.starts[node] : self.starts[node + 1]].tolist()
        return sorted((size for size, number in pairs for _ in range(number)), reverse=True)

    def sweep(self, discounts: Floats, concentrations: Floats, uniform: float, rng: np.random.Generator) -> None:
        """Seats every customer anew, from the longest histories to the empty one."""
        trie = self.trie
        for n in range(trie.order, 0, -1):
            kernels.sweep_level(
                n, trie.levels, trie.first, trie.links, self.starts, self.pool, self.seen, self.held,
                discounts, concentrations, uniform, rng,
            )  # fmt: skip

    def kneser_ney(self) -> Floats:
        """The discount n1 / (n1 + 2 n2) of each level, n1 and n2 the words with one and with two customers."""
        found = []
        for n in range(1, self.trie.order + 1):
            customers = self.seen[self.trie.level(n), 0]
            once, twice = np.count_nonzero(customers == 1), np.count_nonzero(customers == 2)
            found.append(once / (once + 2 * twice) if once and twice else 0.5)
        return np.array(found)

    def draw(
        self,
        discounts: Floats,
        concentrations: Floats,
        rng: np.random.Generator,
        keep_discounts: bool = False,
        keep_concentrations: bool = False,
    ) -> tuple[Floats, Floats]:
        """The parameters of all levels, drawn anew from their posterior given the seating."""
        discounts, concentrations = discounts.copy(), concentrations.copy()
        if keep_discounts and keep_concentrations:
            return discounts, concentrations
        for level in range(self.trie.order):
            tally = self.tally(level + 1)
            for _ in range(_DRAWS):
                d, theta = tally.draw(discounts[level], concentrations[level], rng)
                if not keep_discounts:
                    discounts[level] = d
                if not keep_concentrations:
                    concentrations[level] = theta
        return discounts, concentrations

    def tally(self, n: int) -> Tally:
        """What the parameters of level n depend on."""
        contexts = self.trie.contexts
        places = self.trie.level(n - 1) if n > 1 else slice(contexts, contexts + 1)
        level = self.trie.level(n)
        pairs = self.pool[self.starts[level.start] : self.starts[level.stop]]
        customers = self.held[places, 0]
        return Tally(
            restaurants_by_tables=_above(self.held[places, 1]),
            tables_by_customers=_above(pairs[:, 0], pairs[:, 1]),
            restaurants_by_customers=_above(customers[customers <= _FEW]),
            large=customers[customers > _FEW],
        )


class Tally(NamedTuple):
    """Numbers of restaurants and tables by size: element i - 1 says how many have more than i."""

    restaurants_by_tables: Integers
    tables_by_customers: Integers
    restaurants_by_customers: Integers
    """Only restaurants with few customers."""
    large: Integers
    """The customers of each other restaurant."""

    def draw(self, d: float, theta: float, rng: np.random.Generator) -> tuple[float, float]:
        """A discount and a concentration given the seating, by Teh's auxiliary variables, summed where they are alike.

        With x(u) ~ Beta(theta + 1, c(u) - 1), y(u,i) ~ Bernoulli(theta / (theta + d i)) for i < t(u), and
        z(k,j) ~ Bernoulli((j - 1) / (j - d)) for each table k and j below its size, the posterior is
        d ~ Beta(a + sum (1 - y), b + sum (1 - z)) and theta ~ Gamma(shape + sum y, rate - sum log x).
        As c(u) - 1 is whole, -log x(u) is a sum of Exp(1) / (theta + j) over j < c(u).
        """
        i, j = (np.arange(1, numbers.size + 1) for numbers in self[:2])
        y = rng.binomial(self.restaurants_by_tables, theta / (theta + d * i))
        z = rng.binomial(self.tables_by_customers, (j - 1) / (j - d))
        few = rng.gamma(self.restaurants_by_customers)
        minus_log_x = (few / (theta + np.arange(1, few.size + 1))).sum()
        minus_log_x -= np.log(rng.beta(theta + 1, self.large - 1)).sum()
        a, b = DISCOUNT_PRIOR
        shape, rate = CONCENTRATION_PRIOR
        new_d = rng.beta(a + (self.restaurants_by_tables - y).sum(), b + (self.tables_by_customers - z).sum())
        new_theta = rng.gamma(shape + y.sum(), 1 / (rate + minus_log_x))
        return float(np.clip(new_d, _MARGIN, 1 - _MARGIN)), float(new_theta)


def customers_of(trie: Trie, tables: npt.NDArray[Any]) -> Floats:
    """The customers of each node, given the tables of each.

    The customers of the longest n-grams are their occurrences, and so are those of shorter ones at the beginning of a
    sentence, where no longer history is to be had. All others are sent by the tables of the next longer n-grams.
    """
    customers = np.zeros(trie.words.size)
    begins = slice(BOS, BOS + 1)
    for n in range(1, trie.order):
        level, above = trie.level(n), trie.level(n + 1)
        room = level.stop - level.start
        customers[level] = np.bincount(trie.links[above] - np.uint32(level.start), tables[above], minlength=room)
        customers[begins] = trie.counts[begins]
        begins = slice(int(trie.first[begins.start]), int(trie.first[begins.stop]))
    customers[trie.level(trie.order)] = trie.counts[trie.level(trie.order)]
    customers[BOS] = 0
    return customers


def _whole_restaurants(trie: Trie, seen: npt.NDArray[Any]) -> Integers:
    """The sums of (customers, tables) over the words after each history, the empty one last."""
    held = np.zeros((trie.contexts + 1, 2), dtype=np.int64)
    held[-1] = seen[: trie.vocabulary].sum(axis=0)
    for n in range(1, trie.order):
        places, level = trie.level(n), trie.level(n + 1)
        sums = np.zeros((level.stop - level.start + 1, 2), dtype=np.int64)
        np.cumsum(seen[level], axis=0, out=sums[1:])
        held[places] = np.diff(sums[trie.first[places.start : places.stop + 1] - np.uint32(level.start)], axis=0)
    return held


def _rooms(counts: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Where the pairs of each node begin: k different sizes of tables take k (k + 1) / 2 customers or more.

    >>> _rooms(np.array([0, 1, 2, 3, 5, 6])).tolist()
    [0, 0, 0, 1, 3, 5, 8]
    """
    many = counts > 1
    starts = np.zeros(counts.size + 1, dtype=np.int64)
    starts[1:][many] = (np.sqrt(8.0 * counts[many] + 1) - 1) / 2
    np.cumsum(starts, out=starts)
    return starts.astype(np.uint32) if starts[-1] < 1 << 32 else starts


def _above(sizes: npt.NDArray[Any], numbers: npt.NDArray[Any] | None = None) -> Integers:
    """How many of the sizes are above 1, above 2 and so on; `numbers` says how often each is there.

    >>> _above(np.array([1, 3, 4]), np.array([1, 1, 2])).tolist()
    [3, 3, 2]
    """
    found = np.bincount(sizes, numbers, minlength=2).astype(np.int64)
    return np.asarray(found[:1:-1].cumsum()[::-1])


def _check(trie: Trie) -> None:
    if trie.counts.max() > _MOST:
        raise RecipeError(f"an n-gram occurs more than {_MOST} times: use less text, or Kneser-Ney smoothing.")
    for n in range(2, trie.order + 1):
        links = trie.links[trie.level(n)]
        if links.size and int(links.min()) < trie.levels[n - 2]:
            raise RecipeError("n-grams are missing from the trie: infer Pitman-Yor smoothing first and prune then.")


def _fixed(name: str, values: Sequence[float], order: int, below: float = np.inf) -> Floats:
    """Parameters given by the user."""
    if len(values) != order or not all(0 <= value < below for value in values):
        most = f" and below {below:g}" if below < np.inf else ""
        raise RecipeError(f"{name}={list(values)} must be {order} numbers, each at least 0{most}.")
    return np.array(values, dtype=np.float64)
