"""Learning merges: examples worked by hand, a reference implementation that recounts all pairs, and invariants."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from firth.errors import TokenizerError
from firth.tokens import merges as merges_module
from firth.tokens.merges import extend_merges, learn_merges

Learned = tuple[list[str], list[tuple[str, str]]]
CLASSIC = {"low": 5, "lower": 2, "newest": 6, "widest": 3}

# The hash sign is there because "##" in a word meets the prefix of WordPiece.
WORDS = st.dictionaries(st.text("ab#", min_size=1, max_size=14), st.integers(1, 9), min_size=1, max_size=8)
SIZES = st.integers(1, 30)


def reference_learn(
    words: dict[str, int], size: int, alphabet: str = "", prefix: str = "", min_count: int = 1
) -> Learned:
    pieces = {word: [prefix * (position > 0) + c for position, c in enumerate(word)] for word in words}
    plain = sorted({*alphabet, *"".join(words)})
    inner = sorted({piece for parts in pieces.values() for piece in parts[1:]}) if prefix else []
    return reference_continue(pieces, words, [*plain, *inner], [], size, prefix, min_count)


def reference_extend(words: dict[str, int], tokens: list[str], merges: list[tuple[str, str]], size: int) -> Learned:
    pieces = {word: encode(word, tokens, merges) for word in words}
    return reference_continue(pieces, words, list(tokens), list(merges), size)


def reference_continue(pieces, words, tokens, merges, size, prefix="", min_count=1) -> Learned:  # type: ignore[no-untyped-def]
    while len(tokens) < size:
        totals: Counter[tuple[str, str]] = Counter()
        for word, parts in pieces.items():
            for pair in pairwise(parts):
                totals[pair] += words[word]
        if not totals:
            break
        best = min(totals, key=lambda pair: (-totals[pair], tokens.index(pair[0]), tokens.index(pair[1])))
        if totals[best] < min_count:
            break
        joined = best[0] + best[1].removeprefix(prefix)
        merges += [best] if best not in merges else []
        tokens += [joined] if joined not in tokens else []
        for parts in pieces.values():
            join(parts, best, joined)
    return tokens, merges


def join(parts: list[str], pair: tuple[str, str], joined: str) -> None:
    position = 0
    while position + 1 < len(parts):
        if (parts[position], parts[position + 1]) == pair:
            parts[position : position + 2] = [joined]
        position += 1


def encode(word: str, tokens: list[str], merges: list[tuple[str, str]]) -> list[str]:
    """The tokens of a word: of the merges that apply the earliest, at the leftmost position, until none applies."""
    parts = [character for character in word if character in tokens]
    while found := [(merges.index(pair), position) for position, pair in enumerate(pairwise(parts)) if pair in merges]:
        _, position = min(found)
        parts[position : position + 2] = ["".join(parts[position : position + 2])]
    return parts


def test_the_classic_example_by_hand() -> None:
    """es 9, est 9, then lo 7 before ow 7, low 7; of ew 6, ne 6 and w+est 6 `e` has the smallest id; new, newest."""
    tokens, merges = learn_merges(CLASSIC, 17)
    assert tokens == [*"deilnorstw", "es", "est", "lo", "low", "ew", "new", "newest"]
    assert merges == [("e", "s"), ("es", "t"), ("l", "o"), ("lo", "w"), ("e", "w"), ("n", "ew"), ("new", "est")]


def test_equal_neighbours_are_joined_from_the_left() -> None:
    """aaa twice and aaaa once: aa occurs 7 times; then aa+a 2 times, aa+aa once."""
    assert learn_merges({"aaa": 2, "aaaa": 1}, 9) == (
        ["a", "aa", "aaa", "aaaa"],
        [("a", "a"), ("aa", "a"), ("aa", "aa")],
    )
    # aaaaa becomes aa+aa+a, where aa+aa and aa+a are as frequent: a has the smaller id
    assert learn_merges({"aaaaa": 1}, 4) == (["a", "aa", "aaa", "aaaaa"], [("a", "a"), ("aa", "a"), ("aa", "aaa")])


def test_pairs_that_overlap_each_other() -> None:
    """abab: ab 2, ba 1; ab+ab is one pair, and no ba is left."""
    assert learn_merges({"abab": 1}, 9) == (["a", "b", "ab", "abab"], [("a", "b"), ("ab", "ab")])


def test_wordpiece_by_hand() -> None:
    """abb 3 times: a+##b and ##b+##b are as frequent, and a has the smaller id; then ab+##b."""
    tokens, merges = learn_merges({"abb": 3, "b": 1}, 9, prefix="##")
    assert tokens == ["a", "b", "##b", "ab", "abb"]
    assert merges == [("a", "##b"), ("ab", "##b")]
    tokens, merges = learn_merges({"xaby": 1, "zab": 1, "b": 1}, 9, prefix="##")
    assert tokens == ["a", "b", "x", "y", "z", "##a", "##b", "##y", "##ab"]
    assert merges == [("##a", "##b")]


