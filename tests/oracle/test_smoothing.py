"""Every smoothing method against the slow reference, and its free parameters against a search by brute force."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import firth
from firth.counts.counting import count_sentences
from firth.counts.ngram import NgramModel
from firth.counts.pitman_yor import infer
from firth.counts.recipe import SMOOTHINGS, NgramRecipe
from firth.lm.language_model import TokenStream
from firth.tokens.recipe import TokenizerRecipe
from tests.oracle import slow_ngrams as slow
from tests.oracle.slow_ngrams import BOS, EOS, UNK, Model, Number, Text, Word
from tests.oracle.test_slow_ngrams import CORPORA, some_histories

ORDERS = range(1, 6)
NEVER = ("<pad>", "<s>", "<mask>")
SURVEY = CORPORA["survey"]

Build = Callable[[Text, Mapping[str, Any]], Model]
"""The reference for a text, given what the model under test says of its estimated parameters."""


def levels(value: Any) -> dict[int, Any]:
    return dict.fromkeys(ORDERS, value)


def by_level(found: Mapping[str, Any]) -> dict[int, Any]:
    return {int(level): value for level, value in found.items()}


def weights(found: Mapping[str, Any]) -> Callable[[int, int], float]:
    """The weights of Jelinek-Mercer; higher buckets than those listed take the last one's."""
    listed = by_level(found["weights"])
    return lambda level, bucket: listed[level][min(bucket, len(listed[level]) - 1)]


ESTIMATED: dict[str, tuple[dict[str, Any], Build]] = {
    "mle": ({}, lambda text, found: slow.mle(text)),
    "additive": ({}, lambda text, found: slow.additive(text, by_level(found["delta"]))),
    "good-turing": ({}, lambda text, found: slow.good_turing(text)),
    "good-turing, equal": ({"uniform_backoff": True}, lambda text, found: slow.good_turing(text, equal=True)),
    "katz": ({}, lambda text, found: slow.katz(text)),
    "jelinek-mercer": ({}, lambda text, found: slow.jelinek_mercer(text, weights(found))),
    "witten-bell": ({}, lambda text, found: slow.witten_bell(text)),
    "witten-bell, back-off": ({"interpolate": False}, lambda text, found: slow.witten_bell(text, interpolate=False)),
    "absolute": ({}, lambda text, found: slow.absolute(text)),
    "absolute, back-off": ({"interpolate": False}, lambda text, found: slow.absolute(text, interpolate=False)),
    "kneser-ney": ({}, lambda text, found: slow.kneser_ney(text)),
    "kneser-ney, back-off": ({"interpolate": False}, lambda text, found: slow.kneser_ney(text, interpolate=False)),
    "modified-kneser-ney": ({}, lambda text, found: slow.modified_kneser_ney(text)),
    "modified-kneser-ney, back-off": (
        {"interpolate": False},
        lambda text, found: slow.modified_kneser_ney(text, interpolate=False),
    ),
    "bayes": ({}, lambda text, found: slow.bayes(text, by_level(found["prior"]))),
    "stupid": ({}, lambda text, found: slow.stupid(text, flat=True)),
}
FIXED: dict[str, tuple[dict[str, Any], Build]] = {
    "additive, 1": ({"delta": 1.0}, lambda text, found: slow.additive(text, levels(1))),
    "additive, 0.02": ({"delta": 0.02}, lambda text, found: slow.additive(text, levels(0.02))),
    "katz, 3": ({"katz_cutoff": 3}, lambda text, found: slow.katz(text, k=3)),
    "katz, 9": ({"katz_cutoff": 9}, lambda text, found: slow.katz(text, k=9)),
    "jelinek-mercer, 0.6": ({"weight": 0.6}, lambda text, found: slow.jelinek_mercer(text, lambda *_: 0.6)),
    "absolute, 0.7": ({"discount": 0.7}, lambda text, found: slow.absolute(text, levels(0.7))),
    "kneser-ney, 0.7, back-off": (
        {"discount": 0.7, "interpolate": False},
        lambda text, found: slow.kneser_ney(text, levels(0.7), interpolate=False),
    ),
    "modified-kneser-ney, 0.4 0.9 1.3": (
        {"discounts": "0.4,0.9,1.3"},
        lambda text, found: slow.modified_kneser_ney(text, levels((0.4, 0.9, 1.3))),
    ),
    "bayes, 3": ({"prior": 3.0}, lambda text, found: slow.bayes(text, levels(3))),
    "stupid, 0.25": ({"weight": 0.25}, lambda text, found: slow.stupid(text, 0.25, flat=True)),
}


