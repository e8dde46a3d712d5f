"""The heads of tasks compute what those of the transformers library do: scores, losses, gradients."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor

from firth.artifact.formats.huggingface_tasks import form_of, their_name, to_their_task
from firth.artifact.formats.huggingface_weights import body_of
from firth.nets.batch import Batch
from firth.tasks.examples import TextExample
from firth.tasks.model import TaskModel
from firth.tasks.recipe import TaskName
from firth.tasks.rows import GROUPS, PLACES, Row, pack
from firth.tokens.language import FIRST_WORD
from tests.artifact.formats.small_tasks import EXAMPLES, padded, task_model

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import transformers

CASES: list[tuple[str, TaskName]] = [
    ("bert", "classify"),
    ("bert", "pair"),
    ("bert", "tag"),
    ("bert", "span"),
    ("bert", "choice"),
    ("roberta", "classify"),
    ("roberta", "pair"),
    ("roberta", "tag"),
    ("roberta", "span"),
    ("roberta", "choice"),
    ("albert", "classify"),
    ("albert", "pair"),
    ("albert", "tag"),
    ("albert", "span"),
    ("albert", "choice"),
    ("gpt2", "classify"),
    ("gpt2", "pair"),
    ("gpt2", "tag"),
    ("gpt2", "span"),
    ("openai-gpt", "classify"),
]
EVERY = pytest.mark.parametrize(("name", "task"), CASES, ids=[f"{name}-{task}" for name, task in CASES])


def theirs(model: TaskModel) -> Any:
    """Their model with the same weights, all of them, in double precision."""
    config, tensors = to_their_task(model.recipe, {name: torch.tensor(array) for name, array in model.arrays().items()})
    made = getattr(transformers, config["architectures"][0])(transformers.AutoConfig.for_model(**config))
    made.double().eval().load_state_dict({name: tensor.double() for name, tensor in tensors.items()}, strict=True)
    return made


def rows_of(model: TaskModel, task: TaskName) -> list[Row]:
    readings = model.head.rows(EXAMPLES[task], model.frame)
    return [row for rows in readings for row in rows]


def doubled(model: TaskModel) -> TaskModel:
    model.base.network.double()
    model.head.double()
    return model


def our_scores(model: TaskModel, rows: list[Row]) -> tuple[Tensor, Batch]:
    batch = pack(rows, FIRST_WORD)
    assert len(rows) > len(batch.ids), "some examples should stand side by side"
    return model.head.scores(model.base.network(batch, model.head.places(batch)), batch, None), batch


def their_scores(other: Any, task: TaskName, rows: list[Row]) -> Tensor:
    """What they say of the same rows, padded, in the form that ours have."""
    given = padded(rows)
    if task == "choice":
        return other(**{name: tensor.view(len(rows) // 2, 2, -1) for name, tensor in given.items()}).logits.view(-1, 1)
    found = other(**given)
    if task in ("classify", "pair"):
        return found.logits
    logits = torch.stack([found.start_logits, found.end_logits], -1) if task == "span" else found.logits
    return torch.cat([logits[number, torch.from_numpy(row.marks[PLACES])] for number, row in enumerate(rows)])


@EVERY
def test_scores_and_gradients_are_the_same(name: str, task: TaskName) -> None:
    model = task_model(name, task)
    if not form_of(model.recipe).biased:
        with torch.no_grad():
            model.head.head.classifier.bias.zero_()
    other, model = theirs(model), doubled(model)
    rows = rows_of(model, task)
    mine, _ = our_scores(model, rows)
    found = their_scores(other, task, rows)
    assert torch.allclose(mine, found, rtol=0, atol=1e-9)
    weights = torch.randn(mine.shape, generator=torch.Generator().manual_seed(3), dtype=mine.dtype)
    (mine * weights).sum().backward()
    (found * weights).sum().backward()
    compare_gradients(model, other)


def compare_gradients(model: TaskModel, other: Any) -> None:
    network = {name: one.grad for name, one in model.base.network.named_parameters() if one.grad is not None}
    form = form_of(model.recipe)
    expected = {name: one.grad for name, one in other.named_parameters()}
    fillers = ("token_type_embeddings", "embedding_hidden_mapping_in") if not model.frame.segments else ()
    gradients = body_of(model.recipe.network, network)
    gradients |= {their_name(form, name): one.grad for name, one in model.head.head.named_parameters()}
    gradients.pop("score.bias", None)
    assert gradients.keys() == expected.keys()
    for name, gradient in gradients.items():
        if not any(part in name for part in fillers):
            assert torch.allclose(gradient, expected[name], rtol=0, atol=1e-9), name


@pytest.mark.parametrize("name", ["gpt2", "openai-gpt"])
def test_a_bias_that_they_have_not_goes_into_the_states(name: str) -> None:
    model = task_model(name, "classify")
    assert float(model.head.head.classifier.bias.detach().abs().min()) > 0.01
    other, model = theirs(model), doubled(model)
    rows = rows_of(model, "classify")
    with torch.no_grad():
        mine, _ = our_scores(model, rows)
        assert torch.allclose(mine, their_scores(other, "classify", rows), rtol=0, atol=1e-6)


@pytest.mark.parametrize("task", ["classify", "tag", "choice"])
def test_losses_are_the_same(task: TaskName) -> None:
    model = task_model("bert", task)
    other, model = theirs(model), doubled(model)
    rows = rows_of(model, task)
    batch = pack(rows, FIRST_WORD)
    loss = model.head.loss(model.base.network, model.base.network(batch), batch, None)
    labels = batch.marks["labels"]
    given = padded(rows)
    if task == "tag":
        spread = torch.full(given["input_ids"].shape, -100)
        spread[batch.marks[GROUPS], torch.cat([torch.from_numpy(row.marks[PLACES]) for row in rows])] = labels
        labels = spread
    if task == "choice":
        given = {name: tensor.view(len(rows) // 2, 2, -1) for name, tensor in given.items()}
    found = other(**given, labels=labels).loss
    assert (loss.total / loss.count).item() == pytest.approx(found.item(), abs=1e-9)


def test_the_losses_of_several_labels_and_of_numbers() -> None:
    several = task_model("bert", "classify", form="multi")
    examples = [TextExample("the dog", labels=("good", "bad")), TextExample("The lazy fox", labels=())]
    held = torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    number = task_model("bert", "pair", form="number", labels=())
    pairs = [TextExample("the dog", "fox", ("2.5",)), TextExample("The lazy fox", "it", ("-1",))]
    for model, asked, labels, each in (
        (several, examples, held, len(held[0])),  # they divide by labels, too
        (number, pairs, torch.tensor([2.5, -1.0]), 1),
    ):
        other, model = theirs(model), doubled(model)
        rows = [row for rows in model.head.rows(asked, model.frame) for row in rows]
        batch = pack(rows, FIRST_WORD)
        loss = model.head.loss(model.base.network, model.base.network(batch), batch, None)
        found = other(**padded(rows), labels=labels.double()).loss
        assert (loss.total / loss.count / each).item() == pytest.approx(found.item(), abs=1e-9)
