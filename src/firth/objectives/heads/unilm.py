"""Unified language modelling (Dong et al. 2019)."""

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
from firth.objectives.heads.clm import first_positions
from firth.objectives.heads.head import Corruption
from firth.objectives.heads.masking import choose_spans, mask_tokens
from firth.objectives.heads.pairs import IGNORED_LABEL, NextSentenceHead
from firth.objectives.masking import Masking
from firth.objectives.sequences import Sequences
from firth.tokens.tokenizer import EOS, UNK

NSP_LOSS = "nsp"
"""The name of the loss of next-sentence prediction."""
WAYS = ("bidirectional", "left to right", "right to left", "seq2seq")
_SEGMENTS = ((0, 2, 3, 4), (1, 2, 3, 5))  # of the first and the second segment, by way


class UnifiedLMHead(NextSentenceHead):
    """-log p(w[t] | what the sequence's way of reading lets t see of the masked text) at the chosen positions t.

    Nothing is shifted: a masked token is predicted at its own position in all ways. Pairs that are read from both sides
    are classified.
    """

    counts_words = False

    def __init__(
        self,
        objective: Objective,
        recipe: NetRecipe,
        vocabulary: Vocabulary,
        shares: Sequence[float],
        masking: Masking,
        span_lengths: Sequence[float],
    ) -> None:
        super().__init__(objective, recipe, vocabulary)
        self.bounds, self.masking, self.span_lengths = np.cumsum(shares)[:-1], masking, np.array(span_lengths)

    def pair(self, sequences: Sequences, rng: np.random.Generator) -> Sequences:
        """Draw how each sequence is read; of those read from both sides a half exchange their second segments.

        The fractions of the mixture are those of each epoch, but for rounding.
        """
        count = len(sequences.starts)
        ways = np.searchsorted(self.bounds, (rng.permutation(count) + rng.random()) / count, side="right")
        paired = self.exchange_segments(sequences, sequences.has_next_segment & (ways == 0), rng)
        return paired.with_labels("unilm.ways", ways.astype(np.int64))

    def corrupt(self, batch: Batch, rng: np.random.Generator) -> None:
        """Set order and segments by the way of each sequence, then mask; labels as those of `mlm`."""
        ways = self._ways(batch)
        rows, length = batch.shape
        columns = torch.arange(length).expand(rows, -1) if batch.position_ids is None else batch.position_ids
        is_second = torch.zeros_like(batch.ids) if batch.segment_ids is None else batch.segment_ids
        zeros = torch.zeros_like(columns)
        orders = torch.stack([zeros, columns, length - columns, torch.where(is_second > 0, columns + 1, zeros)])
        batch.attention_order = orders.gather(0, ways[None])[0]
        batch.segment_ids = torch.tensor(_SEGMENTS)[(is_second > 0).long(), ways]
        batch.labels["unilm.candidates"] = self.changeable(batch)
        # Ends that may be masked are given to the kernel as unknown text.
        ids = torch.where(batch.labels["unilm.candidates"] & (batch.ids == EOS), UNK, batch.ids)
        chosen = choose_spans(ids, batch, False, self.masking.rate, self.span_lengths, rng)
        batch.labels["unilm.positions"], batch.labels["unilm.groups"] = chosen.positions, chosen.groups
        batch.labels["unilm.targets"] = batch.ids.flatten()[chosen.positions]
        mask_tokens(batch, chosen, self.masking, self.vocabulary, rng)

    def _ways(self, batch: Batch) -> Tensor:
        """(batch, length): the way in which the sequence of each token is read."""
        numbers = torch.searchsorted(first_positions(batch), torch.arange(batch.ids.numel()), right=True) - 1
        return batch.labels["unilm.ways"][numbers].view(batch.shape)

    def changeable(self, batch: Batch) -> Tensor:
        """Text, and the end of sequences that are read from left to right or from a source: they learn to stop."""
        if "unilm.candidates" in batch.labels:
            return batch.labels["unilm.candidates"]
        is_end = torch.ones_like(batch.ids, dtype=torch.bool)
        if batch.sequence_ids is not None:
            is_end[:, :-1] = batch.sequence_ids[:, 1:] != batch.sequence_ids[:, :-1]
        else:
            is_end[:, :-1] = False
        ways = self._ways(batch)
        stops = is_end & (batch.ids == EOS) & ((ways == 1) | (ways == 3))
        return super().changeable(batch) | stops

    def corruption(self, batch: Batch) -> Corruption:
        return Corruption(*(batch.labels[f"unilm.{name}"] for name in Corruption._fields))

    def shares(self, batch: Batch) -> dict[str, tuple[float, float]]:
        ways = torch.bincount(batch.labels["unilm.ways"], minlength=len(WAYS)).tolist()
        return {f"read {way}": (count, sum(ways)) for way, count in zip(WAYS, ways, strict=True)}

    def positions(self, batch: Batch) -> Tensor:
        firsts = super().positions(batch)
        return torch.cat([batch.labels["unilm.positions"], firsts]).unique()  # type: ignore[no-any-return, no-untyped-call]

    def count(self, batch: Batch) -> int:
        return len(batch.labels["unilm.positions"])

    def counts(self, batch: Batch) -> dict[str, int]:
        return {self.name: self.count(batch), NSP_LOSS: int((self.pair_labels(batch) != IGNORED_LABEL).sum())}

    def expected_counts(self, length: int) -> dict[str, float]:
        return {self.name: self.objective.predicted, NSP_LOSS: float(self.bounds[0]) / length}

    def flops_per_token(self, network: Network, length: int, counts: Mapping[str, float]) -> float:
        return 2.0 * counts[NSP_LOSS] * (self.pooler.weight.numel() + self.classifier.weight.numel())

    def weights(self, progress: float) -> dict[str, float]:
        return dict.fromkeys((self.name, NSP_LOSS), self.objective.weight_at(progress))

    def losses(self, network: Network, states: HiddenStates, batch: Batch, rng: DropoutRng | None) -> dict[str, Loss]:
        labels = self.pair_labels(batch)
        firsts = first_positions(batch)[labels != IGNORED_LABEL]
        logits = self.classify(states.at(firsts))
        pairs = torch.nn.functional.cross_entropy(logits, labels[labels != IGNORED_LABEL], reduction="sum")
        return {self.name: self.loss(network, states, batch, rng), NSP_LOSS: Loss(pairs, len(firsts))}

    def loss(self, network: Network, states: HiddenStates, batch: Batch, rng: DropoutRng | None) -> Loss:
        """The loss of the masked tokens."""
        positions, targets = batch.labels["unilm.positions"], batch.labels["unilm.targets"]
        previous = batch.ids.flatten()[(positions - 1).clamp(min=0)]
        return Loss(network.output.loss(states.at(positions), targets, previous, rng), len(positions))