def test_a_token_that_looks_like_a_prefixed_one() -> None:
    """# and ### give ##, which with ##a gives ##a again: the run of ##a is then joined from its new left end."""
    tokens, merges = learn_merges({"##aaa": 1, "##a": 5}, 9, prefix="##")
    assert tokens == ["#", "a", "###", "##a", "##", "##aa", "##aaa"]
    assert merges == [("#", "###"), ("##", "##a"), ("##a", "##a"), ("##aa", "##a")]


def test_the_alphabet_is_there_even_if_it_does_not_occur() -> None:
    assert learn_merges({"ba": 1}, 9, alphabet="zaé") == (["a", "b", "z", "é", "ba"], [("b", "a")])
    assert learn_merges({"ba": 1}, 9, alphabet="z", prefix="##")[0] == ["a", "b", "z", "##a", "ba"]


def test_the_most_frequent_of_too_many_characters_remain() -> None:
    words = {"aab": 2, "c": 5, "d": 2}
    assert learn_merges(words, 3) == (["a", "b", "c"], [])  # c 5, a 4, then b before d
    assert learn_merges(words, 2, alphabet="z") == (["c", "z"], [])
    assert learn_merges(words, 5, prefix="##") == (["a", "b", "c", "d", "##a"], [])


def test_rare_pairs_are_left() -> None:
    assert learn_merges(CLASSIC, 99, min_count=7)[1] == [("e", "s"), ("es", "t"), ("l", "o"), ("lo", "w")]
    assert learn_merges({"ab": 1}, 9, min_count=0) == learn_merges({"ab": 1}, 9)


@pytest.mark.parametrize("words", [{}, {"": 3}, {"a": 0}])
def test_no_words(words: dict[str, int]) -> None:
    with pytest.raises(TokenizerError, match="no words to learn"):
        learn_merges(words, 10)
    with pytest.raises(TokenizerError, match="no words to learn"):
        extend_merges(words, ["a"], [], 10)


@given(WORDS, SIZES, st.sampled_from(["", "##"]), st.integers(0, 4))
def test_it_agrees_with_the_reference(words: dict[str, int], size: int, prefix: str, min_count: int) -> None:
    found = learn_merges(words, size, alphabet="b", prefix=prefix, min_count=min_count)
    expected = reference_learn(words, size, "b", prefix, max(min_count, 1))
    if len(expected[0]) <= size:
        assert found == expected
    else:
        assert found[1] == expected[1] == []
        assert len(found[0]) == size
        assert set(found[0]) < set(expected[0])


@given(WORDS, SIZES, WORDS, SIZES)
def test_extending_agrees_with_the_reference(
    words: dict[str, int], size: int, others: dict[str, int], extra: int
) -> None:
    tokens, merges = learn_merges(words, size)
    found = extend_merges(others, tokens, merges, len(tokens) + extra)
    assert found == reference_extend(others, tokens, merges, len(tokens) + extra)
    assert found[0][: len(tokens)] == tokens
    assert found[1][: len(merges)] == merges


@given(WORDS, SIZES, st.integers(0, 20))
def test_extending_on_the_same_words_equals_longer_training(words: dict[str, int], size: int, extra: int) -> None:
    tokens, merges = learn_merges(words, size + 3)
    assert extend_merges(words, tokens, merges, size + 3 + extra) == learn_merges(words, size + 3 + extra)


@given(WORDS, SIZES, st.sampled_from(["", "##"]), st.randoms())
def test_the_order_of_words_does_not_matter(words: dict[str, int], size: int, prefix: str, random) -> None:  # type: ignore[no-untyped-def]
    items = list(words.items())
    random.shuffle(items)
    assert learn_merges(dict(items), size, prefix=prefix) == learn_merges(words, size, prefix=prefix)


