"""Gated convolutions: hand-worked values, torch's own operators, and context."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from firth.errors import RecipeError
from firth.nets.encoders.convolution import Convolution, GatedLayer
from firth.nets.recipe import NetRecipe
from firth.nets.visibility import AttentionMask
from firth.objectives.mlm import MaskedLM
from firth.recipes.nets import cnn_lm


def small(visibility: str = "causal", layers: int = 3, width: int = 6, inputs: int = 4) -> NetRecipe:
    base = cnn_lm()
    objectives = base.objectives if visibility == "causal" else (MaskedLM(),)
    return replace(
        base,
        embedding=replace(base.embedding, width=inputs),
        encoder=replace(base.encoder, layers=layers, width=width, context=3, dropout=0.0),
        visibility=visibility,
        objectives=objectives,
    )


def encode(encoder: Convolution, inputs: torch.Tensor, visibility: str) -> torch.Tensor:
    mask = AttentionMask(visibility, (inputs.shape[0], inputs.shape[1]))
    with torch.no_grad():
        return encoder(inputs, mask)[1].view(inputs.shape[0], inputs.shape[1], -1)


def test_a_layer_has_the_value_worked_by_hand() -> None:
    """One token of one number in a window of two: (2 * 3 + 1 * 1 + 0.5) * sigmoid(4 - 3)."""
    layer = GatedLayer(2, 1)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[2.0, 1.0], [0.0, -3.0]]))
        layer.gain.copy_(torch.tensor([math.sqrt(5), 3.0]))
        layer.bias.copy_(torch.tensor([0.5, 4.0]))
    found = layer(torch.tensor([[3.0, 1.0]])).item()
    assert found == pytest.approx(7.5 / (1 + math.exp(-1)), rel=1e-6)


def test_rows_of_the_weights_have_the_length_of_the_gain() -> None:
    layer = GatedLayer(5, 3)
    with torch.no_grad():
        before = layer(torch.ones(1, 5))
        layer.weight.mul_(7)
        torch.testing.assert_close(layer(torch.ones(1, 5)), before)


@pytest.mark.parametrize("visibility", ["causal", "anticausal", "bidirectional"])
def test_states_are_those_of_convolutions_of_torch(visibility: str) -> None:
    torch.manual_seed(0)
    encoder = Convolution(small("bidirectional" if visibility == "bidirectional" else "causal"))
    inputs = torch.randn(2, 9, 4)
    x = inputs.transpose(1, 2)
    sides = {"causal": (2, 0), "anticausal": (0, 2), "bidirectional": (3, 3)}[visibility]
    for layer in encoder.layers:
        assert isinstance(layer, GatedLayer)
        channels, kernel = x.shape[1], 1 + sum(sides)
        conv = weight_norm(nn.Conv1d(channels, 12, kernel), dim=0)
        with torch.no_grad():
            conv.parametrizations.weight.original0.copy_(layer.gain[:, None, None])
            conv.parametrizations.weight.original1.copy_(layer.weight.view(12, kernel, channels).transpose(1, 2))
            conv.bias.copy_(layer.bias)
            made = nn.functional.glu(conv(nn.functional.pad(x, sides)), 1)
        x = made if channels != 6 else (made + x) * math.sqrt(0.5)
    torch.testing.assert_close(encode(encoder, inputs, visibility), x.transpose(1, 2), rtol=0, atol=1e-6)


def test_a_state_depends_on_the_receptive_field() -> None:
    recipe = small()
    encoder, inputs = Convolution(recipe).double(), torch.randn(1, 12, 4, dtype=torch.float64)
    before, changed = encode(encoder, inputs, "causal"), inputs.clone()
    changed[0, 2] += 1
    moved = (encode(encoder, changed, "causal") != before).any(-1)[0]
    assert recipe.encoder.receptive_field == 7
    assert moved.nonzero()[:, 0].tolist() == list(range(2, 2 + 7))


@pytest.mark.parametrize("field", ["layers", "context"])
def test_a_convolution_without_context_is_refused(field: str) -> None:
    with pytest.raises(RecipeError, match=f"encoder.{field}=0"):
        replace(cnn_lm().encoder, **{field: 0})
