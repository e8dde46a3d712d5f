"""The linear baseline: n-grams as columns, what they are worth, and answers."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer

from firth.errors import ArtifactError, CorpusError, RecipeError
from firth.tasks import linear_classifier as linear
from firth.tasks import predictor as solver
from firth.tasks.examples import TextExample
from firth.tasks.linear_classifier import LinearClassifier, NgramFeatures, ngram_keys, restore_linear
from firth.tasks.recipe import LinearRecipe
from firth.text.corpus import read_corpus
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.tokenizer import Tokenizer
from firth.tokens.train import train_tokenizer
from tests.samples import CHINESE, ENGLISH

TEXTS = ["the cat sat", "the dog sat down", "a cat and a cat"]


@pytest.fixture(scope="module")
def words() -> Tokenizer:
    return train_tokenizer(TokenizerRecipe(model="words"), read_corpus([[*TEXTS, *ENGLISH, *CHINESE]]))


def features(tokenizer: Tokenizer, texts: list[str], **changes: Any) -> NgramFeatures:
    given = {"tokenizer": tokenizer.recipe, "features": "tokens", "min_count": 1} | changes
    made = NgramFeatures(LinearRecipe(**given), tokenizer)
    made.fit([TextExample(text) for text in texts])
    return made


def model_of(made: NgramFeatures) -> LinearClassifier:
    """A model with weights that are as good as any."""
    recipe = made.recipe
    outputs = len(recipe.labels) or 1
    weights = np.arange(outputs * made.columns, dtype=np.float32).reshape(outputs, -1) / 10
    return LinearClassifier(made, weights, np.linspace(-1, 1, outputs))


@given(st.lists(st.lists(st.integers(0, 8), max_size=6), min_size=1, max_size=5), st.integers(1, 4))
def test_every_ngram_of_every_row_is_found(rows: list[list[int]], longest: int) -> None:
    ids = np.array([number for row in rows for number in row], dtype=np.int64)
    keys, where = ngram_keys(ids, np.array([len(row) for row in rows]), longest, 10)
    wanted = sorted(
        (number, int("".join(str(one + 1) for one in row[place : place + size])))
        for number, row in enumerate(rows)
        for size in range(1, longest + 1)
        for place in range(len(row) - size + 1)
    )
    assert sorted(zip(where.tolist(), keys.tolist(), strict=True)) == wanted


def test_tfidf_by_hand(words: Tokenizer) -> None:
    made = features(words, TEXTS, ngrams=1)
    columns = {words.vocabulary[key - 1]: column for column, key in enumerate(made.keys.tolist())}
    assert set(columns) == {"the", "cat", "sat", "dog", "down", "a", "and"}
    assert made.idf[columns["cat"]] == pytest.approx(math.log(4 / 3) + 1)  # two of three texts have it
    assert made.idf[columns["and"]] == pytest.approx(math.log(4 / 2) + 1)
    row = made.values(["a cat and a cat"]).toarray()[0]
    two, one = 2 * (math.log(4 / 3) + 1), math.log(2) + 1
    length = math.sqrt(two**2 + (2 * one) ** 2 + one**2)
    assert row[columns["cat"]] == pytest.approx(two / length)
    assert row[columns["a"]] == pytest.approx(2 * one / length)
    assert row[columns["and"]] == pytest.approx(one / length)
    assert np.count_nonzero(row) == 3


def test_ratios_by_hand(words: Tokenizer) -> None:
    """tf-idf times the largest |log p / q| over the labels, of unit length."""
    recipe = LinearRecipe(tokenizer=words.recipe, features="tokens", ngrams=1, min_count=1, weighting="ratio")
    made = NgramFeatures(dataclasses.replace(recipe, labels=("pet", "move", "none")), words)
    labelled = [("the cat", ("pet",)), ("a dog", ("pet",)), ("the dog sat", ("move",)), ("the the cat", ())]
    made.fit([TextExample(text, labels=labels) for text, labels in labelled])
    columns = {words.vocabulary[key - 1]: column for column, key in enumerate(made.keys.tolist())}
    assert set(columns) == {"the", "cat", "a", "dog", "sat"}
    # Texts with each word that have a label and that have it not, and one more; their sums over the five words.
    with_label = {"pet": {"the": 1, "cat": 1, "a": 1, "dog": 1, "sat": 0}, "move": {"the": 1, "dog": 1, "sat": 1}}
    texts = {"the": 3, "cat": 2, "a": 1, "dog": 2, "sat": 1}

    def ratio(word: str) -> float:
        found = []
        for counts in (with_label["pet"], with_label["move"], {}):
            p, q = ({one: 1 + given for one, given in each.items()} for each in (
                {one: counts.get(one, 0) for one in texts}, {one: texts[one] - counts.get(one, 0) for one in texts},
            ))  # fmt: skip
            found.append(abs(math.log((p[word] / sum(p.values())) / (q[word] / sum(q.values())))))
        return max(found)

    scales = {word: (math.log(5 / (1 + texts[word])) + 1) * ratio(word) for word in texts}
    for word, scale in scales.items():
        assert made.idf[columns[word]] == pytest.approx(scale)
    row = made.values(["the dog"]).toarray()[0]
    length = math.hypot(scales["the"], scales["dog"])
    assert (row[columns["the"]], row[columns["dog"]]) == pytest.approx((scales["the"] / length, scales["dog"] / length))


def test_ratios_need_labels_of_texts() -> None:
    for task, form in (("pair", "single"), ("pair", "number"), ("tag", "single")):
        with pytest.raises(RecipeError, match="weighting=ratio needs texts with labels"):
            LinearRecipe(task=task, form=form, weighting="ratio")  # type: ignore[arg-type]


@pytest.mark.parametrize("weighting", ["tfidf", "binary", "counts"])
@pytest.mark.parametrize(("ngrams", "min_count"), [(1, 1), (2, 2), (3, 1)])
@pytest.mark.parametrize("room", [1, 1 << 22])
def test_columns_are_those_of_scikit_learn(
    weighting: str, ngrams: int, min_count: int, room: int, words: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same values, though columns are in another order."""
    monkeypatch.setattr(linear, "_MAX_CHARACTERS", room)
    texts = TEXTS * 2 + ENGLISH
    made = features(words, texts, weighting=weighting, ngrams=ngrams, min_count=min_count)
    kind = TfidfVectorizer if weighting == "tfidf" else CountVectorizer
    theirs = kind(
        analyzer="word",
        tokenizer=words.tokenize,
        token_pattern=None,
        lowercase=False,
        ngram_range=(1, ngrams),
        min_df=min_count,
        binary=weighting == "binary",
    )
    wanted = theirs.fit(texts).transform([*texts, "cat", ""]).toarray()
    found = made.values([*texts, "cat", ""]).toarray()
    assert found.shape == wanted.shape
    by_value = [np.sort(rows.round(5), axis=1) for rows in (found, wanted)]
    np.testing.assert_allclose(*by_value, atol=2e-5)
    np.testing.assert_allclose(found @ found.T, wanted @ wanted.T, atol=1e-5)


