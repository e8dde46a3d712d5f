"""Attention masks from visibility predicates.

A query attends to a key if both belong to the same sequence of the row and the predicate holds for their positions. If
a batch has an `attention_order`, it replaces positions: a permutation or a bidirectional prefix is another order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from firth.nets.dropout import DropoutRng

PREDICATES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "causal": lambda query, key: key <= query,
    "anticausal": lambda query, key: key >= query,
    "before": lambda query, key: key < query,
    "bidirectional": lambda query, key: torch.ones_like(key <= query),
}
"""Whether the query at one position attends to the key at another."""


class AttentionBias(NamedTuple):
    """A mask in the form that is added to attention scores."""

    bias: Tensor | None
    """(batch or 1, query, key): 0 where the query attends to the key, -inf elsewhere; None if all are attended to."""
    query_scale: Tensor | None = None
    """(batch or 1, query, 1): 0 for queries without any key, 1 for others; None if all have keys. The bias of a query
    without keys is 0 and the output of attention is multiplied by this factor."""

    def of_rows(self, rows: Tensor) -> AttentionBias:
        """The bias of some rows of the batch."""
        return AttentionBias(*(each if each is None or len(each) == 1 else each[rows] for each in self))


class GatheredQueries:
    """Some positions of a batch, padded to the same number in each row.

    >>> gathered = GatheredQueries(torch.tensor([1, 2, 5]), (2, 4))
    >>> gathered.per_row, gathered.columns.tolist(), gathered.slots.tolist()
    (2, [[1, 2], [1, 0]], [0, 1, 2])
    """

    def __init__(self, positions: Tensor, shape: tuple[int, int]) -> None:
        rows, length = shape
        row = positions.div(length, rounding_mode="floor")
        counts = torch.bincount(row, minlength=rows)
        self.rows, self.per_row = rows, max(1, int(counts.max()))
        rank = torch.arange(len(positions), device=positions.device) - (counts.cumsum(0) - counts)[row]
        self.slots = row * self.per_row + rank
        """(positions,): the index of each position in the flattened `columns`."""
        padding = torch.zeros(rows * self.per_row, dtype=torch.int64, device=positions.device)
        self.columns = padding.index_copy(0, self.slots, positions - row * length).view(rows, self.per_row)
        """(batch, per row): positions within their rows, padded with 0."""

    def pad(self, states: Tensor) -> Tensor:
        """(positions, width) to (batch, per row, width), padded with zeros."""
        padding = states.new_zeros(self.rows * self.per_row, states.shape[-1])
        return padding.index_copy(0, self.slots, states).view(self.rows, self.per_row, -1)

    def unpad(self, states: Tensor) -> Tensor:
        """(batch, per row, width) to (positions, width)."""
        return states.flatten(0, 1).index_select(0, self.slots)

    def select_bias(self, bias: AttentionBias) -> AttentionBias:
        """The bias of these queries."""
        return AttentionBias(self.select(bias.bias), self.select(bias.query_scale))

    def select(self, values: Tensor | None) -> Tensor | None:
        """(batch, per row, ...): the values (batch or 1, length, ...) at these positions."""
        if values is None:
            return None
        rows = torch.arange(self.rows, device=values.device)[:, None]
        return values.expand(self.rows, -1, -1)[rows, self.columns]


class EncoderStates(NamedTuple):
    """The hidden states that a decoder attends to."""

    states: Tensor
    """(batch, length, width)."""
    bias: AttentionBias
    """Which of them each query attends to."""


class SourceKeys(NamedTuple):
    """The keys and values of encoder states in each layer of a decoder, for several decoded rows of each source."""

    layers: list[list[Tensor]]
    """Keys and values of each layer, (sources, heads, length, size)."""
    bias: AttentionBias
    """(sources, 1, length): masks padding."""
    owners: Tensor
    """(rows,): the source of each row, ascending."""
    repeats: int | None = 1
    """The number of rows of each source, or None if they have different numbers."""

    def select_rows(self, rows: Tensor) -> SourceKeys:
        """The keys of some rows, which may repeat. Only those of finished sources are copied."""
        owners = self.owners[rows]
        kept, owners, counts = torch.unique(owners, return_inverse=True, return_counts=True)
        layers, bias = self.layers, self.bias
        if len(kept) < len(layers[0][0]):
            layers = [[each.index_select(0, kept) for each in keys] for keys in layers]
            bias = _at_rows(bias, kept)
        is_grouped = bool((owners[1:] >= owners[:-1]).all()) and bool((counts == counts[0]).all())
        return SourceKeys(layers, bias, owners, int(counts[0]) if is_grouped else None)

    def of_rows(self, layer: int) -> tuple[list[Tensor], AttentionBias]:
        """The keys and values of a layer, and the bias, for each row."""
        return [each.index_select(0, self.owners) for each in self.layers[layer]], _at_rows(self.bias, self.owners)


def _at_rows(bias: AttentionBias, rows: Tensor) -> AttentionBias:
    chosen = (None if each is None else each.expand(len(each), -1, -1)[rows] for each in bias)
    return AttentionBias(*chosen)


def make_encoder_states(states: Tensor, is_token: Tensor) -> EncoderStates:
    """States (batch, length, width) with a mask of the padding, where `is_token` (batch, length) is false."""
    return EncoderStates(states, _to_bias(None if bool(is_token.all()) else is_token[:, None], states.dtype))


class SegmentMemory(NamedTuple):
    """The hidden states of the tokens before a batch, without gradient."""

    layers: list[Tensor]
    """(batch, memory, width): the input of each layer."""
    visible: Tensor
    """(batch, length, memory): which of these tokens each token of the batch may attend to."""


class EntityInputs(NamedTuple):
    """The entities that a network reads beside the tokens of a batch (Zhang et al. 2019)."""

    vectors: Tensor
    """(batch, length, entity width): 0 for tokens without an entity."""
    is_slot: Tensor
    """(batch, length): true for tokens with an entity, and for the first of each sequence that has one: the latter
    gathers the entities of its sequence."""


def cross_attention_bias(
    sequence_ids: Tensor | None, source_ids: Tensor | None, is_hidden: Tensor | None, shapes: Sequence[tuple[int, int]]
) -> AttentionBias:
    """The bias by which the sequences of a decoder attend to the sequences of the same number in the source's rows.

    `is_hidden` (batch, source length) is true for source tokens that no query attends to. `shapes` are those of the
    two batches. Sequence ids of None mean one sequence per row.

    >>> bias, _ = cross_attention_bias(torch.tensor([[0, 0, 1]]), torch.tensor([[0, 1]]), None, [(1, 3), (1, 2)])
    >>> bias.tolist()
    [[[0.0, -inf], [0.0, -inf], [-inf, 0.0]]]
    """
    if sequence_ids is None and source_ids is None and is_hidden is None:
        return AttentionBias(None)
    given = zip((sequence_ids, source_ids), shapes, strict=True)
    queries, keys = (torch.zeros(shape, dtype=torch.int64) if ids is None else ids for ids, shape in given)
    # The states of padding are not used; without any key they would need a factor of their own.
    allowed = (queries[:, :, None] == keys[:, None, :]) | (queries < 0)[:, :, None]
    return _to_bias(allowed if is_hidden is None else allowed & ~is_hidden[:, None, :], torch.float32)


@dataclass
class AttentionMask:
    """Which positions attend to which in one forward pass, with its dropout and the encoder states of a decoder."""

    visibility: str
    """A name of `PREDICATES`."""
    shape: tuple[int, int]
    """Batch size and length."""
    sequence_ids: Tensor | None = None
    """See `Batch`, as for `attention_order` and `query_only`."""
    attention_order: Tensor | None = None
    rng: DropoutRng | None = None
    """In training."""
    encoder_states: EncoderStates | None = None
    query_only: Tensor | None = None
    drop_last: int = 0
    """Positions at the end that are not cached in decoding."""
    memory: SegmentMemory | None = None
    """The keys before those of the batch."""
    reach: int = 0
    """The number of tokens that a query attends to, itself included, at most; 0: any."""
    source_keys: SourceKeys | None = None
    """In decoding after the first step, instead of `encoder_states`."""
    segment_ids: Tensor | None = None
    """See `Batch`, as for `is_reversed`."""
    is_reversed: Tensor | None = None
    visible: Tensor | None = None
    """See `Batch`."""
    ends_with_query: bool = False
    """In decoding: whether the last position has no token of its own, and does not attend to itself."""
    entities: EntityInputs | None = None
    """The entities of the batch; None if it has none."""
    _biases: dict[torch.dtype, AttentionBias] = field(default_factory=dict)
    _entity_biases: dict[torch.dtype, AttentionBias] = field(default_factory=dict)

    @cached_property
    def allowed(self) -> Tensor | None:
        """(batch or 1, query, key): true where the query attends to the key; None if all attend to all."""
        allowed = self._allowed_inside()
        if self.memory is not None:
            inside = torch.ones(1, *self.shape[1:] * 2, dtype=torch.bool) if allowed is None else allowed
            allowed = torch.cat([self.memory.visible, inside.expand(self.shape[0], -1, -1)], 2)
        return allowed if not self.reach or allowed is None else allowed & within_reach(allowed, self.reach)

    def _allowed_inside(self) -> Tensor | None:
        """The same without the memory."""
        name = self.visibility
        if name == "bidirectional" and self.attention_order is not None:
            name = "causal"  # tokens of equal order attend to one another in both directions
        if name == "bidirectional" and self.sequence_ids is None and self.query_only is None:
            return self.visible
        order = torch.arange(self.shape[1])[None] if self.attention_order is None else self.attention_order
        allowed = PREDICATES[name](order[:, :, None], order[:, None, :])
        if self.sequence_ids is not None:
            allowed = allowed & (self.sequence_ids[:, :, None] == self.sequence_ids[:, None, :])
        if self.query_only is not None:
            allowed = allowed & (~self.query_only[:, None, :] | torch.eye(self.shape[1], dtype=torch.bool))
        return allowed if self.visible is None else allowed & self.visible

    def of_queries(self) -> AttentionMask:
        """The mask of queries that have no token: they attend to tokens that are before them."""
        return replace(self, visibility="before", _biases={})

    def bias(self, dtype: torch.dtype = torch.float32) -> AttentionBias:
        """The mask as a bias of attention scores, cached."""
        if dtype not in self._biases:
            self._biases[dtype] = _to_bias(self.allowed, dtype)
        return self._biases[dtype]

    def entity_bias(self, dtype: torch.dtype = torch.float32) -> AttentionBias:
        """The bias by which entities attend to those of their sequence, cached."""
        assert self.entities is not None
        if dtype not in self._entity_biases:
            mask = AttentionMask("bidirectional", self.shape, self.sequence_ids, query_only=~self.entities.is_slot)
            self._entity_biases[dtype] = mask.bias(dtype)
        return self._entity_biases[dtype]


def within_reach(scores: Tensor, reach: int) -> Tensor:
    """(query, key): whether a key is fewer than `reach` positions before a query; the last ones are the same token.

    >>> within_reach(torch.zeros(2, 4), 2).tolist()
    [[False, True, True, True], [False, False, True, True]]
    """
    queries, keys = scores.shape[-2:]
    distances = torch.arange(keys - queries, keys)[:, None] - torch.arange(keys)
    return distances < reach


def _to_bias(allowed: Tensor | None, dtype: torch.dtype) -> AttentionBias:
    if allowed is None:
        return AttentionBias(None)
    has_keys = allowed.any(-1, keepdim=True)
    bias = torch.zeros(allowed.shape, dtype=dtype, device=allowed.device)
    bias.masked_fill_(has_keys & ~allowed, -torch.inf)
    return AttentionBias(bias, None if bool(has_keys.all()) else has_keys.to(dtype))
