"""Hierarchical Pitman-Yor smoothing: Kneser-Ney as Bayesian inference (Teh 2006).

The words after a history u follow a Pitman-Yor process with discount d, concentration theta and, as its base
distribution, that of the history without its first word, down to 1/V. In the Chinese restaurant representation, the c
customers of u sit at t tables, each with one word:

    p(w|u) = (c(uw) - d t(uw)) / (theta + c(u)) + (theta + d t(u)) / (theta + c(u)) p(w|u')

Every table sends a customer to the restaurant of the shorter history u'. Kneser-Ney smoothing is the case theta = 0
with one table for every word of a history. Here the tables, d and theta for every history length are sampled from their
posterior by Gibbs sampling.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from firth.counts import _pitman_yor_kernels as kernels
from firth.counts.trie import Floats, Integers, Trie
from firth.errors import RecipeError
from firth.progress import progress
from firth.tokens.tokenizer import BOS

DISCOUNT_PRIOR = (1.0, 1.0)  # Beta(a, b): uniform
CONCENTRATION_PRIOR = (1.0, 1.0)  # Gamma(shape, rate)
_PARAMETER_DRAWS = 5  # after each sweep; they are cheap and mix slowly
_MARGIN = 1e-6  # minimum distance of sampled discounts from 0 and 1
_MAX_COUNT = 1 << 28  # more customers of one n-gram could not be seated in reasonable time or memory
_SMALL_RESTAURANT = 64  # restaurants with at most this many customers are grouped by size


@dataclass(frozen=True)
class PitmanYor:
    """Customers and tables of every n-gram; discount and concentration of each history length, from 0 on.

    These are means over samples. The formula above still gives non-negative probabilities with a sum of one, since it
    needs only 0 <= d t <= c and that c(u) and t(u) are sums over w.
    """

    customers: Floats
    tables: Floats
    discounts: Floats
    concentrations: Floats


def infer(
    trie: Trie,
    words: int,
    *,
    sweeps: int = 30,
    burn_in: int = 10,
    seed: int = 0,
    discounts: Sequence[float] | None = None,
    concentrations: Sequence[float] | None = None,
) -> PitmanYor:
    """The posterior means over the sweeps after `burn_in`; `words` is the number of words that may follow.

    `discounts` and `concentrations`, one for each history length from 0 on, fix the parameters. The trie must be
    unpruned.

    >>> from firth.counts.counting import count_sentences
    >>> trie = count_sentences([[5, 6], [5, 7], [5, 6]], vocab_size=8, order=2)
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
    d, theta = seating.kneser_ney_discounts(), np.ones(trie.order)
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
            seating.sweep(d, theta, 1 / words, rng)
            d, theta = seating.sample_parameters(d, theta, rng, discounts is not None, concentrations is not None)
            if sweep >= burn_in:
                tables += seating.dishes[:, 1]
                d_sum += d
                theta_sum += theta
            advance(1)
    kept = sweeps - burn_in
    tables /= kept
    return PitmanYor(count_customers(trie, tables), tables, d_sum / kept, theta_sum / kept)