def test_all_methods_are_here() -> None:
    """Church-Gale and Pitman-Yor have their own tests."""
    assert {name.split(",")[0] for name in ESTIMATED} | {"church-gale", "pitman-yor"} == set(SMOOTHINGS)


def trained(folder: Path, sentences: Sequence[Sequence[Word]], smoothing: str, **fields: Any) -> NgramModel:
    """A model over words that end at spaces."""
    fields = {"tokenizer": TokenizerRecipe(model="words", split="space"), **fields}
    recipe = NgramRecipe(smoothing=smoothing, **fields)  # type: ignore[arg-type]
    lines = [" ".join(str(word) for word in sentence) for sentence in sentences]
    model = firth.train(recipe, [lines], out=folder, layout="lines")
    assert isinstance(model, NgramModel)
    return model


def ids(model: NgramModel) -> dict[Word, int]:
    return {word: number for number, word in enumerate(model.tokenizer.vocabulary)}


def logarithms(chances: Sequence[Fraction]) -> npt.NDArray[np.float64]:
    return np.array([math.log(chance) if chance else -math.inf for chance in chances])


def assert_equal(model: NgramModel, text: Text, reference: Model, sentences: Sequence[Sequence[Word]]) -> None:
    """The same logarithms for all words after seen and unseen histories, and for the tokens of sentences."""
    numbers = ids(model)
    assert {*text.predictable, *NEVER, UNK} == set(numbers)
    for history in some_histories(text, [list(sentence) for sentence in sentences]):
        found = model.next_logprobs([numbers[word] for word in history if word != BOS])
        expected = logarithms([reference(history).get(word, Fraction(0)) for word in numbers])
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12, err_msg=str(history))
    known = [word for word in text.predictable if word != EOS]
    scored = [*map(list, sentences[:10]), known, [*reversed(known), *known], []]
    chances = [
        reference(text.history(sentence[:position]))[word]
        for sentence in scored
        for position, word in enumerate([*sentence, EOS])
    ]
    found = model.token_logprobs(TokenStream.of([[numbers[word] for word in sentence] for sentence in scored]))
    np.testing.assert_allclose(found, logarithms(chances), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("corpus", CORPORA)
@pytest.mark.parametrize("case", ESTIMATED)
def test_equals_the_reference(case: str, corpus: str, tmp_path: Path) -> None:
    fields, build = ESTIMATED[case]
    for order in ORDERS:
        model = trained(tmp_path / str(order), CORPORA[corpus], case.split(",")[0], order=order, **fields)
        text = Text(CORPORA[corpus], order)
        assert_equal(model, text, build(text, model.parameters), CORPORA[corpus])


@pytest.mark.parametrize("case", FIXED)
def test_equals_the_reference_with_given_parameters(case: str, tmp_path: Path) -> None:
    fields, build = FIXED[case]
    model = trained(tmp_path / "m", CORPORA["zipf"], case.split(",")[0], order=3, **fields)
    text = Text(CORPORA["zipf"], 3)
    assert_equal(model, text, build(text, model.parameters), CORPORA["zipf"])


@pytest.mark.parametrize("case", ESTIMATED)
def test_closed_vocabulary(case: str, tmp_path: Path) -> None:
    """No probability for `<unk>`; with few words, histories after which all words were seen."""
    fields, build = ESTIMATED[case]
    for corpus in ("survey", "few words"):
        name = case.split(",")[0]
        model = trained(tmp_path / corpus, CORPORA[corpus], name, order=2, vocabulary="closed", **fields)
        text = Text(CORPORA[corpus], 2, unknown=False)
        assert_equal(model, text, build(text, model.parameters), CORPORA[corpus])


@pytest.mark.parametrize("case", ESTIMATED)
def test_rare_words_are_unknown(case: str, tmp_path: Path) -> None:
    fields, build = ESTIMATED[case]
    tokenizer = TokenizerRecipe(model="words", split="space", min_count=3)
    model = trained(tmp_path / "m", CORPORA["zipf"], case.split(",")[0], order=3, tokenizer=tokenizer, **fields)
    frequent = [word for word in model.tokenizer.vocabulary if word not in (*NEVER, UNK, EOS)]
    text = Text(CORPORA["zipf"], 3, vocabulary=frequent)
    assert text.counts[UNK,] > 1
    known = [[word if word in frequent else UNK for word in sentence] for sentence in CORPORA["zipf"]]
    assert_equal(model, text, build(text, model.parameters), known)


def test_katz_where_the_highest_count_is_near_the_cutoff(tmp_path: Path) -> None:
    for highest in range(2, 8):
        for top in (2, 5):
            words: list[Word] = [
                f"{r}-{n}" for r in range(1, highest + 1) for n in range(2 ** (8 - r)) for _ in range(r)
            ]
            text = Text([words], 1)
            model = trained(tmp_path / f"{highest}-{top}", [words], "katz", order=1, katz_cutoff=top)
            assert_equal(model, text, slow.katz(text, k=top), [words])


@pytest.mark.parametrize("case", ["good-turing", "good-turing, equal"])
def test_good_turing_where_the_line_falls_by_one(case: str, tmp_path: Path) -> None:
    """n1 = 2 n2 and nothing else: r* would be r, give or take rounding, and leave nothing for unseen words."""
    fields, build = ESTIMATED[case]
    for n in range(1, 12):
        words: list[Word] = [
            *(f"1-{i}" for i in range(2 * n)),
            *(f"2-{i}" for i in range(n - 1)),
            *(f"2-{i}" for i in range(n - 1)),
        ]
        sentences = [words[:n], words[n:]]
        model = trained(tmp_path / str(n), sentences, "good-turing", order=1, **fields)
        text = Text(sentences, 1)
        assert slow.counts_of_counts(text.counts, 1) == {1: 2 * n, 2: n}
        assert_equal(model, text, build(text, model.parameters), sentences)


# The survey's example


def log_probability(model: NgramModel, sentence: str) -> float:
    return model.score([sentence])[0].logprob


def test_maximum_likelihood_of_the_survey(tmp_path: Path) -> None:
    model = trained(tmp_path / "m", SURVEY, "mle", order=2)
    expected = math.log(Fraction(1, 3) * 1 * Fraction(2, 3) * Fraction(1, 2) * Fraction(1, 2))
    assert log_probability(model, "BROWN READ A BOOK") == pytest.approx(expected, abs=1e-12)
    assert log_probability(model, "DAVID READ A BOOK") == -math.inf


@pytest.mark.parametrize(("vocabulary", "words"), [("closed", 12), ("open", 13)])
def test_add_one_of_the_survey(vocabulary: str, words: int, tmp_path: Path) -> None:
    """c(<s>.) = c(READ.) = 3, c(BROWN.) = 1, c(A.) = c(BOOK.) = 2."""
    model = trained(tmp_path / "m", SURVEY, "additive", order=2, delta=1.0, vocabulary=vocabulary)
    v = words
    expected = Fraction(2 * 2 * 3 * 2 * 2, (3 + v) * (1 + v) * (3 + v) * (2 + v) * (2 + v))
    assert log_probability(model, "BROWN READ A BOOK") == pytest.approx(math.log(expected), abs=1e-12)


@pytest.mark.parametrize("smoothing", sorted(set(SMOOTHINGS) - {"mle"}))
def test_smoothing_leaves_nothing_impossible(smoothing: str, tmp_path: Path) -> None:
    model = trained(tmp_path / "m", SURVEY, smoothing, order=2)
    for sentence in ("DAVID READ A BOOK", "BOOK BOOK UNHEARD OF"):
        assert math.isfinite(log_probability(model, sentence))


# Methods that are not compared word by word, or not without help


@pytest.mark.parametrize("corpus", CORPORA)
def test_pitman_yor_equals_the_reference(corpus: str, tmp_path: Path) -> None:
    """Given the seating that the sampler finds with the same seed."""
    for order in (1, 2, 3):
        model = trained(tmp_path / str(order), CORPORA[corpus], "pitman-yor", order=order)
        numbers, text = ids(model), Text(CORPORA[corpus], order)
        trie = count_sentences(
            [[numbers[word] for word in sentence] for sentence in CORPORA[corpus]], vocab_size=len(numbers), order=order
        )
        seating = infer(trie, len(text.predictable), sweeps=model.recipe.sweeps, seed=0)
        customers: dict[slow.Ngram, Number] = {}
        tables: dict[slow.Ngram, Number] = {}
        for ngram in text.counts:
            node = trie.find([numbers[word] for word in ngram])
            assert node is not None
            customers[ngram], tables[ngram] = float(seating.customers[node]), float(seating.tables[node])
        d, theta = by_level(model.parameters["discounts"]), by_level(model.parameters["concentrations"])
        assert_equal(model, text, slow.pitman_yor(text, customers, tables, d, theta), CORPORA[corpus])


@pytest.mark.parametrize("corpus", CORPORA)
def test_church_gale_sums_to_one(corpus: str, tmp_path: Path) -> None:
    model = trained(tmp_path / "m", CORPORA[corpus], "church-gale", order=2)
    numbers = ids(model)
    for word in [None, *(word for word in numbers if word not in (*NEVER, EOS))]:
        logs = model.next_logprobs([] if word is None else [numbers[word]])
        assert np.exp(logs).sum() == pytest.approx(1, abs=1e-12)
        assert np.flatnonzero(np.isinf(logs)).tolist() == sorted(numbers[one] for one in NEVER)


# Parameters are those that make the text likeliest when each of its tokens is left out


@pytest.mark.parametrize("corpus", ["survey", "zipf", "few words", "repeated"])
def test_additive_parameters_are_the_likeliest(corpus: str, tmp_path: Path) -> None:
    """Among values up to 1."""
    text = Text(CORPORA[corpus], 3)
    delta = by_level(trained(tmp_path / "m", CORPORA[corpus], "additive", order=3).parameters["delta"])
    for level in (1, 2, 3):
        others = [slow.additive_leave_one_out(text, level, x) for x in np.geomspace(1e-6, 1, 200)]
        assert 0 < delta[level] <= 1
        assert slow.additive_leave_one_out(text, level, delta[level]) >= max(others) - 1e-5


@pytest.mark.parametrize("corpus", ["survey", "zipf", "few words", "repeated"])
def test_priors_are_the_likeliest(corpus: str, tmp_path: Path) -> None:
    """Among values from 0.001 to a million."""
    text = Text(CORPORA[corpus], 3)
    mu = by_level(trained(tmp_path / "m", CORPORA[corpus], "bayes", order=3).parameters["prior"])
    for level in (1, 2, 3):
        others = [slow.bayes_leave_one_out(text, level, mu | {level: x}) for x in np.geomspace(1e-3, 1e6, 200)]
        assert slow.bayes_leave_one_out(text, level, mu) >= max(others) - 1e-5


@pytest.mark.parametrize("corpus", ["survey", "zipf", "few words", "repeated"])
def test_weights_are_the_likeliest(corpus: str, tmp_path: Path) -> None:
    """The weight of each bucket by itself: expectation maximisation stops a little short of the maximum."""
    text = Text(CORPORA[corpus], 3)
    found = trained(tmp_path / "m", CORPORA[corpus], "jelinek-mercer", order=3).parameters
    weight = weights(found)
    for level in (1, 2, 3):
        reached = slow.jelinek_mercer_leave_one_out(text, level, weight)
        for bucket in range(len(found["weights"][str(level)])):
            for x in np.linspace(0, 0.999, 40):
                other = slow.jelinek_mercer_leave_one_out(text, level, instead(weight, level, bucket, x))
                assert reached >= other - 5e-4 * abs(other)


def instead(weight: Callable[[int, int], float], level: int, bucket: int, x: float) -> Callable[[int, int], float]:
    """The weights with another one in one bucket."""
    return lambda n, b: x if (n, b) == (level, bucket) else weight(n, b)
