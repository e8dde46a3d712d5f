"""ALBERT: a BERT with tied layers and narrow token vectors (Lan et al. 2020)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from firth.artifact.formats.huggingface_bert import BERT_FIELDS, MaskedType, encoder_names, masked_classes
from firth.artifact.formats.huggingface_family import ACTIVATIONS, PLAIN, Tensors
from firth.nets.recipe import NetRecipe
from firth.recipes.nets import albert

_PARTS = {
    "attention.qkv": "attention.query|key|value",
    "attention.out": "attention.dense",
    "norm1": "attention.LayerNorm",
    "feedforward.inner": "ffn",
    "feedforward.outer": "ffn_output",
    "norm2": "full_layer_layer_norm",
}
_DEFAULTS = {
    "encoder.width": 4096,
    "encoder.heads": 64,
    "encoder.ffn_width": 16384,
    "encoder.activation": "gelu_new",
    "encoder.dropout": 0.0,
    "encoder.attention_dropout": 0.0,
}


class Albert(MaskedType):
    """ALBERT."""

    name = "albert"
    architecture, pair_architecture = "AlbertForMaskedLM", "AlbertForPreTraining"
    fields: ClassVar = {ours: (key, _DEFAULTS.get(ours, default)) for ours, (key, default) in BERT_FIELDS.items()} | {
        "embedding.width": ("embedding_size", 128)
    }
    activations = ACTIVATIONS
    required = PLAIN | {"num_hidden_groups": 1, "inner_group_num": 1, "tie_word_embeddings": True}
    prefix, head_prefixes = "albert.", ("predictions.", "sop_classifier.")
    names = encoder_names("albert", "encoder.albert_layer_groups.0.albert_layers.0", _PARTS) | {
        "embedding.project": "albert.encoder.embedding_hidden_mapping_in",
        "output.transform.dense": "predictions.dense",
        "output.transform.norm": "predictions.LayerNorm",
        "output.bias": "predictions.bias",
        "heads.*.pooler": "albert.pooler",
        "heads.*.classifier": "sop_classifier.classifier",
    }
    head_classes = masked_classes("Albert", "albert.pooler")
    classifier_dropout = "classifier_dropout_prob"

    def published(self) -> NetRecipe:
        return albert()

    def claims(self, recipe: NetRecipe) -> bool:
        return recipe.encoder.tie_layers == "all"

    def unsupported(self, recipe: NetRecipe) -> dict[str, bool]:
        return {
            **super().unsupported(recipe),
            "encoder.tie_layers=all with output.kind=full": recipe.output.kind == "full",
        }

    def neutral_tensors(self, recipe: NetRecipe, ours: Mapping[str, Tensor]) -> Tensors:
        """Between equal widths, the projection is the identity."""
        found, width = super().neutral_tensors(recipe, ours), recipe.encoder.width
        if recipe.embedding.width == width:
            table, name = ours["embedding.tokens.weight"], self.their_name("embedding.project.weight")
            found[name] = torch.eye(width, dtype=table.dtype, device=table.device)
            found[name.removesuffix("weight") + "bias"] = table.new_zeros(width)
        return found