class Seating:
    """The seating arrangement of all restaurants: the state of the sampler. It starts with one table per n-gram.

    >>> from firth.counts.counting import count_sentences
    >>> trie = count_sentences([[5, 6], [5, 7], [5, 6]], vocab_size=8, order=2)
    >>> seating = Seating(trie)
    >>> seating.table_sizes(trie.find([5, 6])), seating.table_sizes(trie.find([6]))
    ([2], [1])
    """

    def __init__(self, trie: Trie) -> None:
        self.trie = trie
        counts = trie.counts
        self.dishes = np.empty((counts.size, 2), dtype=np.int32)  # (customers, tables) of each node
        self.dishes[:, 1] = counts > 0
        self.dishes[BOS, 1] = 0
        self.dishes[:, 0] = count_customers(trie, self.dishes[:, 1])
        self.restaurants = _sum_by_history(trie, self.dishes)  # (customers, tables) of each history, the empty one last
        self.starts = _pool_offsets(counts)
        self.pool = np.zeros((int(self.starts[-1]), 2), dtype=np.int32)  # pairs (size, number of tables) by node
        many = np.flatnonzero((counts > 1) & (self.dishes[:, 1] > 0))
        self.pool[self.starts[many], 0] = self.dishes[many, 0]
        self.pool[self.starts[many], 1] = 1

    def table_sizes(self, node: int) -> list[int]:
        """The number of customers at each table of an n-gram, in descending order."""
        if self.trie.counts[node] < 2:
            return [1] * int(self.dishes[node, 0])
        pairs = self.pool[self.starts[node] : self.starts[node + 1]].tolist()
        return sorted((size for size, number in pairs for _ in range(number)), reverse=True)

    def sweep(self, discounts: Floats, concentrations: Floats, uniform: float, rng: np.random.Generator) -> None:
        """Reseats every customer, from the longest histories to the empty one."""
        trie = self.trie
        for n in range(trie.order, 0, -1):
            kernels.sweep_level(
                n, trie.levels, trie.first, trie.links, self.starts, self.pool, self.dishes, self.restaurants,
                discounts, concentrations, uniform, rng,
            )  # fmt: skip

    def kneser_ney_discounts(self) -> Floats:
        """The discount n1 / (n1 + 2 n2) of each level, where n1 and n2 are the words with one and two customers."""
        found = []
        for n in range(1, self.trie.order + 1):
            customers = self.dishes[self.trie.level(n), 0]
            once, twice = np.count_nonzero(customers == 1), np.count_nonzero(customers == 2)
            found.append(once / (once + 2 * twice) if once and twice else 0.5)
        return np.array(found)

    def sample_parameters(
        self,
        discounts: Floats,
        concentrations: Floats,
        rng: np.random.Generator,
        keep_discounts: bool = False,
        keep_concentrations: bool = False,
    ) -> tuple[Floats, Floats]:
        """The parameters of all levels, sampled from their posterior given the seating."""
        discounts, concentrations = discounts.copy(), concentrations.copy()
        if keep_discounts and keep_concentrations:
            return discounts, concentrations
        for level in range(self.trie.order):
            counts = self.seating_counts(level + 1)
            for _ in range(_PARAMETER_DRAWS):
                d, theta = counts.sample_parameters(discounts[level], concentrations[level], rng)
                if not keep_discounts:
                    discounts[level] = d
                if not keep_concentrations:
                    concentrations[level] = theta
        return discounts, concentrations

    def seating_counts(self, n: int) -> SeatingCounts:
        """The sufficient statistics of the parameters of level n."""
        contexts = self.trie.contexts
        histories = self.trie.level(n - 1) if n > 1 else slice(contexts, contexts + 1)
        level = self.trie.level(n)
        pairs = self.pool[self.starts[level.start] : self.starts[level.stop]]
        customers = self.restaurants[histories, 0]
        return SeatingCounts(
            restaurants_by_tables=_count_above(self.restaurants[histories, 1]),
            tables_by_customers=_count_above(pairs[:, 0], pairs[:, 1]),
            restaurants_by_customers=_count_above(customers[customers <= _SMALL_RESTAURANT]),
            large=customers[customers > _SMALL_RESTAURANT],
        )


class SeatingCounts(NamedTuple):
    """The number of restaurants and tables by size: element i - 1 counts those larger than i."""

    restaurants_by_tables: Integers
    tables_by_customers: Integers
    restaurants_by_customers: Integers  # only restaurants with at most 64 customers
    large: Integers  # the customers of each other restaurant

    def sample_parameters(self, d: float, theta: float, rng: np.random.Generator) -> tuple[float, float]:
        """A sample of discount and concentration given the seating, by Teh's auxiliary variables, grouped by size.

        With x(u) ~ Beta(theta + 1, c(u) - 1), y(u,i) ~ Bernoulli(theta / (theta + d i)) for i < t(u), and
        z(k,j) ~ Bernoulli((j - 1) / (j - d)) for each table k and j below its size, the posterior is
        d ~ Beta(a + sum (1 - y), b + sum (1 - z)) and theta ~ Gamma(shape + sum y, rate - sum log x).
        As c(u) - 1 is an integer, -log x(u) is a sum of Exp(1) / (theta + j) over j < c(u).
        """
        i, j = (np.arange(1, numbers.size + 1) for numbers in self[:2])
        y = rng.binomial(self.restaurants_by_tables, theta / (theta + d * i))
        z = rng.binomial(self.tables_by_customers, (j - 1) / (j - d))
        small = rng.gamma(self.restaurants_by_customers)
        minus_log_x = (small / (theta + np.arange(1, small.size + 1))).sum()
        minus_log_x -= np.log(rng.beta(theta + 1, self.large - 1)).sum()
        a, b = DISCOUNT_PRIOR
        shape, rate = CONCENTRATION_PRIOR
        new_d = rng.beta(a + (self.restaurants_by_tables - y).sum(), b + (self.tables_by_customers - z).sum())
        new_theta = rng.gamma(shape + y.sum(), 1 / (rate + minus_log_x))
        return float(np.clip(new_d, _MARGIN, 1 - _MARGIN)), float(new_theta)


