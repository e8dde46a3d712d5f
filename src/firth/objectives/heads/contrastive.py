"""ContrastiveHead: a sentence is nearer to itself than to others (Gao et al. 2021)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
import torch.nn.functional as f
from torch import Tensor, nn

from firth.nets.batch import Batch, Loss
from firth.nets.dropout import DropoutRng
from firth.nets.linear import init_linear
from firth.nets.network import HiddenStates, Network, Vocabulary
from firth.nets.objective import Objective
from firth.nets.recipe import NetRecipe
from firth.objectives.heads.clm import first_positions
from firth.objectives.heads.head import ObjectiveHead
from firth.objectives.heads.sentences import SentenceHead, cosine_table, labelled_pairs
from firth.objectives.sequences import Integers, SentenceGroups, StoredText

_SENTENCE = 16  # tokens of a short sentence, for estimates


class ContrastiveHead(ObjectiveHead):
    """-log softmax(cos(z[i], z'[j]) / temperature)[i] over all sequences j of a batch.

    z and z' are tanh(V s + b) of the states s of the first token in two passes with different dropout. The layer serves
    training alone: vectors of sentences are s.
    """

    def __init__(self, objective: Objective, recipe: NetRecipe, vocabulary: Vocabulary, temperature: float) -> None:
        super().__init__(objective, recipe, vocabulary)
        self.temperature = temperature
        self.projection = nn.Linear(recipe.width, recipe.width)
        init_linear(self.projection)

    def positions(self, batch: Batch) -> Tensor:
        return first_positions(batch)

    def expected_counts(self, length: int) -> dict[str, float]:
        return {self.name: 1 / min(length, _SENTENCE)}

    def flops_per_token(self, network: Network, length: int, counts: Mapping[str, float]) -> float:
        """A second pass of the network, and two projections of each sequence."""
        own = 4.0 * counts[self.name] * self.projection.weight.numel()
        return network.flops(length, counts[self.name], outputs=0.0) + own

    def flops(self, network: Network, batch: Batch) -> float:
        """The same with the cosines of all pairs."""
        return super().flops(network, batch) + 2.0 * self.count(batch) ** 2 * self.recipe.width

    def loss(self, network: Network, states: HiddenStates, batch: Batch, rng: DropoutRng | None) -> Loss:
        positions = self.positions(batch)
        again = network(batch, positions, rng)
        one, two = (torch.tanh(self.projection(each.at(positions))) for each in (states, again))
        cosines = cosine_table(one, two)
        labels = torch.arange(len(positions))
        return Loss(f.cross_entropy(cosines / self.temperature, labels, reduction="sum"), len(positions))

    def saved_tensors(self) -> dict[str, Tensor]:
        return {}


class HardNegativesHead(SentenceHead):
    """-log softmax over the 2n sentences v+[j], v-[j] of cos(u[i], v) / temperature, at v+[i] (Gao et al. 2021, 5).

    u, v+ and v- are tanh(W s + b) of the vectors s of a premise, of a sentence that it entails, and of one that
    contradicts it. The layer serves training alone: vectors of sentences are s.
    """

    members = 3

    def __init__(self, objective: Objective, recipe: NetRecipe, vocabulary: Vocabulary, temperature: float) -> None:
        super().__init__(objective, recipe, vocabulary)
        self.temperature = temperature
        width = recipe.sentence.width or recipe.width
        self.projection = nn.Linear(width, width)
        init_linear(self.projection)

    def find(self, text: StoredText, labels: Integers | None) -> SentenceGroups:
        """Each entailed sentence with one that contradicts the same premise, these in turn."""
        pairs = labelled_pairs(text, labels)
        assert pairs.labels is not None
        negatives: dict[bytes, list[int]] = {}
        keys = [text.ids[begin:end].tobytes() for begin, end in zip(pairs.starts[:, 0], pairs.ends[:, 0], strict=True)]
        for number in np.flatnonzero(pairs.labels == 1).tolist():
            negatives.setdefault(keys[number], []).append(number)
        used: dict[bytes, int] = {}
        chosen = []
        for number in np.flatnonzero(pairs.labels == 0).tolist():
            if others := negatives.get(keys[number]):
                turn = used[keys[number]] = used.get(keys[number], -1) + 1
                chosen.append((number, others[turn % len(others)]))
        one, two = np.array(chosen, dtype=np.int64).reshape(-1, 2).T
        starts, ends = (np.column_stack([each[one], each[two, 1]]) for each in (pairs.starts, pairs.ends))
        return SentenceGroups(starts, ends)

    def group_flops(self) -> float:
        return 6.0 * self.projection.weight.numel()

    def flops(self, network: Network, batch: Batch) -> float:
        """The same with the cosines of all pairs."""
        return super().flops(network, batch) + 4.0 * self.count(batch) ** 2 * network.sentence.width

    def loss(self, network: Network, states: HiddenStates, batch: Batch, rng: DropoutRng | None) -> Loss:
        found = [torch.tanh(self.projection(one)) for one in self.vectors(network, states, batch)]
        scores = cosine_table(found[0], torch.cat(found[1:])) / self.temperature
        return Loss(f.cross_entropy(scores, torch.arange(len(found[0])), reduction="sum"), len(found[0]))

    def saved_tensors(self) -> dict[str, Tensor]:
        return {}
