"""Exact and near duplicates, against reference implementations of the kernels and hand-worked similarities."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from firth.text import duplicates
from firth.text.duplicates import (
    DocumentHasher,
    HashSet64,
    KeyMatcher,
    NearDuplicateIndex,
    fingerprint,
    fingerprints,
    minhash,
    ngram_hashes,
    word_hashes,
)

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15

unhurried = settings(deadline=None)  # the first call of a kernel may compile it


# Reference implementations.


def estimate_jaccard(a: duplicates.Keys, b: duplicates.Keys) -> float:
    agreement = float(np.mean(a.view(np.uint8) == b.view(np.uint8)))
    return max(0.0, (agreement - 1 / 256) / (1 - 1 / 256))


def mix(state: int, value: int) -> int:
    mixed = (state ^ value) * 0xFF51AFD7ED558CCD & MASK
    return mixed ^ (mixed >> 32)


def hash_of(word: str) -> int:
    state = GOLDEN
    for character in word:
        state = mix(state, ord(character))
    return state


def is_unspaced(character: str) -> bool:
    return "\u2e80" <= character <= "\u9fff" or "\uff00" <= character <= "\uffef" or character == "ก"


def units_of(text: str) -> list[tuple[str, int]]:
    """The words and lone characters of a text, each with its line."""
    units = []
    for number, line in enumerate(text.split("\n")):
        spaced = "".join(f" {c} " if is_unspaced(c) else c for c in line)
        units += [(unit, number) for unit in spaced.split()]
    return units


def windows_of(text: str, word: int, character: int, weight: int, across: bool) -> list[tuple[str, ...]]:
    units = units_of(text)
    windows = []
    for start in range(len(units)):
        window: list[str] = []
        reached = 0
        for unit, line in units[start:]:
            if reached >= weight or not (across or line == units[start][1]):
                break
            reached += character if is_unspaced(unit) else word
            window.append(unit)
        if reached >= weight or (across and start == 0):
            windows.append(tuple(window))
    return windows


def shingles_of(text: str) -> set[tuple[str, ...]]:
    return set(windows_of(text, word=8, character=5, weight=40, across=True))


def hash_of_window(window: Sequence[str]) -> int:
    state = GOLDEN
    for unit in window:
        state = mix(state, hash_of(unit))
    return state


def jaccard(a: str, b: str) -> float:
    first, second = shingles_of(a), shingles_of(b)
    return len(first & second) / len(first | second)


def twin_of_sign(text: str) -> np.ndarray:
    values = np.array([hash_of_window(shingle) >> 32 for shingle in shingles_of(text)], np.uint64)
    factors = duplicates._FACTORS.astype(np.uint64)
    offsets = duplicates._OFFSETS.astype(np.uint64)
    minima = ((values[:, None] * factors + offsets) % (1 << 32)).min(axis=0)
    return (minima * 0x9E3779B1 % (1 << 32) >> 24).astype(np.uint8).view(np.uint64)


TEXTS = st.text(alphabet="ab cd\n国会，\u3000é\tﾊก\x00\x1f", max_size=60)


@unhurried
@given(TEXTS)
def test_word_hashes_equal_their_twin(text: str) -> None:
    assert word_hashes(text).tolist() == [hash_of(word) for word in text.split()]


@unhurried
@given(TEXTS)
def test_ngram_hashes_equal_their_twin(text: str) -> None:
    windows = windows_of(text, word=2, character=1, weight=16, across=False)
    assert ngram_hashes(text).tolist() == [hash_of_window(window) for window in windows]


@unhurried
@given(TEXTS.filter(str.strip))
def test_signatures_equal_their_twin(text: str) -> None:
    assert minhash(text).tolist() == twin_of_sign(text).tolist()


def test_white_space_is_what_python_takes_for_it() -> None:
    for code in (*range(0xD800), *range(0xE000, 0x10000)):
        assert len(word_hashes(f"a{chr(code)}b")) == len(f"a{chr(code)}b".split()), hex(code)


# Fingerprints.


def test_fingerprint_sees_the_text_but_not_its_spacing() -> None:
    assert fingerprint(" to  be\tor\nnot ") == fingerprint("to be or not")
    assert fingerprint("to be or not") != fingerprint("to be or nor")
    assert fingerprint("to be") != fingerprint("tobe")
    assert fingerprint("to\u3000be") == fingerprint("to be")
    assert fingerprint("a b") == 0x28F927C0A5DE37BB


def test_fingerprints_are_64_bit_keys() -> None:
    keys = fingerprints(["a", "b"])
    assert keys.dtype == np.uint64
    assert keys.tolist() == [fingerprint("a"), fingerprint("b")]


def test_lone_surrogates_are_no_obstacle() -> None:
    assert fingerprint("a \ud800 b") != fingerprint("a b")
    assert len(word_hashes("a \ud800 b")) == 3


# n-grams.


def test_ngrams_are_8_words_or_16_characters_and_stay_within_a_line() -> None:
    eight, sixteen = "a b c d e f g h", "一二三四五六七八九十百千万上中下"
    assert len(ngram_hashes(eight)) == 1
    assert len(ngram_hashes(eight[:-2])) == 0
    assert len(ngram_hashes(sixteen)) == 1
    assert len(ngram_hashes(sixteen[:-1])) == 0
    assert len(ngram_hashes(f"{eight} i\n{sixteen}左右\nj k")) == 2 + 3
    assert ngram_hashes(f"x {eight} y")[1] == ngram_hashes(eight)[0]


def test_a_word_in_chinese_counts_as_two_characters() -> None:
    fourteen = "一二三四五六七八九十百千万上"
    assert len(ngram_hashes(fourteen[:5] + "iPhone" + fourteen[5:])) == 1
    assert len(ngram_hashes(fourteen[:5] + "iPhone" + fourteen[5:-1])) == 0


# Signatures.


def test_jaccard_worked_by_hand() -> None:
    # Shingles abcde, bcdef and abcde, bcdeg: one of three in common.
    assert jaccard("a b c d e f", "a b c d e g") == pytest.approx(1 / 3)
    # 8 characters a shingle: 一..八, 二..九 and 二..九, 三..十.
    assert jaccard("一二三四五六七八九", "二三四五六七八九十") == pytest.approx(1 / 3)
    # Too short for a shingle: the text itself.
    assert jaccard("a b", "a b c") == 0


def words(rng: random.Random, count: int) -> list[str]:
    return ["".join(rng.choices("abcdefgh", k=5)) for _ in range(count)]


def replace_words(rng: random.Random, old: list[str], count: int) -> str:
    """The words with `count` of them, evenly spread, replaced by new ones."""
    new = list(old)
    for i in range(count):
        new[(2 * i + 1) * len(old) // (2 * count)] = "new" + "".join(rng.choices("abcdefgh", k=6))
    return " ".join(new)


def test_estimates_are_unbiased_with_the_expected_error() -> None:
    rng = random.Random(0)
    errors = []
    scaled = []
    for trial in range(400):
        base = words(rng, 204)  # 200 shingles; each replaced word costs 5 of them on either side
        other = replace_words(rng, base, 1 + trial % 20)
        true = jaccard(" ".join(base), other)
        error = estimate_jaccard(minhash(" ".join(base)), minhash(other)) - true
        errors.append(error)
        scaled.append(error / np.sqrt(true * (1 - true) / duplicates.NUM_HASHES))
    # Mean 0 and standard deviation 1 after scaling, each within four of its own standard errors.
    assert abs(np.mean(scaled)) < 4 / np.sqrt(400)
    assert abs(np.std(scaled) - 1) < 4 / np.sqrt(2 * 400)
    assert abs(np.mean(errors)) < 0.01


def test_unlike_texts_are_estimated_near_zero() -> None:
    rng = random.Random(1)
    signatures = [minhash(" ".join(words(rng, 100))) for _ in range(600)]
    estimates = [estimate_jaccard(a, b) for a, b in zip(signatures[::2], signatures[1::2], strict=True)]
    assert np.mean(estimates) < 0.0033  # random agreement, 1 in 256, is subtracted


@pytest.mark.parametrize(
    ("replaced", "low", "high", "least", "most"),
    [
        (4, 0.89, 0.92, 0.95, 1.0),  # similarity 0.9: found
        (26, 0.45, 0.55, 0.0, 0.0),  # similarity 0.5: not taken for a repetition
    ],
)
def test_recall_and_precision(replaced: int, low: float, high: float, least: float, most: float) -> None:
    rng = random.Random(2)
    seen = NearDuplicateIndex()
    bases = [words(rng, 400) for _ in range(200)]
    assert [seen.add(" ".join(base)) for base in bases] == [None] * 200
    copies = [replace_words(rng, base, replaced) for base in bases]
    assert all(low < jaccard(" ".join(a), b) < high for a, b in zip(bases[:20], copies[:20], strict=True))
    found = [seen.find(minhash(copy)) for copy in copies]
    assert all(number in (None, i) for i, number in enumerate(found))
    assert least <= sum(number is not None for number in found) / 200 <= most


def test_near_repetition_of_chinese() -> None:
    rng = random.Random(3)
    base = "".join(chr(rng.randrange(0x4E00, 0x9000)) for _ in range(600))
    seen = NearDuplicateIndex()
    assert seen.add(base) is None
    assert seen.add(base[:300] + "，" + base[300:]) == 0
    assert seen.add(base[300:] + base[:100]) is None


def test_signing_in_pieces_only_misses_what_crosses_them(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(4)
    text = " ".join(words(rng, 2000))
    whole = minhash(text)
    signer, none = DocumentHasher(), np.empty(0, np.uint64)
    middle = text.index(" ", len(text) // 2)
    signer.update([text[:middle]], none)
    signer.update([text[middle:]], none)
    assert estimate_jaccard(whole, signer.signature()) > 0.97
    monkeypatch.setattr(duplicates, "_SLICE", 4096)
    assert estimate_jaccard(whole, minhash(text)) > 0.95


def test_marks_of_a_document_do_not_depend_on_how_its_pieces_are_cut() -> None:
    sentences = [" ".join(words(random.Random(i), 8)) for i in range(6)]
    keys = fingerprints(sentences)
    whole, pieces = DocumentHasher(), DocumentHasher()
    whole.update(sentences, keys)
    pieces.update(sentences[:2], keys[:2])
    pieces.update(sentences[2:], keys[2:])
    assert whole.key() == pieces.key()
    assert whole.sentences == pieces.sentences == 6
    assert whole.key().shape == (1,)


def test_many_texts_are_held_and_found_again_after_growing() -> None:
    rng = np.random.default_rng(5)
    signatures = rng.integers(0, 1 << 64, (3000, duplicates.BANDS), dtype=np.uint64)
    seen = NearDuplicateIndex()
    assert all(seen.add_signature(signature) is None for signature in signatures)
    assert len(seen) == 3000
    assert [seen.find(signature) for signature in signatures] == list(range(3000))
    stored = seen._signatures[: len(seen)].nbytes + seen._bands.nbytes
    assert stored / 3000 <= 320


def test_the_best_of_several_is_named() -> None:
    rng = random.Random(6)
    base = words(rng, 400)
    seen = NearDuplicateIndex()
    seen.add(replace_words(rng, base, 6))
    seen.add(" ".join(base))
    assert seen.find(minhash(" ".join(base))) == 1


def test_beyond_the_capacity_texts_are_compared_but_not_held() -> None:
    seen = NearDuplicateIndex(capacity=2)
    texts = [" ".join(words(random.Random(i), 20)) for i in range(3)]
    assert [seen.add(text) for text in texts] == [None, None, None]
    assert seen.full
    assert len(seen) == 2
    assert [seen.add(text) for text in texts] == [0, 1, None]


# Sets of keys.

KEYS = st.lists(st.integers(0, 7) | st.integers(0, MASK), max_size=60)


@unhurried
@example([[0, GOLDEN, 1, 0]])
@given(st.lists(KEYS, max_size=8))
def test_the_set_behaves_like_a_set(batches: list[list[int]]) -> None:
    seen, reference = HashSet64(), set()
    for batch in batches:
        is_new = []
        for key in batch:
            is_new.append(key not in reference)
            reference.add(key)
        assert seen.add_many(np.array(batch, np.uint64)).tolist() == is_new
        assert len(seen) == len(reference)
    queries = [key for batch in batches for key in batch] + [0, 3, 99]
    assert seen.contains_many(np.array(queries, np.uint64)).tolist() == [key in reference for key in queries]


def test_a_large_set_stays_compact() -> None:
    keys = np.random.default_rng(7).integers(0, 1 << 64, 50_000, dtype=np.uint64)
    keys[0] = 0
    seen = HashSet64()
    for start in range(0, 50_000, 1000):
        assert seen.add_many(keys[start : start + 1000]).all()
    assert seen.add_many(np.zeros(2, np.uint64)).tolist() == [False, False]
    assert seen.contains_many(keys).all()
    assert not seen.contains_many(keys + np.uint64(1)).any()
    assert len(seen) == 50_000
    assert 8 <= seen._slots.nbytes / len(seen) <= 24
    assert not seen.full


def test_a_full_set_still_answers_but_holds_no_more() -> None:
    seen = HashSet64(limit=2)
    assert seen.add_many(np.array([1, 2, 3, 1, 3], np.uint64)).tolist() == [True, True, True, False, True]
    assert seen.full
    assert len(seen) == 2
    assert seen.contains_many(np.array([1, 2, 3], np.uint64)).tolist() == [True, True, False]


@unhurried
@given(KEYS, st.lists(KEYS, max_size=5))
def test_sought_keys_are_found_where_they_occur(wanted: list[int], stream: list[list[int]]) -> None:
    sought = KeyMatcher(np.array(wanted, np.uint64))
    for batch in stream:
        sought.search(np.array(batch, np.uint64))
    occurring = {key for batch in stream for key in batch}
    assert sought.found().tolist() == [key in occurring for key in wanted]
