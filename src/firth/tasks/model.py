"""TaskModel: a fine-tuned network with all that is needed to use it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from firth.errors import ArtifactError
from firth.nets.model import HEADS, NetModel, own_tensors
from firth.nets.model import restore as restore_net
from firth.tasks.examples import Example
from firth.tasks.frame import Frame
from firth.tasks.recipe import TaskRecipe
from firth.tasks.solver import Answer, Solver
from firth.tasks.task import Task, make_task
from firth.text.layout import Layout
from firth.tokens.tokenizer import Tokenizer


class TaskModel(Solver):
    """A network and the head of a task."""

    def __init__(self, recipe: TaskRecipe, base: NetModel, task: Task) -> None:
        self.recipe, self.base = recipe, base
        self.head = task.eval()
        self.task = recipe.task
        self.labels = recipe.labels
        self.fields = recipe.fields
        self.tokenizer = base.tokenizer
        self.frame = Frame(recipe.network, base.tokenizer)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The numbers that an artifact keeps: the network's, and the task's under its name."""
        own = {f"{HEADS}{self.task}.{name}": tensor for name, tensor in own_tensors(self.head).items()}
        return self.base.arrays() | {name: tensor.detach().numpy() for name, tensor in own.items()}

    def answer_all(self, examples: Sequence[Example]) -> list[Answer]:
        """The answers to some examples."""
        return self.head.solve(self.base.network, examples, self.frame)

    def measure(
        self, examples: Sequence[Example], answers: Sequence[Answer], seed: int = 0, samples: int = 1000
    ) -> dict[str, Any]:
        """How good answers are: metrics with intervals."""
        found = self.head.measure(examples, answers, seed=seed, samples=samples)
        return found | self.head.surprise(self.base.network, examples, self.frame, seed, samples)


def restore(recipe: TaskRecipe, arrays: Mapping[str, npt.NDArray[Any]], tokenizer: Tokenizer, layout: Layout) -> Any:
    """The model of a saved artifact's arrays, after a look at their names, types and shapes."""
    prefix = f"{HEADS}{recipe.task}."
    own = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
    base = restore_net(recipe.network, {n: a for n, a in arrays.items() if not n.startswith(prefix)}, tokenizer, layout)
    task = make_task(recipe, base.network.vocabulary)
    load_head(task, own)
    return TaskModel(recipe, base, task)


def load_head(task: Task, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Gives a task the layers that were saved; raises `ArtifactError` unless they are just those."""
    tensors = own_tensors(task)
    for name in chain(tensors, arrays):
        if name not in arrays or name not in tensors or arrays[name].shape != tuple(tensors[name].shape):
            raise ArtifactError(f"the head's tensor {name!r} is missing or of another shape: copy the folder again.")
    with torch.no_grad():
        for name, tensor in tensors.items():
            tensor.copy_(torch.from_numpy(np.array(arrays[name])))
