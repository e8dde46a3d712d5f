"""Pieces are learned as the formulas say, whole and the same every time."""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from firth.errors import TokenizerError
from firth.tokens.pieces import PieceModel, learn_pieces

WORDS = st.dictionaries(st.text("abc", min_size=1, max_size=7), st.integers(1, 9), min_size=1, max_size=12)
SENTENCES = (
    "the cat sat on the mat and the dog lay on the rug while the cats and dogs of the town were walking talking "
    "and looking at the walkers talkers and lookers who walked talked and looked back at them all the long day"
)
TOWN = Counter(f"▁{word}" for word in SENTENCES.split())


def cuts(word: str, pieces: Mapping[str, float]) -> Iterator[list[str]]:
    """All ways to cut a word into pieces."""
    if not word:
        yield []
    for end in range(1, len(word) + 1):
        if word[:end] in pieces:
            for rest in cuts(word[end:], pieces):
                yield [word[:end], *rest]


def score(cut: list[str], pieces: Mapping[str, float]) -> float:
    return sum(pieces[piece] for piece in cut)


def expected_by_hand(words: Mapping[str, int], pieces: Mapping[str, float]) -> dict[str, float]:
    """The expected count of each piece, by writing out all ways to cut each word."""
    expected = dict.fromkeys(pieces, 0.0)
    for word, count in words.items():
        ways = [(cut, math.exp(score(cut, pieces))) for cut in cuts(word, pieces)]
        total = sum(weight for _, weight in ways)
        for cut, weight in ways:
            for piece in cut:
                expected[piece] += count * weight / total
    return expected


def losses_by_hand(words: Mapping[str, int], pieces: Mapping[str, float]) -> dict[str, float]:
    """What is lost without each useful piece: of each word and each piece all cuts are written out."""
    best = {word: max(cuts(word, pieces), key=lambda cut: score(cut, pieces)) for word in words}
    found = Counter(piece for word, count in words.items() for piece in best[word] * count)
    total = found.total()
    losses = {}
    for piece in pieces:
        others = [cut for cut in cuts(piece, pieces) if len(cut) > 1]
        if found[piece] and others:
            other = max(others, key=lambda cut: score(cut, pieces))
            new_total = total + found[piece] * (len(other) - 1)
            without = sum(math.log((found[part] + found[piece]) / new_total) for part in other)
            losses[piece] = found[piece] * (math.log(found[piece] / total) - without)
    return losses


def model_with_random_scores(words: Mapping[str, int], seed: int) -> PieceModel:
    model = PieceModel(words, size=1000, max_length=5, seed_pieces=1000)
    model.scores[:] = np.random.default_rng(seed).uniform(-9, -1, model.scores.size)
    return model


def living(model: PieceModel) -> dict[str, float]:
    pairs = zip(model.texts(), model.scores.tolist(), strict=True)
    return {text: score for text, score in pairs if score > -math.inf}


def test_one_step_worked_by_hand() -> None:
    model = PieceModel({"ab": 3}, size=9, max_length=16, seed_pieces=9)
    # Each character covers 3 characters of text, the pair 6: fractions of 1/4, 1/4 and 1/2.
    assert living(model) == pytest.approx({"a": math.log(1 / 4), "b": math.log(1 / 4), "ab": math.log(1 / 2)})
    # The pair as a whole weighs 1/2, cut in two 1/16: it is whole 8 times in 9.
    assert model.expect().tolist() == pytest.approx([1 / 3, 1 / 3, 8 / 3])
    model.estimate()
    # Characters count at least 1/2 so the total is 11/3; digamma(x + 1) = digamma(x) + 1 / x.
    # digamma(1/2) and digamma(2/3) are known in closed form (Gauss).
    half = -np.euler_gamma - 2 * math.log(2)
    total = -np.euler_gamma + math.pi / (2 * math.sqrt(3)) - 1.5 * math.log(3) + 3 / 2 + 3 / 5 + 3 / 8
    assert living(model) == pytest.approx({"a": half - total, "b": half - total, "ab": -3 / 8})
    assert model.best(3)[0] == ("ab", -0.375)


@given(WORDS, st.integers(0, 99))
def test_expected_counts_agree_with_all_cuts_written_out(words: dict[str, int], seed: int) -> None:
    model = model_with_random_scores(words, seed)
    pieces = living(model)
    expected = dict(zip(model.texts(), model.expect().tolist(), strict=True))
    assert expected == pytest.approx(expected_by_hand(words, pieces), rel=1e-9, abs=1e-9)


@given(WORDS, st.integers(0, 99))
def test_expected_counts_are_right_after_pieces_were_dropped(words: dict[str, int], seed: int) -> None:
    model = model_with_random_scores(words, seed)
    model.estimate()
    pieces = living(model)
    expected = {text: value for text, value in zip(model.texts(), model.expect().tolist(), strict=True) if value}
    by_hand = {text: value for text, value in expected_by_hand(words, pieces).items() if value}
    assert expected == pytest.approx(by_hand, rel=1e-9, abs=1e-9)


@given(WORDS, st.integers(0, 99), st.integers(0, 8))
def test_the_costliest_pieces_are_kept(words: dict[str, int], seed: int, extra: int) -> None:
    model = model_with_random_scores(words, seed)
    characters, losses = set("".join(words)), losses_by_hand(words, living(model))
    model.prune(len(characters) + extra)
    kept = living(model).keys() - characters
    assert characters <= living(model).keys()
    assert len(kept) == min(extra, len(losses))
    assert kept <= losses.keys()
    cheapest_kept = min((losses[piece] for piece in kept), default=math.inf)
    assert all(losses[piece] <= cheapest_kept + 1e-9 for piece in losses.keys() - kept)


