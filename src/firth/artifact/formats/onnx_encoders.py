"""Encoders as ONNX operators: recurrent ones, windows, convolutions, and whole networks of them."""

from __future__ import annotations

import math
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from firth.artifact.formats.onnx_graph import OnnxGraph, Value
from firth.artifact.formats.onnx_layers import NetInputs, activate, dense, embed, linear, no_form, query_vectors
from firth.artifact.formats.onnx_transformer import transformer, two_streams
from firth.nets.encoders.attentive import AttentiveLstm
from firth.nets.encoders.bidirectional import BidirectionalLstm
from firth.nets.encoders.convolution import Convolution, GatedLayer
from firth.nets.encoders.encoder import Encoder
from firth.nets.encoders.feedforward import Bilinear, IdentityEncoder, WindowEncoder, offsets
from firth.nets.encoders.recurrent import GruLayer, LstmLayer, Recurrent, SimpleLayer
from firth.nets.encoders.transformer import Transformer
from firth.nets.network import Network
from firth.nets.scoring import make_batch
from firth.tokens.tokenizer import EOS

_GATES = (0, 3, 1, 2)  # input, output, forget and cell gates, ONNX's order, among those of a layer
_GRU_GATES = (1, 0, 2)  # update, reset, candidate: ours begin with reset
_END = np.iinfo(np.int64).max
Encoded = tuple[list[Value], Value]
"""The states of each layer, (batch, length, width), and the last states, which may be wider than the last layer."""


def layer_widths(network: Network) -> list[int]:
    """The widths of the states of each layer."""
    with torch.inference_mode():
        return [one.shape[-1] for one in network(make_batch(torch.tensor([[EOS]]))).layers]


def encode(network: Network, inputs: NetInputs) -> Encoded:
    """The states of a network of one or two directions."""
    embedded = embed(network.embedding, inputs)
    if inputs.is_query:
        encoder = cast(Transformer, network.encoders[0])
        return [], two_streams(encoder, embedded, query_vectors(network.embedding, inputs), inputs)
    count, graph = network.recipe.directions, inputs.graph
    parts = [embedded] * count
    if network.recipe.embedding.per_direction:
        width = network.recipe.input_width
        parts = [embedded.slice(number * width, (number + 1) * width, 2) for number in range(count)]
    found = [
        encode_one(cast(Encoder, encoder), x, inputs, visibility, network._reach)
        for encoder, x, visibility in zip(network.encoders, parts, network.visibilities, strict=True)
    ]
    layers = [graph.concat(each, 2) for each in zip(*(layers for layers, _ in found), strict=True)]
    return layers, graph.concat([last for _, last in found], 2)


def decode(network: Network, inputs: NetInputs) -> Value:
    """(batch, length, width): the last states of a decoder."""
    assert network.decoder is not None
    embedded = embed(network.decoder_embedding or network.embedding, inputs)
    return encode_one(network.decoder, embedded, inputs, "causal")[1]


def encode_one(encoder: Encoder, x: Value, inputs: NetInputs, visibility: str, reach: int = 0) -> Encoded:
    """The states of one encoder."""
    if isinstance(encoder, Transformer):
        layers = transformer(encoder, x, inputs, visibility, reach)
    elif isinstance(encoder, Recurrent):
        layers = _recurrent(encoder, x, inputs, visibility == "anticausal")
    elif isinstance(encoder, BidirectionalLstm):
        layers = _bidirectional(encoder, x, inputs)
    elif isinstance(encoder, AttentiveLstm):
        layers = [x, _attentive(encoder, x, inputs)]
    elif isinstance(encoder, WindowEncoder):
        return _window(encoder, x, inputs, visibility)
    elif isinstance(encoder, Bilinear):
        layers = [x, dense(_windows(x, offsets(encoder.recipe.context, visibility), inputs), encoder.combine)]
    elif isinstance(encoder, Convolution):
        layers = _convolution(encoder, x, inputs, visibility)
    elif isinstance(encoder, IdentityEncoder):
        layers = [x]
    else:
        raise no_form(encoder)
    return layers, layers[-1]


