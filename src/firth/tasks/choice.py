"""choice: which of some sentences is right; each option is read by itself and all are compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from firth.nets.batch import Batch
from firth.nets.noise import Noise
from firth.tasks.examples import ChoiceExample, Example
from firth.tasks.frame import Frame
from firth.tasks.head import spread
from firth.tasks.metrics import measure
from firth.tasks.rows import PLACES, Row
from firth.tasks.solver import Answer
from firth.tasks.task import LABELS, Floats, Task, pooled_places, softmax

OPTIONS = "options"
"""Of each row, how many rows its example has; noted once an example."""


class Choice(Task):
    """softmax over the options of a scores, one for each (Radford et al. 2018; Devlin et al. 2019)."""

    name: ClassVar[str] = "choice"
    pooled: ClassVar[bool] = True

    @property
    def outputs(self) -> int:
        return 1

    def rows(self, examples: Sequence[Example], frame: Frame) -> list[list[Row]]:
        found = []
        for example in cast(Sequence[ChoiceExample], examples):
            before = " ".join(filter(None, (example.context, example.question)))
            first, *others = frame.encode([before, *example.choices])
            rows = []
            for second in others:
                dropped = _dropped(first.size, second.size, frame)
                frame.cut += dropped > 0
                framed = frame.row(first[dropped:], second)
                own = (framed.begins[0], framed.begins[1] + framed.lengths[1])
                places = pooled_places(framed.ids.size, own, self.recipe.head.pooling)
                rows.append(Row(framed.ids, framed.segments, marks={PLACES: places}))
            noted = {OPTIONS: np.array([len(rows)])}
            if example.label is not None:
                noted[LABELS] = np.array([example.label])
            rows[0] = replace(rows[0], marks={**rows[0].marks, **noted})
            found.append(rows)
        return found

    def total(self, scores: Tensor, batch: Batch, noise: Noise | None) -> Tensor:
        sizes = batch.marks[OPTIONS]
        groups = torch.repeat_interleave(torch.arange(len(sizes)), sizes)
        rows, held = spread(scores[:, 0], groups, len(sizes))
        return cross_entropy(rows.masked_fill(~held, -torch.inf), batch.marks[LABELS], reduction="sum")

    def answer(self, example: Example, rows: Sequence[Row], scores: Sequence[Floats], frame: Frame) -> Answer:
        chances = softmax(np.array([one[0] for one in scores]))
        best = int(chances.argmax())
        choices = cast(ChoiceExample, example).choices
        return {"choice": best, "text": choices[best], "probabilities": chances.tolist()}

    def measure(
        self, examples: Sequence[Example], answers: Sequence[Answer], seed: int = 0, samples: int = 1000
    ) -> dict[str, Any]:
        gold = [cast(ChoiceExample, one).label for one in examples]
        return measure("choice", gold, [one["choice"] for one in answers], seed=seed, samples=samples)


def _dropped(first: int, second: int, frame: Frame) -> int:
    """How much of the beginning of a long context is left out, so that its end and the question stay."""
    return max(0, min(first - 1, first + second - frame.room(2)))