def test_texts_are_read_in_parts_of_equal_room(words: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "_MAX_CHARACTERS", 8)
    read: list[int] = []
    made = features(words, TEXTS)
    monkeypatch.setattr(made, "_values", lambda texts: read.append(len(texts)) or sparse.csr_array((len(texts), 1)))
    made.values(["cat", "dog", "sat", "dogs", "the cat sat", "a", ""])
    assert read == [2, 2, 1, 2]


def test_a_pair_is_both_texts_and_what_they_share(words: Tokenizer) -> None:
    made = features(words, TEXTS, ngrams=1, weighting="counts", task="pair")
    size = made.keys.size
    row = made.matrix([TextExample("the cat sat", "a cat and a cat")]).toarray()[0]
    assert row.size == made.columns == 3 * size + 1
    first, second, shared, angle = row[:size], row[size : 2 * size], row[2 * size : -1], row[-1]
    column = made.keys.tolist().index(words.id("cat") + 1)
    assert first.sum() == 3
    assert second.sum() == 5
    assert shared.tolist() == [float(place == column) for place in range(size)]
    assert angle == pytest.approx(2 / math.sqrt(3 * 9))
    nothing = made.matrix([TextExample("", "")]).toarray()
    assert not nothing.any()


def test_a_pair_is_what_its_texts_share_and_what_only_one_has(words: Tokenizer) -> None:
    made = features(words, TEXTS, ngrams=1, weighting="counts", task="pair", differences=True)
    size, places = made.keys.size, {word: made.keys.tolist().index(words.id(word) + 1) for word in ("the", "cat", "a")}
    row = made.matrix([TextExample("the cat sat", "a cat and a cat")]).toarray()[0]
    assert row.size == made.columns == 4 * size + 8
    second, shared, only_second, only_first = np.split(row[: 4 * size], 4)
    assert second[places["cat"]] == 2
    assert np.flatnonzero(shared).tolist() == [places["cat"]]
    assert (only_second[places["a"]], only_second[places["cat"]]) == (2, 0)
    assert (only_first[places["the"]], only_first[places["cat"]]) == (1, 0)
    assert second == pytest.approx(only_second + 2 * shared)
    first, other = 3, np.count_nonzero(second)
    expected = [
        *(2 / math.sqrt(3 * 9), 1 / first, 1 / other, 0),
        *(math.log(1 + first) / 3, math.log(1 + other) / 3, (first - 1) / 10, (other - 1) / 10),
    ]
    assert row[4 * size :] == pytest.approx(expected)
    assert made.matrix([TextExample("the cat", "cat")]).toarray()[0, 4 * size + 3] == 1  # has all of the second
    assert not made.matrix([TextExample("", "")]).toarray().any()


