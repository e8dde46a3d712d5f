"""The softmax trained on the targets of a step and samples of other tokens."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from firth.nets.dropout import DropoutRng
from firth.nets.embedding import Embedding
from firth.nets.network import make_output
from firth.nets.outputs.output import frequencies, predictable
from firth.nets.outputs.sampling import stratified
from firth.nets.outputs.softmax import Softmax
from firth.nets.recipe import EmbeddingRecipe, EncoderRecipe, NetRecipe, OutputRecipe

WIDTH, SIZE = 6, 60
COUNTS = 3000 // np.arange(1, SIZE + 1)


def make_layer(samples: int, kind: str = "tied", counts: np.ndarray = COUNTS, bias: bool = True) -> Softmax:
    recipe = NetRecipe(
        embedding=EmbeddingRecipe(width=WIDTH),
        encoder=EncoderRecipe(kind="lstm", layers=1, width=WIDTH, ffn_width=0, heads=1, norm="none"),
        output=OutputRecipe(kind=kind, training_samples=samples, bias=bias),  # type: ignore[arg-type]
    )
    torch.manual_seed(0)
    layer = make_output(recipe, counts, Embedding(recipe, [str(number) for number in range(counts.size)])).double()
    assert isinstance(layer, Softmax)
    with torch.no_grad():
        layer.weight.normal_(std=0.5)
        layer.weight[[0, 2, 4]] = 0  # never predicted
        if layer.bias is not None:
            layer.bias[[0, 2, 4]] = -1e4
    return layer


def some_positions(count: int = 20) -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(1)
    states = torch.from_numpy(rng.normal(size=(count, WIDTH))).requires_grad_()
    return states, torch.from_numpy(rng.choice(SIZE, count, p=frequencies(COUNTS)))


def gradient(layer: Softmax, states: Tensor, targets: Tensor, rng: DropoutRng | None) -> np.ndarray:
    found = torch.autograd.grad(layer.loss(states, targets, None, rng), [states, *layer.parameters()])
    return torch.cat([each.flatten() for each in found]).numpy()


@pytest.mark.parametrize("kind", ["full", "tied"])
@pytest.mark.parametrize("bias", [True, False])
def test_the_loss_is_that_of_the_formula(kind: str, bias: bool) -> None:
    """The normaliser, token by token: exact for the targets of the step, estimated by samples for the others."""
    layer, (states, targets) = make_layer(30, kind, bias=bias), some_positions()
    unigram, expected = frequencies(COUNTS), 0.0
    drawn, counts = stratified(unigram, 30, DropoutRng(3, 4).generator)
    weight = layer.weight.detach().numpy()
    added = np.zeros(SIZE) if layer.bias is None else layer.bias.detach().numpy()
    for state, target in zip(states.detach().numpy(), targets.tolist(), strict=True):
        scores = weight @ state + added
        normaliser = sum(np.exp(scores[token]) for token in set(targets.tolist()))
        for token, count in zip(drawn, counts, strict=True):
            if token not in targets:
                normaliser += count / (30 * unigram[token]) * np.exp(scores[token])
        expected += np.log(normaliser) - scores[target]
    assert layer.loss(states, targets, None, DropoutRng(3, 4)).item() == pytest.approx(expected)


def test_it_is_exact_in_evaluation_and_with_few_tokens() -> None:
    states, targets = some_positions()
    exact = make_layer(0).loss(states, targets, None, DropoutRng(0, 0))
    assert torch.equal(make_layer(10).loss(states, targets), exact)
    assert torch.equal(make_layer(SIZE).loss(states, targets, None, DropoutRng(0, 0)), exact)
    nothing = make_layer(10).loss(states[:0], targets[:0], None, DropoutRng(0, 0))
    assert nothing.item() == 0


def test_estimates_approach_the_gradient_of_the_softmax() -> None:
    """Bias and deviation fall."""
    counts = 3000 // np.arange(1, 401)
    states, targets = some_positions(6)
    exact = gradient(make_layer(0, counts=counts), states, targets, None)
    biases, deviations = [], []
    for samples in (8, 32, 128):
        layer = make_layer(samples, counts=counts)
        found = np.stack([gradient(layer, states, targets, DropoutRng(0, step)) for step in range(1000)])
        variance = ((found - found.mean(0)) ** 2).sum() / (len(found) - 1)
        bias = ((found.mean(0) - exact) ** 2).sum() - variance / len(found)
        biases.append(np.sqrt(max(bias, 0)) / np.linalg.norm(exact))
        deviations.append(np.sqrt(variance) / np.linalg.norm(exact))
    assert biases[1] < biases[0] / 1.3
    assert biases[2] < biases[1] / 2
    assert biases[2] < 0.02
    assert deviations[1] < deviations[0] / 1.6
    assert deviations[2] < deviations[1] / 1.6


def test_the_optimum_is_the_distribution() -> None:
    """Two contexts with known probabilities of the next token, unrelated to frequencies."""
    kept, rng = predictable(12), np.random.default_rng(0)
    wanted = np.zeros((2, 12))
    wanted[:, kept] = rng.dirichlet(np.ones(kept.size), 2)
    layer = make_layer(8, counts=np.arange(1, 13))
    contexts = torch.eye(WIDTH, dtype=torch.float64)[:2]
    optimiser = torch.optim.Adam(layer.parameters(), 0.05)
    for step in range(300):
        shown = np.repeat([0, 1], 200)
        targets = np.concatenate([np.repeat(np.arange(12), rng.multinomial(200, row)) for row in wanted])
        optimiser.param_groups[0]["lr"] = 0.05 * (1 - step / 300)
        optimiser.zero_grad()
        (layer.loss(contexts[shown], torch.from_numpy(targets), None, DropoutRng(0, step)) / 400).backward()
        optimiser.step()
    found = layer.log_probabilities(contexts).exp().detach().numpy()
    assert np.abs(found - wanted).sum(1).max() / 2 < 0.03  # total variation


def test_it_costs_less() -> None:
    assert make_layer(5).flops() < make_layer(20).flops() < make_layer(0).flops() == 2 * WIDTH * SIZE


def test_sampled_tokens_are_a_multiple_of_128() -> None:
    """The last one is repeated without a probability."""
    _, targets = some_positions()
    tokens, correction = make_layer(30)._sample(targets, DropoutRng(0, 0))
    distinct = len(set(tokens.tolist()))
    assert len(tokens) == 128
    assert tokens[distinct:].tolist() == [int(tokens[-1])] * (128 - distinct)
    assert torch.isfinite(correction[:distinct]).all()
    assert correction[distinct:].tolist() == [-np.inf] * (128 - distinct)