@given(WORDS, st.integers(2, 5), st.integers(0, 20))
def test_it_starts_from_the_substrings_that_cover_most(words: dict[str, int], max_length: int, others: int) -> None:
    characters = set("".join(words))
    model = PieceModel(words, size=1000, max_length=max_length, seed_pieces=len(characters) + others)
    counts: Counter[str] = Counter()
    for word, count in words.items():
        for begin in range(len(word)):
            for end in range(begin + 2, min(begin + max_length, len(word)) + 1):
                counts[word[begin:end]] += count
    cover = {text: count * len(text) for text, count in counts.items() if count >= 2}
    texts = model.texts()
    taken = set(texts) - characters
    assert len(texts) == len(set(texts)) == len(characters) + min(others, len(cover))
    assert characters <= set(texts)
    assert taken <= cover.keys()
    least = min((cover[text] for text in taken), default=math.inf)
    assert all(cover[text] <= least for text in cover.keys() - taken)


@given(WORDS, st.integers(1, 30), st.integers(1, 5))
def test_size_characters_length_and_order(words: dict[str, int], size: int, max_length: int) -> None:
    pieces = learn_pieces(words, size, max_length=max_length)
    characters = Counter(letter for word, count in words.items() for letter in word * count)
    wanted = sorted(characters, key=lambda letter: (-characters[letter], letter))[:size]
    texts = [text for text, _ in pieces]
    assert len(texts) == len(set(texts)) <= size
    assert set(wanted) <= set(texts)
    assert all(len(text) <= max_length and any(text in word for word in words) for text in texts)
    assert pieces == sorted(pieces, key=lambda pair: (-pair[1], pair[0]))
    assert sum(math.exp(value) for _, value in pieces) <= 1 + 1e-5


def test_probabilities_sum_to_one_before_pieces_are_cut() -> None:
    words = {word: 1000 * count for word, count in TOWN.items()}
    model = PieceModel(words, size=60, max_length=16, seed_pieces=1000)
    model.estimate()
    assert 0.99 < np.exp(model.scores).sum() <= 1


def test_frequent_words_become_pieces() -> None:
    texts = [text for text, _ in learn_pieces(TOWN, 40)]
    assert texts[0] == "▁the"
    assert {"▁and", "▁on", "▁at"} <= set(texts)


EQUALS = {first + second: 2 for first in "abcd" for second in "efgh"}  # nothing tells these pieces apart but their text


@pytest.mark.parametrize(("words", "size"), [(TOWN, 40), (EQUALS, 12)])
def test_the_order_of_the_words_does_not_matter(words: Mapping[str, int], size: int) -> None:
    first = learn_pieces(words, size, seed_pieces=size)
    items = list(words.items())
    for seed in range(5):
        random.Random(seed).shuffle(items)
        assert learn_pieces(dict(items), size, seed_pieces=size) == first


def test_hash_seeds_and_threads_do_not_matter() -> None:
    code = (
        "import json\n"
        "from firth.tokens.pieces import learn_pieces\n"
        f"words = {dict(TOWN)!r}\n"
        "print(json.dumps(learn_pieces({word: words[word] for word in set(words)}, 40)))\n"
    )
    expected = [list(pair) for pair in learn_pieces(TOWN, 40)]
    for seed, threads in (("1", "1"), ("2", "2")):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "NUMBA_NUM_THREADS": threads}
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
        assert json.loads(run.stdout) == expected


def test_scores_survive_json_exactly() -> None:
    pieces = learn_pieces(TOWN, 40)
    assert [tuple(pair) for pair in json.loads(json.dumps(pieces))] == pieces
    assert all(value == round(value, 6) for _, value in pieces)


def test_more_characters_than_the_vocabulary_size() -> None:
    pieces = learn_pieces({"zzzaab": 5, "cd": 5}, 3)
    assert [text for text, _ in pieces] == ["z", "a", "b"]  # b, c and d are equally frequent
    assert learn_pieces({"x": 7}, 1) == [("x", 0.0)]


def test_a_long_word_neither_overflows_nor_vanishes() -> None:
    clause = "".join(random.Random(0).choices("的一是不了人我在有他这中大来上", k=5000))
    model = PieceModel({clause: 1}, size=500, max_length=16, seed_pieces=100_000)
    expected = model.expect()
    lengths = np.array([len(text) for text in model.texts()])
    assert expected @ lengths == pytest.approx(5000)  # each character is in one piece
    pieces = learn_pieces({clause: 1}, 500)
    assert len(pieces) > 15
    assert all(math.isfinite(value) for _, value in pieces)


def test_all_kinds_of_characters() -> None:
    words = {"a😀b": 2, "😀\ud800": 2, "\x00\U0010ffff": 1}
    texts = {text for text, _ in learn_pieces(words, 20)}
    assert set("".join(words)) <= texts


def test_words_that_do_not_occur_are_passed_over() -> None:
    assert learn_pieces({"ab": 4, "xyz": 0, "": 3}, 9) == learn_pieces({"ab": 4}, 9)


@pytest.mark.parametrize("words", [{}, {"": 3}, {"ab": 0}])
def test_no_words(words: dict[str, int]) -> None:
    with pytest.raises(TokenizerError, match="no words"):
        learn_pieces(words, 10)


@pytest.mark.parametrize("wrong", [{"size": 0}, {"max_length": 0}, {"rounds": 0}, {"shrink": 1.0}, {"shrink": 0.0}])
def test_impossible_settings(wrong: dict[str, float]) -> None:
    settings: dict[str, float] = {"size": 10, **wrong}
    with pytest.raises(TokenizerError, match=r"at least 1 and shrink between"):
        learn_pieces({"ab": 2}, **settings)  # type: ignore[arg-type]
