"""Skip-gram, continuous bag of words and subwords: whole blocks against the twin, and every objective's derivatives."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest

from firth.artifact.restore import restore
from firth.errors import CorpusError, RecipeError
from firth.text.corpus import read_corpus
from firth.tokens.tokenizer import FIRST_WORD
from firth.vectors import word2vec
from firth.vectors.job import VectorJob
from firth.vectors.recipe import Word2vecRecipe
from firth.vectors.sampling import noise_distribution
from firth.vectors.subwords import SubwordModel, ngram_buckets
from firth.vectors.tables import random_table, row_stride, table_from_matrix, zero_table
from firth.vectors.text import TrainingText
from firth.vectors.word2vec import Word2vecTrainer, resolve_buckets, resolve_defaults, train_word2vec
from tests.vectors.slow_word2vec import Matrix, Window, sigmoid, slow_block, subwords_of, windows_of
from tests.vectors.word_groups import class_words, job_of, nearness, no_special_rows, text_of

ARCHITECTURES = ("skipgram", "cbow")
LOSSES = get_args(get_type_hints(Word2vecRecipe)["loss"])
SUBWORDS = {"words": {"buckets": 0}, "subwords": {"min_n": 2, "max_n": 4, "buckets": 60}}
KINDS = list(itertools.product(ARCHITECTURES, LOSSES, SUBWORDS))


def recipe_of(architecture: str, loss: str, made_of: str, **settings: Any) -> Word2vecRecipe:
    options: dict[str, Any] = {"dimension": 12, "window": 3, "negatives": 4, "subsample": 0.05} | SUBWORDS[made_of]
    return Word2vecRecipe(architecture=architecture, loss=loss, **options | settings)  # type: ignore[arg-type]


def blocks_of(recipe: Word2vecRecipe, text: TrainingText, seed: int = 1) -> Word2vecTrainer:
    """Blocks whose tables are full of numbers that make each step matter."""
    blocks = Word2vecTrainer(recipe, text, seed)
    rng = np.random.default_rng(seed)
    for table in blocks.tables:
        table.matrix()[:] = 0.3 * rng.normal(size=table.matrix().shape)
    return blocks


def matrices(blocks: Word2vecTrainer) -> tuple[Matrix, Matrix]:
    return blocks.inputs.matrix().astype(np.float64), blocks.outputs.matrix().astype(np.float64)


@pytest.fixture(scope="module")
def text() -> TrainingText:
    """Sentences of up to thirty words, some special tokens, and words that do not occur."""
    rng = np.random.default_rng(0)
    return text_of([(3 + 35 * rng.random(rng.integers(1, 30)) ** 2).astype(int).tolist() for _ in range(40)], 41)


@pytest.mark.parametrize("mode", ["fast", "exact"])
@pytest.mark.parametrize(("architecture", "loss", "made_of"), KINDS)
def test_a_block_is_trained_as_by_the_reference(
    text: TrainingText, architecture: str, loss: str, made_of: str, mode: str
) -> None:
    recipe = recipe_of(architecture, loss, made_of, mode=mode)
    blocks = blocks_of(recipe, text)
    inputs, outputs = matrices(blocks)
    for epoch in range(2):
        plan = blocks.plan(epoch, 0)
        expected = slow_block(recipe, plan.content, inputs, outputs, 0.05)
        loss_found, examples = blocks.train_block(plan, 0.05)
        assert examples == expected[1] > 300
        assert loss_found == pytest.approx(expected[0], rel=1e-6)
        np.testing.assert_allclose(blocks.inputs.matrix(), inputs, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(blocks.outputs.matrix(), outputs, rtol=1e-5, atol=1e-5)
    for table in blocks.tables:
        assert np.all(table.weights.reshape(table.rows, -1)[:, table.dimension :] == 0)


def losses_of(blocks: Word2vecTrainer, content: Any, window: Window, vectors: Matrix, outputs: Matrix) -> float:
    """The loss of one window by the papers' formulas, given a vector for each position in the block."""
    recipe, word = blocks.recipe, content.words[window.middle]
    givens = vectors[window.around]
    if recipe.architecture == "cbow":
        givens = givens.mean(axis=0, keepdims=True)
    if recipe.loss == "softmax":  # -log of exp(s) over the sum for all words
        scores = givens @ outputs[FIRST_WORD:].T
        return float((np.log(np.exp(scores).sum(axis=1)) - scores[:, word - FIRST_WORD]).sum())
    targets = content.targets[content.target_starts[window.middle] : content.target_starts[window.middle + 1]]
    scores = givens @ outputs[targets].T
    if recipe.loss == "hierarchical":  # each node goes to the right with probability sigmoid(s)
        assert blocks.tree is not None
        way = slice(*blocks.tree.starts[word : word + 2])
        assert np.array_equal(targets, blocks.tree.nodes[way])
        right = blocks.tree.codes[way].astype(bool)
        return float(-np.log(sigmoid(np.where(right, scores, -scores))).sum())
    if recipe.loss == "nce":  # the odds of the word against k noise words are exp(s) / V to k q(w)
        noise = noise_distribution(blocks.text.counts, recipe.ns_exponent)
        distinct = np.count_nonzero(blocks.text.counts)
        assert isinstance(recipe.negatives, int)
        scores = scores - np.log(recipe.negatives * distinct * noise[targets])
    assert targets[0] == word
    return float(-np.log(sigmoid(scores[:, 0])).sum() - np.log(sigmoid(-scores[:, 1:])).sum())


