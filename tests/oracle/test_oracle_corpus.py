"""The oracle corpora against answers worked by hand, by enumeration and by sampling."""

from __future__ import annotations

import math
import random
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firth.errors import CorpusError
from firth.text.grammar import Grammar, choose, posterior_bits, surface
from firth.text.oracle import (
    MARKOV_WORDS,
    OracleSource,
    markov_grammar,
    oracle_documents,
    oracle_names,
    oracle_source,
)

TOPICAL = [
    {
        "S": choose((1, ("a", "N", ".")), (1, ("the", "N", "V", "."))),
        "N": choose((cat, (" cat",)), (dog, (" dog",)), (1, (" bat|animal",))),
        "V": choose((1, (" runs",)), (2, (" sleeps",))),
    }
    for cat, dog in ((5, 1), (1, 5), (1, 1))
]


def derivations(grammar: Grammar, symbols: tuple[str, ...]) -> Iterator[tuple[float, str]]:
    """Every derivation of a grammar without recursion, written independently of the code under test."""
    if not symbols:
        yield 1.0, ""
        return
    head, rest = symbols[0], symbols[1:]
    heads = (
        [(p * q, text) for p, seq in grammar.rules[head] for q, text in derivations(grammar, seq)]
        if head in grammar.rules
        else [(1.0, surface(head))]
    )
    for p, text in heads:
        for q, tail in derivations(grammar, rest):
            yield p * q, text + tail


def entropy_bits(probabilities: list[float]) -> float:
    return -math.fsum(p * math.log2(p) for p in probabilities)


@pytest.fixture(params=oracle_names())
def source(request: pytest.FixtureRequest) -> OracleSource:
    return oracle_source(request.param)


# Grammars


def test_two_rules_by_hand() -> None:
    # S: stop at once (1/2), or a coin and again: h = 1 + (1/2)(1 + h), so h = 3 bits; a length of 1 + (1/2)(1 + l).
    grammar = Grammar({"S": choose((1, (".",)), (1, ("C", "S"))), "C": choose((1, ("0",)), (1, ("1",)))})
    assert grammar.entropy_bits == pytest.approx(3.0, abs=1e-12)
    assert grammar.expected(len) == pytest.approx(2.0, abs=1e-12)
    assert grammar.log_probability("01.") == pytest.approx(math.log(1 / 32), abs=1e-12)
    assert grammar.log_probability("01") == -math.inf
    assert grammar.log_probability("") == -math.inf


@pytest.mark.parametrize("rules", TOPICAL)
def test_entropy_and_probabilities_equal_enumeration(
    rules: dict[str, tuple[tuple[float, tuple[str, ...]], ...]],
) -> None:
    grammar = Grammar(rules)
    found = list(derivations(grammar, ("S",)))
    texts = [text for _, text in found]
    assert len(set(texts)) == len(texts) == 9
    assert math.fsum(math.exp(grammar.log_probability(text)) for text in texts) == pytest.approx(1.0, abs=1e-12)
    assert grammar.entropy_bits == pytest.approx(entropy_bits([p for p, _ in found]), abs=1e-12)
    assert grammar.expected(len) == pytest.approx(math.fsum(p * len(text) for p, text in found), abs=1e-12)
    for p, text in found:
        assert grammar.log_probability(text) == pytest.approx(math.log(p), abs=1e-12)


def test_probability_sums_over_derivations() -> None:
    # "abab" is ab+ab, a+bab, and so on: an ambiguous grammar, which says so.
    grammar = Grammar({"S": choose((1, ("W",)), (1, ("W", "S"))), "W": choose(*((1, (w,)) for w in ("a", "b", "ab")))})
    assert not grammar.is_unambiguous()
    by_hand = sum((1 / 3) ** n * (1 / 2) ** n * ways for n, ways in ((2, 1), (3, 2), (4, 1)))
    assert math.exp(grammar.log_probability("abab")) == pytest.approx(by_hand, rel=1e-12)


