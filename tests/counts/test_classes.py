"""Class models: examples by hand, classes from files and from spelling, saving and restoring."""

from __future__ import annotations

import gzip
import itertools
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from firth.artifact.models import load
from firth.artifact.restore import restore
from firth.counts.classes import (
    ClassModel,
    ClassRecipe,
    assign_class_ids,
    class_stream,
    class_tokenizer,
    fit_delta,
    is_class_map,
    read_classes,
    spelling_classes,
    spelling_features,
    train_classes,
    within_class_logprobs,
)
from firth.counts.counting import count_text
from firth.counts.recipe import NgramRecipe
from firth.counts.train import train_ngram
from firth.errors import ArtifactError, RecipeError
from firth.lm.language_model import LanguageModel, TokenStream, UnknownWordModel
from firth.text.corpus import read_corpus
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.tokenizer import BOS, EOS, UNK, Tokenizer
from firth.tokens.train import train_tokenizer
from tests.command import firth
from tests.oracle.slow_adaptive import WORDS, TableModel, TableRecipe, histories, random_text, small_tokenizer

_tokenizer = cache(small_tokenizer)
SPELLING = UnknownWordModel.train(["cat"])
FILE = "the det\na\tdet\ncat noun\n\ndog  noun\nunicorn noun\nsaw verb\n"


def recipe(**settings: Any) -> ClassRecipe:
    return ClassRecipe(**({"base": TableRecipe(), "delta": 0.5} | settings))


def train_n_gram(stream: TokenStream, tokenizer: Tokenizer) -> LanguageModel:
    text = np.insert(stream.ids, stream.bounds[:-1], BOS).astype(np.uint32)
    made = NgramRecipe(order=2, smoothing="witten-bell", tokenizer=tokenizer.recipe)
    return train_ngram(made, count_text(text, len(tokenizer), 2), tokenizer, "lines")


def ids(*words: str) -> list[int]:
    return [_tokenizer().id(word) for word in words]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "classes.txt"
    path.write_text(FILE)
    return path


def test_a_file_of_classes(file: Path) -> None:
    tokenizer = _tokenizer()
    classes = read_classes(file, tokenizer)
    assert is_class_map(classes)
    of = dict(zip(tokenizer.vocabulary, classes.tolist(), strict=True))
    assert of["the"] == of["a"] != of["cat"] == of["dog"] != of["saw"]
    assert of["ran"] == of[","] == of["."]  # left out of the file
    assert len(set(of.values())) == 5 + 4
    assert [of[word] for word in tokenizer.vocabulary[:5]] == [0, 1, 2, 3, 4]


def test_probabilities_by_hand(file: Path) -> None:
    """After a determiner comes a noun (3 of 4) or a verb; dog is 2 of 3 nouns; delta is 0.5."""
    tokenizer = _tokenizer()
    classes = read_classes(file, tokenizer)
    noun, verb, determiner = (int(classes[number]) for number in ids("cat", "saw", "the"))
    table = np.full((9, 9), 1e-9)
    table[determiner, noun], table[determiner, verb] = 0.75, 0.25
    counts = np.zeros(13, dtype=np.int64)
    counts[ids("dog", "cat", "saw")] = [2, 1, 9]
    model = ClassModel(recipe(), tokenizer, "lines", SPELLING, classes, counts, TableModel(class_tokenizer(9), table))
    after = np.exp(model.next_logprobs(ids("a")))
    assert after[ids("dog", "cat", "saw")].tolist() == pytest.approx([0.75 * 2.5 / 4, 0.75 * 1.5 / 4, 0.25])
    assert np.exp(model.token_logprobs(TokenStream.of([ids("a", "dog")])))[1] == pytest.approx(0.75 * 2.5 / 4)


@given(st.integers(0, 10_000), st.sampled_from([0.01, 1.0, 20.0]))
def test_tokens_and_distributions_agree(seed: int, delta: float) -> None:
    classes = assign_class_ids(np.random.default_rng(seed).integers(0, 3, size=8).tolist())
    counts = np.random.default_rng(seed).integers(0, 5, size=13)
    inner = TableModel.random(class_tokenizer(int(classes.max()) + 1), seed)
    model = ClassModel(recipe(delta=delta), _tokenizer(), "lines", SPELLING, classes, counts, inner)
    stream = random_text(seed, sentences=6)
    logs = model.token_logprobs(stream)
    for position, history in enumerate(histories(stream)):
        after = model.next_logprobs(history)
        assert np.exp(after).sum() == pytest.approx(1, abs=1e-9)
        assert after[[0, 2, 4]].tolist() == [-np.inf] * 3
        assert logs[position] == pytest.approx(after[stream.ids[position]], rel=1e-12)