def _recurrent(encoder: Recurrent, x: Value, inputs: NetInputs, is_backward: bool) -> list[Value]:
    """The states of each layer, the inputs first. Final states are added to `inputs.kept`."""
    states, y = [x], x.transpose(1, 0, 2)
    for number, layer in enumerate(encoder.layers):
        assert isinstance(layer, SimpleLayer)
        caches = inputs.caches[number * encoder.cached : (number + 1) * encoder.cached]
        made, kept = _layer(layer, y, inputs, is_backward, caches)
        inputs.kept += kept
        y = made + y if encoder.recipe.residual and number else made
        states.append(y.transpose(1, 0, 2))
    return states


def _bidirectional(encoder: BidirectionalLstm, x: Value, inputs: NetInputs) -> list[Value]:
    states, y = [x], x.transpose(1, 0, 2)
    for pair in encoder.layers:
        both = [
            _layer(cast(LstmLayer, layer), y, inputs, is_backward, [])[0]
            for layer, is_backward in zip(cast(nn.ModuleList, pair), (False, True), strict=True)
        ]
        y = x.graph.concat(both, 2)
        states.append(y.transpose(1, 0, 2))
    return states


def _layer(
    layer: SimpleLayer, x: Value, inputs: NetInputs, is_backward: bool, caches: list[Value]
) -> tuple[Value, list[Value]]:
    """(length, batch, width): the states of a layer, time first, and the last ones, (batch, width) each."""
    if isinstance(layer, LstmLayer) and layer.project is not None:
        return _projected(layer, x, inputs, is_backward, caches)
    graph, direction = x.graph, "reverse" if is_backward else "forward"
    kind, order, last = _kind(layer)
    weights = [_gates(one, order)[None] for one in (layer.input.weight, layer.recurrent.weight)]
    bias = _gates(layer.input.bias, order)
    options = {"linear_before_reset": 1} if kind == "GRU" else {}
    states, *last_states = graph.ops(
        kind,
        1 + last,
        x,
        *weights,
        torch.cat([bias, torch.zeros_like(bias)])[None],
        inputs.lengths.cast("INT32"),
        *(one.unsqueeze(0) for one in caches),
        hidden_size=layer.width,
        direction=direction,
        **options,
    )
    return states.squeeze(1), [one.squeeze(0) for one in last_states]


def _kind(layer: SimpleLayer) -> tuple[str, tuple[int, ...], int]:
    """ONNX's operator, the order of its gates among ours, and the number of its last states."""
    if isinstance(layer, LstmLayer):
        return "LSTM", _GATES, 2
    return ("GRU", _GRU_GATES, 1) if isinstance(layer, GruLayer) else ("RNN", (0,), 1)


def _gates(parameter: Tensor, order: tuple[int, ...]) -> Tensor:
    """The rows of each gate in ONNX's order."""
    parts = parameter.detach().chunk(len(order))
    return torch.cat([parts[number] for number in order])


def _projected(
    layer: LstmLayer, x: Value, inputs: NetInputs, is_backward: bool, caches: list[Value]
) -> tuple[Value, list[Value]]:
    """An LSTM whose cells are projected to the state, which ONNX's LSTM does not have: as a loop over steps."""
    assert layer.project is not None
    graph = x.graph
    is_token = inputs.is_token.cast("FLOAT").transpose(1, 0).unsqueeze(2)
    first = caches or [_zeros(graph, x.size(1), size) for size in (layer.width, layer.cells)]
    body = graph.body()
    h, c, gates, kept = (body.input(graph.new_name("step"), "FLOAT", None) for _ in range(4))
    raw, cells = _cell(body, gates + h @ body.matrix(layer.recurrent.weight), c, layer.cells)
    # Padding, which is read first backwards, leaves the state as it is: zero, or that of the last token.
    state = _choose(kept, raw @ body.matrix(layer.project.weight), h)
    new = [state, _choose(kept, cells, c)]
    found = _scan(body, first, [dense(x, layer.input), is_token], new, state, is_backward)
    return found[-1], found[:2]


def _choose(kept: Value, new: Value, old: Value) -> Value:
    return new * kept + old * (kept * -1.0 + 1.0)


def _cell(graph: OnnxGraph, gates: Value, cells: Value, size: int) -> tuple[Value, Value]:
    """(batch, cells) each: the output of a step of an LSTM before its projection, and its cells."""
    i, f, g, o = (gates.slice(number * size, (number + 1) * size, 1) for number in range(4))
    i, f, o = (graph.op("Sigmoid", one) for one in (i, f, o))
    cells = f * cells + i * graph.op("Tanh", g)
    return o * graph.op("Tanh", cells), cells


