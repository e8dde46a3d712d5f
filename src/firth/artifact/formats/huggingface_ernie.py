"""ERNIE of Baidu: BERT's layers, and in its second version an embedding of tasks (Sun et al. 2019, 2020)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from firth.artifact.formats.huggingface_bert import BERT_FIELDS, MaskedType, encoder_names, head_names, masked_classes
from firth.artifact.formats.huggingface_family import ACTIVATIONS, Config, Tensors
from firth.errors import ArtifactError
from firth.nets.recipe import NetRecipe
from firth.recipes.knowledge import ernie

_MAX_TASKS = 100
_TASKS = 3  # of a config.json that says nothing


class Ernie(MaskedType):
    """Networks with an embedding of tasks, and those that are trained with masked phrases or entities."""

    name = "ernie"
    architecture, pair_architecture = "ErnieForMaskedLM", "ErnieForPreTraining"
    fields = BERT_FIELDS
    activations = ACTIVATIONS
    prefix, head_prefixes = "ernie.", ("cls.",)
    names = encoder_names("ernie") | head_names("ernie")
    names |= {"embedding.tasks": "ernie.embeddings.task_type_embeddings"}
    head_classes = masked_classes("Ernie", "ernie.pooler.dense")

    def published(self) -> NetRecipe:
        return ernie()

    def claims(self, recipe: NetRecipe) -> bool:
        plain = recipe.embedding.width == recipe.encoder.width and recipe.encoder.tie_layers == "none"
        return recipe.embedding.tasks > 0 or (plain and bool(recipe.columns) and recipe.embedding.segments > 0)

    def unsupported(self, recipe: NetRecipe) -> dict[str, bool]:
        embedding = recipe.embedding
        return {
            **super().unsupported(recipe),
            f"encoder.tie_layers={recipe.encoder.tie_layers}": recipe.encoder.tie_layers != "none",
            f"embedding.width={embedding.width}": embedding.width != recipe.encoder.width,
            f"embedding.languages={embedding.languages}": embedding.languages > 0,
        }

    def further_config(self, recipe: NetRecipe) -> Config:
        tasks = recipe.embedding.tasks
        return {"use_task_id": tasks > 0, "task_type_vocab_size": tasks or _TASKS}

    def starting_recipe(self, given: Mapping[str, Tensor]) -> NetRecipe:
        """What config.json does not tell: the masks; dialogues need other segments."""
        base = self.published()
        return replace(base, objectives=tuple(one for one in base.objectives if not one.lays_out))

    def read_objectives(
        self, base: NetRecipe, values: dict[str, Any], config: Config, given: Mapping[str, Tensor]
    ) -> NetRecipe:
        uses, count = config.get("use_task_id", False), config.get("task_type_vocab_size", _TASKS)
        if not isinstance(uses, bool) or type(count) is not int or not 0 < count <= _MAX_TASKS:
            raise ArtifactError(
                f"config.json has use_task_id={uses!r:.80} and task_type_vocab_size={count!r:.80}: they must be true "
                f"or false, and a number from 1 to {_MAX_TASKS}."
            )
        values["embedding.tasks"] = count if uses else 0
        base = replace(base, embedding=replace(base.embedding, tasks=values["embedding.tasks"]))
        return super().read_objectives(base, values, config, given)

    def neutral_tensors(self, recipe: NetRecipe, ours: Mapping[str, Tensor]) -> Tensors:
        return self.with_bias_copy(super().neutral_tensors(recipe, ours), ours)
