"""Weights of Hugging Face models and of Firth: names, shapes, and tensors that only one side has."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from firth.artifact.formats.huggingface_config import make_config, recipe_from_config
from firth.artifact.formats.huggingface_family import TOKENS, Config, ModelType, Tensors, is_tied
from firth.artifact.formats.huggingface_registry import model_type_for, model_type_of, nearest_family
from firth.errors import AbilityError, ArtifactError
from firth.nets.network import Network, Vocabulary
from firth.nets.recipe import NetRecipe
from firth.progress import progress

ABSENT_BIAS = -1e4  # output bias of a token that the model lacks: its probability is 0
_BUFFERS = re.compile(r"\.(position_ids|token_type_ids|attn\.bias|attn\.masked_bias)$")
_OLD_NAMES = {".LayerNorm.gamma": ".LayerNorm.weight", ".LayerNorm.beta": ".LayerNorm.bias"}
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
    if recipe.output.bias and not model_type.has_output_bias:
        raise AbilityError(f"{model_type.name} models have no output bias: train with --set output.bias=false.")
    vocabulary = len(state[TOKENS])
    wanted = parameter_shapes(recipe, vocabulary)
    has_head = all(name in heads for name in wanted if name.startswith("heads."))
    ours = {name: {**state, **heads}[name] for name in wanted if has_head or not name.startswith("heads.")}
    if wrong := first_nonfinite(ours):
        raise AbilityError(f"{wrong} holds NaN or infinity: train the model again with a lower learning rate.")
    config = make_config(recipe, vocabulary, has_head=has_head and bool(model_type.head_objective(recipe)))
    theirs = model_type.to_theirs(model_type.rescale(recipe, ours), model_type.position_offset(config))
    theirs = model_type.divide_heads(recipe, theirs)
    return config, theirs | model_type.neutral_tensors(recipe, ours)


def from_huggingface(config: Config, tensors: Mapping[str, Tensor]) -> ImportedWeights:
    """The recipe and the weights of a Hugging Face model; a tensor that does not fit raises `ArtifactError`."""
    model_type = model_type_of(config)
    given = _standard_names(model_type, tensors)
    model_type.drop_static(config, given)
    _drop_tied_copies(model_type, config, given)
    tokens = model_type.their_name(TOKENS)
    if tokens not in given or given[tokens].ndim != 2:
        raise ArtifactError(f"the weights lack the tensor {tokens}: give those of a {model_type.name} model.")
    recipe, vocabulary = recipe_from_config(config, given), given[tokens].shape[0]
    if config.get("vocab_size", vocabulary) != vocabulary:
        declared = f"{config['vocab_size']!r:.80}"
        raise ArtifactError(f"config.json declares {declared} tokens and the weights have {vocabulary}: {_ONE_MODEL}.")
    blank = {name: torch.empty(shape, device="meta") for name, shape in parameter_shapes(recipe, vocabulary).items()}
    offset = model_type.position_offset(config)
    expected = model_type.divide_heads(recipe, model_type.to_theirs(blank, offset))
    expected |= model_type.neutral_tensors(recipe, blank)
    absent = [] if _has_head(model_type, given) else _absent_heads(model_type, blank, expected, given)
    left_out = _check_names({name: tensor for name, tensor in expected.items() if name not in absent}, given)
    given |= _initial_tensors({name: expected[name].shape for name in absent})
    for name, tensor in given.items():
        if not tensor.is_floating_point():
            raise ArtifactError(f"{name} holds {tensor.dtype} and not floating-point numbers: {_SAVE_HEAD}.")
    if wrong := first_nonfinite(given):
        raise ArtifactError(f"{wrong} holds NaN or infinity: use a model whose training went well.")
    single = {name: tensor.to(torch.float32) for name, tensor in given.items()}
    ours = model_type.rescale(recipe, model_type.to_ours(single, blank, offset), inverse=True)
    _check_neutral(model_type.neutral_tensors(recipe, ours), single)
    state = {name: tensor for name, tensor in ours.items() if not name.startswith("heads.")}
    return ImportedWeights(recipe, state, {name: ours[name] for name in ours.keys() - state.keys()}, left_out, absent)


def truncate_positions(weights: ImportedWeights, length: int) -> ImportedWeights:
    """The model with at most `length` position embeddings."""
    recipe, table = weights.recipe, "embedding.positions.weight"
    if not _MIN_LENGTH <= length < recipe.sequence.length:
        return weights
    state = dict(weights.state)
    if table in state:  # relative positions have none
        state[table] = state[table][:length].contiguous()
    return weights._replace(recipe=replace(recipe, sequence=replace(recipe.sequence, length=length)), state=state)


def backbone_tensors(recipe: NetRecipe, state: Mapping[str, Tensor]) -> Tensors:
    """The weights of a model without its language-modelling head, as the backbone of a task model."""
    model_type = model_type_for(recipe)
    vocabulary = len(state["embedding.tokens.weight"])
    names = [name for name in parameter_shapes(recipe, vocabulary) if not name.startswith(("output.", "heads."))]
    ours = {name: state[name] for name in names}
    offset = model_type.position_offset(make_config(recipe, vocabulary, has_head=False))
    found = model_type.divide_heads(recipe, model_type.to_theirs(ours, offset))
    found |= model_type.neutral_tensors(recipe, ours)
    return {name: tensor for name, tensor in found.items() if not _is_head(model_type, name)}


def parameter_shapes(recipe: NetRecipe, vocabulary: int) -> dict[str, torch.Size]:
    """Names and shapes of the parameters of a network and of its `head_objective`; nothing is allocated."""
    with torch.device("meta"):
        network = Network(recipe, Vocabulary([""] * vocabulary, np.zeros(vocabulary, dtype=np.int64)))
    shapes = {name: parameter.shape for name, parameter in network.named_parameters()}
    family = nearest_family(recipe)
    if objective := family.head_objective(recipe):
        for layer, outputs in family.head_layers(recipe).items():
            shapes[f"heads.{objective}.{layer}.weight"] = torch.Size([outputs, recipe.width])
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
    drops = recipe.visibility == "causal" or not nearest_family(recipe).has_output_bias
    if not drops or bias is None or bool(((bias != 0) & (bias != ABSENT_BIAS)).any()):
        return recipe, dict(state), all_ids
    kept = [number for number in all_ids if bias[number] == 0]
    unbiased = {name: tensor for name, tensor in state.items() if name != "output.bias"}
    return *select_tokens(replace(recipe, output=replace(recipe.output, bias=False)), unbiased, kept), kept


def _is_head(model_type: ModelType, name: str) -> bool:
    return name.startswith(model_type.head_prefixes)


def _has_head(model_type: ModelType, names: Iterable[str]) -> bool:
    return any(_is_head(model_type, name) for name in names)


def _absent_heads(model_type: ModelType, ours: Iterable[str], expected: Tensors, given: Tensors) -> list[str]:
    """The tensors of heads that a model without a language-modelling head lacks."""
    layers = {one for name in ours if name.startswith("heads.") for one in model_type.their_names(name)}
    return [name for name in expected if _is_head(model_type, name) or (name in layers and name not in given)]


def _initial_tensors(shapes: Mapping[str, torch.Size]) -> Tensors:
    """Randomly initialised parameters, which depend on names and shapes only."""
    generator = torch.Generator().manual_seed(0)
    found = {}
    for name, shape in shapes.items():
        found[name] = torch.zeros(shape) if name.endswith("bias") else torch.ones(shape)
        if len(shape) > 1 and not name.endswith("bias"):
            found[name].normal_(std=_INIT_STD, generator=generator)
    return found


def _check_neutral(neutral: Tensors, given: Mapping[str, Tensor]) -> None:
    """Refuse tensors that ours lacks and whose values have an effect."""
    for name, expected in neutral.items():
        if not torch.equal(given[name], expected):
            raise ArtifactError(f"the values of {name} have no equivalent in Firth: {_SAVE_HEAD}.")


def _standard_names(model_type: ModelType, tensors: Mapping[str, Tensor]) -> Tensors:
    """The tensors with the names of a model with a head, without buffers."""
    has_no_prefix = not any(name.startswith(model_type.prefix) for name in tensors)
    found: Tensors = {}
    for name, tensor in tensors.items():
        standard = model_type.prefix + name if has_no_prefix and not _is_head(model_type, name) else name
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
    for copy, source in model_type.tied_copies().items() if is_tied(config) else ():
        if copy in given and source in given and not torch.equal(given.pop(copy), given[source]):
            raise ArtifactError(f"{copy} is tied to {source}, but they differ: set tie_word_embeddings to false.")


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
