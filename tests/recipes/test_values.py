"""Settings by name: types, nesting, near misses; recipes from damaged JSON."""

from __future__ import annotations

from typing import Any

import pytest

from firth.errors import ArtifactError, RecipeError
from firth.nets.recipe import NetRecipe
from firth.recipes.table import find_recipe
from firth.recipes.values import difference, flatten, override, recipe_from_json, recipe_to_json


@pytest.mark.parametrize(
    ("setting", "field", "value"),
    [
        ("vocab_size=500", "vocab_size", 500),
        ("lowercase=TRUE", "lowercase", True),
        ("lowercase=no", "lowercase", False),
        ("normalise=nfkc", "normalise", "nfkc"),
        ("dictionary=a=b.txt", "dictionary", "a=b.txt"),
        ("dictionary=none", "dictionary", None),
    ],
)
def test_values_have_the_type_of_their_field(setting: str, field: str, value: Any) -> None:
    assert getattr(override(find_recipe("wordpiece"), [setting]), field) == value


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("vocab_size=many", "a whole number or none"),
        ("vocab_size=1.5", "a whole number"),
        ("lowercase=maybe", "true or false"),
        ("normalise=nfd", r"none \| nfc \| nfkc"),
        ("vocabsize=3", "did you mean 'vocab_size'"),
        ("model.x=3", "no fields of its own"),
        ("vocab_size", "key=value"),
        ("vocab_size=none", "needs a vocab_size"),
    ],
)
def test_wrong_settings_are_told(setting: str, said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        override(find_recipe("wordpiece"), [setting])


def test_a_field_can_be_a_recipe() -> None:
    recipe = override(find_recipe("unigram"), ["tokenizer=bpe", "tokenizer.vocab_size=900"])
    assert flatten(recipe_to_json(recipe))["tokenizer.vocab_size"] == 900
    with pytest.raises(RecipeError, match="did you mean 'bpe'"):
        override(find_recipe("unigram"), ["tokenizer=bpee"])


def test_differences_between_types() -> None:
    found = difference(find_recipe("words"), find_recipe("unigram"))
    assert found["type"] == ("tokenizer", "ngram")
    assert found["delta"] == (None, 1.0)
    assert found["tokenizer.model"] == (None, "words")


@pytest.mark.parametrize(
    "change",
    [{"type": "dream"}, {"vocab_size": "many"}, {"extra": 1}, {"lowercase": 1}, {"model": "none"}, {"type": None}],
)
def test_damaged_json_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ArtifactError):
        recipe_from_json(recipe_to_json(find_recipe("bpe")) | change)
    nested = recipe_to_json(find_recipe("unigram"))
    with pytest.raises(ArtifactError):
        recipe_from_json(nested | {"tokenizer": nested["tokenizer"] | change})
    with pytest.raises(ArtifactError):
        recipe_from_json(nested | {"tokenizer": "words"})


def test_a_field_that_is_younger_than_an_artifact_has_its_default() -> None:
    data = recipe_to_json(find_recipe("bert"))
    assert data["encoder"].pop("start") == "random"
    assert recipe_from_json(data) == find_recipe("bert")
    with pytest.raises(ArtifactError, match=r"unknown fields \(stop\): upgrade"):
        recipe_from_json(data | {"stop": 1})


def test_fields_that_fit_only_together_may_be_set_one_by_one() -> None:
    narrow = ["encoder.width=16", "encoder.heads=2", "tokenizer=chars", "tokenizer.min_count=2"]
    for settings in (narrow, narrow[::-1]):
        recipe = override(find_recipe("gpt"), settings)
        assert isinstance(recipe, NetRecipe)
        assert (recipe.encoder.width, recipe.encoder.heads, recipe.tokenizer.min_count) == (16, 2, 2)
        assert recipe.tokenizer.model == "chars"
    with pytest.raises(RecipeError, match=r"must be a multiple of encoder.heads=12"):
        override(find_recipe("gpt"), ["encoder.width=16"])
    with pytest.raises(RecipeError, match=r"no field 'encoder.wide': did you mean 'width'"):
        override(find_recipe("gpt"), ["encoder.wide=16"])
