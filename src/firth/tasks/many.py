"""ManyModel: one network with the heads of several tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy.typing as npt

from firth.arguments import ChecksArguments
from firth.errors import AbilityError, ArtifactError, near_miss
from firth.nets.model import NetModel
from firth.nets.restore import restore_net
from firth.summaries import SummarisedModel
from firth.tasks.predictor import Prediction
from firth.tasks.recipe import ManyRecipe
from firth.tasks.registry import make_task
from firth.tasks.task import TaskModel
from firth.text.layout import Layout
from firth.tokens.tokenizer import Tokenizer

_PREFIX = "tasks."  # of the arrays of heads, tasks.NAME.*


class ManyModel(SummarisedModel, ChecksArguments):
    """A network and a head for each of several tasks."""

    def __init__(self, recipe: ManyRecipe, base: NetModel, tasks: Mapping[str, TaskModel]) -> None:
        self.recipe, self.base, self.tasks = recipe, base, dict(tasks)
        self.tokenizer = base.tokenizer

    @property
    def pretrained(self) -> NetModel:
        """The network as a model of its own, without the heads of the tasks."""
        return self.base

    def predict(self, items: Iterable[Any], task: str | None = None) -> list[Prediction]:
        """A dictionary for each item, predicted for the task of that name; see `Predictor.predict`."""
        return self.of(task).predict(items)

    def of(self, task: str | None) -> TaskModel:
        """The model of one task; of the only one, if none is named."""
        if task is None and len(self.tasks) == 1:
            return next(iter(self.tasks.values()))
        if task is None:
            raise AbilityError(f"the model has several tasks: name one with --task: {', '.join(sorted(self.tasks))}.")
        if task not in self.tasks:
            raise AbilityError(f"the model has no task {task!r:.80}: {near_miss(str(task), self.tasks)}")
        return self.tasks[task]

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays of the network, and those of each head under the name of its task."""
        own = {
            f"{_PREFIX}{name}.{part}": array
            for name, model in self.tasks.items()
            for part, array in model.head.arrays().items()
        }
        return self.base.arrays() | own

    def summary(self) -> dict[str, Any]:
        """The tasks by name, the network, the vocabulary and the methods."""
        return {"tasks": ", ".join(f"{name} ({one.task})" for name, one in self.tasks.items())} | super().summary()


def restore_many(
    recipe: ManyRecipe, arrays: Mapping[str, npt.NDArray[Any]], tokenizer: Tokenizer, layout: Layout
) -> ManyModel:
    """The model of the arrays of an artifact, whose names, types and shapes are checked."""
    if not recipe.tasks:
        raise ArtifactError("the recipe names no task: copy the folder again, or train the model again.")
    known = tuple(f"{_PREFIX}{one.name}." for one in recipe.tasks)
    heads = {name: array for name, array in arrays.items() if name.startswith(_PREFIX)}
    if unknown := sorted(name for name in heads if not name.startswith(known)):
        raise ArtifactError(f"the recipe has no task with the tensor {unknown[0]!r:.80}: copy the folder again.")
    base = restore_net(recipe.network, {n: a for n, a in arrays.items() if n not in heads}, tokenizer, layout)
    tasks = {}
    for one, prefix in zip(recipe.tasks, known, strict=True):
        task = make_task(one.recipe, base.network.vocabulary)
        task.restore({n.removeprefix(prefix): a for n, a in heads.items() if n.startswith(prefix)}, tokenizer)
        tasks[one.name] = TaskModel(one.recipe, base, task)
    return ManyModel(recipe, base, tasks)