def test_long_sentences_neither_underflow_nor_overflow_the_stack() -> None:
    grammar = Grammar({"S": choose((1, (".",)), (1, ("x", "S")))})
    assert grammar.log_probability("x" * 5000 + ".") == pytest.approx(5001 * math.log(0.5), rel=1e-12)


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"S": ((0.5, ("a",)), (0.4, ("b",)))}, "sum to 1"),
        ({"S": ((1.0, ("a",)), (0.0, ("b",)))}, "positive"),
        ({"S": choose((1, ("a",)), (1, ()))}, "empty"),
        ({"S": choose((1, ("a",)), (1, ("S", "a")))}, "begin with itself"),
        ({"S": choose((1, ("a",)), (1, ("a", "S", "S")))}, "finite"),
    ],
)
def test_impossible_grammars_are_refused(
    rules: dict[str, tuple[tuple[float, tuple[str, ...]], ...]], message: str
) -> None:
    with pytest.raises(CorpusError, match=message):
        Grammar(rules)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.floats(0.05, 1), min_size=3, max_size=3), min_size=3, max_size=3), st.integers(0, 99))
def test_any_weights_sum_to_one_and_agree_with_enumeration(weights: list[list[float]], seed: int) -> None:
    one, two, three = weights
    grammar = Grammar(
        {
            "S": choose(*zip(one, (("A", "B"), ("x", "A"), ("y", "B", "A")), strict=True)),
            "A": choose(*zip(two, (("a",), ("b", "B"), ("c",)), strict=True)),
            "B": choose(*zip(three, (("d",), ("e",), ("f", "g")), strict=True)),
        }
    )
    assert grammar.is_unambiguous(1)
    found = list(derivations(grammar, ("S",)))
    assert math.fsum(p for p, _ in found) == pytest.approx(1.0)
    assert grammar.entropy_bits == pytest.approx(entropy_bits([p for p, _ in found]))
    sampled = "".join(grammar.sample(random.Random(seed)))
    assert math.exp(grammar.log_probability(sampled)) == pytest.approx(dict(map(reversed, found))[sampled])  # type: ignore[arg-type]


# Topics


def test_marginal_entropy_equals_enumeration() -> None:
    grammars = [Grammar(rules) for rules in TOPICAL]
    mixture: dict[str, float] = defaultdict(float)
    for grammar in grammars:
        for p, text in derivations(grammar, ("S",)):
            mixture[text] += p / len(grammars)
    toy = OracleSource("toy", {str(i): grammar for i, grammar in enumerate(grammars)})
    assert toy.entropy_per_sentence_bits == pytest.approx(entropy_bits(list(mixture.values())), abs=1e-12)
    assert toy.entropy_given_topic_bits < toy.entropy_per_sentence_bits
    assert math.fsum(math.exp(toy.log_probability(text)) for text in mixture) == pytest.approx(1.0, abs=1e-12)


def test_topics_that_cannot_or_need_not_be_guessed() -> None:
    same = Grammar(TOPICAL[0])
    assert posterior_bits([same, same]) == pytest.approx(1.0)
    apart = [Grammar({"S": choose((w, ("a",)), (1 - w, ("b",)))}) for w in (1e-12, 1 - 1e-12)]
    assert posterior_bits(apart) == pytest.approx(0.0, abs=1e-9)


# Markov chains


def test_two_states_by_hand() -> None:
    # From a: a 1/2, b 1/4, end 1/4 (1.5 bits); from b: a 1/2, end 1/2 (1 bit); start in a.
    # Visits: a = 1 + a/2 + b/2, b = a/4, so a = 8/3 and b = 2/3.
    grammar = Grammar(
        {
            "S": ((1.0, ("a", "A")),),
            "A": ((0.5, ("a", "A")), (0.25, ("b", "B")), (0.25, (".",))),
            "B": ((0.5, ("a", "A")), (0.5, (".",))),
        }
    )
    assert grammar.entropy_bits == pytest.approx(8 / 3 * 1.5 + 2 / 3 * 1.0, abs=1e-12)
    assert grammar.expected(lambda _: 1.0) == pytest.approx(8 / 3 + 2 / 3 + 1, abs=1e-12)


