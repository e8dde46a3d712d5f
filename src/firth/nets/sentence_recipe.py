"""SentenceRecipe: how a network makes one vector of the hidden states of a sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from firth.nets.field_checks import check_ranges


@dataclass(frozen=True, kw_only=True)
class SentenceRecipe:
    """The vector of a sentence: what `firth embed` gives by default, and what objectives of sentences train."""

    pooling: Literal["mean", "max", "first", "last", "ends", "sqrt"] = "mean"
    """Of the states of its tokens: mean, maximum (InferSent), first ([CLS]) or last token; ends: the last state of each
    direction of reading (skip-thoughts, GenSen); sqrt: sum divided by the square root of their number (USE)."""
    bigrams: int = 0
    """Hashed vectors of adjacent token pairs, which are pooled with those of the tokens by mean or sqrt (USE's DAN)."""
    layers: int = 0
    """Feed-forward layers over the pooled vector; the last one is linear."""
    width: int = 0
    """Dimension of the output of these layers; 0: that of the encoder."""
    similarity: Literal["cosine", "angular"] = "cosine"
    """How two vectors are compared: angular is 1 - arccos(cosine) / pi (Cer et al. 2018)."""

    def __post_init__(self) -> None:
        check_ranges(self, bigrams=(0, 100_000_000), layers=(0, 100), width=(0, 100_000))
