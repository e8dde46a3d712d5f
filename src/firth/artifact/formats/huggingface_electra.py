"""ELECTRA: two models in two folders of Hugging Face, a discriminator and its generator (Clark et al. 2020)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from torch import Tensor

from firth.artifact.formats.huggingface_bert import BERT_FIELDS, MaskedType, encoder_names, pair_objective
from firth.artifact.formats.huggingface_family import Arrays, Config, HeadClass, SecondModel, Tensors
from firth.errors import ArtifactError, RecipeError
from firth.nets.recipe import NetRecipe, OutputRecipe
from firth.objectives.mlm import MaskedLM
from firth.objectives.rtd import Generator, ReplacedTokens
from firth.recipes.nets import electra

GENERATOR = "generator"
"""The folder of the generator in that of the discriminator."""
_PREFIX = f"heads.{ReplacedTokens.name}.generator."
_SHARED = tuple(f"embedding.{part}." for part in ("tokens", "positions", "segments", "norm"))
_TEXT = ("counts", "spelling")  # arrays that say something about the text
_APART = "import both folders separately"
_GENERATOR_LAYERS = ("generator_predictions.", "generator_lm_head.")


class Electra(MaskedType):
    """A generator, which has an output layer, or a discriminator, which has none; a narrow BERT is a generator, too."""

    name = "electra"
    architecture, pair_architecture = "ElectraForMaskedLM", "ElectraForPreTraining"
    fields = BERT_FIELDS | {
        "encoder.width": ("hidden_size", 256),
        "encoder.heads": ("num_attention_heads", 4),
        "encoder.ffn_width": ("intermediate_size", 1024),
        "embedding.width": ("embedding_size", 128),
    }
    activations: ClassVar = {"gelu": "gelu"}  # the generator's head has gelu whatever its layers have
    pipelines: ClassVar = {"ElectraForPreTraining": "feature-extraction", "ElectraModel": "feature-extraction"}
    prefix = "electra."
    head_prefixes = ("discriminator_predictions.", *_GENERATOR_LAYERS)
    names = encoder_names("electra") | {
        "embedding.project": "electra.embeddings_project",
        "output.transform.dense": "generator_predictions.dense",
        "output.transform.norm": "generator_predictions.LayerNorm",
        "output.weight": "generator_lm_head.weight",
        "output.bias": "generator_lm_head.bias",
        "heads.*.dense": "discriminator_predictions.dense",
        "heads.*.classifier": "discriminator_predictions.dense_prediction",
    }
    # Their classifiers of texts have gelu where ours have tanh.
    head_classes: ClassVar = {
        "tag": HeadClass("ElectraForTokenClassification", "classifier"),
        "span": HeadClass("ElectraForQuestionAnswering", "qa_outputs"),
    }
    second_folder = GENERATOR

    def published(self) -> NetRecipe:
        return electra()

    def claims(self, recipe: NetRecipe) -> bool:
        is_narrow = recipe.embedding.width != recipe.encoder.width
        return recipe.encoder.tie_layers != "all" and (recipe.output.kind == "none" or is_narrow)

    def unsupported(self, recipe: NetRecipe) -> dict[str, bool]:
        width, activation = recipe.embedding.width, recipe.encoder.activation
        found = super().unsupported(recipe)
        if recipe.output.kind == "none":
            found |= {"output.kind=none": False, f"output.transform={recipe.output.transform}": False}
        is_narrow = width != recipe.encoder.width
        return {
            **found,
            f"embedding.width={width}": is_narrow and bool(pair_objective(recipe)),
            f"encoder.activation={activation}": activation != "gelu",
        }

    def architecture_of(self, recipe: NetRecipe, has_head: bool) -> str:
        if recipe.output.kind == "none":
            return self.pair_architecture if has_head else "ElectraModel"
        return self.architecture

    def head_objective(self, recipe: NetRecipe) -> str:
        return ReplacedTokens.name if recipe.output.kind == "none" else ""

    def head_layers(self, recipe: NetRecipe) -> dict[str, int]:
        return {"dense": recipe.width, "classifier": 1}

    def starting_recipe(self, given: Mapping[str, Tensor]) -> NetRecipe:
        return electra().second_networks[ReplacedTokens.name] if _is_generator(given) else electra()

    def read_output(self, base: NetRecipe, config: Config, given: Mapping[str, Tensor]) -> OutputRecipe:
        return super().read_output(base, config, given) if _is_generator(given) else OutputRecipe(kind="none")

    def read_objectives(
        self, base: NetRecipe, values: dict[str, Any], config: Config, given: Mapping[str, Tensor]
    ) -> NetRecipe:
        """Alone, a discriminator has no objective: that needs a generator."""
        base = base if _is_generator(given) else replace(base, objectives=())
        return super().read_objectives(base, values, config, given)

    def has_pair_head(self, given: Mapping[str, Tensor]) -> bool:
        return False

    def neutral_tensors(self, recipe: NetRecipe, ours: Mapping[str, Tensor]) -> Tensors:
        found = super().neutral_tensors(recipe, ours)
        if recipe.output.kind == "none":
            found.pop(self.their_name("output.bias"), None)
        return found

    def tied_copies(self) -> dict[str, str]:
        return {self.their_name("output.weight"): self.their_name("embedding.tokens.weight")}

    def second_model(self, recipe: NetRecipe, tensors: Mapping[str, Any]) -> tuple[NetRecipe, SecondModel] | None:
        """The discriminator, whatever output layer it has, and its generator."""
        found = generator_of(recipe, tensors)
        return (
            None
            if found is None
            else (replace(recipe, output=OutputRecipe(kind="none")), SecondModel(GENERATOR, *found))
        )

    def join(
        self, first: NetRecipe, arrays: Arrays, second: NetRecipe, others: Arrays, stored: NetRecipe | None
    ) -> tuple[NetRecipe, dict[str, npt.NDArray[Any]]]:
        return join_generator(first, arrays, second, others, stored)

    def can_join(self, first: NetRecipe) -> bool:
        return first.output.kind == "none"


def _is_generator(given: Mapping[str, Tensor]) -> bool:
    return any(name.startswith(_GENERATOR_LAYERS) for name in given)


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
