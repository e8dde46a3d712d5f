"""Training: what the manifest records, held-out scores, given tokenizers, resuming."""

from __future__ import annotations

from pathlib import Path

import pytest

import firth
from firth.errors import ArtifactError, OutputError, RecipeError
from firth.files import digest_file
from tests.command import firth as command
from tests.samples import CHINESE, ENGLISH

TEXT = [ENGLISH, CHINESE]


def test_the_manifest_tells_the_whole_story(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("a b c\nd e f\n\ng h\n")
    arguments = ("train", "unigram", corpus, "-o", tmp_path / "m", "--valid", corpus, "--budget", "4tok", "--seed", 7)
    info = command(*arguments, "--json").json
    assert info["budget"]["asked"] == "4tok"
    assert info["budget"]["spent"]["tokens"] == 3
    assert info["seed"] == 7
    assert info["corpus"]["documents"] == 2
    assert info["corpus"]["layout"] == "lines"
    assert info["corpus"]["encodings"] == {str(corpus): "utf-8"}
    assert len(info["corpus"]["digest"]) == len(info["corpus"]["store"]) == 64
    assert info["tokenizer"] == digest_file(tmp_path / "m" / "tokenizer.json")
    assert {"firth", "python", "tokenizers", "torch"} <= set(info["versions"])
    assert info["metrics"]["valid_bits_per_byte"] > 0
    assert set(info["files"]) == {"card.md", "model.safetensors", "tokenizer.json"}


def test_a_given_tokenizer_is_used(tmp_path: Path) -> None:
    tokenizer = firth.train("chars", TEXT, out=tmp_path / "chars")
    model = firth.train("unigram", TEXT, out=tmp_path / "model", tokenizer=tmp_path / "chars")
    assert model.tokenizer.data == tokenizer.data
    assert model.recipe.tokenizer.model == "chars"
    other = firth.train("unigram", TEXT, out=tmp_path / "other", tokenizer=tmp_path / "model")
    assert other.tokenizer.data == tokenizer.data
    with pytest.raises(RecipeError, match=r"leave tokenizer out, or use firth.adapt"):
        firth.train("words", TEXT, out=tmp_path / "words", tokenizer=tmp_path / "chars")


def test_a_tokenizer_may_be_named_by_its_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = firth.train("unigram", TEXT, out="named", tokenizer="chars")
    assert model.recipe.tokenizer.model == "chars"
    firth.train("words", TEXT, out="chars")
    assert firth.train("unigram", TEXT, out="folder", tokenizer="chars").recipe.tokenizer.model == "words"
    with pytest.raises(ArtifactError, match="bert does not exist"):
        firth.train("unigram", TEXT, out="wrong", tokenizer="bert")


def test_settings_may_be_a_dictionary(tmp_path: Path) -> None:
    model = firth.train("mkn3", TEXT, out=tmp_path / "m", settings={"order": 2, "tokenizer": {"lowercase": True}})
    assert (model.recipe.order, model.recipe.tokenizer.lowercase) == (2, True)
    words = firth.train("words", TEXT, out=tmp_path / "words", settings={"vocab_size": 20})
    grown = firth.adapt(tmp_path / "words", TEXT, out=tmp_path / "grown", settings={"vocab_size": 25})
    assert (len(words), len(grown)) == (20, 25)
    with pytest.raises(RecipeError, match="did you mean 'order'"):
        firth.train("mkn3", TEXT, out=tmp_path / "x", settings={"ordre": 2})


def test_a_finished_run_is_resumed_at_once(tmp_path: Path) -> None:
    first = firth.train("unigram", TEXT, out=tmp_path / "m")
    with pytest.raises(OutputError, match="already holds"):
        firth.train("unigram", TEXT, out=tmp_path / "m")
    again = firth.train("unigram", TEXT, out=tmp_path / "m", resume=True)
    assert again.score(ENGLISH) == first.score(ENGLISH)
    with pytest.raises(RecipeError, match="another recipe"):
        firth.train("unigram", TEXT, out=tmp_path / "m", resume=True, settings=["delta=2"])
    fresh = firth.train("unigram", TEXT, out=tmp_path / "new", resume=True)
    assert fresh.score(ENGLISH) == first.score(ENGLISH)


def test_a_model_scores_text_as_it_was_trained(tmp_path: Path) -> None:
    """Prose is split into sentences before scoring, so a line of two sentences has two ends."""
    prose = ["The cat sat on the mat. The dog ran away. It was a good day for all of us."] * 30
    model = firth.train("unigram", prose, out=tmp_path / "m", layout="prose")
    assert model.layout == "prose"
    score = model.score(["The cat sat. The dog ran."])[0]
    assert score.sentences == 2
    lines = firth.train("unigram", prose, out=tmp_path / "lines", layout="lines")
    assert lines.score(["The cat sat. The dog ran."])[0].sentences == 1


def test_a_dictionary_travels_with_the_artifact(tmp_path: Path) -> None:
    words = tmp_path / "words.txt"
    words.write_text("研究自然 100000\n", encoding="utf-8")
    firth.train("unigram", [["我们研究自然语言"]], out=tmp_path / "m", settings=[f"tokenizer.dictionary={words}"])
    words.unlink()
    assert "研究自然" in firth.load(tmp_path / "m").tokenizer.tokenize("我们研究自然语言")


def test_a_finished_run_of_nested_recipes_is_taken_as_it_is(tmp_path: Path) -> None:
    for name in ("kn5-cache", "mixture", "class-ngram", "maxent"):
        first = firth.train(name, TEXT * 20, out=tmp_path / name)
        again = firth.train(name, TEXT * 20, out=tmp_path / name, resume=True)
        assert again.recipe == first.recipe
