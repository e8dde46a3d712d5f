"""ConditionedDecoder: reads a text from left to right, given a vector at every step (Kiros et al. 2015)."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as f
from torch import Tensor, nn

from firth.nets.encoders.recurrent import GruLayer, LstmLayer, SimpleLayer, find_resets

_LAYERS: dict[str, type[SimpleLayer]] = {"gru": GruLayer, "lstm": LstmLayer}


class ConditionedDecoder(nn.Module):
    """A recurrent layer whose gates and candidates all have a term C v, v being the vector that a text depends on.

    Texts of packed rows have conditions of their own. The state is zero before each text.
    """

    def __init__(self, kind: Literal["gru", "lstm"], inputs: int, width: int, condition: int) -> None:
        """`inputs` is the width of token vectors, `condition` that of the vectors v."""
        super().__init__()
        self.layer = _LAYERS[kind](inputs, width, 0)
        self.condition = nn.Linear(condition, self.layer.gates * width, bias=False)
        nn.init.xavier_uniform_(self.condition.weight)

    def forward(self, embedded: Tensor, sequence_ids: Tensor | None, conditions: Tensor, owners: Tensor) -> Tensor:
        """(batch, length, width): the states after each token of `embedded` (batch, length, inputs).

        `owners` (batch, length) is the row of `conditions` (vectors, condition) of each token, or -1 for none.
        """
        terms = self.condition(conditions)  # once for each vector, not for each token
        terms = torch.cat([terms.new_zeros(1, terms.shape[1]), terms])
        added = f.embedding(owners.t() + 1, terms)
        states, _ = self.layer(
            embedded.transpose(0, 1), [], find_resets(sequence_ids), self.layer.recurrent.weight, added
        )
        return states.transpose(0, 1)  # type: ignore[no-any-return]

    def flops(self) -> float:
        """Floating-point operations per token, without those of the conditions."""
        return self.layer.flops()
