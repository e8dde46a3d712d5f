"""Sequence to sequence: the tokens of a target, given its source."""

from __future__ import annotations

import torch
from torch import Tensor

from firth.nets.batch import Batch, Loss
from firth.nets.dropout import DropoutRng
from firth.nets.network import HiddenStates, Network, Vocabulary
from firth.nets.outputs.softmax import LabelSmoothing, Softmax
from firth.nets.recipe import NetRecipe, Objective
from firth.objectives.heads.head import ObjectiveHead
from firth.tokens.tokenizer import EOS


class SequenceToSequenceHead(ObjectiveHead):
    """-log p(w[t] | w[1..t-1], source), the end of the target included; the input is `EOS w[1] ... w[n]`."""

    def __init__(
        self, objective: Objective, recipe: NetRecipe, vocabulary: Vocabulary, rate: float, over_all: bool
    ) -> None:
        """`rate` of label smoothing, `over_all` tokens or over all but the target."""
        super().__init__(objective, recipe, vocabulary)
        spread = LabelSmoothing.over_all if over_all else LabelSmoothing.over_others
        self.smoothing = spread(rate, len(vocabulary)) if rate else None

    def positions(self, batch: Batch) -> Tensor | None:
        if batch.sequence_ids is None:
            return None
        return (batch.sequence_ids >= 0).flatten().nonzero()[:, 0]

    def loss(self, network: Network, states: HiddenStates, batch: Batch, rng: DropoutRng | None) -> Loss:
        positions = self.positions(batch)
        if positions is None:
            positions = torch.arange(batch.ids.numel())
        found, targets = states.at(positions), next_tokens(batch).flatten()[positions]
        if self.smoothing is not None and rng is not None and isinstance(network.output, Softmax):
            total = network.output.smoothed_loss(found, targets, self.smoothing)
        else:  # the loss of validation is that of the model's probabilities
            total = network.output.loss(found, targets, batch.ids.flatten()[positions], rng)
        return Loss(total, len(positions))


def next_tokens(batch: Batch) -> Tensor:
    """(batch, length): the token after each one in its sequence, `EOS` after the last.

    >>> ids = torch.tensor([[3, 7, 8, 3, 9, 0]])
    >>> next_tokens(Batch(ids, ids > 0, torch.tensor([[0, 0, 0, 1, 1, -1]]))).tolist()
    [[7, 8, 3, 9, 3, 3]]
    """
    found = torch.full_like(batch.ids, EOS)
    found[:, :-1] = batch.ids[:, 1:]
    if batch.sequence_ids is not None:
        found[:, :-1].masked_fill_(batch.sequence_ids[:, 1:] != batch.sequence_ids[:, :-1], EOS)
    return found