def test_characters_are_read_as_the_tokenizer_reads_letters(words: Tokenizer) -> None:
    recipe = dataclasses.replace(words.recipe, lowercase=True, normalise="nfkc")
    folded = train_tokenizer(recipe, read_corpus([TEXTS]))
    made = features(folded, ["Ａb  語\n𠀀"], ngrams=2, features="characters")
    keys, rows = made.find(["ab 語 𠀀", "Ab"])
    assert keys.size == 6 + 5 + 2 + 1
    assert rows.tolist().count(1) == 3
    assert set(keys.tolist()) == set(made.keys.tolist())
    plain = NgramFeatures(LinearRecipe(tokenizer=words.recipe, features="characters"), words)
    assert not set(plain.find(["A"])[0]) & set(plain.find(["a"])[0])


def test_special_tokens_in_a_text_are_unknown_words(words: Tokenizer) -> None:
    made = NgramFeatures(LinearRecipe(tokenizer=words.recipe, features="tokens", ngrams=1), words)
    keys = [made.find([text])[0].tolist() for text in ("cat </s>", "cat neverseen")]
    assert keys[0] == keys[1] == [words.id("cat") + 1, 2]
    assert made.find(["cat\0\u2028cat\n"])[0].tolist() == [words.id("cat") + 1] * 2


def test_answers_are_probabilities(words: Tokenizer) -> None:
    single = model_of(features(words, TEXTS, labels=("x", "y", "z")))
    (answer,) = single.predict(["the cat"])
    assert set(answer) == {"label", "probability", "probabilities"}
    assert list(answer["probabilities"]) == ["x", "y", "z"]
    assert sum(answer["probabilities"].values()) == pytest.approx(1)
    assert answer["probability"] == max(answer["probabilities"].values())
    assert answer["probabilities"][answer["label"]] == answer["probability"]
    several = model_of(features(words, TEXTS, labels=("x", "y", "z"), form="multi"))
    (answer,) = several.predict([""])  # nothing but the biases: -1, 0, 1
    assert answer["labels"] == ["y", "z"]
    assert answer["probabilities"]["x"] == pytest.approx(1 / (1 + math.e))
    number = model_of(features(words, TEXTS, task="pair", form="number"))
    assert number.predict([("", "")]) == [{"score": -1.0}]
    assert number.predict([]) == []


