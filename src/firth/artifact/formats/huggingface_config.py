"""config.json of Hugging Face models and recipes, by the tables of the families."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Any

from torch import Tensor

from firth.artifact.formats.huggingface_family import Config, ModelType
from firth.artifact.formats.huggingface_registry import MODEL_TYPES, model_type_for, model_type_of
from firth.errors import ArtifactError, FirthError, RecipeError
from firth.nets.recipe import NetRecipe
from firth.recipes.values import recipe_from_json, recipe_to_json
from firth.tokens.tokenizer import EOS, PAD

__all__ = ["MODEL_TYPES", "make_config", "model_type_for", "model_type_of", "recipe_from_config", "stored_recipe"]

RECIPE_KEY = "firth"  # key of config.json that holds the recipe; other programs ignore it


def make_config(recipe: NetRecipe, vocabulary: int, *, has_head: bool) -> Config:
    """The config.json of a model with `vocabulary` tokens, with or without the layers of `head_objective`."""
    family = model_type_for(recipe)
    their_activations = {ours: theirs for theirs, ours in family.activations.items()}
    converted = {
        "encoder.activation": their_activations[recipe.encoder.activation],
        "sequence.length": recipe.sequence.length + family.position_offset({"pad_token_id": PAD}),
        "embedding.segments": recipe.embedding.segments or 1,
        "embedding.languages": recipe.embedding.languages or 1,
    }
    stored = replace(recipe, tokenizer=replace(recipe.tokenizer, dictionary=None))
    return {
        "model_type": family.name,
        "architectures": [family.architecture_of(recipe, has_head)],
        "vocab_size": vocabulary,
        **{theirs: converted.get(ours, attrgetter(ours)(recipe)) for ours, (theirs, _) in family.fields.items()},
        "tie_word_embeddings": recipe.output.kind == "tied",
        "pad_token_id": PAD,
        "bos_token_id": family.begin_token,
        "eos_token_id": EOS,
        "dtype": "float32",
        **family.further_config(recipe),
        RECIPE_KEY: recipe_to_json(stored),
    }


def recipe_from_config(config: Config, given: Mapping[str, Tensor]) -> NetRecipe:
    """The recipe of a config.json and of the weights that it describes."""
    family = model_type_of(config)
    family.check_config(config)
    values = family.recipe_values(config)
    base = stored_recipe(config)
    if base is None or not _same_layout(family, model_type_for(base)):
        base = family.starting_recipe(given)
        values = family.default_values(values) | values
    output = family.read_output(base, config, given)
    try:
        recipe = family.read_objectives(base, values, config, given)
        recipe = replace(_with_fields(recipe, values), output=output)
    except RecipeError as error:
        raise ArtifactError(f"config.json describes a model that Firth cannot build: {error}") from None
    model_type_for(recipe)
    return recipe


def _same_layout(one: ModelType, two: ModelType) -> bool:
    """Whether two families hold the same recipes."""
    return (one.layout or one.name) == (two.layout or two.name)


def stored_recipe(config: Config) -> NetRecipe | None:
    """The recipe that Firth stored in a config.json, if it can be read and exported."""
    try:
        found = recipe_from_json(config[RECIPE_KEY])
        return found if isinstance(found, NetRecipe) and model_type_for(found) else None
    except (FirthError, KeyError, TypeError, ValueError):
        return None


def _with_fields(recipe: NetRecipe, values: Mapping[str, Any]) -> NetRecipe:
    """The recipe with fields such as `encoder.width` set, all at once."""
    parts: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        part, _, own = name.partition(".")
        parts.setdefault(part, {})[own] = value
    return replace(recipe, **{part: replace(getattr(recipe, part), **chosen) for part, chosen in parts.items()})
