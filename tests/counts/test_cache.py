"""Cache models: worked by hand, which words enter, weights from held-out text, saving and restoring."""

from __future__ import annotations

import gzip
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from firth.counts.cache import (
    DECAYS,
    CacheModel,
    CacheRecipe,
    _blend,
    buckets,
    entering,
    mix,
    recall,
    train_cache,
    window,
)
from firth.counts.counting import count_text
from firth.counts.em import em_weights
from firth.counts.ngram import NgramModel
from firth.counts.recipe import NgramRecipe
from firth.counts.train import train_ngram, train_on_sentences
from firth.errors import ArtifactError, RecipeError
from firth.text.corpus import read_corpus
from firth.tokens.language import Stream
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.tokenizer import BOS, EOS, UNK, Tokenizer
from firth.tokens.train import train_tokenizer
from tests.oracle.slow_adaptive import TableModel, TableRecipe, histories, random_text, small_tokenizer

_tokenizer = cache(small_tokenizer)


def recipe(**settings: Any) -> CacheRecipe:
    return CacheRecipe(**({"base": TableRecipe(), "decay": None} | settings))


def table(seed: int = 0) -> TableModel:
    return TableModel.random(_tokenizer(), seed)


def same_weights(order: int, size: int, row: list[float]) -> np.ndarray:
    return np.tile(row, (order, buckets(size), buckets(size), 1))


def test_a_plain_cache_by_hand() -> None:
    made = recipe(order=1, size=3)
    found = recall(made, np.ones(13, dtype=np.bool_), Stream.of([[7, 8, 7], [7]]))
    assert found.met.tolist() == [[0, 1, 2, 3, 3, 3]]
    assert found.parts[0].tolist() == pytest.approx([0, 0, 1 / 2, 0, 1 / 3, 1 / 3])  # 7 8 7 </s> 7 </s>


def test_a_decaying_cache_by_hand() -> None:
    made = recipe(order=1, size=10, decay=np.log(2))
    found = recall(made, np.ones(13, dtype=np.bool_), Stream.of([[7, 8, 7]]))
    assert found.parts[0].tolist() == pytest.approx([0, 0, 1 / 3, 0])  # 8 was said last and counts twice
    model = CacheModel(made, table(), np.ones(13, dtype=np.bool_), same_weights(1, 10, [0.0, 1.0]))
    after = np.exp(model.log_next([7, 8, 7]))
    assert after[[7, 8, 9]].tolist() == pytest.approx([5 / 7, 2 / 7, 0])


def test_pairs_and_triples_by_hand() -> None:
    found = recall(recipe(order=3), np.ones(13, dtype=np.bool_), Stream.of([[7, 8], [7, 8], [9, 8, 7], [7, 9]]))
    #                 7  8  E  7  8  E  9  8  7  E  7  9  E
    assert found.met[1].tolist() == [0, 0, 0, 1, 1, 1, 2, 0, 2, 2, 3, 3, 1]
    assert found.met[2].tolist() == [0, 0, 0, 1, 1, 1, 2, 0, 0, 0, 3, 2, 0]
    assert found.parts[1].tolist() == pytest.approx([0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 2 / 3, 0, 0])
    assert found.parts[2].tolist() == pytest.approx([0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 2 / 3, 0, 0])


def test_an_empty_cache_leaves_the_base_alone() -> None:
    base, stream = table(), Stream.of([[7, 8, 7], [8, 8]], fresh=True)
    model = CacheModel(recipe(), base, np.zeros(13, dtype=np.bool_), same_weights(3, 1000, [0.1, 0.3, 0.3, 0.3]))
    assert model.log_tokens(stream).tolist() == base.log_tokens(stream).tolist()
    assert model.log_next([7, 8]).tolist() == base.log_next([7, 8]).tolist()
    assert model.log_next([]).tolist() == base.log_next([]).tolist()
    assert model.remembers