@pytest.mark.parametrize("order", [1, 2])
def test_entropy_per_word_is_the_rate_of_the_stationary_chain(order: int) -> None:
    grammar = markov_grammar(order)
    states = list(grammar.rules)
    transition = np.zeros((len(states), len(states)))
    surprise = np.zeros(len(states))
    for i, state in enumerate(states):
        for p, symbols in grammar.rules[state]:
            # A sentence that ends is followed by the start of the next one.
            transition[i, states.index(symbols[1] if len(symbols) == 2 else "S")] += p
            surprise[i] -= p * math.log2(p)
    stationary = np.full(len(states), 1 / len(states))
    for _ in range(2000):
        stationary = stationary @ transition
    rate = oracle_source(f"markov{order}").entropy_per_word_bits
    assert rate == pytest.approx(float(stationary @ surprise), rel=1e-9)


def test_order_two_is_not_order_one() -> None:
    rules = markov_grammar(2).rules
    for word in MARKOV_WORDS:
        assert len({tuple(p for p, _ in rules[f"AFTER {before} {word}"]) for before in MARKOV_WORDS}) > 1


# The four sources


def test_sources_are_unambiguous_and_share_their_rules(source: OracleSource) -> None:
    shapes = [
        {symbol: [symbols for _, symbols in rule] for symbol, rule in grammar.rules.items()}
        for grammar in source.grammars.values()
    ]
    assert all(shape == shapes[0] for shape in shapes)
    grammar = next(iter(source.grammars.values()))
    assert grammar.is_unambiguous(2)
    # A symbol without rules would pass for a word.
    assert all(surface(t) == surface(t).lower() for t in grammar.terminals)
    surfaces = {surface(t) for t in grammar.terminals}
    if source.name == "chinese":
        assert not any(a != b and b.startswith(a) for a in surfaces for b in surfaces), "words must form a prefix code"
    else:
        assert not any(" " in s.strip() for s in surfaces)


def test_sampled_surprise_agrees_with_the_exact_entropy(source: OracleSource) -> None:
    sentences = [sentence for index in range(3000) for sentence in source.sample_document(11, index, 1)]
    marginal = [-source.log_probability(s.text) / math.log(2) for s in sentences]
    topical = [-source.grammars[s.topic].log_probability(s.text) / math.log(2) for s in sentences]
    for surprise, exact in (
        (marginal, source.entropy_per_sentence_bits),
        (topical, source.entropy_given_topic_bits),
        ([len(s.text.encode()) for s in sentences], source.expected_bytes),
        ([len(s.words) for s in sentences], source.expected_words),
    ):
        standard_error = statistics.stdev(surprise) / math.sqrt(len(surprise))
        assert abs(statistics.mean(surprise) - exact) < 4 * standard_error
    assert source.entropy_per_byte_bits * source.expected_bytes == pytest.approx(source.entropy_per_sentence_bits)


def test_documents_score_between_the_two_floors() -> None:
    source = oracle_source("english")
    documents = [[s.text for s in source.sample_document(5, index, 10)] for index in range(200)]
    by_document = [-source.document_log_probability(d) / math.log(2) for d in documents]
    by_sentence = [-math.fsum(map(source.log_probability, d)) / math.log(2) for d in documents]
    # The same sentences, scored with and without knowledge of their neighbours.
    gain = [single - whole for single, whole in zip(by_sentence, by_document, strict=True)]
    expected = 10 * (source.entropy_per_sentence_bits - source.entropy_given_topic_bits)
    assert expected - 2 < statistics.mean(gain) + 4 * statistics.stdev(gain) / math.sqrt(len(gain))
    assert statistics.mean(gain) - 4 * statistics.stdev(gain) / math.sqrt(len(gain)) < expected


def test_samples_are_reproducible_and_directly_addressable(source: OracleSource) -> None:
    documents = list(source.sample(3, 4, 6))
    assert documents == list(source.sample(3, 4, 6))
    assert documents != list(source.sample(4, 4, 6))
    assert documents[5].text.split("\n") == [s.text for s in source.sample_document(3, 5, 4)]
    assert all(len(document.text.split("\n")) == 4 for document in documents)


