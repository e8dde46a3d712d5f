"""Texts and settings that no vectors can be made of: one sentence that names the remedy, exit code 1, nothing left."""

from __future__ import annotations

from pathlib import Path

import pytest

from firth.recipes.table import RECIPES
from firth.vectors.recipe import ClassifierRecipe, VectorRecipe
from tests.command import firth

VECTORS = [
    name
    for name, entry in RECIPES.items()
    if isinstance(recipe := entry.make(), VectorRecipe) and not isinstance(recipe, ClassifierRecipe)
]
ONE = ["--set", "tokenizer.min_count=1"]


def refuse(tmp_path: Path, recipe: str, text: str, *options: str) -> str:
    """The one sentence with which training ends."""
    corpus = tmp_path / "corpus.txt"
    corpus.write_text(text, encoding="utf-8")
    outcome = firth("train", recipe, corpus, "-o", tmp_path / "out", "--layout", "lines", *options)
    assert outcome.code == 1, outcome.out
    lines = [line for line in outcome.err.splitlines() if line.startswith("firth: ")]
    assert len(lines) == 1
    assert lines[0].endswith(".")
    assert not (tmp_path / "out").exists()
    return lines[0]


@pytest.mark.parametrize("recipe", VECTORS)
def test_words_below_the_least_count(recipe: str, tmp_path: Path) -> None:
    assert "min_count" in refuse(tmp_path, recipe, "all of these words occur once\n")


@pytest.mark.parametrize("recipe", VECTORS)
def test_a_vocabulary_of_one_word(recipe: str, tmp_path: Path) -> None:
    assert "give more text" in refuse(tmp_path, recipe, "word word word\nword word\n" * 10, *ONE)


@pytest.mark.parametrize("recipe", ["skipgram", "cbow", "fasttext", "glove", "ppmi-svd"])
def test_fewer_words_than_the_window(recipe: str, tmp_path: Path) -> None:
    assert "windows of 20" in refuse(tmp_path, recipe, "only four words here\n", *ONE, "--set", "window=20")


@pytest.mark.parametrize("recipe", ["lsa", "ppmi-svd"])
def test_more_dimensions_than_words(recipe: str, tmp_path: Path) -> None:
    text = "a b c d e f g h\n\nb c d e a h g f\n\nd a f g b c h e\n"
    assert "dimension" in refuse(tmp_path, recipe, text, *ONE, "--set", "dimension=50", "--set", "phrases=0")


@pytest.mark.parametrize(
    ("recipe", "setting"),
    [
        ("skipgram", "dimension=0"),
        ("skipgram", "negatives=0"),
        ("skipgram", "learning_rate=-1"),
        ("skipgram", "subsample=2"),
        ("skipgram", "min_n=3"),
        ("glove", "x_max=0"),
        ("brown", "clusters=1"),
        ("pv-dbow", "combine=concat"),
        ("lsa", "weighting=ppmi"),
        ("fasttext", "min_n=7"),
        ("multi-prototype", "senses=0"),
        ("skipgram", "phrases=9"),
    ],
)
def test_impossible_settings(recipe: str, setting: str, tmp_path: Path) -> None:
    assert refuse(tmp_path, recipe, "a b c d e f\n" * 10, "--set", setting)


def test_a_vocabulary_too_large_for_the_exact_objective(tmp_path: Path) -> None:
    words = " ".join(f"w{number}" for number in range(50_100))
    assert "loss=negative" in refuse(tmp_path, "skipgram", words + "\n", *ONE, "--set", "loss=softmax")
