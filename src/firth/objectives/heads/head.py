"""ObjectiveHead: the noise, the layers and the loss of an objective."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from firth.nets.batch import Batch, Loss
from firth.nets.dropout import DropoutRng
from firth.nets.network import HiddenStates, Network, Vocabulary
from firth.nets.objective import Objective
from firth.nets.recipe import NetRecipe
from firth.objectives._noise_kernels import draw_all
from firth.objectives.sequences import Sequences
from firth.tokens.tokenizer import FIRST_WORD, MASK, UNK


class Corruption(NamedTuple):
    """Tokens of a batch that an objective has chosen to change, or to keep on purpose."""

    positions: Tensor
    """Sorted indices into the flattened batch."""
    groups: Tensor
    """The span of each position: 0, 1, ..., ascending."""
    targets: Tensor
    """The original tokens."""


class ObjectiveHead(nn.Module, ABC):
    """Corrupts batches and predicts what was there. Only `positions` and `loss` must be defined.

    An objective with several losses defines `counts`, `losses` and `weights` instead of `count` and `loss`.
    """

    name: str
    begin: float = 0.0
    """The fraction of the training from which on it is trained."""
    counts_words: bool = True
    """Whether the length of a span is its number of words, and not of tokens."""

    def __init__(self, objective: Objective, recipe: NetRecipe, vocabulary: Vocabulary) -> None:
        """Layers of an objective are made here, as attributes."""
        super().__init__()
        self.objective, self.name, self.begin = objective, objective.name, objective.begin
        self.recipe = recipe
        self.vocabulary = len(vocabulary)

    def pair(self, sequences: Sequences, rng: np.random.Generator) -> Sequences:
        """Choose the second segment of each sequence, before they are packed into rows."""
        return sequences

    def corrupt(self, batch: Batch, rng: np.random.Generator) -> None:
        """Change the ids of a batch and set its labels, without a network.

        The noise of a row is drawn by `firth.objectives.heads.head.row_seeds(batch, rng)`: `rng` is the same for all
        batches of an epoch, and noise must not depend on the other rows.
        """

    def rewrite(self, batch: Batch, network: Network, rng: DropoutRng | None) -> Batch:
        """Change a batch by the predictions of a network."""
        return batch

    def corruption(self, batch: Batch) -> Corruption | None:
        """The tokens of a batch that it has chosen to change; None if it changes none."""
        return None

    def changeable(self, batch: Batch) -> Tensor:
        """(batch, length): the tokens that it may choose: those of text, masked ones included."""
        return (batch.ids >= FIRST_WORD) | (batch.ids == UNK) | (batch.ids == MASK)

    def shares(self, batch: Batch) -> dict[str, tuple[float, float]]:
        """Further counts of what it has done to a batch, each with the number that it is a share of."""
        return {}

    def pair_labels(self, batch: Batch) -> Tensor | None:
        """The labels of a batch's pairs: 0 as in the text, 1 changed, -1 no pair; None if it labels none."""
        return None

    @abstractmethod
    def positions(self, batch: Batch) -> Tensor | None:
        """Sorted indices into the flattened batch of the hidden states that the loss needs; None for all."""

    def count(self, batch: Batch) -> int:
        """The number of predictions in a batch."""
        positions = self.positions(batch)
        return batch.ids.numel() if positions is None else len(positions)

    @abstractmethod
    def loss(self, network: Network, states: HiddenStates, batch: Batch, rng: DropoutRng | None) -> Loss:
        """The summed losses of all predictions in a batch, and their number."""

    def counts(self, batch: Batch) -> dict[str, int]:
        """The number of predictions of each loss."""
        return {self.name: self.count(batch)}

    def losses(self, network: Network, states: HiddenStates, batch: Batch, rng: DropoutRng | None) -> dict[str, Loss]:
        """The losses by name."""
        return {self.name: self.loss(network, states, batch, rng)}

    def weights(self, progress: float) -> dict[str, float]:
        """The factor of each mean loss after a fraction of the training; an objective without any is left out."""
        return {self.name: self.objective.weight_at(progress)}

    def output_count(self, batch: Batch) -> int:
        """The number of predictions of the network's output layer in a batch."""
        return self.count(batch) if self.objective.needs_output else 0

    def expected_counts(self, length: int) -> dict[str, float]:
        """The approximate number of predictions of each loss per token of sequences of that length."""
        return {self.name: self.objective.predicted}

    def expected_positions(self, length: int) -> float:
        """The approximate fraction of positions whose last hidden states the loss needs."""
        return sum(self.expected_counts(length).values())

    def flops_per_token(self, network: Network, length: int, counts: Mapping[str, float]) -> float:
        """Floating-point operations of a forward pass of its own layers, with `counts` predictions per token."""
        return 0.0

    def flops(self, network: Network, batch: Batch) -> float:
        """Floating-point operations of a forward pass of its own layers over a batch."""
        tokens = batch.ids.numel()
        counts = {name: count / tokens for name, count in self.counts(batch).items()}
        return tokens * self.flops_per_token(network, batch.shape[1], counts)

    def saved_tensors(self) -> dict[str, Tensor]:
        """The tensors that an artifact keeps; a part that serves training alone is left out here.

        Those of the network, which a head may share, are saved with the network.
        """
        return dict(self.state_dict())


def row_seeds(batch: Batch, rng: np.random.Generator) -> npt.NDArray[np.uint64]:
    """A new seed for each row of a batch: a function of the row's own seed and of one number from `rng`.

    >>> import torch
    >>> ids = torch.zeros((3, 2), dtype=torch.int64)
    >>> one = Batch(ids, ids == 0, row_seeds=torch.tensor([7, 8, 9]))
    >>> other = Batch(ids, ids == 0, row_seeds=torch.tensor([9, 7, 8]))
    >>> seeds, same = (row_seeds(each, np.random.default_rng(0)).tolist() for each in (one, other))
    >>> same == [seeds[2], seeds[0], seeds[1]]
    True
    """
    rows = np.arange(batch.shape[0]) if batch.row_seeds is None else batch.row_seeds.numpy()
    return np.asarray(draw_all(rng.integers(0, 2**64, dtype=np.uint64), rows))
