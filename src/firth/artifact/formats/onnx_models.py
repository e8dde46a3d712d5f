"""The graphs of a model: which files it has, with which inputs and outputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from firth.artifact.formats.onnx_encoders import decode, encode, layer_widths
from firth.artifact.formats.onnx_graph import OnnxGraph, Value
from firth.artifact.formats.onnx_layers import NetInputs, mean, no_form
from firth.artifact.formats.onnx_outputs import contexts, logits
from firth.artifact.formats.onnx_transformer import heads_of
from firth.nets.causal import CausalNet
from firth.nets.context import ContextNet
from firth.nets.electra import ElectraNet
from firth.nets.encoders.attentive import AttentiveLstm
from firth.nets.encoders.encoder import Encoder
from firth.nets.encoders.recurrent import Recurrent, SimpleLayer
from firth.nets.encoders.transformer import Transformer
from firth.nets.model import NetModel
from firth.nets.network import Network
from firth.nets.outputs.negative import NegativeSampling
from firth.nets.outputs.output import NoOutput
from firth.nets.permutation import PermutationNet
from firth.nets.recipe import NetRecipe
from firth.nets.seq2seq import Seq2SeqNet
from firth.tokens.tokenizer import FIRST_WORD, MASK, UNK

Axes = list[str | int]
_IDS: Axes = ["batch", "length"]
_SOURCE: Axes = ["batch", "source length"]


@dataclass
class GraphFile:
    """A graph that is to be a file, and what is known of its inputs and outputs."""

    graph: OnnxGraph
    purpose: str
    inputs: dict[str, Axes] = field(default_factory=dict)
    outputs: dict[str, Axes] = field(default_factory=dict)

    def input(self, name: str, axes: Axes, kind: str = "INT64") -> Value:
        """A new input."""
        self.inputs[name] = axes
        return self.graph.input(name, kind, axes)

    def output(self, name: str, value: Value, axes: Axes) -> None:
        """A new output."""
        self.outputs[name] = axes
        self.graph.output(value, name, axes)


Files = dict[str, GraphFile]


def model_files(model: NetModel, new: Callable[[str], GraphFile]) -> Files:
    """The graphs of a network that is not fine-tuned, by the names of their files; `new` makes one for a purpose."""
    if isinstance(model, Seq2SeqNet):
        return seq2seq_files(model.network, new)
    files = {"model.onnx": new("the hidden states and the vectors of texts")}
    inputs = net_inputs(files["model.onnx"], model.recipe)
    if isinstance(model, ContextNet):
        _context_outputs(files["model.onnx"], model, inputs)
    else:
        last = _state_outputs(files["model.onnx"], model.network, inputs)
        if has_next(model):
            _next_outputs(files["model.onnx"], model.network, last)
            return files | _with_past(model.network, new)
    predictor = model.network
    if isinstance(model, ElectraNet):
        if model._generator is None:
            return files
        predictor = model.generator
        files["generator.onnx"] = new("the hidden states of the generator, for lm_head.onnx")
        own = net_inputs(files["generator.onnx"], predictor.recipe)
        _, last = encode(predictor, own)
        files["generator.onnx"].output("last_hidden_state", last, [*_IDS, predictor.recipe.width])
    if isinstance(model, PermutationNet):
        files["queries.onnx"] = new("the hidden states of positions without their tokens, for lm_head.onnx")
        _query_outputs(files["queries.onnx"], model.network)
    if not isinstance(predictor.output, NoOutput):
        files["lm_head.onnx"] = new("the logits of all tokens, from hidden states")
        lm_head(files["lm_head.onnx"], predictor)
    return files


def has_next(model: NetModel) -> bool:
    """Whether the states of the network are those that predict the next token."""
    return isinstance(model, CausalNet) and model.recipe.visibility == "causal"


def net_inputs(file: GraphFile, recipe: NetRecipe, mask: Axes | None = None, **more: Any) -> NetInputs:
    """The inputs that every network has, and those that this one has."""
    given: dict[str, Any] = {}
    ids = file.input("input_ids", _IDS)
    is_token = file.input("attention_mask", mask or _IDS).cast("BOOL")
    if recipe.segments:
        given["segment_ids"] = file.input("token_type_ids", _IDS)
    if recipe.embedding.languages:
        given["language_ids"] = file.input("language_ids", _IDS)
    return NetInputs(ids, is_token, **given, **more)


def _state_outputs(file: GraphFile, network: Network, inputs: NetInputs) -> Value:
    """The outputs of an encoder: its states, which are returned, those of each layer, and the vectors of texts."""
    layers, last = encode(network, inputs)
    widths = layer_widths(network)
    file.output("last_hidden_state", last, [*_IDS, network.recipe.width])
    for number, (layer, width) in enumerate(zip(layers, widths, strict=True)):
        file.output(f"hidden_states.{number}", layer, [*_IDS, width])
    if not has_mean_vectors(network.recipe):
        return last
    own = inputs.is_token & is_text(inputs.ids)
    for name, chosen in (("sentence_embedding", own), ("sentence_embedding_whole", inputs.is_token)):
        file.output(name, mean(layers[-1], chosen), ["batch", widths[-1]])
    return last


def has_mean_vectors(recipe: NetRecipe) -> bool:
    """Whether the vector of a text is the mean of its states; the graphs have no other pooling."""
    part = recipe.sentence
    is_mean = part.pooling == "mean" and not part.bigrams and not part.layers
    return is_mean and recipe.sequence.format != "consecutive"


def is_text(ids: Value) -> Value:
    """(batch, length): true for tokens of text, known or unknown, and not special ones."""
    return (ids >= FIRST_WORD) | ids.equals(UNK)


def lm_head(file: GraphFile, network: Network) -> None:
    """The graph from hidden states, or from context vectors, to the logits of all tokens."""
    layer = network.output
    width = layer.targets.shape[1] if isinstance(layer, NegativeSampling) else _state_width(network)
    states = file.input("hidden_states", ["positions", width], "FLOAT")
    if isinstance(layer, NegativeSampling):
        found = states @ states.graph.matrix(layer.targets) + layer._log_noise
    else:
        found = logits(layer, states, network.recipe.encoder.activation)
    file.output("logits", found, ["positions", len(network.vocabulary)])


def _state_width(network: Network) -> int:
    recipe = network.recipe
    return recipe.width // recipe.directions if recipe.decoder is None else recipe.decoder.width


def _next_outputs(file: GraphFile, network: Network, last: Value) -> None:
    """The logits of the next token after each one."""
    flat = logits(network.output, last.reshape(-1, _state_width(network)), network.recipe.encoder.activation)
    shape = last.graph.concat([last.size(0), last.size(1), np.array([-1])], 0)
    file.output("logits", last.graph.op("Reshape", flat, shape), [*_IDS, len(network.vocabulary)])


def _context_outputs(file: GraphFile, model: ContextNet, inputs: NetInputs) -> None:
    """Context vectors of each position: of forward states before it and backward states after it."""
    graph, half = inputs.graph, model.recipe.width // 2
    is_mask = inputs.ids.equals(MASK)
    read = NetInputs(graph.where(is_mask, UNK, inputs.ids), inputs.is_token)
    _, last = encode(model.network, read)
    ahead, back = last.slice(0, half, 2), last.slice(half, 2 * half, 2)
    ahead = graph.op("Pad", ahead, np.array([0, 1, 0, 0, 0, 0])).slice(0, -1, 1)
    back = graph.op("Pad", back, np.array([0, 0, 0, 0, 1, 0])).slice(1, np.iinfo(np.int64).max, 1)
    width = model.layer.targets.shape[1]
    around = contexts(model.layer, graph.concat([ahead, back], 2))
    own = inputs.is_token & is_text(inputs.ids)
    has_mask = graph.op("ReduceMax", is_mask.cast("INT64"), axes=[1], keepdims=1) >= 1
    file.output("last_hidden_state", last, [*_IDS, model.recipe.width])
    file.output("context_vectors", around, [*_IDS, width])
    file.output("sentence_embedding", mean(around, is_mask | (own & ~has_mask)), ["batch", width])


def _query_outputs(file: GraphFile, network: Network) -> None:
    """The states of queries, given an order of the tokens."""
    inputs = net_inputs(file, network.recipe, is_query=True)
    inputs.attention_order = file.input("attention_order", _IDS)
    _, last = encode(network, inputs)
    file.output("last_hidden_state", last, [*_IDS, network.recipe.width])


def _with_past(network: Network, new: Callable[[str], GraphFile]) -> Files:
    """The graph that reads further tokens after those whose states are given, if the encoder has such states."""
    encoder = network.encoders[0]
    assert isinstance(encoder, Encoder)
    shapes = _past_axes(encoder, network.recipe)
    if not shapes:
        return {}
    file = new(f"the logits of further tokens, after those whose states are given; begin with {_no_past(encoder)}")
    is_attention = isinstance(encoder, Transformer)
    inputs = net_inputs(file, network.recipe, ["batch", "past + length"] if is_attention else None)
    inputs.caches = [file.input(f"past.{number}", axes, "FLOAT") for number, axes in enumerate(shapes)]
    inputs.past = inputs.is_token.size(1) - inputs.length if is_attention else None
    _, last = encode(network, inputs)
    _next_outputs(file, network, last)
    _present_outputs(file, inputs, shapes)
    return {"model_with_past.onnx": file}


def _present_outputs(file: GraphFile, inputs: NetInputs, shapes: list[Axes]) -> None:
    for number, (axes, value) in enumerate(zip(shapes, inputs.kept, strict=True)):
        file.output(f"present.{number}", value, ["past + length" if one == "past" else one for one in axes])


def _no_past(encoder: Encoder) -> str:
    return "states of length 0" if isinstance(encoder, Transformer) else "zeros"


def _past_axes(encoder: Encoder, recipe: NetRecipe) -> list[Axes]:
    """The axes of each tensor that the states of past tokens are; none if the encoder has no such states here."""
    if isinstance(encoder, Transformer):
        if encoder.recipe.positions == "relative" or recipe.memory.length:
            return []
        shapes = [heads_of(first.attention) for first, _ in encoder._layer_pairs()]
        return [["batch", heads, "past", size] for heads, size in shapes for _ in range(2)]
    if recipe.embedding.positions != "none":
        return []
    if isinstance(encoder, AttentiveLstm):
        return [["batch", encoder.recipe.width]] * (2 * len(encoder.layers) + 1)
    if isinstance(encoder, Recurrent):
        layers = [layer for layer in encoder.layers if isinstance(layer, SimpleLayer)]
        return [["batch", size] for layer in layers for size in (layer.width, layer.cells)[: encoder.cached]]
    return []


def seq2seq_files(network: Network, new: Callable[[str], GraphFile], decoder: Network | None = None) -> Files:
    """The graphs of an encoder and of its decoder, which may be a network of its own."""
    is_masked = decoder is not None and decoder.recipe.visibility == "bidirectional"
    files = {"encoder.onnx": new("the hidden states of a source and the vectors of texts")}
    inputs = net_inputs(files["encoder.onnx"], network.recipe)
    _state_outputs(files["encoder.onnx"], network, inputs)
    part = network.decoder if decoder is None else decoder.encoders[0]
    if not isinstance(part, Encoder):
        raise no_form(part)
    files["decoder.onnx"] = new("the logits of the next token of a target, given the states of its source")
    _decoder(files["decoder.onnx"], network, decoder, [])
    shapes = _past_axes(part, network.recipe if decoder is None else decoder.recipe)
    if shapes and not is_masked:
        purpose = f"the logits of further tokens, after those whose states are given; begin with {_no_past(part)}"
        files["decoder_with_past.onnx"] = new(purpose)
        _decoder(files["decoder_with_past.onnx"], network, decoder, shapes)
    return files


def _decoder(file: GraphFile, network: Network, decoder: Network | None, shapes: list[Axes]) -> None:
    own = decoder or network
    ids = file.input("input_ids", _IDS)
    states = file.input("encoder_hidden_states", [*_SOURCE, network.recipe.width], "FLOAT")
    seen = file.input("encoder_attention_mask", _SOURCE).cast("BOOL")
    ones = ids.graph.op("Equal", ids, ids)  # padding is after the tokens, which do not attend to it
    inputs = NetInputs(ids, ones, encoder_states=states, encoder_mask=seen)
    if decoder is not None and own.recipe.segments:
        inputs.segment_ids = file.input("token_type_ids", _IDS)
    if decoder is not None and own.recipe.visibility == "bidirectional":
        _masked_decoder_inputs(file, inputs)
    if shapes:
        inputs.caches = [file.input(f"past.{number}", axes, "FLOAT") for number, axes in enumerate(shapes)]
        if len(shapes[0]) == 4:
            _past_mask(inputs)
    last = decode(network, inputs) if decoder is None else encode(decoder, inputs)[1]
    file.output("last_hidden_state", last, [*_IDS, _state_width(own)])
    _next_outputs(file, own, last)
    if shapes:
        _present_outputs(file, inputs, shapes)


def _past_mask(inputs: NetInputs) -> None:
    """The number of past tokens, from the cached keys, and a mask of all."""
    graph = inputs.graph
    inputs.past = inputs.caches[0].size(2)
    shape = graph.concat([inputs.ids.size(0), inputs.past + inputs.length], 0)
    inputs.is_token = graph.op("Expand", np.array([[True]]), shape)


def _masked_decoder_inputs(file: GraphFile, inputs: NetInputs) -> None:
    """What a masked network needs to predict tokens one after the other."""
    inputs.position_ids = file.input("position_ids", _IDS)
    inputs.attention_order = file.input("attention_order", _IDS)
    inputs.query_only = file.input("query_only", _IDS).cast("BOOL")
