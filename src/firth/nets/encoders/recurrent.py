"""Recurrent encoders: one state that goes over the text, simple or with long short-term memory."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from firth.nets.encoders import cells
from firth.nets.encoders.encoder import Encoder, pick
from firth.nets.noise import Noise, drop
from firth.nets.recipe import NetRecipe
from firth.nets.visibility import View


class SimpleLayer(nn.Module):
    """h[t] = tanh(W x[t] + U h[t - 1] + b) (Elman 1990)."""

    gates = 1

    def __init__(self, inputs: int, width: int, inner: int) -> None:
        super().__init__()
        self.width, self.cell = width, inner or width
        self.input = nn.Linear(inputs, self.gates * self.cell)
        self.recurrent = nn.Linear(width, self.gates * self.cell, bias=False)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -1 / math.sqrt(self.cell), 1 / math.sqrt(self.cell))
        if self.gates == 1:
            nn.init.orthogonal_(self.recurrent.weight)  # without gates this alone keeps what was read (Le et al. 2015)

    def forward(
        self, x: Tensor, memory: list[Tensor], begins: Tensor | None, recurrent: Tensor
    ) -> tuple[Tensor, list[Tensor]]:
        """The states (steps, rows, width) of `x`, and what to remember; `recurrent` stands for the layer's own U."""
        first = memory[0] if memory else x.new_zeros(x.shape[1], self.width)
        states = cells.simple(self.input(x), recurrent, first, begins)
        return states, [states[-1]]

    def work(self) -> float:
        """Floating-point operations for one token."""
        return sum(2.0 * parameter.numel() for parameter in self.parameters() if parameter.dim() == 2)


class LstmLayer(SimpleLayer):
    """Long short-term memory; its cells are brought to the width of the state by a product if they have another."""

    gates = 4

    def __init__(self, inputs: int, width: int, inner: int) -> None:
        super().__init__(inputs, width, inner)
        with torch.no_grad():
            self.input.bias.zero_()
            self.input.bias[self.cell : 2 * self.cell] = 1  # remember at first (Jozefowicz et al. 2015)
        self.project = nn.Linear(self.cell, width, bias=False) if inner else None

    def forward(
        self, x: Tensor, memory: list[Tensor], begins: Tensor | None, recurrent: Tensor
    ) -> tuple[Tensor, list[Tensor]]:
        h, c = memory or (x.new_zeros(x.shape[1], self.width), x.new_zeros(x.shape[1], self.cell))
        if begins is None and self.project is None:
            # oneDNN's, with packed weights, is up to an eighth faster, but it knows neither parts nor projections.
            bias, learning = self.input.bias, torch.is_grad_enabled()
            weights = [self.input.weight, recurrent, bias, torch.zeros_like(bias)]
            states, h, c = torch.lstm(x.contiguous(), (h[None], c[None]), weights, True, 1, 0.0, learning, False, False)
            return states, [h[0], c[0]]
        project = None if self.project is None else self.project.weight
        states, last = cells.lstm(self.input(x), recurrent, project, (h, c), begins)
        return states, [states[-1], last]


class Recurrent(Encoder):
    """Layers of simple recurrent cells (Elman 1990; Mikolov et al. 2010), read in the order of the text or against it.

    Dropout is on what goes up, never on what goes on in time (Zaremba et al. 2014), and the last layer's states have it
    too; with `variational` one mask holds for all steps of a row. `weight_drop` takes recurrent weights out, the same
    ones in all rows and steps of a batch. A state is zero where a part begins. The first of the returned layers has the
    vectors as they entered, in their own width.
    """

    layer: type[SimpleLayer] = SimpleLayer
    remembered = 1

    def __init__(self, recipe: NetRecipe) -> None:
        super().__init__()
        self.recipe = recipe.encoder
        inputs = [recipe.embedding.width] + [self.recipe.width] * (self.recipe.layers - 1)
        self.layers = nn.ModuleList(self.layer(one, self.recipe.width, self._inner) for one in inputs)

    @property
    def _inner(self) -> int:
        return 0

    def forward(self, entered: Tensor, view: View, places: Tensor | None = None) -> tuple[list[Tensor], Tensor]:
        back = view.visibility == "anticausal"
        x = entered.flip(1) if back else entered
        read, _ = self._read(x.transpose(0, 1), [], begins_of(view.parts, back), view.noise)
        states = [entered]
        for one in read:
            one = one.transpose(0, 1)
            states.append(one.flip(1) if back else one)
        return states, pick(states[-1], places)

    def extend(self, entered: Tensor, memory: list[Tensor], view: View | None = None) -> tuple[Tensor, list[Tensor]]:
        read, memory = self._read(entered.transpose(0, 1), memory, None, None)
        return read[-1].transpose(0, 1), memory

    def _read(
        self, x: Tensor, memory: list[Tensor], begins: Tensor | None, noise: Noise | None
    ) -> tuple[list[Tensor], list[Tensor]]:
        """The states of each layer, time first, and what all layers remember."""
        states, remembered = [], []
        for number, layer in enumerate(self.layers):
            assert isinstance(layer, SimpleLayer)
            recurrent = drop(layer.recurrent.weight, self.recipe.weight_drop, noise)
            own = memory[number * self.remembered : (number + 1) * self.remembered]
            made, kept = layer(x, own, begins, recurrent)
            if self.recipe.skip and number:
                made = made + x
            x = self._drop(made, noise)
            states.append(x)
            remembered += kept
        return states, remembered

    def _drop(self, states: Tensor, noise: Noise | None) -> Tensor:
        if noise is None or not self.recipe.variational or not self.recipe.dropout:
            return drop(states, self.recipe.dropout, noise)
        return states * noise.mask((1, *states.shape[1:]), self.recipe.dropout, states.dtype).to(states.device)

    def work(self, length: int, predicted: float = 1.0) -> float:
        return sum(layer.work() for layer in self.layers if isinstance(layer, SimpleLayer))


class Lstm(Recurrent):
    """Layers of long short-term memory, with all that `Recurrent` has, and `inner` cells brought to `width` (ELMo)."""

    layer = LstmLayer
    remembered = 2

    @property
    def _inner(self) -> int:
        return self.recipe.inner


def begins_of(parts: Tensor | None, back: bool = False) -> Tensor | None:
    """(places, rows): where a part begins, in the order of reading, but for the first place; None if none does.

    >>> begins_of(torch.tensor([[0, 0, 1, 1, -1]])).int()[:, 0].tolist()
    [0, 0, 1, 0, 0]
    """
    if parts is None:
        return None
    order = parts.flip(1).t() if back else parts.t()
    begins = torch.zeros_like(order, dtype=torch.bool)
    begins[1:] = (order[1:] != order[:-1]) & (order[1:] >= 0)  # what padding remembers does not matter
    return begins if bool(begins.any()) else None
