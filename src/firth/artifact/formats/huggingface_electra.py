"""An ELECTRA model as two models in two folders of Hugging Face: a discriminator and its generator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from firth.artifact.formats.huggingface_weights import Tensors
from firth.errors import ArtifactError, RecipeError
from firth.nets.recipe import NetRecipe
from firth.objectives.mlm import MaskedLM
from firth.objectives.rtd import Generator, ReplacedTokens

GENERATOR = "generator"
"""The folder of the generator in that of the discriminator."""
_PREFIX = f"heads.{ReplacedTokens.name}.generator."
_SHARED = tuple(f"embedding.{part}." for part in ("tokens", "positions", "segments", "norm"))
_TEXT = ("counts", "spelling")  # arrays that say something about the text
_APART = "import both folders separately"

Arrays = Mapping[str, npt.NDArray[Any]]


def generator_of(recipe: NetRecipe, tensors: Mapping[str, Any]) -> tuple[NetRecipe, Tensors] | None:
    """The recipe and the weights of the generator of a model, those that it shares included; None if it has none."""
    own = {name.removeprefix(_PREFIX): tensor for name, tensor in tensors.items() if name.startswith(_PREFIX)}
    if not own:
        return None
    second = recipe.second_networks[ReplacedTokens.name]
    return second, {name: tensor for name, tensor in tensors.items() if name.startswith(_SHARED)} | own


def join_generator(
    discriminator: NetRecipe, arrays: Arrays, generator: NetRecipe, others: Arrays, stored: NetRecipe | None
) -> tuple[NetRecipe, dict[str, npt.NDArray[Any]]]:
    """The recipe and the arrays of an ELECTRA model, given those of its two networks and a recipe stored by Firth."""
    for name in sorted(name for name in {*arrays, *others} if name.startswith(_SHARED)):
        if name not in arrays or name not in others or not np.array_equal(arrays[name], others[name]):
            raise ArtifactError(f"{name} of the generator is not that of the discriminator: {_APART}.")
    recipe = _joined_recipe(discriminator, generator, stored)
    second = recipe.second_networks[ReplacedTokens.name]
    if (second.encoder, second.output) != (generator.encoder, generator.output):
        raise ArtifactError(f"the sizes of the generator and of the discriminator do not go together: {_APART}.")
    own = {f"{_PREFIX}{name}": array for name, array in others.items() if not name.startswith((*_SHARED, *_TEXT))}
    return recipe, {**arrays, **own}


def _joined_recipe(discriminator: NetRecipe, generator: NetRecipe, stored: NetRecipe | None) -> NetRecipe:
    """The discriminator's recipe with the stored objective, or else with one that has such a generator."""
    objective = stored.objective(ReplacedTokens.name) if stored is not None else None
    if objective is None:
        masked = generator.objective(MaskedLM.name)
        masking = masked.masking if isinstance(masked, MaskedLM) else ReplacedTokens().masking
        ours, theirs = discriminator.encoder, generator.encoder
        sizes = Generator(width=theirs.width / ours.width, layers=theirs.layers / max(ours.layers, 1))
        objective = ReplacedTokens(generator=sizes, masking=masking)
    try:
        return replace(discriminator, objectives=(objective,))
    except RecipeError as error:
        raise ArtifactError(f"the two networks make no ELECTRA model ({error}): {_APART}.") from None