def test_a_new_text_finds_the_cache_empty() -> None:
    model = CacheModel(recipe(), table(), np.ones(13, dtype=np.bool_), same_weights(3, 1000, [0.4, 0.2, 0.2, 0.2]))
    one, two = Stream.of([[7, 8], [9]]), Stream.of([[8, 8, 7]])
    both = Stream.of([[7, 8], [9], [8, 8, 7]])._replace(fresh=np.array([True, False, True]))
    assert model.log_tokens(both).tolist() == [*model.log_tokens(one), *model.log_tokens(two)]
    joined = model.log_tokens(both._replace(fresh=np.array([True, False, False])))
    assert joined.tolist()[:5] == model.log_tokens(one).tolist()
    assert not np.allclose(joined[5:], model.log_tokens(two))


@given(
    st.integers(0, 10_000),
    st.integers(1, 3),
    st.integers(1, 40),
    st.sampled_from([None, 0, 0.01, 0.7, 10]),
    st.booleans(),
)
def test_tokens_and_distributions_agree(seed: int, order: int, size: int, decay: float | None, end: bool) -> None:
    made = recipe(order=order, size=size, decay=decay, end=end)
    base, stream = table(seed), random_text(seed, sentences=6)
    model = train_cache(made, base, base, random_text(seed + 1))
    logs = model.log_tokens(stream)
    for place, history in enumerate(histories(stream)):
        after = model.log_next(history)
        assert np.exp(after).sum() == pytest.approx(1, abs=1e-9)
        assert after[[0, 2, 4]].tolist() == [-np.inf] * 3
        assert logs[place] == pytest.approx(after[stream.ids[place]], rel=1e-12)


def test_what_enters() -> None:
    tokenizer = _tokenizer()
    counts = np.zeros(13, dtype=np.int64)
    for word, count in {"the": 50, "a": 30, ".": 15, "cat": 3, "dog": 2, "ran": 1}.items():
        counts[tokenizer.id(word)] = count
    counts[EOS] = 999

    def words(**settings: Any) -> set[str]:
        return {tokenizer.vocabulary[i] for i in np.flatnonzero(entering(recipe(**settings), tokenizer, counts))}

    everything = set(tokenizer.vocabulary[5:])
    assert words() == everything | {"<unk>", "</s>"}
    assert words(end=False, unknown=False) == everything
    assert words(enter="rare", rare=3) == {"cat", "dog", "ran", "saw", ",", "<unk>"}
    assert words(enter="content", common=0.49) == {"a", "cat", "dog", "ran", "saw", "<unk>"}
    assert words(enter="content", common=0.51, unknown=False) == {"cat", "dog", "ran", "saw"}
    assert words(enter="content", common=0) == everything - {",", "."} | {"<unk>"}
    with pytest.raises(RecipeError, match="needs the counts"):
        entering(recipe(enter="rare"), tokenizer)


def test_only_some_words_enter() -> None:
    enters = np.zeros(13, dtype=np.bool_)
    enters[[8, 9]] = True
    found = recall(recipe(order=2, size=2), enters, Stream.of([[7, 8, 7, 9, 8, 8]]))
    assert found.met.tolist() == [[0, 0, 1, 1, 2, 2, 2], [0, 0, 0, 1, 0, 0, 1]]
    assert found.parts[0].tolist() == pytest.approx([0, 0, 0, 0, 0.5, 0.5, 0])


def test_weights_and_rate_come_from_held_out_text() -> None:
    base, heldout = table(), random_text(5, sentences=40)
    model = train_cache(recipe(decay="auto"), base, base, heldout)
    assert model.recipe.decay in DECAYS
    assert set(model.parameters) == {"decay", "weights"}
    assert model.parameters["decay"] == model.recipe.decay
    better = model.log_tokens(heldout).sum()
    assert better >= base.log_tokens(heldout).sum()
    for decay in DECAYS:
        assert better >= train_cache(recipe(decay=decay), base, base, heldout).log_tokens(heldout).sum() - 1e-9


