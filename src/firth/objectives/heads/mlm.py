"""Masked language modelling (Devlin et al. 2019)."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from firth.nets.batch import Batch, Loss
from firth.nets.dropout import DropoutRng
from firth.nets.network import HiddenStates, Network, Vocabulary
from firth.nets.objective import Objective
from firth.nets.recipe import NetRecipe
from firth.objectives.heads.head import Corruption, ObjectiveHead
from firth.objectives.heads.masking import choose_positions, mask_tokens, unit_starts
from firth.objectives.masking import COLUMNS, Masking
from firth.tokens.columns import BEGINS, OUTSIDE
from firth.tokens.units import is_character


class MaskedLMHead(ObjectiveHead):
    """-log p(w[t] | the corrupted text) at the chosen positions t."""

    def __init__(self, objective: Objective, recipe: NetRecipe, vocabulary: Vocabulary, masking: Masking) -> None:
        super().__init__(objective, recipe, vocabulary)
        self.masking = masking
        has_characters = "basic" in (masking.policy, *masking.stages)
        self._characters = is_character(vocabulary.tokens) if has_characters else np.zeros(0, dtype=np.bool_)

    def corrupt(self, batch: Batch, rng: np.random.Generator) -> None:
        """Mask tokens; labels: the positions, their original tokens, and the group of each position."""
        masking = self.masking.at(batch.progress)
        starts = unit_starts(batch, masking.policy, self._characters)
        chosen = choose_positions(batch, masking, rng, starts)
        batch.labels[f"{self.name}.positions"] = chosen.positions
        batch.labels[f"{self.name}.targets"] = batch.ids.flatten()[chosen.positions]
        batch.labels[f"{self.name}.groups"] = chosen.groups
        mask_tokens(batch, chosen, masking, self.vocabulary, rng)

    def shares(self, batch: Batch) -> dict[str, tuple[float, float]]:
        """Of the phrases or entities with a chosen token: all of whose tokens are; and of the chosen tokens: theirs."""
        name = COLUMNS.get(self.masking.at(batch.progress).policy, "")
        spans = batch.columns.get(name)
        if spans is None:
            return {}
        values = spans.flatten().numpy()
        is_chosen = np.zeros(values.size, dtype=bool)
        is_chosen[self.positions(batch).numpy()] = True
        inside = values != OUTSIDE
        # A sequence may begin within a span.
        number = np.cumsum((values == BEGINS) | (inside & ~np.concatenate([[False], inside[:-1]])))
        chosen, all_of = (np.bincount(number, weights=one) for one in (is_chosen & inside, inside))
        whole = (chosen > 0) & (chosen == all_of)
        return {
            f"whole {name}": (float(whole.sum()), float((chosen > 0).sum())),
            f"in {name}": (float((is_chosen & inside).sum()), float(is_chosen.sum())),
        }

    def corruption(self, batch: Batch) -> Corruption:
        return Corruption(*(batch.labels[f"mlm.{name}"] for name in Corruption._fields))

    def positions(self, batch: Batch) -> Tensor:
        return batch.labels[f"{self.name}.positions"]

    def loss(self, network: Network, states: HiddenStates, batch: Batch, rng: DropoutRng | None) -> Loss:
        positions, targets = self.positions(batch), batch.labels[f"{self.name}.targets"]
        previous = batch.ids.flatten()[(positions - 1).clamp(min=0)]
        return Loss(network.output.loss(states.at(positions), targets, previous, rng), len(positions))
