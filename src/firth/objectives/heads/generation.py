"""Generation of texts from the vectors of sentences (Subramanian et al. 2018)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor, nn

from firth.nets.batch import Batch, Loss
from firth.nets.dropout import DropoutRng
from firth.nets.encoders.conditioned import ConditionedDecoder
from firth.nets.linear import INIT_STD
from firth.nets.network import HiddenStates, Network, Vocabulary, make_output
from firth.nets.objective import Objective
from firth.nets.outputs.output import state_width
from firth.nets.recipe import NetRecipe, OutputRecipe
from firth.objectives.heads.clm import first_positions
from firth.objectives.heads.sentences import SentenceHead, adjacent_sentences, document_pairs
from firth.objectives.heads.skip_thought import decoding_loss, predicting
from firth.objectives.sequences import Integers, SentenceGroups, StoredText

_NONE = -1  # the owner of sequences that are not written


class GenerationHead(SentenceHead):
    """-log p(w[t] | w[1..t-1], v) of all tokens, and the end, of one text of a pair; v is the vector of the other."""

    def __init__(
        self,
        objective: Objective,
        recipe: NetRecipe,
        vocabulary: Vocabulary,
        network: Network,
        targets: Sequence[int],
    ) -> None:
        super().__init__(objective, recipe, vocabulary)
        self.targets = tuple(targets)
        self.table = nn.Embedding(len(vocabulary), recipe.embedding.width)
        nn.init.normal_(self.table.weight, std=INIT_STD)
        kind: Literal["lstm", "gru"] = "lstm" if recipe.encoder.kind in ("lstm", "bilstm") else "gru"
        sizes = (recipe.embedding.width, state_width(recipe), network.sentence.width)
        self.decoders = nn.ModuleList(ConditionedDecoder(kind, *sizes) for _ in targets)
        own = replace(recipe, output=OutputRecipe(kind="full"))
        self.output = make_output(own, vocabulary.counts, network.embedding)

    def find(self, text: StoredText, labels: Integers | None) -> SentenceGroups:
        return adjacent_sentences(text) if self.objective.source == "text" else document_pairs(text)

    def owners(self, batch: Batch, target: int) -> Tensor:
        """(sequences,): for the members that are written the index of the other sequence of their pair, else -1."""
        numbers = torch.arange(len(first_positions(batch)))
        return (numbers + 1 - 2 * target).where(numbers % 2 == target, torch.full_like(numbers, _NONE))

    def count(self, batch: Batch) -> int:
        """The number of predicted tokens."""
        return sum(len(predicting(batch, self.owners(batch, target))) for target in self.targets)

    def loss(self, network: Network, states: HiddenStates, batch: Batch, rng: DropoutRng | None) -> Loss:
        vectors, embedded, losses = self.all_vectors(network, states, batch), self.table(batch.ids), []
        for target, decoder in zip(self.targets, self._decoders, strict=True):
            owners = self.owners(batch, target)
            losses.append(decoding_loss(decoder, self.output, embedded, batch, vectors, owners, rng))
        return Loss(torch.stack(losses).sum(), self.count(batch))

    def expected_counts(self, length: int) -> dict[str, float]:
        tokens = min(length, self.sentence_length)
        return {self.name: len(self.targets) * (1 - 1 / tokens) / self.members}

    def flops_per_token(self, network: Network, length: int, counts: Mapping[str, float]) -> float:
        sentences = 1 / min(length, self.sentence_length)
        return self._token_flops(counts[self.name]) + sentences * self._sentence_flops(network)

    def _token_flops(self, predictions: float) -> float:
        """Of the decoders, which read all sequences, and of predictions."""
        return sum(one.flops() for one in self._decoders) + predictions * self.output.flops()

    def _sentence_flops(self, network: Network) -> float:
        """Of the layers over a pooled vector, and of the conditions of the decoders."""
        return network.sentence.flops() + sum(2.0 * one.condition.weight.numel() for one in self._decoders)

    @property
    def _decoders(self) -> list[ConditionedDecoder]:
        return [one for one in self.decoders if isinstance(one, ConditionedDecoder)]

    def flops(self, network: Network, batch: Batch) -> float:
        tokens, sentences = batch.ids.numel(), len(first_positions(batch))
        decoded = tokens * self._token_flops(self.count(batch) / tokens)
        return decoded + sentences * self._sentence_flops(network)

    def saved_tensors(self) -> dict[str, Tensor]:
        return {}
