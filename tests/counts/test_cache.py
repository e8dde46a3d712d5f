"""Cache models: examples by hand, cacheable words, weights fitted on held-out text, saving and restoring."""

from __future__ import annotations

import gzip
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from firth.artifact.restore import restore
from firth.counts.cache import (
    DECAYS,
    CacheModel,
    CacheRecipe,
    _fit_row,
    cache_capacity,
    cacheable_words,
    match_cache,
    mix_cache,
    train_cache,
)
from firth.counts.counting import count_text
from firth.counts.em import em_weights
from firth.counts.ngram import NgramModel
from firth.counts.recipe import NgramRecipe
from firth.counts.train import train_ngram, train_on_sentences
from firth.errors import ArtifactError, RecipeError
from firth.lm.language_model import TokenStream
from firth.text.corpus import read_corpus
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.tokenizer import BOS, EOS, UNK, Tokenizer
from firth.tokens.train import train_tokenizer
from tests.oracle.slow_adaptive import TableModel, TableRecipe, histories, random_text, restore_table, small_tokenizer

_tokenizer = cache(small_tokenizer)


def recipe(**settings: Any) -> CacheRecipe:
    return CacheRecipe(**({"base": TableRecipe(), "decay": None} | settings))


def table(seed: int = 0) -> TableModel:
    return TableModel.random(_tokenizer(), seed)


def same_weights(order: int, size: int, row: list[float]) -> np.ndarray:
    return np.tile(row, (order, size.bit_length(), size.bit_length(), 1))


def test_a_plain_cache_by_hand() -> None:
    made = recipe(order=1, size=3)
    found = match_cache(made, np.ones(13, dtype=np.bool_), TokenStream.of([[7, 8, 7], [7]]))
    assert found.entries.tolist() == [[0, 1, 2, 3, 3, 3]]
    assert found.frequencies[0].tolist() == pytest.approx([0, 0, 1 / 2, 0, 1 / 3, 1 / 3])  # 7 8 7 </s> 7 </s>


def test_a_decaying_cache_by_hand() -> None:
    made = recipe(order=1, size=10, decay=np.log(2))
    found = match_cache(made, np.ones(13, dtype=np.bool_), TokenStream.of([[7, 8, 7]]))
    assert found.frequencies[0].tolist() == pytest.approx(
        [0, 0, 1 / 3, 0]
    )  # 8 is the latest entry and has twice the weight
    model = CacheModel(made, table(), np.ones(13, dtype=np.bool_), same_weights(1, 10, [0.0, 1.0]))
    after = np.exp(model.next_logprobs([7, 8, 7]))
    assert after[[7, 8, 9]].tolist() == pytest.approx([5 / 7, 2 / 7, 0])


def test_bigrams_and_trigrams_by_hand() -> None:
    found = match_cache(
        recipe(order=3), np.ones(13, dtype=np.bool_), TokenStream.of([[7, 8], [7, 8], [9, 8, 7], [7, 9]])
    )
    #                 7  8  E  7  8  E  9  8  7  E  7  9  E
    assert found.entries[1].tolist() == [0, 0, 0, 1, 1, 1, 2, 0, 2, 2, 3, 3, 1]
    assert found.entries[2].tolist() == [0, 0, 0, 1, 1, 1, 2, 0, 0, 0, 3, 2, 0]
    assert found.frequencies[1].tolist() == pytest.approx([0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 2 / 3, 0, 0])
    assert found.frequencies[2].tolist() == pytest.approx([0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 2 / 3, 0, 0])


def test_an_empty_cache_leaves_the_base_alone() -> None:
    base, stream = table(), TokenStream.of([[7, 8, 7], [8, 8]], starts_document=True)
    model = CacheModel(recipe(), base, np.zeros(13, dtype=np.bool_), same_weights(3, 1000, [0.1, 0.3, 0.3, 0.3]))
    assert model.token_logprobs(stream).tolist() == base.token_logprobs(stream).tolist()
    assert model.next_logprobs([7, 8]).tolist() == base.next_logprobs([7, 8]).tolist()
    assert model.next_logprobs([]).tolist() == base.next_logprobs([]).tolist()
    assert model.carries_context


