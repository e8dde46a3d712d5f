"""Settings by name: types, nesting, near misses; recipes from damaged JSON."""

from __future__ import annotations

import re
from typing import Any

import pytest

from firth.errors import ArgumentError, ArtifactError, RecipeError
from firth.nets.recipe import NetRecipe
from firth.recipes.table import find_recipe
from firth.recipes.values import difference, flatten, override, recipe_from_json, recipe_to_json, setting_list


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
def test_wrong_settings_are_refused(setting: str, said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        override(find_recipe("wordpiece"), [setting])


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"order": 2}, ["order=2"]),
        ({"smoothing": "katz", "prune": 1e-9}, ["smoothing=katz", "prune=1e-09"]),
        ({"tokenizer.lowercase": True}, ["tokenizer.lowercase=true"]),
        (
            {"tokenizer": {"lowercase": False, "vocab_size": None}},
            ["tokenizer.lowercase=false", "tokenizer.vocab_size=none"],
        ),
        ({"labels": ("a", "b")}, ["labels=a,b"]),
        (["order=2", "smoothing=katz"], ["order=2", "smoothing=katz"]),
        ((), []),
        ({}, []),
    ],
)
def test_settings_are_a_dictionary_or_a_list(settings: Any, expected: list[str]) -> None:
    assert setting_list(settings) == expected


def test_numbers_of_a_dictionary_are_exact() -> None:
    third = 1 / 3
    assert override(find_recipe("unigram"), setting_list({"delta": third})).delta == third  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("order=2", r"a dictionary, such as \{'order': '2'\}, not a string"),
        (["order=2", 3], "a list of strings, but it holds 3"),
        (None, "a list of strings, not None"),
        ({"order": object()}, "order must be a number, a string, True, False or None, not a object"),
    ],
)
def test_other_settings_are_refused(settings: Any, said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        setting_list(settings)


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


def test_a_missing_or_unknown_field_is_refused_with_the_remedy() -> None:
    data = recipe_to_json(find_recipe("bert"))
    with pytest.raises(ArtifactError, match=r"unknown fields \(stop\): upgrade"):
        recipe_from_json(data | {"stop": 1})
    del data["encoder"]["norm"]
    with pytest.raises(ArtifactError, match=r"recipe.encoder lacks norm: .*; train or import it again"):
        recipe_from_json(data)


def test_artifacts_from_before_a_field_existed_are_read() -> None:
    """Its default means what was done then."""
    recipe = find_recipe("bert")
    data = recipe_to_json(recipe)
    del data["word_classes"], data["output"]["training_samples"], data["encoder"]["cross_init"]
    assert recipe_from_json(data) == recipe
    with pytest.raises(ArtifactError, match="not a whole number"):
        recipe_from_json(data | {"word_classes": "many"})


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


NETS = {
    "learning.learning_rate": "learning.lr",
    "learning_rate": "learning.lr",
    "lr": "learning.lr",
    "hidden_size": "encoder.width and embedding.width",
    "encoder.hidden_size": "encoder.width and embedding.width",
    "dim": "encoder.width and embedding.width",
    "num_layers": "encoder.layers",
    "num_hidden_layers": "encoder.layers",
    "layers": "encoder.layers and sentence.layers",
    "num_attention_heads": "encoder.heads",
    "intermediate_size": "encoder.ffn_width",
    "epochs": "learning.epochs",
    "num_train_epochs": "learning.epochs",
    "batch_size": "learning.batch (tokens per step in pre-training, examples per step in fine-tuning)",
    "max_length": "sequence.length",
    "max_seq_length": "sequence.length",
    "mlm_probability": "mlm.masking.rate",
    "weight_decay": "learning.weight_decay",
    "min_frequency": "tokenizer.min_count",
}
VECTORS = {
    "learning_rate": "lr",
    "alpha": "lr",
    "vector_size": "dimension",
    "dim": "dimension",
    "window_size": "window",
    "negative": "negatives",
    "minn": "min_n",
    "maxn": "max_n",
    "iter": "epochs",
    "sample": "subsample",
    "minCount": "tokenizer.min_count",
}


@pytest.mark.parametrize(
    ("recipe", "setting", "key"),
    [
        *(("bert", setting, key) for setting, key in NETS.items()),
        *(("fasttext", setting, key) for setting, key in VECTORS.items()),
        ("fasttext-classifier", "wordNgrams", "word_ngrams"),
        ("multi-prototype", "vector_size", "base.dimension"),
        ("glove", "learning_rate", "lr"),
        ("mkn5", "vocab_size", "tokenizer.vocab_size"),
    ],
)
def test_settings_of_other_libraries_are_translated(recipe: str, setting: str, key: str) -> None:
    with pytest.raises(RecipeError, match=re.escape(f"no field {setting!r}: here it is {key}. The fields are")):
        override(find_recipe(recipe), [f"{setting}=1"])
    known = flatten(recipe_to_json(find_recipe(recipe)))
    assert all(name in known for name in key.partition(" (")[0].split(" and "))


@pytest.mark.parametrize(
    ("recipe", "setting"), [("fasttext", "mlm_probability"), ("bert", "negative"), ("glove", "minn"), ("mkn5", "lr")]
)
def test_settings_that_a_recipe_does_not_have_are_not_translated(recipe: str, setting: str) -> None:
    with pytest.raises(RecipeError, match=f"no field '{setting}': ((?!here it is).)*$"):
        override(find_recipe(recipe), [f"{setting}=1"])