def test_a_class_for_every_word_is_the_word_model() -> None:
    stream, tokenizer = random_text(2, sentences=40), _tokenizer()
    classes = np.arange(13, dtype=np.uint32)
    model = train_classes(recipe(delta="auto"), train_n_gram, stream, tokenizer, "lines", SPELLING, classes)
    words = train_n_gram(stream, tokenizer)
    assert model.token_logprobs(random_text(3)) == pytest.approx(words.token_logprobs(random_text(3)), rel=1e-12)
    assert class_stream(stream, classes).ids.tolist() == stream.ids.tolist()


def test_one_class_for_all_words_is_a_unigram_model() -> None:
    stream, tokenizer = random_text(2, sentences=40), _tokenizer()
    model = train_classes(recipe(), train_n_gram, stream, tokenizer, "lines", SPELLING, assign_class_ids([0] * 8))
    after = np.exp(model.next_logprobs([7]))[5:]
    counts = np.bincount(stream.ids, minlength=13)[5:]
    assert after / after.sum() == pytest.approx((counts + 0.5) / (counts + 0.5).sum())


def test_training_and_round_trip(file: Path) -> None:
    stream, tokenizer = random_text(2, sentences=40), _tokenizer()
    for settings in ({"classes": str(file)}, {"max_classes": 10}):
        class_recipe = ClassRecipe(base=NgramRecipe(order=2, smoothing="witten-bell"), **settings)  # type: ignore[arg-type]
        model = train_classes(class_recipe, train_n_gram, stream, tokenizer, "lines", SPELLING)
        assert model.recipe.delta == fit_delta(model.classes, model.counts) == model.parameters["delta"]
        assert model.parameters["classes"] == np.unique(model.classes[5:]).size
        arrays = model.arrays()
        assert {"classes", "counts", "spelling", "base.words", "base.logp"} <= set(arrays)
        file.write_text("")  # the artifact is whole without it
        again = restore(model.recipe, arrays, tokenizer, "lines")
        assert again.token_logprobs(random_text(3)).tolist() == model.token_logprobs(random_text(3)).tolist()
        assert again.next_logprobs([7, EOS, 8]).tolist() == model.next_logprobs([7, EOS, 8]).tolist()
        assert np.exp(again.next_logprobs([7, EOS, UNK])).sum() == pytest.approx(1, abs=1e-9)
        assert again.score(["the cat saw"]) == model.score(["the cat saw"])
    with pytest.raises(ArtifactError, match="'classes' is missing"):
        restore(model.recipe, {key: array for key, array in arrays.items() if key != "classes"}, tokenizer, "lines")
    for wrong in (np.zeros(13), np.arange(13)[::-1], np.full(13, 4_000_000_000)):
        with pytest.raises(ArtifactError, match="damaged"):
            restore(model.recipe, arrays | {"classes": wrong.astype(np.uint32)}, tokenizer, "lines")
    with pytest.raises(ArtifactError, match="train the model again"):
        restore(recipe(delta="auto"), arrays, tokenizer, "lines")


def test_delta_maximises_the_leave_one_out_likelihood() -> None:
    classes = assign_class_ids([0, 0, 0, 0, 1, 1, 1, 2])
    counts = np.array([0, 4, 0, 9, 0, 5, 1, 0, 2, 1, 1, 0, 7])

    def likelihood(delta: float) -> float:
        total = 0.0
        for word in range(13):
            same = classes == classes[word]
            if same.sum() > 1:
                probability = (counts[word] - 1 + delta) / (counts[same].sum() - 1 + delta * same.sum())
                total += counts[word] * np.log(probability) if counts[word] else 0.0
        return total

    found = fit_delta(classes, counts)
    grid = np.exp(np.linspace(np.log(1e-5), np.log(900), 4000))
    assert found == pytest.approx(grid[np.argmax([likelihood(delta) for delta in grid])], rel=1e-2)
    assert fit_delta(np.arange(13, dtype=np.uint32), counts) == 1.0
    assert fit_delta(classes, np.zeros(13, dtype=np.int64)) == 1.0


@given(st.lists(st.integers(0, 50), min_size=8, max_size=8), st.floats(1e-6, 100))
def test_words_of_a_class_sum_to_one(counts: list[int], delta: float) -> None:
    classes = assign_class_ids([0, 1, 0, 2, 2, 2, 1, 0])
    probabilities = np.exp(within_class_logprobs(classes, np.array([0] * 5 + counts), delta))
    assert np.bincount(classes, weights=probabilities) == pytest.approx(np.ones(8))
    assert probabilities[:5].tolist() == [1.0] * 5


