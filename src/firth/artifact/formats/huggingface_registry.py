"""All families of Hugging Face models that can be exported and imported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from firth.artifact.formats.huggingface_albert import Albert
from firth.artifact.formats.huggingface_bart import Bart
from firth.artifact.formats.huggingface_bert import Bert
from firth.artifact.formats.huggingface_electra import Electra
from firth.artifact.formats.huggingface_ernie import Ernie
from firth.artifact.formats.huggingface_family import Config, ModelType, SecondModel
from firth.artifact.formats.huggingface_gpt import Gpt
from firth.artifact.formats.huggingface_gpt2 import Gpt2
from firth.artifact.formats.huggingface_marian import Marian
from firth.artifact.formats.huggingface_roberta import Roberta
from firth.artifact.formats.huggingface_t5 import T5
from firth.artifact.formats.huggingface_xlm import Xlm
from firth.artifact.formats.huggingface_xlnet import Xlnet
from firth.errors import AbilityError, ArtifactError
from firth.nets.recipe import NetRecipe

_FAMILIES: tuple[ModelType, ...] = (
    *(Bert(), Roberta(), Albert(), Electra(), Gpt2(), Gpt(), Xlm(), Marian(), Ernie(), Xlnet()),
    *(Bart(), T5()),
)
"""The last of those that claim a recipe is its family, so that the first may claim what is left."""

FIRST = _FAMILIES[0]
"""The model type of folders that do not say one."""
MODEL_TYPES = {family.name: family for family in _FAMILIES}
"""Model types that can be exported and imported."""


def nearest_family(recipe: NetRecipe) -> ModelType:
    """The family that claims a recipe, whether or not it supports all of its parts."""
    return next(family for family in reversed(_FAMILIES) if family.claims(recipe))


def model_type_for(recipe: NetRecipe) -> ModelType:
    """The model type that a recipe has at Hugging Face, by its parts.

    >>> from firth.recipes.nets import albert, elmo, gpt
    >>> model_type_for(albert()).name, model_type_for(gpt()).name
    ('albert', 'openai-gpt')
    >>> model_type_for(elmo())
    Traceback (most recent call last):
    ...
    firth.errors.AbilityError: Hugging Face has no such model (encoder.kind=lstm): export one such as bert or gpt2.
    """
    family = nearest_family(recipe)
    if recipe.encoder.layer_sizes:
        raise AbilityError(
            "Hugging Face has no models whose layers have different numbers of heads: export the model before "
            "firth compress --method prune, or a distilled one."
        )
    parts = {f"entities.width={recipe.entities.width}": recipe.entities.width > 0, **family.unsupported(recipe)}
    if part := next((part for part, is_lacking in parts.items() if is_lacking), ""):
        raise AbilityError(f"Hugging Face has no such model ({part}): export one such as bert or gpt2.")
    return family


def model_type_of(config: Config) -> ModelType:
    """The model type of a config.json."""
    name = config.get("model_type")
    if not isinstance(name, str) or name not in MODEL_TYPES:
        known = ", ".join(MODEL_TYPES)
        raise ArtifactError(f"config.json has model_type={name!r:.80}, which Firth cannot read: it reads {known}.")
    return MODEL_TYPES[name]


def split_second(recipe: NetRecipe, tensors: Mapping[str, Any]) -> tuple[NetRecipe, SecondModel | None]:
    """The recipe of a model and its second network, if that is a model of its own at Hugging Face."""
    found = (family.second_model(recipe, tensors) for family in MODEL_TYPES.values())
    return next((parts for parts in found if parts is not None), (recipe, None))
