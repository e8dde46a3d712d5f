"""The losses of distillation: soft labels, hidden states, attention scores and relations of a teacher.

B batch size, L length, H heads of size D. Each loss is a mean, zero if the student equals the teacher.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as f
from torch import Tensor


def soft_labels(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """T^2 KL(p || q), p and q the softmax of the teacher's and the student's logits / T (Hinton et al. 2015).

    The factor keeps the size of gradients whatever the temperature.

    >>> logits = torch.tensor([[2.0, 0.0]])
    >>> float(soft_labels(logits, logits, 2.0))
    0.0
    """
    target, found = (one.div(temperature).log_softmax(-1) for one in (teacher, student))
    return temperature**2 * f.kl_div(found, target, reduction="batchmean", log_target=True)


def matched_scores(student: Tensor, teacher: Tensor) -> Tensor:
    """The mean squared difference of scores, for numbers and independent labels (Ba and Caruana 2014)."""
    return f.mse_loss(student, teacher)


def hidden_mse(student: Tensor, teacher: Tensor) -> Tensor:
    """The mean squared difference of hidden states (positions, width) (Jiao et al. 2020, equation 8)."""
    return f.mse_loss(student, teacher)


def hidden_cosine(student: Tensor, teacher: Tensor) -> Tensor:
    """1 - the mean cosine of hidden states (positions, width) (Sanh et al. 2019)."""
    return 1 - f.cosine_similarity(student, teacher, dim=-1).mean()


def attention_scores(queries: Tensor, keys: Tensor) -> Tensor:
    """(B, H, L, L): Q K' / sqrt(D) of (B, H, L, D), before the softmax."""
    return queries @ keys.mT / math.sqrt(queries.shape[-1])


def attention_mse(student: Tensor, teacher: Tensor, visible: Tensor) -> Tensor:
    """The mean squared difference of attention scores (B, H, L, L) where `visible` (B, L, L) (Jiao et al. 2020).

    With different numbers of heads, the means over heads are compared.
    """
    if student.shape[1] != teacher.shape[1]:
        student, teacher = (one.mean(1, keepdim=True) for one in (student, teacher))
    difference = (student - teacher).square().masked_fill(~visible[:, None], 0.0)
    return difference.sum() / (visible.sum() * student.shape[1]).clamp(min=1)


def relation_kl(student: Tensor, teacher: Tensor, visible: Tensor, heads: int) -> Tensor:
    """The mean KL of the self-relations of vectors (B, L, width), split into `heads` (Wang et al. 2021, MiniLM v2).

    The relation of queries, say, is softmax(A A' / sqrt(D)) over the `visible` (B, L, L) positions. Widths may differ,
    since each is split into the same number of heads.
    """
    target, found = (_relations(one, visible, heads) for one in (teacher, student))
    terms = torch.where(visible[:, None], target.exp() * (target - found), 0.0).sum(-1)
    rows = visible.any(-1)  # queries that are no padding
    return (terms * rows[:, None]).sum() / (rows.sum() * heads).clamp(min=1)


def _relations(vectors: Tensor, visible: Tensor, heads: int) -> Tensor:
    """(B, heads, L, L): logarithms of relations; finite where nothing is visible."""
    batch, length, _ = vectors.shape
    split = vectors.view(batch, length, heads, -1).transpose(1, 2)
    scores = attention_scores(split, split)
    return scores.masked_fill(~visible[:, None], torch.finfo(scores.dtype).min).log_softmax(-1)
