"""Attention whose scores have terms beside the product of queries and keys, with gradients.

softmax(scale (Q K' + shift(P R')) + scores + mask) V. P are queries for positions and R vectors of distances (Dai et
al. 2019, equation in section 3.3); `scores` are further terms, such as a table of distances in buckets.

B batch size, Q queries, L keys, N distances, H heads of size D, W = H D hidden width.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as f
from torch import Tensor

from firth.nets.dropout import DropoutRng
from firth.nets.encoders.attention import split_heads
from firth.nets.visibility import AttentionBias

_CHUNK = 1 << 18  # attention weights computed at a time, so that they stay in the processor's cache: 1 MB


class DistanceTerms(NamedTuple):
    """The terms of attention scores that depend on the distance between query and key."""

    queries: Tensor
    """(B, Q, W): queries for distances."""
    vectors: Tensor
    """(N, W): a vector for each distance, from that of the last query to the first key, L - 1, downwards. There are at
    least L + 1, unless there is a single query."""
    first: int
    """The number of keys after the first query: its distance to key j is L - 1 - first - j."""
    columns: Tensor | None = None
    """(B, Q): how many positions each query is after the first one; None: one after another."""


def biased_attention(
    queries: Tensor,
    keys_values: Tensor,
    heads: int,
    bias: AttentionBias,
    scale: float,
    distances: DistanceTerms | None = None,
    scores: Tensor | None = None,
    rate: float = 0.0,
    rng: DropoutRng | None = None,
) -> Tensor:
    """(B, Q, W): attention of `queries` (B, Q, W) to concatenated keys and values (B, L, 2 W).

    `scores` (B or 1, H or 1, Q, L) are added to the scaled scores and have a gradient. With `rng` attention weights are
    dropped at `rate`.
    """
    wants_gradient = torch.is_grad_enabled() and any(
        each is not None and each.requires_grad for each in (queries, keys_values, scores)
    )
    if rng is None and not wants_gradient:
        keys, values = split_heads(keys_values, heads, 2)
        return infer_biased_attention(split_heads(queries, heads, 1)[0], keys, values, bias, scale, distances, scores)
    mask = None
    if rng is not None and rate > 0:
        shape = (queries.shape[0], heads, queries.shape[1], keys_values.shape[1])
        mask = rng.mask(shape, rate, keys_values.dtype).to(keys_values.device)
    terms = (None, None, 0, None) if distances is None else distances
    attended = _BiasedAttention.apply(queries, keys_values, *terms, scores, heads, scale, bias.bias, mask)  # type: ignore[no-untyped-call]
    return cast(Tensor, attended if bias.query_scale is None else attended * bias.query_scale)


def infer_biased_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    bias: AttentionBias,
    scale: float,
    distances: DistanceTerms | None = None,
    scores: Tensor | None = None,
) -> Tensor:
    """(B, Q, W) from queries (B, H, Q, D), keys and values (B, H, L, D), without gradients."""
    rows, heads, count, size = queries.shape
    added = None if bias.bias is None else bias.bias[:, None]
    if distances is not None:
        split = split_heads(distances.queries, heads, 1)[0]
        raw = torch.matmul(split, _split_vectors(distances.vectors, heads).mT)
        shifted = shift(raw.flatten(0, 1), keys.shape[2], distances.first, _repeat_heads(distances.columns, heads))
        shifted = scale * shifted.view(rows, heads, count, -1)
        added = shifted if added is None else shifted + added
    if scores is not None:
        added = scores if added is None else added + scores
    attended = f.scaled_dot_product_attention(queries, keys, values, attn_mask=added, scale=scale)
    attended = attended.transpose(1, 2).reshape(rows, count, heads * size)
    return attended if bias.query_scale is None else attended * bias.query_scale


def shift(raw: Tensor, keys: int, first: int, columns: Tensor | None = None) -> Tensor:
    """(rows, Q, L): entry (i, j) is entry (i, first - i + j) of `raw` (rows, Q, N), without a copy.

    The scores of query i by distance begin `i` columns earlier than those of the first query. Entries of distances
    below the last one are arbitrary: they are those of keys that are masked.

    >>> shift(torch.arange(8).view(1, 2, 4), 3, 1).tolist()
    [[[1, 2, 3], [4, 5, 6]]]
    """
    rows, count, distances = raw.shape
    if columns is not None:
        return raw.gather(2, _indices(columns, keys, first, distances))
    raw = raw.contiguous()
    offset = raw.storage_offset() + first
    return raw.as_strided((rows, count, keys), (count * distances, distances - 1, 1), offset)


def _unshift(d_shifted: Tensor, distances: int, first: int, columns: Tensor | None) -> Tensor:
    """The gradient of `raw` from that of `shift`, which is 0 for arbitrary entries."""
    rows, count, keys = d_shifted.shape
    d_raw = d_shifted.new_zeros(rows, count, distances)
    if columns is not None:
        return d_raw.scatter_add_(2, _indices(columns, keys, first, distances), d_shifted)
    d_raw.as_strided((rows, count, keys), (count * distances, distances - 1, 1), first).copy_(d_shifted)
    return d_raw


def _indices(columns: Tensor, keys: int, first: int, distances: int) -> Tensor:
    found = first - columns[:, :, None] + torch.arange(keys, device=columns.device)
    return found.clamp_(0, distances - 1)


def _split_vectors(vectors: Tensor, heads: int) -> Tensor:
    """(N, W) viewed as (H, N, D)."""
    return vectors.view(len(vectors), heads, -1).transpose(0, 1)


def _repeat_heads(columns: Tensor | None, heads: int) -> Tensor | None:
    return None if columns is None else columns.repeat_interleave(heads, 0)


class _BiasedAttention(torch.autograd.Function):
    """Some rows at a time, as in `attention._Attention`; no tensor has queries x keys x width entries.

    With S = scale (Q K' + shift(P R')) + T, dT = dS, dQ = scale dS K, dK = scale dS' Q, and with U the scaled dS moved
    back by the shift, dP = U R and dR = U' P.
    """

    @staticmethod
    def forward(
        ctx: Any,
        queries: Tensor,
        keys_values: Tensor,
        position_queries: Tensor | None,
        vectors: Tensor | None,
        first: int,
        columns: Tensor | None,
        scores: Tensor | None,
        heads: int,
        scale: float,
        bias: Tensor | None,
        mask: Tensor | None,
    ) -> Tensor:
        rows, count, width = queries.shape
        keys = keys_values.shape[1]
        weights = queries.new_empty(rows, heads, count, keys)
        attended = queries.new_empty(rows, count, width)
        for some in _chunks(weights):
            q, (k, v) = _split(queries[some], heads)[0], _split(keys_values[some], heads, 2)
            made = weights[some].flatten(0, 1)
            torch.baddbmm(made, q, k.mT, beta=0, alpha=scale, out=made)
            if position_queries is not None and vectors is not None:
                p, r = _split(position_queries[some], heads)[0], _repeat(vectors, heads, len(weights[some]))
                by_key = shift(torch.bmm(p, r.mT), keys, first, _of_rows(columns, some, heads))
                made.add_(by_key, alpha=scale)
            for more in (scores, None if bias is None else bias[:, None]):
                if more is not None:
                    weights[some] += more[some] if len(more) > 1 else more
            torch.softmax(made, -1, out=made)
            used = made if mask is None else made * mask[some].flatten(0, 1)
            _split_view(attended[some], heads).copy_(torch.bmm(used, v).view(-1, heads, count, width // heads))
        ctx.save_for_backward(queries, keys_values, position_queries, vectors, columns, weights, mask)
        ctx.first, ctx.scale = first, scale
        ctx.scores = None if scores is None else scores.shape
        return attended

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        queries, keys_values, position_queries, vectors, columns, weights, mask = ctx.saved_tensors
        heads = weights.shape[1]
        d_queries, d_keys_values = torch.empty_like(queries), torch.empty_like(keys_values)
        d_positions = d_vectors = None
        if vectors is not None:
            d_positions, d_vectors = torch.empty_like(position_queries), torch.zeros_like(vectors)
        d_scores = None if ctx.scores is None else weights.new_zeros(ctx.scores)
        for some in _chunks(weights):
            q, (k, v) = _split(queries[some], heads)[0], _split(keys_values[some], heads, 2)
            d_out, p = _split(gradient[some], heads)[0], weights[some].flatten(0, 1)
            dropped = None if mask is None else mask[some].flatten(0, 1)
            d_v = torch.bmm((p if dropped is None else p * dropped).mT, d_out)
            d_p = torch.bmm(d_out, v.mT)
            if dropped is not None:
                d_p *= dropped
            d_s = torch._softmax_backward_data(d_p, p, -1, p.dtype)
            if d_scores is not None:
                own = d_s.view(weights[some].shape)
                d_scores[some if len(d_scores) > 1 else slice(None)] += own.sum_to_size(
                    (len(own) if len(d_scores) > 1 else 1, *d_scores.shape[1:])
                )
            d_s *= ctx.scale
            _join(torch.bmm(d_s, k)[None], d_queries[some], heads)
            _join(torch.stack([torch.bmm(d_s.mT, q), d_v]), d_keys_values[some], heads)
            if d_positions is not None and d_vectors is not None:
                moved = _unshift(d_s, len(vectors), ctx.first, _of_rows(columns, some, heads))
                count = len(weights[some])
                _join(torch.bmm(moved, _repeat(vectors, heads, count))[None], d_positions[some], heads)
                by_row = torch.bmm(moved.mT, _split(position_queries[some], heads)[0])
                d_vectors += by_row.view(count, heads, *by_row.shape[1:]).sum(0).transpose(0, 1).flatten(1)
        return d_queries, d_keys_values, d_positions, d_vectors, None, None, d_scores, None, None, None, None


def _chunks(weights: Tensor) -> Iterator[slice]:
    step = max(1, _CHUNK // max(1, weights[0].numel()))
    return (slice(start, min(start + step, len(weights))) for start in range(0, len(weights), step))


def _split_view(states: Tensor, heads: int) -> Tensor:
    """(rows, length, W) viewed as (rows, H, length, D)."""
    return split_heads(states, heads, 1)[0]


def _split(states: Tensor, heads: int, parts: int = 1) -> Tensor:
    """(rows, length, parts W) copied to (parts, rows H, length, D)."""
    return split_heads(states, heads, parts).flatten(1, 2)


def _join(parts: Tensor, out: Tensor, heads: int) -> None:
    """Write (parts, rows H, length, D) to (rows, length, parts W)."""
    split_heads(out, heads, len(parts)).copy_(parts.view(len(parts), len(out), heads, *parts.shape[2:]))


def _repeat(vectors: Tensor, heads: int, rows: int) -> Tensor:
    """(N, W) copied to (rows H, N, D)."""
    return _split_vectors(vectors, heads).repeat(rows, 1, 1)


def _of_rows(columns: Tensor | None, rows: slice, heads: int) -> Tensor | None:
    return None if columns is None else _repeat_heads(columns[rows], heads)