def test_the_cache_is_empty_at_the_start_of_a_document() -> None:
    model = CacheModel(recipe(), table(), np.ones(13, dtype=np.bool_), same_weights(3, 1000, [0.4, 0.2, 0.2, 0.2]))
    one, two = TokenStream.of([[7, 8], [9]]), TokenStream.of([[8, 8, 7]])
    both = TokenStream.of([[7, 8], [9], [8, 8, 7]])._replace(starts_document=np.array([True, False, True]))
    assert model.token_logprobs(both).tolist() == [*model.token_logprobs(one), *model.token_logprobs(two)]
    joined = model.token_logprobs(both._replace(starts_document=np.array([True, False, False])))
    assert joined.tolist()[:5] == model.token_logprobs(one).tolist()
    assert not np.allclose(joined[5:], model.token_logprobs(two))


@given(
    st.integers(0, 10_000),
    st.integers(1, 3),
    st.integers(1, 40),
    st.sampled_from([None, 0, 0.01, 0.7, 10]),
    st.booleans(),
)
def test_tokens_and_distributions_agree(seed: int, order: int, size: int, decay: float | None, end: bool) -> None:
    made = recipe(order=order, size=size, decay=decay, cache_eos=end)
    base, stream = table(seed), random_text(seed, sentences=6)
    model = train_cache(made, base, base, random_text(seed + 1))
    logs = model.token_logprobs(stream)
    for position, history in enumerate(histories(stream)):
        after = model.next_logprobs(history)
        assert np.exp(after).sum() == pytest.approx(1, abs=1e-9)
        assert after[[0, 2, 4]].tolist() == [-np.inf] * 3
        assert logs[position] == pytest.approx(after[stream.ids[position]], rel=1e-12)


def test_cacheable_words() -> None:
    tokenizer = _tokenizer()
    counts = np.zeros(13, dtype=np.int64)
    for word, count in {"the": 50, "a": 30, ".": 15, "cat": 3, "dog": 2, "ran": 1}.items():
        counts[tokenizer.id(word)] = count
    counts[EOS] = 999

    def words(**settings: Any) -> set[str]:
        return {tokenizer.vocabulary[i] for i in np.flatnonzero(cacheable_words(recipe(**settings), tokenizer, counts))}

    everything = set(tokenizer.vocabulary[5:])
    assert words() == everything | {"<unk>", "</s>"}
    assert words(cache_eos=False, cache_unk=False) == everything
    assert words(cached_words="rare", max_count=3) == {"cat", "dog", "ran", "saw", ",", "<unk>"}
    assert words(cached_words="content", stopword_fraction=0.49) == {"a", "cat", "dog", "ran", "saw", "<unk>"}
    assert words(cached_words="content", stopword_fraction=0.51, cache_unk=False) == {"cat", "dog", "ran", "saw"}
    assert words(cached_words="content", stopword_fraction=0) == everything - {",", "."} | {"<unk>"}
    with pytest.raises(RecipeError, match="needs the counts"):
        cacheable_words(recipe(cached_words="rare"), tokenizer)


def test_a_cache_of_selected_words() -> None:
    cacheable = np.zeros(13, dtype=np.bool_)
    cacheable[[8, 9]] = True
    found = match_cache(recipe(order=2, size=2), cacheable, TokenStream.of([[7, 8, 7, 9, 8, 8]]))
    assert found.entries.tolist() == [[0, 0, 1, 1, 2, 2, 2], [0, 0, 0, 1, 0, 0, 1]]
    assert found.frequencies[0].tolist() == pytest.approx([0, 0, 0, 0, 0.5, 0.5, 0])


def test_weights_and_decay_are_fitted_on_held_out_text() -> None:
    base, heldout = table(), random_text(5, sentences=40)
    model = train_cache(recipe(decay="auto"), base, base, heldout)
    assert model.recipe.decay in DECAYS
    assert set(model.parameters) == {"decay", "weights"}
    assert model.parameters["decay"] == model.recipe.decay
    better = model.token_logprobs(heldout).sum()
    assert better >= base.token_logprobs(heldout).sum()
    for decay in DECAYS:
        assert better >= train_cache(recipe(decay=decay), base, base, heldout).token_logprobs(heldout).sum() - 1e-9


def test_a_plain_unigram_cache_gets_the_weights_that_em_finds() -> None:
    base, heldout = table(), random_text(6, sentences=3000, longest=6)._replace(starts_document=np.arange(3000) == 0)
    made = recipe(order=1, size=1)
    model = train_cache(made, base, base, heldout)
    found = match_cache(made, model.cacheable, heldout)
    some = found.entries[0] > 0
    expected = em_weights(np.vstack([np.exp(base.token_logprobs(heldout)), found.frequencies])[:, some]).weights
    assert model.weights.shape == (1, 1, 1, 2)
    assert model.weights[0, 0, 0].tolist() == pytest.approx(expected, abs=2e-3)
    assert (
        mix_cache(base.token_logprobs(heldout), found, model.weights).tolist() == model.token_logprobs(heldout).tolist()
    )


