"""The answer module of MT-DNN against a loop over pairs, tokens and turns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from firth.artifact.models import load
from firth.errors import RecipeError
from firth.fit.finetune import finetune
from firth.nets.dropout import DropoutRng
from firth.tasks.answer import StochasticAnswer, keep_turns
from firth.tasks.recipe import HeadRecipe, TaskRecipe
from tests.command import assert_refused, firth
from tests.fit.small_nets import sentences, small_bert

WIDTH, OUTPUTS, TURNS = 6, 3, 4


def module(turns: int = TURNS, dropout: float = 0.0) -> StochasticAnswer:
    torch.manual_seed(3)
    made = StochasticAnswer(WIDTH, OUTPUTS, turns, dropout).double()
    for parameter in made.parameters():
        nn.init.normal_(parameter, std=0.5)
    return made


def gru(cell: nn.GRUCell, x: Tensor, h: Tensor) -> Tensor:
    """Cho et al. 2014, in the form of PyTorch."""
    ri, zi, ni = (cell.weight_ih @ x + cell.bias_ih).chunk(3)
    rh, zh, nh = (cell.weight_hh @ h + cell.bias_hh).chunk(3)
    r, z = torch.sigmoid(ri + rh), torch.sigmoid(zi + zh)
    return (1 - z) * torch.tanh(ni + r * nh) + z * h


def by_hand(answer: StochasticAnswer, premise: Tensor, hypothesis: Tensor, kept: list[bool] | None = None) -> Tensor:
    """The probabilities of one pair: a softmax over tokens by explicit sums, one turn after the other."""
    exponents = [float(torch.exp(answer.summary.weight[0] @ h + answer.summary.bias[0])) for h in hypothesis]
    state = torch.zeros(WIDTH, dtype=torch.float64)
    for weight, h in zip(exponents, hypothesis, strict=True):
        state = state + weight / sum(exponents) * h
    found = []
    for _ in range(answer.turns):
        query = answer.attention.weight @ state + answer.attention.bias
        exponents = [float(torch.exp(p @ query)) for p in premise]
        x = torch.zeros(WIDTH, dtype=torch.float64)
        for weight, p in zip(exponents, premise, strict=True):
            x = x + weight / sum(exponents) * p
        features = torch.cat([x, state, (x - state).abs(), x * state])
        found.append(torch.softmax(answer.classifier.weight @ features + answer.classifier.bias, 0))
        state = gru(answer.cell, x, state)
    chosen = [one for one, keep in zip(found, kept or [True] * len(found), strict=True) if keep]
    return torch.stack(chosen).mean(0)


def packed(pairs: list[tuple[int, int]]) -> tuple[Tensor, Tensor, Tensor]:
    """States, pairs and sides of pairs with so many tokens in each text."""
    generator = torch.Generator().manual_seed(1)
    groups = [number for number, sizes in enumerate(pairs) for _ in range(sum(sizes))]
    sides = [side for first, second in pairs for side in [False] * first + [True] * second]
    states = torch.randn(len(groups), WIDTH, dtype=torch.float64, generator=generator)
    return states, torch.tensor(groups), torch.tensor(sides)


@pytest.mark.parametrize("turns", [1, 4])
def test_the_answer_is_that_of_the_loop(turns: int) -> None:
    answer, sizes = module(turns), [(3, 2), (1, 4), (5, 1)]
    states, groups, sides = packed(sizes)
    with torch.no_grad():
        found = answer(states, groups, sides, len(sizes), None).exp()
        for number in range(len(sizes)):
            own = groups == number
            expected = by_hand(answer, states[own & ~sides], states[own & sides])
            assert torch.allclose(found[number], expected, atol=1e-12)
    assert torch.allclose(found.sum(1), torch.ones(3, dtype=torch.float64))


def test_the_answers_of_some_turns_are_left_out_in_training(monkeypatch: pytest.MonkeyPatch) -> None:
    answer, sizes = module(), [(3, 2), (2, 2)]
    states, groups, sides = packed(sizes)
    kept = torch.tensor([[1.0, 0], [0, 1], [1, 1], [0, 0]])  # (turns, pairs)
    monkeypatch.setattr("firth.tasks.answer.keep_turns", lambda *_: kept)
    with torch.no_grad():
        found = answer(states, groups, sides, 2, DropoutRng(0, 0)).exp()
        for number in range(2):
            own = groups == number
            premise, hypothesis = states[own & ~sides], states[own & sides]
            expected = by_hand(answer, premise, hypothesis, kept[:, number].bool().tolist())
            assert torch.allclose(found[number], expected, atol=1e-12)


def test_a_tenth_of_the_turns_is_left_out_and_never_all() -> None:
    kept = torch.stack([keep_turns(1000, 5, DropoutRng(0, step)) for step in range(20)])
    assert set(kept.unique().tolist()) == {0.0, 1.0}
    assert float(kept.sum(1).min()) >= 1
    # A turn is left out with probability 0.1 unless it is the one of five that is always kept.
    assert float(kept.mean()) == pytest.approx(1 - 0.1 * 4 / 5, abs=0.004)
    assert torch.equal(keep_turns(9, 5, DropoutRng(7, 3)), keep_turns(9, 5, DropoutRng(7, 3)))


def test_every_parameter_has_the_gradient_of_the_loop() -> None:
    answer, sizes = module(3), [(3, 2)]
    states, groups, sides = packed(sizes)
    answer(states, groups, sides, 1, None)[0, 1].backward()
    own = {name: parameter.grad.clone() for name, parameter in answer.named_parameters() if parameter.grad is not None}
    assert own.keys() == {name for name, _ in answer.named_parameters()}
    step = 1e-6
    for name, parameter in answer.named_parameters():
        with torch.no_grad():
            flat, values = parameter.view(-1), []
            for change in (step, -step):
                flat[0] += change
                values.append(by_hand(answer, states[~sides], states[sides]).log()[1])
                flat[0] -= change
        assert float(own[name].flatten()[0]) == pytest.approx(float(values[0] - values[1]) / (2 * step), abs=1e-7), name


def test_a_text_without_tokens_gives_probabilities() -> None:
    states, groups, sides = packed([(2, 0), (0, 2)])
    with torch.no_grad():
        found = module()(states, groups, sides, 2, None)
    assert torch.isfinite(found).all()


def test_what_cannot_have_an_answer_module_is_refused() -> None:
    san = HeadRecipe(answer="san")
    TaskRecipe(task="pair", head=san)
    for wrong in ({"task": "tag"}, {"task": "pair", "form": "number"}):
        with pytest.raises(RecipeError, match=r"head.answer=san gives the labels of pairs"):
            TaskRecipe(head=san, **wrong)  # type: ignore[arg-type]
    with pytest.raises(RecipeError, match=r"head.turns=0 must be from 1 to 100"):
        HeadRecipe(turns=0)


LINES = sentences(48, seed=5)
PAIRS = [
    ("same", one, one) if number % 2 else ("other", one, two)
    for number, (one, two) in enumerate(zip(LINES, LINES[7:], strict=False))
]


def test_fine_tuning_with_an_answer_module(tmp_path: Path) -> None:
    settings = ["head.answer=san", "head.turns=3", "learning.epochs=30", "learning.batch=8", "learning.lr=0.004"]
    with small_bert(tmp_path, "5ktok") as model:
        tuned: Any = finetune(model, "pair", train=PAIRS, dev=PAIRS, out=tmp_path / "m", settings=settings, threads=1)
        inputs = [(one, two) for _, one, two in PAIRS]
        found = tuned.predict(inputs)
        assert np.mean([one["label"] == label for one, (label, *_) in zip(found, PAIRS, strict=True)]) > 0.9
        assert load(tmp_path / "m").predict(inputs) == found
        assert_refused(firth("export", tmp_path / "m", "huggingface", tmp_path / "hf"), "--set head.answer=pooled")
        wrong = ("finetune", model, "classify", "--train", "builtin:oracle", "--dev", "builtin:oracle")
        assert firth(*wrong, "-o", tmp_path / "n", "--set", "head.answer=san").code == 1
        alone = tuned.predict(inputs[:1])[0]["probability"]
        assert alone == pytest.approx(found[0]["probability"], abs=1e-5)
