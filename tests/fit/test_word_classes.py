"""Classes of words: what is counted, what is found, that taggers generalise by them, artifacts, resuming."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from firth.artifact.folder import open_artifact
from firth.artifact.models import load
from firth.errors import RecipeError
from firth.fit.adapt import adapt
from firth.fit.finetune import finetune
from firth.fit.train import train
from firth.fit.word_classes import learn_word_classes, word_text
from firth.nets.model import NetModel
from firth.tasks.linear_tagger import LinearTagger
from firth.tasks.task import TaskModel
from firth.text.corpus import read_corpus
from firth.tokens.build import open_store
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.tokenizer import FIRST_WORD, UNK, Tokenizer
from firth.tokens.train import train_tokenizer
from firth.tokens.word_classes import is_chinese

SYLLABLES = ("bo", "da", "ki", "mu", "re", "so")
NAMES = ["".join(one) for one in product(SYLLABLES, repeat=3)]
PEOPLE, PLACES = np.random.default_rng(3).permutation(NAMES)[:32].reshape(2, 16).tolist()
"""Whose spelling tells nothing."""
VERBS = ("likes", "meets", "helps", "calls")
ROADS = ("road", "river", "market", "bridge")
SMALL = [
    *("embedding.width=16", "encoder.width=16", "encoder.ffn_width=32", "encoder.layers=1", "encoder.heads=2"),
    *("sequence.length=16", "tokenizer.vocab_size=120", "word_classes=8"),
]


def sentences(count: int = 1500) -> list[str]:
    """Sentences in which people and places have different neighbours."""
    rng = np.random.default_rng(0)
    one, two, three, four = (rng.integers(len(words), size=count) for words in (PEOPLE, PLACES, VERBS, ROADS))
    return [
        f"{PEOPLE[a].title()} {VERBS[c]} the girl ." if even else f"they walk by the {PLACES[b]} {ROADS[d]} ."
        for a, b, c, d, even in zip(one, two, three, four, np.arange(count) % 2, strict=True)
    ]


def tagged(people: list[str], places: list[str]) -> list[Any]:
    """Sentences in which a word tells by itself alone whether it is a person or a place."""
    lines = [(word, "B-PER") for word in people] + [(word, "B-LOC") for word in places]
    return [(["so", word, "."], ["O", tag, "O"]) for word, tag in lines]


def tokenizer_of(lines: list[str], **recipe: Any) -> Tokenizer:
    return train_tokenizer(TokenizerRecipe(**recipe), read_corpus([lines]))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("classes")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FIRTH_CACHE", str(folder / "cache"))
        train("bert", [sentences()], out=folder / "m", budget="6ktok", settings=SMALL, threads=1, reload=False)
        yield folder / "m"


@pytest.mark.parametrize("kind", [{"model": "wordpiece", "vocab_size": 80}, {"model": "byte-bpe", "vocab_size": 400}])
def test_words_are_counted_whatever_their_tokens_and_case(
    kind: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIRTH_CACHE", str(tmp_path))
    lines = ["The cat naps .", "the cat sleeps .", "cats sleep .", "THE cat , the CAT .", "a cat !", "a naïve cat ."]
    tokenizer = tokenizer_of(lines, lowercase=False, **kind)
    text = word_text(open_store(read_corpus([lines]), tokenizer), tokenizer, 1000)
    words = [text.words[one] if one >= FIRST_WORD else "?" for one in text.ids.tolist()]
    assert sorted(text.words[FIRST_WORD:]) == [".", "cat"]
    rows = np.split(np.array(words), text.sentences[1:-1].astype(int))
    assert [" ".join(row) for row in rows] == [
        "? cat ? .", "? cat ? .", "? ? .", "? cat ? ? ? .", "? cat ?", "? ? cat .",
    ]  # fmt: skip
    assert (text.ids[[word == "?" for word in words]] == UNK).all()
    assert len(word_text(open_store(read_corpus([lines]), tokenizer), tokenizer, 4).ids) == 4
    both = word_text(open_store(read_corpus([["a cat", "a Cat"] * 5]), tokenizer), tokenizer, 1000)
    assert both.words[FIRST_WORD:] == ["a", "cat"], "two forms, one word"
    assert both.counts[FIRST_WORD:].tolist() == [10, 10]


def test_words_with_the_same_neighbours_are_in_the_same_classes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIRTH_CACHE", str(tmp_path))
    tokenizer = tokenizer_of(sentences(), model="wordpiece", vocab_size=120)
    store = open_store(read_corpus([sentences()]), tokenizer)
    found = [learn_word_classes(store, tokenizer, 8, 0, threads) for threads in (1, 2)]
    assert found[0] is not None
    assert found[1] is not None
    for name, array in found[0].arrays().items():
        assert np.array_equal(array, found[1].arrays()[name])
    people, places = found[0].find(PEOPLE), found[0].find(PLACES)
    assert (people >= 0).all()
    assert not set(people[:, 2].tolist()) & set(places[:, 2].tolist())
    assert found[0].find(["unseen"]).tolist() == [[-1, -1, -1]]


def test_a_text_that_is_too_small_has_no_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRTH_CACHE", str(tmp_path))
    tokenizer = tokenizer_of(sentences(30), model="words", min_count=1)
    assert learn_word_classes(open_store(read_corpus([sentences(2)]), tokenizer), tokenizer, 8, 0, 1) is None


def test_chinese_text_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRTH_CACHE", str(tmp_path))
    lines = ["我们喜欢自然语言", "他们学习语言"] * 200
    tokenizer = tokenizer_of(lines, model="wordpiece", vocab_size=60)
    store = open_store(read_corpus([lines]), tokenizer)
    assert word_text(store, tokenizer, 10_000).total > 1000
    assert learn_word_classes(store, tokenizer, 8, 0, 1) is None
    assert is_chinese(store, tokenizer.vocabulary)
    english = tokenizer_of(sentences(30), model="words", min_count=1)
    assert not is_chinese(open_store(read_corpus([sentences(30)]), english), english.vocabulary)


def test_a_tagger_knows_words_that_no_example_has(model: Path, tmp_path: Path) -> None:
    """Without classes nothing tells the unseen people from the unseen places."""
    seen, unseen = tagged(PEOPLE[::2], PLACES[::2]), tagged(PEOPLE[1::2], PLACES[1::2])
    options: dict[str, Any] = {"train": seen * 4, "dev": unseen, "threads": 1}
    settings = ["learning.epochs=1", "learning.batch=16"]
    with_classes = finetune(model, "tag", out=tmp_path / "a", settings=settings, **options)
    without = finetune(
        model, "tag", out=tmp_path / "b", settings=[*settings, "linear_weight=1"], random=True, **options
    )
    assert open_artifact(tmp_path / "a").manifest.metrics["linear"]["linear"] == 1
    assert open_artifact(tmp_path / "b").manifest.metrics["linear"]["linear"] < 0.7
    texts: list[Any] = [words for words, _ in unseen]
    again = load(tmp_path / "a")
    assert isinstance(again, TaskModel)
    linear = cast(LinearTagger, getattr(again.head.linear, "model", None))
    assert linear.recipe.word_classes
    assert again.predict(texts) == cast(TaskModel, with_classes).predict(texts)
    assert cast(LinearTagger, getattr(cast(TaskModel, without).head.linear, "model", None)).extractor.classes is None


def test_classes_are_saved_and_kept(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = cast(NetModel, load(model)).word_classes
    assert before is not None
    adapt(model, [sentences(200)], out=tmp_path / "more", budget="1ktok", threads=1)
    after = cast(NetModel, load(tmp_path / "more")).word_classes
    assert after is not None
    assert np.array_equal(before.classes, after.classes)
    with pytest.raises(RecipeError, match="not word_classes"):
        adapt(model, [sentences(20)], out=tmp_path / "n", settings=["word_classes=4"], threads=1)
    plain = train("bert", [sentences(50)], out=tmp_path / "p", budget="1ktok", settings=SMALL[:-1], threads=1)
    assert cast(NetModel, plain).word_classes is None
    assert "no classes of words" not in capsys.readouterr().err
    small = train("bert", [sentences(2)], out=tmp_path / "s", budget="1ktok", settings=SMALL, threads=1)
    assert cast(NetModel, small).word_classes is None
    assert "the text has no classes of words" in capsys.readouterr().err
