"""firth similar and firth embed: fixed JSON keys, text for people, files, and errors."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import firth as library
from tests.command import assert_refused, firth
from tests.vectors.small_models import save_model, small_model

WORDS = ["the", "king", "queen", "man", "woman", "足球", "篮球赛"]
ROWS = [[1, 1, 9], [4, 1, 0], [4, 2, 0], [1, 1, 0], [1, 2, 0], [-3, 1, 1], [-3, 1, 2]]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(small_model(WORDS, ROWS), tmp_path_factory.mktemp("models") / "small")


@pytest.fixture(scope="module")
def counts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "unigram"
    library.train("unigram", [["to be or not to be"]], out=folder)
    return folder


def test_neighbours_as_json(model: Path) -> None:
    report = firth("similar", model, "King", "--count", 2, "--json").json
    assert report["word"] == "King"
    assert [row["word"] for row in report["neighbours"]] == ["queen", "man"]
    assert report["neighbours"][0]["score"] == pytest.approx(18 / (17 * 20) ** 0.5)


def test_columns_are_aligned_by_display_width(model: Path) -> None:
    lines = firth("similar", model, "king").out.splitlines()
    assert len(lines) == 6
    assert "queen    0.9762" in lines[0]
    chinese = {line.split()[0]: line for line in lines}
    assert len(chinese["篮球赛"]) + 3 == len(chinese["足球"]) + 2 == len(chinese["queen"])


@pytest.mark.parametrize("method", ["add", "mul"])
def test_analogies(model: Path, method: str) -> None:
    report = firth("similar", model, "king", "woman", "--minus", "man", "--method", method, "--json").json
    assert report["neighbours"][0]["word"] == "queen"
    assert (report["plus"], report["minus"]) == (["king", "woman"], ["man"])


def test_the_odd_one_out_and_distances(model: Path) -> None:
    assert firth("similar", model, "king", "queen", "man", "足球", "--odd", "--json").json["odd"] == "足球"
    assert firth("similar", model, "king", "queen", "man", "足球", "--odd").out == "足球\n"
    report = firth("similar", model, "man", "woman", "--distance", "--json").json
    assert report["similarity"] == pytest.approx(3 / 10**0.5)
    assert report["similarity"] + report["distance"] == pytest.approx(1)
    assert "similarity  0.9487" in firth("similar", model, "man", "woman", "--distance").out


def test_word_maps_are_drawn(model: Path, tmp_path: Path) -> None:
    report = firth("similar", model, "--map", tmp_path / "map.svg", "--json").json
    assert report["words"] == WORDS
    ElementTree.fromstring((tmp_path / "map.svg").read_text(encoding="utf-8"))
    assert firth("similar", model, "king", "queen", "man", "--map", tmp_path / "few.svg").out.startswith("3 words")


def test_queries_that_cannot_be_answered(model: Path, counts: Path) -> None:
    assert_refused(firth("similar", model, "kingg"), "did you mean 'king'?")
    assert_refused(firth("similar", model, "king", "--context", "the king sat"), "one vector for a word")
    assert_refused(firth("similar", model, "king", "man", "--context", "the king sat"), "one word")
    assert_refused(firth("similar", model, "king", "man", "--method", "div"), "choose from add, mul", code=2)
    assert_refused(firth("similar", model, "king", "man", "--odd"), "three words")
    assert_refused(firth("similar", counts, "be"), "no word vectors")
    assert_refused(firth("similar", counts, "--map", "x.svg"), "no word vectors")


@pytest.mark.parametrize(
    "arguments",
    [[], ["king", "--distance"], ["king", "man", "--odd", "--distance"], ["a", "b", "--odd", "--minus", "c"]],
)
def test_wrong_usage(model: Path, arguments: list[str]) -> None:
    assert_refused(firth("similar", model, *arguments), code=2)


def test_lines_are_embedded(model: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("The king\n\nunheard of\n我喜欢足球\n", encoding="utf-8")
    out = tmp_path / "deep" / "texts.npy"
    report = firth("embed", model, tmp_path / "texts.txt", "-o", out, "--json").json
    assert report == {"out": str(out), "rows": 4, "dimension": 3, "empty": 2}
    rows = np.load(out)
    assert rows.dtype == np.float32
    assert rows.tolist() == [[2.5, 1, 4.5], [0, 0, 0], [0, 0, 0], [-3, 1, 1]]
    assert np.array_equal(rows, library.load(model).embed(["The king", "", "unheard of", "我喜欢足球"]))
    again = tmp_path / "again.npy"
    firth("embed", model, "-", "-o", again, stdin=(tmp_path / "texts.txt").read_bytes())
    assert again.read_bytes() == out.read_bytes()


def test_lines_are_embedded_in_batches(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firth.apply.embed._BATCH", 3)
    (tmp_path / "texts.txt").write_text("\n".join(["king", "man", "queen"] * 7), encoding="utf-8")
    firth("embed", model, tmp_path / "texts.txt", "-o", tmp_path / "a.npy")
    assert np.load(tmp_path / "a.npy").tolist() == [[4, 1, 0], [1, 1, 0], [4, 2, 0]] * 7


def test_failed_embedding_leaves_no_file(
    model: Path, counts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = tmp_path / "texts.txt"
    text.write_text("king\n", encoding="utf-8")
    out = tmp_path / "out"
    assert_refused(firth("embed", counts, text, "-o", out / "a.npy"), "no vectors of texts")
    assert_refused(firth("embed", model, tmp_path / "nowhere", "-o", out / "a.npy"), "nowhere")
    (tmp_path / "empty").write_text("")
    assert_refused(firth("embed", model, tmp_path / "empty", "-o", out / "a.npy"), "no text")
    monkeypatch.setattr("firth.apply.embed._MAX_BYTES", 100)
    assert_refused(firth("embed", model, text, "-o", out / "a.npy"), "fewer dimensions")
    assert not out.exists() or not list(out.iterdir())
