"""Attention with several heads: softmax(Q K' / sqrt(D) + hidden) V (Vaswani et al. 2017, equation 1).

R rows, A places that ask, L places that are seen, H heads of D numbers, W = H D numbers of a state.
"""

from __future__ import annotations

import math
from typing import Any, cast

import torch
import torch.nn.functional as f
from torch import Tensor

from firth.nets.noise import Noise
from firth.nets.visibility import Sight

_SMALL = 1 << 19  # multiplications for a row, below which calls for each row take longer than copies of all rows


def attend(
    asking: Tensor | None, seen: Tensor, heads: int, sight: Sight, rate: float = 0.0, noise: Noise | None = None
) -> Tensor:
    """(R, A, W): for every place that asks, the values of what it sees, by weight.

    `asking` has the queries (R, A, W), `seen` keys and values side by side (R, L, 2 W); without `asking` it has the
    queries of the same places before them (R, L, 3 W). With noise some of the weights are dropped.
    """
    views = _views(asking, seen, heads)
    if noise is None and not (torch.is_grad_enabled() and seen.requires_grad):
        return look(*views, sight)
    shape = *views[0].shape[:3], seen.shape[1]
    mask = None if noise is None or rate == 0 else noise.mask(shape, rate, seen.dtype).to(seen.device)
    if shape[1] * shape[2] * shape[3] * views[0].shape[3] <= _SMALL or seen.is_cuda:
        found = _attend_all(*views, sight.hidden, mask)
    else:
        found = cast(Tensor, _Attend.apply(asking, seen, heads, sight.hidden, mask))  # type: ignore[no-untyped-call]
    return found if sight.sees is None else found * sight.sees


def look(queries: Tensor, keys: Tensor, values: Tensor, sight: Sight) -> Tensor:
    """(R, A, W) from queries (R, H, A, D), keys and values (R, H, L, D): attention without learning."""
    hidden = None if sight.hidden is None else sight.hidden[:, None]
    found = _joined(f.scaled_dot_product_attention(queries, keys, values, attn_mask=hidden)[None])
    return found if sight.sees is None else found * sight.sees


def split(states: Tensor, heads: int, parts: int) -> Tensor:
    """(R, L, parts W) seen as (parts, R, H, L, D)."""
    rows, length = states.shape[:2]
    return states.view(rows, length, parts, heads, -1).permute(2, 0, 3, 1, 4)


def _joined(parts: Tensor) -> Tensor:
    """The inverse of `split`."""
    return parts.permute(1, 3, 0, 2, 4).flatten(2)


def _views(asking: Tensor | None, seen: Tensor, heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values."""
    if asking is None:
        queries, keys, values = split(seen, heads, 3)
    else:
        (queries,), (keys, values) = split(asking, heads, 1), split(seen, heads, 2)
    return queries, keys, values


class _Attend(torch.autograd.Function):
    """Row by row: the weights of a row stay near the processor, and nothing is copied to be multiplied.

    With P = softmax(S), the mask M of dropout and O = (P M) V: dV = (P M)' dO, dP = (dO V') M and
    dS = P (dP - sum over keys of dP P).
    """

    @staticmethod
    def forward(
        ctx: Any, asking: Tensor | None, seen: Tensor, heads: int, hidden: Tensor | None, mask: Tensor | None
    ) -> Tensor:
        queries, keys, values = _views(asking, seen, heads)
        rows, _, asked, size = queries.shape
        weights = seen.new_empty(rows, heads, asked, seen.shape[1])
        found = split(seen.new_empty(rows, asked, heads * size), heads, 1)
        hidden = None if hidden is None else hidden.expand(rows, -1, -1)
        beta, scale = float(hidden is not None), 1 / math.sqrt(size)
        for row, scores in enumerate(weights):
            added = scores if hidden is None else hidden[row].expand_as(scores)
            torch.baddbmm(added, queries[row], keys[row].mT, beta=beta, alpha=scale, out=scores)
            torch.softmax(scores, -1, out=scores)
            found[0, row] = torch.bmm(scores if mask is None else scores * mask[row], values[row])
        ctx.save_for_backward(asking, seen, weights, mask)
        return _joined(found)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor, None, None, None]:
        asking, seen, weights, mask = ctx.saved_tensors
        heads = weights.shape[1]
        queries, keys, values = _views(asking, seen, heads)
        d_asking = None if asking is None else torch.empty_like(asking)
        d_seen = torch.empty_like(seen)
        d_queries, d_keys, d_values = _views(d_asking, d_seen, heads)
        (d_found,) = split(gradient.contiguous(), heads, 1)
        scale = 1 / math.sqrt(queries.shape[-1])
        for row, kept in enumerate(weights):
            # What is multiplied is made whole before it is put into its place: that is where all heads go at once.
            d_values[row] = torch.bmm((kept if mask is None else kept * mask[row]).mT, d_found[row])
            d_kept = torch.bmm(d_found[row], values[row].mT)
            if mask is not None:
                d_kept *= mask[row]
            d_scores = torch._softmax_backward_data(d_kept, kept, -1, kept.dtype)
            d_scores *= scale
            d_queries[row] = torch.bmm(d_scores, keys[row])
            d_keys[row] = torch.bmm(d_scores.mT, queries[row])
        return d_asking, d_seen, None, None, None


def _attend_all(q: Tensor, k: Tensor, v: Tensor, hidden: Tensor | None, mask: Tensor | None) -> Tensor:
    """The same with all rows at once."""
    scores = (q * (1 / math.sqrt(q.shape[-1]))) @ k.mT
    if hidden is not None:
        scores = scores + hidden[:, None]
    weights = scores.softmax(-1)
    return _joined(((weights if mask is None else weights * mask) @ v)[None])
