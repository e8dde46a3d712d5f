"""The tasks by name, and the models of saved artifacts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from firth.errors import ArtifactError
from firth.nets.network import Vocabulary
from firth.nets.restore import HEADS, restore_net
from firth.tasks.classify import ChoiceTask, ClassifyTask, PairTask
from firth.tasks.generate import EncoderDecoderTask, GenerateTask
from firth.tasks.knowledge import graph_from_array
from firth.tasks.label_text import LabelTextTask
from firth.tasks.mentions import RelationTask, TypingTask
from firth.tasks.recipe import TaskRecipe
from firth.tasks.span import SpanTask
from firth.tasks.tag import TagTask
from firth.tasks.task import FACTS, Task, TaskModel
from firth.text.layout import Layout
from firth.tokens.tokenizer import Tokenizer

_TASKS: dict[str, type[Task]] = {
    one.kind: one
    for one in (ClassifyTask, PairTask, TagTask, SpanTask, ChoiceTask, GenerateTask, TypingTask, RelationTask)
}
_WITH_DECODER: dict[str, type[Task]] = {
    "generate": EncoderDecoderTask,
    "classify": LabelTextTask,
    "pair": LabelTextTask,
}


def make_task(recipe: TaskRecipe, vocabulary: Vocabulary) -> Task:
    """The task of a recipe, with newly initialised layers."""
    return (_TASKS if recipe.decoder is None else _WITH_DECODER)[recipe.task](recipe, vocabulary)


def restore_task(
    recipe: TaskRecipe, arrays: Mapping[str, npt.NDArray[Any]], tokenizer: Tokenizer, layout: Layout
) -> TaskModel:
    """The model of the arrays of an artifact, whose names, types and shapes are checked."""
    prefix = f"{HEADS}{recipe.task}."
    graph = None
    if recipe.knowledge is not None:
        if FACTS not in arrays:
            raise ArtifactError("the model lacks the knowledge graph of its recipe: copy the folder again.")
        graph = graph_from_array(arrays[FACTS], recipe.knowledge.digest)
        arrays = {name: array for name, array in arrays.items() if name != FACTS}
    own = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
    base = restore_net(recipe.network, {n: a for n, a in arrays.items() if not n.startswith(prefix)}, tokenizer, layout)
    task = make_task(recipe, base.network.vocabulary)
    task.restore(own, tokenizer)
    return TaskModel(recipe, base, task, graph)