def slopes_of(blocks: Word2vecTrainer, content: Any, window: Window, vectors: Matrix, outputs: Matrix) -> list[Matrix]:
    """The derivatives of a window's loss by all vectors and outputs, by central differences."""
    h, found = 1e-5, []
    for values in (vectors, outputs):
        slope = np.empty_like(values)
        for position in np.ndindex(values.shape):
            old = values[position]
            values[position] = old + h
            above = losses_of(blocks, content, window, vectors, outputs)
            values[position] = old - h
            below = losses_of(blocks, content, window, vectors, outputs)
            values[position], slope[position] = old, (above - below) / (2 * h)
        found.append(slope)
    return found


@pytest.mark.parametrize(("architecture", "loss", "made_of"), KINDS)
def test_a_small_step_follows_the_gradient_of_the_loss(architecture: str, loss: str, made_of: str) -> None:
    """Minus the derivative for every output, and for the inputs of skip-gram.

    Where inputs are a mean, of the words around or of a word's parts, each gets the whole step that the mean should
    make, as in the programs of the papers' authors: as many times its derivative as there are in the mean.
    """
    recipe = recipe_of(architecture, loss, made_of, dimension=3, window=2, negatives=2, subsample=0.0, mode="fast")
    short = text_of([[5, 6, 7, 6, 8], [9, 5, 5]], 10)
    blocks = blocks_of(recipe, short)
    content = blocks.plan(0, 0).content
    inputs, outputs = matrices(blocks)
    vectors = np.stack([inputs[subwords_of(content, position)].mean(axis=0) for position in range(8)])
    expected = [np.zeros_like(inputs), np.zeros_like(outputs)]
    total = 0.0
    for window in itertools.chain(*windows_of(content)):
        total += losses_of(blocks, content, window, vectors, outputs)
        by_vectors, by_outputs = slopes_of(blocks, content, window, vectors, outputs)
        expected[1] -= by_outputs
        for position in window.around:
            whole = by_vectors[position] * (len(window.around) if architecture == "cbow" else 1)
            np.subtract.at(expected[0], subwords_of(content, position), whole)
    moved = []
    for lr in (1e-3, -1e-3):
        blocks = blocks_of(recipe, short)
        blocks.train_block(blocks.plan(0, 0), lr)
        moved.append(matrices(blocks))
    for above, below, slope in zip(*moved, expected, strict=True):
        np.testing.assert_allclose((above - below) / 2e-3, slope, atol=5e-4)
    assert blocks_of(recipe, short).train_block(blocks.plan(0, 0), 0.0)[0] == pytest.approx(total, rel=1e-6)