def count_customers(trie: Trie, tables: npt.NDArray[Any]) -> Floats:
    """The customers of each node, given the tables of each.

    The customers of the longest n-grams and of those that begin with `<s>` are their occurrences. All others come from
    the tables of the next longer n-grams.
    """
    customers = np.zeros(trie.words.size)
    begins = slice(BOS, BOS + 1)
    for n in range(1, trie.order):
        level, above = trie.level(n), trie.level(n + 1)
        size = level.stop - level.start
        customers[level] = np.bincount(trie.links[above] - np.uint32(level.start), tables[above], minlength=size)
        customers[begins] = trie.counts[begins]
        begins = slice(int(trie.first[begins.start]), int(trie.first[begins.stop]))
    customers[trie.level(trie.order)] = trie.counts[trie.level(trie.order)]
    customers[BOS] = 0
    return customers


def _sum_by_history(trie: Trie, dishes: npt.NDArray[Any]) -> Integers:
    """The sum of (customers, tables) over the words after each history, the empty one last."""
    restaurants = np.zeros((trie.contexts + 1, 2), dtype=np.int64)
    restaurants[-1] = dishes[: trie.vocab_size].sum(axis=0)
    for n in range(1, trie.order):
        histories, level = trie.level(n), trie.level(n + 1)
        sums = np.zeros((level.stop - level.start + 1, 2), dtype=np.int64)
        np.cumsum(dishes[level], axis=0, out=sums[1:])
        restaurants[histories] = np.diff(
            sums[trie.first[histories.start : histories.stop + 1] - np.uint32(level.start)], axis=0
        )
    return restaurants


def _pool_offsets(counts: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The offset of the pairs of each node: k different table sizes need k (k + 1) / 2 customers or more.

    >>> _pool_offsets(np.array([0, 1, 2, 3, 5, 6])).tolist()
    [0, 0, 0, 1, 3, 5, 8]
    """
    many = counts > 1
    starts = np.zeros(counts.size + 1, dtype=np.int64)
    starts[1:][many] = (np.sqrt(8.0 * counts[many] + 1) - 1) / 2
    np.cumsum(starts, out=starts)
    return starts.astype(np.uint32) if starts[-1] < 1 << 32 else starts


def _count_above(sizes: npt.NDArray[Any], numbers: npt.NDArray[Any] | None = None) -> Integers:
    """The number of sizes above 1, above 2 and so on; `numbers` is the multiplicity of each.

    >>> _count_above(np.array([1, 3, 4]), np.array([1, 1, 2])).tolist()
    [3, 3, 2]
    """
    found = np.bincount(sizes, numbers, minlength=2).astype(np.int64)
    return np.asarray(found[:1:-1].cumsum()[::-1])


def _check(trie: Trie) -> None:
    if trie.counts.max() > _MAX_COUNT:
        raise RecipeError(f"an n-gram occurs more than {_MAX_COUNT} times: use less text, or Kneser-Ney smoothing.")
    for n in range(2, trie.order + 1):
        links = trie.links[trie.level(n)]
        if links.size and int(links.min()) < trie.levels[n - 2]:
            raise RecipeError("n-grams are missing from the trie: infer Pitman-Yor smoothing first and prune then.")


def _fixed(name: str, values: Sequence[float], order: int, below: float = np.inf) -> Floats:
    if len(values) != order or not all(0 <= value < below for value in values):
        most = f" and below {below:g}" if below < np.inf else ""
        raise RecipeError(f"{name}={list(values)} must be {order} numbers, each at least 0{most}.")
    return np.array(values, dtype=np.float64)