@given(WORDS, SIZES, st.integers(1, 20), st.sampled_from(["", "##"]))
def test_a_smaller_vocabulary_begins_a_larger_one(words: dict[str, int], size: int, more: int, prefix: str) -> None:
    tokens, merges = learn_merges(words, size + 5, prefix=prefix)
    larger, longer = learn_merges(words, size + 5 + more, prefix=prefix)
    assert (larger[: len(tokens)], longer[: len(merges)]) == (tokens, merges)
    assert len(set(larger)) == len(larger) <= size + 5 + more
    assert len(set(longer)) == len(longer)


def test_special_tokens_keep_their_ids() -> None:
    tokens = ["<pad>", "<unk>", "a", "b"]
    assert extend_merges({"ab": 2}, tokens, [], 9) == ([*tokens, "ab"], [("a", "b")])
    assert extend_merges({"ab": 2}, [*tokens, "ab"], [], 9) == ([*tokens, "ab"], [("a", "b")])


def test_new_characters_come_by_frequency() -> None:
    words = {"azx": 2, "y": 1, "w": 1, "az": 1}  # z 3, x 2, then w before y
    assert extend_merges(words, ["a"], [], 5, new_characters=True) == (["a", "z", "x", "w", "y"], [])
    assert extend_merges(words, ["a"], [], 3, new_characters=True) == (["a", "z", "x"], [])
    assert extend_merges(words, ["a"], [], 6, new_characters=True) == (["a", "z", "x", "w", "y", "az"], [("a", "z")])


def test_unknown_characters_are_passed_over() -> None:
    assert extend_merges({"axb": 3}, ["a", "b"], [], 9) == (["a", "b", "ab"], [("a", "b")])


def test_a_full_vocabulary_is_given_back() -> None:
    tokens, merges = learn_merges(CLASSIC, 14)
    assert extend_merges(CLASSIC, tokens, merges, 14) == (tokens, merges)
    assert extend_merges({"é": 1}, tokens, merges, 3, new_characters=True) == (tokens, merges)


def test_merges_of_unknown_tokens_are_refused() -> None:
    with pytest.raises(TokenizerError, match="lacks a token of the merge 'a' \\+ 'b'"):
        extend_merges({"ab": 1}, ["a", "b"], [("a", "b")], 9)


def test_any_character_will_do() -> None:
    words = {"\U0001f600\U0010ffff": 3, "\ud800\0": 2}
    tokens, merges = learn_merges(words, 9)
    assert tokens[:4] == ["\0", "\ud800", "\U0001f600", "\U0010ffff"]
    assert merges == [("\U0001f600", "\U0010ffff"), ("\ud800", "\0")]


def test_a_pair_that_arises_again_is_recounted() -> None:
    """3+2 is joined where it occurs 9 times; 0+1 makes another 3 beside a 2, but that occurs only 5 times."""
    words = [([3, 2], 9), ([0, 1, 2], 5), ([2, 7], 5)]
    symbols = np.array([symbol for word, _ in words for symbol in word], dtype=np.int32)
    numbers = np.array([number for number, (word, _) in enumerate(words) for _ in word], dtype=np.int32)
    answer = np.zeros(1, dtype=np.int64)
    order = []
    for key in merges_module.best_pairs(symbols, numbers, np.array([count for _, count in words]), 1, answer):
        order.append((key >> 32, key & 0xFFFFFFFF))
        answer[0] = {(3, 2): 4, (0, 1): 3, (2, 7): 8}[order[-1]]
    assert order == [(3, 2), (0, 1), (2, 7), (3, 2)]
    assert symbols.tolist() == [4, -1, 4, -1, -1, 8, -1]


def test_many_pairs_make_the_tables_grow() -> None:
    """More distinct pairs than the initial capacity; every word is one token in the end."""
    rng = np.random.default_rng(3)
    letters = [chr(0x4E00 + number) for number in range(300)]
    words = {"".join(rng.choice(letters, 12)): int(count) for count in rng.integers(1, 50, 3000)}
    assert len({pair for word in words for pair in pairwise(word)}) > 4 * merges_module._BLOCK
    tokens, merges = learn_merges(words, 10**6)
    assert set(words) <= set(tokens)
    assert len(tokens) == len(merges) + 300
    assert learn_merges(words, 308)[1] == reference_learn(words, 308)[1]


def test_a_very_long_word() -> None:
    tokens, merges = learn_merges({"ab" * 100_000: 1}, 20)
    assert tokens[:5] == ["a", "b", "ab", "abab", "abababab"]
    assert extend_merges({"ab" * 100_000: 1}, tokens[:4], merges[:2], 20) == (tokens, merges)