def test_weights_are_tuned_with_the_other_base() -> None:
    weak, strong, heldout = table(1), table(2), random_text(5, sentences=60)
    model = train_cache(recipe(), weak, strong, heldout)
    assert model.base is strong
    assert np.array_equal(model.weights, train_cache(recipe(), weak, weak, heldout).weights)
    assert not np.array_equal(model.weights, train_cache(recipe(), strong, strong, heldout).weights)


def test_a_fixed_weight() -> None:
    base, heldout = table(), random_text(5, sentences=40)
    for given_text in (heldout, None):
        model = train_cache(recipe(weight=0.2), base, base, given_text)
        assert np.allclose(model.weights[..., 0], 0.8)
        assert np.allclose(model.weights.sum(axis=-1), 1)
    assert np.allclose(model.weights[2], [0.8, 0.2 / 3, 0.2 / 3, 0.2 / 3])
    off = train_cache(recipe(weight=0), base, base, heldout)
    assert off.token_logprobs(heldout) == pytest.approx(base.token_logprobs(heldout))


def test_a_fixed_weight_is_divided_by_em() -> None:
    """The second order alone would be best, but the base has the same information."""
    parts = np.array([[0.2, 0.2, 0.2, 0.01, 0.01], [0.1, 0.1, 0.1, 0.2, 0.2], [0.4, 0.4, 0.4, 0.1, 0.1]])
    row = _fit_row(recipe(order=2, weight=0.3), parts, np.array([0.7, 0.15, 0.15]), 1e-9)
    grid = np.linspace(0, 1, 10_001)
    mixed = 0.7 * parts[0] + 0.3 * (grid[:, None] * parts[1] + (1 - grid[:, None]) * parts[2])
    best = grid[np.log(mixed).sum(axis=1).argmax()]
    assert 0.1 < best < 0.9
    assert row.tolist() == pytest.approx([0.7, 0.3 * best, 0.3 * (1 - best)], abs=1e-3)


def test_no_held_out_text() -> None:
    for settings in ({}, {"weight": 0.1, "decay": "auto"}):
        with pytest.raises(RecipeError, match="give valid"):
            train_cache(recipe(**settings), table(), table(), None)
    with pytest.raises(RecipeError, match="give valid"):
        train_cache(recipe(), table(), table(), TokenStream.of([]))


def test_a_nearly_empty_cache_has_a_small_weight() -> None:
    base, heldout = table(), random_text(5, sentences=500)._replace(starts_document=np.arange(500) == 0)
    model = train_cache(recipe(order=1), base, base, heldout)
    weights = model.weights[0, 0, :, 1]
    assert weights[0] < weights[-1] / 5


def test_impossible_words_are_skipped() -> None:
    base = table()
    base.table[:, 9] = 0
    base.table /= base.table.sum(axis=1, keepdims=True)
    stream = TokenStream.of([[9, 7, 9]])
    with np.errstate(divide="ignore"):
        model = train_cache(recipe(decay="auto"), base, base, stream)
        logs = model.token_logprobs(stream)
    assert logs[0] == -np.inf
    assert np.isfinite(logs[1:]).all()
    assert np.isfinite(model.weights).all()


def test_round_trip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firth.counts.cache.restore_ngram", restore_table)
    base, stream = table(), random_text(3)
    model = train_cache(recipe(decay="auto", cached_words="content"), base, base, random_text(4), np.arange(13))
    arrays = model.arrays()
    assert set(arrays) == {"base.table", "cacheable", "weights"}
    again = restore(model.recipe, arrays, _tokenizer(), "lines")
    assert again.token_logprobs(stream).tolist() == model.token_logprobs(stream).tolist()
    assert again.next_logprobs([7, EOS, 8]).tolist() == model.next_logprobs([7, EOS, 8]).tolist()
    for name in ("cacheable", "weights"):
        with pytest.raises(ArtifactError, match=name):
            restore(model.recipe, {key: array for key, array in arrays.items() if key != name}, _tokenizer(), "lines")
    with pytest.raises(ArtifactError, match="train the model again"):
        restore(recipe(decay="auto"), arrays, _tokenizer(), "lines")


