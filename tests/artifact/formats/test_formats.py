"""Round trips through the formats of other programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from firth.artifact.folder import open_artifact
from firth.artifact.formats import FORMATS, export_model, import_model
from firth.artifact.formats.arpa import read_arpa, verify_arpa
from firth.artifact.models import load
from firth.cli.artifacts import export_, import_
from firth.counts.ngram import NgramModel, NgramRecipe
from firth.counts.train import train_on_sentences
from firth.errors import AbilityError, OutputError
from firth.tokens.recipe import TokenizerRecipe

TEXT = [
    "brown read holy bible",
    "mark read a text book",
    "he read a book by david",
    "he read a text , and then a book",
    "the cat read a page of the holy book",
]
TESTS = ["david read a book", "he read the unread holy zebra", "a", "book book book book book"]


def make(**settings: Any) -> NgramModel:
    return train_on_sentences(TEXT, NgramRecipe(**settings))


def token_logprobs(model: NgramModel) -> Any:
    return model.token_logprobs(model.stream(TESTS)[0])


def round_trip(model: NgramModel, folder: Path) -> NgramModel:
    export_model(model, "arpa", folder / "m.arpa.gz")
    import_model("arpa", folder / "m.arpa.gz", folder / "back")
    back = load(folder / "back")
    assert isinstance(back, NgramModel)
    return back


@pytest.mark.parametrize("order", [1, 2, 3, 5, 8])
@pytest.mark.parametrize(
    "settings",
    [
        {"smoothing": "modified-kneser-ney"},
        {"smoothing": "katz"},
        {"smoothing": "mle"},
        {"smoothing": "witten-bell", "vocabulary": "closed"},
        {"smoothing": "kneser-ney", "precision": "8bit"},
        {"smoothing": "witten-bell", "prune": 0.01},
        {"smoothing": "absolute", "interpolate": False, "min_counts": "1,1,2"},
    ],
    ids=str,
)
def test_a_round_trip(settings: dict[str, Any], order: int, tmp_path: Path) -> None:
    model = make(order=order, **settings)
    back = round_trip(model, tmp_path)
    assert back.tokenizer.vocabulary == model.tokenizer.vocabulary
    assert np.allclose(token_logprobs(back), token_logprobs(model), rtol=1e-6, atol=1e-6)
    assert verify_arpa(tmp_path / "m.arpa.gz")["largest_deviation"] < 2e-6


def test_an_imported_model_records_its_source(tmp_path: Path) -> None:
    model = make(order=2)
    back = round_trip(model, tmp_path)
    assert (back.recipe.smoothing, back.recipe.order, back.recipe.vocabulary) == ("imported", 2, "open")
    manifest = open_artifact(tmp_path / "back").manifest
    assert manifest.name == "imported"
    assert manifest.corpus["imported"] == "m.arpa.gz"
    assert manifest.metrics["ngrams"] == read_arpa(tmp_path / "m.arpa.gz").sizes
    assert back.generate(count=2, seed=1) == back.generate(count=2, seed=1)
    assert back.next("he read")[0][0] == model.next("he read")[0][0]
    closed = round_trip(make(order=2, vocabulary="closed"), tmp_path / "closed")
    assert closed.recipe.vocabulary == "closed"
    assert closed.score(["zebra"])[0].logprob == -np.inf


def test_words_of_a_file_are_not_normalised(tmp_path: Path) -> None:
    text = ["e\u0301te\u0301 U.S.A. 我们喜欢语言 don't,stop", "été été <b> U.S.A."]
    recipe = TokenizerRecipe(model="words", split="space", normalise="none", segmenter="space")
    model = train_on_sentences(text, NgramRecipe(order=2, tokenizer=recipe))
    back = round_trip(model, tmp_path)
    assert back.tokenizer.tokenize(text[0]) == text[0].split()
    assert [score.logprob for score in back.score(text)] == pytest.approx([s.logprob for s in model.score(text)])


@pytest.mark.parametrize("kind", ["chars", "wordpiece", "byte-bpe"])
def test_models_of_other_tokenizers_are_exported(kind: Any, tmp_path: Path) -> None:
    recipe = TokenizerRecipe(model=kind, vocab_size=None if kind == "chars" else 300)
    model = train_on_sentences(TEXT, NgramRecipe(order=3, tokenizer=recipe))
    export_model(model, "arpa", tmp_path / "m.arpa")
    assert verify_arpa(tmp_path / "m.arpa")["vocabulary"] == len(model.tokenizer) - 2


@pytest.mark.parametrize(
    "settings",
    [{"smoothing": "additive"}, {"smoothing": "good-turing", "uniform_backoff": True}, {"smoothing": "church-gale"}],
)
def test_models_that_do_not_back_off_are_refused(settings: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(AbilityError, match="ARPA cannot hold this"):
        export_model(make(order=2, **settings), "arpa", tmp_path / "m.arpa")
    assert not list(tmp_path.iterdir())
    if settings["smoothing"] != "church-gale":
        round_trip(make(order=1, **settings), tmp_path)


def test_other_models_are_refused(tmp_path: Path) -> None:
    with pytest.raises(AbilityError, match="n-gram models only"):
        export_model(make(order=2).tokenizer, "arpa", tmp_path / "m.arpa")
    with pytest.raises(AbilityError, match="did you mean 'arpa'"):
        import_model("apra", tmp_path / "m.arpa", tmp_path / "back")
    assert list(FORMATS) == [
        "arpa",
        "brown",
        "fasttext",
        "glove",
        "huggingface",
        "onnx",
        "sentence-transformers",
        "word2vec",
    ]


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    export_model(make(order=2), "arpa", tmp_path / "m.arpa")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    with pytest.raises(OutputError, match="already holds something"):
        import_model("arpa", tmp_path / "m.arpa", tmp_path / "full")


def test_verbs(tmp_path: Path) -> None:
    app = typer.Typer()
    app.command(name="export")(export_)
    app.command(name="import")(import_)
    path, runner = str(tmp_path / "m.arpa"), CliRunner()
    export_model(make(order=2), "arpa", Path(path))
    done = runner.invoke(app, ["import", "arpa", path, "-o", str(tmp_path / "model"), "--json"])
    assert done.exit_code == 0
    assert json.loads(done.stdout)["order"] == 2
    done = runner.invoke(app, ["export", str(tmp_path / "model"), "arpa", str(tmp_path / "again.arpa"), "--json"])
    report = json.loads(done.stdout)
    assert report["bytes"] == (tmp_path / "again.arpa").stat().st_size
    assert report["ngrams"] == read_arpa(Path(path)).sizes
    assert runner.invoke(app, ["export", str(tmp_path / "model"), "arap", path]).exit_code == 2
    assert runner.invoke(app, ["export", str(tmp_path / "model"), "arpa", path]).exit_code == 1
    assert "ngrams" in runner.invoke(app, ["export", str(tmp_path / "model"), "arpa", path, "--force"]).stdout
    Path(path).write_text("\\data\\\n")
    assert runner.invoke(app, ["import", "arpa", path, "-o", str(tmp_path / "other")]).exit_code == 1
    assert not (tmp_path / "other").exists()