def _zeros(graph: OnnxGraph, rows: Value, size: int) -> Value:
    """(rows, size)."""
    shape = graph.concat([rows, np.array([size])], 0)
    return graph.op("Expand", np.zeros((1, size), dtype=np.float32), shape)


def _scan(
    body: OnnxGraph, first: list[Value], steps: list[Value], new: list[Value], made: Value, is_backward: bool = False
) -> list[Value]:
    """The last states of a loop, and what is made in each step, (length, batch, width)."""
    graph = first[0].graph
    names = [body.new_name("state") for _ in new]
    for value, name in zip(new, names, strict=True):
        body.output(value, name, None)
    body.output(made, body.new_name("made"), None)
    backward = int(is_backward)
    return graph.ops(
        "Scan",
        len(first) + 1,
        *first,
        *steps,
        body=body.made(graph.new_name("body")),
        num_scan_inputs=len(steps),
        scan_input_directions=[backward] * len(steps),
        scan_output_directions=[backward],
    )


def _attentive(encoder: AttentiveLstm, x: Value, inputs: NetInputs) -> Value:
    """(batch, length, width): an LSTM decoder with attention, as a loop over steps."""
    assert inputs.encoder_states is not None
    assert inputs.encoder_mask is not None
    graph, width = x.graph, encoder.recipe.width
    count = 2 * len(encoder.layers) + 1
    first = inputs.caches or [_zeros(graph, x.size(0), width)] * count
    bias = graph.where(inputs.encoder_mask.unsqueeze(1), 0.0, -1e30)
    turned = inputs.encoder_states.transpose(0, 2, 1)
    body = graph.body()
    states = [body.input(graph.new_name("step"), "FLOAT", None) for _ in range(count)]
    y, new = body.input(graph.new_name("step"), "FLOAT", None), list[Value]()
    y = body.concat([y, states[-1]], 1)
    for number, layer in enumerate(encoder.layers):
        assert isinstance(layer, LstmLayer)
        gates = dense(y, layer.input) + states[2 * number] @ body.matrix(layer.recurrent.weight)
        h, c = _cell(body, gates, states[2 * number + 1], width)
        new += [h, c]
        y = h
    query = dense(y, encoder.query).unsqueeze(1)
    scores = query @ turned + bias
    attended = (body.op("Softmax", scores, axis=-1) @ inputs.encoder_states).squeeze(1)
    new.append(body.op("Tanh", dense(body.concat([attended, y], 1), encoder.combine)))
    *kept, made = _scan(body, first, [x.transpose(1, 0, 2)], new, new[-1])
    inputs.kept += kept
    return made.transpose(1, 0, 2)


def _window(encoder: WindowEncoder, x: Value, inputs: NetInputs, visibility: str) -> Encoded:
    window = _windows(x, offsets(encoder.recipe.context, visibility), inputs)
    states, hidden = [x], window
    for layer in encoder.layers:
        hidden = activate(dense(hidden, cast(nn.Linear, layer)), encoder.recipe.activation)
        states.append(hidden)
    last = x.graph.concat([hidden, window], 2) if encoder.recipe.direct_connections else hidden
    return states, last


def _convolution(encoder: Convolution, x: Value, inputs: NetInputs, visibility: str) -> list[Value]:
    tokens, states = offsets(encoder.recipe.context, visibility), [x]
    for layer in encoder.layers:
        assert isinstance(layer, GatedLayer)
        weight = (layer.weight * (layer.gain / layer.weight.norm(dim=1))[:, None]).detach()
        both = linear(_windows(states[-1], tokens, inputs), weight, layer.bias)
        width = len(layer.bias) // 2
        made = both.slice(0, width, 2) * x.graph.op("Sigmoid", both.slice(width, 2 * width, 2))
        has_residual = layer.weight.shape[1] == len(tokens) * width
        states.append((made + states[-1]) * math.sqrt(0.5) if has_residual else made)
    return states


def _windows(x: Value, tokens: list[int], inputs: NetInputs) -> Value:
    """(batch, length, tokens x width): concatenated vectors at some offsets, zero for those outside of the text."""
    before, after = -min(0, *tokens), max(0, *tokens)
    own = x * inputs.is_token.cast("FLOAT").unsqueeze(2)
    padded = x.graph.op("Pad", own, np.array([0, before, 0, 0, after, 0]))
    parts = [padded.slice(before + one, _END if one == after else one - after, 1) for one in tokens]
    return x.graph.concat(parts, 2)
