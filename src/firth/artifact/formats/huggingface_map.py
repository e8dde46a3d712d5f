"""Which tensor of a Hugging Face model is which of ours: one table for each type, read in both directions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

import torch
from torch import Tensor


class Pair(NamedTuple):
    """A layer or a single tensor of ours and of theirs; `*` is the number of a layer, or an objective's name."""

    ours: str
    theirs: str
    """`query|key|value` are three layers whose rows are ours, one below the other."""
    how: Literal["same", "transposed", "shifted"] = "same"
    """Transposed: matrices are (inputs, outputs) there. Shifted: some rows that are never used come first."""


def _masked(name: str, positions: Literal["same", "shifted"]) -> tuple[Pair, ...]:
    """What BERT and RoBERTa have in common."""
    layer = f"{name}.encoder.layer.*."
    return (
        Pair("embedding.tokens", f"{name}.embeddings.word_embeddings"),
        Pair("embedding.positions", f"{name}.embeddings.position_embeddings", positions),
        Pair("embedding.segments", f"{name}.embeddings.token_type_embeddings"),
        Pair("embedding.norm", f"{name}.embeddings.LayerNorm"),
        Pair("encoders.0.layers.*.attention.qkv", layer + "attention.self.query|key|value"),
        Pair("encoders.0.layers.*.attention.out", layer + "attention.output.dense"),
        Pair("encoders.0.layers.*.norm1", layer + "attention.output.LayerNorm"),
        Pair("encoders.0.layers.*.feedforward.inner", layer + "intermediate.dense"),
        Pair("encoders.0.layers.*.feedforward.outer", layer + "output.dense"),
        Pair("encoders.0.layers.*.norm2", layer + "output.LayerNorm"),
    )


def _causal(tokens: str, positions: str) -> tuple[Pair, ...]:
    """What GPT and GPT-2 have in common."""
    layer = "transformer.h.*."
    return (
        Pair("embedding.tokens", f"transformer.{tokens}"),
        Pair("embedding.positions", f"transformer.{positions}"),
        Pair("encoders.0.layers.*.norm1", layer + "ln_1"),
        Pair("encoders.0.layers.*.attention.qkv", layer + "attn.c_attn", "transposed"),
        Pair("encoders.0.layers.*.attention.out", layer + "attn.c_proj", "transposed"),
        Pair("encoders.0.layers.*.norm2", layer + "ln_2"),
        Pair("encoders.0.layers.*.feedforward.inner", layer + "mlp.c_fc", "transposed"),
        Pair("encoders.0.layers.*.feedforward.outer", layer + "mlp.c_proj", "transposed"),
        Pair("output.weight", "lm_head.weight"),
    )


_SHARED = "albert.encoder.albert_layer_groups.0.albert_layers.0."

NAMES: dict[str, tuple[Pair, ...]] = {
    "bert": (
        *_masked("bert", "same"),
        Pair("output.transform.dense", "cls.predictions.transform.dense"),
        Pair("output.transform.norm", "cls.predictions.transform.LayerNorm"),
        Pair("output.weight", "cls.predictions.decoder.weight"),
        Pair("output.bias", "cls.predictions.bias"),
        Pair("heads.*.pooler", "bert.pooler.dense"),
        Pair("heads.*.classifier", "cls.seq_relationship"),
    ),
    "roberta": (
        *_masked("roberta", "shifted"),
        Pair("output.transform.dense", "lm_head.dense"),
        Pair("output.transform.norm", "lm_head.layer_norm"),
        Pair("output.weight", "lm_head.decoder.weight"),
        Pair("output.bias", "lm_head.bias"),
    ),
    "albert": (
        Pair("embedding.tokens", "albert.embeddings.word_embeddings"),
        Pair("embedding.positions", "albert.embeddings.position_embeddings"),
        Pair("embedding.segments", "albert.embeddings.token_type_embeddings"),
        Pair("embedding.norm", "albert.embeddings.LayerNorm"),
        Pair("embedding.project", "albert.encoder.embedding_hidden_mapping_in"),
        Pair("encoders.0.layers.*.attention.qkv", _SHARED + "attention.query|key|value"),
        Pair("encoders.0.layers.*.attention.out", _SHARED + "attention.dense"),
        Pair("encoders.0.layers.*.norm1", _SHARED + "attention.LayerNorm"),
        Pair("encoders.0.layers.*.feedforward.inner", _SHARED + "ffn"),
        Pair("encoders.0.layers.*.feedforward.outer", _SHARED + "ffn_output"),
        Pair("encoders.0.layers.*.norm2", _SHARED + "full_layer_layer_norm"),
        Pair("output.transform.dense", "predictions.dense"),
        Pair("output.transform.norm", "predictions.LayerNorm"),
        Pair("output.bias", "predictions.bias"),
        Pair("heads.*.pooler", "albert.pooler"),
        Pair("heads.*.classifier", "sop_classifier.classifier"),
    ),
    "gpt2": (*_causal("wte", "wpe"), Pair("encoders.0.norm", "transformer.ln_f")),
    "openai-gpt": _causal("tokens_embed", "positions_embed"),
}
"""Type of a Hugging Face model -> our names and theirs."""

_NUMBER = re.compile(r"(?<=\.layers\.)\d+|(?<=^heads\.)\w+")


class Place(NamedTuple):
    """Where a tensor of ours stands in a model of theirs."""

    names: list[str]
    how: str


def place_of(kind: str, name: str) -> Place:
    """Where our tensor `name` stands in a model of theirs.

    >>> place_of("gpt2", "encoders.0.layers.3.norm1.bias").names
    ['transformer.h.3.ln_1.bias']
    >>> place_of("bert", "encoders.0.layers.0.attention.qkv.weight").names[1]
    'bert.encoder.layer.0.attention.self.key.weight'
    """
    table = {pair.ours: pair for pair in NAMES[kind]}
    found = _NUMBER.search(name)
    pattern = _NUMBER.sub("*", name)
    module, _, leaf = pattern.rpartition(".")
    pair, suffix = (table[pattern], "") if pattern in table else (table[module], f".{leaf}")
    number = found.group() if found else ""
    before, _, last = pair.theirs.replace("*", number).rpartition(".")
    return Place([f"{before}.{part}{suffix}" for part in last.split("|")], pair.how)


def to_theirs(kind: str, ours: Mapping[str, Tensor], shift: int) -> dict[str, Tensor]:
    """Our tensors under their names and in their shapes, with `shift` rows of zeros before shifted ones."""
    theirs: dict[str, Tensor] = {}
    for name, tensor in ours.items():
        place = place_of(kind, name)
        if place.how == "transposed" and tensor.ndim == 2:
            tensor = tensor.T
        elif place.how == "shifted":
            tensor = torch.cat([tensor.new_zeros(shift, tensor.shape[1]), tensor])
        theirs |= zip(place.names, tensor.chunk(len(place.names)), strict=True)
    return theirs


def to_ours(kind: str, theirs: Mapping[str, Tensor], names: Iterable[str], shift: int) -> dict[str, Tensor]:
    """Our tensors `names` made of theirs: the inverse of `to_theirs`."""
    ours: dict[str, Tensor] = {}
    for name in names:
        place = place_of(kind, name)
        parts = [theirs[each] for each in place.names]
        tensor = parts[0] if len(parts) == 1 else torch.cat(parts)
        if place.how == "transposed" and tensor.ndim == 2:
            tensor = tensor.T
        elif place.how == "shifted":
            tensor = tensor[shift:]
        ours[name] = tensor.contiguous()
    return ours
