"""BART: an encoder and a decoder with positions and normalised embeddings of their own, and one table of tokens.

Two rows precede the positions in its tables. Its layer normalisation always adds 1e-5 to variances.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from firth.artifact.formats.huggingface_seq2seq import LAYER_NORM_EPS, FairseqType
from firth.nets.recipe import NetRecipe
from firth.recipes.denoising import bart

_OFFSET = 2  # unused rows before the first position
_END = 2  # `eos_token_id` of the published models


class Bart(FairseqType):
    """An encoder and a decoder that restore text."""

    name = "bart"
    architecture = "BartForConditionalGeneration"
    fields: ClassVar = {**FairseqType.fields, "embedding.scaled": ("scale_embedding", False)}
    required: ClassVar = {
        "is_decoder": False,
        "tie_word_embeddings": True,
        "normalize_before": False,
        "normalize_embedding": True,
        "add_final_layer_norm": False,
        "pruned_heads": {},
    }
    pipelines: ClassVar = {"BartForConditionalGeneration": "text2text-generation"}
    names: ClassVar = {
        **FairseqType.names,
        "embedding.positions": "model.encoder.embed_positions",
        "embedding.norm": "model.encoder.layernorm_embedding",
        "decoder_embedding.positions": "model.decoder.embed_positions",
        "decoder_embedding.norm": "model.decoder.layernorm_embedding",
    }
    default_end = _END

    def published(self) -> NetRecipe:
        return bart()

    def claims(self, recipe: NetRecipe) -> bool:
        embedding = recipe.embedding
        has_layout = embedding.positions == "learned" and (embedding.norm or embedding.own_decoder)
        return recipe.decoder is not None and has_layout

    def unsupported(self, recipe: NetRecipe) -> dict[str, bool]:
        embedding = recipe.embedding
        eps = {part.eps for part in (recipe.encoder, recipe.decoder) if part is not None} - {LAYER_NORM_EPS}
        return {
            **super().unsupported(recipe),
            f"embedding.norm={embedding.norm}": not embedding.norm,
            f"embedding.own_decoder={embedding.own_decoder}": not embedding.own_decoder,
            f"encoder.eps={min(eps, default=0.0):g}": bool(eps),
        }

    def reshape(self, name: str, tensor: Tensor, offset: int) -> Tensor:
        if name.endswith(".positions.weight"):
            return torch.cat([tensor.new_zeros(_OFFSET, tensor.shape[1]), tensor])
        return super().reshape(name, tensor, offset)

    def restore_shape(self, name: str, tensor: Tensor, offset: int) -> Tensor:
        return tensor[_OFFSET:] if name.endswith(".positions.weight") else super().restore_shape(name, tensor, offset)