def test_the_tree_gives_all_words_together_a_probability_of_one(text: TrainingText) -> None:
    blocks = blocks_of(recipe_of("skipgram", "hierarchical", "words"), text)
    assert blocks.tree is not None
    inputs, outputs = matrices(blocks)
    total = 0.0
    for word in np.flatnonzero(text.counts):
        way = slice(*blocks.tree.starts[word : word + 2])
        scores = outputs[blocks.tree.nodes[way]] @ inputs[7]
        total += np.prod(sigmoid(np.where(blocks.tree.codes[way] == 1, scores, -scores)))
    assert total == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_first_loss_is_that_of_knowing_nothing(text: TrainingText, architecture: str) -> None:
    """All outputs are zero in the beginning, so every answer has one half, or one in as many as there are words."""
    tiny = {"lr": 1e-30, "epochs": 2, "subsample": 0.0}
    job = job_with(text)
    found = train_word2vec(recipe_of(architecture, "negative", "words", **tiny), job).metrics["losses"]
    assert found == pytest.approx([5 * math.log(2)] * 2, rel=1e-6)
    found = train_word2vec(recipe_of(architecture, "softmax", "subwords", **tiny), job).metrics["losses"]
    assert found == pytest.approx([math.log(len(text.words) - FIRST_WORD)] * 2, rel=1e-6)
    recipe = recipe_of("cbow", "hierarchical", "words", **tiny)
    tree = Word2vecTrainer(recipe, text, 0).tree
    assert tree is not None
    long_enough = [s for s in np.split(text.ids, text.sentences[1:-1].astype(int)) if np.sum(s >= FIRST_WORD) > 1]
    words = np.concatenate(long_enough)
    depth = np.diff(tree.starts)[words[words >= FIRST_WORD]].mean()
    assert train_word2vec(recipe, job).metrics["losses"] == pytest.approx([depth * math.log(2)] * 2, rel=1e-6)


def job_with(text: TrainingText, **options: Any) -> VectorJob:
    """A job for a text of ids; its tokenizer has as many words."""
    made = job_of(read_corpus([[f"w{word}" for word in range(FIRST_WORD, len(text.words))]], layout="lines"))
    assert len(made.text.words) == len(text.words)
    return replace(made, text=text, **options)


def test_trained_weights_are_in_the_model(text: TrainingText) -> None:
    for made_of in SUBWORDS:
        recipe = recipe_of("skipgram", "negative", made_of, lr=0.05, epochs=3)
        job = job_with(text)
        result = train_word2vec(recipe, job)
        model, counts = result.model, text.counts
        assert np.array_equal(model.counts, counts)
        assert no_special_rows(model)
        assert np.all(model.outputs[:FIRST_WORD] == 0)
        assert np.all(model.outputs[counts > 0] != 0)
        assert result.tokens == 3 * len(text.ids)
        assert result.metrics["loss"] == result.metrics["losses"][-1] < result.metrics["losses"][0]
        assert result.metrics["vocabulary"] == len(text.words) - FIRST_WORD
        again = restore(model.recipe, model.arrays(), job.tokenizer, job.layout)
        assert np.array_equal(again.vectors, model.vectors)
        assert np.array_equal(again.outputs, model.outputs)


def test_a_word_is_the_mean_of_its_subwords() -> None:
    sentences = ["the cat sat on the mat", "the catfish sat on the catfish", "a cat is a cat"]
    recipe = Word2vecRecipe(min_n=3, max_n=4, buckets=50, dimension=4, negatives=2)
    job = job_of(read_corpus([sentences], layout="lines"))
    model = train_word2vec(recipe, job).model
    assert isinstance(model, SubwordModel)
    for word in ("cat", "catfish", "a"):
        _, rows = ngram_buckets([word], 3, 4, 50)
        own = model.own[model.row(word)]
        np.testing.assert_allclose(model.vector(word), np.vstack([own, model.ngrams[rows]]).mean(axis=0), atol=1e-6)
    _, rows = ngram_buckets(["cats"], 3, 4, 50)
    np.testing.assert_allclose(model.vector("cats"), model.ngrams[rows].mean(axis=0), atol=1e-6)
    blocks = Word2vecTrainer(recipe, job.text, 0)
    assert blocks.subwords is not None
    starts, parts = blocks.subwords
    word = job.text.words.index("catfish")
    _, rows = ngram_buckets(["catfish"], 3, 4, 50)
    assert parts[starts[word] : starts[word + 1]].tolist() == [word, *(len(job.text.words) + rows)]


def test_defaults_are_resolved_by_the_text() -> None:
    recipe = Word2vecRecipe()
    sizes = [10, 1_000_000, 1_000_001, 5_000_001, 10**9, 10**9 + 1]
    assert [resolve_defaults(recipe, size).negatives for size in sizes] == [15, 15, 10, 5, 5, 2]
    assert [resolve_defaults(recipe, size).epochs for size in (10, 10_000, 1_000_000, 10**9)] == [1000, 500, 5, 5]
    chosen = Word2vecRecipe(epochs=3, negatives=7, lr=0.1)
    assert resolve_defaults(chosen, 10) == chosen
    for kind in ARCHITECTURES:
        lr = resolve_defaults(Word2vecRecipe(architecture=kind), 10).lr  # type: ignore[arg-type]
        assert isinstance(lr, float)
    assert resolve_buckets(recipe, ["word"]).buckets == 0
    many = [f"{number:06d}" for number in range(5000)]
    resolved = resolve_buckets(Word2vecRecipe(min_n=6, max_n=8), many).buckets
    distinct = len({f"<{word}>"[i : i + n] for word in many for n in (6, 7, 8) for i in range(9 - n)})
    assert isinstance(resolved, int)
    assert 1.9 * distinct < resolved < 2.1 * distinct + 1000
    assert resolve_buckets(Word2vecRecipe(min_n=3, max_n=3, buckets=9), many).buckets == 9


