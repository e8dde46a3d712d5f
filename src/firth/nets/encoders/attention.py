"""Multi-head attention: softmax(Q K' / sqrt(D) + bias) V (Vaswani et al. 2017, equation 1).

B batch size, Q queries, L keys, H heads of size D, W = H D hidden width.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, cast

import torch
import torch.nn.functional as f
from torch import Tensor, nn

from firth.nets.dropout import DropoutRng
from firth.nets.linear import linear
from firth.nets.visibility import AttentionBias

_CHUNK = 1 << 18  # attention weights computed at a time, so that they stay in the processor's cache: 1 MB


def multi_head_attention(
    queries: Tensor | None,
    keys_values: Tensor,
    heads: int,
    bias: AttentionBias,
    rate: float = 0.0,
    rng: DropoutRng | None = None,
) -> Tensor:
    """(B, Q, W): attention of `queries` (B, Q, W) to concatenated keys and values (B, L, 2 W).

    Without `queries` the keys and values have the queries of the same positions before them (B, L, 3 W). With `rng`
    attention weights are dropped at `rate`.
    """
    if rng is None and not (torch.is_grad_enabled() and keys_values.requires_grad):
        q, k, v = (part for parts in _split_both(queries, keys_values, heads) for part in parts)
        return infer_attention(q, k, v, bias)
    rows, length = keys_values.shape[:2]
    count = length if queries is None else queries.shape[1]
    mask = None
    if rng is not None and rate > 0:
        mask = rng.mask((rows, heads, count, length), rate, keys_values.dtype).to(keys_values.device)
    attended = _Attention.apply(queries, keys_values, heads, bias.bias, mask)  # type: ignore[no-untyped-call]
    return cast(Tensor, attended if bias.query_scale is None else attended * bias.query_scale)


def infer_attention(queries: Tensor, keys: Tensor, values: Tensor, bias: AttentionBias) -> Tensor:
    """(B, Q, W) from queries (B, H, Q, D), keys and values (B, H, L, D), without gradients."""
    added = None if bias.bias is None else bias.bias[:, None]
    attended = _join_heads(f.scaled_dot_product_attention(queries, keys, values, attn_mask=added)[None])
    return attended if bias.query_scale is None else attended * bias.query_scale


def project_apart(qkv: nn.Linear, queries: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
    """The queries of some positions, and the concatenated keys and values of all, by one layer for the three."""
    width = qkv.weight.shape[0] // 3
    made = linear(queries, qkv.weight, qkv.bias, slice(0, width))
    return made, linear(states, qkv.weight, qkv.bias, slice(width, None))


def split_heads(states: Tensor, heads: int, parts: int) -> Tensor:
    """(B, L, parts W) viewed as (parts, B, H, L, D)."""
    rows, length = states.shape[:2]
    return states.view(rows, length, parts, heads, -1).permute(2, 0, 3, 1, 4)


def _join_heads(parts: Tensor) -> Tensor:
    """The inverse of `split_heads`."""
    return parts.permute(1, 3, 0, 2, 4).flatten(2)


def _split_both(queries: Tensor | None, keys_values: Tensor, heads: int) -> list[Tensor]:
    """Queries, then keys and values; or all three together."""
    if queries is None:
        return [split_heads(keys_values, heads, 3)]
    return [split_heads(queries, heads, 1), split_heads(keys_values, heads, 2)]


class _Attention(torch.autograd.Function):
    """Some rows at a time, whose weights are used again while they are in the cache.

    With P = softmax(S), the mask M of dropout and O = (P M) V: dV = (P M)' dO, dP = (dO V') M and
    dS = P (dP - sum over keys of dP P).
    """

    @staticmethod
    def forward(
        ctx: Any, queries: Tensor | None, keys_values: Tensor, heads: int, bias: Tensor | None, mask: Tensor | None
    ) -> Tensor:
        first, *rest = _split_both(queries, keys_values, heads)
        rows, _, count, size = first.shape[1:]
        weights = keys_values.new_empty(rows, heads, count, keys_values.shape[1])
        attended = split_heads(keys_values.new_empty(rows, count, heads * size), heads, 1)
        for some in _chunks(weights):
            q, k, v = _contiguous(first, rest, some)
            scores = weights[some].flatten(0, 1)
            torch.baddbmm(scores, q, k.mT, beta=0, alpha=1 / math.sqrt(size), out=scores)
            if bias is not None:
                weights[some] += bias[some if len(bias) > 1 else slice(None), None]
            torch.softmax(scores, -1, out=scores)
            used = scores if mask is None else scores * mask[some].flatten(0, 1)
            attended[0, some] = torch.bmm(used, v).view(-1, heads, count, size)
        ctx.save_for_backward(queries, keys_values, weights, mask)
        return _join_heads(attended)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor, None, None, None]:
        queries, keys_values, weights, mask = ctx.saved_tensors
        heads = weights.shape[1]
        first, *rest = _split_both(queries, keys_values, heads)
        d_queries = None if queries is None else torch.empty_like(queries)
        d_keys_values = torch.empty_like(keys_values)
        d_parts = [part for parts in _split_both(d_queries, d_keys_values, heads) for part in parts]
        d_attended = split_heads(gradient.contiguous(), heads, 1)
        for some in _chunks(weights):
            q, k, v = _contiguous(first, rest, some)
            (d_out,) = _contiguous(d_attended, [], some)
            p = weights[some].flatten(0, 1)
            dropped = None if mask is None else mask[some].flatten(0, 1)
            d_v = torch.bmm((p if dropped is None else p * dropped).mT, d_out)
            d_p = torch.bmm(d_out, v.mT)
            if dropped is not None:
                d_p *= dropped
            d_scores = torch._softmax_backward_data(d_p, p, -1, p.dtype)
            d_scores *= 1 / math.sqrt(q.shape[-1])
            for part, made in zip(d_parts, (torch.bmm(d_scores, k), torch.bmm(d_scores.mT, q), d_v), strict=True):
                part[some] = made.view(-1, heads, *made.shape[1:])
        return d_queries, d_keys_values, None, None, None


def _chunks(weights: Tensor) -> Iterator[slice]:
    step = max(1, _CHUNK // max(1, weights[0].numel()))
    return (slice(start, start + step) for start in range(0, len(weights), step))


def _contiguous(first: Tensor, rest: list[Tensor], rows: slice) -> list[Tensor]:
    """The parts of some rows, copied so that all heads of all rows are multiplied in one call: (rows H, L, D)."""
    return [part for parts in (first, *rest) for part in parts[:, rows].flatten(1, 2)]
