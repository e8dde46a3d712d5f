"""Labels of single tokens: capitalisation and tokens in other segments (Sun et al. 2020)."""

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
from firth.objectives.heads.head import ObjectiveHead


class TokenLabelHead(ObjectiveHead):
    """-log σ(±(w s + b)) of the first token of each word, + where its column of the text is set."""

    def __init__(self, objective: Objective, recipe: NetRecipe, vocabulary: Vocabulary, column: str) -> None:
        super().__init__(objective, recipe, vocabulary)
        self.column = column
        self.classifier = nn.Linear(recipe.width, 1)
        init_linear(self.classifier)

    def corrupt(self, batch: Batch, rng: np.random.Generator) -> None:
        """Labels: the positions of words, and whether each is set; a batch without the column has none."""
        values = batch.columns.get(self.column)
        is_word = self.changeable(batch) & batch.word_starts
        chosen = is_word.flatten().nonzero().flatten() if values is not None else torch.zeros(0, dtype=torch.int64)
        batch.labels[f"{self.name}.positions"] = chosen
        batch.labels[f"{self.name}.labels"] = (
            torch.zeros(0) if values is None else (values.flatten()[chosen] > 0).to(torch.float32)
        )

    def shares(self, batch: Batch) -> dict[str, tuple[float, float]]:
        """The share of words that are set."""
        labels = batch.labels[f"{self.name}.labels"]
        return {"positive": (float(labels.sum()), float(len(labels)))}

    def positions(self, batch: Batch) -> Tensor:
        return batch.labels[f"{self.name}.positions"]

    def flops_per_token(self, network: Network, length: int, counts: Mapping[str, float]) -> float:
        return 2.0 * counts[self.name] * self.classifier.weight.numel()

    def loss(self, network: Network, states: HiddenStates, batch: Batch, rng: DropoutRng | None) -> Loss:
        positions = self.positions(batch)
        logits = self.classifier(states.at(positions)).flatten()
        labels = batch.labels[f"{self.name}.labels"].to(logits.dtype)
        return Loss(f.binary_cross_entropy_with_logits(logits, labels, reduction="sum"), len(positions))