def test_the_text_itself_never_changes() -> None:
    # Stores and reports are compared across machines and releases, so the sampling order is part of the contract.
    first = {name: next(oracle_documents(name)).text.split("\n")[1] for name in oracle_names()}
    assert first == {
        "english": "the plain shepherds feed every plain horse.",
        "chinese": "三只狐狸追杜鹃。",
        "markov1": "ni po me lu ba ta.",
        "markov2": "me lu ko me po po di ba ko.",
    }


@pytest.mark.parametrize("name", ["english", "chinese"])
def test_senses_are_told_by_company_and_topic(name: str) -> None:
    source = oracle_source(name)
    sentences = [s for index in range(1500) for s in source.sample_document(0, index, 10)]
    seen: dict[str, Counter[str]] = defaultdict(Counter)
    followers: dict[tuple[str, str], set[str]] = defaultdict(set)
    topics: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for sentence in sentences:
        assert "".join(sentence.words).replace(" ", "") == sentence.text.replace(" ", "")
        for place, (word, sense) in enumerate(zip(sentence.words, sentence.senses, strict=True)):
            assert (sense is not None) == (word in source.senses)
            if sense:
                seen[word][sense] += 1
                topics[word, sense][sentence.topic] += 1
                if place <= 2:  # the subject, right after its determiner (and classifier)
                    followers[word, sense].add(sentence.words[place + 1])
    assert {word: tuple(sorted(counts)) for word, counts in seen.items()} == source.senses
    assert all(min(counts.values()) >= 20 for counts in seen.values())
    shared = {"。", ".", "了", "在"}
    for word, senses in source.senses.items():
        one, two = ((followers[word, sense] - shared) for sense in senses)
        assert not one & two
    for (word, sense), counts in topics.items():
        if word not in ("打",):  # a verb: its sense comes from its object alone
            assert counts.most_common(1)[0][1] > 0.4 * counts.total(), (word, sense)


def test_classes_hold_words_that_occur() -> None:
    for name in ("english", "chinese"):
        source = oracle_source(name)
        words = {surface(t).strip() for grammar in source.grammars.values() for t in grammar.terminals}
        assert all(members and set(members) <= words for members in source.classes.values())
        assert len(source.topics) == 4
    assert "horses" in oracle_source("english").classes["animals"]
    assert {"bank", "barn"} <= set(oracle_source("english").classes["places"])


def test_agreement_reaches_across_a_phrase() -> None:
    source = oracle_source("english")
    pairs = source.minimal_pairs(1, 200)
    assert pairs == source.minimal_pairs(1, 200)
    attracted = 0
    for good, bad in pairs:
        assert math.isfinite(source.log_probability(good))
        assert source.log_probability(bad) == -math.inf
        differing = [(a, b) for a, b in zip(good.split(), bad.split(), strict=True) if a != b]
        assert len(differing) == 1
        before = good[: good.index(differing[0][0])].split()
        attracted += before[-1].endswith("s") == differing[0][0].strip(".").endswith("s")
    assert attracted > 50, "the nearest noun should often have the other number"
    assert math.isfinite(source.log_probability("the goat near the barns sleeps."))
    assert source.log_probability("the goat near the barns sleep.") == -math.inf


def test_classifiers_agree_with_their_nouns() -> None:
    source = oracle_source("chinese")
    for good, bad in source.minimal_pairs(1, 100):
        assert math.isfinite(source.log_probability(good))
        assert source.log_probability(bad) == -math.inf
        assert sum(a != b for a, b in zip(good, bad, strict=True)) == 1
    assert math.isfinite(source.log_probability("那只杜鹃睡觉。"))
    assert math.isfinite(source.log_probability("那棵杜鹃枯萎。"))
    assert source.log_probability("那棵杜鹃睡觉。") == -math.inf


@pytest.mark.parametrize("sentence", ["", ".", "the goat sleeps", "the goat sleeps. ", "colourless green ideas sleep."])
def test_impossible_sentences(source: OracleSource, sentence: str) -> None:
    assert source.log_probability(sentence) == -math.inf


def test_chains_have_no_agreement_and_wrong_names_are_told() -> None:
    with pytest.raises(CorpusError, match="choose english or chinese"):
        oracle_source("markov1").minimal_pairs(0, 1)
    with pytest.raises(CorpusError, match="did you mean 'english'"):
        oracle_source("englsih")
