"""--entities on the command line: gazetteers that are empty, match nothing or everything; texts without units."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command import firth

SMALL = (
    *("--size", "tiny", "--budget", "1ktok", "--threads", "1", "--set", "sequence.length=16"),
    *("--set", "learning.batch=128", "--layout", "lines"),
)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    lines = [f"the sea of word{number % 7} is near green hills\nit is {number} again\n" for number in range(60)]
    path.write_text("\n".join(lines))
    return path


BAD = {
    "missing": (None, "no such file"),
    "empty": ("", "holds no entity"),
    "nothing": ("Zanzibar\nAtlantis\n", "none of the 2 entities of"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_gazetteer_of_no_use_is_an_error(kind: str, corpus: Path, tmp_path: Path) -> None:
    data, message = BAD[kind]
    path = tmp_path / "names.txt"
    if data is not None:
        path.write_text(data)
    found = firth("train", "ernie", corpus, "-o", tmp_path / "out", "--entities", path, *SMALL)
    assert found.code == 1
    assert message in found.err
    assert "Traceback" not in found.err
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_entities_of_the_user_are_found(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "names.spo").write_text("sea\tis near\tgreen hills\n")
    options = ("--entities", tmp_path / "names.spo")
    found = firth("train", "ernie", corpus, "-o", tmp_path / "out", *options, *SMALL)
    assert found.code == 0, found.err
    assert "120 entities" in found.err
    assert "dlm is not trained" in found.err
    measured = firth("noise", "ernie", corpus, "--tokens", "2000", "--layout", "lines", *options)
    assert measured.code == 0, measured.err
    assert "whole entities" in measured.out


def test_a_gazetteer_of_everything_is_noted(corpus: Path, tmp_path: Path) -> None:
    words = {word for line in corpus.read_text().splitlines() for word in line.split()}
    (tmp_path / "names.txt").write_text("\n".join(sorted(words)))
    found = firth("train", "ernie", corpus, "-o", tmp_path / "out", "--entities", tmp_path / "names.txt", *SMALL)
    assert found.code == 0, found.err
    assert "100% of the text are entities" in found.err


def test_a_text_without_units_is_noted(corpus: Path, tmp_path: Path) -> None:
    found = firth("train", "ernie", corpus, "-o", tmp_path / "out", *SMALL)
    assert found.code == 0, found.err
    assert "there are no phrases in the text: words are masked in their place" in found.err
    assert "there are no entities in the text: words are masked in their place; give some with --entities" in found.err


def test_other_recipes_have_no_entities(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_text("sea\n")
    found = firth("train", "bert", corpus, "-o", tmp_path / "out", "--entities", tmp_path / "names.txt", *SMALL)
    assert found.code in (1, 2)
    assert "--entities is for recipes that mask entities" in found.err


@pytest.mark.parametrize("file", ["names.txt", "names.spo"])
def test_a_model_is_adapted_with_entities(file: str, corpus: Path, tmp_path: Path) -> None:
    (tmp_path / file).write_text("sea\n" if file.endswith("txt") else "sea\tis near\tgreen hills\n")
    assert firth("train", "ernie", corpus, "-o", tmp_path / "out", *SMALL).code == 0
    brief = ("--budget", "1ktok", "--threads", "1", "--layout", "lines")
    found = firth("adapt", tmp_path / "out", corpus, "-o", tmp_path / "further", "--entities", tmp_path / file, *brief)
    assert found.code == 0, found.err
    assert f"{60 if file.endswith('txt') else 120} entities" in found.err
    (tmp_path / "none.txt").write_text("Zanzibar\n")
    refused = firth(
        "adapt", tmp_path / "out", corpus, "-o", tmp_path / "no", "--entities", tmp_path / "none.txt", *brief
    )
    assert refused.code == 1
    assert "none of the 1 entities of" in refused.err


def test_models_without_entities_are_not_adapted_with_them(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_text("sea\n")
    assert firth("train", "mkn3", corpus, "-o", tmp_path / "kn", "--threads", "1", "--layout", "lines").code == 0
    assert firth("train", "bert", corpus, "-o", tmp_path / "bert", *SMALL).code == 0
    for name in ("kn", "bert"):
        found = firth("adapt", tmp_path / name, corpus, "-o", tmp_path / "out", "--entities", tmp_path / "names.txt")
        assert found.code in (1, 2)
        assert "--entities is for recipes that mask entities" in found.err
        assert not (tmp_path / "out").exists()
