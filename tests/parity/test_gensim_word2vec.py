"""Skip-gram and CBOW compared with gensim: single steps, tables, and vectors of real text."""

from __future__ import annotations

import gzip
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from gensim.models import Word2Vec
from scipy import stats

from firth.text.corpus import read_corpus
from firth.tokens.tokenizer import FIRST_WORD
from firth.vectors.recipe import Word2vecRecipe
from firth.vectors.sampling import huffman_tree, noise_distribution
from firth.vectors.text import TrainingText
from firth.vectors.word2vec import Word2vecTrainer, train_word2vec
from tests.vectors import slow_word2vec
from tests.vectors.slow_word2vec import sigmoid
from tests.vectors.word_groups import job_of, text_of

ARCHITECTURES = ("skipgram", "cbow")
Matrix = npt.NDArray[np.float64]


@pytest.fixture(scope="module")
def small() -> TrainingText:
    """Twelve words, each twice as frequent as the next, so that there is only one Huffman tree."""
    words = [FIRST_WORD + word for word in range(12) for _ in range(1 << (11 - word))]
    shuffled = np.random.default_rng(0).permutation(words).tolist()
    return text_of([shuffled[begin : begin + 9] for begin in range(0, len(shuffled), 9)], 17)


def sentences_of(text: TrainingText) -> list[list[str]]:
    """The words of each sentence."""
    return [
        [text.words[word] for word in text.ids[begin:end]]
        for begin, end in itertools.pairwise(text.sentences.astype(int).tolist())
    ]


def gensim_model(text: TrainingText, **settings: Any) -> Word2Vec:
    """A model that has been built and not yet trained."""
    options: dict[str, Any] = {"min_count": 1, "sample": 0, "workers": 1, "shrink_windows": False} | settings
    model = Word2Vec(**options)
    model.build_vocab(sentences_of(text))
    return model


def gensim_sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x)) as in gensim and word2vec.c, from a table of 1000 numbers.

    1000 / 6 / 2 is 83 in whole numbers, so the table is read up to 0.036 below x.
    """
    indices = np.floor((np.asarray(x, dtype=np.float64) + 6) * 83)
    return sigmoid((indices / 1000 * 2 - 1) * 6)


def nodes_of(theirs: Word2Vec, ours: Word2vecTrainer) -> list[int]:
    """The node of gensim for each of ours: the trees and codes are the same."""
    found: dict[int, int] = {}
    assert ours.tree is not None
    starts, nodes, codes = ours.tree
    for word, name in enumerate(ours.text.words[FIRST_WORD:], FIRST_WORD):
        mine = slice(starts[word], starts[word + 1])
        assert codes[mine].tolist() == theirs.wv.get_vecattr(name, "code").tolist()
        for node, point in zip(nodes[mine].tolist(), theirs.wv.get_vecattr(name, "point").tolist(), strict=True):
            assert found.setdefault(node, point) == point
    return [found[node] for node in range(len(found))]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("window", [1, 2, 5])
def test_steps_of_hierarchical_softmax_are_gensims(
    small: TrainingText, architecture: str, window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without randomness the NumPy reference of our kernels equals gensim, if it uses gensim's table of sigmoids.

    gensim's code 0 is the positive class, so its nodes have the opposite sign. The learning rate is so small that the
    order of steps within a window does not matter.
    """
    rate = 1e-4
    recipe = Word2vecRecipe(
        architecture=architecture, loss="hierarchical", window=window, dimension=10, subsample=0.0,
        dynamic_window=False, negatives=1, buckets=0, mode="fast",
    )  # fmt: skip
    ours = Word2vecTrainer(recipe, small, 0)
    theirs = gensim_model(
        small, vector_size=10, window=window, sg=int(architecture == "skipgram"), hs=1, negative=0, cbow_mean=1
    )
    rows = [theirs.wv.key_to_index[word] for word in small.words[FIRST_WORD:]]
    points = nodes_of(theirs, ours)
    inputs, outputs = 0.5 * np.random.default_rng(1).normal(size=(2, 17, 10)).astype(np.float32)
    theirs.wv.vectors[rows], theirs.syn1[points] = inputs[FIRST_WORD:], -outputs[: len(points)]
    sentences = sentences_of(small)
    theirs.train(sentences, total_examples=len(sentences), epochs=1, start_alpha=rate, end_alpha=rate)

    def train_reference() -> tuple[Matrix, Matrix]:
        """The matrices after an epoch of the reference."""
        words, nodes = inputs.astype(np.float64), outputs.astype(np.float64)
        for block in range(ours.num_blocks):
            slow_word2vec.slow_block(recipe, ours.plan(0, block).content, words, nodes, rate)
        return words, nodes

    ours.inputs.matrix()[:], ours.outputs.matrix()[:] = inputs, outputs
    for block in range(ours.num_blocks):
        ours.train_block(ours.plan(0, block), rate)
    words, nodes = train_reference()
    np.testing.assert_allclose(ours.inputs.matrix(), words, atol=3e-5)
    np.testing.assert_allclose(ours.outputs.matrix(), nodes, atol=3e-5)
    with monkeypatch.context() as patch:
        patch.setattr(slow_word2vec, "sigmoid", lambda x: 1 - gensim_sigmoid(-x))
        words, nodes = train_reference()
    np.testing.assert_allclose(theirs.wv.vectors[rows], words[FIRST_WORD:], atol=3e-5)
    np.testing.assert_allclose(-theirs.syn1[points], nodes[: len(points)], atol=3e-5)
    assert np.abs(words - inputs).max() > 0.01


