"""The strategy ulmfit: a language model is fine-tuned on the text of the task, then its classifier is trained."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from firth.errors import AbilityError, RecipeError
from firth.fit.resolve import without_dropout
from firth.fit.resolve_task import ULMFIT_DECAY
from firth.nets.combination import RECURRENT
from firth.nets.recipe import NetRecipe

ULMFIT = "ulmfit"
_BYTES_PER_TOKEN, _STEPS, _MIN_BATCH = 5, 500, 512  # of the text of a task: steps that its batches should allow
_SLANTED = ("learning.schedule=slanted", "learning.warmup=0.1", f"learning.layer_decay={ULMFIT_DECAY}")
_RECURRENT_DROPOUT = (
    "embedding.dropout=0.25",
    "embedding.token_dropout=0.02",
    "embedding.variational_dropout=true",
    "encoder.dropout=0.15",
    "encoder.output_dropout=0.1",
    "encoder.weight_drop=0.2",
    "encoder.variational_dropout=true",
)  # of a language model in the authors' later program; the paper has about twice as much, for wide networks
_TRANSFORMER_DROPOUT = ("embedding.dropout=0.1", "encoder.dropout=0.1", "encoder.attention_dropout=0.1")


def language_model_settings(model: Any, task: str, text: Iterable[str] = ()) -> list[str]:
    """How the recipe of a model changes when it is fine-tuned on the text of a task (Howard and Ruder 2018, 3.2).

    Lower layers have lower rates, which follow the slanted triangle; a network that was pre-trained without dropout,
    since its text was read once, gets some, and little `text` gets small batches. Raises `AbilityError` for a model
    without layers or without an objective.
    """
    if task == "generate":
        raise RecipeError("ulmfit trains a head first, and generate has none: use --strategy=gradual.")
    model = getattr(model, "pretrained", model)
    recipe = getattr(model, "recipe", None)
    if not isinstance(recipe, NetRecipe) or not recipe.encoder.layers or not recipe.objectives:
        raise AbilityError(
            f"ulmfit fine-tunes a language model layer by layer, and a {type(model).__name__} is none: fine-tune a "
            "network such as ulmfit or gpt, or use --strategy=full."
        )
    if recipe.sequence.format == "parallel" or any(one.needs_translations for one in recipe.objectives):
        raise AbilityError(
            f"ulmfit fine-tunes on plain text first, and {'+'.join(recipe.names)} is trained on parallel text: use "
            "--strategy=gradual."
        )
    settings = list(_SLANTED)
    if tokens := sum(len(one.encode()) for one in text) / _BYTES_PER_TOKEN:
        fitting = 2 ** math.floor(math.log2(max(recipe.learning.epochs * tokens / _STEPS, 1)))
        least = min(max(_MIN_BATCH, recipe.sequence.length), recipe.learning.batch)
        settings.append(f"learning.batch={min(max(fitting, least), recipe.learning.batch)}")
    if without_dropout(recipe) == recipe and recipe.decoder is None:
        kinds = dict.fromkeys(RECURRENT, _RECURRENT_DROPOUT) | {"transformer": _TRANSFORMER_DROPOUT}
        settings += kinds.get(recipe.encoder.kind, ())
    return settings


def require_single(strategy: str | None) -> None:
    """Raise `RecipeError` if several tasks are to be fine-tuned by ulmfit."""
    if strategy == ULMFIT:
        raise RecipeError("ulmfit is a pipeline for one task: use --strategy=gradual with --task-text for many.")
