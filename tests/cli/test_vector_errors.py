"""Texts and settings that vectors cannot be trained with: one sentence with a remedy, no folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from firth.recipes.table import RECIPES
from firth.vectors.recipe import ClassifierRecipe, GraphRecipe, VectorRecipe
from tests.command import firth

VECTORS = [
    name
    for name, entry in RECIPES.items()
    if isinstance(recipe := entry.make(), VectorRecipe) and not isinstance(recipe, ClassifierRecipe | GraphRecipe)
]
MIN_COUNT_ONE = ["--set", "tokenizer.min_count=1"]


def training_error(tmp_path: Path, recipe: str, text: str, *options: str, code: int = 1) -> str:
    """The error message of training, which is one sentence."""
    corpus = tmp_path / "corpus.txt"
    corpus.write_text(text, encoding="utf-8")
    outcome = firth("train", recipe, corpus, "-o", tmp_path / "out", "--layout", "lines", *options)
    assert outcome.code == code, outcome.out
    lines = [line for line in outcome.err.splitlines() if line.startswith("firth: ")]
    assert len(lines) == 1
    assert lines[0].endswith(".")
    assert not (tmp_path / "out").exists()
    return lines[0]


@pytest.mark.parametrize("recipe", VECTORS)
def test_words_below_the_minimum_count(recipe: str, tmp_path: Path) -> None:
    assert "min_count" in training_error(tmp_path, recipe, "all of these words occur once\n")


@pytest.mark.parametrize("recipe", VECTORS)
def test_a_vocabulary_of_one_word(recipe: str, tmp_path: Path) -> None:
    assert "give more text" in training_error(tmp_path, recipe, "word word word\nword word\n" * 10, *MIN_COUNT_ONE)


@pytest.mark.parametrize("recipe", ["skipgram", "cbow", "fasttext", "glove", "ppmi-svd"])
def test_fewer_words_than_the_window(recipe: str, tmp_path: Path) -> None:
    assert "windows of 20" in training_error(
        tmp_path, recipe, "only four words here\n", *MIN_COUNT_ONE, "--set", "window=20"
    )


@pytest.mark.parametrize("recipe", ["lsa", "ppmi-svd"])
def test_more_dimensions_than_words(recipe: str, tmp_path: Path) -> None:
    text = "a b c d e f g h\n\nb c d e a h g f\n\nd a f g b c h e\n"
    assert "dimension" in training_error(
        tmp_path, recipe, text, *MIN_COUNT_ONE, "--set", "dimension=50", "--set", "phrases=0"
    )


@pytest.mark.parametrize(
    ("recipe", "setting"),
    [
        ("skipgram", "dimension=0"),
        ("skipgram", "negatives=0"),
        ("skipgram", "lr=-1"),
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
    assert training_error(tmp_path, recipe, "a b c d e f\n" * 10, "--set", setting, code=2)


def test_a_vocabulary_too_large_for_the_exact_objective(tmp_path: Path) -> None:
    words = " ".join(f"w{number}" for number in range(50_100))
    assert "loss=negative" in training_error(
        tmp_path, "skipgram", words + "\n", *MIN_COUNT_ONE, "--set", "loss=softmax"
    )