def test_huffman_codes_are_as_short_as_gensims() -> None:
    counts = np.random.default_rng(3).zipf(1.5, 400) % 1000 + 1
    text = text_of([[FIRST_WORD + word] * int(count) for word, count in enumerate(counts)], FIRST_WORD + 400)
    theirs = gensim_model(text, vector_size=2, hs=1, negative=0)
    length = sum(
        int(count) * len(theirs.wv.get_vecattr(word, "code"))
        for word, count in zip(text.words[FIRST_WORD:], counts, strict=True)
    )
    tree = huffman_tree(text.counts)
    assert (np.diff(tree.starts) * text.counts).sum() == length


@pytest.mark.parametrize("power", [0.75, 0.5])
def test_the_noise_distribution_is_that_of_gensim(power: float) -> None:
    counts = np.random.default_rng(3).zipf(1.5, 400) % 1000 + 1
    text = text_of([[FIRST_WORD + word] * int(count) for word, count in enumerate(counts)], FIRST_WORD + 400)
    theirs = gensim_model(text, vector_size=2, negative=5, ns_exponent=power)
    frequencies = np.diff(theirs.cum_table, prepend=0) / theirs.cum_table[-1]
    rows = [theirs.wv.key_to_index[word] for word in text.words[FIRST_WORD:]]
    np.testing.assert_allclose(noise_distribution(text.counts, power)[FIRST_WORD:], frequencies[rows], atol=1e-8)


def word_pairs(path: Path) -> list[tuple[str, str, float]]:
    lines = path.read_text(encoding="utf-8").lower().splitlines()[1:]
    return [(one, two, float(score)) for one, two, score in (line.split("\t") for line in lines)]


def cosines(words: dict[str, Any], pairs: list[tuple[str, str, float]]) -> Matrix:
    found = [(words[one], words[two]) for one, two, _ in pairs]
    return np.array([a @ b / (np.linalg.norm(a) * np.linalg.norm(b)) for a, b in found])


@pytest.mark.shared
@pytest.mark.slow
@pytest.mark.parametrize(("architecture", "mode"), [("skipgram", "exact"), ("cbow", "exact")])
def test_vectors_of_real_text_are_as_good_as_gensims(
    shared_data: Path, tmp_path: Path, architecture: str, mode: str
) -> None:
    """MEN, with the same text and settings: not worse than gensim by more than two standard errors.

    One worker makes gensim deterministic; 3,000 pairs, since with 353 seeds alone differ by 0.06.
    """
    with gzip.open(shared_data / "lm" / "wiki_en.txt.gz", "rt", encoding="utf-8") as file:
        (tmp_path / "wiki.txt").write_text("".join(itertools.islice(file, 25_000)), encoding="utf-8")
    rate = 0.025 if architecture == "skipgram" else 0.05
    recipe = Word2vecRecipe(
        architecture=architecture,
        mode=mode,
        epochs=5,
        negatives=5,
        subsample=1e-3,
        lr=rate,
        subsample_rule="program",
    )  # type: ignore[arg-type]
    job = job_of(read_corpus(tmp_path / "wiki.txt"), recipe.tokenizer, threads=2)
    text = job.text
    assert text.total > 800_000
    theirs = Word2Vec(
        vector_size=100, window=5, min_count=1, sample=1e-3, workers=1, sg=int(architecture == "skipgram"),
        negative=5, alpha=rate, seed=1,
    )  # fmt: skip
    known = set(text.words[FIRST_WORD:])
    sentences = [[word for word in sentence if word in known] for sentence in sentences_of(text)]
    theirs.build_vocab(sentences)
    theirs.train(sentences, total_examples=len(sentences), epochs=5)
    model = train_word2vec(recipe, job).model
    pairs = [p for p in word_pairs(shared_data / "words" / "men3000.tsv") if {p[0], p[1]} <= known]
    gold = np.array([score for _, _, score in pairs])
    ours = cosines({word: model.vector(word) for pair in pairs for word in pair[:2]}, pairs)
    other = cosines({word: theirs.wv[word] for pair in pairs for word in pair[:2]}, pairs)
    rng = np.random.default_rng(0)
    gaps = [
        stats.spearmanr(ours[drawn], gold[drawn]).statistic - stats.spearmanr(other[drawn], gold[drawn]).statistic
        for drawn in (rng.integers(0, len(pairs), len(pairs)) for _ in range(300))
    ]
    gap = stats.spearmanr(ours, gold).statistic - stats.spearmanr(other, gold).statistic
    assert len(pairs) > 100
    assert stats.spearmanr(ours, gold).statistic > 0.1
    assert gap > -2 * np.std(gaps), (gap, np.std(gaps))
