"""An LSTM decoder with global attention to encoder states (Luong et al. 2015; McCann et al. 2017)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from firth.nets.dropout import DropoutRng, drop
from firth.nets.encoders.encoder import Encoder, EncoderOutput, StepOutput, select_positions
from firth.nets.encoders.recurrent import LstmLayer, find_resets
from firth.nets.recipe import EncoderRecipe, NetRecipe
from firth.nets.visibility import AttentionBias, AttentionMask, SourceKeys


class AttentiveLstm(Encoder):
    """Layers of LSTMs, whose last state attends to the encoder states H of the source.

    h[t] = LSTM([z[t - 1]; a[t - 1]], h[t - 1]); alpha[t] = softmax(H (W h[t] + b)); a[t] = tanh(V [H^T alpha[t]; h[t]]
    + c), which predicts the token z[t] and is fed to the next step (McCann et al. 2017, equations 2 to 5). All states
    are zero where a sequence begins. Dropout is between layers and of a[t] where it predicts, not where it is fed.
    """

    def __init__(self, recipe: NetRecipe, part: EncoderRecipe | None = None) -> None:
        super().__init__(recipe, part)
        width, source = self.recipe.width, self.recipe.cross_width
        inputs = [recipe.embedding.width + width] + [width] * (self.recipe.layers - 1)
        self.layers = nn.ModuleList(LstmLayer(one, width, 0) for one in inputs)
        self.query = _uniform(nn.Linear(width, source))
        self.combine = _uniform(nn.Linear(source + width, width))

    def forward(self, inputs: Tensor, mask: AttentionMask, positions: Tensor | None = None) -> EncoderOutput:
        assert mask.encoder_states is not None
        resets, cache, made = find_resets(mask.sequence_ids), self._zeros(inputs), []
        for step, x in enumerate(inputs.unbind(1)):
            if resets is not None and bool(resets[step].any()):
                kept = (~resets[step]).to(x.dtype)[:, None]
                cache = [one * kept for one in cache]
            bias = _at_step(mask.encoder_states.bias, step)
            cache = self._step(x, cache, mask.encoder_states.states, bias, mask.rng)
            made.append(cache[-1])
        last = drop(torch.stack(made, 1), self.recipe.dropout, mask.rng)
        return [inputs, last], select_positions(last, positions)

    def decode_step(self, inputs: Tensor, cache: list[Tensor], mask: AttentionMask | None = None) -> StepOutput:
        """The cache has the state and the cells of each layer and the attentional state, (batch, width) each.

        The encoder states of `mask` are set there as `source_keys`.
        """
        assert mask is not None
        if mask.encoder_states is not None:
            states, bias = mask.encoder_states
            mask.source_keys = SourceKeys([[states]], bias, torch.arange(len(states), device=states.device))
        source = mask.source_keys
        assert source is not None
        (keys,), bias = source.layers[0], source.bias
        if source.repeats is None:
            (keys,), bias = source.of_rows(0)
        made, cache = [], cache or self._zeros(inputs)
        for x in inputs.unbind(1):
            cache = self._step(x, cache, keys, bias, None)
            made.append(cache[-1])
        return torch.stack(made, 1), cache

    def _zeros(self, inputs: Tensor) -> list[Tensor]:
        zero = inputs.new_zeros(len(inputs), self.recipe.width)
        return [zero] * (2 * len(self.layers) + 1)

    def _step(
        self, x: Tensor, cache: list[Tensor], states: Tensor, bias: AttentionBias, rng: DropoutRng | None
    ) -> list[Tensor]:
        """The new cache after a token (batch, embedding width)."""
        kept, x = [], torch.cat([x, cache[-1]], 1)
        for number, layer in enumerate(self.layers):
            assert isinstance(layer, LstmLayer)
            bias_in = layer.input.bias
            gates = (layer.input.weight, layer.recurrent.weight, bias_in, torch.zeros_like(bias_in))
            h, c = torch.lstm_cell(x, (cache[2 * number], cache[2 * number + 1]), *gates)
            kept += [h, c]
            x = h if number == len(self.layers) - 1 else drop(h, self.recipe.dropout, rng)
        return [*kept, torch.tanh(self.combine(torch.cat([self._attend(x, states, bias), x], 1)))]

    def _attend(self, h: Tensor, states: Tensor, bias: AttentionBias) -> Tensor:
        """(rows, source width): the mean of encoder states (sources, length, width), weighted by attention.

        The rows of a source are consecutive.
        """
        queries = self.query(h).view(len(states), -1, states.shape[-1])
        scores = queries @ states.transpose(1, 2)
        if bias.bias is not None:
            scores = scores + bias.bias.to(scores.dtype)
        attended = scores.softmax(-1) @ states
        if bias.query_scale is not None:
            attended = attended * bias.query_scale.to(attended.dtype)
        return torch.reshape(attended, (len(h), -1))

    def flops(self, length: int, predicted: float = 1.0, source: int | None = None) -> float:
        """It attends to `source` encoder states, by default to as many as there are tokens."""
        layers = sum(2.0 * one.numel() for one in self.parameters() if one.dim() == 2)
        return layers + 4.0 * (length if source is None else source) * self.recipe.cross_width


def _at_step(bias: AttentionBias, step: int) -> AttentionBias:
    """The bias of the query at one step, (batch or 1, 1, key)."""
    return AttentionBias(*(each if each is None or each.shape[1] == 1 else each[:, step : step + 1] for each in bias))


def _uniform(layer: nn.Linear) -> nn.Linear:
    """The layer with initial parameters as small as those of an LSTM."""
    for parameter in layer.parameters():
        nn.init.uniform_(parameter, -1 / math.sqrt(layer.in_features), 1 / math.sqrt(layer.in_features))
    return layer
