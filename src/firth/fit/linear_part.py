"""The linear part of a fine-tuned model: a linear model of the same examples, mixed in where it helps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from firth.errors import CorpusError
from firth.fit.linear import resolve_linear, train_linear_classifier, train_tagger
from firth.fit.resolve import is_unset
from firth.fit.resolve_task import FinetuneConfig
from firth.progress import note
from firth.tasks.linear_part import LinearPart
from firth.tasks.recipe import WITH_LINEAR
from firth.tasks.task import TaskModel

FIELD = "linear_weight"
WEIGHTS = tuple(round(float(weight), 2) for weight in np.linspace(0, 1, 11))
"""Weights of the linear part that are tried."""


class Mixed(NamedTuple):
    """The main metric for each weight."""

    metric: str
    values: dict[float, float]

    @property
    def best(self) -> float:
        """The weight with the best metric, the lowest of equals."""
        return max(self.values, key=lambda weight: (self.values[weight], -weight))


def add_linear_part(config: FinetuneConfig, model: TaskModel) -> dict[str, Any]:
    """Mix in a linear model of the examples if the dev examples gain by it; returns what was found, for the manifest.

    With `linear_weight` set its weight is that one, and 0 means none.
    """
    recipe, unset = model.recipe, is_unset(config.settings, FIELD)
    if recipe.task not in WITH_LINEAR or recipe.decoder is not None or not (unset or recipe.linear_weight):
        return {}
    try:
        part, metrics = _fit(config, model)
    except CorpusError as error:
        if not unset:
            raise
        note(f"without a linear part: {str(error).partition(':')[0]}")  # too few examples are enough for a network
        return {}
    found = measure_weights(model, part, config.dev, WEIGHTS if unset else (0.0, recipe.linear_weight, 1.0))
    weight = found.best if unset else recipe.linear_weight
    note(_describe(found, weight))
    model.head.linear = LinearPart(part, weight) if weight else None
    model.recipe = model.head.recipe = replace(recipe, linear=part.recipe if weight else None, linear_weight=weight)
    alone = {"head": found.values[0.0], "linear": found.values[1.0], "mixed": found.values[weight]}
    return {"linear": {"metric": found.metric, "weight": weight, **alone, "costs": metrics["costs"]}}


def _fit(config: FinetuneConfig, model: TaskModel) -> tuple[Any, dict[str, Any]]:
    """The linear model of the examples, with its metrics."""
    linear = resolve_linear(replace(config, settings=()), model.tokenizer)
    if config.task == "tag":
        classes = None if config.random else model.base.word_classes
        return train_tagger(linear, model.tokenizer, config.train, config.dev, config.seed, classes)
    return train_linear_classifier(linear, model.tokenizer, config.train, config.dev)


def measure_weights(model: TaskModel, part: Any, examples: Any, weights: tuple[float, ...]) -> Mixed:
    """The main metric on some examples for each weight of a linear model."""
    task, network = model.head, model.base.network
    was_training = network.training
    network.eval()
    scored = task.score_examples(network, examples, model.builder)
    network.train(was_training)
    added, values, metric = part.scores(examples), {}, ""
    for weight in weights:
        task.linear = LinearPart(part, weight) if weight else None
        found = task.measure(examples, task.answers(examples, scored, added if weight else None), samples=0)
        metric = found["main"]
        values[weight] = float(found[metric])
    task.linear = None
    return Mixed(metric, values)


def _describe(found: Mixed, weight: float) -> str:
    name, values = found.metric.replace("_", " "), found.values
    alone = f"{name} on the dev examples: {values[0.0]:.3f} by the network, {values[1.0]:.3f} by a linear model"
    if not weight:
        return f"{alone}, and no better mixed: the network alone is saved"
    if weight == 1:
        return f"{alone}, which mixing does not improve: its predictions are those of the linear model"
    return f"{alone}, {values[weight]:.3f} by both (linear_weight={weight:g})"