def test_a_plain_unigram_cache_gets_the_weights_that_em_finds() -> None:
    base, heldout = table(), random_text(6, sentences=3000, longest=6)._replace(fresh=np.arange(3000) == 0)
    made = recipe(order=1, size=1)
    model = train_cache(made, base, base, heldout)
    found = recall(made, model.enters, heldout)
    some = found.met[0] > 0
    expected = em_weights(np.vstack([np.exp(base.log_tokens(heldout)), found.parts])[:, some]).weights
    assert model.weights.shape == (1, 1, 1, 2)
    assert model.weights[0, 0, 0].tolist() == pytest.approx(expected, abs=2e-3)
    assert mix(base.log_tokens(heldout), found, model.weights).tolist() == model.log_tokens(heldout).tolist()


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
    assert off.log_tokens(heldout) == pytest.approx(base.log_tokens(heldout))


def test_a_fixed_weight_is_shared_out_by_em() -> None:
    """The second order alone would be best; but what it knows, the base knows as well."""
    parts = np.array([[0.2, 0.2, 0.2, 0.01, 0.01], [0.1, 0.1, 0.1, 0.2, 0.2], [0.4, 0.4, 0.4, 0.1, 0.1]])
    row = _blend(recipe(order=2, weight=0.3), parts, np.array([0.7, 0.15, 0.15]), 1e-9)
    grid = np.linspace(0, 1, 10_001)
    mixed = 0.7 * parts[0] + 0.3 * (grid[:, None] * parts[1] + (1 - grid[:, None]) * parts[2])
    best = grid[np.log(mixed).sum(axis=1).argmax()]
    assert 0.1 < best < 0.9
    assert row.tolist() == pytest.approx([0.7, 0.3 * best, 0.3 * (1 - best)], abs=1e-3)


def test_no_held_out_text() -> None:
    for settings in ({}, {"weight": 0.1, "decay": "auto"}):
        with pytest.raises(RecipeError, match="give --valid"):
            train_cache(recipe(**settings), table(), table(), None)
    with pytest.raises(RecipeError, match="give --valid"):
        train_cache(recipe(), table(), table(), Stream.of([]))


def test_a_nearly_empty_cache_is_believed_little() -> None:
    base, heldout = table(), random_text(5, sentences=500)._replace(fresh=np.arange(500) == 0)
    model = train_cache(recipe(order=1), base, base, heldout)
    weights = model.weights[0, 0, :, 1]
    assert weights[0] < weights[-1] / 5


def test_impossible_words_do_no_harm() -> None:
    base = table()
    base.table[:, 9] = 0
    base.table /= base.table.sum(axis=1, keepdims=True)
    stream = Stream.of([[9, 7, 9]])
    with np.errstate(divide="ignore"):
        model = train_cache(recipe(decay="auto"), base, base, stream)
        logs = model.log_tokens(stream)
    assert logs[0] == -np.inf
    assert np.isfinite(logs[1:]).all()
    assert np.isfinite(model.weights).all()


def test_round_trip() -> None:
    base, stream = table(), random_text(3)
    model = train_cache(recipe(decay="auto", enter="content"), base, base, random_text(4), np.arange(13))
    arrays = model.arrays()
    assert set(arrays) == {"base.table", "enters", "weights"}
    again = model.recipe.restore(arrays, _tokenizer(), "lines")
    assert again.log_tokens(stream).tolist() == model.log_tokens(stream).tolist()
    assert again.log_next([7, EOS, 8]).tolist() == model.log_next([7, EOS, 8]).tolist()
    for name in ("enters", "weights"):
        with pytest.raises(ArtifactError, match=name):
            model.recipe.restore({key: array for key, array in arrays.items() if key != name}, _tokenizer(), "lines")
    with pytest.raises(ArtifactError, match="train the model again"):
        recipe(decay="auto").restore(arrays, _tokenizer(), "lines")


