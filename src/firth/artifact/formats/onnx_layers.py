"""Layers that all networks have, as ONNX operators: linear layers, norms, activations and embeddings."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from firth.artifact.formats.onnx_graph import OnnxGraph, Value
from firth.errors import AbilityError
from firth.nets.characters import CharacterTable
from firth.nets.embedding import Embedding
from firth.nets.norm import RMSNorm

_CHUNK = 4096  # tokens whose vectors are computed at once


@dataclass
class NetInputs:
    """The inputs of a network in a graph; those that it does not have are None."""

    ids: Value
    """(batch, length)."""
    is_token: Value
    """(batch, past + length): false for padding, which is after the tokens."""
    past: Value | None = None
    """(1,): the number of tokens before the ids whose states are given."""
    segment_ids: Value | None = None
    """(batch, length), as all that follow."""
    language_ids: Value | None = None
    position_ids: Value | None = None
    attention_order: Value | None = None
    query_only: Value | None = None
    is_query: bool = False
    """Whether the states of queries are wanted, which have no token."""
    encoder_states: Value | None = None
    """(batch, source length, width)."""
    encoder_mask: Value | None = None
    """(batch, source length): false for states that the decoder does not attend to."""
    caches: list[Value] = field(default_factory=list)
    """The states of past tokens, if there are any."""
    kept: list[Value] = field(default_factory=list)
    """The states of all tokens, which encoders add."""

    @property
    def graph(self) -> OnnxGraph:
        return self.ids.graph

    @property
    def length(self) -> Value:
        """(1,): the number of new tokens."""
        return self.ids.size(1)

    @property
    def columns(self) -> Value:
        """(length,): the positions of the new tokens in their rows."""
        return self.graph.range(self.length, 0 if self.past is None else self.past.squeeze(0))

    @property
    def lengths(self) -> Value:
        """(batch,): the number of tokens of each row."""
        return self.is_token.cast("INT64").sum(1)


def linear(x: Value, weight: Tensor, bias: Tensor | None) -> Value:
    """x W' + b."""
    made = x @ x.graph.matrix(weight)
    return made if bias is None else made + bias


def dense(x: Value, layer: nn.Linear) -> Value:
    """The output of a linear layer."""
    return linear(x, layer.weight, layer.bias)


def norm(x: Value, layer: nn.Module) -> Value:
    """The output of a normalisation, or of the identity."""
    if isinstance(layer, nn.Identity):
        return x
    if isinstance(layer, RMSNorm):
        square = x.graph.op("ReduceMean", x * x, axes=[-1], keepdims=1) + layer.eps
        return x / x.graph.op("Sqrt", square) * layer.weight
    if isinstance(layer, nn.LayerNorm):
        return x.graph.op("LayerNormalization", x, layer.weight, layer.bias, axis=-1, epsilon=layer.eps)
    raise no_form(layer)


def _gelu(x: Value) -> Value:
    return x * 0.5 * (x.graph.op("Erf", x * math.sqrt(0.5)) + 1.0)


def _gelu_tanh(x: Value) -> Value:
    inner = (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)
    return x * 0.5 * (x.graph.op("Tanh", inner) + 1.0)


_ACTIVATIONS: dict[str, Callable[[Value], Value]] = {
    "gelu": _gelu,
    "gelu-tanh": _gelu_tanh,
    "relu": lambda x: x.graph.op("Relu", x),
    "silu": lambda x: x * x.graph.op("Sigmoid", x),
    "tanh": lambda x: x.graph.op("Tanh", x),
}


def activate(x: Value, name: str) -> Value:
    """The activation of that name."""
    return _ACTIVATIONS[name](x)


def embed(module: Embedding, inputs: NetInputs) -> Value:
    """(batch, length, encoder width): the input of the encoders."""
    graph, recipe = inputs.graph, module.recipe
    vectors = graph.value(_token_table(module)).gather(inputs.ids)
    width = recipe.width
    positions = inputs.columns if inputs.position_ids is None else inputs.position_ids
    if recipe.positions == "sinusoidal":
        vectors = vectors * math.sqrt(width) + _sinusoids(positions, width)
    elif recipe.scaled:
        vectors = vectors * math.sqrt(width)
    if module.positions is not None:
        vectors = vectors + graph.value(module.positions.weight).gather(positions)
    given = ((module.segments, inputs.segment_ids), (module.languages, inputs.language_ids), (module.tasks, None))
    for table, ids in given:
        if table is not None:
            vectors = vectors + (table.weight[0] if ids is None else graph.value(table.weight).gather(ids))
    if module.norm is not None:
        vectors = norm(vectors, module.norm)
    return vectors if module.project is None else dense(vectors, module.project)


def query_vectors(module: Embedding, inputs: NetInputs) -> Value:
    """(batch, length, encoder width): the input of positions whose token is to be predicted."""
    assert module.query is not None
    like = inputs.ids.cast("FLOAT").unsqueeze(2)
    return like * 0.0 + module.query


def _token_table(module: Embedding) -> Tensor:
    """(vocabulary, width): the token vectors, computed once for tokens that are read as characters."""
    if not isinstance(module.tokens, CharacterTable):
        return module.table
    with torch.inference_mode():
        chunks = torch.split(torch.arange(module.token_count), _CHUNK)
        return torch.cat([module.tokens(some) for some in chunks])


def _sinusoids(positions: Value, width: int) -> Value:
    """(..., width): sines and cosines in turn."""
    rates = torch.exp(torch.arange(0, width, 2) * (-math.log(10_000.0) / width))
    angles = positions.cast("FLOAT").unsqueeze(-1) * rates
    both = [positions.graph.op(kind, angles).unsqueeze(-1) for kind in ("Sin", "Cos")]
    joined = positions.graph.concat(both, -1)
    shape = positions.graph.concat([positions.graph.op("Shape", positions), np.array([-1])], 0)
    return positions.graph.op("Reshape", joined, shape).slice(0, width, -1)


def mean(states: Value, chosen: Value) -> Value:
    """(batch, width): the mean of the states (batch, length, width) that are chosen; zeros if none is."""
    weights = chosen.cast("FLOAT").unsqueeze(2)
    count = states.graph.op("Max", weights.sum(1), 1.0)
    return (states * weights).sum(1) / count


def state_at(states: Value, positions: Value) -> Value:
    """(batch, width): the state at a position of each row, (batch,)."""
    index = positions.unsqueeze(1, 2)
    shape = states.graph.concat([states.size(0), np.array([1]), states.size(2)], 0)
    return states.graph.op("GatherElements", states, states.graph.op("Expand", index, shape), axis=1).squeeze(1)


def no_form(part: object) -> AbilityError:
    """The refusal of a part of a network that has no form in ONNX here."""
    return AbilityError(
        f"{type(part).__name__} is a part of the model that the onnx format does not support: use the model with "
        "firth, or export one without it."
    )
