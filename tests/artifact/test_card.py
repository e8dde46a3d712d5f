"""Model cards: the licence of the text, in the manifest, the card and the README.md of a Hugging Face folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import firth as library
from tests.command import assert_refused, firth

TEXT = ["the quick brown fox jumps over the lazy dog", "the lazy dog sleeps"]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    (tmp_path / "text.txt").write_text("\n".join(TEXT))
    return tmp_path / "text.txt"


def recorded(folder: Path) -> tuple[object, str]:
    """The licence in the manifest of an artifact, and that in its card."""
    (row,) = [line for line in (folder / "card.md").read_text().splitlines() if line.startswith("| licence |")]
    return library.info(folder)["corpus"].get("licence"), row.split("|")[2].strip()


@pytest.mark.parametrize("option", ["--licence", "--license"])
def test_the_licence_of_the_text_is_recorded(option: str, text: Path, tmp_path: Path) -> None:
    out = tmp_path / "uni"
    assert firth("train", "unigram", text, "-o", out, option, "CC-BY-4.0").code == 0
    assert recorded(out) == ("CC-BY-4.0", "CC-BY-4.0")
    assert "licence CC-BY-4.0" in firth("info", out).out
    assert firth("verify", out).code == 0


def test_an_adapted_model_has_the_licences_of_both_texts(text: Path, tmp_path: Path) -> None:
    library.train("mkn3", text, out=tmp_path / "old", licence="MIT")
    library.train("words", [["other words"]], out=tmp_path / "tokens")
    for model, options, expected in (
        ("old", ("--licence", "CC0-1.0"), "MIT; CC0-1.0"),
        ("old", ("--licence", "MIT"), "MIT"),
        ("old", (), None),  # that of the new text is not known
        ("tokens", ("--license", "MIT"), "not recorded; MIT"),
    ):
        out = tmp_path / f"{model}-{'-'.join(options)}"
        assert firth("adapt", tmp_path / model, text, "-o", out, *options).code == 0
        assert recorded(out) == (expected, expected or "not recorded")
    library.adapt(tmp_path / "old", text, out=tmp_path / "twice", licence="MIT")
    library.adapt(tmp_path / "twice", out=tmp_path / "once", remove=[text])
    assert recorded(tmp_path / "once") == ("MIT", "MIT")  # no text was added


@pytest.mark.parametrize(
    ("licence", "fields"),
    [
        ("CC-BY-4.0", ["license: cc-by-4.0"]),
        ('our "own": terms', ["license: other", 'license_name: "our \\"own\\": terms"']),
        (None, []),
    ],
)
def test_an_exported_folder_names_the_licence(licence: str | None, fields: list[str], tmp_path: Path) -> None:
    settings = {
        "tokenizer.vocab_size": 60,
        "encoder.layers": 1,
        "encoder.heads": 2,
        "encoder.width": 16,
        "embedding.width": 16,
    }
    options = {"size": "tiny", "budget": "200tok", "settings": settings, "threads": 1}
    model = library.train("bert", [TEXT * 20], out=tmp_path / "bert", licence=licence, **options)  # type: ignore[arg-type]
    library.export(model, "huggingface", tmp_path / "hf")
    head = (tmp_path / "hf" / "README.md").read_text().split("---\n")[1].splitlines()
    assert [line for line in head if line.startswith("license")] == fields
    assert all(json.loads(line.partition(": ")[2]) == licence for line in head if line.startswith("license_name"))


@pytest.mark.parametrize("licence", ["", "  ", "two\nlines", "x" * 201, "\x1b[2J"])
def test_what_is_no_licence_is_refused_at_once(licence: str, text: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert_refused(firth("train", "unigram", text, "-o", out, "--licence", licence), "one line of text", code=2)
    assert_refused(firth("adapt", tmp_path / "nowhere", text, "-o", out, "--licence", licence), "CC-BY", code=2)
    with pytest.raises(library.FirthError, match="licence must be"):
        library.train("unigram", text, out=out, licence=licence)
    with pytest.raises(library.FirthError, match="licence must be a string"):
        library.train("unigram", text, out=out, licence=1)  # type: ignore[arg-type]
