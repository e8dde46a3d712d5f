"""Bidirectional LSTM: each layer reads the states of both directions of the layer below (Graves et al. 2005)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from firth.errors import AbilityError
from firth.nets.dropout import DropoutRng, drop, drop_steps
from firth.nets.encoders.encoder import Encoder, EncoderOutput, StepOutput, select_positions
from firth.nets.encoders.recurrent import LstmLayer, find_resets
from firth.nets.recipe import NetRecipe
from firth.nets.visibility import AttentionMask


class BidirectionalLstm(Encoder):
    """Layers of two LSTMs, one for each direction, whose states are concatenated: half of the width is of each.

    Dropout is between layers and after the last; `variational_dropout` and `weight_drop` are those of `Recurrent`.
    """

    def __init__(self, recipe: NetRecipe) -> None:
        super().__init__(recipe)
        half, inputs = self.recipe.width // 2, recipe.embedding.width
        self.layers = nn.ModuleList()
        for _ in range(self.recipe.layers):
            self.layers.append(nn.ModuleList(LstmLayer(inputs, half, 0) for _ in range(2)))
            inputs = self.recipe.width

    def forward(self, inputs: Tensor, mask: AttentionMask, positions: Tensor | None = None) -> EncoderOutput:
        resets = [find_resets(mask.sequence_ids, is_backward) for is_backward in (False, True)]
        x, states = inputs.transpose(0, 1), [inputs]
        for pair in self.layers:
            assert isinstance(pair, nn.ModuleList)
            ahead = self._read(pair[0], x, resets[0], mask.rng)
            back = self._read(pair[1], x.flip(0), resets[1], mask.rng).flip(0)
            x = self._drop(torch.cat([ahead, back], -1), mask.rng)
            states.append(x.transpose(0, 1))
        return states, select_positions(states[-1], positions)

    def _read(self, layer: nn.Module, x: Tensor, resets: Tensor | None, rng: DropoutRng | None) -> Tensor:
        assert isinstance(layer, LstmLayer)
        states, _ = layer(x, [], resets, drop(layer.recurrent.weight, self.recipe.weight_drop, rng))
        return states  # type: ignore[no-any-return]

    def _drop(self, states: Tensor, rng: DropoutRng | None) -> Tensor:
        if self.recipe.variational_dropout:
            return drop_steps(states, self.recipe.dropout, rng, steps=0)
        return drop(states, self.recipe.dropout, rng)

    def decode_step(self, inputs: Tensor, cache: list[Tensor], mask: AttentionMask | None = None) -> StepOutput:
        raise AbilityError("a bidirectional LSTM reads a whole text at once, and cannot continue one: use an lstm.")

    def flops(self, length: int, predicted: float = 1.0) -> float:
        return sum(2.0 * one.numel() for one in self.parameters() if one.dim() == 2)
