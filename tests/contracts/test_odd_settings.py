"""Odd values of the settings of networks: trained with, or refused by one sentence before anything is made."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from firth.errors import RecipeError
from firth.recipes.table import RECIPES
from firth.recipes.values import override, recipe_to_json
from tests.command import assert_refused, firth

NETS = [name for name, entry in RECIPES.items() if entry.family == "nets"]
ODD = ("-1", "nan", "inf", "-inf", "1e400", "99999999999999999999", "abc", "", "none", "0x10", "true", "1.5", "0")
NEVER = ("nan", "inf", "-inf", "1e400", "abc", "", "0x10", "-1")
SMALL = (
    *("embedding.width=16", "encoder.width=16", "encoder.ffn_width=32", "encoder.heads=2", "encoder.layers=1"),
    *("sequence.length=24", "learning.batch=128"),
)


def numeric_fields(recipe: Any, prefix: str = "") -> Iterator[str]:
    for name, value in recipe.items():
        if isinstance(value, dict):
            yield from numeric_fields(value, f"{prefix}{name}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield prefix + name


def refusal(recipe: Any, setting: str) -> str:
    """Why a setting is refused; empty if it is not."""
    try:
        override(recipe, [setting])
    except RecipeError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", NETS)
def test_every_number_is_checked(name: str) -> None:
    """Whatever is given for a number: a recipe, or one sentence; never for what is no finite number, or negative."""
    recipe = RECIPES[name].make()
    fields = list(numeric_fields(recipe_to_json(recipe)))
    assert len(fields) > 20
    for field in fields:
        for value in ODD:
            message = refusal(recipe, f"{field}={value}")
            assert message or value not in NEVER, f"{field}={value} is accepted"
            assert not message or (message.endswith((".", "?")) and "\n" not in message)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("the old dog sees the young cat\nthe fox runs over the tree\n\n" * 20)
    return path


def train(name: str, text: Path, *settings: str) -> Any:
    given = [part for one in (*SMALL, *settings) for part in ("--set", one)]
    return firth("train", name, text, "-o", text.parent / "m", "--budget", "300tok", "--threads", "1", *given)


@pytest.mark.parametrize(
    ("name", "setting", "message", "code"),
    [
        ("bert", "tokenizer.min_count=99999999999999999999", "must be from 1 to 2147483647", 2),
        ("bert", "tokenizer.vocab_size=99999999999999999999", "must be at most 2147483647", 2),
        ("wordpiece", "min_count=99999999999999999999", "must be from 1 to 2147483647", 2),
        ("bert", "learning.clip=nan", "must be a number not below 0", 2),
        ("bert", "encoder.ffn_width=0", "without feed-forward layers", 2),
        ("transformer-xl", "encoder.layers=0", "a memory is of the layers", 2),
        ("electra", "rtd.generator_weight=-1", "rtd.generator_weight=-1.0 must be 0 or more", 2),
    ],
)
def test_odd_settings_are_refused(name: str, setting: str, message: str, code: int, text: Path) -> None:
    small = [part for one in SMALL for part in ("--set", one)] if RECIPES[name].family == "nets" else []
    made = firth("train", name, text, "-o", text.parent / "m", *small, "--set", setting)
    assert_refused(made, message, code=code)
    assert not (text.parent / "m").exists()


def test_a_loss_that_overflows_names_the_weights(text: Path) -> None:
    made = train("bert", text, "mlm.weight=1e308")
    assert made.code == 1
    assert "infinite in step 1: set smaller weights of the objectives" in made.err.splitlines()[-1]


def test_heads_of_one_dimension_are_initialised_randomly(text: Path) -> None:
    made = train("bert", text, "encoder.heads=16")
    assert made.code == 0, made.err
    assert "adjacent" not in made.err
    refused = train("bert", text, "encoder.heads=16", "encoder.init=adjacent")
    assert_refused(refused, "heads of 2 dimensions or more", code=2)
