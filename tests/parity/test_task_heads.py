"""Task heads compute the logits, losses and gradients of transformers."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor

from firth.artifact.formats.huggingface_registry import model_type_for
from firth.artifact.formats.huggingface_tasks import head_class_of, task_to_huggingface, their_head_name
from firth.artifact.formats.huggingface_weights import backbone_tensors, model_tensors
from firth.nets.batch import Batch
from firth.tasks.examples import TextExample
from firth.tasks.recipe import TaskName
from firth.tasks.sequences import GROUPS, POSITIONS, InputSequence, pack
from firth.tasks.task import TaskModel
from firth.tokens.tokenizer import FIRST_WORD
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
    ("ernie", "classify"),
    ("ernie", "pair"),
    ("ernie", "tag"),
    ("ernie", "span"),
    ("ernie", "choice"),
    ("gpt2", "classify"),
    ("gpt2", "pair"),
    ("gpt2", "tag"),
    ("gpt2", "span"),
    ("openai-gpt", "classify"),
    ("t5", "tag"),
]
EVERY = pytest.mark.parametrize(("name", "task"), CASES, ids=[f"{name}-{task}" for name, task in CASES])


@pytest.fixture(autouse=True)
def _double(monkeypatch: pytest.MonkeyPatch) -> None:
    """T5 computes variances in single precision; here in double, to compare more than rounding."""

    def norm(self: Any, states: Tensor) -> Tensor:
        return self.weight * (states * torch.rsqrt(states.pow(2).mean(-1, keepdim=True) + self.variance_epsilon))

    monkeypatch.setattr(transformers.models.t5.modeling_t5.T5LayerNorm, "forward", norm)


def theirs(model: TaskModel) -> Any:
    """The model of transformers with the same weights in double precision."""
    config, tensors = task_to_huggingface(model.recipe, model_tensors(model))
    made = getattr(transformers, config["architectures"][0])(transformers.AutoConfig.for_model(**config))
    left = made.double().eval().load_state_dict({name: one.double() for name, one in tensors.items()}, strict=False)
    assert not left.unexpected_keys
    assert all(name.endswith(".embed_tokens.weight") for name in left.missing_keys)  # tied
    return made


def sequences_of(model: TaskModel, task: TaskName) -> list[InputSequence]:
    readings = model.head.sequences(EXAMPLES[task], model.builder)
    return [row for rows in readings for row in rows]


def doubled(model: TaskModel) -> TaskModel:
    model.base.network.double()
    model.head.double()
    return model


def our_logits(model: TaskModel, rows: list[InputSequence]) -> tuple[Tensor, Batch]:
    batch = pack(rows, FIRST_WORD)
    assert len(rows) > len(batch.ids), "some examples should be packed together"
    return model.head.scores(model.base.network(batch, model.head.positions(batch)), batch, None), batch


def their_logits(other: Any, task: TaskName, rows: list[InputSequence]) -> Tensor:
    """The logits of transformers for the padded sequences, in the shape of ours."""
    given = padded(rows)
    if task == "choice":
        return other(**{name: tensor.view(len(rows) // 2, 2, -1) for name, tensor in given.items()}).logits.view(-1, 1)
    found = other(**given)
    if task in ("classify", "pair"):
        return found.logits
    logits = torch.stack([found.start_logits, found.end_logits], -1) if task == "span" else found.logits
    return torch.cat([logits[number, torch.from_numpy(row.labels[POSITIONS])] for number, row in enumerate(rows)])


@EVERY
def test_logits_and_gradients_are_the_same(name: str, task: TaskName) -> None:
    model = task_model(name, task)
    if not head_class_of(model.recipe).has_bias:
        with torch.no_grad():
            model.head.head.classifier.bias.zero_()
    other, model = theirs(model), doubled(model)
    rows = sequences_of(model, task)
    mine, _ = our_logits(model, rows)
    found = their_logits(other, task, rows)
    assert torch.allclose(mine, found, rtol=0, atol=1e-9)
    weights = torch.randn(mine.shape, generator=torch.Generator().manual_seed(3), dtype=mine.dtype)
    (mine * weights).sum().backward()
    (found * weights).sum().backward()
    compare_gradients(model, other)


def compare_gradients(model: TaskModel, other: Any) -> None:
    network = {name: one.grad for name, one in model.base.network.named_parameters() if one.grad is not None}
    head_class = head_class_of(model.recipe)
    expected = {name: one.grad for name, one in other.named_parameters()}
    neutral = ("token_type_embeddings", "embedding_hidden_mapping_in") if not model.builder.segments else ()
    prefix = model_type_for(model.recipe.network).task_prefix
    gradients = {prefix + name: one for name, one in backbone_tensors(model.recipe.network, network).items()}
    gradients |= {their_head_name(head_class, name): one.grad for name, one in model.head.head.named_parameters()}
    gradients.pop("score.bias", None)
    assert gradients.keys() == expected.keys()
    for name, gradient in gradients.items():
        if not any(part in name for part in neutral):
            assert torch.allclose(gradient, expected[name], rtol=0, atol=1e-9), name


@pytest.mark.parametrize("name", ["gpt2", "openai-gpt"])
def test_a_bias_that_transformers_lacks_is_added_to_the_states(name: str) -> None:
    model = task_model(name, "classify")
    assert float(model.head.head.classifier.bias.detach().abs().min()) > 0.01
    other, model = theirs(model), doubled(model)
    rows = sequences_of(model, "classify")
    with torch.no_grad():
        mine, _ = our_logits(model, rows)
        assert torch.allclose(mine, their_logits(other, "classify", rows), rtol=0, atol=1e-6)


@pytest.mark.parametrize("task", ["classify", "tag", "choice"])
def test_losses_are_the_same(task: TaskName) -> None:
    model = task_model("bert", task)
    other, model = theirs(model), doubled(model)
    rows = sequences_of(model, task)
    batch = pack(rows, FIRST_WORD)
    loss = model.head.loss(model.base.network, model.base.network(batch), batch, None)
    labels = batch.labels["labels"]
    given = padded(rows)
    if task == "tag":
        spread = torch.full(given["input_ids"].shape, -100)
        spread[batch.labels[GROUPS], torch.cat([torch.from_numpy(row.labels[POSITIONS]) for row in rows])] = labels
        labels = spread
    if task == "choice":
        given = {name: tensor.view(len(rows) // 2, 2, -1) for name, tensor in given.items()}
    found = other(**given, labels=labels).loss
    assert (loss.total / loss.count).item() == pytest.approx(found.item(), abs=1e-9)


def test_losses_of_multi_label_classification_and_regression() -> None:
    several = task_model("bert", "classify", form="multi")
    examples = [TextExample("the dog", labels=("good", "bad")), TextExample("The lazy fox", labels=())]
    held = torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    number = task_model("bert", "pair", form="number", labels=())
    pairs = [TextExample("the dog", "fox", ("2.5",)), TextExample("The lazy fox", "it", ("-1",))]
    for model, examples_of, labels, each in (
        (several, examples, held, len(held[0])),  # they divide by the number of labels, too
        (number, pairs, torch.tensor([2.5, -1.0]), 1),
    ):
        other, model = theirs(model), doubled(model)
        rows = [row for rows in model.head.sequences(examples_of, model.builder) for row in rows]
        batch = pack(rows, FIRST_WORD)
        loss = model.head.loss(model.base.network, model.base.network(batch), batch, None)
        found = other(**padded(rows), labels=labels.double()).loss
        assert (loss.total / loss.count / each).item() == pytest.approx(found.item(), abs=1e-9)
