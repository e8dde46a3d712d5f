"""Weights of Hugging Face models and of Firth: names, shapes, and tensors that only one side has."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from firth.artifact.formats.huggingface_config import (
    Config,
    ModelType,
    is_tied,
    make_config,
    model_type_for,
    model_type_of,
    pair_objective,
    position_offset,
    recipe_from_config,
)
from firth.artifact.formats.huggingface_names import their_names, to_ours, to_theirs
from firth.errors import AbilityError, ArtifactError
from firth.nets.network import Network, Vocabulary
from firth.nets.recipe import NetRecipe
from firth.progress import progress

Tensors = dict[str, Tensor]
ABSENT_BIAS = -1e4  # output bias of a token that the model lacks: its probability is 0
_BUFFERS = re.compile(r"\.(position_ids|token_type_ids|attn\.bias|attn\.masked_bias)$")
_OLD_NAMES = {".LayerNorm.gamma": ".LayerNorm.weight", ".LayerNorm.beta": ".LayerNorm.bias"}
_HEAD_PREFIXES = ("cls.", "lm_head.", "predictions.", "sop_classifier.", "pred_layer.")
_SAVE_HEAD = "save it with AutoModelForMaskedLM or AutoModelForCausalLM"
_ONE_MODEL = "give the files of one model"
_MIN_LENGTH = 4  # tokens of a sequence
_INIT_STD = 0.02  # of new parameters (Devlin et al. 2019)


class ImportedWeights(NamedTuple):
    """A model converted from Hugging Face."""

    recipe: NetRecipe
    state: Tensors
    heads: Tensors  # the parameters of the objectives' heads, `heads.NAME.*`
    left_out: list[str]  # their tensors that the recipe has no use for
    new: list[str]  # tensors of a missing language-modelling head, randomly initialised


def model_tensors(model: Any) -> Tensors:
    """The arrays of a model as tensors."""
    return {name: torch.from_numpy(np.require(array, requirements="W")) for name, array in model.arrays().items()}


def to_huggingface(
    recipe: NetRecipe, state: Mapping[str, Tensor], heads: Mapping[str, Tensor]
) -> tuple[Config, Tensors]:
    """The config.json and the weights of a model; tensors that the recipe does not need are ignored."""
    model_type = model_type_for(recipe)
    if model_type.is_causal and recipe.output.bias:
        raise AbilityError(f"{model_type.name} models have no output bias: train with --set output.bias=false.")
    vocabulary = len(state["embedding.tokens.weight"])
    wanted = parameter_shapes(recipe, vocabulary)
    has_pair_head = all(name in heads for name in wanted if name.startswith("heads."))
    ours = {name: {**state, **heads}[name] for name in wanted if has_pair_head or not name.startswith("heads.")}
    if wrong := first_nonfinite(ours):
        raise AbilityError(f"{wrong} holds NaN or infinity: train the model again with a lower learning rate.")
    config = make_config(recipe, vocabulary, pair_head=has_pair_head and bool(pair_objective(recipe)))
    theirs = to_theirs(model_type.name, ours, position_offset(model_type, config))
    return config, theirs | _neutral_tensors(model_type, recipe, ours)


def from_huggingface(config: Config, tensors: Mapping[str, Tensor]) -> ImportedWeights:
    """The recipe and the weights of a Hugging Face model; a tensor that does not fit raises `ArtifactError`."""
    model_type = model_type_of(config)
    given = _standard_names(model_type, tensors)
    _drop_tied_copies(model_type, config, given)
    recipe = _read_recipe(model_type, config, given)
    vocabulary = given[_embedding_name(model_type, "tokens")].shape[0]
    if config.get("vocab_size", vocabulary) != vocabulary:
        declared = f"{config['vocab_size']!r:.80}"
        raise ArtifactError(f"config.json declares {declared} tokens and the weights have {vocabulary}: {_ONE_MODEL}.")
    blank = {name: torch.empty(shape, device="meta") for name, shape in parameter_shapes(recipe, vocabulary).items()}
    offset = position_offset(model_type, config)
    neutral = _neutral_tensors(model_type, recipe, blank)
    expected = {**to_theirs(model_type.name, blank, offset), **neutral}
    absent = [] if any(map(_is_head, given)) else [name for name in expected if _is_head(name)]
    left_out = _check_names({name: tensor for name, tensor in expected.items() if name not in absent}, given)
    given |= _initial_tensors({name: expected[name].shape for name in absent})
    _check_neutral(neutral, given)
    for name, tensor in given.items():
        if not tensor.is_floating_point():
            raise ArtifactError(f"{name} holds {tensor.dtype} and not floating-point numbers: {_SAVE_HEAD}.")
    if wrong := first_nonfinite(given):
        raise ArtifactError(f"{wrong} holds NaN or infinity: use a model whose training went well.")
    single = {name: tensor.to(torch.float32) for name, tensor in given.items()}
    ours = to_ours(model_type.name, single, blank, offset)
    state = {name: tensor for name, tensor in ours.items() if not name.startswith("heads.")}
    return ImportedWeights(recipe, state, {name: ours[name] for name in ours.keys() - state.keys()}, left_out, absent)


def truncate_positions(weights: ImportedWeights, length: int) -> ImportedWeights:
    """The model with at most `length` position embeddings."""
    recipe, table = weights.recipe, "embedding.positions.weight"
    if not _MIN_LENGTH <= length < recipe.sequence.length:
        return weights
    state = weights.state | {table: weights.state[table][:length].contiguous()}
    return weights._replace(recipe=replace(recipe, sequence=replace(recipe.sequence, length=length)), state=state)


def backbone_tensors(recipe: NetRecipe, state: Mapping[str, Tensor]) -> Tensors:
    """The weights of a model without its language-modelling head, as the backbone of a task model."""
    model_type = model_type_for(recipe)
    vocabulary = len(state["embedding.tokens.weight"])
    names = [name for name in parameter_shapes(recipe, vocabulary) if not name.startswith(("output.", "heads."))]
    ours = {name: state[name] for name in names}
    offset = position_offset(model_type, make_config(recipe, vocabulary, pair_head=False))
    found = {**to_theirs(model_type.name, ours, offset), **_neutral_tensors(model_type, recipe, ours)}
    return {name: tensor for name, tensor in found.items() if not _is_head(name)}


def parameter_shapes(recipe: NetRecipe, vocabulary: int) -> dict[str, torch.Size]:
    """Names and shapes of the parameters of a network and its sentence-pair head; nothing is allocated."""
    with torch.device("meta"):
        network = Network(recipe, Vocabulary([""] * vocabulary, np.zeros(vocabulary, dtype=np.int64)))
    shapes = {name: parameter.shape for name, parameter in network.named_parameters()}
    width = recipe.width
    if objective := pair_objective(recipe):
        for layer, outputs in (("pooler", width), ("classifier", 2)):
            shapes[f"heads.{objective}.{layer}.weight"] = torch.Size([outputs, width])
            shapes[f"heads.{objective}.{layer}.bias"] = torch.Size([outputs])
    return shapes


def select_tokens(recipe: NetRecipe, state: Mapping[str, Tensor], order: Sequence[int]) -> tuple[NetRecipe, Tensors]:
    """The model with other token ids: the new id i is the old one `order[i]`, or -1 for a token that it lacks."""
    chosen = torch.tensor(order)
    absent = chosen < 0
    found = dict(state)
    if bool(absent.any()) and "output.bias" not in found:
        found["output.bias"] = torch.zeros(len(found["embedding.tokens.weight"]))
        recipe = replace(recipe, output=replace(recipe.output, bias=True))
    for name, value in (("embedding.tokens.weight", 0.0), ("output.weight", 0.0), ("output.bias", ABSENT_BIAS)):
        if name in found:
            found[name] = found[name][chosen.clamp(min=0)]
            found[name][absent] = value
    return recipe, found


def drop_absent_tokens(recipe: NetRecipe, state: Mapping[str, Tensor]) -> tuple[NetRecipe, Tensors, list[int]]:
    """The model without the tokens that `select_tokens` added, and the ids of the others, if no other bias is set."""
    bias = state.get("output.bias")
    all_ids = list(range(len(state["embedding.tokens.weight"])))
    if recipe.visibility != "causal" or bias is None or bool(((bias != 0) & (bias != ABSENT_BIAS)).any()):
        return recipe, dict(state), all_ids
    kept = [number for number in all_ids if bias[number] == 0]
    unbiased = {name: tensor for name, tensor in state.items() if name != "output.bias"}
    return *select_tokens(replace(recipe, output=replace(recipe.output, bias=False)), unbiased, kept), kept


def _neutral_tensors(model_type: ModelType, recipe: NetRecipe, ours: Mapping[str, Tensor]) -> Tensors:
    """Tensors that their model has and ours lacks, with values that change nothing: zeros, identities, copies."""
    found: Tensors = {}
    table = ours["embedding.tokens.weight"]
    if model_type.is_causal:
        return found
    if not recipe.embedding.segments and not model_type.is_xlm:
        found[_embedding_name(model_type, "segments")] = table.new_zeros(1, table.shape[1])
    if model_type.name == "albert" and recipe.embedding.width == recipe.encoder.width:
        name = their_names(model_type.name, "embedding.project.weight")[0]
        found[name] = torch.eye(recipe.encoder.width, dtype=table.dtype, device=table.device)
        found[name.removesuffix("weight") + "bias"] = table.new_zeros(recipe.encoder.width)
    bias = their_names(model_type.name, "output.bias")[0]
    if "output.bias" not in ours:
        found[bias] = table.new_zeros(table.shape[0])
    if "output.weight" in ours and not model_type.is_xlm:
        found[bias.removesuffix("bias") + "decoder.bias"] = ours.get("output.bias", found.get(bias, table)).clone()
    return found


def _is_head(name: str) -> bool:
    return name.startswith(_HEAD_PREFIXES)


def _initial_tensors(shapes: Mapping[str, torch.Size]) -> Tensors:
    """Randomly initialised parameters, which depend on names and shapes only."""
    generator = torch.Generator().manual_seed(0)
    found = {}
    for name, shape in shapes.items():
        found[name] = torch.zeros(shape) if name.endswith("bias") else torch.ones(shape)
        if len(shape) > 1:
            found[name].normal_(std=_INIT_STD, generator=generator)
    return found


def _check_neutral(neutral: Tensors, given: Mapping[str, Tensor]) -> None:
    """Refuse tensors that ours lacks and whose values have an effect."""
    for name, blank in neutral.items():
        tensor = given[name]
        expected = torch.eye(len(tensor)) if "mapping_in.weight" in name else torch.zeros(blank.shape)
        if name.endswith("decoder.bias"):
            expected = given[name.replace("decoder.bias", "bias")]
        if not torch.equal(tensor.float(), expected.float()):
            raise ArtifactError(f"the values of {name} have no equivalent in Firth: {_SAVE_HEAD}.")


def _standard_names(model_type: ModelType, tensors: Mapping[str, Tensor]) -> Tensors:
    """The tensors with the names of a model with a head, without buffers."""
    has_no_prefix = not any(name.startswith(model_type.prefix) for name in tensors)
    found: Tensors = {}
    for name, tensor in tensors.items():
        standard = model_type.prefix + name if has_no_prefix and not _is_head(name) else name
        for old, new in _OLD_NAMES.items():
            standard = standard.removesuffix(old) + new if standard.endswith(old) else standard
        if _BUFFERS.search(standard):
            continue
        if standard in found:
            raise ArtifactError(f"the weights have {standard} twice, with an old and a new name: {_SAVE_HEAD}.")
        found[standard] = tensor
    return found


def _drop_tied_copies(model_type: ModelType, config: Config, given: Tensors) -> None:
    """Remove copies of tied tensors, which must equal the originals."""
    bias = "" if model_type.is_causal else their_names(model_type.name, "output.bias")[0]
    copies = {}
    if is_tied(config):
        decoder = "lm_head.weight" if model_type.is_causal else bias.removesuffix("bias") + "decoder.weight"
        if model_type.is_xlm:
            decoder = their_names(model_type.name, "output.weight")[0]
        copies = {decoder: _embedding_name(model_type, "tokens"), bias.removesuffix("bias") + "decoder.bias": bias}
    for copy, source in copies.items():
        if copy in given and source in given and not torch.equal(given.pop(copy), given[source]):
            raise ArtifactError(f"{copy} is tied to {source}, but they differ: set tie_word_embeddings to false.")


def _embedding_name(model_type: ModelType, name: str) -> str:
    return their_names(model_type.name, f"embedding.{name}.weight")[0]


def _read_recipe(model_type: ModelType, config: Config, given: Tensors) -> NetRecipe:
    tokens = _embedding_name(model_type, "tokens")
    if tokens not in given or given[tokens].ndim != 2:
        raise ArtifactError(f"the weights lack the tensor {tokens}: give those of a {model_type.name} model.")
    segments = False
    if not model_type.is_causal and not model_type.is_xlm:
        rows = given.get(_embedding_name(model_type, "segments"))
        segments = rows is not None and bool(rows.any())
    pair_head = False
    if model_type.pair_architecture:
        pair_head = their_names(model_type.name, "heads.x.classifier.weight")[0] in given
    return recipe_from_config(config, segments=segments, pair_head=pair_head)


def _check_names(expected: Tensors, given: Tensors) -> list[str]:
    """Refuse missing and unknown tensors and other shapes; returns those that are left out."""
    if missing := sorted(expected.keys() - given.keys()):
        raise ArtifactError(f"the weights lack {_list_some(missing)}: {_SAVE_HEAD}.")
    for name, tensor in expected.items():
        check_shape(name, given[name], tuple(tensor.shape))
    extra = sorted(given.keys() - expected.keys())
    if unknown := [name for name in extra if ".pooler." not in name]:
        raise ArtifactError(f"the weights have {_list_some(unknown)}, which Firth does not know: {_SAVE_HEAD}.")
    return extra


def check_shape(name: str, tensor: Tensor, wanted: tuple[int, ...]) -> None:
    """Refuse a tensor that does not have the shape that config.json needs."""
    if (shape := tuple(tensor.shape)) != wanted:
        raise ArtifactError(f"{name} has the shape {shape}, but config.json needs {wanted}: {_ONE_MODEL}.")


def _list_some(names: list[str]) -> str:
    """The first few names, and the number of the others.

    >>> _list_some(["a", "b", "c", "d", "e"])
    'a, b, c and 2 more'
    """
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def first_nonfinite(tensors: Mapping[str, Tensor]) -> str:
    """The first tensor that holds NaN or infinity in float32."""
    with progress("checking", sum(tensor.numel() for tensor in tensors.values()), "numbers") as advance:
        for name, tensor in tensors.items():
            if not bool(torch.isfinite(tensor.to(torch.float32)).all()):
                return name
            advance(tensor.numel())
    return ""
