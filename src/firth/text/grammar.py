"""Probabilistic grammars whose entropy, expected lengths and string probabilities are computed exactly.

Expectations over derivations are linear: x = own + M x, where `own` is the expected value of a symbol's own choice of
an alternative and M[a, b] the expected number of `b` in one expansion of `a`. With own = the entropy of the choice, x
is the entropy of the derivations (Grenander, 1967).
"""

from __future__ import annotations

import math
import random
from bisect import bisect
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from graphlib import CycleError, TopologicalSorter
from itertools import accumulate, combinations

import numpy as np

from firth.errors import CorpusError

Alternative = tuple[float, tuple[str, ...]]
_Evidence = dict[tuple[float, ...], float]


def surface(terminal: str) -> str:
    """The text of a terminal: the part before the "|" that separates its sense.

    >>> surface(" bank|firms")
    ' bank'
    """
    return terminal.partition("|")[0]


def choose(*weighted: Alternative) -> tuple[Alternative, ...]:
    """Alternatives with probabilities proportional to the given weights.

    >>> choose((3, ("a",)), (1, ("b", "c")))
    ((0.75, ('a',)), (0.25, ('b', 'c')))
    """
    total = math.fsum(weight for weight, _ in weighted)
    return tuple((weight / total, symbols) for weight, symbols in weighted)


@dataclass(frozen=True, eq=False)
class Grammar:
    """Rules, symbol -> alternatives, each a probability and a sequence of symbols.

    Symbols without a rule are terminals. A sentence is the concatenation of its terminals (which include spaces). No
    alternative may be empty and no symbol may be left-recursive; other recursion is allowed.

    >>> coin = Grammar({"S": ((0.5, ("heads.",)), (0.5, ("tails; ", "S")))})
    >>> coin.entropy_bits, coin.log_probability("tails; heads.") == math.log(0.25)
    (2.0, True)
    """

    rules: Mapping[str, tuple[Alternative, ...]]
    start: str = "S"

    def __post_init__(self) -> None:
        for symbol, alternatives in self.rules.items():
            total = math.fsum(probability for probability, _ in alternatives)
            if not math.isclose(total, 1.0, abs_tol=1e-9) or min(p for p, _ in alternatives) <= 0:
                raise CorpusError(f"the alternatives of {symbol!r} must be positive and sum to 1, not {total:.6g}.")
            if not all(symbols for _, symbols in alternatives):
                raise CorpusError(f"{symbol!r} has an empty alternative: write the rule out with and without it.")
        leading = {a: {seq[0] for _, seq in rule if seq[0] in self.rules} for a, rule in self.rules.items()}
        try:
            TopologicalSorter(leading).prepare()
        except CycleError as error:
            raise CorpusError(f"{error.args[1][0]!r} can begin with itself: put what recurs at the end.") from error
        if np.abs(np.linalg.eigvals(self._expansion)).max() >= 1:
            raise CorpusError("the grammar's sentences have no finite expected length: let it recur more rarely.")

    @property
    def terminals(self) -> tuple[str, ...]:
        symbols = {s for rule in self.rules.values() for _, sequence in rule for s in sequence}
        return tuple(sorted(symbols - self.rules.keys()))

    @property
    def entropy_bits(self) -> float:
        """The entropy of a derivation in bits, which is that of a sentence if the grammar is unambiguous."""
        return self._expectation(lambda rule: -math.fsum(p * math.log2(p) for p, _ in rule))

    def expected(self, measure: Callable[[str], float]) -> float:
        """The expected sum of `measure(surface)` over the terminals of a sentence.

        >>> Grammar({"S": ((0.5, ("a",)), (0.5, ("a", "S")))}).expected(len)
        2.0
        """

        def own(rule: tuple[Alternative, ...]) -> float:
            return math.fsum(
                p * measure(surface(symbol)) for p, symbols in rule for symbol in symbols if symbol not in self.rules
            )

        return self._expectation(own)

    def sample(self, rng: random.Random) -> list[str]:
        terminals = []
        stack = [self.start]
        while stack:
            symbol = stack.pop()
            if symbol in self.rules:
                bounds = self._bounds[symbol]
                # `random()` is the only method with values guaranteed never to change.
                index = min(bisect(bounds, rng.random()), len(bounds) - 1)
                stack.extend(reversed(self.rules[symbol][index][1]))
            else:
                terminals.append(symbol)
        return terminals

    def log_probability(self, text: str) -> float:
        """The log-probability of `text` in nats, summed over its derivations; -inf if it has none."""
        found = -math.inf
        # By position: remaining symbols -> log-probability of the prefix.
        ahead: dict[int, dict[tuple[str, ...], float]] = {0: {(self.start,): 0.0}}
        while ahead:
            position = min(ahead)
            states = ahead.pop(position)
            while states:
                (symbol, *rest), log_p = states.popitem()
                if symbol in self.rules:
                    for p, symbols in self.rules[symbol]:
                        if text.startswith(self._openings[symbols[0]], position):
                            _add(states, (*symbols, *rest), log_p + math.log(p))
                elif text.startswith(surface(symbol), position):
                    end = position + len(surface(symbol))
                    if rest:
                        _add(ahead.setdefault(end, {}), tuple(rest), log_p)
                    elif end == len(text):
                        found = _log_sum(found, log_p)
        return found

    def is_unambiguous(self, k: int = 2) -> bool:
        """Whether the next `k` terminals always determine the alternative: then all derivations differ.

        >>> Grammar({"S": choose((1, ("a", "b")), (1, ("a", "c")))}).is_unambiguous(1)
        False
        """
        for rule in self.rules.values():
            for (_, one), (_, other) in combinations(rule, 2):
                first, second = set(self._first(one, k)), set(self._first(other, k))
                if first & _prefixes(second) or second & _prefixes(first):
                    return False
        return True

    def _first(self, symbols: tuple[str, ...], k: int) -> Iterator[tuple[str, ...]]:
        """The first `k` terminals (as text) of all expansions of `symbols`, or all of them if they are fewer."""
        if not symbols or k == 0:
            yield ()
            return
        for head in self._heads(symbols[0], k):
            for tail in self._first(symbols[1:], k - len(head)):
                yield head + tail

    def _heads(self, symbol: str, k: int) -> set[tuple[str, ...]]:
        if symbol not in self.rules:
            return {(surface(symbol),)}
        return {head for _, symbols in self.rules[symbol] for head in self._first(symbols, k)}

    @cached_property
    def _bounds(self) -> dict[str, list[float]]:
        return {symbol: list(accumulate(p for p, _ in rule)) for symbol, rule in self.rules.items()}

    @cached_property
    def _openings(self) -> dict[str, tuple[str, ...]]:
        symbols = {*self.rules, *self.terminals}
        return {symbol: tuple(sorted(head for (head,) in self._heads(symbol, 1))) for symbol in symbols}

    @cached_property
    def _expansion(self) -> np.ndarray:
        """M[a, b]: the expected number of symbol b in one expansion of symbol a."""
        index = {symbol: i for i, symbol in enumerate(self.rules)}
        matrix = np.zeros((len(index), len(index)))
        for symbol, rule in self.rules.items():
            for p, symbols in rule:
                for child in symbols:
                    if child in index:
                        matrix[index[symbol], index[child]] += p
        return matrix

    def _expectation(self, own: Callable[[tuple[Alternative, ...]], float]) -> float:
        values = np.array([own(rule) for rule in self.rules.values()])
        totals = np.linalg.solve(np.eye(len(values)) - self._expansion, values)
        return float(totals[list(self.rules).index(self.start)])