def test_special_tokens_and_words_that_do_not_occur_are_never_touched(text: TrainingText) -> None:
    assert np.any(text.ids < FIRST_WORD)
    assert text.counts[-1] == 0
    for architecture, loss in itertools.product(ARCHITECTURES, ("negative", "nce")):
        blocks = blocks_of(recipe_of(architecture, loss, "words"), text)
        before = matrices(blocks)
        blocks.train_block(blocks.plan(0, 0), 0.1)
        untouched = np.flatnonzero(text.counts == 0)
        for old, new in zip(before, matrices(blocks), strict=True):
            assert np.array_equal(old[untouched], new[untouched])
            assert not np.array_equal(old, new)


def test_texts_that_are_too_small_are_refused() -> None:
    recipe = Word2vecRecipe(dimension=4)
    with pytest.raises(CorpusError, match="min_count"):
        train_word2vec(recipe, job_with(text_of([[5, 5, 5]], 8)))
    with pytest.raises(CorpusError, match="min_count"):
        train_word2vec(recipe, job_with(text_of([[1, 1], []], 8)))
    with pytest.raises(CorpusError, match="windows of 5"):
        train_word2vec(recipe, job_with(text_of([[5, 6]], 8)))
    result = train_word2vec(replace(recipe, epochs=1), job_with(text_of([[5], [6]] * 5, 8)))
    assert result.metrics["loss"] == 0, "there are no pairs to train on"


def test_full_softmax_over_too_many_words_is_refused(text: TrainingText, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word2vec, "_MAX_SOFTMAX", 40)
    with pytest.raises(RecipeError, match=r"all 41 words .* set loss=negative"):
        train_word2vec(recipe_of("cbow", "softmax", "words"), job_with(text))


@pytest.mark.parametrize("dimension", [1, 7, 8, 16, 17, 100])
def test_tables_are_padded_with_zeros(dimension: int) -> None:
    table = random_table(70, dimension, seed=3, first=5, spare=4)
    assert table.matrix().shape == (70, dimension)
    assert table.stride == row_stride(dimension) >= table.width >= dimension
    assert table.stride % 16 == table.width % 8 == 0
    assert table.flat.size == 74 * table.stride
    assert table.flat.ctypes.data % 64 == 0
    assert np.count_nonzero(table.flat) == np.count_nonzero(table.matrix()) == 65 * dimension
    assert np.abs(table.matrix()).max() <= 1.0 / dimension
    assert np.abs(table.matrix()).max() > 0.9 / dimension
    assert np.array_equal(table_from_matrix(table.matrix()).weights, table.weights)
    assert not zero_table(3, dimension, 2).flat.any()


def test_a_row_does_not_depend_on_how_many_follow() -> None:
    few, many = random_table(70_000, 2, seed=3), random_table(140_000, 2, seed=3)
    assert np.array_equal(few.matrix()[: 1 << 16], many.matrix()[: 1 << 16])
    assert not np.array_equal(few.matrix(), random_table(70_000, 2, seed=4).matrix())
    assert np.unique(many.matrix(), axis=0).shape[0] == 140_000


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_small_text_gets_enough_epochs(architecture: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """In five of them nothing is learnt: all cosines are the same."""
    documents = [document.sentences for document in itertools.islice(read_corpus("builtin:oracle"), 120)]
    job = job_of(read_corpus(documents))
    recipe = Word2vecRecipe(architecture=architecture, dimension=16)
    model = train_word2vec(recipe, job).model
    assert model.recipe.epochs == math.ceil(5_000_000 / job.text.total) > 500
    assert f"chosen: {model.recipe.epochs} epochs for 8,545 words of text" in capsys.readouterr().err
    known = [[word for word in words if word in job.text.words] for words in class_words()]
    within, between = nearness(model, known)
    assert within > between + 0.2
    within, between = nearness(train_word2vec(replace(recipe, epochs=5), job).model, known)
    assert abs(within - between) < 0.05
    train_word2vec(recipe, replace(job, tokens=1000))
    assert "chosen" not in capsys.readouterr().err, "a budget decides"
