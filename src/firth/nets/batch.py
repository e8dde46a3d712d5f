"""Batch: token ids with their masks and labels. Loss: a sum and its count."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor


@dataclass(frozen=True)
class Loss:
    """A sum of losses in nats and the number of predictions; added freely, divided once."""

    total: Tensor
    count: int


class StreamOffsets(NamedTuple):
    """Where the rows of a batch are in streams that go on from step to step, for networks with a memory."""

    streams: Tensor
    """(batch,): the number of the stream that each row is a part of."""
    begins: Tensor
    """(batch,): the offset of each row in the text. It continues a row of its stream that ended there."""
    lengths: Tensor
    """(batch,): the number of tokens after which the next row of the stream begins."""
    documents: Tensor
    """(batch, length): the document of each token, -1 for padding."""


class TokenVectors(NamedTuple):
    """Vectors that tokens have instead of those of the embedding."""

    positions: Tensor
    """Indices into the flattened batch."""
    vectors: Tensor
    """(positions, embedding width)."""


@dataclass
class Batch:
    """Token ids (batch, length), which objectives corrupt, and labels. A row may hold several packed sequences."""

    ids: Tensor
    """(batch, length), int64."""
    word_starts: Tensor
    """(batch, length): true where a token begins a word; special tokens do."""
    sequence_ids: Tensor | None = None
    """(batch, length): which sequence of its row each token belongs to, -1 for padding; None: one sequence per row."""
    position_ids: Tensor | None = None
    """(batch, length): the position of each token in its sequence; None: in its row."""
    segment_ids: Tensor | None = None
    """(batch, length): the segment (0 or 1) of its sequence that each token belongs to."""
    sentence_starts: Tensor | None = None
    """(batch, length): true where a sentence begins; only if an objective needs them."""
    attention_order: Tensor | None = None
    """(batch, length): replaces positions in causal masks, see `AttentionMask`."""
    query_only: Tensor | None = None
    """(batch, length): true for tokens that attend to others and to which no other token attends."""
    visible: Tensor | None = None
    """(batch, length, length): true where a query may attend to a key, of those that other masks allow (K-BERT)."""
    is_query: bool = False
    """Whether requested states are those of queries without a token: they start from the query vector of the embedding
    and attend to tokens that are before their position in `attention_order` (the second stream of XLNet)."""
    is_reversed: Tensor | None = None
    """(batch,): true for rows of reversed text, whose relative distances are negative; None: there are none."""
    is_function: Tensor | None = None
    """(batch, length): true for special tokens that belong to the format and are never predicted; None: of the ends of
    sentences none is one."""
    side_ids: dict[str, Tensor] = field(default_factory=dict)
    """(batch, length) each: ids of further input tables, such as `languages` or `tasks`, by the table's name."""
    token_vectors: TokenVectors | None = None
    """Vectors of tokens that the vocabulary lacks, such as the markers of a task."""
    columns: dict[str, Tensor] = field(default_factory=dict)
    """(batch, length) each: columns of the token store by name, 0 for special tokens and padding."""
    progress: float = 1.0
    """The fraction of the training after which the batch is used; noise may depend on its stage."""
    offsets: StreamOffsets | None = None
    """In contiguous streams."""
    source: Batch | None = None
    """The text that a decoder's batch depends on: rows and sequence ids correspond."""
    is_hidden: Tensor | None = None
    """(batch, length): true for tokens of a source that the decoder must not attend to."""
    labels: dict[str, Tensor] = field(default_factory=dict)
    """Labels by objective, such as `mlm.positions` (indices into the flattened batch) and `mlm.targets`."""
    objectives: frozenset[str] | None = None
    """The names of the objectives that the batch is for; None: all."""
    tokens: int = 0
    """Tokens of text, as a budget counts them."""
    row_seeds: Tensor | None = None
    """(batch,): a number derived from each row's content, so that its noise does not depend on its batch."""

    @property
    def shape(self) -> tuple[int, int]:
        """Batch size and length."""
        rows, length = self.ids.shape
        return rows, length