def test_an_n_gram_model_as_the_base() -> None:
    sentences = ["the cat saw the dog", "a dog ran", "the dog saw a cat", "a cat ran ."]
    base = train_on_sentences(sentences, NgramRecipe(order=3))
    made = CacheRecipe(base=base.recipe, enter="rare", rare=1)
    heldout = base.stream(["the cat ran", "a cat ran", "the dog ran"])[0]
    model = train_cache(made, base, base, heldout)
    assert [model.tokenizer.vocabulary[i] for i in np.flatnonzero(model.enters)] == ["<unk>", "."]
    again = model.recipe.restore(model.arrays(), base.tokenizer, "lines")
    assert again.score(["the cat saw a dog"]) == model.score(["the cat saw a dog"])
    assert sum(p for _, p in again.next("the cat", top=None)) == pytest.approx(1, abs=1e-9)
    assert model.recipe.tokenizer == base.tokenizer.recipe
    chars = TokenizerRecipe(model="chars")
    assert made.with_tokenizer(chars).tokenizer == made.with_tokenizer(chars).base.tokenizer == chars
    assert made.kind == "counts"


def test_texts_scored_together_share_the_cache() -> None:
    base = train_on_sentences(["the cat saw the dog", "a dog ran"], NgramRecipe(order=2))
    model = CacheModel(
        CacheRecipe(base=base.recipe, decay=None), base, np.ones(len(base.tokenizer), dtype=np.bool_),
        same_weights(3, 1000, [0.7, 0.1, 0.1, 0.1]),
    )  # fmt: skip
    apart, together = model.score(["a dog", "a dog"]), model.score(["a dog", "a dog"], together=True)
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
        ({"enter": "none"}, "all, content or rare"),
        ({"common": 1.5}, "a share from 0 to 1"),
        ({"rare": 0}, "set it to 1 or more"),
        ({"weight": 1.0}, "below 1"),
        ({"weight": -0.1}, "from 0"),
    ],
)
def test_impossible_recipes(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        recipe(**settings)


def test_what_counts_next_to_nothing_is_forgotten() -> None:
    assert window(recipe(size=100, decay=1)) == 100
    assert window(recipe(size=1000, decay=1)) == 500
    assert window(recipe(size=1000)) == window(recipe(size=1000, decay=0)) == 1000


@pytest.mark.shared
@pytest.mark.slow
def test_penn_treebank(shared_data: Path) -> None:
    """Mikolov et al. (2011) reach 125.7 with a five-gram Kneser-Ney model (141.2) and a cache."""
    tokenizer, texts = penn_treebank(shared_data)
    train, valid, test = (texts[name] for name in ("train", "valid", "test"))
    base = modified_kneser_ney(train, tokenizer)
    for settings, most in (({}, 117.5), ({"order": 1}, 125.7), ({"order": 1, "size": 200, "decay": None}, 127.0)):
        model = train_cache(CacheRecipe(base=base.recipe, **settings), base, base, valid)
        assert np.exp(-model.log_tokens(test).mean()) < most
    alone = test._replace(fresh=np.ones(test.fresh.size, dtype=np.bool_))
    model = train_cache(CacheRecipe(base=base.recipe), base, base, valid)
    assert model.log_tokens(alone).mean() > base.log_tokens(alone).mean()


def penn_treebank(shared_data: Path) -> tuple[Tokenizer, dict[str, Stream]]:
    folder = shared_data / "lm"
    tokenizer = train_tokenizer(
        TokenizerRecipe(model="words", split="space"), read_corpus(folder / "ptb.train.txt.gz", layout="lines")
    )
    texts = {}
    for name in ("train", "valid", "test"):
        with gzip.open(folder / f"ptb.{name}.txt.gz", "rt") as lines:
            sentences = [[tokenizer.id(word) for word in line.split()] for line in lines]
        texts[name] = Stream.of(sentences)
    assert UNK in texts["test"].ids
    return tokenizer, texts


def modified_kneser_ney(text: Stream, tokenizer: Tokenizer) -> NgramModel:
    laid_out = np.insert(text.ids, text.bounds[:-1], BOS).astype(np.uint32)
    return train_ngram(NgramRecipe(order=5), count_text(laid_out, len(tokenizer), 5), tokenizer, "lines")
