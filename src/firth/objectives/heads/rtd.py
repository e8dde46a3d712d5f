"""Replaced-token detection: a generator replaces tokens, and the network finds them (Clark et al. 2020)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as f
from torch import Tensor

from firth.nets.batch import Batch, Loss
from firth.nets.dropout import DropoutRng
from firth.nets.encoders.transformer import ACTIVATIONS
from firth.nets.linear import make_linear
from firth.nets.network import HiddenStates, Network, build_second_network
from firth.nets.objective import Objective
from firth.nets.outputs.softmax import Softmax
from firth.nets.recipe import NetRecipe
from firth.objectives._noise_kernels import uniforms_at
from firth.objectives.heads.head import Corruption, ObjectiveHead, row_seeds
from firth.objectives.heads.masking import choose_positions, mask_tokens
from firth.objectives.masking import Masking

GENERATOR_LOSS = "mlm"
"""The name of the generator's loss."""


class ReplacedTokensHead(ObjectiveHead):
    """-log p(w[t] | the masked text) of the generator at the chosen positions t, and -log sigmoid(+-D(x, t)) at all t.

    x is the text with a sample of the generator at every chosen position; a sample that is the true token is original.
    No gradient goes through the sampling. The generator shares the embedding of the network.
    """

    def __init__(
        self, objective: Objective, generator: Objective, second: NetRecipe, network: Network, masking: Masking
    ) -> None:
        """`generator` has the weight of the generator's loss and `second` is its recipe."""
        super().__init__(objective, network.recipe, network.vocabulary)
        self.masking, self._generator_objective = masking, generator
        self.generator = build_second_network(second, network)
        width = network.recipe.width
        self.dense, self.classifier = make_linear(width, width), make_linear(width, 1)
        self.activation = ACTIVATIONS[network.recipe.encoder.activation]

    def corrupt(self, batch: Batch, rng: np.random.Generator) -> None:
        """Mask tokens; labels: the positions, their tokens and groups, and a number that decides each sample."""
        chosen = choose_positions(batch, self.masking, rng)
        batch.labels["rtd.positions"] = chosen.positions
        batch.labels["rtd.targets"] = batch.ids.flatten()[chosen.positions]
        batch.labels["rtd.groups"] = chosen.groups
        mask_tokens(batch, chosen, self.masking, self.vocabulary, rng)
        numbers = uniforms_at(row_seeds(batch, rng), chosen.positions.numpy(), batch.shape[1])
        batch.labels["rtd.numbers"] = torch.from_numpy(numbers)

    def corruption(self, batch: Batch) -> Corruption:
        """The generator's input: what it samples depends on its training."""
        return Corruption(*(batch.labels[f"rtd.{name}"] for name in Corruption._fields))

    def rewrite(self, batch: Batch, network: Network, rng: DropoutRng | None) -> Batch:
        """Put samples at all chosen positions; labels: the generator's loss, and which tokens were replaced."""
        positions, targets = batch.labels["rtd.positions"], batch.labels["rtd.targets"]
        output = self.generator.output
        assert isinstance(output, Softmax)
        states = self.generator(batch, positions, rng).last_hidden_state
        total, sampled = output.loss_and_samples(states, targets, batch.labels["rtd.numbers"])
        ids = batch.ids.flatten().index_copy(0, positions, sampled)
        is_replaced = torch.zeros_like(ids, dtype=torch.bool).index_copy(0, positions, sampled != targets)
        labels = batch.labels | {"rtd.generator_loss": total, "rtd.is_replaced": is_replaced}
        return replace(batch, ids=ids.view_as(batch.ids), labels=labels)

    def positions(self, batch: Batch) -> Tensor:
        """All but padding: special tokens are judged, too."""
        if batch.sequence_ids is None:
            return torch.arange(batch.ids.numel())
        return (batch.sequence_ids.flatten() >= 0).nonzero()[:, 0]

    def counts(self, batch: Batch) -> dict[str, int]:
        return {GENERATOR_LOSS: len(batch.labels["rtd.positions"]), self.name: self.count(batch)}

    def weights(self, progress: float) -> dict[str, float]:
        generator = self._generator_objective.weight_at(progress)
        return {GENERATOR_LOSS: generator, self.name: self.objective.weight_at(progress)}

    def losses(self, network: Network, states: HiddenStates, batch: Batch, rng: DropoutRng | None) -> dict[str, Loss]:
        generator = Loss(batch.labels["rtd.generator_loss"], len(batch.labels["rtd.positions"]))
        return {GENERATOR_LOSS: generator, self.name: self.loss(network, states, batch, rng)}

    def loss(self, network: Network, states: HiddenStates, batch: Batch, rng: DropoutRng | None) -> Loss:
        """The loss of the discriminator."""
        positions = self.positions(batch)
        logits = self.detect(states.at(positions))
        labels = batch.labels["rtd.is_replaced"][positions].to(logits.dtype)
        return Loss(f.binary_cross_entropy_with_logits(logits, labels, reduction="sum"), len(positions))

    def detect(self, states: Tensor) -> Tensor:
        """(positions,): the logit that a token was replaced, from the network's last hidden states."""
        return self.classifier(self.activation(self.dense(states)))[:, 0]  # type: ignore[no-any-return]

    def expected_counts(self, length: int) -> dict[str, float]:
        return {GENERATOR_LOSS: self.masking.rate, self.name: 1.0}

    def flops_per_token(self, network: Network, length: int, counts: Mapping[str, float]) -> float:
        detector = 2.0 * (self.dense.weight.numel() + self.classifier.weight.numel())
        return self.generator.flops(length, counts[GENERATOR_LOSS]) + counts[self.name] * detector
