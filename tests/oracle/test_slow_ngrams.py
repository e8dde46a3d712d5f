"""The slow reference itself: numbers worked out by hand, published tables, and identities between the methods."""

from __future__ import annotations

import copy
import math
import random
from collections import Counter
from collections.abc import Callable
from fractions import Fraction

import pytest

from tests.oracle import slow_ngrams as slow
from tests.oracle.slow_discounts import (
    averaging_transform,
    good_turing_ratios,
    katz_ratios,
    one_discount,
    simple_good_turing,
    slope_of,
    three_discounts,
)
from tests.oracle.slow_ngrams import BOS, EOS, UNK, Model, Ngram, Text, Word

F = Fraction
SURVEY = [line.split() for line in ("BROWN READ HOLY BIBLE", "MARK READ A TEXT BOOK", "HE READ A BOOK BY DAVID")]
BROWN, DAVID = ["BROWN", "READ", "A", "BOOK"], ["DAVID", "READ", "A", "BOOK"]

# Counts of counts of Gale's two examples, prosody and Chinese plurals.
PROSODY = {1: 120, 2: 40, 3: 24, 4: 13, 5: 15, 6: 5, 7: 11, 8: 2, 9: 2, 10: 1, 12: 3, 14: 2, 15: 1, 16: 1, 17: 3, 19: 1}
PROSODY |= {20: 3, 21: 2, 23: 3, 24: 3, 25: 3, 26: 2, 27: 2, 28: 1, 31: 2, 32: 2, 33: 1, 34: 2, 36: 2, 41: 3, 43: 1}
PROSODY |= {45: 3} | dict.fromkeys((46, 47, 50, 71, 84, 101, 105, 121, 124, 146, 162, 193, 199, 224, 226, 254, 257), 1)
PROSODY |= dict.fromkeys((339, 421, 456, 481, 483, 1140, 1256, 1322, 1530, 2131, 2395, 6925, 7846), 1)
PLURALS = dict(
    enumerate((268, 112, 70, 41, 24, 14, 15, 14, 8, 11, 9, 6, 6, 3, 7, 9, 4, 4, 8, 2, 4, 2, 2, 3, 4, 4, 4), 1)
)
PLURALS |= {28: 1, 29: 1, 31: 2, 33: 1, 39: 3, 41: 1, 46: 1, 47: 1, 50: 1, 52: 2}
PLURALS |= dict.fromkeys((53, 55, 57, 60, 74, 84, 108, 109, 177, 400, 1918), 1)


def zipf(seed: int, tokens: int, words: int) -> list[list[Word]]:
    """Sentences of random words, the r-th with a probability in proportion to 1/r."""
    rng = random.Random(seed)
    drawn: list[Word] = [
        f"w{number}" for number in rng.choices(range(words), [1 / (r + 1) for r in range(words)], k=tokens)
    ]
    sentences = []
    while drawn:
        length = rng.randint(1, 9)
        sentences.append(drawn[:length])
        drawn = drawn[length:]
    return sentences


CORPORA: dict[str, list[list[Word]]] = {
    "survey": [list(one) for one in SURVEY],
    "zipf": zipf(1, 300, 40),
    "few words": zipf(2, 200, 3),
    "repeated": [["a", "b", "a", "c"]] * 5,
    "one word": [["a"]],
}


def levels(value: object) -> dict[int, object]:
    return dict.fromkeys(range(1, 9), value)


def some_weights(level: int, bucket: int) -> Fraction:
    return F(bucket + 1, bucket + level + 2)


