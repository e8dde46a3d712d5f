"""Causal language modelling, and sequence autoencoding with the same loss."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from firth.errors import RecipeError
from firth.nets.batch import Batch, Loss
from firth.nets.dropout import DropoutRng
from firth.nets.network import HiddenStates, Network, Vocabulary
from firth.nets.objective import Objective
from firth.nets.recipe import NetRecipe
from firth.objectives.heads.head import ObjectiveHead
from firth.objectives.sequences import Sequences

_ACTIVATION, _TEMPORAL = "activation", "temporal"  # the names of penalties among the losses


class CausalLMHead(ObjectiveHead):
    """-log p(w[t + 1] | w[1..t]) at all positions of a sequence but the last; ends of sentences are tokens, too.

    In training penalties may be added: the mean square of the elements of m * h[t], where m is the dropout mask, and of
    h[t + 1] - h[t], without a mask (Merity et al. 2018, 4.6).
    """

    def __init__(
        self,
        objective: Objective,
        recipe: NetRecipe,
        vocabulary: Vocabulary,
        activation_penalty: float = 0.0,
        temporal_penalty: float = 0.0,
    ) -> None:
        super().__init__(objective, recipe, vocabulary)
        given = {_ACTIVATION: activation_penalty, _TEMPORAL: temporal_penalty}
        self.penalties = {name: factor for name, factor in given.items() if factor}

    def positions(self, batch: Batch) -> Tensor:
        return positions_with_next(batch)

    def loss(self, network: Network, states: HiddenStates, batch: Batch, rng: DropoutRng | None) -> Loss:
        positions, ids = self.positions(batch), batch.ids.flatten()
        total = network.output.loss(states.at(positions), ids[positions + 1], ids[positions], rng)
        return Loss(total, len(positions))

    def counts(self, batch: Batch) -> dict[str, int]:
        return super().counts(batch) | dict.fromkeys(self.penalties, self.count(batch))

    def losses(self, network: Network, states: HiddenStates, batch: Batch, rng: DropoutRng | None) -> dict[str, Loss]:
        found = super().losses(network, states, batch, rng)
        if rng is None:  # validation measures the predictions alone
            return found
        positions, raw = self.positions(batch), states.layers[-1].flatten(0, 1)
        if _ACTIVATION in self.penalties:
            found[_ACTIVATION] = Loss(states.at(positions).square().mean(1).sum(), len(positions))
        if _TEMPORAL in self.penalties:
            found[_TEMPORAL] = Loss((raw[positions + 1] - raw[positions]).square().mean(1).sum(), len(positions))
        return found

    def weights(self, progress: float) -> dict[str, float]:
        own = super().weights(progress)
        return own | {name: factor * own[self.name] for name, factor in self.penalties.items()}


def positions_with_next(batch: Batch) -> Tensor:
    """The positions that are followed by a token of the same sequence.

    >>> sequence_ids = torch.tensor([[0, 0, 1, 1, -1], [0, 0, 0, 0, 0]])
    >>> positions_with_next(Batch(sequence_ids, sequence_ids == 0, sequence_ids)).tolist()
    [0, 2, 5, 6, 7, 8]
    """
    has_next = torch.ones_like(batch.ids, dtype=torch.bool)
    has_next[:, -1] = False
    if batch.sequence_ids is not None:
        before, after = batch.sequence_ids[:, :-1], batch.sequence_ids[:, 1:]
        has_next[:, :-1] = (after == before) & (after >= 0)
    return has_next.flatten().nonzero()[:, 0]


def first_positions(batch: Batch) -> Tensor:
    """The first position of each sequence of a batch.

    >>> sequence_ids = torch.tensor([[0, 0, 1, 1, -1], [0, 0, 0, 0, 1]])
    >>> first_positions(Batch(sequence_ids, sequence_ids == 0, sequence_ids)).tolist()
    [0, 2, 5, 9]
    """
    is_first = torch.zeros_like(batch.ids, dtype=torch.bool)
    is_first[:, 0] = True
    if batch.sequence_ids is not None:
        is_first[:, 1:] = batch.sequence_ids[:, 1:] != batch.sequence_ids[:, :-1]
        is_first &= batch.sequence_ids >= 0
    return is_first.flatten().nonzero()[:, 0]


class AutoencodingHead(CausalLMHead):
    """-log p(w[t + 1] | all before) over the second half of `EOS s EOS s EOS`; the first half is input only.

    One causal network encodes and decodes with the same parameters, as in the paper. A Transformer could attend to the
    answer; a recurrent network has to store it in its state.
    """

    def pair(self, sequences: Sequences, rng: np.random.Generator) -> Sequences:
        """The second segment of each sequence is a copy of the first."""
        if sequences.starts.shape[1] != 1:
            raise RecipeError("autoencoding repeats one segment: set sequence.format=sentences or doc-sentences.")
        starts, ends = (np.repeat(each, 2, axis=1) for each in (sequences.starts, sequences.ends))
        return sequences._replace(starts=starts, ends=ends)

    def positions(self, batch: Batch) -> Tensor:
        """From the middle of each sequence, the end of the first half, to the last but one."""
        firsts, inside = first_positions(batch), positions_with_next(batch)
        sequence = torch.searchsorted(firsts, inside, right=True) - 1
        sizes = 1 + torch.bincount(sequence, minlength=len(firsts))
        middles = firsts + (sizes - 1) // 2
        return inside[inside >= middles[sequence]]
