"""The graphs of fine-tuned models: the head of a task over the states of its network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
from torch import nn

from firth.artifact.formats.onnx_encoders import encode, encode_one, layer_widths
from firth.artifact.formats.onnx_graph import Value
from firth.artifact.formats.onnx_layers import NetInputs, activate, dense, mean, no_form, norm, state_at
from firth.artifact.formats.onnx_models import Files, GraphFile, net_inputs, seq2seq_files
from firth.artifact.formats.onnx_outputs import logits
from firth.errors import AbilityError
from firth.nets.encoders.encoder import Encoder
from firth.tasks.answer import StochasticAnswer
from firth.tasks.classify import ChoiceTask, ClassifyTask, PairTask
from firth.tasks.generate import EncoderDecoderTask, GenerateTask, is_masked_lm
from firth.tasks.head import HeadEncoder, HiddenLayer, ScalarMix, TaskHead
from firth.tasks.span import SpanTask
from firth.tasks.tag import TagTask
from firth.tasks.task import TaskModel

_HIDDEN = -1e30


def task_files(model: TaskModel, new: Callable[[str], GraphFile]) -> Files:
    """The graphs of a fine-tuned model."""
    task, network = model.head, model.base.network
    if isinstance(task, EncoderDecoderTask):
        return seq2seq_files(network, new, task.decoder)
    if isinstance(task, GenerateTask):
        return _prefix_files(model, new)
    if not isinstance(task, ClassifyTask | ChoiceTask | TagTask | SpanTask):
        raise no_form(task)
    file = new(f"the scores of the task {model.task}")
    inputs = net_inputs(file, network.recipe)
    states = _head_states(task.head, *encode(network, inputs), layer_widths(network), inputs)
    if isinstance(task, ClassifyTask | ChoiceTask):
        _pooled_outputs(file, model, states, inputs)
    else:
        file.output("logits", dense(states, cast(nn.Linear, task.head.classifier)), ["batch", "length", task.outputs])
    return {"model.onnx": file}


def _pooled_outputs(file: GraphFile, model: TaskModel, states: Value, inputs: NetInputs) -> None:
    head, outputs = model.head.head, model.head.outputs
    if head.answer is not None:
        is_second = file.input("second_text", ["batch", "length"]).cast("BOOL")
        found = _answer(head.answer, states, inputs.is_token, is_second)
    else:
        found = _pooled(model, states, inputs)
        found = found if head.pooler is None else activate(dense(found, head.pooler), "tanh")
        found = found if head.hidden is None else _hidden(head.hidden, found)
        found = dense(found, cast(nn.Linear, head.classifier))
    file.output("logits", found, ["batch", outputs])


def _pooled(model: TaskModel, states: Value, inputs: NetInputs) -> Value:
    """(batch, width): the pooled states of each sequence; see `Task.pooled_positions`."""
    graph, pooling = states.graph, model.recipe.head.pooling
    if pooling == "first":
        return states.slice(0, 1, 1).squeeze(1)
    lengths, columns = inputs.lengths, inputs.columns.unsqueeze(0)
    last = lengths - 1
    if pooling == "last":
        return state_at(states, last)
    before, _, end, *_ = model.builder.special_tokens
    sizes = lengths.unsqueeze(1)
    own = (columns >= len(before)) & (columns < sizes - len(end))
    has_text = graph.op("ReduceMax", own.cast("INT64"), axes=[1], keepdims=1) >= 1
    if pooling == "concat":
        own = (columns >= len(before)) & (columns < sizes)
    chosen = (own & has_text) | (columns.equals(last.unsqueeze(1)) & ~has_text)
    if pooling == "mean":
        return mean(states, chosen)
    highest = graph.op("ReduceMax", graph.where(chosen.unsqueeze(2), states, _HIDDEN), axes=[1], keepdims=0)
    if pooling == "max":
        return highest
    return graph.concat([state_at(states, last), highest, mean(states, chosen)], 1)


def _hidden(layer: HiddenLayer, pooled: Value) -> Value:
    found = activate(dense(norm(pooled, layer.first_norm), layer.dense), "relu")
    return norm(found, layer.last_norm)


def _head_states(head: TaskHead, layers: list[Value], last: Value, widths: list[int], inputs: NetInputs) -> Value:
    """(batch, length, width): the states that the head scores; see `TaskHead.states`. `widths` are of the layers."""
    if not head.needs_all_positions:
        return last
    graph = inputs.graph
    mixed = _mixed(head, head.mix, layers, widths)
    embedded = []
    if head.token_embedding is not None:
        embedded = [graph.value(head.token_embedding.weight).gather(inputs.ids)]
    if head.encoder is None:
        return graph.concat([mixed, *embedded], 2)
    if head.upper_encoder is not None:
        below = _head_encoder(head.encoder, graph.concat(embedded, 2), inputs)
        return _head_encoder(head.upper_encoder, graph.concat([below, mixed], 2), inputs)
    found = _head_encoder(head.encoder, graph.concat([mixed, *embedded], 2), inputs)
    if head.recipe.placement == "around":
        found = graph.concat([found, _mixed(head, head.mix_above or head.mix, layers, widths)], 2)
    return found


def _mixed(head: TaskHead, mix: ScalarMix | None, layers: list[Value], widths: list[int]) -> Value:
    """(batch, length, width): the last layer, the mix of those of its width, or the first and the last."""
    last = layers[-1]
    if head.recipe.layers == "ends":
        return last.graph.concat([layers[0], last], 2)
    if mix is None:
        return last
    weights: list[float] = (mix.scale * mix.weights.softmax(0)).tolist()
    same = [layer for layer, width in zip(layers, widths, strict=True) if width == widths[-1]]
    total = same[0] * weights[0]
    for weight, layer in zip(weights[1:], same[1:], strict=True):
        total = total + layer * weight
    return total


def _head_encoder(module: HeadEncoder, states: Value, inputs: NetInputs) -> Value:
    parts = [
        encode_one(cast(Encoder, encoder), states, inputs, name)[1]
        for name, encoder in zip(module.visibilities, module.encoders, strict=True)
    ]
    return states.graph.concat(parts, 2)


def _answer(module: StochasticAnswer, states: Value, is_token: Value, is_second: Value) -> Value:
    """(batch, outputs): log-probabilities; see `StochasticAnswer`."""
    graph, answers = states.graph, []
    seen, heard = is_token & ~is_second, is_token & is_second
    state = _weighted(dense(states, module.summary).squeeze(2), heard, states)
    for turn in range(module.turns):
        query = dense(state, module.attention)
        found = _weighted((states @ query.unsqueeze(2)).squeeze(2), seen, states)
        features = graph.concat([found, state, graph.op("Abs", found - state), found * state], 1)
        answers.append(graph.op("LogSoftmax", dense(features, module.classifier), axis=-1).unsqueeze(0))
        if turn < module.turns - 1:
            state = _gru(module.cell, found, state)
    total = graph.op("ReduceLogSumExp", graph.concat(answers, 0), axes=[0], keepdims=0)
    return total - float(np.log(module.turns))


def _weighted(scores: Value, chosen: Value, states: Value) -> Value:
    """(batch, width): the mean of chosen states weighted by softmax(scores); zeros if none is chosen."""
    graph = scores.graph
    weights = graph.op("Softmax", graph.where(chosen, scores, _HIDDEN), axis=-1) * chosen.cast("FLOAT")
    return (weights.unsqueeze(1) @ states).squeeze(1)


def _gru(cell: nn.GRUCell, x: Value, state: Value) -> Value:
    graph, width = x.graph, cell.hidden_size
    given = x @ graph.matrix(cell.weight_ih) + cell.bias_ih
    kept = state @ graph.matrix(cell.weight_hh) + cell.bias_hh
    (r, z, n), (hr, hz, hn) = (
        [one.slice(number * width, (number + 1) * width, 1) for number in range(3)] for one in (given, kept)
    )
    reset, update = graph.op("Sigmoid", r + hr), graph.op("Sigmoid", z + hz)
    new = graph.op("Tanh", n + reset * hn)
    return new + update * (state - new)


def _prefix_files(model: TaskModel, new: Callable[[str], GraphFile]) -> Files:
    """The graph of a network that continues a source, by the order in which tokens attend to one another."""
    network = model.base.network
    if network.recipe.encoder.kind != "transformer":
        raise AbilityError(
            f"a generator over a network of the kind {network.recipe.encoder.kind} is not supported by the onnx "
            "format: use the model with firth."
        )
    file = new("the logits of a target after its source")
    inputs = net_inputs(file, network.recipe)
    inputs.position_ids = file.input("position_ids", ["batch", "length"])
    inputs.attention_order = file.input("attention_order", ["batch", "length"])
    if is_masked_lm(network.recipe):
        inputs.query_only = file.input("query_only", ["batch", "length"]).cast("BOOL")
    _, last = encode(network, inputs)
    flat = logits(network.output, last.reshape(-1, network.recipe.width), network.recipe.encoder.activation)
    shape = last.graph.concat([last.size(0), last.size(1), np.array([-1])], 0)
    vocabulary = len(network.vocabulary)
    file.output("logits", last.graph.op("Reshape", flat, shape), ["batch", "length", vocabulary])
    return {"model.onnx": file}


def task_facts(model: TaskModel) -> dict[str, Any]:
    """What a program has to know of a task to build its inputs and to read its scores."""
    recipe, task = model.recipe, model.head
    facts: dict[str, Any] = {"task": model.task, "labels": list(recipe.labels)}
    if isinstance(task, ClassifyTask):
        facts["form"] = recipe.form
    if isinstance(task, PairTask):
        facts["symmetric"] = recipe.symmetric
    if isinstance(task, TagTask):
        facts["words_per_token"] = int(recipe.words_per_token)
        if task.crf is not None:
            facts["crf"] = {name: one.detach().tolist() for name, one in task.crf.state_dict().items()}
    if isinstance(task, SpanTask):
        facts |= {
            "max_length": recipe.max_length,
            "allow_no_answer": recipe.allow_no_answer,
            "no_answer_threshold": recipe.no_answer_threshold,
        }
    return facts
