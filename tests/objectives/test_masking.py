"""Masking policies: rates, lengths and replacements by exact statistics, and whole words."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from firth.nets.batch import Batch
from firth.objectives.heads.masking import ChosenPositions, choose_positions, mask_tokens, span_length_probabilities
from firth.objectives.masking import Masking
from firth.text.corpus import read_corpus
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.tokenizer import BOS, EOS, MASK, PAD, UNK
from firth.tokens.train import train_tokenizer

POLICIES = ("token", "word", "ngram", "span")
MIN_P_VALUE = 1e-4  # probability of a false alarm


def rows_of(rows: int, width: int, rng: np.random.Generator, word: int = 1, vocabulary: int = 500) -> Batch:
    """Rows `[CLS] ... [SEP]` of random tokens; words are 1 to `word` tokens long."""
    ids = rng.integers(5, vocabulary, (rows, width))
    starts = rng.random((rows, width)) < 1.0 if word == 1 else np.zeros((rows, width), dtype=bool)
    if word > 1:
        for row in starts:
            ends = np.cumsum(rng.integers(1, word + 1, width))
            row[0], row[ends[ends < width]] = True, True
    ids[:, 0], ids[:, -1] = BOS, EOS
    starts[:, 0], starts[:, 1], starts[:, -1] = True, True, True
    return Batch(torch.from_numpy(ids), torch.from_numpy(starts), row_seeds=torch.arange(rows))


def chosen(batch: Batch, recipe: Masking, seed: int = 0) -> tuple[ChosenPositions, npt.NDArray[np.bool_]]:
    groups = choose_positions(batch, recipe, np.random.default_rng(seed))
    flags = np.zeros(batch.ids.numel(), dtype=bool)
    flags[groups.positions.numpy()] = True
    return groups, flags.reshape(batch.shape)


def word_numbers(batch: Batch) -> npt.NDArray[np.int64]:
    """The number of the word of each token of a row."""
    return np.asarray(np.cumsum(batch.word_starts.numpy(), axis=1))


@pytest.mark.parametrize("policy", POLICIES)
def test_the_expected_fraction_is_the_rate(policy: str) -> None:
    recipe = Masking(policy=policy, max_length=10)  # type: ignore[arg-type]
    batch = rows_of(4000, 66, np.random.default_rng(1), word=3)
    _, flags = chosen(batch, recipe)
    counts = flags.sum(axis=1)
    error = counts.std() / np.sqrt(len(counts))
    assert abs(counts.mean() - 0.15 * 64) < 4 * error
    # the probability is the same at all 64 positions of a row, 4000 trials each
    deviations = (flags[:, 1:-1].mean(axis=0) - 0.15) / np.sqrt(0.15 * 0.85 / 4000)
    assert np.abs(deviations).max() < 4.5
    assert abs(deviations[0]) < 4
    assert abs(deviations[-1]) < 4


def test_the_number_of_tokens_is_exact_up_to_random_rounding() -> None:
    batch = rows_of(2000, 33, np.random.default_rng(2))
    _, flags = chosen(batch, Masking())
    counts = flags.sum(axis=1)  # 0.15 x 31 = 4.65
    assert set(counts.tolist()) == {4, 5}
    found = int((counts == 5).sum())
    assert chisquare([found, 2000 - found], [1300, 700]).pvalue > MIN_P_VALUE


def test_long_words_are_as_likely_as_short_ones() -> None:
    batch = rows_of(6000, 40, np.random.default_rng(3), word=4)
    _, flags = chosen(batch, Masking(policy="word"))
    inner = np.s_[:, 1:-1]
    words = word_numbers(batch)
    for size in (1, 2, 3):
        same = np.array([np.bincount(row, minlength=50)[row] for row in words]) == size
        starts = batch.word_starts.numpy()[inner] & same[inner]
        count, found = int(starts.sum()), int(flags[inner][starts].sum())
        assert abs(found - 0.15 * count) < 4 * np.sqrt(0.15 * 0.85 * count)


@pytest.mark.parametrize(("policy", "max_length"), [("ngram", 3), ("ngram", 5), ("span", 10)])
def test_lengths_have_the_stated_distribution(policy: str, max_length: int) -> None:
    batch = rows_of(150, 1500, np.random.default_rng(4), word=2)
    groups, _ = chosen(batch, Masking(policy=policy, max_length=max_length))  # type: ignore[arg-type]
    words = word_numbers(batch).flatten()
    positions, numbers = groups.positions.numpy(), groups.groups.numpy()
    firsts = np.flatnonzero(np.diff(numbers, prepend=-1))
    lasts = np.append(firsts[1:], len(numbers)) - 1
    lengths = words[positions[lasts]] - words[positions[firsts]] + 1
    columns = positions % 1500
    inner = (columns[firsts] > 1) & (columns[lasts] < 1498)  # spans at the ends of rows may be truncated
    found = np.bincount(lengths[inner], minlength=max_length + 1)[1:]
    assert found.size == max_length
    if policy == "ngram":
        expected = np.array([1 / n for n in range(1, max_length + 1)])
    else:
        expected = np.array([0.2 * 0.8 ** (n - 1) for n in range(1, max_length + 1)])
    assert chisquare(found, expected / expected.sum() * found.sum()).pvalue > MIN_P_VALUE
    assert np.allclose(span_length_probabilities(policy, max_length), expected / expected.sum())


@pytest.mark.parametrize("policy", POLICIES)
def test_the_chosen_become_masks_random_tokens_or_stay(policy: str) -> None:
    recipe = Masking(policy=policy, max_length=10)  # type: ignore[arg-type]
    batch = rows_of(400, 258, np.random.default_rng(5), word=3, vocabulary=300)
    before = batch.ids.clone().flatten()
    groups, flags = chosen(batch, recipe)
    mask_tokens(batch, groups, recipe, 300, np.random.default_rng(6))
    after = batch.ids.flatten()
    assert torch.equal(after[~torch.from_numpy(flags).flatten()], before[~torch.from_numpy(flags).flatten()])
    old, new = before[groups.positions], after[groups.positions]
    masked, stayed = new == MASK, new == old
    assert int(new[~masked].min()) >= 5
    assert int(new.max()) < 300
    if policy != "span":
        changed = 0.1 * 294 / 295  # a random token may be the one that was there
        counts = [int(masked.sum()), int(stayed.sum()), int((~masked & ~stayed).sum())]
        expected = np.array([0.8, 0.2 - changed, changed]) * len(new)
        assert chisquare(counts, expected).pvalue > MIN_P_VALUE
        drawn = np.bincount(new[~masked & ~stayed].numpy(), minlength=300)[5:]
        assert chisquare(drawn).pvalue > MIN_P_VALUE
        return
    firsts = np.flatnonzero(np.diff(groups.groups.numpy(), prepend=-1))
    kinds = np.where(masked, 0, np.where(stayed, 1, 2))
    spans = np.split(kinds, firsts[1:])
    assert all(np.all(span == 0) or np.all(span != 0) for span in spans)  # one kind to a span
    whole = [0 if span[0] == 0 else 1 if np.all(span == 1) else 2 for span in spans]
    assert chisquare(np.bincount(whole, minlength=3), np.array([0.8, 0.1, 0.1]) * len(spans)).pvalue > MIN_P_VALUE


@given(
    rows=st.lists(st.lists(st.integers(0, 12), min_size=7, max_size=7), min_size=1, max_size=6),
    words=st.integers(0, 2**7 - 1),
    policy=st.sampled_from(POLICIES),
    rate=st.sampled_from([0.01, 0.15, 0.5, 0.99]),
    max_length=st.integers(1, 12),
    seed=st.integers(0, 5),
)
def test_arbitrary_rows(
    rows: list[list[int]], words: int, policy: str, rate: float, max_length: int, seed: int
) -> None:
    """Special tokens are not chosen, words are whole, positions are sorted and distinct."""
    ids = torch.tensor(rows)
    starts = torch.tensor([[bool(words >> position & 1) for position in range(7)]] * len(rows))
    batch = Batch(ids, starts)
    recipe = Masking(policy=policy, rate=rate, max_length=max_length)  # type: ignore[arg-type]
    groups, flags = chosen(batch, recipe, seed)
    positions = groups.positions.numpy()
    assert np.all(np.diff(positions) > 0)
    assert not np.isin(ids.flatten()[groups.positions].numpy(), [PAD, BOS, EOS, MASK]).any()
    steps = np.diff(groups.groups.numpy(), prepend=-1)
    assert np.isin(steps, [0, 1]).all()
    assert steps[:1].sum() == len(steps[:1])
    assert np.all(np.diff(positions)[steps[1:] == 0] == 1)  # a group is a run of positions
    text = ((ids >= 5) | (ids == UNK)).numpy()
    if policy != "token":
        for row, flagged in zip(text, flags, strict=True):
            for position in range(1, 7):
                if row[position] and row[position - 1] and not starts[0, position]:
                    assert flagged[position] == flagged[position - 1]
    if policy == "token":
        counts, sizes = flags.sum(axis=1), text.sum(axis=1)
        assert np.all(np.abs(counts - rate * sizes) < 1)


@pytest.mark.parametrize("policy", POLICIES)
def test_the_noise_of_a_row_is_its_own(policy: str) -> None:
    recipe = Masking(policy=policy)  # type: ignore[arg-type]
    batch = rows_of(12, 60, np.random.default_rng(7), word=2)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(0))[:7]
    assert batch.row_seeds is not None
    other = Batch(batch.ids[order], batch.word_starts[order], row_seeds=batch.row_seeds[order])
    results = []
    for one in (batch, other):
        rng = np.random.default_rng(8)
        mask_tokens(one, choose_positions(one, recipe, rng), recipe, 500, rng)
        results.append(one.ids)
    assert torch.equal(results[0][order], results[1])
    again = rows_of(12, 60, np.random.default_rng(7), word=2)
    rng = np.random.default_rng(9)
    mask_tokens(again, choose_positions(again, recipe, rng), recipe, 500, rng)
    assert not torch.equal(again.ids, results[0])


def test_a_vocabulary_of_special_tokens_alone_has_no_random_ones() -> None:
    batch = Batch(torch.full((20, 20), UNK), torch.ones((20, 20), dtype=torch.bool))
    recipe = replace(Masking(), mask=0.0, random=1.0)
    rng = np.random.default_rng(0)
    mask_tokens(batch, choose_positions(batch, recipe, rng), recipe, 5, rng)
    assert torch.all(batch.ids == UNK)


# Sentences segmented by hand. Chinese words have several characters, which a segmenter has to find.
ENGLISH = [["The", "unbelievably", "long", "e-mails", "don't", "stop", ",", "3.14", "times", "!"]]
CHINESE = [
    ["我们", "喜欢", "研究", "自然语言", "处理", "，", "因为", "语言", "很", "有意思", "。"],
    ["他", "说", "：", "“", "今天", "天气", "不错", "！", "”"],
]


def labelled_batch(model: str, sentences: list[list[str]], joint: str) -> tuple[Batch, list[list[int]]]:
    """Sentences encoded by a trained tokenizer, one per row, and the word of each token by hand."""
    texts = [joint.join(words) for words in sentences]
    recipe = TokenizerRecipe(model=model, vocab_size=None if model == "chars" else 80, min_count=1)  # type: ignore[arg-type]
    tokenizer = train_tokenizer(recipe, read_corpus([texts]))
    rows, words = [], []
    for text, marked in zip(texts, sentences, strict=True):
        ends = np.cumsum([len(word) for word in marked])  # spaces left out
        tokens = tokenizer.encode(text)
        characters = np.cumsum([not character.isspace() for character in text])
        last = [int(characters[end - 1]) - 1 if end else 0 for _, end in tokens.offsets]
        words.append([int(np.searchsorted(ends, position, side="right")) for position in last])
        rows.append(tokens)
    width = max(len(row.ids) for row in rows)
    ids = [row.ids + [PAD] * (width - len(row.ids)) for row in rows]
    starts = [row.word_starts + [True] * (width - len(row.ids)) for row in rows]
    return Batch(torch.tensor(ids), torch.tensor(starts)), words


@pytest.mark.parametrize("policy", ["word", "ngram", "span"])
@pytest.mark.parametrize(
    ("model", "sentences", "joint"), [("wordpiece", ENGLISH, " "), ("wordpiece", CHINESE, ""), ("chars", CHINESE, "")]
)
def test_annotated_words_are_masked_whole(model: str, sentences: list[list[str]], joint: str, policy: str) -> None:
    batch, words = labelled_batch(model, sentences, joint)
    split = 0
    for seed in range(40):
        _, flags = chosen(batch, Masking(policy=policy), seed)  # type: ignore[arg-type]
        for row, numbers in zip(flags, words, strict=True):
            for word in set(numbers):
                inside = row[: len(numbers)][np.array(numbers) == word]
                assert inside.all() or not inside.any()
                split += int(inside.size > 1 and inside.all())
    assert split > 0  # words of several tokens were among them
    tokens = [chosen(batch, Masking(), seed)[1] for seed in range(40)]
    assert any(
        0 < flags[0][: len(words[0])][np.array(words[0]) == word].mean() < 1 for flags in tokens for word in words[0]
    )  # single tokens do not keep words whole
