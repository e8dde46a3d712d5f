"""Marian, the class of transformers that is nearest to the Transformer of Vaswani et al. (2017).

Its sinusoids are in halves, sin ... sin cos ... cos, ours interleaved as in the paper. Every part of the network treats
the dimensions of states alike, so the same network has them in another order in all weights. Its layer normalisation
always adds 1e-5 to variances.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor

from firth.artifact.formats.huggingface_family import Config, Tensors
from firth.artifact.formats.huggingface_seq2seq import LAYER_NORM_EPS, FairseqType
from firth.errors import ArtifactError
from firth.nets.embedding import sinusoids
from firth.nets.recipe import NetRecipe
from firth.recipes.nets import transformer

_EPS = LAYER_NORM_EPS
_POSITIONS = tuple(f"model.{side}.embed_positions.weight" for side in ("encoder", "decoder"))
_ROUNDING = 1e-3  # of stored sinusoids, which may have been float16
_READERS = ("tokens", "qkv", "query", "keys", "inner")  # whose columns are dimensions of states
_WRITERS = ("out", "outer", "norm1", "norm2", "norm3")  # whose rows are


class Marian(FairseqType):
    """An encoder and a decoder with sinusoidal positions and one table of tokens."""

    name = "marian"
    architecture = "MarianMTModel"
    required: ClassVar = {
        "is_decoder": False,
        "tie_word_embeddings": True,
        "share_encoder_decoder_embeddings": True,
        "static_position_embeddings": True,
        "normalize_before": False,
        "normalize_embedding": False,
        "add_final_layer_norm": False,
        "pruned_heads": {},
    }
    pipelines: ClassVar = {"MarianMTModel": "translation"}

    def published(self) -> NetRecipe:
        """The recipe of the paper with Marian's constant."""
        base = transformer()
        return replace(base, encoder=replace(base.encoder, eps=_EPS), decoder=replace(base.encoder, eps=_EPS))

    def claims(self, recipe: NetRecipe) -> bool:
        return recipe.decoder is not None

    def unsupported(self, recipe: NetRecipe) -> dict[str, bool]:
        embedding = recipe.embedding
        return {
            **super().unsupported(recipe),
            f"embedding.positions={embedding.positions}": embedding.positions != "sinusoidal",
            f"embedding.norm={embedding.norm}": embedding.norm,
            f"embedding.own_decoder={embedding.own_decoder}": embedding.own_decoder,
            f"embedding.width={embedding.width}": embedding.width != recipe.encoder.width or embedding.width % 2 > 0,
        }

    def remarks(self, recipe: NetRecipe) -> list[str]:
        eps = {part.eps for part in (recipe.encoder, recipe.decoder) if part is not None} - {_EPS}
        if not eps:
            return []
        return [
            f"Marian adds {_EPS:g} to variances where the model adds {min(eps):g}, so that logits differ a little "
            f"(about 1e-5 of them): for equal ones train with --set encoder.eps={_EPS:g} --set decoder.eps={_EPS:g}"
        ]

    def further_config(self, recipe: NetRecipe) -> Config:
        return {**super().further_config(recipe), "scale_embedding": True, "share_encoder_decoder_embeddings": True}

    # Import

    def check_config(self, config: Config) -> None:
        super().check_config(config)
        if config.get("scale_embedding", False) is not True:
            raise ArtifactError(
                "config.json has scale_embedding=False, without which tied token vectors have another scale than "
                "Firth's: train the model with scale_embedding=True."
            )
        tokens = config.get("vocab_size")
        if config.get("decoder_vocab_size") not in (None, tokens):
            raise ArtifactError("config.json has another vocabulary for the decoder: Firth reads models with one only.")

    def drop_static(self, config: Config, given: Tensors) -> None:
        for name in _POSITIONS:
            table = given.pop(name, None)
            if table is not None and not _is_sinusoidal(table):
                raise ArtifactError(f"{name} holds no sinusoids in halves: Firth reads no other positions of Marian.")

    # Tensors

    def reshape(self, name: str, tensor: Tensor, offset: int) -> Tensor:
        tensor = super().reshape(name, tensor, offset)
        dimension = _state_dimension(name)
        return tensor if dimension is None else _permute(tensor, dimension, _halves(tensor.shape[dimension]))

    def restore_shape(self, name: str, tensor: Tensor, offset: int) -> Tensor:
        tensor = super().restore_shape(name, tensor, offset)
        dimension = _state_dimension(name)
        return tensor if dimension is None else _permute(tensor, dimension, _halves(tensor.shape[dimension]).argsort())


def _state_dimension(name: str) -> int | None:
    """The dimension of our tensor that is one of states; None for that of a head or of a feed-forward layer.

    >>> _state_dimension("decoder.layers.0.attention.qkv.weight"), _state_dimension("encoders.0.layers.1.norm1.bias")
    (1, 0)
    """
    *_, module, leaf = name.split(".")
    if name == "output.weight" or (module in _READERS and leaf == "weight"):
        return 1
    return 0 if module in _WRITERS else None


def _halves(width: int) -> Tensor:
    """Our dimension for each of Marian's: the sines first, then the cosines.

    >>> _halves(6).tolist()
    [0, 2, 4, 1, 3, 5]
    """
    return torch.cat([torch.arange(0, width, 2), torch.arange(1, width, 2)])


def _permute(tensor: Tensor, dimension: int, order: Tensor) -> Tensor:
    return tensor.index_select(dimension, order.to(tensor.device))


def _is_sinusoidal(table: Tensor) -> bool:
    if table.ndim != 2 or not table.is_floating_point():
        return False
    rows, width = table.shape
    expected = sinusoids(torch.arange(rows), width)[:, _halves(width)]
    return bool(torch.isfinite(table).all()) and float((table.float() - expected).abs().max()) < _ROUNDING
