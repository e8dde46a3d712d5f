"""Output layers as ONNX operators: from states (positions, width) to the logits of all tokens."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from firth.artifact.formats.onnx_graph import Value
from firth.artifact.formats.onnx_layers import activate, dense, linear, no_form, norm
from firth.nets.outputs.clusters import AdaptiveSoftmax, ClassSoftmax
from firth.nets.outputs.negative import NegativeSampling
from firth.nets.outputs.output import NEVER_PREDICTED, OutputLayer, Transform
from firth.nets.outputs.sampled import ImportanceSampling, NoiseContrast
from firth.nets.outputs.softmax import Direct, Softmax
from firth.nets.outputs.tied_clusters import TiedAdaptiveSoftmax
from firth.nets.outputs.trees import TreeSoftmax


def logits(layer: OutputLayer, states: Value, activation: str) -> Value:
    """(positions, vocabulary): numbers whose softmax is the distribution over all tokens, as `OutputLayer.logits`."""
    if isinstance(layer, Softmax):
        scaled = states if layer.scale is None else states * layer.scale
        return linear(_transformed(layer.transform, scaled, activation), layer.weight, layer.bias)
    if isinstance(layer, Direct):
        scores = states.slice(0, layer.tokens, 1)
        return scores if layer.bias is None else scores + layer.bias
    if isinstance(layer, NegativeSampling):
        return linear(contexts(layer, states), layer.targets, layer._log_noise)
    states = _transformed(getattr(layer, "transform", None), states, activation)
    if isinstance(layer, ImportanceSampling | NoiseContrast):
        bias = torch.zeros(len(layer.weight)) if layer.bias is None else layer.bias.detach().clone()
        bias[list(NEVER_PREDICTED)] = -torch.inf
        return linear(states, layer.weight, bias)
    if isinstance(layer, ClassSoftmax):
        return _classes(layer, states)
    if isinstance(layer, AdaptiveSoftmax):
        return _adaptive(layer, states)
    if isinstance(layer, TiedAdaptiveSoftmax):
        return _tied_adaptive(layer, states)
    if isinstance(layer, TreeSoftmax):
        return _tree(layer, states)
    raise no_form(layer)


def contexts(layer: NegativeSampling, states: Value) -> Value:
    """(..., target width): the context vectors of the states around a gap."""
    return dense(activate(dense(states, layer.hidden), "relu"), layer.project)


def _transformed(transform: nn.Module | None, states: Value, activation: str) -> Value:
    if not isinstance(transform, Transform):
        return states
    return norm(activate(dense(states, transform.dense), activation), transform.norm)


def _log_softmax(scores: Value) -> Value:
    return scores.graph.op("LogSoftmax", scores, axis=1)


def _by_token(logs: list[Value], rows: Tensor) -> Value:
    """Concatenated log-probabilities in the order of the ids; row -1 is that of a token that is never predicted."""
    graph = logs[0].graph
    never = logs[0].slice(0, 1, 1) * 0.0 + np.float32(-np.inf)
    return graph.concat([*logs, never], 1).gather(rows, 1)  # negative indices count from the end


def _classes(layer: ClassSoftmax, states: Value) -> Value:
    scores = linear(states, layer.weight, layer.bias)
    classes = _log_softmax(linear(states, layer.class_weight, layer.class_bias))
    bounds = layer.bounds.tolist()
    logs = [
        _log_softmax(scores.slice(low, high, 1)) + classes.slice(number, number + 1, 1)
        for number, (low, high) in enumerate(pairwise(bounds))
    ]
    return _by_token(logs, layer.row)


def _adaptive(layer: AdaptiveSoftmax, states: Value) -> Value:
    head, frequent = _log_softmax(dense(states, layer.head)), int(layer.bounds[1])
    logs = [head.slice(0, frequent, 1)]
    for number, tail in enumerate(layer._tails(), frequent):
        within = _log_softmax(dense(dense(states, tail.project), tail.softmax))
        logs.append(within + head.slice(number, number + 1, 1))
    return _by_token(logs, layer.row)


def _tied_adaptive(layer: TiedAdaptiveSoftmax, states: Value) -> Value:
    head, frequent = _log_softmax(linear(states, *layer._head())), int(layer.bounds[1])
    logs = [head.slice(0, frequent, 1)]
    for number in range(1, len(layer.bounds) - 1):
        at = frequent + number - 1
        logs.append(_log_softmax(linear(states, *layer._cluster(number))) + head.slice(at, at + 1, 1))
    return _by_token(logs, layer.row)


def _tree(layer: TreeSoftmax, states: Value) -> Value:
    graph, paths = states.graph, layer.paths
    scores = linear(states, layer.weight, layer.bias)
    both = [graph.op("Softplus", one) * -1.0 for one in (scores, scores * -1.0)]  # log s(-x), log s(x)
    decisions, reached = graph.concat(both, 1), [scores.slice(0, 1, 1) * 0.0]
    for above, decision in paths.levels:
        reached.append(reached[-1].gather(above, 1) + decisions.gather(decision, 1))
    return _by_token(reached[1:], paths.row)
