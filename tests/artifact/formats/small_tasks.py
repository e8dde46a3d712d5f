"""Small fine-tuned models with random parameters, and examples for each task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from firth.nets.model import NetModel
from firth.nets.recipe import NetRecipe
from firth.recipes.denoising import t5
from firth.recipes.knowledge import ernie
from firth.recipes.nets import electra, xlm, xlnet
from firth.recipes.unified import unilm
from firth.tasks.examples import Answer, ChoiceExample, Example, SpanExample, TagExample, TextExample
from firth.tasks.recipe import HeadRecipe, TaskName, TaskRecipe
from firth.tasks.registry import make_task
from firth.tasks.task import TaskModel
from tests.artifact.formats.small_transformers import MEMBERS, model_of, small

LABELS = ("bad", "fair", "good")
TAGS = ("O", "B-X", "I-X", "B-Y")
SHORT, MIDDLE, LONG = "the dog", "The lazy fox jumps", "foxes jumped over the quick brown dog, e-mails"

EXAMPLES: dict[TaskName, list[Example]] = {
    "classify": [
        TextExample(SHORT, labels=("good",)),
        TextExample(LONG, labels=("bad",)),
        TextExample(MIDDLE, labels=("fair",)),
    ],
    "pair": [
        TextExample(SHORT, MIDDLE, ("fair",)),
        TextExample(MIDDLE, LONG, ("good",)),
        TextExample("dog", SHORT, ("fair",)),
    ],
    "tag": [
        TagExample(
            ("The", "jumped", "dog", "over", "lazy", "e-mails", "quick", "foxes"),
            ("O", "B-X", "I-X", "O", *["B-Y"] * 4),
        ),
        TagExample(("Unbelievable", "foxes"), ("B-Y", "O")),
        TagExample(("lazy",), ("O",)),
    ],
    "span": [
        SpanExample(LONG, "The lazy fox jumps?", (Answer("over the", 13),)),
        SpanExample("dog", "it?", (Answer("dog", 0),)),
        SpanExample(SHORT, "it?", ()),
    ],
    "choice": [
        ChoiceExample("the fox", "it?", ("lazy", "the dog"), 1),
        ChoiceExample("dog", "", ("over", LONG), 0),
    ],
}


def two_languages() -> NetRecipe:
    """XLM, whose texts are in the second of two languages."""
    recipe = xlm()
    return replace(recipe, embedding=replace(recipe.embedding, languages=2), languages=("en", "de"), language="de")


def t5_encoder() -> NetRecipe:
    """The part of T5 that is fine-tuned for tasks without text as an answer."""
    recipe = t5()
    return replace(recipe, decoder=None, objectives=(), sequence=replace(recipe.sequence, format="sentences"))


NETWORKS = MEMBERS | {
    **{"electra": electra, "xlm": two_languages, "xlnet": xlnet, "unilm": unilm},
    **{"ernie": ernie, "t5": t5_encoder},
}


def task_recipe(base: NetModel, task: TaskName, **changes: Any) -> TaskRecipe:
    """A task recipe with the head of the classes of transformers."""
    causal = base.recipe.visibility == "causal"
    labels = LABELS if task in ("classify", "pair") else TAGS if task == "tag" else ()
    last = causal or base.recipe.ends_with_class
    head = HeadRecipe(pooling="last" if last else "first", pooler=not causal and not base.languages)
    return replace(
        TaskRecipe(task=task, network=base.recipe, head=head, labels=labels, allow_no_answer=True), **changes
    )


def task_model(name: str, task: TaskName, *, length: int = 48, **changes: Any) -> TaskModel:
    """A task model of a type, whose head has no parameter at 0."""
    recipe = small(NETWORKS[name]())
    base = model_of(replace(recipe, sequence=replace(recipe.sequence, length=length)))
    resolved = task_recipe(base, task, **changes)
    made = make_task(resolved, base.network.vocabulary)
    generator = torch.Generator().manual_seed(9)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter += 0.5 * torch.randn(parameter.shape, generator=generator)
    return TaskModel(resolved, base, made)


def padded(rows: Sequence[Any], left: bool = False) -> dict[str, torch.Tensor]:
    """Sequences as a padded batch for transformers."""
    longest = max(row.ids.size for row in rows)
    found = {name: torch.zeros(len(rows), longest, dtype=torch.int64) for name in ("input_ids", "attention_mask")}
    segments = torch.zeros(len(rows), longest, dtype=torch.int64)
    for number, row in enumerate(rows):
        own = slice(longest - row.ids.size, None) if left else slice(row.ids.size)
        found["input_ids"][number, own] = torch.from_numpy(row.ids)
        found["attention_mask"][number, own] = 1
        if row.segment_ids is not None:
            segments[number, own] = torch.from_numpy(row.segment_ids)
    return found | ({"token_type_ids": segments} if rows[0].segment_ids is not None else {})
