"""Distillation: losses against numbers worked by hand, a student equal to its teacher, layers and resuming."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from firth.artifact.models import load
from firth.errors import RecipeError
from firth.fit.compress import losses
from firth.fit.compress.distil import DistilOptions, student_recipe
from firth.fit.compress.run import compress
from firth.fit.compress.student import kept_layers, layer_map, make_student, smaller_recipe
from firth.fit.compress.teacher import Distillation, DistillationHead, OutputScores
from firth.fit.finetune import finetune
from firth.fit.loop import make_training_module
from firth.nets.batch import Batch
from firth.nets.model import own_tensors
from tests.fit.quick_card import quick_card as quick_card
from tests.fit.small_nets import sentences, small_bert
from tests.nets.small_nets import TEXTS, small_net

EXAMPLES = [(str(int("w3" in line.split())), line) for line in sentences(80, seed=5)]
TUNING = ["learning.epochs=3", "learning.batch=8", "learning.lr=0.005"]
ALL = Distillation(soft=1, hidden=1, attention=1, relations=1, relation_heads=2)


class TestLosses:
    def test_soft_labels_by_hand(self) -> None:
        """Logits / 2 are (1, 0) and (0, 0): p = e / (e + 1), KL = p ln 2p + (1 - p) ln 2(1 - p), times 4."""
        p = math.e / (math.e + 1)
        wanted = 4 * (p * math.log(2 * p) + (1 - p) * math.log(2 * (1 - p)))
        found = losses.soft_labels(torch.zeros(1, 2), torch.tensor([[2.0, 0.0]]), 2.0)
        assert float(found) == pytest.approx(wanted, abs=1e-6)

    def test_gradients_of_soft_labels_keep_their_size(self) -> None:
        """With T^2 the gradient is T (q - p): for small logits (z - v) / n, whatever the temperature (Hinton)."""
        gradients = []
        for temperature in (1.0, 20.0):
            student = torch.zeros(1, 2, requires_grad=True)
            losses.soft_labels(student, torch.tensor([[0.02, 0.0]]), temperature).backward()
            assert student.grad is not None
            gradients.append(student.grad[0, 0].item())
        assert gradients == pytest.approx([-0.005, -0.005], rel=1e-3)

    def test_hidden_states_by_hand(self) -> None:
        one, two = torch.tensor([[1.0, 0.0], [0.0, 2.0]]), torch.tensor([[0.0, 1.0], [0.0, 1.0]])
        assert float(losses.hidden_mse(one, two)) == pytest.approx((1 + 1 + 0 + 1) / 4)
        assert float(losses.hidden_cosine(one, two)) == pytest.approx(1 - (0 + 1) / 2)

    def test_attention_by_hand(self) -> None:
        """Scores q k / sqrt(1); only the visible ones of one sequence of two tokens count."""
        queries = torch.tensor([[[[1.0], [2.0], [9.0]]]])
        scores = losses.attention_scores(queries, queries)
        assert scores[0, 0, :2, :2].tolist() == [[1.0, 2.0], [2.0, 4.0]]
        visible = torch.zeros(1, 3, 3, dtype=torch.bool)
        visible[:, :2, :2] = True
        found = losses.attention_mse(scores, torch.zeros_like(scores), visible)
        assert float(found) == pytest.approx((1 + 4 + 4 + 16) / 4)

    def test_other_numbers_of_heads_compare_their_means(self) -> None:
        student, teacher = torch.full((1, 1, 1, 1), 3.0), torch.tensor([[[[1.0]], [[2.0]]]])
        visible = torch.ones(1, 1, 1, dtype=torch.bool)
        assert float(losses.attention_mse(student, teacher, visible)) == pytest.approx(1.5**2)

    def test_relations_by_hand(self) -> None:
        """The teacher has softmax(ln 3, 0) = (3/4, 1/4) and softmax(0, 0), the student softmax(0, 0) twice."""
        root = math.sqrt(math.log(3))
        teacher, student = torch.tensor([[[root], [0.0]]]), torch.zeros(1, 2, 1)
        visible = torch.ones(1, 2, 2, dtype=torch.bool)
        wanted = (0.75 * math.log(0.75 / 0.5) + 0.25 * math.log(0.25 / 0.5) + 0) / 2
        assert float(losses.relation_kl(student, teacher, visible, 1)) == pytest.approx(wanted, abs=1e-6)

    def test_relations_ignore_padding_and_widths_may_differ(self) -> None:
        torch.manual_seed(0)
        teacher, student = torch.randn(1, 4, 8), torch.randn(1, 4, 4)
        visible = torch.zeros(1, 4, 4, dtype=torch.bool)
        visible[:, :3, :3] = True
        found = losses.relation_kl(student, teacher, visible, 2)
        student[:, 3], teacher[:, 3] = 99.0, -99.0
        assert float(losses.relation_kl(student, teacher, visible, 2)) == pytest.approx(float(found))
        assert 0 < float(found) < 10


def batch_of(model: Any) -> Batch:
    ids = model.encode(TEXTS[:2])
    length = min(len(ids[0]), len(ids[1]), 8)
    rows = torch.tensor(np.array([one[:length] for one in ids]))
    return Batch(rows, torch.ones_like(rows, dtype=torch.bool), tokens=rows.numel())


def distil_head(model: Any, student: Any, objective: Distillation) -> DistillationHead:
    module = make_training_module(student.recipe, student.network.vocabulary, 0)

    class Everywhere(OutputScores):
        def __init__(self) -> None:
            super().__init__(model.network, module.objectives)
            self.heads = []

        def __call__(self, network: Any, states: Any, teacher: Any, batch: Any, rng: Any) -> Any:
            return network.output.logits(states.last_hidden_state), model.network.output.logits(
                teacher.last_hidden_state
            )

    return DistillationHead(objective, student.network, model.network, Everywhere())


def test_a_student_equal_to_its_teacher_has_no_loss_and_no_gradient() -> None:
    teacher = small_net("bert")
    student, _ = make_student(teacher, teacher.recipe, 0)
    head, batch = distil_head(teacher, student, ALL), batch_of(teacher)
    states = student.network(batch)
    loss = head.mean(student.network, states, batch, None)
    assert loss.item() == pytest.approx(0, abs=1e-6)
    loss.backward()
    gradients = [one.grad for one in student.network.parameters() if one.grad is not None]
    assert gradients
    assert max(float(one.abs().max()) for one in gradients) < 1e-5


def test_a_student_that_differs_has_each_of_the_losses() -> None:
    teacher = small_net("bert")
    student, _ = make_student(teacher, smaller_recipe(teacher.recipe, 1, 0), 0)
    batch = batch_of(teacher)
    for name in ("soft", "hidden", "attention", "relations"):
        weights = {one: float(one == name) for one in ("soft", "hidden", "attention", "relations")}
        with torch.no_grad():
            student.network.embedding.table.add_(0.3)
        head = distil_head(teacher, student, Distillation(**weights, relation_heads=2))
        assert head.mean(student.network, student.network(batch), batch, None).item() > 1e-6, name
        head.remove_hooks()


def test_the_teacher_is_neither_trained_nor_saved() -> None:
    teacher = small_net("bert")
    student, _ = make_student(teacher, smaller_recipe(teacher.recipe, 1, 0), 0)
    head = distil_head(teacher, student, Distillation(hidden=1.0))
    assert list(head.parameters()) == []
    assert head.saved_tensors() == {}


def test_layers_are_copied() -> None:
    assert kept_layers(12, 6) == [0, 2, 4, 7, 9, 11]  # DistilBERT's
    assert layer_map(12, 4) == [0, 3, 6, 9, 12]  # TinyBERT's
    teacher = small_net("bert")
    student, copied = make_student(teacher, smaller_recipe(teacher.recipe, 1, 0), 0)
    assert copied == [0]
    given, own = own_tensors(teacher.network), own_tensors(student.network)
    assert len(own) < len(given)
    assert all(torch.equal(tensor, given[name]) for name, tensor in own.items())


def test_a_narrower_student_has_new_layers() -> None:
    teacher = small_net("bert")
    half = teacher.recipe.encoder.width // 2
    recipe = smaller_recipe(teacher.recipe, 0, half)
    student, copied = make_student(teacher, recipe, 0)
    assert copied == []
    assert student.recipe.width == half
    assert student.recipe.encoder.heads == teacher.recipe.encoder.heads // 2
    head = distil_head(teacher, student, ALL)
    batch = batch_of(teacher)
    assert math.isfinite(head.mean(student.network, student.network(batch), batch, None).item())
    with pytest.raises(RecipeError, match="fewer"):
        smaller_recipe(teacher.recipe, 99, 0)


def test_another_recipe_for_the_student() -> None:
    teacher = small_net("bert")
    recipe = student_recipe(teacher.recipe, DistilOptions(recipe="roberta", size="tiny"))
    student, _ = make_student(teacher, recipe, 0)
    assert len(student.tokenizer) == len(teacher.tokenizer)
    assert [one.name for one in student.recipe.objectives] == [one.name for one in teacher.recipe.objectives]


@pytest.mark.parametrize("change", [{"temperature": 0.0}, {"soft": -1.0}, {"soft": 0.0}, {"layers": -1}])
def test_impossible_options(change: dict[str, float]) -> None:
    with pytest.raises(RecipeError):
        DistilOptions(**change)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    home = tmp_path_factory.mktemp("distil")
    with small_bert(home, "5ktok") as folder:
        given: dict[str, Any] = {"train": EXAMPLES[:60], "dev": EXAMPLES[60:], "threads": 1, "settings": TUNING}
        finetune(folder, "classify", out=home / "tuned", **given)
        yield home / "tuned"


def distil(model: Path, out: Path, **changes: Any) -> Any:
    settings = {"layers": 1, "epochs": 2, "lr": 0.005, "hidden": 1.0} | changes.pop("settings", {})
    given: dict[str, Any] = {"train": EXAMPLES[:60], "dev": EXAMPLES[60:], "threads": 1, "allow_slower": True}
    return compress(model, method="distil", out=out, settings=settings, **given | changes)


def test_a_student_for_a_task(tuned: Path, tmp_path: Path) -> None:
    student = distil(tuned, tmp_path / "small")
    assert student.base.recipe.encoder.layers == 1
    assert student.predict([EXAMPLES[0][1]])[0]["label"] in ("0", "1")
    assert not (tmp_path / "small.compress").exists()
    again = distil(tuned, tmp_path / "again")
    assert all(np.array_equal(one, again.arrays()[name]) for name, one in student.arrays().items())


def test_a_killed_run_resumes_with_the_same_bits(tuned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from firth.fit import trainer as trainers

    wanted = distil(tuned, tmp_path / "whole").arrays()
    monkeypatch.setenv("FIRTH_CHECKPOINT", "0")
    original, steps = trainers.optimizer_step, 0

    def dying(*arguments: Any) -> Any:
        nonlocal steps
        steps += 1
        if steps == 6:
            raise KeyboardInterrupt
        return original(*arguments)

    monkeypatch.setattr(trainers, "optimizer_step", dying)
    with pytest.raises(KeyboardInterrupt):
        distil(tuned, tmp_path / "small")
    monkeypatch.setattr(trainers, "optimizer_step", original)
    assert not (tmp_path / "small" / "manifest.json").exists()
    assert (tmp_path / "small.compress" / "teacher.safetensors").exists()
    found = distil(tuned, tmp_path / "small", resume=True).arrays()
    assert all(np.array_equal(one, found[name]) for name, one in wanted.items())


def test_distillation_on_text(tuned: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"settings": {"layers": 1}, "budget": "1ktok", "threads": 1, "allow_slower": True}
    student = compress(tuned.parent / "bert", method="distil", corpus=[sentences(200)], out=tmp_path / "s", **options)
    assert load(tmp_path / "s").recipe.encoder.layers == 1
    assert student.fill("w1 <mask> w3")[0][0].token in student.words
    assert not [name for name in student.arrays() if "distil" in name]
