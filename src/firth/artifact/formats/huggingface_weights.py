"""The weights of a Hugging Face model and ours: names, shapes and what one side has and the other does not."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from firth.artifact.formats.huggingface_config import (
    Config,
    Kind,
    config_of,
    find_kind,
    is_tied,
    kind_of,
    pair_objective,
    recipe_of,
    shift_of,
)
from firth.artifact.formats.huggingface_map import place_of, to_ours, to_theirs
from firth.errors import AbilityError, ArtifactError
from firth.nets.network import Network, Vocabulary
from firth.nets.recipe import NetRecipe
from firth.progress import progress

Tensors = dict[str, Tensor]
ABSENT = -1e4
"""Bias of a token that the model does not have: its probability is 0."""
_BUFFER = re.compile(r"\.(position_ids|token_type_ids|attn\.bias|attn\.masked_bias)$")
_OLD_NAMES = {".LayerNorm.gamma": ".LayerNorm.weight", ".LayerNorm.beta": ".LayerNorm.bias"}
_HEADS = ("cls.", "lm_head.", "predictions.", "sop_classifier.")
_SAVE_HEAD = "save it with AutoModelForMaskedLM or AutoModelForCausalLM"
_SHORTEST = 4  # tokens of a row
_SPREAD = 0.02  # standard deviation of first parameters (Devlin et al. 2019)


class Weights(NamedTuple):
    """A model that was read."""

    recipe: NetRecipe
    state: Tensors
    """The parameters of the network."""
    heads: Tensors
    """Those of objectives' own layers, `heads.NAME.*`."""
    left_out: list[str]
    """Tensors of theirs that have no place in the recipe."""
    new: list[str]
    """Those that predict tokens, made anew where they have none."""


def to_huggingface(
    recipe: NetRecipe, state: Mapping[str, Tensor], heads: Mapping[str, Tensor]
) -> tuple[Config, Tensors]:
    """The config.json and the weights of a model; of `state` and `heads` only what the recipe asks for is read."""
    kind = kind_of(recipe)
    if kind.causal and recipe.output.bias:
        raise AbilityError(f"{kind.name} models have no bias in their output: train with --set output.bias=false.")
    vocabulary = len(state["embedding.tokens.weight"])
    wanted = parameter_shapes(recipe, vocabulary)
    judged = all(name in heads for name in wanted if name.startswith("heads."))
    ours = {name: {**state, **heads}[name] for name in wanted if judged or not name.startswith("heads.")}
    if wrong := not_finite(ours):
        raise AbilityError(f"{wrong} holds NaN or infinity: train the model again at a lower rate.")
    config = config_of(recipe, vocabulary, pairs=judged and bool(pair_objective(recipe)))
    return config, {**to_theirs(kind.name, ours, shift_of(kind, config)), **_fillers(kind, recipe, ours)}


def from_huggingface(config: Config, tensors: Mapping[str, Tensor]) -> Weights:
    """The recipe and the weights of a model of theirs; whatever does not fit is refused by name."""
    kind = find_kind(config)
    given = _usual_names(kind, tensors)
    _unite_tied(kind, config, given)
    recipe = _recipe(kind, config, given)
    vocabulary = given[_embedding(kind, "tokens")].shape[0]
    if config.get("vocab_size", vocabulary) != vocabulary:
        raise ArtifactError(
            f"config.json promises {config['vocab_size']!r:.80} tokens and the weights have {vocabulary}: "
            "give the files of one model."
        )
    blank = {name: torch.empty(shape, device="meta") for name, shape in parameter_shapes(recipe, vocabulary).items()}
    shift = shift_of(kind, config)
    fillers = _fillers(kind, recipe, blank)
    expected = {**to_theirs(kind.name, blank, shift), **fillers}
    absent = [] if any(map(_is_head, given)) else [name for name in expected if _is_head(name)]
    left_out = _check_names({name: tensor for name, tensor in expected.items() if name not in absent}, given)
    given |= _new_tensors({name: expected[name].shape for name in absent})
    _check_fillers(fillers, given)
    for name, tensor in given.items():
        if not tensor.is_floating_point():
            raise ArtifactError(f"{name} holds {tensor.dtype} and not floating-point numbers: {_SAVE_HEAD}.")
    if wrong := not_finite(given):
        raise ArtifactError(f"{wrong} holds NaN or infinity: use a model whose training went well.")
    single = {name: tensor.to(torch.float32) for name, tensor in given.items()}
    ours = to_ours(kind.name, single, blank, shift)
    state = {name: tensor for name, tensor in ours.items() if not name.startswith("heads.")}
    return Weights(recipe, state, {name: ours[name] for name in ours.keys() - state.keys()}, left_out, absent)