def seating(text: Text) -> Model:
    """Pitman-Yor with one customer a count and half of them, at least one, at a table of their own."""
    customers = slow.continuation_counts(text)
    tables = {ngram: (count + 1) // 2 for ngram, count in customers.items()}
    return slow.pitman_yor(text, customers, tables, levels(F(1, 3)), levels(F(3, 2)))  # type: ignore[arg-type]


METHODS: dict[str, Callable[[Text], Model]] = {
    "additive": lambda text: slow.additive(text, levels(F(1, 3))),  # type: ignore[arg-type]
    "good-turing": slow.good_turing,
    "good-turing equal": lambda text: slow.good_turing(text, equal=True),
    "katz": slow.katz,
    "jelinek-mercer": lambda text: slow.jelinek_mercer(text, some_weights),
    "witten-bell": slow.witten_bell,
    "witten-bell back-off": lambda text: slow.witten_bell(text, interpolate=False),
    "absolute": slow.absolute,
    "absolute back-off": lambda text: slow.absolute(text, interpolate=False),
    "kneser-ney": slow.kneser_ney,
    "kneser-ney back-off": lambda text: slow.kneser_ney(text, interpolate=False),
    "modified-kneser-ney": slow.modified_kneser_ney,
    "modified-kneser-ney back-off": lambda text: slow.modified_kneser_ney(text, interpolate=False),
    "bayes": lambda text: slow.bayes(text, levels(F(5, 2))),  # type: ignore[arg-type]
    "pitman-yor": seating,
}


def some_histories(text: Text, sentences: list[list[Word]], count: int = 12) -> list[Ngram]:
    """Histories of the text, and others of random words, most of them never seen."""
    rng = random.Random(7)
    positions = [(sentence, position) for sentence in sentences for position in range(len(sentence) + 1)]
    words = [word for word in text.predictable if word != EOS]
    found = [text.history(one[:position]) for one, position in rng.sample(positions, min(count, len(positions)))]
    found += [text.history(rng.choices(words, k=rng.randint(0, 6))) for _ in range(count)]
    return [*found, text.history([]), text.history([UNK] * 6)]


# Counting


def test_counts_of_the_survey() -> None:
    text = Text(SURVEY, 2)
    assert (text.counts["READ",], text.counts["READ", "A"], text.counts[BOS, "HE"], text.counts[EOS,]) == (3, 2, 1, 3)
    assert (BOS,) not in text.counts
    assert slow.counts_of_counts(text.counts, 1) == {1: 8, 2: 2, 3: 2}
    assert slow.counts_of_counts(text.counts, 2) == {1: 16, 2: 1}
    assert len(text.predictable) == 13
    assert len(Text(SURVEY, 2, unknown=False).predictable) == 12


def test_histories_are_shorter_at_the_beginning() -> None:
    text = Text(SURVEY, 3)
    assert [text.history(BROWN[:n]) for n in range(4)] == [(BOS,), (BOS, "BROWN"), ("BROWN", "READ"), ("READ", "A")]
    assert Text(SURVEY, 1).history(BROWN) == ()


def test_words_outside_the_vocabulary_are_unknown() -> None:
    text = Text([["a", "b"], ["c"]], 2, vocabulary=["a", "d"])
    assert text.counts == {("a",): 1, (UNK,): 2, (EOS,): 2, (BOS, "a"): 1, ("a", UNK): 1, (UNK, EOS): 2, (BOS, UNK): 1}
    assert text.predictable == ["a", "d", UNK, EOS]


def test_continuation_counts_by_hand() -> None:
    counts = slow.continuation_counts(Text([["a", "b"], ["a", "b"], ["b", "b"]], 3))
    assert {ngram: count for ngram, count in counts.items() if len(ngram) == 1} == {("a",): 1, ("b",): 3, (EOS,): 1}
    pairs = {(BOS, "a"): 2, (BOS, "b"): 1, ("a", "b"): 1, ("b", "b"): 1, ("b", EOS): 2}
    assert {ngram: count for ngram, count in counts.items() if len(ngram) == 2} == pairs
    assert counts[BOS, "a", "b"] == counts["a", "b", EOS] == 2


# The survey's example


def test_maximum_likelihood() -> None:
    text = Text(SURVEY, 2)
    assert slow.probability(slow.mle(text), text, BROWN) == F(1, 3) * 1 * F(2, 3) * F(1, 2) * F(1, 2)
    assert slow.probability(slow.mle(text), text, DAVID) == 0
    assert slow.mle(text)((UNK,))["A"] == F(2, 18)


def test_add_one() -> None:
    ones = dict.fromkeys((1, 2), 1)
    closed, opened = Text(SURVEY, 2, unknown=False), Text(SURVEY, 2)
    by_hand = F(2, 15) * F(2, 13) * F(3, 15) * F(2, 14) * F(2, 14)
    assert slow.probability(slow.additive(closed, ones), closed, BROWN) == by_hand
    by_hand = F(2, 16) * F(2, 14) * F(3, 16) * F(2, 15) * F(2, 15)
    assert slow.probability(slow.additive(opened, ones), opened, BROWN) == by_hand
    assert (
        slow.probability(slow.additive(closed, ones), closed, DAVID) == F(1, 15) * F(1, 13) * F(3, 15) * F(2, 14) ** 2
    )


@pytest.mark.parametrize("name", METHODS)
def test_smoothing_leaves_nothing_impossible(name: str) -> None:
    for order in (2, 3):
        text = Text(SURVEY, order)
        assert slow.probability(METHODS[name](text), text, DAVID) > 0


def test_witten_bell_by_hand() -> None:
    """c(READ.) = 3, N1+(READ.) = 2; c(.) = 18, N1+(.) = 12."""
    text = Text(SURVEY, 2)
    after = slow.witten_bell(text)(("READ",))
    assert after["A"] == F(2, 5) + F(2, 5) * (F(2, 30) + F(12, 30) * F(1, 13))
    assert after[UNK] == F(2, 5) * F(12, 30) * F(1, 13)
    after = slow.witten_bell(text, interpolate=False)(("READ",))
    weight = (1 - F(3, 5)) / (1 - F(1, 30) - F(2, 30))
    assert (after["A"], after["BOOK"], after[UNK]) == (F(2, 5), weight * F(2, 30), weight * F(12, 30))


def test_absolute_by_hand() -> None:
    """D is 8/(8+4) for words and 16/(16+2) for pairs."""
    text = Text(SURVEY, 2)
    after = slow.absolute(text)(("READ",))
    rest = 12 * F(2, 3) / 18
    assert after["A"] == (2 - F(8, 9)) / 3 + 2 * F(8, 9) / 3 * ((2 - F(2, 3)) / 18 + rest / 13)
    after = slow.absolute(text, interpolate=False)(("READ",))
    weight = (2 * F(8, 9) / 3) / (1 - F(1, 3) / 18 - F(4, 3) / 18)
    assert (after["BOOK"], after[UNK]) == (weight * F(4, 3) / 18, weight * rest)


def test_kneser_ney_by_hand() -> None:
    """17 distinct pairs: BOOK ends two of them, A one; nine words end one, BOOK two, READ and </s> three."""
    text = Text(SURVEY, 2)
    rest, d1, d2 = 12 * F(9, 11) / 17, F(9, 11), F(8, 9)
    after = slow.kneser_ney(text)(("READ",))
    assert after["BOOK"] == 2 * d2 / 3 * ((2 - d1) / 17 + rest / 13)
    assert after["A"] == (2 - d2) / 3 + 2 * d2 / 3 * ((1 - d1) / 17 + rest / 13)
    after = slow.kneser_ney(text, interpolate=False)(("READ",))
    assert after["BOOK"] == (2 * d2 / 3) / (1 - 2 * (1 - d1) / 17) * (2 - d1) / 17


def test_modified_kneser_ney_by_hand() -> None:
    """No n-gram occurs four times, so the discounts are 1/2, 1 and 3/2."""
    after = slow.modified_kneser_ney(Text(SURVEY, 2))(("READ",))
    rest = (9 * F(1, 2) + 1 + 2 * F(3, 2)) / 17
    assert after["A"] == F(2 - 1, 3) + (F(1, 2) + 1) / 3 * (F(1, 2) / 17 + rest / 13)
    assert after[EOS] == (F(1, 2) + 1) / 3 * (F(3, 2) / 17 + rest / 13)


def test_jelinek_mercer_and_bayes_by_hand() -> None:
    """c(READ.) = 3 is in bucket 1, c(.) = 18 in bucket 4."""
    text = Text(SURVEY, 2)
    weights = {(2, 1): F(2, 7), (1, 4): F(3, 5)}
    after = slow.jelinek_mercer(text, lambda level, bucket: weights[level, bucket])(("READ",))
    assert after["A"] == F(2, 7) * F(2, 3) + F(5, 7) * (F(3, 5) * F(2, 18) + F(2, 5) / 13)
    after = slow.bayes(text, {1: 13, 2: 4})(("READ",))
    assert after["A"] == (2 + 4 * F(2 + 1, 18 + 13)) / (3 + 4)


def test_stupid_by_hand() -> None:
    text = Text(SURVEY, 3)
    after = slow.stupid(text)(("READ", "A"))
    assert (after["BOOK"], after["HE"]) == (F(1, 2), F(4, 25) * F(1, 18))
    assert slow.stupid(text)((UNK, "A"))["HE"] == F(2, 5) * F(1, 18)
    assert (slow.stupid(text)(())[UNK], slow.stupid(text, flat=True)(())[UNK]) == (F(0), F(2, 5) / 13)
    assert slow.stupid(text, charge_unseen=True)((UNK, "A"))["HE"] == F(4, 25) * F(1, 18)


# Discounts


def test_one_and_three_discounts_by_hand() -> None:
    assert one_discount({1: 6, 2: 3}) == F(1, 2)
    assert one_discount({1: 7, 3: 1}) == one_discount({2: 7}) == F(1, 2)
    # Y = 20/40
    assert three_discounts({1: 20, 2: 10, 3: 6, 4: 4}) == (F(1, 2), 2 - F(9, 10), 3 - F(4, 3))
    assert three_discounts({1: 20, 2: 10, 3: 6}) == (F(1, 2), F(1), F(3, 2))
    assert three_discounts({1: 10, 2: 2, 3: 10, 4: 1}) == (F(1, 2), F(1), F(3, 2)), "D_2 would be below 0"


def test_katz_by_hand() -> None:
    n = {1: 10, 2: 4, 3: 2, 4: 1}
    assert katz_ratios(n, 2) == {1: F(1, 2), 2: F(3, 8)}
    assert katz_ratios(n, 4) is None, "n5 is 0"
    assert katz_ratios(n, 1) is None, "d_1 is always 0"
    assert katz_ratios({1: 4, 2: 2, 3: 1}, 2) is None, "d_2 is 0"
    assert katz_ratios({1: 4, 2: 2, 3: 2, 4: 1}, 3) is None, "4 n4 / n1 is 1"
    assert katz_ratios({1: 12, 2: 9, 3: 8}, 2) is None, "3 n3 / n1 is 2"


def test_katz_takes_as_much_as_turing_gives_to_the_unseen() -> None:
    n = {1: 268, 2: 112, 3: 70, 4: 41, 5: 24, 6: 14}
    ratios = katz_ratios(n, 5)
    assert ratios is not None
    assert sum(n[r] * (1 - ratios[r]) * r for r in ratios) == n[1]


def test_katz_lowers_its_cutoff() -> None:
    """n1 ... n4 are 10, 5, 2 and 1 (</s> is one of the pairs): no n5 or n6, and d = 1, 1/3, 4/9 for k = 3."""
    wanted = {1: 10, 2: 4, 3: 2, 4: 1}
    words: list[Word] = [f"{r}-{number}" for r in wanted for number in range(wanted[r]) for _ in range(r)]
    text = Text([words[:16], words[16:]], 1)
    assert slow.counts_of_counts(text.counts, 1) == {1: 10, 2: 5, 3: 2, 4: 1}
    found = slow.katz(text)(())
    alphas = [found[word] * text.counts.total() for word in ("1-0", "2-0", "3-0", "4-0", EOS)]
    assert alphas == [1, F(2, 3), F(4, 3), 4, F(2, 3)]


@pytest.mark.parametrize(
    ("n", "slope", "stars"),
    [
        (PROSODY, -1.389374, {1: 0.7628079, 2: 1.706448, 3: 2.679796, 12: 11.62182, 7846: 7838.899}),
        (PLURALS, -1.964591, {1: 0.8414893, 2: 1.887716, 3: 2.288452, 12: 11.1837, 1918: 1930.037}),
    ],
)
def test_simple_good_turing_of_the_papers_examples(n: dict[int, int], slope: float, stars: dict[int, float]) -> None:
    """The published r* are scaled so that the seen have 1 - n1/N; plurals use Turing's estimate for r = 1 and 2."""
    found = simple_good_turing(n)
    assert found is not None
    assert slope_of(averaging_transform(n)) == pytest.approx(slope, abs=5e-7)
    total = sum(r * n[r] for r in n)
    scale = (1 - n[1] / total) * total / float(sum(n[r] * found[r] for r in n))
    for r, star in stars.items():
        assert float(found[r]) * scale == pytest.approx(star, rel=5e-7)
    assert (found[1] == F(2 * n[2], n[1])) == (n is PLURALS)


def test_good_turing_without_support() -> None:
    assert good_turing_ratios({1: 5}) is good_turing_ratios({2: 5, 3: 1}) is None
    assert good_turing_ratios({1: 5, 2: 5, 3: 5}) is None, "a flat line"
    assert all(good_turing_ratios({1: 2 * n, 2: n}) is None for n in range(1, 50)), "a slope of -1"
    ratios = good_turing_ratios({1: 1000, 2: 600, 3: 5, 4: 1})
    assert ratios is not None
    assert (ratios[1], ratios[2]) == (F(1), F(15, 1200)), "Turing's estimate of 1 is 1.2"
    text = Text(SURVEY, 2)
    assert slow.good_turing(Text([["a"]] * 3, 1))(())["a"] == F(3) / 6 - F(1, 2) / 6, "only r = 3 occurs: D = 1/2"
    assert sum(slow.good_turing(text, equal=True)(("READ",)).values()) == 1
    assert len({slow.good_turing(text, equal=True)(("READ",))[word] for word in ("BOOK", UNK, EOS, "HE")}) == 1
    assert set(slow.good_turing(text, equal=True)((UNK,)).values()) == {F(1, 13)}


# Identities


@pytest.mark.parametrize("corpus", CORPORA)
@pytest.mark.parametrize("name", ["mle", *METHODS])
def test_sums_to_one(name: str, corpus: str) -> None:
    """Exactly, for seen and unseen histories, with and without unknown words."""
    for order in range(1, 6):
        text = Text(CORPORA[corpus], order, unknown=order != 2)
        model = slow.mle(text) if name == "mle" else METHODS[name](text)
        for history in some_histories(text, CORPORA[corpus]):
            distribution = model(history)
            assert list(distribution) == text.predictable
            assert sum(distribution.values()) == 1
            assert min(distribution.values()) >= 0


def test_nothing_to_back_off_to() -> None:
    """All of V' follow "a", so that back-off scales what they have: 3 a, 1 b, 1 </s>."""
    text = Text([["a", "a", "a", "a", "b"], ["a"]], 2, unknown=False)
    assert slow.followers(text.counts)["a",] == {"a": 3, "b": 1, EOS: 1}
    after = slow.absolute(text, {1: F(1, 2), 2: F(1, 4)}, interpolate=False)(("a",))
    assert after == {"a": F(11, 17), "b": F(3, 17), EOS: F(3, 17)}


@pytest.mark.parametrize("corpus", CORPORA)
def test_methods_that_are_cases_of_others(corpus: str) -> None:
    for order in (1, 2, 3):
        text = Text(CORPORA[corpus], order)
        d, v = {level: F(1, level + 1) for level in range(1, order + 1)}, len(text.predictable)
        counts = slow.continuation_counts(text)
        one_table = slow.pitman_yor(text, counts, dict.fromkeys(counts, 1), d, dict.fromkeys(d, 0))
        thrice = slow.modified_kneser_ney(text, {level: (d[level],) * 3 for level in d})
        for history in some_histories(text, CORPORA[corpus], 5):
            kneser_ney = slow.kneser_ney(text, d)(history)
            assert one_table(history) == thrice(history) == kneser_ney, "Teh (2006)"
            if order == 1:
                assert slow.bayes(text, {1: F(v, 3)})(()) == slow.additive(text, {1: F(1, 3)})(())
                assert slow.absolute(text, d)(()) == kneser_ney, "the highest level has raw counts"
                assert slow.witten_bell(text)(()) == slow.bayes(text, {1: v - 1})(()), "all but <unk> were seen"


# Leaving one out


def left_out(text: Text, ngram: Ngram) -> Text:
    """The text with one token less of an n-gram and of the shorter ones that it ends in."""
    less = copy.copy(text)
    less.counts = text.counts.copy()
    for start in range(len(ngram)):
        less.counts[ngram[start:]] -= 1
    less.counts += Counter()  # drops those that are gone
    return less


@pytest.mark.parametrize("level", [1, 2, 3])
def test_leaving_one_out_literally(level: int) -> None:
    text = Text(CORPORA["zipf"][:20], 3)
    deltas, mu = {1: F(1), 2: F(1, 4), 3: F(1, 2)}, {1: 3.5, 2: 2.0, 3: 7.0}
    expected = [0.0, 0.0, 0.0]
    for ngram, count in text.counts.items():
        if len(ngram) == level:
            less = left_out(text, ngram)
            models = slow.additive(less, deltas), slow.bayes(less, mu), slow.jelinek_mercer(less, some_weights)
            for position, model in enumerate(models):
                expected[position] += count * math.log(model(ngram[:-1])[ngram[-1]])
    found = (
        slow.additive_leave_one_out(text, level, float(deltas[level])),
        slow.bayes_leave_one_out(text, level, mu),
        slow.jelinek_mercer_leave_one_out(text, level, lambda level, bucket: float(some_weights(level, bucket))),
    )
    assert found == pytest.approx(tuple(expected), rel=1e-12)
