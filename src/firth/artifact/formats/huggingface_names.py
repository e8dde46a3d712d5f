"""Names of tensors in Hugging Face models and in Firth: one table per model type, for both directions.

`*` is the number of a layer or the name of an objective; `query|key|value` are three layers whose rows are concatenated
in ours; the layers `c_*` of GPT have transposed weights: (inputs, outputs).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

_ENCODER_LAYER = (
    ("attention.qkv", "attention.self.query|key|value", "attention.query|key|value"),
    ("attention.out", "attention.output.dense", "attention.dense"),
    ("norm1", "attention.output.LayerNorm", "attention.LayerNorm"),
    ("feedforward.inner", "intermediate.dense", "ffn"),
    ("feedforward.outer", "output.dense", "ffn_output"),
    ("norm2", "output.LayerNorm", "full_layer_layer_norm"),
)
"""Part of a layer in Firth, in BERT and RoBERTa, and in ALBERT."""


def _encoder(name: str) -> dict[str, str]:
    """Embeddings and layers of BERT, RoBERTa and ALBERT, which has one layer for all."""
    is_albert = name == "albert"
    layer = "encoder.albert_layer_groups.0.albert_layers.0" if is_albert else "encoder.layer.*"
    return {
        "embedding.tokens": f"{name}.embeddings.word_embeddings",
        "embedding.positions": f"{name}.embeddings.position_embeddings",
        "embedding.segments": f"{name}.embeddings.token_type_embeddings",
        "embedding.norm": f"{name}.embeddings.LayerNorm",
    } | {
        f"encoders.0.layers.*.{ours}": f"{name}.{layer}.{albert if is_albert else bert}"
        for ours, bert, albert in _ENCODER_LAYER
    }


def _causal(tokens: str, positions: str) -> dict[str, str]:
    return {
        "embedding.tokens": f"transformer.{tokens}",
        "embedding.positions": f"transformer.{positions}",
        "encoders.0.layers.*.norm1": "transformer.h.*.ln_1",
        "encoders.0.layers.*.attention.qkv": "transformer.h.*.attn.c_attn",
        "encoders.0.layers.*.attention.out": "transformer.h.*.attn.c_proj",
        "encoders.0.layers.*.norm2": "transformer.h.*.ln_2",
        "encoders.0.layers.*.feedforward.inner": "transformer.h.*.mlp.c_fc",
        "encoders.0.layers.*.feedforward.outer": "transformer.h.*.mlp.c_proj",
        "output.weight": "lm_head.weight",
    }


NAMES: dict[str, dict[str, str]] = {
    "bert": _encoder("bert")
    | {
        "output.transform.dense": "cls.predictions.transform.dense",
        "output.transform.norm": "cls.predictions.transform.LayerNorm",
        "output.weight": "cls.predictions.decoder.weight",
        "output.bias": "cls.predictions.bias",
        "heads.*.pooler": "bert.pooler.dense",
        "heads.*.classifier": "cls.seq_relationship",
    },
    "roberta": _encoder("roberta")
    | {
        "output.transform.dense": "lm_head.dense",
        "output.transform.norm": "lm_head.layer_norm",
        "output.weight": "lm_head.decoder.weight",
        "output.bias": "lm_head.bias",
    },
    "albert": _encoder("albert")
    | {
        "embedding.project": "albert.encoder.embedding_hidden_mapping_in",
        "output.transform.dense": "predictions.dense",
        "output.transform.norm": "predictions.LayerNorm",
        "output.bias": "predictions.bias",
        "heads.*.pooler": "albert.pooler",
        "heads.*.classifier": "sop_classifier.classifier",
    },
    "gpt2": _causal("wte", "wpe") | {"encoders.0.norm": "transformer.ln_f"},
    "openai-gpt": _causal("tokens_embed", "positions_embed"),
    "xlm": {
        "embedding.tokens": "transformer.embeddings",
        "embedding.positions": "transformer.position_embeddings",
        "embedding.languages": "transformer.lang_embeddings",
        "embedding.norm": "transformer.layer_norm_emb",
        "encoders.0.layers.*.attention.qkv": "transformer.attentions.*.q_lin|k_lin|v_lin",
        "encoders.0.layers.*.attention.out": "transformer.attentions.*.out_lin",
        "encoders.0.layers.*.norm1": "transformer.layer_norm1.*",
        "encoders.0.layers.*.feedforward.inner": "transformer.ffns.*.lin1",
        "encoders.0.layers.*.feedforward.outer": "transformer.ffns.*.lin2",
        "encoders.0.layers.*.norm2": "transformer.layer_norm2.*",
        "output.weight": "pred_layer.proj.weight",
        "output.bias": "pred_layer.proj.bias",
    },
}
"""Model type -> module or tensor of ours -> theirs."""
_POSITIONS = "embedding.positions.weight"
_WILDCARD = re.compile(r"(?<=\.layers\.)\d+|(?<=^heads\.)\w+")


def their_names(model_type: str, name: str) -> list[str]:
    """The names of our tensor `name` in a model of theirs.

    >>> their_names("gpt2", "encoders.0.layers.3.norm1.bias")
    ['transformer.h.3.ln_1.bias']
    >>> their_names("bert", "encoders.0.layers.0.attention.qkv.weight")[1]
    'bert.encoder.layer.0.attention.self.key.weight'
    """
    table, found, pattern = NAMES[model_type], _WILDCARD.search(name), _WILDCARD.sub("*", name)
    module, _, leaf = pattern.rpartition(".")
    theirs, suffix = (table[pattern], "") if pattern in table else (table[module], f".{leaf}")
    prefix, _, last = theirs.replace("*", found.group() if found else "").rpartition(".")
    return [f"{prefix}.{part}{suffix}" for part in last.split("|")]


def _is_transposed(name: str, tensor: Tensor) -> bool:
    return ".c_" in name and tensor.ndim == 2


def to_theirs(model_type: str, ours: Mapping[str, Tensor], offset: int) -> dict[str, Tensor]:
    """Our tensors with their names and shapes; `offset` rows of zeros precede the position embeddings."""
    theirs: dict[str, Tensor] = {}
    for name, tensor in ours.items():
        names = their_names(model_type, name)
        if _is_transposed(names[0], tensor):
            tensor = tensor.T
        elif offset and name == _POSITIONS:
            tensor = torch.cat([tensor.new_zeros(offset, tensor.shape[1]), tensor])
        theirs |= zip(names, tensor.chunk(len(names)), strict=True)
    return theirs


def to_ours(model_type: str, theirs: Mapping[str, Tensor], names: Iterable[str], offset: int) -> dict[str, Tensor]:
    """Our tensors `names` made of theirs: the inverse of `to_theirs`."""
    ours: dict[str, Tensor] = {}
    for name in names:
        their = their_names(model_type, name)
        tensor = theirs[their[0]] if len(their) == 1 else torch.cat([theirs[each] for each in their])
        if _is_transposed(their[0], tensor):
            tensor = tensor.T
        elif name == _POSITIONS:
            tensor = tensor[offset:]
        ours[name] = tensor.contiguous()
    return ours