def shortened(weights: Weights, length: int) -> Weights:
    """A model that reads no more than so many tokens, if it could read more: its further positions are left out."""
    recipe, table = weights.recipe, "embedding.positions.weight"
    if not _SHORTEST <= length < recipe.rows.length:
        return weights
    state = weights.state | {table: weights.state[table][:length].contiguous()}
    return weights._replace(recipe=replace(recipe, rows=replace(recipe.rows, length=length)), state=state)


def body_of(recipe: NetRecipe, state: Mapping[str, Tensor]) -> Tensors:
    """The weights of a model without what predicts tokens, for a head of another kind to be put on."""
    kind = kind_of(recipe)
    vocabulary = len(state["embedding.tokens.weight"])
    names = [name for name in parameter_shapes(recipe, vocabulary) if not name.startswith(("output.", "heads."))]
    ours = {name: state[name] for name in names}
    shift = shift_of(kind, config_of(recipe, vocabulary, pairs=False))
    found = {**to_theirs(kind.name, ours, shift), **_fillers(kind, recipe, ours)}
    return {name: tensor for name, tensor in found.items() if not _is_head(name)}


def parameter_shapes(recipe: NetRecipe, vocabulary: int) -> dict[str, torch.Size]:
    """The names and shapes of a network's parameters and those of its head for pairs; nothing is allocated."""
    with torch.device("meta"):
        network = Network(recipe, Vocabulary([""] * vocabulary, np.zeros(vocabulary, dtype=np.int64)))
    shapes = {name: parameter.shape for name, parameter in network.named_parameters()}
    if judge := pair_objective(recipe):
        width = recipe.width
        shapes[f"heads.{judge}.pooler.weight"] = torch.Size([width, width])
        shapes[f"heads.{judge}.pooler.bias"] = torch.Size([width])
        shapes[f"heads.{judge}.classifier.weight"] = torch.Size([2, width])
        shapes[f"heads.{judge}.classifier.bias"] = torch.Size([2])
    return shapes


def choose_rows(recipe: NetRecipe, state: Mapping[str, Tensor], order: Sequence[int]) -> tuple[NetRecipe, Tensors]:
    """The model with other ids: the new id i is the old one `order[i]`, or -1 for a token that it does not have."""
    chosen = torch.tensor(order)
    absent = chosen < 0
    found = dict(state)
    if bool(absent.any()) and "output.bias" not in found:
        found["output.bias"] = torch.zeros(len(found["embedding.tokens.weight"]))
        recipe = replace(recipe, output=replace(recipe.output, bias=True))
    for name, value in (("embedding.tokens.weight", 0.0), ("output.weight", 0.0), ("output.bias", ABSENT)):
        if name in found:
            found[name] = found[name][chosen.clamp(min=0)]
            found[name][absent] = value
    return recipe, found


def without_absent(recipe: NetRecipe, state: Mapping[str, Tensor]) -> tuple[NetRecipe, Tensors, list[int]]:
    """The model without tokens that it never had, and the ids of the others: only for outputs that need no bias."""
    bias = state.get("output.bias")
    everything = list(range(len(state["embedding.tokens.weight"])))
    if recipe.visibility != "causal" or bias is None or bool(((bias != 0) & (bias != ABSENT)).any()):
        return recipe, dict(state), everything
    kept = [number for number in everything if bias[number] == 0]
    unbiased = replace(recipe, output=replace(recipe.output, bias=False))
    return unbiased, choose_rows(unbiased, {n: t for n, t in state.items() if n != "output.bias"}, kept)[1], kept


def _fillers(kind: Kind, recipe: NetRecipe, ours: Mapping[str, Tensor]) -> Tensors:
    """What their model has and ours does not need: vectors that are 0, a product that changes nothing, a copy."""
    found: Tensors = {}
    table = ours["embedding.tokens.weight"]
    if kind.causal:
        return found
    if not recipe.embedding.segments:
        found[_embedding(kind, "segments")] = table.new_zeros(1, table.shape[1])
    if kind.name == "albert" and recipe.embedding.width == recipe.encoder.width:
        name = place_of(kind.name, "embedding.project.weight").names[0]
        found[name] = torch.eye(recipe.encoder.width, dtype=table.dtype, device=table.device)
        found[name.removesuffix("weight") + "bias"] = table.new_zeros(recipe.encoder.width)
    bias = place_of(kind.name, "output.bias").names[0]
    if "output.bias" not in ours:
        found[bias] = table.new_zeros(table.shape[0])
    if "output.weight" in ours:
        found[bias.removesuffix("bias") + "decoder.bias"] = ours.get("output.bias", found.get(bias, table)).clone()
    return found


def _is_head(name: str) -> bool:
    """Whether a tensor of theirs is a part of what predicts tokens or judges pairs."""
    return name.startswith(_HEADS)


