"""What a fastText .bin file holds, and how its beginning is laid out."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

MAGIC = 793712314
VERSION = 12
START = struct.Struct("<ii12id")
"""The magic number, the version, and the arguments of training."""
DICTIONARY = struct.Struct("<iiiqq")
"""Entries, words and labels among them, tokens of text, and n-grams left after pruning, -1 without it."""
ENTRY = struct.Struct("<qb")
"""What follows a word and a zero byte: its count, and whether it is a label."""
SHAPE = struct.Struct("<qq")
"""What precedes the numbers of a matrix: rows and columns."""
LOSSES: tuple[Any, ...] = ("hierarchical", "negative", "softmax", "one-versus-all")
MODELS: tuple[Any, ...] = ("cbow", "skipgram", "supervised")
"""Their numbers in the file are their places here, counted from 1."""

Matrix = npt.NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class FasttextArgs:
    """The arguments that a model was trained with, in the order of the file."""

    dimension: int
    window: int = 5
    epochs: int = 5
    min_count: int = 1
    negatives: int = 5
    word_ngrams: int = 1
    loss: Literal["hierarchical", "negative", "softmax", "one-versus-all"] = "negative"
    model: Literal["cbow", "skipgram", "supervised"] = "skipgram"
    buckets: int = 0
    min_n: int = 0
    max_n: int = 0
    update_rate: int = 100
    subsample: float = 1e-4


@dataclass(frozen=True, kw_only=True, eq=False)
class FasttextFile:
    """A whole .bin file: what fastText knows of words, labels and character or word n-grams."""

    args: FasttextArgs
    words: list[str]
    counts: npt.NDArray[np.int64]
    own: Matrix
    """A row for each word: the first part of fastText's input matrix."""
    ngrams: Matrix
    """A row for each bucket that n-grams share: the rest of it."""
    output: Matrix
    """A row for each word, or for each label of a classifier."""
    labels: list[str]
    label_counts: npt.NDArray[np.int64]
    tokens: int
    """How many words the text had."""
