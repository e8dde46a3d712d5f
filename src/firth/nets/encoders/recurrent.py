"""Recurrent encoders: simple recurrent networks, GRUs and LSTMs."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from firth.nets.dropout import DropoutRng, drop, drop_steps
from firth.nets.encoders import rnn_kernels
from firth.nets.encoders.encoder import Encoder, EncoderOutput, StepOutput, select_positions
from firth.nets.recipe import NetRecipe
from firth.nets.visibility import AttentionMask


class SimpleLayer(nn.Module):
    """h[t] = tanh(W x[t] + U h[t - 1] + b) (Elman 1990)."""

    gates = 1

    def __init__(self, inputs: int, width: int, cells: int) -> None:
        super().__init__()
        self.width, self.cells = width, cells or width
        self.input = nn.Linear(inputs, self.gates * self.cells)
        self.recurrent = nn.Linear(width, self.gates * self.cells, bias=False)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -1 / math.sqrt(self.cells), 1 / math.sqrt(self.cells))
        if self.gates == 1:
            nn.init.orthogonal_(self.recurrent.weight)  # preserves the state without gates (Le et al. 2015)

    def forward(
        self, x: Tensor, cache: list[Tensor], resets: Tensor | None, recurrent: Tensor, added: Tensor | None = None
    ) -> StepOutput:
        """The states (steps, batch, width) of `x`, and the last state to cache; `recurrent` replaces the layer's U.

        `added` (steps, batch, gates) is added to W x, such as the contribution of a condition.
        """
        first = cache[0] if cache else x.new_zeros(x.shape[1], self.width)
        states = self.read(self._inputs(x, added), recurrent, first, resets)
        return states, [states[-1]]

    def read(self, inputs: Tensor, recurrent: Tensor, first: Tensor, resets: Tensor | None) -> Tensor:
        """The states of the contributions of the inputs to the gates."""
        return rnn_kernels.simple(inputs, recurrent, first, resets)

    def _inputs(self, x: Tensor, added: Tensor | None) -> Tensor:
        inputs: Tensor = self.input(x)
        return inputs if added is None else inputs + added

    def flops(self) -> float:
        """Floating-point operations per token."""
        return sum(2.0 * parameter.numel() for parameter in self.parameters() if parameter.dim() == 2)


class GruLayer(SimpleLayer):
    """Gated recurrent units, whose reset gates scale U h[t - 1]; there is one bias for each gate."""

    gates = 3

    def read(self, inputs: Tensor, recurrent: Tensor, first: Tensor, resets: Tensor | None) -> Tensor:
        return rnn_kernels.gru(inputs, recurrent, first, resets)


class LstmLayer(SimpleLayer):
    """Long short-term memory, with a projection to the width of the state if the cells have another."""

    gates = 4

    def __init__(self, inputs: int, width: int, cells: int) -> None:
        super().__init__(inputs, width, cells)
        with torch.no_grad():
            self.input.bias.zero_()
            self.input.bias[self.cells : 2 * self.cells] = 1  # forget gates start open (Jozefowicz et al. 2015)
        self.project = nn.Linear(self.cells, width, bias=False) if cells else None

    def forward(
        self, x: Tensor, cache: list[Tensor], resets: Tensor | None, recurrent: Tensor, added: Tensor | None = None
    ) -> StepOutput:
        h, c = cache or (x.new_zeros(x.shape[1], self.width), x.new_zeros(x.shape[1], self.cells))
        if resets is None and self.project is None and added is None:
            # oneDNN's, with packed weights, is up to an eighth faster, but supports neither resets nor projections.
            bias, training = self.input.bias, torch.is_grad_enabled()
            weights = [self.input.weight, recurrent, bias, torch.zeros_like(bias)]
            states, h, c = torch.lstm(x.contiguous(), (h[None], c[None]), weights, True, 1, 0.0, training, False, False)
            return states, [h[0], c[0]]
        project = None if self.project is None else self.project.weight
        states, last = rnn_kernels.lstm(self._inputs(x, added), recurrent, project, (h, c), resets)
        return states, [states[-1], last]


class Recurrent(Encoder):
    """Layers of simple recurrent cells (Elman 1990; Mikolov et al. 2010), forwards or backwards over the text.

    Dropout is between layers and after the last, never between steps (Zaremba et al. 2014); variational dropout has one
    mask for all steps of a row. `weight_drop` drops recurrent weights, the same ones for a whole batch. The state is
    reset to zero where a sequence begins. The first of the returned layers has the inputs in their own width. With
    `output_dropout` the last of them is without dropout, and the last hidden states have it.
    """

    layer: type[SimpleLayer] = SimpleLayer
    cached = 1

    def __init__(self, recipe: NetRecipe) -> None:
        super().__init__(recipe)
        between = [self.recipe.inner_width or self.recipe.width] * (self.recipe.layers - 1)
        shapes = zip([recipe.input_width, *between], [*between, self.recipe.width], strict=True)
        self.layers = nn.ModuleList(self.layer(inputs, width, self._cells()) for inputs, width in shapes)

    def _cells(self) -> int:
        return 0

    def forward(self, inputs: Tensor, mask: AttentionMask, positions: Tensor | None = None) -> EncoderOutput:
        is_backward = mask.visibility == "anticausal"
        x = inputs.flip(1) if is_backward else inputs
        read, _ = self._run(x.transpose(0, 1), [], find_resets(mask.sequence_ids, is_backward), mask.rng)
        states = [inputs]
        for one in read:
            one = one.transpose(0, 1)
            states.append(one.flip(1) if is_backward else one)
        last = states[-1]
        if self.recipe.output_dropout is not None:
            last = self._drop(last, self.recipe.output_dropout, mask.rng, steps=1)
        return states, select_positions(last, positions)

    def decode_step(self, inputs: Tensor, cache: list[Tensor], mask: AttentionMask | None = None) -> StepOutput:
        states, cache = self._run(inputs.transpose(0, 1), cache, None, None)
        return states[-1].transpose(0, 1), cache

    def _run(
        self, x: Tensor, cache: list[Tensor], resets: Tensor | None, rng: DropoutRng | None
    ) -> tuple[list[Tensor], list[Tensor]]:
        """The states of each layer, time first, and the cache of all layers."""
        states, kept = [], []
        for number, layer in enumerate(self.layers):
            assert isinstance(layer, SimpleLayer)
            recurrent = drop(layer.recurrent.weight, self.recipe.weight_drop, rng)
            made, new = layer(x, cache[number * self.cached : (number + 1) * self.cached], resets, recurrent)
            if self.recipe.residual and number:
                made = made + x
            has_own = number == len(self.layers) - 1 and self.recipe.output_dropout is not None
            x = made if has_own else self._drop(made, self.recipe.dropout, rng, steps=0)
            states.append(x)
            kept += new
        return states, kept

    def _drop(self, states: Tensor, rate: float, rng: DropoutRng | None, steps: int) -> Tensor:
        return drop_steps(states, rate, rng, steps) if self.recipe.variational_dropout else drop(states, rate, rng)

    def flops(self, length: int, predicted: float = 1.0) -> float:
        return sum(layer.flops() for layer in self.layers if isinstance(layer, SimpleLayer))


class Gru(Recurrent):
    """Layers of gated recurrent units (Cho et al. 2014)."""

    layer = GruLayer


class Lstm(Recurrent):
    """Layers of long short-term memory; `ffn_width` cells are projected to `width` (ELMo)."""

    layer = LstmLayer
    cached = 2

    def _cells(self) -> int:
        return self.recipe.ffn_width


def find_resets(sequence_ids: Tensor | None, is_backward: bool = False) -> Tensor | None:
    """(steps, batch): true where a sequence begins, in reading order, except at the first step; None if none does.

    >>> find_resets(torch.tensor([[0, 0, 1, 1, -1]])).int()[:, 0].tolist()
    [0, 0, 1, 0, 0]
    """
    if sequence_ids is None:
        return None
    order = sequence_ids.flip(1).t() if is_backward else sequence_ids.t()
    resets = torch.zeros_like(order, dtype=torch.bool)
    resets[1:] = (order[1:] != order[:-1]) & (order[1:] >= 0)  # the states of padding do not matter
    return resets if bool(resets.any()) else None
