"""What is random or optimal before learning: words left out, windows, noise, Huffman's tree, blocks of text."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from firth.vectors import _word2vec_kernels as kernels
from firth.vectors import word2vec
from firth.vectors._step_kernels import random_start
from firth.vectors.recipe import Word2vecRecipe
from firth.vectors.sampling import Tree, alias_table, huffman_tree, keep_thresholds, noise_shares
from firth.vectors.text import FIRST_WORD, TrainingText
from firth.vectors.word2vec import WordBlocks
from tests.vectors.slow_word2vec import (
    huffman_lengths,
    slow_choose,
    slow_draw,
    slow_noise,
    slow_numbers,
    slow_start,
    windows_of,
)
from tests.vectors.word_groups import text_of

LIKELY = 1e-4  # right code would fail with one seed in ten thousand; seeds are fixed
COUNTS = st.lists(st.integers(0, 40), min_size=2, max_size=60).filter(lambda counts: sum(map(bool, counts)) > 1)
NOTHING = np.empty(0, dtype=np.float32)


def codes_of(tree: Tree) -> list[str]:
    """The code of each word, as a string of 0 and 1."""
    return ["".join(map(str, tree.codes[a:b])) for a, b in itertools.pairwise(tree.starts)]


def random_sentences(seed: int, count: int, words: int, longest: int = 30) -> list[list[int]]:
    """Sentences with frequent and rare words, and special tokens among them."""
    rng = np.random.default_rng(seed)
    first = FIRST_WORD - 2
    return [
        (first + (words - first) * rng.random(rng.integers(0, longest)) ** 2).astype(int).tolist() for _ in range(count)
    ]


def planned(text: TrainingText, seed: int = 0, **settings: Any) -> tuple[WordBlocks, list[Any]]:
    """The blocks of a text, and the plan of each."""
    options: dict[str, Any] = {"dimension": 2, "negatives": 3, "buckets": 0, "subsample": 0.0} | settings
    blocks = WordBlocks(Word2vecRecipe(**options), text, seed)
    return blocks, [blocks.plan(0, block).content for block in range(blocks.blocks)]


def test_huffman_codes_of_a_worked_example() -> None:
    """5 + 9 = 14, 12 + 13 = 25, 14 + 16 = 30, 25 + 30 = 55, 45 + 55 = 100."""
    tree = huffman_tree(np.array([45, 13, 12, 16, 9, 5]))
    assert [len(code) for code in codes_of(tree)] == [1, 3, 3, 3, 4, 4]
    assert tree.nodes[tree.starts[:-1]].tolist() == [0] * 6
    ways = [tree.nodes[a:b].tolist() for a, b in itertools.pairwise(tree.starts)]
    assert ways[1] == ways[2], "12 and 13 are joined"
    assert ways[4] == ways[5], "5 and 9 are joined"
    assert ways[3] == ways[4][:-1], "then with 16"


@given(COUNTS)
def test_huffman_codes_are_as_short_as_a_heap_makes_them(counts: list[int]) -> None:
    tree = huffman_tree(np.array(counts))
    codes = codes_of(tree)
    occurring = [(count, code) for count, code in zip(counts, codes, strict=True) if count]
    lengths = huffman_lengths([count for count, _ in occurring])
    assert sum(count * len(code) for count, code in occurring) == sum(
        count * length for (count, _), length in zip(occurring, lengths, strict=True)
    )
    assert not any(code for count, code in zip(counts, codes, strict=True) if not count)
    assert sum(2.0 ** -len(code) for _, code in occurring) == 1.0
    for (_, one), (_, two) in itertools.permutations(occurring, 2):
        assert not two.startswith(one)
    by_count = sorted(occurring, key=lambda pair: -pair[0])
    for (many, short), (few, long) in itertools.pairwise(by_count):
        assert many == few or len(short) <= len(long)


@given(COUNTS)
def test_a_node_is_known_by_the_way_that_leads_to_it(counts: list[int]) -> None:
    tree = huffman_tree(np.array(counts))
    prefix_of: dict[int, str] = {}
    for code, (begin, end) in zip(codes_of(tree), itertools.pairwise(tree.starts), strict=True):
        for place, node in enumerate(tree.nodes[begin:end].tolist()):
            assert prefix_of.setdefault(node, code[:place]) == code[:place]
    assert len(set(prefix_of.values())) == len(prefix_of)
    assert sorted(prefix_of) == list(range(sum(map(bool, counts)) - 1))


def test_a_huffman_tree_of_many_words_has_the_length_of_the_heap() -> None:
    counts = np.random.default_rng(0).zipf(1.3, 3000) % 100_000 + 1
    tree = huffman_tree(counts)
    assert (np.diff(tree.starts) * counts).sum() == np.dot(huffman_lengths(counts.tolist()), counts)


def table_shares(table: npt.NDArray[np.uint32]) -> npt.NDArray[np.float64]:
    """The probability of each word under an alias table, summed over its rows."""
    shares = np.zeros(len(table))
    for row, (threshold, other) in enumerate(table.tolist()):
        own = 1.0 if other == row else threshold / 2**32
        shares[row] += own / len(table)
        shares[other] += (1 - own) / len(table)
    return shares


@given(COUNTS, st.sampled_from([0.0, 0.5, 0.75, 1.0]))
def test_an_alias_table_has_exactly_the_shares(counts: list[int], power: float) -> None:
    weights = np.array([count**power if count else 0.0 for count in counts])
    shares = noise_shares(np.array(counts), power)
    np.testing.assert_allclose(shares, weights / weights.sum(), rtol=1e-12)
    found = table_shares(alias_table(shares))
    np.testing.assert_allclose(found, shares, atol=2**-31)
    assert np.all(found[shares == 0] == 0), "what has no share is never drawn"


def test_an_alias_table_of_many_words_has_exactly_the_shares() -> None:
    counts = np.random.default_rng(1).zipf(1.2, 50_000) % 10**7
    shares = noise_shares(counts, 0.75)
    np.testing.assert_allclose(table_shares(alias_table(shares)), shares, atol=2**-31)


def test_random_numbers_are_those_of_splitmix() -> None:
    for place in [(0, 0, 0), (1, 2, 3), (2**63, 10**6, 10**9)]:
        assert int(random_start(*map(np.uint64, place))) == slow_start(*place)
    starts = {slow_start(*place) for place in itertools.product(range(10), repeat=3)}
    assert len(starts) == 1000
    assert next(slow_numbers(0)) == 0xE220A8397B1DCDAF, "the first number that the published generator gives for 0"


def drawn_noise(alias: Any, pool: Any, words: Any, negatives: int, state: int) -> tuple[list[list[int]], Any, Any]:
    """The targets of each word, and all labels and shifts."""
    room = words.size * (negatives + 1)
    marks, targets = np.zeros(words.size + 1, dtype=np.int64), np.empty(room, dtype=np.int32)
    labels, shifts = np.empty(room, dtype=np.uint8), np.empty(room, dtype=np.float32)
    log_noise = np.arange(len(alias), dtype=np.float32)
    used = kernels.draw_noise(
        words, words.size, negatives, alias, pool, log_noise, np.uint64(state), marks, targets, labels, shifts
    )
    assert used == marks[-1]
    assert np.array_equal(shifts[:used], targets[:used])
    split = [targets[a:b].tolist() for a, b in itertools.pairwise(marks)]
    return split, [labels[a:b].tolist() for a, b in itertools.pairwise(marks)], shifts


@pytest.mark.parametrize("pooled", [False, True])
def test_noise_words_are_drawn_as_often_as_they_should_be(pooled: bool) -> None:
    """One noise word each for a word that is never drawn, so that none is refused."""
    counts = np.array([0, 0, 0, 0, 0, 1000, 300, 300, 100, 50, 20, 7, 1, 0])
    shares = noise_shares(counts, 0.75)
    alias, words = alias_table(shares), np.full(200_000, 13, dtype=np.int32)
    pool = np.empty(100_000 if pooled else 0, dtype=np.int32)
    kernels.draw_pool(alias, pool, np.uint64(5))
    found, _, _ = drawn_noise(alias, pool, words, 1, 77)
    often = np.bincount([word for _, word in found], minlength=counts.size)
    expected = shares if not pooled else np.bincount(pool, minlength=counts.size) / pool.size
    assert np.all(often[shares == 0] == 0)
    possible = shares > 0
    assert stats.chisquare(often[possible], 200_000 * expected[possible]).pvalue > LIKELY
    if pooled:
        often = np.bincount(pool, minlength=counts.size)
        assert stats.chisquare(often[possible], pool.size * shares[possible]).pvalue > LIKELY


@pytest.mark.parametrize(("negatives", "pool_size"), [(1, 0), (5, 0), (5, 40), (12, 0), (12, 3)])
def test_noise_is_that_of_the_twin_and_never_twice_or_the_word(negatives: int, pool_size: int) -> None:
    alias = alias_table(noise_shares(np.array([0, 0, 0, 0, 0, 9, 5, 3, 2, 2, 1, 1, 1]), 0.75))
    words = np.random.default_rng(0).integers(FIRST_WORD, 13, 500).astype(np.int32)
    pool = np.empty(pool_size, dtype=np.int32)
    kernels.draw_pool(alias, pool, np.uint64(3))
    numbers = slow_numbers(3)
    assert pool.tolist() == [slow_draw(alias, next(numbers)) for _ in range(pool_size)]
    found, labels, _ = drawn_noise(alias, pool, words, negatives, 9)
    assert found == slow_noise(words.tolist(), negatives, alias, pool, slow_numbers(9))
    for word, targets, answers in zip(words, found, labels, strict=True):
        assert targets[0] == word
        assert len(set(targets)) == len(targets) <= 1 + negatives
        assert answers == [1] + [0] * (len(targets) - 1)
    if negatives == 1:
        assert all(len(targets) == 2 for targets in found)


def test_keep_rates_are_those_of_the_paper() -> None:
    counts = np.array([0, 600_000, 300_000, 90_000, 9_900, 99, 1])
    kept = keep_thresholds(counts, 1e-3) / 2**32
    for count, rate in zip(counts[1:], kept[1:], strict=True):
        left_out = max(0.0, 1 - np.sqrt(1e-3 / (count / 1e6)))
        assert 1 - rate == pytest.approx(left_out, abs=1e-9)
    assert np.all(keep_thresholds(counts, 0) == 2**32 - 1)


def test_words_are_kept_as_often_as_they_should_be() -> None:
    """Long sentences, because those with fewer than two words left over are dropped whole."""
    rng = np.random.default_rng(3)
    words = FIRST_WORD + (20 * rng.random(200_000) ** 3).astype(int)
    blocks, contents = planned(text_of(words.reshape(-1, 500).tolist(), 25), seed=1, subsample=0.01)
    found = np.bincount(np.concatenate([content.words for content in contents]), minlength=25)[FIRST_WORD:]
    often = blocks.text.counts[FIRST_WORD:]
    rates = np.minimum(1, np.sqrt(0.01 / (often / often.sum())))
    assert rates.min() < 0.25
    assert np.all(rates < 1)
    spread = (found - often * rates) ** 2 / (often * rates * (1 - rates))
    assert stats.chi2.sf(spread.sum(), spread.size) > LIKELY


@pytest.mark.parametrize("window", [1, 2, 5, 8])
def test_windows_are_of_any_width_alike(window: int) -> None:
    text = text_of([*np.full((200, 500), FIRST_WORD).tolist(), [FIRST_WORD + 1] * 2], 8)
    _, contents = planned(text, window=window)
    reaches = np.concatenate([content.reach for content in contents])
    assert reaches.size == 100_002
    often = np.bincount(reaches, minlength=window + 1)
    assert often[0] == 0
    assert often.size == window + 1
    if window > 1:
        assert stats.chisquare(often[1:]).pvalue > LIKELY
    _, contents = planned(text, window=window, shrink=False)
    assert all(np.all(content.reach == window) for content in contents)


def test_width_does_not_depend_on_whether_a_word_is_rare() -> None:
    """Both come from one random number of 64 bits, but from different halves of it."""
    sentences = np.tile([FIRST_WORD] * 9 + [FIRST_WORD + 1], (1000, 30)).tolist()
    _, contents = planned(text_of(sentences, 8), window=4, subsample=0.01)
    words = np.concatenate([content.words for content in contents])
    reaches = np.concatenate([content.reach[: content.words.size] for content in contents])
    table = np.array([np.bincount(reaches[words == word], minlength=5)[1:] for word in range(5, 7)])
    assert table.min() > 1000
    assert stats.chi2_contingency(table).pvalue > LIKELY


@pytest.mark.parametrize("shrink", [True, False])
@pytest.mark.parametrize("subsample", [0.0, 0.02])
def test_a_plan_is_that_of_the_twin(shrink: bool, subsample: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word2vec, "block_size", lambda mode, words: 100)
    sentences = random_sentences(5, 60, 40)
    settings = {"mode": "fast", "window": 4, "shrink": shrink, "subsample": subsample, "negatives": 3}
    blocks, contents = planned(text_of(sentences, 40), seed=9, **settings)
    pieces, cuts = blocks.pieces, blocks.cuts
    assert blocks.blocks > 5
    for block, content in enumerate(contents):
        numbers = slow_numbers(slow_start(9, 0, block))
        mine = [blocks.text.ids[a:b].tolist() for a, b in itertools.pairwise(pieces[cuts[block] : cuts[block + 1] + 1])]
        chosen = slow_choose(mine, blocks.keep, 4, shrink, numbers)
        flat = [pair for piece in chosen for pair in piece]
        assert content.words.tolist() == [word for word, _ in flat]
        assert content.reach[: len(flat)].tolist() == [reach for _, reach in flat]
        assert np.diff(content.bounds[: content.pieces + 1]).tolist() == [len(piece) for piece in chosen]
        noise = slow_noise([word for word, _ in flat], 3, blocks.alias, (), numbers)
        assert content.targets.tolist() == [target for targets in noise for target in targets]


@pytest.mark.parametrize("mode", ["exact", "fast"])
def test_a_plan_depends_on_seed_pass_and_block_alone(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word2vec, "block_size", lambda mode, words: 100)
    text = text_of([[5, 6, 7, 8, 9, 10, 11] * 14] * 20, 12)
    plans = {}
    for seed in (0, 1):
        blocks, _ = planned(text, seed, mode=mode)
        for epoch, block in itertools.product((0, 1), (3, 7)):
            plans[seed, epoch, block] = blocks.plan(epoch, block).content
            again = planned(text, seed, mode=mode)[0].plan(epoch, block).content
            assert np.array_equal(plans[seed, epoch, block].targets, again.targets)
            assert np.array_equal(plans[seed, epoch, block].reach, again.reach)
    for one, two in itertools.combinations(plans.values(), 2):
        assert not np.array_equal(one.targets, two.targets)
        assert not np.array_equal(one.reach, two.reach)


def test_no_window_crosses_a_sentence() -> None:
    """The words of a sentence are all of one decade, so that a window over two sentences would show."""
    rng = np.random.default_rng(8)
    sentences = [(10 * rng.integers(1, 5) + rng.integers(0, 10, rng.integers(1, 9))).tolist() for _ in range(500)]
    for shrink in (True, False):
        _, contents = planned(text_of(sentences, 60), window=20, shrink=shrink, subsample=0.1)
        windows = [(content, w) for content in contents for piece in windows_of(content) for w in piece]
        assert len(windows) > 500
        for content, window in windows:
            decades = {int(content.words[place]) // 10 for place in (window.middle, *window.around)}
            assert len(decades) == 1
            assert window.around
    assert all(content.words.size == content.bounds[content.pieces] for content in contents)


@given(st.lists(st.integers(0, 30), min_size=1, max_size=60), st.integers(1, 40), st.integers(1, 12))
def test_blocks_and_pieces_are_the_text(lengths: list[int], block: int, longest: int) -> None:
    total = sum(lengths)
    text = text_of([[FIRST_WORD] * length for length in lengths], 6)
    blocks, pieces = text.cut(block, longest)
    assert pieces[0] == 0
    assert pieces[-1] == total
    assert blocks[-1] == len(pieces) - 1
    sizes = np.diff(pieces)
    assert sizes.min() >= 0
    assert sizes.max() <= longest
    assert set(text.sentences.tolist()) <= set(pieces.tolist()), "no piece is of two sentences"
    inside = [length for length in lengths if length]
    assert np.count_nonzero(sizes) == sum(-(-length // longest) for length in inside), "cut no more than needed"
    if not total:
        return
    assert blocks[0] == 0
    tokens = np.diff(pieces[blocks])
    assert tokens.min() > 0
    assert tokens.sum() == total
    assert tokens.max() < block + longest


def test_long_sentences_are_cut_and_nothing_is_lost() -> None:
    words = (FIRST_WORD + np.arange(2500) % 7).tolist()
    _, contents = planned(text_of([words, words[:3], words[:1000], words[:1001]], 20), window=3)
    found = np.concatenate([content.words for content in contents])
    sizes = [np.diff(content.bounds[: content.pieces + 1]).tolist() for content in contents]
    assert list(itertools.chain(*sizes)) == [1000, 1000, 500, 3, 1000, 1000], "the last word would be alone"
    assert found.tolist() == words + words[:3] + words[:1000] + words[:1000]


def test_the_way_to_a_word_are_its_targets_in_hierarchical_softmax() -> None:
    blocks, contents = planned(text_of(random_sentences(2, 50, 30), 30), loss="hierarchical")
    assert blocks.tree is not None
    tree, content = blocks.tree, contents[0]
    for place, word in enumerate(content.words):
        mine, way = slice(*content.marks[place : place + 2]), slice(*tree.starts[word : word + 2])
        assert np.array_equal(content.targets[mine], tree.nodes[way])
        assert np.array_equal(content.labels[mine], tree.codes[way])
