"""Sequence autoencoding: a network reads a sequence, then writes it again from what it kept (Dai and Le 2015)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from firth.errors import RecipeError
from firth.nets.batch import Batch, Loss
from firth.nets.network import Network, States
from firth.nets.noise import Noise
from firth.objectives.clm import continuing
from firth.objectives.judging import first_places
from firth.objectives.objective import Objective
from firth.objectives.sequences import Sequences


class Autoencoding(Objective):
    """-log p(w[t + 1] | all before) over the second half of `EOS s EOS s EOS`; the first half is only read.

    One causal network reads and writes, so both have the same parameters, as in the paper. A Transformer could look the
    answer up; a recurrent network has to keep it in its state.
    """

    name: ClassVar[str] = "autoencoding"
    copies: ClassVar[int] = 2

    def pair(self, sequences: Sequences, rng: np.random.Generator) -> Sequences:
        """The second segment of each sequence is the first once more."""
        if sequences.begins.shape[1] != 1:
            raise RecipeError("autoencoding repeats one segment: set rows.format=sentences or doc-sentences.")
        begins, ends = (np.repeat(each, 2, axis=1) for each in (sequences.begins, sequences.ends))
        return sequences._replace(begins=begins, ends=ends)

    def places(self, batch: Batch) -> Tensor | None:
        """From the middle of each part, where the end of the first half stands, to the last but one."""
        firsts, inside = first_places(batch), continuing(batch)
        part = torch.searchsorted(firsts, inside, right=True) - 1
        sizes = 1 + torch.bincount(part, minlength=len(firsts))
        middles = firsts + (sizes - 1) // 2
        return inside[inside >= middles[part]]

    def count(self, batch: Batch) -> int:
        places = self.places(batch)
        assert places is not None
        return len(places)

    def loss(self, network: Network, states: States, batch: Batch, noise: Noise | None) -> Loss:
        places, ids = self.places(batch), batch.ids.flatten()
        assert places is not None
        total = network.output.loss(states.at(places), ids[places + 1], ids[places], noise)
        return Loss(total, len(places))