def test_spelling_by_hand() -> None:
    words = [
        "walking",
        "talking",
        "talked",
        "Paris",
        "NATO",
        "1,987",
        "2,001",
        "12",
        ",",
        "语言",
        "方言",
        "4th",
        "iPhone",
    ]
    vocabulary = [*_tokenizer().vocabulary[:5], *words]
    counts = np.array([0] * 5 + [9] * len(words))
    classes = spelling_classes(vocabulary, counts, 1000)[5:]
    assert np.unique(classes).size == len(words)  # max_classes is large enough for one class per word
    few = dict(zip(words, spelling_classes(vocabulary, counts, 10)[5:].tolist(), strict=True))
    assert few["walking"] == few["talking"]
    assert few["1,987"] == few["2,001"]
    assert few["语言"] == few["方言"]
    assert len({few[word] for word in ("walking", "Paris", "NATO", "12", ",", "语言", "4th")}) == 7
    assert [ways[0][0] for ways in map(spelling_features, words)] == [
        *("word", "word", "word", "Word", "WORD", "number", "number", "number", "mark", "han", "han", "mixed", "Word"),
    ]


def test_frequent_words_are_classes_of_their_own() -> None:
    vocabulary = [*_tokenizer().vocabulary[:5], "the", "she", "he", "be", "ape", "rope", "tape"]
    counts = np.array([0] * 5 + [1000, 30, 20, 10, 1, 1, 1])
    classes = spelling_classes(vocabulary, counts, 10)[5:].tolist()
    assert classes.count(classes[0]) == 1
    assert len(set(classes[4:])) == 1


@given(st.lists(st.text("abcABC12,的是了", min_size=1, max_size=5), unique=True, max_size=40), st.integers(10, 30))
def test_the_number_of_classes_is_limited(words: list[str], limit: int) -> None:
    counts = np.arange(5 + len(words))
    classes = spelling_classes(["<pad>", "<unk>", "<s>", "</s>", "<mask>", *words], counts, limit)
    assert is_class_map(classes)
    assert np.unique(classes[5:]).size <= limit
    assert np.array_equal(classes, spelling_classes(["<pad>", "<unk>", "<s>", "</s>", "<mask>", *words], counts, limit))


def test_many_words_of_few_kinds() -> None:
    words = [*"!?;:()[]{}.,", "walk", "Paris", "NATO", "12", "语言", "4th"]
    vocabulary = ["<pad>", "<unk>", "<s>", "</s>", "<mask>", *words]
    counts = np.array([0] * 5 + [100] * 12 + [1] * 6)
    assert np.unique(spelling_classes(vocabulary, counts, 10)[5:]).size == 10


