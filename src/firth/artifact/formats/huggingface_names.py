"""Names of tensors in Hugging Face models and in Firth, by model type; the families have the tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torch import Tensor

from firth.artifact.formats.huggingface_registry import MODEL_TYPES


def their_names(model_type: str, name: str) -> list[str]:
    """The names of our tensor `name` in a model of theirs.

    >>> their_names("gpt2", "encoders.0.layers.3.norm1.bias")
    ['transformer.h.3.ln_1.bias']
    >>> their_names("bert", "encoders.0.layers.0.attention.qkv.weight")[1]
    'bert.encoder.layer.0.attention.self.key.weight'
    """
    return MODEL_TYPES[model_type].their_names(name)


def to_theirs(model_type: str, ours: Mapping[str, Tensor], offset: int) -> dict[str, Tensor]:
    """Our tensors with their names and shapes; `offset` rows of zeros precede the position embeddings."""
    return MODEL_TYPES[model_type].to_theirs(ours, offset)


def to_ours(model_type: str, theirs: Mapping[str, Tensor], names: Iterable[str], offset: int) -> dict[str, Tensor]:
    """Our tensors `names` made of theirs: the inverse of `to_theirs`."""
    return MODEL_TYPES[model_type].to_ours(theirs, names, offset)
