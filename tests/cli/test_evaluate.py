"""firth evaluate: the fixed JSON keys of each suite, text for people, and errors."""

from __future__ import annotations

from pathlib import Path

import pytest

import firth as library
from tests.command import assert_refused, firth
from tests.vectors.small_models import save_model, small_model

WORDS = ["the", "king", "queen", "man", "woman", "girl"]
ROWS = [[1, 1, 9], [4, 1, 0], [4, 2, 0], [1, 1, 0], [1, 2, 0], [-1, 2, 3]]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(small_model(WORDS, ROWS), tmp_path_factory.mktemp("models") / "small")


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_word_similarity(model: Path, tmp_path: Path) -> None:
    pairs = write(
        tmp_path / "pairs.tsv", "word1\tword2\tscore\nking\tqueen\t9\nman\tgirl\t3\nking\tzebra\t1\nthe\tman\t2\n"
    )
    report = firth("evaluate", model, "words", pairs, "--json").json
    assert report.keys() >= {"spearman", "pairs", "covered", "spearman_interval", "ties", "missing", "spearman_all"}
    assert (report["suite"], report["pairs"], report["covered"]) == ("words", 4, 3)
    text = firth("evaluate", model, "words", pairs).out
    assert "spearman" in text
    assert "missing words: zebra" in text
    several = firth("evaluate", model, "words", pairs, pairs, "--json").json
    assert [part["spearman"] for part in several["files"]] == [report["spearman"]] * 2


def test_undefined_correlations_are_null(model: Path, tmp_path: Path) -> None:
    report = firth("evaluate", model, "words", write(tmp_path / "one", "king queen 9\n"), "--json").json
    assert report["spearman"] is None
    assert report["note"]


@pytest.mark.parametrize("score", ["nan", "inf", "-inf"])
def test_scores_that_are_no_numbers_are_no_header(model: Path, tmp_path: Path, score: str) -> None:
    pairs = write(tmp_path / "pairs.tsv", f"king\tqueen\t{score}\nman\tgirl\t3\nthe\tman\t2\n")
    assert_refused(firth("evaluate", model, "words", pairs), "line 1: a pair has two words and a number")
    row = "\tking\tn\tqueen\tn\ta <b> king </b> .\ta <b> queen </b> .\t"
    contexts = write(tmp_path / "contexts.tsv", f"1{row}{score}\n2{row}2\n")
    assert_refused(firth("evaluate", model, "context", contexts), "line 1: there must be eight fields")


@pytest.mark.parametrize("method", ["add", "mul"])
def test_analogies(model: Path, tmp_path: Path, method: str) -> None:
    questions = write(tmp_path / "a.txt", ": royal\nman king woman queen\nman king woman zebra\n: none\nx y z man\n")
    report = firth("evaluate", model, "analogies", questions, "--method", method, "--json").json
    assert (report["accuracy"], report["questions"], report["covered"]) == (1.0, 3, 1)
    assert report["sections"]["none"] == {"accuracy": None, "questions": 1, "covered": 0}
    low, high = report["accuracy_interval"]
    assert 0 < low < high <= 1
    text = firth("evaluate", model, "analogies", questions).out
    assert "royal" in text
    assert "100.0%  of 1 (of 2 questions)" in text
    few = firth("evaluate", model, "analogies", questions, "--restrict", 2, "--json").json
    assert few["accuracy"] is None


def test_similarity_in_context(model: Path, tmp_path: Path) -> None:
    rows = [("king", "queen", 3), ("man", "girl", 2), ("the", "man", 1)]
    lines = [f"{n}\t{a}\tn\t{b}\tn\ta <b> {a} </b> .\ta <b> {b} </b> .\t{s}" for n, (a, b, s) in enumerate(rows)]
    report = firth("evaluate", model, "context", write(tmp_path / "scws", "\n".join(lines)), "--json").json
    assert (report["pairs"], report["covered"], report["measure"]) == (3, 3, "AvgSim")