def test_an_n_gram_model_as_the_base() -> None:
    sentences = ["the cat saw the dog", "a dog ran", "the dog saw a cat", "a cat ran ."]
    base = train_on_sentences(sentences, NgramRecipe(order=3))
    made = CacheRecipe(base=base.recipe, cached_words="rare", max_count=1)
    heldout = base.stream(["the cat ran", "a cat ran", "the dog ran"])[0]
    model = train_cache(made, base, base, heldout)
    assert [model.tokenizer.vocabulary[i] for i in np.flatnonzero(model.cacheable)] == ["<unk>", "."]
    again = restore(model.recipe, model.arrays(), base.tokenizer, "lines")
    assert again.score(["the cat saw a dog"]) == model.score(["the cat saw a dog"])
    assert sum(p for _, p in again.next("the cat", top=None)) == pytest.approx(1, abs=1e-9)
    assert model.recipe.tokenizer == base.tokenizer.recipe
    chars = TokenizerRecipe(model="chars")
    assert made.with_tokenizer(chars).tokenizer == made.with_tokenizer(chars).base.tokenizer == chars
    assert made.kind == "counts"


def test_texts_scored_as_one_document_share_the_cache() -> None:
    base = train_on_sentences(["the cat saw the dog", "a dog ran"], NgramRecipe(order=2))
    model = CacheModel(
        CacheRecipe(base=base.recipe, decay=None), base, np.ones(len(base.tokenizer), dtype=np.bool_),
        same_weights(3, 1000, [0.7, 0.1, 0.1, 0.1]),
    )  # fmt: skip
    apart, together = model.score(["a dog", "a dog"]), model.score(["a dog", "a dog"], as_document=True)
    assert apart[0].logprob == apart[1].logprob == together[0].logprob
    assert together[1].logprob > apart[1].logprob


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"size": 0}, "size=0 must be from 1"),
        ({"size": 10**6}, "must be from 1"),
        ({"decay": -1}, "decay=-1 must be"),
        ({"decay": np.nan}, "decay=nan must be"),
        ({"decay": "slow"}, "decay=slow must be"),
        ({"order": 4}, "order=4 must be 1, 2 or 3"),
        ({"cached_words": "none"}, "all, content or rare"),
        ({"stopword_fraction": 1.5}, "a fraction from 0 to 1"),
        ({"max_count": 0}, "set it to 1 or more"),
        ({"weight": 1.0}, "below 1"),
        ({"weight": -0.1}, "from 0"),
    ],
)
def test_impossible_recipes(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        recipe(**settings)


def test_negligible_entries_are_dropped() -> None:
    assert cache_capacity(recipe(size=100, decay=1)) == 100
    assert cache_capacity(recipe(size=1000, decay=1)) == 500
    assert cache_capacity(recipe(size=1000)) == cache_capacity(recipe(size=1000, decay=0)) == 1000


@pytest.mark.shared
@pytest.mark.slow
def test_penn_treebank(shared_data: Path) -> None:
    """Mikolov et al. (2011) reach 125.7 with a five-gram Kneser-Ney model (141.2) and a cache."""
    tokenizer, texts = penn_treebank(shared_data)
    train, valid, test = (texts[name] for name in ("train", "valid", "test"))
    base = modified_kneser_ney(train, tokenizer)
    for settings, most in (({}, 117.5), ({"order": 1}, 125.7), ({"order": 1, "size": 200, "decay": None}, 127.0)):
        model = train_cache(CacheRecipe(base=base.recipe, **settings), base, base, valid)
        assert np.exp(-model.token_logprobs(test).mean()) < most
    alone = test._replace(starts_document=np.ones(test.starts_document.size, dtype=np.bool_))
    model = train_cache(CacheRecipe(base=base.recipe), base, base, valid)
    assert model.token_logprobs(alone).mean() > base.token_logprobs(alone).mean()


def penn_treebank(shared_data: Path) -> tuple[Tokenizer, dict[str, TokenStream]]:
    folder = shared_data / "lm"
    tokenizer = train_tokenizer(
        TokenizerRecipe(model="words", split="space"), read_corpus(folder / "ptb.train.txt.gz", layout="lines")
    )
    texts = {}
    for name in ("train", "valid", "test"):
        with gzip.open(folder / f"ptb.{name}.txt.gz", "rt") as lines:
            sentences = [[tokenizer.id(word) for word in line.split()] for line in lines]
        texts[name] = TokenStream.of(sentences)
    assert UNK in texts["test"].ids
    return tokenizer, texts


def modified_kneser_ney(text: TokenStream, tokenizer: Tokenizer) -> NgramModel:
    laid_out = np.insert(text.ids, text.bounds[:-1], BOS).astype(np.uint32)
    return train_ngram(NgramRecipe(order=5), count_text(laid_out, len(tokenizer), 5), tokenizer, "lines")
