"""BART: an encoder and a decoder with positions and normalised embeddings of their own, and one table of tokens.

Two rows precede the positions in its tables. Its layer normalisation always adds 1e-5 to variances. A model that adds
almost nothing (MASS: 1e-12) has the same results there if all states are multiplied by a constant c, since variances
become c^2 times as large: what writes states is multiplied, what reads them divided. Powers of two are exact.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from firth.artifact.formats.huggingface_family import Config, Tensors
from firth.artifact.formats.huggingface_seq2seq import LAYER_NORM_EPS, FairseqType
from firth.errors import ArtifactError
from firth.nets.recipe import NetRecipe
from firth.recipes.denoising import bart

_SMALL_EPS = 1e-9  # so small that any smaller one is the same
_SCALE = 4096.0  # of states: 1e-5 becomes 6e-13
_WRITERS = ("tokens.weight", "positions.weight", "norm", "attention.out", "outer")  # parts of names
_READERS = ("qkv.weight", "query.weight", "inner.weight")
_OFFSET = 2  # unused rows before the first position
_DECODER_HEADS = ("BartForSequenceClassification", "BartForQuestionAnswering")
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

    def check_config(self, config: Config) -> None:
        super().check_config(config)
        if config.get("architectures") in [[name] for name in _DECODER_HEADS]:
            raise ArtifactError(
                f"a {config['architectures'][0]} reads a text with its encoder and again with its decoder, whose "
                "states its head reads; heads of Firth read the encoder alone: import a BartForConditionalGeneration, "
                "and fine-tune it."
            )

    def claims(self, recipe: NetRecipe) -> bool:
        embedding = recipe.embedding
        has_layout = embedding.positions == "learned" and (embedding.norm or embedding.own_decoder)
        return recipe.decoder is not None and has_layout

    def unsupported(self, recipe: NetRecipe) -> dict[str, bool]:
        embedding = recipe.embedding
        eps = recipe.encoder.eps
        return {
            **super().unsupported(recipe),
            f"embedding.norm={embedding.norm}": not embedding.norm,
            f"embedding.own_decoder={embedding.own_decoder}": not embedding.own_decoder,
            f"encoder.eps={eps:g}": eps != LAYER_NORM_EPS and eps > _SMALL_EPS,
            f"decoder.eps={_decoder_eps(recipe):g}": _decoder_eps(recipe) != eps,
        }

    def remarks(self, recipe: NetRecipe) -> list[str]:
        if not any(one.hides_masks for one in recipe.objectives):
            return []
        return [
            "the decoder attends to no mask of a source, which this class cannot know: for sources with masks compute "
            "encoder_outputs first, and give the decoder an attention_mask that is 0 at the masks"
        ]

    def rescale(self, recipe: NetRecipe, tensors: Tensors, inverse: bool = False) -> Tensors:
        if recipe.encoder.eps == LAYER_NORM_EPS:
            return tensors
        scale = 1 / _SCALE if inverse else _SCALE
        return {name: tensor * _factor(recipe, name, scale) for name, tensor in tensors.items()}

    def reshape(self, name: str, tensor: Tensor, offset: int) -> Tensor:
        if name.endswith(".positions.weight"):
            return torch.cat([tensor.new_zeros(_OFFSET, tensor.shape[1]), tensor])
        return super().reshape(name, tensor, offset)

    def restore_shape(self, name: str, tensor: Tensor, offset: int) -> Tensor:
        return tensor[_OFFSET:] if name.endswith(".positions.weight") else super().restore_shape(name, tensor, offset)


def _decoder_eps(recipe: NetRecipe) -> float:
    return (recipe.decoder or recipe.encoder).eps


def _factor(recipe: NetRecipe, name: str, scale: float) -> float:
    """The factor of a tensor if states are multiplied by `scale`, but not those of the encoder's last layer.

    The last states of the decoder are divided by it, since the tied token vectors of the output layer are multiplied.
    """
    if recipe.decoder is not None and name.startswith(f"decoder.layers.{recipe.decoder.layers - 1}.norm2."):
        return 1 / scale
    if name.startswith(f"encoders.0.layers.{recipe.encoder.layers - 1}.norm2."):
        return 1.0
    if name.endswith(_READERS):
        return 1 / scale
    return scale if any(part in name for part in _WRITERS) else 1.0
