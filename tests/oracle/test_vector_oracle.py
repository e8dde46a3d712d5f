"""Skip-gram, continuous bag of words and subwords against what is known of their texts."""

from __future__ import annotations

import itertools
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from firth.text.corpus import read_corpus
from firth.text.oracle import oracle_documents
from firth.tokens.tokenizer import FIRST_WORD
from firth.vectors.job import VectorJob, VectorResult
from firth.vectors.recipe import Mode, Word2vecRecipe
from firth.vectors.sampling import noise_distribution
from firth.vectors.word2vec import Word2vecTrainer, train_word2vec
from tests.vectors.slow_word2vec import sigmoid
from tests.vectors.word_groups import class_words, job_of, nearness, no_special_rows

KINDS: dict[str, dict[str, Any]] = {
    "skipgram": {},
    "cbow": {"architecture": "cbow"},
    "fasttext": {"min_n": 3, "max_n": 6},
}
MODES: tuple[Mode, ...] = ("exact", "fast")
LOSSES = ("negative", "hierarchical", "nce", "softmax")
Matrix = npt.NDArray[np.float64]


@cache
def oracle_text(name: str, documents: int) -> VectorJob:
    return job_of(read_corpus([document.text.split("\n") for document in oracle_documents(name, documents=documents)]))


@cache
def trained(kind: str, loss: str) -> VectorResult:
    """A model of 50,000 words of the English oracle."""
    settings: dict[str, Any] = {"dimension": 16, "window": 3, "subsample": 0.01, "epochs": 4, "negatives": 5}
    recipe = Word2vecRecipe(loss=loss, mode="fast", lr=0.1, **settings, **KINDS[kind])  # type: ignore[arg-type]
    return train_word2vec(recipe, oracle_text("english", 700))


def cosines(result: VectorResult) -> tuple[Matrix, Matrix]:
    """The cosines of all pairs of nouns, and whether their classes are the same."""
    groups = class_words()
    rows = np.stack([result.model.vector(word) for group in groups for word in group]).astype(np.float64)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    labels = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    return rows @ rows.T, labels[:, None] == labels


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("kind", KINDS)
def test_words_of_a_class_are_nearer_to_each_other(kind: str, loss: str) -> None:
    result = trained(kind, loss)
    assert no_special_rows(result.model)
    same, other = nearness(result.model, class_words())
    assert same > other + 0.2
    near, alike = cosines(result)
    np.fill_diagonal(near, -2)
    assert np.mean(alike[np.arange(len(near)), near.argmax(axis=1)]) > 0.9, "nearest neighbours share the class"
    losses = result.metrics["losses"]
    assert losses == sorted(losses, reverse=True)


@pytest.mark.parametrize("loss", LOSSES[:3])
@pytest.mark.parametrize("kind", KINDS)
def test_approximations_agree_with_full_softmax_on_who_is_near_whom(kind: str, loss: str) -> None:
    pairs = np.triu_indices(len(cosines(trained(kind, loss))[0]), 1)
    found, exact = (cosines(trained(kind, which))[0][pairs] for which in (loss, "softmax"))
    assert stats.spearmanr(found, exact).statistic > 0.7


@pytest.mark.parametrize("subsample", [0.01, 0.0])
@pytest.mark.parametrize("kind", KINDS)
def test_exact_mode_learns_about_as_much_as_fast_mode_from_few_kinds_of_words(kind: str, subsample: float) -> None:
    """All words come in every block here, so all blocks of a round pull the same rows."""
    job = oracle_text("english", 2000)
    settings: dict[str, Any] = {"dimension": 16, "window": 3, "epochs": 5, "negatives": 5, "subsample": subsample}
    settings |= KINDS[kind] | {"lr": 0.025}
    exact, fast = (train_word2vec(Word2vecRecipe(mode=mode, **settings), job) for mode in MODES)
    assert exact.metrics["loss"] < 1.15 * fast.metrics["loss"]
    same, other = nearness(exact.model, class_words())
    assert same > other + 0.05


