"""Permutation language modelling (Yang et al. 2019)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from firth.nets.batch import Batch, Loss
from firth.nets.dropout import DropoutRng
from firth.nets.network import HiddenStates, Network, Vocabulary
from firth.nets.objective import Objective
from firth.nets.recipe import NetRecipe
from firth.objectives import _permutation_kernels as kernels
from firth.objectives.heads.head import Corruption, ObjectiveHead, row_seeds
from firth.tokens.tokenizer import EOS, FIRST_WORD, UNK

_UNITS = {"token": kernels.TOKENS, "word-start": kernels.WORD_STARTS, "word": kernels.WORDS}


class PermutationLMHead(ObjectiveHead):
    """-log p(w[z_t] | w[z_1], ..., w[z_(t-1)]) for the last tokens of a random order z of each row (equation 5).

    The rest is context: it is before all of them and attends to itself. In rows whose first part is contiguous, that
    part has an order of its own, before that of the rest.
    """

    def __init__(
        self,
        objective: Objective,
        recipe: NetRecipe,
        vocabulary: Vocabulary,
        span_lengths: Sequence[float],
        context: int,
        unit: str,
    ) -> None:
        super().__init__(objective, recipe, vocabulary)
        self.cumulative, self.context, self.unit = np.cumsum(span_lengths)[:-1], context, _UNITS[unit]
        self.counts_words = unit == "word"

    def corrupt(self, batch: Batch, rng: np.random.Generator) -> None:
        """Set the order of attention; labels: the predicted positions, their tokens, and the span of each."""
        candidates = self.changeable(batch).numpy()
        seeds = row_seeds(batch, rng)
        positions, groups = (np.empty(candidates.size, dtype=np.int64) for _ in range(2))
        count = kernels.choose_targets(
            candidates, batch.word_starts.numpy(), seeds, self.cumulative, self.context, self.unit, positions, groups
        )
        chosen = torch.from_numpy(positions[:count].copy())
        batch.labels["plm.positions"], batch.labels["plm.groups"] = chosen, torch.from_numpy(groups[:count].copy())
        batch.labels["plm.targets"] = batch.ids.flatten()[chosen]
        is_late = ~candidates  # special tokens of the format are in the order, but not predicted
        is_late.ravel()[positions[:count]] = True
        order = np.empty(batch.shape, dtype=np.int64)
        kernels.order_positions(is_late, seeds, self._boundary(batch), order)
        batch.attention_order, batch.is_query = torch.from_numpy(order), True

    def changeable(self, batch: Batch) -> Tensor:
        """Tokens of text and ends of sentences, but not the separators of segments."""
        is_text = (batch.ids >= FIRST_WORD) | (batch.ids == UNK) | (batch.ids == EOS)
        if batch.is_function is not None:
            is_text &= ~batch.is_function
        return is_text if batch.sequence_ids is None else is_text & (batch.sequence_ids >= 0)

    def _boundary(self, batch: Batch) -> int:
        """The length of the contiguous part of the rows, if something follows it."""
        if batch.offsets is None or self.recipe.sequence.format != "contiguous-pair":
            return batch.shape[1]
        return int(batch.offsets.lengths[0])

    def corruption(self, batch: Batch) -> Corruption:
        """No token is changed."""
        return Corruption(*(batch.labels[f"plm.{name}"] for name in Corruption._fields))

    def positions(self, batch: Batch) -> Tensor:
        return batch.labels["plm.positions"]

    def loss(self, network: Network, states: HiddenStates, batch: Batch, rng: DropoutRng | None) -> Loss:
        positions, targets = self.positions(batch), batch.labels["plm.targets"]
        previous = batch.ids.flatten()[(positions - 1).clamp(min=0)]
        return Loss(network.output.loss(states.at(positions), targets, previous, rng), len(positions))

    def flops_per_token(self, network: Network, length: int, counts: Mapping[str, float]) -> float:
        """Of the queries in all layers but the last, which the network counts; keys and values are of the contents."""
        encoder, keys = self.recipe.encoder, length + self.recipe.memory.length
        products = 4.0 * keys + 2.0 * (keys + length)
        layer = 4.0 * encoder.width**2 + products * encoder.width + 4.0 * encoder.width * encoder.ffn_width
        return max(0, encoder.layers - 1) * counts[self.name] * layer