def _new_tensors(shapes: Mapping[str, torch.Size]) -> Tensors:
    """First parameters, which depend on their names and shapes alone."""
    generator = torch.Generator().manual_seed(0)
    found = {}
    for name, shape in shapes.items():
        found[name] = torch.zeros(shape) if name.endswith("bias") else torch.ones(shape)
        if len(shape) > 1:
            found[name].normal_(std=_SPREAD, generator=generator)
    return found


def _check_fillers(fillers: Tensors, given: Mapping[str, Tensor]) -> None:
    """Refuses what should say nothing and does say something."""
    for name, filler in fillers.items():
        tensor = given[name]
        expected = torch.eye(len(tensor)) if "mapping_in.weight" in name else torch.zeros(filler.shape)
        if name.endswith("decoder.bias"):
            expected = given[name.replace("decoder.bias", "bias")]
        if not torch.equal(tensor.float(), expected.float()):
            raise ArtifactError(f"the weights have numbers in {name} that Firth has no place for: {_SAVE_HEAD}.")


def _usual_names(kind: Kind, tensors: Mapping[str, Tensor]) -> Tensors:
    """The tensors under the names that a model with a head has, without those that are made anew when it is built."""
    bare = not any(name.startswith(kind.prefix) for name in tensors)
    found: Tensors = {}
    for name, tensor in tensors.items():
        usual = kind.prefix + name if bare and not _is_head(name) else name
        for old, new in _OLD_NAMES.items():
            usual = usual.removesuffix(old) + new if usual.endswith(old) else usual
        if _BUFFER.search(usual):
            continue
        if usual in found:
            raise ArtifactError(f"the weights have {usual} twice, by an old and a new name: {_SAVE_HEAD}.")
        found[usual] = tensor
    return found


def _unite_tied(kind: Kind, config: Config, given: Tensors) -> None:
    """Takes out copies of tied tensors, which must be equal to what they are tied to."""
    bias = "" if kind.causal else place_of(kind.name, "output.bias").names[0]
    copies = {}
    if is_tied(config):
        decoder = "lm_head.weight" if kind.causal else bias.removesuffix("bias") + "decoder.weight"
        copies = {decoder: _embedding(kind, "tokens"), bias.removesuffix("bias") + "decoder.bias": bias}
    for copy, source in copies.items():
        if copy in given and source in given and not torch.equal(given.pop(copy), given[source]):
            raise ArtifactError(
                f"config.json says that {copy} is tied to {source}, and they differ: set tie_word_embeddings to false."
            )


def _embedding(kind: Kind, name: str) -> str:
    return place_of(kind.name, f"embedding.{name}.weight").names[0]


def _recipe(kind: Kind, config: Config, given: Tensors) -> NetRecipe:
    """The recipe that the config.json and the presence of some tensors tell."""
    tokens = _embedding(kind, "tokens")
    if tokens not in given or given[tokens].ndim != 2:
        raise ArtifactError(f"the weights lack the tensor {tokens}: give those of a {kind.name} model.")
    segments = False
    if not kind.causal:
        rows = given.get(_embedding(kind, "segments"))
        segments = rows is not None and bool(rows.any())
    pairs = bool(kind.pairs) and place_of(kind.name, "heads.x.classifier.weight").names[0] in given
    return recipe_of(config, segments=segments, pairs=pairs)


def _check_names(expected: Tensors, given: Tensors) -> list[str]:
    """Refuses missing tensors, those of other shapes and unknown ones; returns those that are left out."""
    if missing := sorted(expected.keys() - given.keys()):
        raise ArtifactError(f"the weights lack {_some(missing)}: {_SAVE_HEAD}.")
    for name, tensor in expected.items():
        if tensor.shape != given[name].shape:
            raise ArtifactError(
                f"{name} has the shape {tuple(given[name].shape)}, and config.json asks for {tuple(tensor.shape)}: "
                "give the files of one model."
            )
    extra = sorted(given.keys() - expected.keys())
    if unknown := [name for name in extra if ".pooler." not in name]:
        raise ArtifactError(f"the weights have {_some(unknown)}, for which Firth has no place: {_SAVE_HEAD}.")
    return extra


def _some(names: list[str]) -> str:
    """The first few names, and how many more there are.

    >>> _some(["a", "b", "c", "d", "e"])
    'a, b, c and 2 more'
    """
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def not_finite(tensors: Mapping[str, Tensor]) -> str:
    """The first tensor that holds NaN or infinity, or that would in single precision."""
    with progress("checking", sum(tensor.numel() for tensor in tensors.values()), "numbers") as advance:
        for name, tensor in tensors.items():
            if not bool(torch.isfinite(tensor.to(torch.float32)).all()):
                return name
            advance(tensor.numel())
    return ""
