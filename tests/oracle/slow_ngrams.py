"""Reference implementations of every smoothing method in exact fractions, for comparison with the fast models.

A sentence is `<s> w1 ... wm </s>`. A history is a tuple of words, at most order - 1 of them, `<s>` first where the
sentence begins. A method is a function of a `Text` and of its parameters; it returns a model, a function from a history
to the probability of every predictable word. The notation is that of Chen and Goodman (1998): c(hw) how often w follows
h, c(h.) the sum over w, N1+(h.) the number of distinct w, n_r the number of distinct n-grams of a length that occur r
times, h' the history without its first word. Fractions make a distribution sum to 1, not to nearly 1; only the
regression of simple Good-Turing and the logarithms of likelihoods are floating point.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cache
from typing import TypeVar

from tests.oracle.slow_discounts import good_turing_ratios, katz_ratios, one_discount, three_discounts

Word = Hashable
Ngram = tuple[Word, ...]
Number = int | float | Fraction
Count = TypeVar("Count", int, Fraction)
Distribution = dict[Word, Fraction]
Model = Callable[[Ngram], Distribution]
Alphas = Callable[[Ngram, dict[Word, int]], Distribution]
"""What a method gives to the words seen after a history, from the history and the counts after it: alpha(w|h)."""

BOS, EOS, UNK = "<s>", "</s>", "<unk>"


class Text:
    """Sentences, their n-grams up to an order, and the words that may be predicted.

    >>> text = Text([["a", "b", "a"]], order=2)
    >>> text.counts["a",], text.counts[BOS, "a"], text.counts["a", EOS]
    (2, 1, 1)
    >>> text.predictable
    ['a', 'b', '<unk>', '</s>']
    """

    def __init__(
        self,
        sentences: Iterable[Sequence[Word]],
        order: int,
        vocabulary: Iterable[Word] | None = None,
        unknown: bool = True,
    ) -> None:
        """Words outside the vocabulary, by default all words of the sentences, are counted as `<unk>`."""
        sentences = [list(sentence) for sentence in sentences]
        known = dict.fromkeys((word for one in sentences for word in one) if vocabulary is None else vocabulary)
        for special in (BOS, EOS, UNK):
            known.pop(special, None)
        self.order = order
        self.predictable: list[Word] = [*known, *([UNK] if unknown else []), EOS]
        self.counts: Counter[Ngram] = Counter()
        for sentence in sentences:
            words = [BOS, *(word if word in known else UNK for word in sentence), EOS]
            assert unknown or UNK not in words
            for length in range(1, order + 1):
                for start in range(len(words) - length + 1):
                    self.counts[tuple(words[start : start + length])] += 1
        del self.counts[BOS,]

    def history(self, words: Sequence[Word]) -> Ngram:
        """The history of the word that comes after the first `words` of a sentence."""
        before = (BOS, *words)
        return before[max(0, len(before) - self.order + 1) :]

    def uniform(self) -> Distribution:
        return {word: Fraction(1, len(self.predictable)) for word in self.predictable}


def probability(model: Model, text: Text, sentence: Sequence[Word]) -> Fraction:
    """The probability of a sentence and its end."""
    product = Fraction(1)
    for position, word in enumerate([*sentence, EOS]):
        product *= model(text.history(sentence[:position]))[word]
    return product


# Counts


def exact_sum(numbers: Iterable[Fraction]) -> Fraction:
    return sum(numbers, start=Fraction(0))


def followers(counts: Mapping[Ngram, Count]) -> dict[Ngram, dict[Word, Count]]:
    """For each history that was seen, how often each word follows it."""
    found: dict[Ngram, dict[Word, Count]] = {}
    for ngram, count in counts.items():
        found.setdefault(ngram[:-1], {})[ngram[-1]] = count
    return found


def counts_of_counts(counts: Mapping[Ngram, int], level: int) -> Counter[int]:
    """n_r: how many distinct n-grams of length `level` occur r times."""
    return Counter(count for ngram, count in counts.items() if len(ngram) == level)


def continuation_counts(text: Text) -> dict[Ngram, int]:
    """The counts of Kneser-Ney: below the highest level, the number of distinct words before the n-gram.

    Nothing stands before `<s>`, so n-grams that begin with it keep their counts.
    """
    before: dict[Ngram, set[Word]] = defaultdict(set)
    for ngram in text.counts:
        before[ngram[1:]].add(ngram[0])
    return {
        ngram: count if len(ngram) == text.order or ngram[0] == BOS else len(before[ngram])
        for ngram, count in text.counts.items()
    }


# The two ways of using the next shorter history


def interpolated(text: Text, counts: Mapping[Ngram, int], alphas: Alphas) -> Model:
    """p(w|h) = alpha(w|h) + (1 - sum of alpha) p(w|h'), for all words alike."""
    seen = followers(counts)

    @cache
    def model(history: Ngram) -> Distribution:
        lower = model(history[1:]) if history else text.uniform()
        if history not in seen:
            return lower
        alpha = alphas(history, seen[history])
        rest = 1 - exact_sum(alpha.values())
        return {word: alpha.get(word, 0) + rest * lower[word] for word in text.predictable}

    return model


def backed_off(text: Text, counts: Mapping[Ngram, int], alphas: Alphas) -> Model:
    """p(w|h) = alpha(w|h) for words seen after h, and for the others p(w|h') times what makes the sum 1.

    Where no other word has any probability after h', alpha is scaled to sum to 1.
    """
    seen = followers(counts)

    @cache
    def model(history: Ngram) -> Distribution:
        lower = model(history[1:]) if history else text.uniform()
        if history not in seen:
            return lower
        alpha = alphas(history, seen[history])
        total = exact_sum(alpha.values())
        open_to = 1 - exact_sum(lower[word] for word in alpha)
        if open_to == 0:
            return {word: alpha.get(word, Fraction(0)) / total for word in text.predictable}
        weight = (1 - total) / open_to
        return {word: alpha[word] if word in alpha else weight * lower[word] for word in text.predictable}

    return model


def combined(text: Text, counts: Mapping[Ngram, int], alphas: Alphas, interpolate: bool) -> Model:
    return interpolated(text, counts, alphas) if interpolate else backed_off(text, counts, alphas)


# Methods without discounts


def mle(text: Text) -> Model:
    """c(hw) / c(h.): nothing is left for words that were not seen."""

    def alphas(history: Ngram, seen: dict[Word, int]) -> Distribution:
        return {word: Fraction(count, sum(seen.values())) for word, count in seen.items()}

    return interpolated(text, text.counts, alphas)


def additive(text: Text, delta: Mapping[int, Number]) -> Model:
    """(c(hw) + d) / (c(h.) + d V'), with a d for each level; never uses shorter histories."""

    @cache
    def model(history: Ngram) -> Distribution:
        d = Fraction(delta[len(history) + 1])
        count = {word: text.counts.get((*history, word), 0) for word in text.predictable}
        total = sum(count.values())
        if total == 0:
            return text.uniform()
        return {word: (count[word] + d) / (total + d * len(text.predictable)) for word in text.predictable}

    return model


def jelinek_mercer(text: Text, weights: Callable[[int, int], Number]) -> Model:
    """l c(hw)/c(h.) + (1 - l) p(w|h'), with l = weights(level, bucket) and bucket = floor(log2 c(h.))."""

    def alphas(history: Ngram, seen: dict[Word, int]) -> Distribution:
        total = sum(seen.values())
        weight = Fraction(weights(len(history) + 1, bucket(total)))
        return {word: weight * Fraction(count, total) for word, count in seen.items()}

    return interpolated(text, text.counts, alphas)


def bucket(total: int) -> int:
    """floor(log2 c(h.)).

    >>> [bucket(total) for total in (1, 2, 3, 4, 7, 8)]
    [0, 1, 1, 2, 2, 3]
    """
    power = 0
    while 2 ** (power + 1) <= total:
        power += 1
    return power


def witten_bell(text: Text, interpolate: bool = True) -> Model:
    """c(hw) / (c(h.) + N1+(h.)): a new word is as likely as new words have been after h."""

    def alphas(history: Ngram, seen: dict[Word, int]) -> Distribution:
        return {word: Fraction(count, sum(seen.values()) + len(seen)) for word, count in seen.items()}

    return combined(text, text.counts, alphas, interpolate)


def bayes(text: Text, mu: Mapping[int, Number]) -> Model:
    """(c(hw) + mu p(w|h')) / (c(h.) + mu): the mean under a Dirichlet prior around the shorter history."""

    def alphas(history: Ngram, seen: dict[Word, int]) -> Distribution:
        return {word: count / (sum(seen.values()) + Fraction(mu[len(history) + 1])) for word, count in seen.items()}

    return interpolated(text, text.counts, alphas)


def pitman_yor(
    text: Text,
    customers: Mapping[Ngram, Number],
    tables: Mapping[Ngram, Number],
    discount: Mapping[int, Number],
    strength: Mapping[int, Number],
) -> Model:
    """(c - d t)/(theta + c.) + (theta + d t.)/(theta + c.) p(w|h'), for a given seating (Teh 2006)."""
    seen = followers({ngram: Fraction(count) for ngram, count in customers.items() if count > 0})

    @cache
    def model(history: Ngram) -> Distribution:
        lower = model(history[1:]) if history else text.uniform()
        if history not in seen:
            return lower
        d, theta = Fraction(discount[len(history) + 1]), Fraction(strength[len(history) + 1])
        c = {word: seen[history].get(word, Fraction(0)) for word in text.predictable}
        t = {word: Fraction(tables[*history, word]) if c[word] else Fraction(0) for word in c}
        below, rest = theta + exact_sum(c.values()), theta + d * exact_sum(t.values())
        return {word: (c[word] - d * t[word]) / below + rest / below * lower[word] for word in c}

    return model


def stupid(text: Text, weight: Number = Fraction(2, 5), charge_unseen: bool = False, flat: bool = False) -> Model:
    """c(hw)/c(h.) if w was seen after h, else `weight` times the score after h' (Brants and others 2007).

    The scores do not sum to 1. An unseen history is skipped for nothing, or with `charge_unseen` for `weight` too.
    A word that never occurs has no score, or with `flat` that of `weight` times 1/V'.
    """
    seen = followers(text.counts)
    floor = Fraction(weight) / len(text.predictable) if flat else Fraction(0)

    @cache
    def model(history: Ngram) -> Distribution:
        found = seen.get(history, {})
        total = sum(found.values())
        if not history:
            return {word: Fraction(found[word], total) if word in found else floor for word in text.predictable}
        price = Fraction(weight) if found or charge_unseen else Fraction(1)
        lower = model(history[1:])
        return {
            word: Fraction(found[word], total) if word in found else price * lower[word] for word in text.predictable
        }

    return model


# Absolute discounting and Kneser-Ney


def subtracted(discount: Callable[[int, int], Number]) -> Alphas:
    """(c - D)/c(h.), with D = discount(level, c)."""

    def alphas(history: Ngram, seen: dict[Word, int]) -> Distribution:
        total = sum(seen.values())
        return {word: (count - Fraction(discount(len(history) + 1, count))) / total for word, count in seen.items()}

    return alphas


def single_discounting(
    text: Text, counts: Mapping[Ngram, int], discount: Mapping[int, Number] | None, interpolate: bool
) -> Model:
    by_level = discount or {level: one_discount(counts_of_counts(counts, level)) for level in range(1, text.order + 1)}
    return combined(text, counts, subtracted(lambda level, count: by_level[level]), interpolate)


def absolute(text: Text, discount: Mapping[int, Number] | None = None, interpolate: bool = True) -> Model:
    """(c(hw) - D)/c(h.), with a D for each level."""
    return single_discounting(text, text.counts, discount, interpolate)


def kneser_ney(text: Text, discount: Mapping[int, Number] | None = None, interpolate: bool = True) -> Model:
    """Absolute discounting of continuation counts."""
    return single_discounting(text, continuation_counts(text), discount, interpolate)


def modified_kneser_ney(
    text: Text, discounts: Mapping[int, Sequence[Number]] | None = None, interpolate: bool = True
) -> Model:
    """Kneser-Ney with one discount for n-grams of count 1, one for count 2, and one for the others."""
    counts = continuation_counts(text)
    by_level: Mapping[int, Sequence[Number]] = discounts or {
        level: three_discounts(counts_of_counts(counts, level)) for level in range(1, text.order + 1)
    }
    alphas = subtracted(lambda level, count: by_level[level][min(count, 3) - 1])
    return combined(text, counts, alphas, interpolate)


# Good-Turing and Katz


def multiplied(ratios: Mapping[int, Mapping[int, Fraction] | None], discount: Mapping[int, Fraction]) -> Alphas:
    """(c r*/r)/c(h.), counts without a ratio being left alone; levels without ratios subtract a discount instead.

    Where all ratios are 1, so that nothing would be left for other words, c(h.) is taken for one more, as SRILM does.
    """

    def alphas(history: Ngram, seen: dict[Word, int]) -> Distribution:
        level, total = len(history) + 1, sum(seen.values())
        found = ratios[level]
        if found is None:
            return {word: (count - discount[level]) / total for word, count in seen.items()}
        ratio = {word: found.get(count, Fraction(1)) for word, count in seen.items()}
        if set(ratio.values()) == {1}:
            total += 1
        return {word: ratio[word] * count / total for word, count in seen.items()}

    return alphas


def good_turing(text: Text, equal: bool = False) -> Model:
    """(r*/r) c(hw)/c(h.); the rest to the shorter history, or in equal parts to the words not seen after h."""
    n = {level: counts_of_counts(text.counts, level) for level in range(1, text.order + 1)}
    alphas = multiplied(
        {level: good_turing_ratios(n[level]) for level in n}, {level: one_discount(n[level]) for level in n}
    )
    if not equal:
        return backed_off(text, text.counts, alphas)
    seen = followers(text.counts)

    @cache
    def model(history: Ngram) -> Distribution:
        if history not in seen:
            return text.uniform()
        alpha = alphas(history, seen[history])
        total, others = exact_sum(alpha.values()), len(text.predictable) - len(alpha)
        if others == 0:
            return {word: alpha[word] / total for word in text.predictable}
        return {word: alpha.get(word, (1 - total) / others) for word in text.predictable}

    return model


def katz(text: Text, k: int = 5) -> Model:
    """d_r c(hw)/c(h.) for c(hw) <= k, c(hw)/c(h.) above; k is lowered until the counts of counts support it."""
    n = {level: counts_of_counts(text.counts, level) for level in range(1, text.order + 1)}
    ratios = {}
    for level in n:
        supported = [katz_ratios(n[level], top) for top in range(k, 0, -1)]
        ratios[level] = next((one for one in supported if one is not None), None)
    return backed_off(text, text.counts, multiplied(ratios, {level: one_discount(n[level]) for level in n}))


# Leaving one out: what the free parameters are estimated by


def additive_leave_one_out(text: Text, level: int, delta: float) -> float:
    """The log-likelihood of all n-grams of a level, each token predicted from all others by add-delta."""
    words, seen = len(text.predictable), followers(text.counts)
    return math.fsum(
        count * math.log((count - 1 + delta) / (sum(seen[ngram[:-1]].values()) - 1 + delta * words))
        for ngram, count in text.counts.items()
        if len(ngram) == level
    )


def bayes_leave_one_out(text: Text, level: int, mu: Mapping[int, float]) -> float:
    """The same for Dirichlet priors; the token is left out of the shorter n-grams too."""

    def mix(level: int, count: int, total: int) -> tuple[float, float]:
        return count / (total + mu[level]), mu[level] / (total + mu[level])

    return leave_one_out(text, level, mix)


def jelinek_mercer_leave_one_out(text: Text, level: int, weights: Callable[[int, int], float]) -> float:
    """The same for l = weights(level, bucket), the bucket being that of c(h.) without the token."""

    def mix(level: int, count: int, total: int) -> tuple[float, float]:
        weight = weights(level, bucket(total))
        return weight * count / total, 1 - weight

    return leave_one_out(text, level, mix)


def leave_one_out(text: Text, level: int, mix: Callable[[int, int, int], tuple[float, float]]) -> float:
    """The sum of c log p; p = share + rest p(w|h'), (share, rest) = mix(level, c - 1, c(h.) - 1) at every level."""
    seen = followers(text.counts)

    def probability(ngram: Ngram) -> float:
        if not ngram:
            return 1 / len(text.predictable)
        total = sum(seen[ngram[:-1]].values()) - 1
        share, rest = mix(len(ngram), text.counts[ngram] - 1, total) if total else (0.0, 1.0)
        return share + rest * probability(ngram[1:])

    return math.fsum(
        count * math.log(probability(ngram)) for ngram, count in text.counts.items() if len(ngram) == level
    )
