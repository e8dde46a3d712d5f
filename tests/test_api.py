"""The functions of `firth`: those of the verbs give the same as the models and the command line."""

from __future__ import annotations

import pydoc
import rlcompleter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import firth
from firth.abilities import total
from firth.errors import AbilityError, ArgumentError
from tests.command import firth as command
from tests.vectors.small_models import save_model, small_model

TEXT = [["the cat sat", "the dog ran"], ["a cat ran"]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("api")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FIRTH_CACHE", str(path / "cache"))
        firth.train("mkn3", TEXT, out=path / "kn")
        save_model(small_model(["king", "queen", "man", "woman"], [[4, 1], [4, 3], [1, 0], [1, 2]]), path / "vectors")
        labelled = path / "labelled.tsv"
        labelled.write_text("text\tlabel\n" + "the cat sat\tcat\nthe dog ran\tdog\n" * 8)
        small: dict[str, Any] = {"dimension": 4, "epochs": 2, "buckets": 10}
        firth.train("fasttext-classifier", labelled, out=path / "labels", settings=small, threads=1)
    (path / "lines.txt").write_text("the cat ran\na dog sat\n")
    return path


def test_a_file_or_a_list_is_scored(folder: Path) -> None:
    texts = ["the cat ran", "a dog sat"]
    expected = total(firth.load(folder / "kn").score(texts))
    assert firth.score(folder / "kn", folder / "lines.txt") == expected
    assert firth.score(str(folder / "kn"), str(folder / "lines.txt")) == expected
    assert firth.score(firth.load(folder / "kn"), texts) == expected
    found = command("score", folder / "kn", folder / "lines.txt", "--json").json
    assert found["bits_per_byte"] == expected.bits_per_byte


def test_texts_are_generated(folder: Path) -> None:
    model = firth.load(folder / "kn")
    options: dict[str, Any] = {"count": 2, "length": 3, "seed": 5}
    assert firth.generate(model, "the", **options) == model.generate("the", **options)
    with pytest.raises(AbilityError, match="no beam search"):
        firth.generate(model, beams=2)
    with pytest.raises(AbilityError, match="no way to generate text"):
        firth.generate(folder / "vectors")


def test_texts_are_embedded(folder: Path) -> None:
    model = firth.load(folder / "vectors")
    (folder / "words.txt").write_text("king queen\nman\n")
    rows = firth.embed(model, folder / "words.txt")
    assert rows.tolist() == [[4, 2], [1, 0]] == firth.embed(model, ["king queen", "man"]).tolist()
    assert np.linalg.norm(firth.embed(model, ["king queen"], unit=True)) == pytest.approx(1)
    with pytest.raises(AbilityError, match="leave pooling out"):
        firth.embed(model, ["king"], pooling="max")


def test_words_are_compared(folder: Path) -> None:
    model = firth.load(folder / "vectors")
    assert firth.similar(folder / "vectors", "king", count=1) == model.similar("king", 1)
    assert firth.similar(model, ["king", "woman"], "man", count=1) == model.analogy(["king", "woman"], ["man"], 1)


def test_labels_are_predicted(folder: Path) -> None:
    answers = firth.predict(folder / "labels", ["the cat sat", "the dog ran"])
    assert [set(answer) for answer in answers] == [{"label", "probability", "probabilities"}] * 2
    (folder / "new.txt").write_text("the cat sat\nthe dog ran\n")
    assert firth.predict(folder / "labels", folder / "new.txt") == answers
    with pytest.raises(AbilityError, match=r"firth.finetune"):
        firth.predict(folder / "kn", ["the cat"])


def test_models_are_evaluated(folder: Path) -> None:
    pairs = folder / "pairs.tsv"
    pairs.write_text("king\tqueen\t9\nking\tman\t5\nman\tqueen\t2\n")
    found = firth.evaluate(folder / "vectors", "words", pairs)
    assert found["covered"] == 3
    assert {"suite": "words"} | found == command("evaluate", folder / "vectors", "words", pairs, "--json").json
    assert firth.evaluate(folder / "labels", "classify", folder / "labelled.tsv")["examples"] == 16
    with pytest.raises(ArgumentError, match="did you mean 'words'"):
        firth.evaluate(folder / "vectors", "word", pairs)
    with pytest.raises(ArgumentError, match="on files: name them"):
        firth.evaluate(folder / "vectors", "words")


def test_models_are_exported_and_imported(folder: Path, tmp_path: Path) -> None:
    model = firth.load(folder / "kn")
    assert firth.export(folder / "kn", "arpa", str(tmp_path / "kn.arpa"))["format"] == "arpa"
    imported = firth.import_("arpa", tmp_path / "kn.arpa", tmp_path / "again")
    assert imported.score(["the cat"])[0].logprob == pytest.approx(model.score(["the cat"])[0].logprob, abs=1e-5)
    assert firth.verify(tmp_path / "again")["ok"]
    assert firth.verify(tmp_path / "kn.arpa")


def test_what_is_no_model_is_refused() -> None:
    with pytest.raises(ArgumentError, match="not a list"):
        firth.score(["a text"], ["another"])
    with pytest.raises(ArgumentError, match="folder must be a path"):
        firth.load(None)  # type: ignore[arg-type]


def test_errors_of_python_have_its_words(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(firth.FirthError, match=r"already holds something: choose another folder with out, or"):
        firth.train("mkn3", TEXT, out=folder / "kn")
    outcome = command("train", "mkn3", folder / "lines.txt", "-o", folder / "kn")
    assert "choose another folder with -o, or" in outcome.err


def test_names_are_listed() -> None:
    names = dir(firth)
    verbs = {
        "train",
        "adapt",
        "finetune",
        "mix",
        "noise",
        "score",
        "generate",
        "fill",
        "similar",
        "embed",
        "predict",
        "evaluate",
    }
    assert verbs | {"export", "import_", "info", "verify", "load", "__version__", "__doc__"} <= set(names)
    assert set(firth.__all__) <= set(names)
    assert not [name for name in names if name.startswith("_") and not name.startswith("__")]
    with pytest.raises(AttributeError, match="nothing"):
        firth.nothing  # noqa: B018


def test_every_name_is_documented() -> None:
    for name in firth.__all__:
        assert getattr(firth, name).__doc__, name


def test_returns_are_typed() -> None:
    """No function returns `Any`."""
    for name in firth.__all__:
        function = getattr(firth, name)
        if not isinstance(function, type):
            assert function.__annotations__["return"] != "Any", name
    assert firth.score.__annotations__["return"] == "Score"


def test_names_are_completed_and_explained() -> None:
    complete = rlcompleter.Completer({"firth": firth}).complete
    assert complete("firth.trai", 0) == "firth.train("
    text = pydoc.plain(pydoc.render_doc(firth))
    assert "    finetune(model: " in text
    assert "The verbs of" not in text, "other modules are not its functions"
    assert "docs/python.md" in text
