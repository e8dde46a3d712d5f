"""Restoring: a decoder predicts text from a source that noise has made of it."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from firth.nets.batch import Batch, Loss
from firth.nets.dropout import DropoutRng
from firth.nets.network import HiddenStates, Network
from firth.objectives import _restoring_kernels as kernels
from firth.objectives.heads.head import ObjectiveHead, row_seeds
from firth.objectives.sequences import Integers
from firth.tokens.tokenizer import BOS, EOS, PAD

assert (BOS, EOS) == (kernels.BEGIN_ID, kernels.END_ID)


class BatchSide(NamedTuple):
    """The arrays of a source or of a decoder's input, (rows, length)."""

    ids: Integers
    sequence_ids: Integers
    position_ids: Integers

    @classmethod
    def empty(cls, rows: int, length: int) -> BatchSide:
        """Padding."""
        shape = (rows, length)
        return cls(np.full(shape, PAD), np.full(shape, -1), np.zeros(shape, dtype=np.int64))

    def tensors(self, length: int) -> tuple[Tensor, Tensor | None, Tensor]:
        """The columns that are used; no sequence ids if every row is one sequence without padding."""
        ids, sequence_ids, position_ids = (torch.from_numpy(one[:, :length].copy()) for one in self)
        return ids, sequence_ids if bool(sequence_ids.any()) else None, position_ids


class RestoringHead(ObjectiveHead):
    """-log p(w[t] | w[1..t-1], source) of the text that the decoder has to restore."""

    @abstractmethod
    def write_noise(
        self, batch: Batch, sequence_ids: Integers, seeds: Any, source: BatchSide, target: BatchSide, targets: Integers
    ) -> Integers:
        """Fill both sides and the token that is predicted at each position of the second; the used length of each.

        Sides have twice the length of the batch. Labels of statistics may be set.
        """

    def corrupt(self, batch: Batch, rng: np.random.Generator) -> None:
        """Replace the batch by the decoder's input, with its source; labels: the tokens to be predicted."""
        (rows, length), given = batch.shape, batch.sequence_ids
        source, target = (BatchSide.empty(rows, 2 * length) for _ in range(2))
        targets = np.full((rows, 2 * length), PAD)
        sequence_ids: npt.NDArray[Any] = np.zeros((rows, length), np.int64) if given is None else given.numpy()
        used = self.write_noise(batch, sequence_ids, row_seeds(batch, rng), source, target, targets)
        noised, noised_sequences, noised_positions = source.tensors(int(used[0]))
        batch.source = Batch(noised, torch.ones_like(noised, dtype=torch.bool), noised_sequences, noised_positions)
        batch.ids, batch.sequence_ids, batch.position_ids = target.tensors(int(used[1]))
        batch.word_starts = torch.ones_like(batch.ids, dtype=torch.bool)
        batch.sentence_starts = batch.segment_ids = None
        is_token = target.sequence_ids[:, : int(used[1])] >= 0
        batch.labels[f"{self.name}.targets"] = torch.from_numpy(targets[:, : int(used[1])][is_token])

    def positions(self, batch: Batch) -> Tensor | None:
        if batch.sequence_ids is None:
            return None
        return (batch.sequence_ids >= 0).flatten().nonzero()[:, 0]

    def loss(self, network: Network, states: HiddenStates, batch: Batch, rng: DropoutRng | None) -> Loss:
        positions, targets = self.positions(batch), batch.labels[f"{self.name}.targets"]
        if positions is None:
            positions = torch.arange(batch.ids.numel())
        total = network.output.loss(states.at(positions), targets, batch.ids.flatten()[positions], rng)
        return Loss(total, len(positions))
