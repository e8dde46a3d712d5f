"""Attention with several heads: softmax(Q K' / sqrt(D) + hidden) V (Vaswani et al. 2017, equation 1).

R rows, A places that ask, L places that are seen, H heads of D numbers, W = H D numbers of a state.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, cast

import torch
import torch.nn.functional as f
from torch import Tensor

from firth.nets.noise import Noise
from firth.nets.visibility import Sight

_WEIGHTS = 1 << 18  # that are made at a time, so that they stay near the processor: 1 MB


def attend(
    asking: Tensor | None, seen: Tensor, heads: int, sight: Sight, rate: float = 0.0, noise: Noise | None = None
) -> Tensor:
    """(R, A, W): for every place that asks, the values of what it sees, by weight.

    `asking` has the queries (R, A, W), `seen` keys and values side by side (R, L, 2 W); without `asking` it has the
    queries of the same places before them (R, L, 3 W). With noise some of the weights are dropped.
    """
    if noise is None and not (torch.is_grad_enabled() and seen.requires_grad):
        queries, keys, values = (part for parts in _split_both(asking, seen, heads) for part in parts)
        return look(queries, keys, values, sight)
    rows, length = seen.shape[:2]
    asked = length if asking is None else asking.shape[1]
    mask = None
    if noise is not None and rate > 0:
        mask = noise.mask((rows, heads, asked, length), rate, seen.dtype).to(seen.device)
    found = cast(Tensor, _Attend.apply(asking, seen, heads, sight.hidden, mask))  # type: ignore[no-untyped-call]
    return found if sight.sees is None else found * sight.sees


def look(queries: Tensor, keys: Tensor, values: Tensor, sight: Sight) -> Tensor:
    """(R, A, W) from queries (R, H, A, D), keys and values (R, H, L, D): attention without learning."""
    hidden = None if sight.hidden is None else sight.hidden[:, None]
    found = _join(f.scaled_dot_product_attention(queries, keys, values, attn_mask=hidden)[None])
    return found if sight.sees is None else found * sight.sees


def split(states: Tensor, heads: int, parts: int) -> Tensor:
    """(R, L, parts W) seen as (parts, R, H, L, D)."""
    rows, length = states.shape[:2]
    return states.view(rows, length, parts, heads, -1).permute(2, 0, 3, 1, 4)


def _join(parts: Tensor) -> Tensor:
    """The inverse of `split`."""
    return parts.permute(1, 3, 0, 2, 4).flatten(2)


def _split_both(asking: Tensor | None, seen: Tensor, heads: int) -> list[Tensor]:
    """Queries, then keys and values; or all three together."""
    return [split(seen, heads, 3)] if asking is None else [split(asking, heads, 1), split(seen, heads, 2)]


class _Attend(torch.autograd.Function):
    """Some rows at a time: what is made of them is used again while it is near the processor.

    With P = softmax(S), the mask M of dropout and O = (P M) V: dV = (P M)' dO, dP = (dO V') M and
    dS = P (dP - sum over keys of dP P).
    """

    @staticmethod
    def forward(
        ctx: Any, asking: Tensor | None, seen: Tensor, heads: int, hidden: Tensor | None, mask: Tensor | None
    ) -> Tensor:
        first, *rest = _split_both(asking, seen, heads)
        rows, _, asked, size = first.shape[1:]
        weights = seen.new_empty(rows, heads, asked, seen.shape[1])
        found = split(seen.new_empty(rows, asked, heads * size), heads, 1)
        for some in _groups(weights):
            q, k, v = _whole(first, rest, some)
            scores = weights[some].flatten(0, 1)
            torch.baddbmm(scores, q, k.mT, beta=0, alpha=1 / math.sqrt(size), out=scores)
            if hidden is not None:
                weights[some] += hidden[some if len(hidden) > 1 else slice(None), None]
            torch.softmax(scores, -1, out=scores)
            used = scores if mask is None else scores * mask[some].flatten(0, 1)
            found[0, some] = torch.bmm(used, v).view(-1, heads, asked, size)
        ctx.save_for_backward(asking, seen, weights, mask)
        return _join(found)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor, None, None, None]:
        asking, seen, weights, mask = ctx.saved_tensors
        heads = weights.shape[1]
        first, *rest = _split_both(asking, seen, heads)
        d_asking, d_seen = None if asking is None else torch.empty_like(asking), torch.empty_like(seen)
        d_parts = [part for parts in _split_both(d_asking, d_seen, heads) for part in parts]
        d_found = split(gradient.contiguous(), heads, 1)
        for some in _groups(weights):
            q, k, v = _whole(first, rest, some)
            (d_out,) = _whole(d_found, [], some)
            kept = weights[some].flatten(0, 1)
            dropped = None if mask is None else mask[some].flatten(0, 1)
            d_v = torch.bmm((kept if dropped is None else kept * dropped).mT, d_out)
            d_kept = torch.bmm(d_out, v.mT)
            if dropped is not None:
                d_kept *= dropped
            d_scores = torch._softmax_backward_data(d_kept, kept, -1, kept.dtype)
            d_scores *= 1 / math.sqrt(q.shape[-1])
            for part, made in zip(d_parts, (torch.bmm(d_scores, k), torch.bmm(d_scores.mT, q), d_v), strict=True):
                part[some] = made.view(-1, heads, *made.shape[1:])
        return d_asking, d_seen, None, None, None


def _groups(weights: Tensor) -> Iterator[slice]:
    """As many rows at a time as have weights enough."""
    step = max(1, _WEIGHTS // max(1, weights[0].numel()))
    return (slice(start, start + step) for start in range(0, len(weights), step))


def _whole(first: Tensor, rest: list[Tensor], rows: slice) -> list[Tensor]:
    """The parts of some rows, copied to where all heads of all rows can be multiplied in one call: (rows H, L, D)."""
    return [part for parts in (first, *rest) for part in parts[:, rows].flatten(1, 2)]
