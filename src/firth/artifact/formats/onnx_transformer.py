"""Transformers as ONNX operators: attention with absolute, relative and bucketed positions, and to an encoder's states.

B batch size, Q queries, L keys (the past included), H heads of size D, W = H D hidden width.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import nn

from firth.artifact.formats.onnx_graph import Value
from firth.artifact.formats.onnx_layers import NetInputs, activate, dense, linear, no_form, norm
from firth.nets.encoders.buckets import SCALE, BucketAttention, buckets_of
from firth.nets.encoders.cross_attention import CrossAttention
from firth.nets.encoders.relative import RelativeAttention
from firth.nets.encoders.transformer import Attention, Layer, Transformer
from firth.nets.recipe import EncoderRecipe

_HIDDEN = -1e30  # added to the scores of keys that are not attended to; finite, so that no row is without any


def attention_bias(inputs: NetInputs, visibility: str, reach: int = 0) -> Value:
    """(B or 1, 1, Q or 1, L): what is added to attention scores."""
    graph = inputs.graph
    allowed = inputs.is_token.unsqueeze(1, 2)
    if visibility == "bidirectional" and inputs.attention_order is not None:
        visibility = "causal"  # tokens of equal order attend to one another
    if visibility != "bidirectional":
        allowed = allowed & _in_order(inputs, visibility)
    if reach:
        queries, keys = _both_columns(inputs)
        allowed = allowed & (queries - keys < reach)
    if inputs.query_only is not None:
        queries, keys = _both_columns(inputs)
        allowed = allowed & (~inputs.query_only.unsqueeze(1, 2) | queries.equals(keys))
    return graph.where(allowed, 0.0, _HIDDEN)


def _in_order(inputs: NetInputs, visibility: str) -> Value:
    """(B or 1, 1, Q, L): whether a key is at a position that the query may attend to."""
    if inputs.attention_order is None:
        queries, keys = _both_columns(inputs)
    else:
        queries, keys = inputs.attention_order.unsqueeze(1, 3), inputs.attention_order.unsqueeze(1, 2)
    if visibility == "before":
        return keys < queries
    return keys <= queries if visibility == "causal" else keys >= queries


def _both_columns(inputs: NetInputs) -> tuple[Value, Value]:
    """(1, 1, Q, 1) and (1, 1, 1, L): the positions of queries and keys in their rows."""
    keys = inputs.graph.range(inputs.is_token.size(1))
    return inputs.columns.unsqueeze(0, 1, 3), keys.unsqueeze(0, 1, 2)


def transformer(encoder: Transformer, x: Value, inputs: NetInputs, visibility: str, reach: int = 0) -> list[Value]:
    """The states of each layer, (B, Q, W), the inputs first. Keys and values are added to `inputs.kept`."""
    bias = attention_bias(inputs, visibility, reach)
    if encoder.recipe.positions == "buckets" and encoder.recipe.layers:
        table = next(encoder._layer_pairs())[0].attention
        bias = bias + _bucket_scores(table, inputs, visibility == "causal")
    states = [x]
    for number, (first, second) in enumerate(encoder._layer_pairs()):
        caches = inputs.caches[2 * number : 2 * number + 2]
        x = _attention_sublayers(first, states[-1], states[-1], bias, inputs, caches)
        states.append(_residual(second, x, _feed_forward(second), second.norm2))
    return [*states[:-1], _final_norm(encoder, states[-1])]


def two_streams(encoder: Transformer, x: Value, queries: Value, inputs: NetInputs) -> Value:
    """(B, Q, W): the states of queries that have no token and attend to the tokens before them (Yang et al. 2019)."""
    bias, query_bias = attention_bias(inputs, "bidirectional"), attention_bias(inputs, "before")
    graph = inputs.graph
    has_keys = graph.op("ReduceMax", query_bias, axes=[3], keepdims=0).squeeze(1).unsqueeze(2) >= 0.0
    for first, second in encoder._layer_pairs():
        attended = _attention_sublayers(first, queries, x, query_bias, inputs, [], has_keys.cast("FLOAT"))
        x = _attention_sublayers(first, x, x, bias, inputs, [])
        x, queries = (_residual(second, one, _feed_forward(second), second.norm2) for one in (x, attended))
    return _final_norm(encoder, queries)


def _final_norm(encoder: Transformer, x: Value) -> Value:
    return x if encoder.norm is None else norm(x, encoder.norm)


def _attention_sublayers(
    layer: Layer,
    x: Value,
    states: Value,
    bias: Value,
    inputs: NetInputs,
    caches: list[Value],
    query_scale: Value | None = None,
) -> Value:
    """Self-attention of x to the states, and cross-attention in a decoder."""
    keys = norm(states, layer.norm1) if layer.recipe.norm == "pre" else states

    def attend(y: Value) -> Value:
        attended = _self_attention(layer.attention, y, y if x is states else keys, bias, inputs, caches)
        attended = attended if query_scale is None else attended * query_scale
        return dense(attended, layer.attention.out)

    x = _residual(layer, x, attend, layer.norm1)
    if inputs.encoder_states is None:
        return x
    return _residual(layer, x, lambda y: _cross_attention(layer.cross_attention, y, inputs), layer.norm3)


def _residual(layer: Layer, x: Value, sublayer: Callable[[Value], Value], norms: nn.Module) -> Value:
    if layer.recipe.norm == "pre":
        return x + sublayer(norm(x, norms))
    return norm(x + sublayer(x), norms)


def _feed_forward(layer: Layer) -> Callable[[Value], Value]:
    module, recipe = layer.feedforward, layer.recipe

    def run(x: Value) -> Value:
        inner = dense(x, module.inner)
        if not module.is_gated:
            return dense(activate(inner, recipe.activation), module.outer)
        width = module.outer.in_features
        gate, values = inner.slice(0, width, 2), inner.slice(width, 2 * width, 2)
        return dense(activate(gate, recipe.activation) * values, module.outer)

    return run


def _self_attention(
    module: nn.Module, queries: Value, states: Value, bias: Value, inputs: NetInputs, caches: list[Value]
) -> Value:
    """(B, Q, W): the attention of queries to the states and to the cached ones, without the output layer."""
    if not isinstance(module, Attention | RelativeAttention | BucketAttention):
        raise no_form(module)
    heads, size = heads_of(module)
    width = heads * size
    if queries is states:
        q, k, v = (_part(dense(states, module.qkv), number, width) for number in range(3))
    else:
        weight, biases = module.qkv.weight, module.qkv.bias
        rows = [slice(number * width, (number + 1) * width) for number in range(3)]
        q, k, v = (
            linear(of, weight[some], None if biases is None else biases[some])
            for of, some in zip((queries, states, states), rows, strict=True)
        )
    keys, values = (_heads(one, heads) for one in (k, v))
    if caches:
        keys, values = (keys.graph.concat([old, new], 2) for old, new in zip(caches, (keys, values), strict=True))
    inputs.kept += [keys, values] if queries is states else []
    if isinstance(module, RelativeAttention):
        return _relative(module, q, keys, values, bias, inputs)
    scale = SCALE if isinstance(module, BucketAttention) else 1 / math.sqrt(size)
    return _attend(_heads(q, heads), keys, values, bias, scale)


def _part(x: Value, number: int, width: int) -> Value:
    return x.slice(number * width, (number + 1) * width, 2)


def _heads(x: Value, heads: int) -> Value:
    """(B, L, W) as (B, H, L, D)."""
    return x.reshape(0, 0, heads, -1).transpose(0, 2, 1, 3)


def _attend(queries: Value, keys: Value, values: Value, bias: Value, scale: float) -> Value:
    """(B, Q, W): softmax(scale Q K' + bias) V."""
    scores = (queries * scale) @ keys.transpose(0, 1, 3, 2) + bias
    weights = scores.graph.op("Softmax", scores, axis=-1)
    return (weights @ values).transpose(0, 2, 1, 3).reshape(0, 0, -1)


def _cross_attention(module: CrossAttention, x: Value, inputs: NetInputs) -> Value:
    assert inputs.encoder_states is not None
    assert inputs.encoder_mask is not None
    graph, heads, width = inputs.graph, module.recipe.heads, module.recipe.width
    both = dense(inputs.encoder_states, module.keys)
    keys, values = (_heads(_part(both, number, width), heads) for number in range(2))
    bias = graph.where(inputs.encoder_mask.unsqueeze(1, 2), 0.0, _HIDDEN)
    scale = 1 / math.sqrt(width // heads) if module.is_scaled else SCALE
    return dense(_attend(_heads(dense(x, module.query), heads), keys, values, bias, scale), module.out)


def _bucket_scores(module: BucketAttention, inputs: NetInputs, causal: bool) -> Value:
    """(1, H, Q, L): the learned terms of distances."""
    most, table = module.table.max_distance, module.table.weight
    every = torch.arange(-most, most + 1)
    by_distance = table.detach()[buckets_of(every, len(table), most, causal)]
    queries, keys = _both_columns(inputs)
    distances = inputs.graph.op("Clip", (keys - queries).squeeze(0, 1), -most, most) + most
    return inputs.graph.value(by_distance).gather(distances).transpose(2, 0, 1).unsqueeze(0)


def _relative(module: RelativeAttention, q: Value, keys: Value, values: Value, bias: Value, inputs: NetInputs) -> Value:
    """Attention with terms of distances, of which there are 2 L: from L - 1 down to -L."""
    graph, heads = inputs.graph, module.recipe.heads
    length = inputs.is_token.size(1)
    distances = (length - 1 - graph.range(length * 2)).cast("FLOAT")
    vectors = dense(_distance_sinusoids(module.recipe, distances), module.distances)  # (2 L, W)
    by_head = vectors.reshape(0, heads, -1).transpose(1, 2, 0)  # (H, D, 2 L)
    raw = _heads(q + module.biases.position, heads) @ by_head  # (B, H, Q, 2 L)
    scores = _shift(raw, length) * module.scale + bias
    if module.segments is not None and inputs.segment_ids is not None:
        scores = scores + _segment_terms(module, q, inputs)
    return _attend(_heads(q + module.biases.content, heads), keys, values, scores, module.scale)


def _distance_sinusoids(recipe: EncoderRecipe, distances: Value) -> Value:
    graph = distances.graph
    if recipe.clamp_length:
        distances = graph.op("Clip", distances, float(-recipe.clamp_length), float(recipe.clamp_length))
    evens = torch.arange(0, recipe.width, 2, dtype=torch.float32)
    angles = distances.unsqueeze(1) * torch.exp(evens * (-math.log(10_000.0) / recipe.width))[None]
    return graph.concat([graph.op(kind, angles) for kind in ("Sin", "Cos")], 1).slice(0, recipe.width, 1)


def _shift(raw: Value, length: Value) -> Value:
    """(B, H, L, L): entry (i, j) is entry (i, L - 1 - i + j) of `raw` (B, H, L, 2 L)."""
    graph = raw.graph
    flat = raw.reshape(0, 0, -1).slice(length - 1, length * (length * 2) - 1, 2)  # rows of 2 L - 1 entries, and L more
    columns = length * 2 - 1
    cut = flat.slice(0, length * columns, 2)
    shape = graph.concat([raw.size(0), raw.size(1), length, columns], 0)
    return graph.op("Reshape", cut, shape).slice(0, length, 3)


def _segment_terms(module: RelativeAttention, q: Value, inputs: NetInputs) -> Value:
    """(B, H, Q, L): (q + b)' s / sqrt(D) with the vector s of equal or of different segments."""
    assert module.segments is not None
    assert inputs.segment_ids is not None
    heads = module.recipe.heads
    split = _heads(q + module.segments.bias, heads)
    by_head = module.segments.vectors.detach().view(2, heads, -1).permute(1, 2, 0).contiguous()
    found = (split @ by_head) * module.scale
    same = inputs.segment_ids.unsqueeze(1, 3).equals(inputs.segment_ids.unsqueeze(1, 2))
    return inputs.graph.where(same, found.slice(0, 1, 3), found.slice(1, 2, 3))


def heads_of(module: Attention | RelativeAttention | BucketAttention) -> tuple[int, int]:
    """The number and the size of the heads of an attention, of which some may have been pruned."""
    size = module.recipe.width // module.recipe.heads
    return module.qkv.weight.shape[0] // (3 * size), size
