"""pair: how two texts are related, as a label or a number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, cast

import numpy as np
from torch import Tensor

from firth.nets.batch import Batch
from firth.nets.network import States
from firth.nets.noise import Noise
from firth.tasks.classify import Classify, best_label
from firth.tasks.examples import Example, TextExample, numeric_labels
from firth.tasks.frame import Frame
from firth.tasks.metrics import measure
from firth.tasks.rows import PLACES, Row
from firth.tasks.solver import Answer
from firth.tasks.task import LABELS, Floats, numbers_of, pooled_places

_SCALE = 1000  # numbers to be told are noted in thousandths


class Pair(Classify):
    """Both texts in one row; where neither is the first, in both orders, whose scores are added."""

    name: ClassVar[str] = "pair"

    @property
    def outputs(self) -> int:
        return 1 if self.recipe.form == "number" else len(self.recipe.labels)

    def rows(self, examples: Sequence[Example], frame: Frame) -> list[list[Row]]:
        texts = cast(Sequence[TextExample], examples)
        known = numbers_of(self.recipe.labels)
        firsts, seconds = (frame.encode(one) for one in ([e.text for e in texts], [e.other or "" for e in texts]))
        found = []
        for example, first, second in zip(texts, firsts, seconds, strict=True):
            orders = [(first, second), (second, first)] if self.recipe.symmetric else [(first, second)]
            rows: list[Row] = []
            for one, two in orders:
                framed = frame.row(one, two)
                own = (framed.begins[0], framed.begins[1] + framed.lengths[1])
                marks = {PLACES: pooled_places(framed.ids.size, own, self.recipe.head.pooling)}
                if example.labels is not None and not rows:
                    marks[LABELS] = self.label_marks(example, known)
                rows.append(Row(framed.ids, framed.segments, marks=marks))
            found.append(rows)
        return found

    def label_marks(self, example: TextExample, known: dict[str, int]) -> Any:
        if self.recipe.form == "number":
            return np.array([round(_SCALE * numeric_labels([example])[0])])
        return super().label_marks(example, known)

    def scores(self, states: States, batch: Batch, noise: Noise | None) -> Tensor:
        found = super().scores(states, batch, noise)
        return found[0::2] + found[1::2] if self.recipe.symmetric else found

    def told(self, rows: int) -> int:
        return 1

    def total(self, scores: Tensor, batch: Batch, noise: Noise | None) -> Tensor:
        if self.recipe.form != "number":
            return super().total(scores, batch, noise)
        wanted = batch.marks[LABELS].to(scores.dtype) / _SCALE
        return ((scores[:, 0] - wanted) ** 2).sum()

    def answer(self, example: Example, rows: Sequence[Row], scores: Sequence[Floats], frame: Frame) -> Answer:
        if self.recipe.form == "number":
            return {"score": float(scores[0][0])}
        return best_label(self.recipe.labels, scores[0])

    def measure(
        self, examples: Sequence[Example], answers: Sequence[Answer], seed: int = 0, samples: int = 1000
    ) -> dict[str, Any]:
        texts = cast(Sequence[TextExample], examples)
        if self.recipe.form == "number":
            return measure(
                "similarity", numeric_labels(texts), [one["score"] for one in answers], seed=seed, samples=samples
            )
        return super().measure(examples, answers, seed=seed, samples=samples)