def test_probe(model: Path, tmp_path: Path) -> None:
    lines = "\n".join(["label\ttext_a", *(["1\tking queen", "0\tman girl"] * 10)])
    report = firth("evaluate", model, "probe", write(tmp_path / "train.tsv", lines), "--json").json
    assert report.keys() >= {"accuracy", "accuracy_interval", "macro_f1", "majority"}
    assert (report["accuracy"], report["macro_f1"], report["majority"]) == (1.0, 1.0, 0.5)


def test_the_command_line_calls_the_function(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is one code path for both: what the function returns is what is printed."""
    calls: list[tuple[object, ...]] = []

    def evaluate(*arguments: object, **options: object) -> dict[str, object]:
        calls.append((*arguments, options))
        return {"accuracy": 0.25}

    monkeypatch.setattr("firth.api.evaluate", evaluate)
    given = ("--method", "mul", "--restrict", 7, "--field", "label=kind")
    assert firth("evaluate", model, "words", tmp_path / "a", *given, "--json").json == {
        "suite": "words",
        "accuracy": 0.25,
    }
    options = {"method": "mul", "restrict": 7, "columns": ["label=kind"], "skip_bad": False, "out": None}
    others = dict.fromkeys(("task", "pair", "beams", "layer", "pooling", "shots", "train", "template"))
    lists: dict[str, object] = {"floors": [], "answers": []}
    assert calls == [(model, "words", tmp_path / "a", options | {"force": False} | others | lists)]


def test_the_function_takes_what_the_command_line_takes(tmp_path: Path) -> None:
    rows = [("pos", "a good film"), ("neg", "a bad film")] * 5
    settings = {"epochs": 1, "dimension": 4}
    trained = library.train("fasttext-classifier", rows, out=tmp_path / "films", settings=settings)
    file = write(tmp_path / "test.tsv", "kind\treview\n" + "".join(f"{label}\t{text}\n" for label, text in rows))
    columns = ["label=kind", "text=review"]
    assert library.evaluate(trained, "classify", file, columns=columns)["examples"] == 10
    page = tmp_path / "page.html"
    report = library.evaluate(tmp_path / "films", "task", file, columns=columns, out=page)
    assert report["report"] == str(page)
    assert "Error analysis of films" in page.read_text()
    for options, message in (
        ({"out": page}, "force=True"),
        ({"columns": "label=kind"}, "columns must be a list"),
        ({"columns": ["kind"]}, "ROLE=NAME"),
        ({"method": "ad"}, "did you mean 'add'"),
        ({"restrict": 0}, "restrict is 0"),
    ):
        with pytest.raises(library.FirthError, match=message):
            library.evaluate(trained, "task", file, **options)  # type: ignore[arg-type]
    with pytest.raises(library.FirthError, match=r"columns=\['ROLE=NAME'\] belongs to the suite task"):
        library.evaluate(trained, "words", file, columns=columns)
    with pytest.raises(library.FirthError, match="skip_bad=True belongs to the suite task"):
        library.evaluate(trained, "classify", file, skip_bad=True)


def test_models_and_files_that_cannot_be_evaluated(model: Path, tmp_path: Path) -> None:
    pairs = write(tmp_path / "pairs", "king queen 9\n")
    library.train("unigram", [["to be or not to be"]], out=tmp_path / "uni")
    for suite in ("words", "analogies", "context", "probe"):
        outcome = firth("evaluate", tmp_path / "uni", suite, pairs)
        assert outcome.code == 1
        assert outcome.err.count("\n") == 1
        assert "vectors" in outcome.err
    assert "did you mean 'words'?" in firth("evaluate", model, "wrods", pairs).err
    assert "four words" in firth("evaluate", model, "analogies", pairs).err
    assert "choose from add, mul" in firth("evaluate", model, "analogies", pairs, "--method", "div").err
    assert firth("evaluate", model, "words", tmp_path / "nowhere").code == 1
    assert firth("evaluate", model, "words").code == 2