def test_what_is_measured(words: Tokenizer) -> None:
    single = model_of(features(words, TEXTS, labels=("x", "y")))
    examples = [TextExample("the cat", labels=("y",)), TextExample("dog", labels=("x",))]
    found = single.measure(examples, single.predict_examples(examples))
    assert found["main"] == "accuracy"
    assert found["accuracy"] == 0.5
    several = model_of(features(words, TEXTS, labels=("x", "y"), form="multi"))
    assert several.measure(examples, several.predict_examples(examples))["main"] == "macro_f1"
    number = model_of(features(words, TEXTS, task="pair", form="number"))
    pairs = [TextExample("the cat", text, labels=(label,)) for text, label in (("a cat", "1.5"), ("dog", "2"))]
    assert number.measure(pairs, number.predict_examples(pairs))["main"] == "spearman"
    with pytest.raises(CorpusError, match="'two' is not a number"):
        number.measure([TextExample("a", "b", labels=("two",))], [{"score": 1.0}])


def test_the_stream_goes_on_past_a_chunk(words: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of(features(words, TEXTS, labels=("x", "y")))
    examples = [TextExample(text) for text in TEXTS]
    together = list(model.stream(examples))
    monkeypatch.setattr(solver.Predictor, "chunk", 2)
    advanced: list[int] = []
    assert list(model.stream(iter(examples), advanced.append)) == together
    assert advanced == [2, 1]


DAMAGE: dict[str, Any] = {
    "missing": lambda arrays: arrays.pop("idf"),
    "stranger": lambda arrays: arrays.update(more=np.zeros(1)),
    "type": lambda arrays: arrays.update(keys=arrays["keys"].astype(np.int32)),
    "order": lambda arrays: arrays.update(keys=arrays["keys"][::-1]),
    "rows": lambda arrays: arrays.update(weights=arrays["weights"][:1]),
    "columns": lambda arrays: arrays.update(weights=arrays["weights"][:, :-1]),
    "bias": lambda arrays: arrays.update(bias=arrays["bias"][:1]),
    "idf": lambda arrays: arrays.update(idf=arrays["idf"][:-1]),
    "nan": lambda arrays: arrays.update(idf=np.full_like(arrays["idf"], np.nan)),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_numbers_are_refused(damage: str, words: Tokenizer) -> None:
    model = model_of(features(words, TEXTS, labels=("x", "y")))
    arrays = dict(model.arrays())
    assert restore_linear(model.recipe, arrays, words).predict(TEXTS) == model.predict(TEXTS)
    DAMAGE[damage](arrays)
    with pytest.raises(ArtifactError, match="damaged"):
        restore_linear(model.recipe, arrays, words)


@pytest.mark.parametrize(
    "wrong",
    [
        {"ngrams": 0},
        {"ngrams": 7},
        {"min_count": 0},
        {"cost": 0.0},
        {"cost": math.inf},
        {"form": "number"},
        {"task": "pair", "form": "multi"},
    ],
)
def test_impossible_recipes(wrong: dict[str, Any]) -> None:
    with pytest.raises(RecipeError):
        LinearRecipe(**wrong)


def test_ngrams_that_64_bits_cannot_hold(words: Tokenizer) -> None:
    recipe = LinearRecipe(tokenizer=words.recipe, features="characters", ngrams=3)
    made = NgramFeatures(recipe, words)
    keys, _ = made.find(["\U0010ffff" * 3])
    assert keys.min() > 0
    assert np.unique(keys).size == 3
    with pytest.raises(RecipeError, match="set ngrams to less"):
        NgramFeatures(dataclasses.replace(recipe, ngrams=4), words)


def test_no_token_occurs_often_enough(words: Tokenizer) -> None:
    with pytest.raises(CorpusError, match="min_count=1"):
        features(words, ["the cat", "a dog"], min_count=2)
