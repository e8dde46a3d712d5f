"""Mixtures: adaptive weights, document clustering, components and masks, saving and restoring."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from firth.artifact.restore import restore
from firth.counts import mixture
from firth.counts.em import em_weights
from firth.counts.mixture import (
    DECAY_FACTORS,
    PRIOR_STRENGTHS,
    WINDOW,
    MixtureModel,
    MixtureRecipe,
    cluster_documents,
    token_probabilities,
    train_mixture,
)
from firth.counts.recipe import NgramRecipe
from firth.counts.train import train_on_sentences
from firth.errors import ArtifactError, RecipeError
from firth.lm.language_model import LanguageModel, TokenStream
from firth.text.corpus import read_corpus
from firth.tokens.build import open_store
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.store import TokenStore
from firth.tokens.tokenizer import EOS
from firth.tokens.train import train_tokenizer
from tests.oracle.slow_adaptive import TableModel, TableRecipe, histories, random_text, restore_table, small_tokenizer

_tokenizer = cache(small_tokenizer)
SUBJECTS = {
    "sport": ["match", "goal", "team", "striker", "league", "coach"],
    "law": ["court", "judge", "trial", "verdict", "appeal", "lawyer"],
    "food": ["bread", "soup", "oven", "butter", "salt", "dough"],
}


def recipe(**settings: Any) -> MixtureRecipe:
    return MixtureRecipe(**({"base": TableRecipe(), "prior_strength": 1.0, "decay_factor": 1.0} | settings))


def table(seed: int = 0) -> TableModel:
    return TableModel.random(_tokenizer(), seed)


def topical_documents(count: int, seed: int = 0, length: int = 6) -> tuple[list[list[str]], list[str]]:
    """Documents of one topic each, with common words in between, and their topics."""
    rng = np.random.default_rng(seed)
    documents, subjects = [], []
    for number in range(count):
        subject = list(SUBJECTS)[number % 3]
        words = SUBJECTS[subject]
        documents.append(
            [" ".join(["the", *rng.choice(words, 4), "and", *rng.choice(words, 2)]) for _ in range(length)]
        )
        subjects.append(subject)
    return documents, subjects


def store_of(documents: list[list[str]]) -> TokenStore:
    corpus = read_corpus(documents, layout="lines")
    return open_store(corpus, train_tokenizer(TokenizerRecipe(model="words"), corpus, 1), 1)


def of_documents(store: TokenStore, labels: npt.NDArray[np.int64]) -> list[int]:
    """The label of each document, the same for all of its sentences."""
    parts = np.split(labels, np.asarray(store.documents[1:-1], dtype=np.int64))
    assert all(np.unique(part).size == 1 for part in parts)
    return [int(part[0]) for part in parts]


def test_adaptive_weights_by_hand() -> None:
    """Two components with equal weights; the word has probability 0.3 in the first and 0.1 in the second."""
    parts = [table(), table()]
    for part, probability in zip(parts, (0.3, 0.1), strict=True):
        part.table[:] = 0
        part.table[:, 7] = probability
        part.table[:, EOS] = 1 - probability
    model = MixtureModel(recipe(prior_strength=2.0, decay_factor=0.5), parts, np.array([0.5, 0.5]))
    assert model.weights_after([]).tolist() == [0.5, 0.5]
    assert model.weights_after([7]).tolist() == pytest.approx([1.75 / 3, 1.25 / 3])
    second = (1.75 / 3 * 0.3, 1.25 / 3 * 0.1)
    explained = second[0] / sum(second)
    counts = (0.5 * 0.75 + explained, 0.5 * 0.25 + 1 - explained)
    assert model.weights_after([7, 7]).tolist() == pytest.approx([(1 + count) / 3.5 for count in counts])
    assert np.exp(model.token_logprobs(TokenStream.of([[7, 7]])))[:2].tolist() == pytest.approx([0.2, sum(second)])


@given(st.integers(0, 10_000), st.sampled_from([0.03, 1.0, 50.0]), st.sampled_from([1.0, 0.9, 0.0]), st.booleans())
def test_tokens_and_distributions_agree(seed: int, strength: float, keep: float, adapt: bool) -> None:
    parts = [table(seed), table(seed + 1), table(seed + 2)]
    model = MixtureModel(
        recipe(prior_strength=strength, decay_factor=keep, adapt=adapt), parts, np.array([0.7, 0.3, 0.0])
    )
    stream = random_text(seed, sentences=6)
    logs = model.token_logprobs(stream)
    for position, history in enumerate(histories(stream)):
        after = model.next_logprobs(history)
        assert np.exp(after).sum() == pytest.approx(1, abs=1e-9)
        assert after[[0, 2, 4]].tolist() == [-np.inf] * 3
        assert logs[position] == pytest.approx(after[stream.ids[position]], rel=1e-12)


def test_equal_components_are_one_model() -> None:
    one, stream = table(), random_text(1)
    model = MixtureModel(recipe(prior_strength=0.1, decay_factor=0.5), [one, one], np.array([0.2, 0.8]))
    assert model.token_logprobs(stream) == pytest.approx(one.token_logprobs(stream), rel=1e-12)
    assert model.weights_after(stream.ids.tolist()).sum() == pytest.approx(1)


def test_impossible_words_do_not_change_the_weights() -> None:
    one, two = table(1), table(2)
    one.table[:, 9] = two.table[:, 9] = 0
    model = MixtureModel(recipe(), [one, two], np.array([0.5, 0.5]))
    with np.errstate(divide="ignore"):
        assert model.token_logprobs(TokenStream.of([[9]]))[0] == -np.inf
        assert model.weights_after([9]).tolist() == [0.5, 0.5]


def test_the_only_component_with_a_word_gets_the_weight() -> None:
    one, two = table(1), table(2)
    one.table[:, 9] = 0
    model = MixtureModel(recipe(prior_strength=1.0), [one, two], np.array([0.9, 0.1]))
    with np.errstate(divide="ignore"):
        assert model.weights_after([9])[1] == pytest.approx((0.1 + 1) / 2)
        stays = MixtureModel(recipe(adapt=False), [one, two], np.array([0.9, 0.1]))
        assert stays.weights_after([9]).tolist() == [0.9, 0.1]


def test_documents_of_one_topic_are_clustered() -> None:
    documents, subjects = topical_documents(30)
    store = store_of(documents)
    labels = cluster_documents(store, 3, seed=0)
    assert labels.shape == (180,)
    pairs = set(zip(of_documents(store, labels), subjects, strict=True))
    assert len(pairs) == 3
    assert np.array_equal(labels, cluster_documents(store, 3, seed=0))
    assert np.array_equal(np.unique(labels), np.arange(3))


def test_the_largest_topic_comes_first() -> None:
    documents, subjects = topical_documents(30)
    of = {
        name: [document for document, its in zip(documents, subjects, strict=True) if its == name] for name in SUBJECTS
    }
    store = store_of(of["sport"][:2] + of["law"][:4] + of["food"])
    for seed in range(8):
        assert np.bincount(cluster_documents(store, 3, seed=seed)).tolist() == [60, 24, 12]


def test_clusters_of_a_sample_are_applied_to_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    documents, subjects = topical_documents(60)
    store = store_of(documents)
    monkeypatch.setattr(mixture, "_CLUSTERED_WINDOWS", 20)
    monkeypatch.setattr(mixture, "_BLOCK_TOKENS", 100)
    labels = cluster_documents(store, 3, seed=0)
    assert len(set(zip(of_documents(store, labels), subjects, strict=True))) == 3
    assert np.array_equal(labels, cluster_documents(store, 3, seed=0))


def test_one_long_document_is_cut() -> None:
    documents, _ = topical_documents(9, length=WINDOW)
    labels = cluster_documents(store_of([[line for document in documents for line in document]]), 3, seed=0)
    assert np.unique(labels).size == 3
    assert np.all(labels.reshape(9, WINDOW) == labels[::WINDOW, None])
    assert labels[::WINDOW].tolist() == labels[: 3 * WINDOW : WINDOW].tolist() * 3


def test_unknown_frequent_and_rare_words_are_not_topic_words() -> None:
    documents = [[0, 1, 1, 1, 0, 1, 1, 1], [0, 1, 0, 0, 0, 1, 1, 0], [0, 0, 0, 0, 0, 1, 0, 0], [0, 0, 0, 0, 0, 1, 0, 0]]
    assert mixture._topic_words(csr_matrix(np.array(documents))).tolist() == [6]


@pytest.mark.parametrize(
    ("documents", "most"),
    [
        ([["a lonely line"]], 1),
        ([["the same"]] * 5, 1),
        ([["one match"], ["one goal"], ["match goal"]], 3),
        ([[""], ["x"]], 1),
        (topical_documents(4)[0], 4),
    ],
)
def test_fewer_documents_than_topics(documents: list[list[str]], most: int, capsys: pytest.CaptureFixture[str]) -> None:
    labels = cluster_documents(store_of(documents), 8, seed=0)
    found = np.unique(labels).tolist()
    assert found == list(range(len(found)))
    assert len(found) <= most
    assert f"falls into {len(found)} topics, not 8" in capsys.readouterr().err


class Trainer:
    """Trains table models and records the masks."""

    def __init__(self) -> None:
        self.masks: list[npt.NDArray[np.bool_]] = []

    def __call__(self, mask: npt.NDArray[np.bool_]) -> LanguageModel:
        self.masks.append(mask)
        return table(len(self.masks))


AUTO = {"prior_strength": "auto", "decay_factor": "auto"}


def test_training_on_topics() -> None:
    store, train, heldout = store_of(topical_documents(30)[0]), Trainer(), random_text(3, sentences=30)
    model = train_mixture(recipe(topics=3, **AUTO), train, store, heldout)
    assert [int(mask.sum()) for mask in train.masks] == [180, 60, 60, 60]
    assert np.array_equal(np.sum(train.masks[1:], axis=0), np.ones(180))
    assert len(model.parts) == model.weights.size == 4
    assert (model.recipe.prior_strength in PRIOR_STRENGTHS, model.recipe.decay_factor in DECAY_FACTORS) == (True, True)
    assert model.recipe.components == "topics"
    assert model.parameters == {
        "weights": model.weights.tolist(),
        "prior_strength": model.recipe.prior_strength,
        "decay_factor": model.recipe.decay_factor,
    }
    weights = em_weights(token_probabilities(model.parts, heldout)).weights
    assert model.weights == pytest.approx(0.7 * weights + 0.3 / 4)
    still = train_mixture(recipe(topics=3, adapt=False, **AUTO), Trainer(), store, heldout)
    assert still.weights == pytest.approx(weights)
    assert still.token_logprobs(heldout).sum() >= max(part.token_logprobs(heldout).sum() for part in still.parts)
    for settings in ({"prior_strength": 30.0, "decay_factor": 1.0}, {"prior_strength": 0.3, "decay_factor": 0.9}):
        other = MixtureModel(recipe(**settings), model.parts, model.weights)
        assert model.token_logprobs(heldout).sum() >= other.token_logprobs(heldout).sum()


def test_training_without_a_general_component_or_on_part_of_the_store() -> None:
    store, train, heldout = store_of(topical_documents(30)[0]), Trainer(), random_text(3)
    use = np.arange(180) >= 60
    model = train_mixture(recipe(topics=3, general=False, **AUTO), train, store, heldout, use=use)
    assert sorted(int(mask.sum()) for mask in train.masks) == [36, 42, 42]
    assert not np.any(train.masks[0][:60])
    assert len(model.parts) == 3


def test_training_on_inputs() -> None:
    store, heldout = store_of(topical_documents(30)[0]), random_text(3)
    inputs = np.repeat([0, 1], 90)
    for parts in ("auto", "inputs"):
        train = Trainer()
        model = train_mixture(recipe(components=parts, **AUTO), train, store, heldout, inputs=inputs)
        assert [mask.nonzero()[0][[0, -1]].tolist() for mask in train.masks] == [[0, 179], [0, 89], [90, 179]]
        assert model.recipe.components == "inputs"
    train = Trainer()
    train_mixture(recipe(components="topics", topics=3, **AUTO), train, store, heldout, inputs=inputs)
    assert len(train.masks) == 4
    for one in (None, np.zeros(180)):
        with pytest.raises(RecipeError, match="more than one"):
            train_mixture(recipe(components="inputs"), train, store, heldout, inputs=one)
    with pytest.raises(RecipeError, match="give valid"):
        train_mixture(recipe(), train, store, TokenStream.of([]))


@pytest.mark.parametrize("general", [True, False])
def test_one_topic_is_one_component(general: bool) -> None:
    store, train = store_of(topical_documents(6)[0]), Trainer()
    model = train_mixture(recipe(topics=1, general=general, **AUTO), train, store, random_text(3))
    assert len(model.parts) == len(train.masks) == 1
    assert model.weights.tolist() == [1.0]
    assert model.token_logprobs(random_text(4)) == pytest.approx(model.parts[0].token_logprobs(random_text(4)))


def test_the_weights_adapt_to_the_topic() -> None:
    """With real n-gram models of topics, a text about sport makes words of sport likelier."""
    documents, subjects = topical_documents(30)
    everything = [line for document in documents for line in document]
    whole = train_on_sentences(everything, NgramRecipe(order=2))
    store = open_store(read_corpus(documents, layout="lines"), whole.tokenizer, 1)

    def train_part(mask: npt.NDArray[np.bool_]) -> LanguageModel:
        from firth.counts.counting import count_sentences
        from firth.counts.train import train_ngram

        sentences = [store.sentence(number).tolist() for number in np.flatnonzero(mask)]
        trie = count_sentences(sentences, vocab_size=len(whole.tokenizer), order=2)
        return train_ngram(whole.recipe, trie, whole.tokenizer, "lines")

    heldout = whole.stream([line for document in topical_documents(9, seed=7)[0] for line in document], [6] * 9)[0]
    model = train_mixture(MixtureRecipe(base=whole.recipe, topics=3), train_part, store, heldout)
    assert model.token_logprobs(heldout).mean() > whole.token_logprobs(heldout).mean()
    sport = model.weights_after(model.history("the match goal team striker and league coach"))
    law = model.weights_after(model.history("the court judge trial verdict and appeal lawyer"))
    assert sport[1:].argmax() != law[1:].argmax()
    again = restore(model.recipe, model.arrays(), whole.tokenizer, "lines")
    assert again.token_logprobs(heldout).tolist() == model.token_logprobs(heldout).tolist()
    assert subjects[:3] == ["sport", "law", "food"]


def test_round_trip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firth.counts.mixture.restore_ngram", restore_table)
    model = MixtureModel(recipe(prior_strength=0.3, decay_factor=0.9), [table(1), table(2)], np.array([0.25, 0.75]))
    arrays = model.arrays()
    assert set(arrays) == {"weights", "part0.table", "part1.table"}
    again = restore(model.recipe, arrays, _tokenizer(), "lines")
    stream = random_text(3)
    assert again.token_logprobs(stream).tolist() == model.token_logprobs(stream).tolist()
    assert again.next_logprobs([7, EOS, 8]).tolist() == model.next_logprobs([7, EOS, 8]).tolist()
    with pytest.raises(ArtifactError, match="weights"):
        restore(model.recipe, {"part0.table": table().table}, _tokenizer(), "lines")
    with pytest.raises(ArtifactError, match="train the model again"):
        restore(recipe(decay_factor="auto"), arrays, _tokenizer(), "lines")
    assert (model.carries_context, model.recipe.kind) == (True, "counts")
    chars = TokenizerRecipe(model="chars")
    assert recipe().with_tokenizer(chars).tokenizer == chars


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"components": "files"}, "auto, inputs or topics"),
        ({"topics": 0}, "topics=0 must be"),
        ({"topics": 5000}, "from 1 to 1000"),
        ({"prior_strength": 0}, "prior_strength=0 must be above 0"),
        ({"prior_strength": np.inf}, "prior_strength=inf must be"),
        ({"prior_strength": "strong"}, "prior_strength=strong must be"),
        ({"decay_factor": 1.1}, "decay_factor=1.1 must be"),
        ({"decay_factor": np.nan}, "decay_factor=nan must be"),
    ],
)
def test_impossible_recipes(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        recipe(**settings)
