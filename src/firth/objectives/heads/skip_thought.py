"""Generation of neighbouring sentences (Kiros et al. 2015).

The sentences of a batch are consecutive, so each is read once, and is the target of its two neighbours: a decoder reads
the same packed rows as the encoder, with the vector of another sentence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn

from firth.nets.batch import Batch, Loss
from firth.nets.dropout import DropoutRng
from firth.nets.encoders.conditioned import ConditionedDecoder
from firth.nets.network import HiddenStates, Network, build_second_network
from firth.nets.objective import Objective
from firth.nets.outputs.output import OutputLayer, state_width
from firth.nets.recipe import NetRecipe
from firth.nets.sentence_vectors import sentence_vectors, vector_positions
from firth.objectives.heads.clm import positions_with_next
from firth.objectives.heads.head import ObjectiveHead
from firth.objectives.sequences import DOCUMENTS, SENTENCES

_SIDES = {"previous": 1, "next": -1}  # from a target to the sentence that it is predicted from


class SkipThoughtHead(ObjectiveHead):
    """-log p(w[t] | w[1..t-1], v) of all tokens, and the ends, of the sentences before and after one of vector v."""

    def __init__(self, objective: Objective, second: NetRecipe | None, network: Network) -> None:
        super().__init__(objective, network.recipe, network.vocabulary)
        self.decoders = make_decoders(network.recipe)
        self.second: Network | None = None
        self.second_decoders: nn.ModuleDict | None = None
        if second is not None:
            self.second = build_second_network(second, network, shared=False)
            self.second_decoders = make_decoders(second)

    def positions(self, batch: Batch) -> Tensor:
        return vector_positions(self.recipe, batch)

    def count(self, batch: Batch) -> int:
        """The number of predicted tokens."""
        return sum(len(predicting(batch, neighbour_of(batch, offset))) for offset in _SIDES.values())

    def loss(self, network: Network, states: HiddenStates, batch: Batch, rng: DropoutRng | None) -> Loss:
        total = self._loss(network, self.decoders, states, batch, rng)
        if self.second is not None and self.second_decoders is not None:
            again = self.second(batch, vector_positions(self.second.recipe, batch), rng)
            total = total + self._loss(self.second, self.second_decoders, again, batch, rng)
        return Loss(total, self.count(batch))

    def _loss(
        self, network: Network, decoders: nn.ModuleDict, states: HiddenStates, batch: Batch, rng: DropoutRng | None
    ) -> Tensor:
        """The loss of both decoders of a network."""
        vectors = sentence_vectors(network.recipe, states, batch)
        embedded = network.embedding(batch.ids, batch.position_ids, rng=rng)
        losses = []
        for side, offset in _SIDES.items():
            decoder = decoders[side]
            assert isinstance(decoder, ConditionedDecoder)
            owners = neighbour_of(batch, offset)
            losses.append(decoding_loss(decoder, network.output, embedded, batch, vectors, owners, rng))
        return torch.stack(losses).sum()

    def flops_per_token(self, network: Network, length: int, counts: Mapping[str, float]) -> float:
        """Two decoders, and the second network with its own."""
        own = sum(one.flops() for one in self.modules() if isinstance(one, ConditionedDecoder))
        if self.second is not None:
            own += self.second.flops(length, 0.0, outputs=counts[self.name])
        return own

    def flops(self, network: Network, batch: Batch) -> float:
        """The same with the conditions of each sentence."""
        sizes = sum(one.condition.weight.numel() for one in self.modules() if isinstance(one, ConditionedDecoder))
        return super().flops(network, batch) + 2.0 * len(batch.labels[SENTENCES]) * sizes


def make_decoders(recipe: NetRecipe) -> nn.ModuleDict:
    """A decoder for each side of a sentence, with the kind of cells of the encoder, for the recipe's output layer."""
    is_projected = recipe.encoder.kind == "transformer"
    inputs = recipe.encoder.width if is_projected else recipe.embedding.width
    kind: Literal["lstm", "gru"] = "lstm" if recipe.encoder.kind in ("lstm", "bilstm") else "gru"
    width = state_width(recipe)
    return nn.ModuleDict({side: ConditionedDecoder(kind, inputs, width, recipe.width) for side in _SIDES})


def neighbour_of(batch: Batch, offset: int) -> Tensor:
    """(sequences,): the index in the batch of the sentence at that offset from each one, -1 if there is none.

    >>> ids = torch.zeros((4, 2), dtype=torch.int64)
    >>> labels = {SENTENCES: torch.tensor([7, 5, 6, 8]), DOCUMENTS: torch.tensor([1, 1, 1, 2])}
    >>> neighbour_of(Batch(ids, ids == 0, labels=labels), 1).tolist()
    [-1, 2, 0, -1]
    """
    numbers, documents = batch.labels[SENTENCES], batch.labels[DOCUMENTS]
    order = torch.argsort(numbers)
    at = torch.searchsorted(numbers[order], numbers + offset).clamp(max=len(numbers) - 1)
    found = order[at]
    is_one = (numbers[found] == numbers + offset) & (documents[found] == documents)
    return found.where(is_one, torch.full_like(found, -1))


def predicting(batch: Batch, owners: Tensor) -> Tensor:
    """The positions that predict the next token of a sequence that has an owner."""
    inside = positions_with_next(batch)
    return inside[token_owners(batch, owners).flatten()[inside] >= 0]


def token_owners(batch: Batch, owners: Tensor) -> Tensor:
    """(batch, length): the owner of the sequence of each token, -1 for padding."""
    if batch.sequence_ids is None:
        return owners[:, None].expand_as(batch.ids)
    is_token = batch.sequence_ids >= 0
    sizes = batch.sequence_ids.amax(1) + 1
    numbers = batch.sequence_ids + (sizes.cumsum(0) - sizes)[:, None]  # of all sequences of the batch
    return owners[numbers.where(is_token, torch.zeros_like(numbers))].where(is_token, torch.full_like(numbers, -1))


def decoding_loss(
    decoder: ConditionedDecoder,
    output: OutputLayer,
    embedded: Tensor,
    batch: Batch,
    vectors: Tensor,
    owners: Tensor,
    rng: DropoutRng | None,
) -> Tensor:
    """The summed loss of the tokens of a batch's sequences, each given the vector of its owner; -1: it has none.

    `embedded` are the token vectors of the batch and `vectors` (owners, width) those of sentences, which may be of
    another batch.
    """
    states = decoder(embedded, batch.sequence_ids, vectors, token_owners(batch, owners))
    positions, ids = predicting(batch, owners), batch.ids.flatten()
    chosen = states.flatten(0, 1).index_select(0, positions)
    return output.loss(chosen, ids[positions + 1], ids[positions], rng)