def test_class_files_are_tokenised(tmp_path: Path) -> None:
    lower = TokenizerRecipe(model="words", split="space", lowercase=True)
    tokenizer = train_tokenizer(lower, read_corpus([WORDS]))
    path = tmp_path / "classes.txt"
    path.write_bytes("\ufeffTHE\tdet one\r\nCat\tnoun\r\n".encode())
    classes = read_classes(path, tokenizer)
    the, cat, dog = (int(classes[tokenizer.id(word)]) for word in ("the", "cat", "dog"))
    assert len({the, cat, dog}) == 3


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty: put a word"),
        (b"\n  \n", "is empty: put a word"),
        (b"cat\n", "line 1: expected a word and its class, found 'cat'"),
        (b"cat noun\ndog noun 7\n", "line 2: expected"),
        (b"cat\t\n", "line 1: expected"),
        (b"cat\tnoun\tx\n", "line 1: expected"),
        (b"cat noun\ncat verb\n", "line 2: 'cat' has the class 'noun' already"),
        (b"unicorn noun\n", "no word of .* is in the vocabulary"),
        (b"\xff\xfe\x00 binary", "save it as UTF-8"),
        (b"\x00\x01 \x02\n", "line 1: expected"),
        (b"x" * 5000 + b" y\n", "line 1: expected"),
    ],
)
def test_bad_files(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "classes.txt"
    path.write_bytes(content)
    with pytest.raises(RecipeError, match=message):
        read_classes(path, _tokenizer())


def test_missing_files(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="there is no class file"):
        read_classes(tmp_path / "nothing", _tokenizer())
    with pytest.raises(RecipeError, match="cannot read the class file"):
        read_classes(tmp_path, _tokenizer())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_classes": 9}, "max_classes=9 is too few"),
        ({"delta": 0}, "delta=0 would give"),
        ({"delta": np.nan}, "delta=nan would give"),
        ({"delta": "some"}, "delta=some would give"),
        ({"classes": " "}, "names no file"),
    ],
)
def test_impossible_recipes(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        recipe(**settings)


def test_given_classes_are_checked() -> None:
    chars = TokenizerRecipe(model="chars")
    assert recipe().with_tokenizer(chars).tokenizer == chars
    assert recipe().kind == "counts"
    for wrong in ([0] * 13, [*range(5), 6, 6, 6, 6, 6, 6, 6, 6], [*range(5), 1, 5, 5, 5, 5, 5, 5, 5]):
        with pytest.raises(RecipeError, match="classes of their own"):
            train_classes(
                recipe(),
                train_n_gram,
                random_text(1),
                _tokenizer(),
                "lines",
                SPELLING,
                np.array(wrong, dtype=np.uint32),
            )


def _train_over(classes: object, text: Path, out: Path) -> Any:
    outcome = firth("train", "class-ngram", text, "-o", out, "--set", f"classes={classes}", "--set", "base.order=2")
    assert outcome.code == 0, outcome.err
    return load(out)


@pytest.fixture
def clusters(tmp_path: Path) -> tuple[Path, Path]:
    """A text, and the folder of Brown clusters of its words in lower case."""
    text = tmp_path / "text.txt"
    text.write_text("\n".join(["The cat ran a dog ran the dog ran a cat ran the"] * 5))
    outcome = firth("train", "brown", text, "-o", tmp_path / "brown", "--set", "clusters=3")
    assert outcome.code == 0, outcome.err
    return text, tmp_path / "brown"


def test_classes_from_brown_clusters(clusters: tuple[Path, Path], tmp_path: Path) -> None:
    text, folder = clusters
    model = _train_over(folder, text, tmp_path / "model")
    of = dict(zip(model.tokenizer.vocabulary, model.classes.tolist(), strict=True))
    assert of["The"] == of["the"] == of["a"]  # the clusters are of lower-case words
    assert of["cat"] == of["dog"]
    assert len({of["the"], of["cat"], of["ran"]}) == 3
    assert model.score(["the cat ran"])[0].logprob > model.score(["cat the ran"])[0].logprob


def test_classes_from_a_paths_file(clusters: tuple[Path, Path], tmp_path: Path) -> None:
    text, _ = clusters
    paths = tmp_path / "paths"
    paths.write_text("00\tran\t4\n01\tthe\t3\n01\ta\t2\n1\tcat\t2\n")
    model = _train_over(paths, text, tmp_path / "model")
    of = dict(zip(model.tokenizer.vocabulary, model.classes.tolist(), strict=True))
    assert of["the"] == of["a"]
    assert of["dog"] == of["The"]  # left out of the file
    assert len({of["the"], of["cat"], of["ran"], of["dog"]}) == 4


def test_folders_and_files_without_classes(clusters: tuple[Path, Path], tmp_path: Path) -> None:
    text, _ = clusters
    assert firth("train", "unigram", text, "-o", tmp_path / "unigram").code == 0
    (tmp_path / "empty").mkdir()
    (tmp_path / "paths").write_text("0\tunicorn\t4\n1\n")
    for source, message in [
        ("unigram", "holds no classes of words"),
        ("empty", "is empty"),
        ("paths", "line 2: expected bits"),
        ("nothing", "there is no class file"),
    ]:
        arguments = ("train", "class-ngram", text, "-o", tmp_path / "model", "--set", f"classes={tmp_path / source}")
        outcome = firth(*arguments)
        assert outcome.code == 1
        assert message in outcome.err


@pytest.mark.shared
def test_clusters_predict_better_than_spelling(shared_data: Path, tmp_path: Path) -> None:
    """As many classes over the first part of the Penn Treebank, scored on its validation text."""
    with gzip.open(shared_data / "lm" / "ptb.train.txt.gz", "rt") as lines:
        (tmp_path / "text.txt").write_text("".join(itertools.islice(lines, 8000)))
    with gzip.open(shared_data / "lm" / "ptb.valid.txt.gz", "rt") as lines:
        (tmp_path / "valid.txt").write_text("".join(itertools.islice(lines, 1000)))
    words, text = ("--tokenizer", tmp_path / "words"), tmp_path / "text.txt"
    assert firth("train", "words", text, "-o", tmp_path / "words", "--set", "split=space").code == 0
    assert firth("train", "brown", text, "-o", tmp_path / "brown", "--set", "clusters=150", *words).code == 0
    found = {}
    for name, setting in [("clusters", f"classes={tmp_path / 'brown'}"), ("spelling", "max_classes=150")]:
        settings = ("--set", setting, "--set", "base.order=3", *words, "--valid", tmp_path / "valid.txt", "--json")
        outcome = firth("train", "class-ngram", text, "-o", tmp_path / name, *settings)
        found[name] = outcome.json["metrics"]["valid_perplexity"]
    assert found["clusters"] < 0.9 * found["spelling"], found
