"""The span boundary objective (Joshi et al. 2020)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from firth.nets.batch import Batch, Loss
from firth.nets.dropout import DropoutRng
from firth.nets.linear import INIT_STD
from firth.nets.network import HiddenStates, Network, Vocabulary
from firth.nets.objective import Objective
from firth.nets.outputs.output import Transform
from firth.nets.outputs.softmax import cross_entropy
from firth.nets.recipe import NetRecipe
from firth.objectives.heads.head import ObjectiveHead
from firth.tokens.tokenizer import FIRST_WORD, MASK, UNK


class SpanBoundaryHead(ObjectiveHead):
    """-log p(w[i] | h[s - 1], h[e + 1], p[i - s]) for the tokens i of each masked span s..e (equation 1).

    Two layers with activation and normalisation map [h[s - 1]; h[e + 1]; p[i - s]] to a vector, whose products with the
    token embeddings, plus a bias of this objective, are the logits.
    """

    def __init__(
        self, objective: Objective, recipe: NetRecipe, vocabulary: Vocabulary, position_width: int, max_tokens: int
    ) -> None:
        super().__init__(objective, recipe, vocabulary)
        self.positions_in_span = nn.Embedding(max_tokens, position_width)
        nn.init.normal_(self.positions_in_span.weight, std=INIT_STD)
        self.first = Transform(recipe, 2 * recipe.width + position_width, recipe.width)
        self.second = Transform(recipe, recipe.width, recipe.embedding.width)
        self.bias = nn.Parameter(torch.zeros(len(vocabulary)))

    def corrupt(self, batch: Batch, rng: np.random.Generator) -> None:
        """Labels: the target tokens, their offsets in their spans, and the positions before and after these."""
        positions, targets = batch.labels["mlm.positions"], batch.labels["mlm.targets"]
        first, offsets, last = merged_spans(positions, batch.shape[1])
        is_kept = is_inside(batch, first, last) & (offsets < self.positions_in_span.num_embeddings)
        batch.labels["sbo.targets"] = targets[is_kept]
        batch.labels["sbo.offsets"] = offsets[is_kept]
        batch.labels["sbo.left"], batch.labels["sbo.right"] = first[is_kept] - 1, last[is_kept] + 1

    def positions(self, batch: Batch) -> Tensor:
        sides = torch.cat([batch.labels["sbo.left"], batch.labels["sbo.right"]])
        return sides.unique()  # type: ignore[no-any-return, no-untyped-call]

    def count(self, batch: Batch) -> int:
        return len(batch.labels["sbo.targets"])

    def flops_per_token(self, network: Network, length: int, counts: Mapping[str, float]) -> float:
        weights = self.first.dense.weight.numel() + self.second.dense.weight.numel()
        return 2.0 * counts[self.name] * (weights + self.vocabulary * self.second.dense.out_features)

    def loss(self, network: Network, states: HiddenStates, batch: Batch, rng: DropoutRng | None) -> Loss:
        left, right = (states.at(batch.labels[f"sbo.{side}"]) for side in ("left", "right"))
        offsets = self.positions_in_span(batch.labels["sbo.offsets"])
        hidden = self.second(self.first(torch.cat([left, right, offsets], -1)))
        total = cross_entropy(hidden, network.embedding.table, self.bias, batch.labels["sbo.targets"])
        return Loss(total, self.count(batch))


def merged_spans(positions: Tensor, length: int) -> tuple[Tensor, Tensor, Tensor]:
    """The first position of the span of each of some sorted positions, its offset there, and the last one.

    Adjacent spans of a row are one: a token that is masked itself bounds none. Rows have `length` positions.

    >>> [part.tolist() for part in merged_spans(torch.tensor([3, 4, 7, 8]), 8)]
    [[3, 3, 7, 8], [0, 1, 0, 0], [4, 4, 7, 8]]
    """
    starts = positions % length == 0
    starts[:1] = True
    starts[1:] |= positions[1:] != positions[:-1] + 1
    span = starts.cumsum(0) - 1
    first = positions[starts]
    last = first + torch.bincount(span, minlength=len(first)) - 1
    return first[span], positions - first[span], last[span]


def is_inside(batch: Batch, first: Tensor, last: Tensor) -> Tensor:
    """Which spans have a token of text of their own row before and after them.

    Special tokens are no boundaries: the spans at both ends of a sequence are left out, as in SpanBERT.
    """
    ids, length = batch.ids.flatten(), batch.shape[1]
    is_text = (ids >= FIRST_WORD) | (ids == UNK) | (ids == MASK)
    found = (first % length > 0) & (last % length < length - 1)
    return found & is_text[(first - 1).clamp(min=0)] & is_text[(last + 1).clamp(max=len(ids) - 1)]
