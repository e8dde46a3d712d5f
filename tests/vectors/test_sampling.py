"""Subsampling, windows, negative sampling, Huffman trees and blocks of text."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from firth.tokens.tokenizer import FIRST_WORD
from firth.vectors import _word2vec_kernels as kernels
from firth.vectors import word2vec
from firth.vectors._step_kernels import block_seed, fill_noise_pool
from firth.vectors.recipe import Word2vecRecipe
from firth.vectors.sampling import HuffmanCodes, alias_table, huffman_tree, keep_thresholds, noise_distribution
from firth.vectors.text import TrainingText
from firth.vectors.word2vec import Word2vecTrainer
from tests.vectors.slow_word2vec import (
    huffman_lengths,
    slow_block_seed,
    slow_draw,
    slow_negatives,
    slow_numbers,
    slow_subsample,
    windows_of,
)
from tests.vectors.word_groups import text_of

LIKELY = 1e-4  # right code would fail with one seed in ten thousand; seeds are fixed
COUNTS = st.lists(st.integers(0, 40), min_size=2, max_size=60).filter(lambda counts: sum(map(bool, counts)) > 1)
NOTHING = np.empty(0, dtype=np.float32)


def codes_of(tree: HuffmanCodes) -> list[str]:
    """The code of each word, as a string of 0 and 1."""
    return ["".join(map(str, tree.codes[a:b])) for a, b in itertools.pairwise(tree.starts)]


def random_sentences(seed: int, count: int, words: int, longest: int = 30) -> list[list[int]]:
    """Sentences with frequent and rare words, and special tokens among them."""
    rng = np.random.default_rng(seed)
    first = FIRST_WORD - 2
    return [
        (first + (words - first) * rng.random(rng.integers(0, longest)) ** 2).astype(int).tolist() for _ in range(count)
    ]


def planned(text: TrainingText, seed: int = 0, **settings: Any) -> tuple[Word2vecTrainer, list[Any]]:
    """The blocks of a text, and the plan of each."""
    options: dict[str, Any] = {"dimension": 2, "negatives": 3, "buckets": 0, "subsample": 0.0} | settings
    blocks = Word2vecTrainer(Word2vecRecipe(**options), text, seed)
    return blocks, [blocks.plan(0, block).content for block in range(blocks.num_blocks)]


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
        for position, node in enumerate(tree.nodes[begin:end].tolist()):
            assert prefix_of.setdefault(node, code[:position]) == code[:position]
    assert len(set(prefix_of.values())) == len(prefix_of)
    assert sorted(prefix_of) == list(range(sum(map(bool, counts)) - 1))


def test_a_huffman_tree_of_many_words_has_the_length_of_the_heap() -> None:
    counts = np.random.default_rng(0).zipf(1.3, 3000) % 100_000 + 1
    tree = huffman_tree(counts)
    assert (np.diff(tree.starts) * counts).sum() == np.dot(huffman_lengths(counts.tolist()), counts)


def table_probabilities(table: npt.NDArray[np.uint32]) -> npt.NDArray[np.float64]:
    """The probability of each word under an alias table, summed over its rows."""
    probabilities = np.zeros(len(table))
    for row, (threshold, other) in enumerate(table.tolist()):
        own = 1.0 if other == row else threshold / 2**32
        probabilities[row] += own / len(table)
        probabilities[other] += (1 - own) / len(table)
    return probabilities


@given(COUNTS, st.sampled_from([0.0, 0.5, 0.75, 1.0]))
def test_an_alias_table_has_exactly_the_probabilities(counts: list[int], power: float) -> None:
    weights = np.array([count**power if count else 0.0 for count in counts])
    probabilities = noise_distribution(np.array(counts), power)
    np.testing.assert_allclose(probabilities, weights / weights.sum(), rtol=1e-12)
    found = table_probabilities(alias_table(probabilities))
    np.testing.assert_allclose(found, probabilities, atol=2**-31)
    assert np.all(found[probabilities == 0] == 0), "a word of probability 0 is never drawn"


def test_an_alias_table_of_many_words_has_exactly_the_probabilities() -> None:
    counts = np.random.default_rng(1).zipf(1.2, 50_000) % 10**7
    probabilities = noise_distribution(counts, 0.75)
    np.testing.assert_allclose(table_probabilities(alias_table(probabilities)), probabilities, atol=2**-31)


def test_random_numbers_are_those_of_splitmix() -> None:
    for position in [(0, 0, 0), (1, 2, 3), (2**63, 10**6, 10**9)]:
        assert int(block_seed(*map(np.uint64, position))) == slow_block_seed(*position)
    starts = {slow_block_seed(*position) for position in itertools.product(range(10), repeat=3)}
    assert len(starts) == 1000
    assert next(slow_numbers(0)) == 0xE220A8397B1DCDAF, "the first number that the published generator gives for 0"


def drawn_noise(alias: Any, pool: Any, words: Any, negatives: int, state: int) -> tuple[list[list[int]], Any, Any]:
    """The targets of each word, and all labels and shifts."""
    size = words.size * (negatives + 1)
    target_starts, targets = np.zeros(words.size + 1, dtype=np.int64), np.empty(size, dtype=np.int32)
    labels, offsets = np.empty(size, dtype=np.uint8), np.empty(size, dtype=np.float32)
    log_noise = np.arange(len(alias), dtype=np.float32)
    used = kernels.draw_negatives(
        words, words.size, negatives, alias, pool, log_noise, np.uint64(state), target_starts, targets, labels, offsets
    )
    assert used == target_starts[-1]
    assert np.array_equal(offsets[:used], targets[:used])
    split = [targets[a:b].tolist() for a, b in itertools.pairwise(target_starts)]
    return split, [labels[a:b].tolist() for a, b in itertools.pairwise(target_starts)], offsets


@pytest.mark.parametrize("pooled", [False, True])
def test_noise_words_are_drawn_as_often_as_they_should_be(pooled: bool) -> None:
    """One noise word each for a word that is never drawn, so that none is refused."""
    counts = np.array([0, 0, 0, 0, 0, 1000, 300, 300, 100, 50, 20, 7, 1, 0])
    probabilities = noise_distribution(counts, 0.75)
    alias, words = alias_table(probabilities), np.full(200_000, 13, dtype=np.int32)
    pool = np.empty(100_000 if pooled else 0, dtype=np.int32)
    fill_noise_pool(alias, pool, np.uint64(5))
    found, _, _ = drawn_noise(alias, pool, words, 1, 77)
    uses = np.bincount([word for _, word in found], minlength=counts.size)
    expected = probabilities if not pooled else np.bincount(pool, minlength=counts.size) / pool.size
    assert np.all(uses[probabilities == 0] == 0)
    possible = probabilities > 0
    assert stats.chisquare(uses[possible], 200_000 * expected[possible]).pvalue > LIKELY
    if pooled:
        uses = np.bincount(pool, minlength=counts.size)
        assert stats.chisquare(uses[possible], pool.size * probabilities[possible]).pvalue > LIKELY


@pytest.mark.parametrize(("negatives", "pool_size"), [(1, 0), (5, 0), (5, 40), (12, 0), (12, 3)])
def test_noise_is_that_of_the_twin_and_never_twice_or_the_word(negatives: int, pool_size: int) -> None:
    alias = alias_table(noise_distribution(np.array([0, 0, 0, 0, 0, 9, 5, 3, 2, 2, 1, 1, 1]), 0.75))
    words = np.random.default_rng(0).integers(FIRST_WORD, 13, 500).astype(np.int32)
    pool = np.empty(pool_size, dtype=np.int32)
    fill_noise_pool(alias, pool, np.uint64(3))
    numbers = slow_numbers(3)
    assert pool.tolist() == [slow_draw(alias, next(numbers)) for _ in range(pool_size)]
    found, labels, _ = drawn_noise(alias, pool, words, negatives, 9)
    assert found == slow_negatives(words.tolist(), negatives, alias, pool, slow_numbers(9))
    for word, targets, answers in zip(words, found, labels, strict=True):
        assert targets[0] == word
        assert len(set(targets)) == len(targets) <= 1 + negatives
        assert answers == [1] + [0] * (len(targets) - 1)
    if negatives == 1:
        assert all(len(targets) == 2 for targets in found)


def test_keep_rates_are_those_of_the_paper() -> None:
    counts = np.array([0, 600_000, 300_000, 90_000, 9_900, 99, 1])
    kept = keep_thresholds(counts, 1e-3) / 2**32
    for count, lr in zip(counts[1:], kept[1:], strict=True):
        left_out = max(0.0, 1 - np.sqrt(1e-3 / (count / 1e6)))
        assert 1 - lr == pytest.approx(left_out, abs=1e-9)
    assert np.all(keep_thresholds(counts, 0) == 2**32 - 1)


def test_words_are_subsampled_with_the_right_probability() -> None:
    """Long sentences, because those with fewer than two words left over are dropped whole."""
    rng = np.random.default_rng(3)
    words = FIRST_WORD + (20 * rng.random(200_000) ** 3).astype(int)
    blocks, contents = planned(text_of(words.reshape(-1, 500).tolist(), 25), seed=1, subsample=0.01)
    found = np.bincount(np.concatenate([content.words for content in contents]), minlength=25)[FIRST_WORD:]
    uses = blocks.text.counts[FIRST_WORD:]
    lrs = np.minimum(1, np.sqrt(0.01 / (uses / uses.sum())))
    assert lrs.min() < 0.25
    assert np.all(lrs < 1)
    spread = (found - uses * lrs) ** 2 / (uses * lrs * (1 - lrs))
    assert stats.chi2.sf(spread.sum(), spread.size) > LIKELY


@pytest.mark.parametrize("window", [1, 2, 5, 8])
def test_window_sizes_are_uniform(window: int) -> None:
    text = text_of([*np.full((200, 500), FIRST_WORD).tolist(), [FIRST_WORD + 1] * 2], 8)
    _, contents = planned(text, window=window)
    window_sizes = np.concatenate([content.window_sizes for content in contents])
    assert window_sizes.size == 100_002
    uses = np.bincount(window_sizes, minlength=window + 1)
    assert uses[0] == 0
    assert uses.size == window + 1
    if window > 1:
        assert stats.chisquare(uses[1:]).pvalue > LIKELY
    _, contents = planned(text, window=window, dynamic_window=False)
    assert all(np.all(content.window_sizes == window) for content in contents)


def test_width_does_not_depend_on_whether_a_word_is_rare() -> None:
    """Both come from one random number of 64 bits, but from different halves of it."""
    sentences = np.tile([FIRST_WORD] * 9 + [FIRST_WORD + 1], (1000, 30)).tolist()
    _, contents = planned(text_of(sentences, 8), window=4, subsample=0.01)
    words = np.concatenate([content.words for content in contents])
    window_sizes = np.concatenate([content.window_sizes[: content.words.size] for content in contents])
    table = np.array([np.bincount(window_sizes[words == word], minlength=5)[1:] for word in range(5, 7)])
    assert table.min() > 1000
    assert stats.chi2_contingency(table).pvalue > LIKELY


@pytest.mark.parametrize("dynamic_window", [True, False])
@pytest.mark.parametrize("subsample", [0.0, 0.02])
def test_a_plan_equals_the_reference(dynamic_window: bool, subsample: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word2vec, "block_size", lambda mode, words: 100)
    sentences = random_sentences(5, 60, 40)
    settings = {"mode": "fast", "window": 4, "dynamic_window": dynamic_window, "subsample": subsample, "negatives": 3}
    blocks, contents = planned(text_of(sentences, 40), seed=9, **settings)
    segments, block_bounds = blocks.segments, blocks.blocks
    assert blocks.num_blocks > 5
    for block, content in enumerate(contents):
        numbers = slow_numbers(slow_block_seed(9, 0, block))
        mine = [
            blocks.text.ids[a:b].tolist()
            for a, b in itertools.pairwise(segments[block_bounds[block] : block_bounds[block + 1] + 1])
        ]
        chosen = slow_subsample(mine, blocks.keep, 4, dynamic_window, numbers)
        flat = [pair for segment in chosen for pair in segment]
        assert content.words.tolist() == [word for word, _ in flat]
        assert content.window_sizes[: len(flat)].tolist() == [window_size for _, window_size in flat]
        assert np.diff(content.bounds[: content.segments + 1]).tolist() == [len(segment) for segment in chosen]
        noise = slow_negatives([word for word, _ in flat], 3, blocks.alias, (), numbers)
        assert content.targets.tolist() == [target for targets in noise for target in targets]


@pytest.mark.parametrize("mode", ["exact", "fast"])
def test_a_plan_depends_on_seed_epoch_and_block_alone(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word2vec, "block_size", lambda mode, words: 100)
    text = text_of([[5, 6, 7, 8, 9, 10, 11] * 14] * 20, 12)
    plans = {}
    for seed in (0, 1):
        blocks, _ = planned(text, seed, mode=mode)
        for epoch, block in itertools.product((0, 1), (3, 7)):
            plans[seed, epoch, block] = blocks.plan(epoch, block).content
            again = planned(text, seed, mode=mode)[0].plan(epoch, block).content
            assert np.array_equal(plans[seed, epoch, block].targets, again.targets)
            assert np.array_equal(plans[seed, epoch, block].window_sizes, again.window_sizes)
    for one, two in itertools.combinations(plans.values(), 2):
        assert not np.array_equal(one.targets, two.targets)
        assert not np.array_equal(one.window_sizes, two.window_sizes)


def test_no_window_crosses_a_sentence() -> None:
    """The words of a sentence are all of one decade, so that a window over two sentences would show."""
    rng = np.random.default_rng(8)
    sentences = [(10 * rng.integers(1, 5) + rng.integers(0, 10, rng.integers(1, 9))).tolist() for _ in range(500)]
    for dynamic_window in (True, False):
        _, contents = planned(text_of(sentences, 60), window=20, dynamic_window=dynamic_window, subsample=0.1)
        windows = [(content, w) for content in contents for segment in windows_of(content) for w in segment]
        assert len(windows) > 500
        for content, window in windows:
            decades = {int(content.words[position]) // 10 for position in (window.middle, *window.around)}
            assert len(decades) == 1
            assert window.around
    assert all(content.words.size == content.bounds[content.segments] for content in contents)


@given(st.lists(st.integers(0, 30), min_size=1, max_size=60), st.integers(1, 40), st.integers(1, 12))
def test_blocks_and_pieces_are_the_text(lengths: list[int], block: int, longest: int) -> None:
    total = sum(lengths)
    text = text_of([[FIRST_WORD] * length for length in lengths], 6)
    blocks, segments = text.split_blocks(block, longest)
    assert segments[0] == 0
    assert segments[-1] == total
    assert blocks[-1] == len(segments) - 1
    sizes = np.diff(segments)
    assert sizes.min() >= 0
    assert sizes.max() <= longest
    assert set(text.sentences.tolist()) <= set(segments.tolist()), "no piece is of two sentences"
    inside = [length for length in lengths if length]
    assert np.count_nonzero(sizes) == sum(-(-length // longest) for length in inside), "cut no more than needed"
    if not total:
        return
    assert blocks[0] == 0
    tokens = np.diff(segments[blocks])
    assert tokens.min() > 0
    assert tokens.sum() == total
    assert tokens.max() < block + longest


def test_long_sentences_are_split_without_loss() -> None:
    words = (FIRST_WORD + np.arange(2500) % 7).tolist()
    _, contents = planned(text_of([words, words[:3], words[:1000], words[:1001]], 20), window=3)
    found = np.concatenate([content.words for content in contents])
    sizes = [np.diff(content.bounds[: content.segments + 1]).tolist() for content in contents]
    assert list(itertools.chain(*sizes)) == [1000, 1000, 500, 3, 1000, 1000], "the last word would be alone"
    assert found.tolist() == words + words[:3] + words[:1000] + words[:1000]


def test_the_path_to_a_word_is_its_targets_in_hierarchical_softmax() -> None:
    blocks, contents = planned(text_of(random_sentences(2, 50, 30), 30), loss="hierarchical")
    assert blocks.tree is not None
    tree, content = blocks.tree, contents[0]
    for position, word in enumerate(content.words):
        mine, way = slice(*content.target_starts[position : position + 2]), slice(*tree.starts[word : word + 2])
        assert np.array_equal(content.targets[mine], tree.nodes[way])
        assert np.array_equal(content.labels[mine], tree.codes[way])
