"""Gated convolutions (Dauphin et al. 2017)."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as f
from torch import Tensor, nn

from firth.nets.dropout import drop
from firth.nets.encoders.encoder import Encoder, EncoderOutput, StepOutput, select_positions
from firth.nets.encoders.feedforward import offsets, windows
from firth.nets.linear import linear
from firth.nets.recipe import NetRecipe
from firth.nets.visibility import AttentionMask


class GatedLayer(nn.Module):
    """h = (X W + b) * sigmoid(X V + c) over the concatenated vectors X of a window (equation 1).

    The rows of W and V are normalised to a trained length, g v / |v| (Salimans and Kingma 2016).
    """

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(2 * width, inputs))
        nn.init.kaiming_normal_(self.weight, nonlinearity="linear")
        self.gain = nn.Parameter(self.weight.detach().norm(dim=1))
        self.bias = nn.Parameter(torch.zeros(2 * width))

    def forward(self, window: Tensor) -> Tensor:
        """(..., width) from windows (..., inputs)."""
        weight = self.weight * (self.gain / self.weight.norm(dim=1))[:, None]
        return f.glu(linear(window, weight, self.bias), -1)


class Convolution(Encoder):
    """Layers of gated convolutions, each added to its input.

    A state depends on `context` tokens of the layer below, itself the last of them if causal and the first if
    anticausal, or on `context` tokens on each side and itself if bidirectional. Tokens outside the sequence are zero
    vectors. The first layer has no residual connection if token vectors have another width.
    """

    def __init__(self, recipe: NetRecipe) -> None:
        super().__init__(recipe)
        tokens = len(offsets(self.recipe.context, recipe.visibility))
        inputs = [recipe.embedding.width] + [self.recipe.width] * (self.recipe.layers - 1)
        self.layers = nn.ModuleList(GatedLayer(tokens * one, self.recipe.width) for one in inputs[: self.recipe.layers])

    def forward(self, inputs: Tensor, mask: AttentionMask, positions: Tensor | None = None) -> EncoderOutput:
        tokens, states = offsets(self.recipe.context, mask.visibility), [inputs]
        for layer in self.layers[:-1]:
            x = states[-1]
            window = windows(drop(x, self.recipe.dropout, mask.rng), tokens, mask.sequence_ids)
            states.append(_add(layer(window), x))
        x = states[-1]
        window = windows(drop(x, self.recipe.dropout, mask.rng), tokens, mask.sequence_ids)
        last = _add(self.layers[-1](select_positions(window, positions)), select_positions(x, positions))
        if positions is None:
            states.append(last.view(*inputs.shape[:2], -1))
        return states, last

    def decode_step(self, inputs: Tensor, cache: list[Tensor], mask: AttentionMask | None = None) -> StepOutput:
        """The cache has the last `context` - 1 inputs of each layer."""
        tokens, kept, x = offsets(self.recipe.context, "causal"), [], inputs
        for number, layer in enumerate(self.layers):
            whole = torch.cat([*cache[number : number + 1], x], 1)
            kept.append(whole[:, max(0, whole.shape[1] - self.recipe.context + 1) :])
            x = _add(layer(windows(whole, tokens, None)[:, whole.shape[1] - x.shape[1] :]), x)
        return x, kept

    def flops(self, length: int, predicted: float = 1.0) -> float:
        each = [2.0 * layer.weight.numel() for layer in self.layers]  # type: ignore[operator]
        return sum(each[:-1]) + predicted * each[-1]


def _add(made: Tensor, x: Tensor) -> Tensor:
    """The residual connection, with the factor that preserves the variance of a sum; none for another width."""
    return made if made.shape[-1] != x.shape[-1] else (made + x) * math.sqrt(0.5)