def _add(states: dict[tuple[str, ...], float], symbols: tuple[str, ...], log_p: float) -> None:
    states[symbols] = _log_sum(states.get(symbols, -math.inf), log_p)


def _log_sum(a: float, b: float) -> float:
    high, low = max(a, b), min(a, b)
    return high if low == -math.inf else high + math.log1p(math.exp(low - high))


def _prefixes(sequences: set[tuple[str, ...]]) -> set[tuple[str, ...]]:
    return {sequence[:n] for sequence in sequences for n in range(1, len(sequence) + 1)}


def posterior_bits(of_topics: Sequence[Grammar]) -> float:
    """H(T|X): the conditional entropy in bits of the grammar, uniformly chosen, given a sentence.

    The grammars differ only in probabilities, and only symbols with the same probabilities in all of them may recur.

    >>> fair, loaded = (Grammar({"S": choose((w, ("heads",)), (1, ("tails",)))}) for w in (1, 3))
    >>> round(posterior_bits([fair, loaded]), 4)
    0.9512
    """
    total = 0.0
    for likelihoods, mass in _topic_evidence(of_topics).items():
        known = math.fsum(likelihoods)
        total -= mass * math.fsum(p * math.log2(p / known) for p in likelihoods)
    return total / len(of_topics)


def _topic_evidence(of_topics: Sequence[Grammar]) -> _Evidence:
    """Probability mass by the likelihoods of the topics over the largest, a sufficient statistic for the topic."""
    rules = [grammar.rules for grammar in of_topics]
    nothing: _Evidence = {(1.0,) * len(rules): 1.0}
    topical = _topical_symbols(of_topics)

    @cache
    def evidence(symbol: str) -> _Evidence:
        if symbol not in topical:
            return nothing
        total: _Evidence = defaultdict(float)
        for alternatives in zip(*(rule[symbol] for rule in rules), strict=True):
            part = _combine({tuple(p for p, _ in alternatives): 1.0}, nothing)
            for child in alternatives[0][1]:
                part = _combine(part, evidence(child))
            for key, mass in part.items():
                total[key] += mass
        return total

    return evidence(of_topics[0].start)


def _topical_symbols(of_topics: Sequence[Grammar]) -> set[str]:
    rules = of_topics[0].rules
    topical = {s for s in rules if any(grammar.rules[s] != rules[s] for grammar in of_topics)}
    grown = -1
    while grown != len(topical):
        grown = len(topical)
        topical |= {s for s, rule in rules.items() if any(topical & set(symbols) for _, symbols in rule)}
    return topical


def _combine(one: _Evidence, other: _Evidence) -> _Evidence:
    total: _Evidence = defaultdict(float)
    for a, mass_a in one.items():
        for b, mass_b in other.items():
            likelihoods = [x * y for x, y in zip(a, b, strict=True)]
            largest = max(likelihoods)
            # Twelve digits merge keys that differ by rounding only.
            total[tuple(float(f"{p / largest:.12g}") for p in likelihoods)] += mass_a * mass_b * largest
    return total