def pair_shares(job: VectorJob) -> Matrix:
    """How often word w stands beside word c, as a share of all pairs [c, w], counted in plain Python."""
    counts = np.zeros((len(job.text.words),) * 2)
    for sentence in np.split(job.text.ids.astype(int), job.text.sentences[1:-1].astype(int)):
        for left, right in itertools.pairwise(sentence.tolist()):
            counts[left, right] += 1
            counts[right, left] += 1
    return counts / counts.sum()


@cache
def markov_model(loss: str) -> VectorResult:
    """Nine words, each known by its neighbours, with dimensions enough for any table of probabilities."""
    settings: dict[str, Any] = {"dimension": 16, "window": 1, "subsample": 0.0, "negatives": 1, "lr": 0.1}
    recipe = Word2vecRecipe(loss=loss, mode="fast", epochs=20, **settings)  # type: ignore[arg-type]
    return train_word2vec(recipe, oracle_text("markov1", 200))


def markov_scores(loss: str) -> Matrix:
    """The products of all input with all output vectors."""
    model = markov_model(loss).model
    return np.asarray(model.vectors.astype(np.float64) @ model.outputs.astype(np.float64).T)


def known_chances() -> Matrix:
    """The share of each word beside each word."""
    shares = pair_shares(oracle_text("markov1", 200))[FIRST_WORD:, FIRST_WORD:]
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))


def entropy() -> float:
    """Of a word given one beside it, in nats: no model of pairs can have a smaller loss."""
    shares = pair_shares(oracle_text("markov1", 200))
    given = shares / np.maximum(shares.sum(axis=1, keepdims=True), 1e-300)
    return float(-(shares[shares > 0] * np.log(given[shares > 0])).sum())


def test_full_softmax_learns_the_probabilities_of_neighbours() -> None:
    scores = markov_scores("softmax")[FIRST_WORD:, FIRST_WORD:]
    chances = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(chances, known_chances(), atol=0.05)
    assert entropy() - 1e-3 < markov_model("softmax").metrics["loss"] < 1.01 * entropy()


def test_the_tree_learns_the_probabilities_of_neighbours() -> None:
    job = oracle_text("markov1", 200)
    tree = Word2vecTrainer(Word2vecRecipe(loss="hierarchical", negatives=1, buckets=0), job.text, 0).tree
    assert tree is not None
    scores = markov_scores("hierarchical")
    chances = np.ones((len(job.text.words),) * 2)
    for word in range(FIRST_WORD, len(job.text.words)):
        for place in range(tree.starts[word], tree.starts[word + 1]):
            sign = 1 if tree.codes[place] else -1
            chances[:, word] *= sigmoid(sign * scores[:, tree.nodes[place]])
    np.testing.assert_allclose(chances[FIRST_WORD:, FIRST_WORD:], known_chances(), atol=0.05)
    assert entropy() - 1e-3 < markov_model("hierarchical").metrics["loss"] < 1.01 * entropy()


@pytest.mark.parametrize("loss", ["negative", "nce"])
def test_noise_is_told_from_words_as_well_as_can_be(loss: str) -> None:
    """The best answer is the odds of a pair being true: its share, to that of the noise that stands in for the word.

    Noise is never the word itself, so word n is drawn in place of w with probability q(n) / (1 - q(w)).
    """
    job = oracle_text("markov1", 200)
    shares = pair_shares(job)
    noise = noise_distribution(job.text.counts, 0.75)
    instead = noise / (1 - noise[:, None])
    np.fill_diagonal(instead, 0)
    drawn = shares @ instead
    with np.errstate(divide="ignore", invalid="ignore"):
        best = np.log(shares / drawn)
        if loss == "nce":
            best += np.log(noise * np.count_nonzero(noise))
    kept = shares > 0.002
    assert np.count_nonzero(kept) > 30
    np.testing.assert_allclose(markov_scores(loss)[kept], best[kept], atol=0.3)
    assert np.corrcoef(markov_scores(loss)[kept], best[kept])[0, 1] > 0.98
    truth = shares / np.maximum(shares + drawn, 1e-300)
    least = -(shares * np.log(np.maximum(truth, 1e-300)) + drawn * np.log(np.maximum(1 - truth, 1e-300))).sum()
    assert markov_model(loss).metrics["loss"] == pytest.approx(least, rel=0.01)
