"""classify: which label a text has, or which labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from firth.nets.batch import Batch
from firth.nets.noise import Noise
from firth.tasks.examples import Example, TextExample
from firth.tasks.frame import Frame
from firth.tasks.metrics import measure
from firth.tasks.rows import PLACES, Numbers, Row
from firth.tasks.solver import Answer
from firth.tasks.task import LABELS, Floats, Task, numbers_of, pooled_places, softmax

_LIKELY = 0.5  # from which probability on a label is given, where there may be several


class Classify(Task):
    """One state stands for the text; a product gives the scores of labels."""

    name: ClassVar[str] = "classify"
    pooled: ClassVar[bool] = True

    def rows(self, examples: Sequence[Example], frame: Frame) -> list[list[Row]]:
        texts = cast(Sequence[TextExample], examples)
        known = numbers_of(self.recipe.labels)
        found = []
        for example, ids in zip(texts, frame.encode([one.text for one in texts]), strict=True):
            framed = frame.row(ids)
            own = (framed.begins[0], framed.begins[0] + framed.lengths[0])
            marks = {PLACES: pooled_places(framed.ids.size, own, self.recipe.head.pooling)}
            if example.labels is not None:
                marks[LABELS] = self.label_marks(example, known)
            found.append([Row(framed.ids, framed.segments, marks=marks)])
        return found

    def label_marks(self, example: TextExample, known: dict[str, int]) -> Numbers:
        """The number of the label, or 0 and 1 for all labels."""
        labels = example.labels or ()
        if self.recipe.form == "multi":
            held = np.zeros(len(known), dtype=np.int64)
            held[[known[label] for label in labels if label in known]] = 1
            return held
        return np.array([known[labels[0]]])

    def count(self, batch: Batch) -> int:
        found = super().count(batch)
        return found // len(self.recipe.labels) if self.recipe.form == "multi" else found

    def total(self, scores: Tensor, batch: Batch, noise: Noise | None) -> Tensor:
        if self.recipe.form != "multi":
            return super().total(scores, batch, noise)
        held = batch.marks[LABELS].view_as(scores).to(scores.dtype)
        return binary_cross_entropy_with_logits(scores, held, reduction="sum")

    def answer(self, example: Example, rows: Sequence[Row], scores: Sequence[Floats], frame: Frame) -> Answer:
        labels = self.recipe.labels
        if self.recipe.form == "multi":
            chances = torch.from_numpy(scores[0]).sigmoid().tolist()
            given = [label for label, chance in zip(labels, chances, strict=True) if chance >= _LIKELY]
            return {"labels": given, "probabilities": dict(zip(labels, chances, strict=True))}
        return best_label(labels, scores[0])

    def measure(
        self, examples: Sequence[Example], answers: Sequence[Answer], seed: int = 0, samples: int = 1000
    ) -> dict[str, Any]:
        texts = cast(Sequence[TextExample], examples)
        if self.recipe.form == "multi":
            return measure(
                "multilabel",
                [one.labels for one in texts],
                [one["labels"] for one in answers],
                seed=seed,
                samples=samples,
            )
        return measure(
            self.name,
            [(one.labels or ("",))[0] for one in texts],
            [a["label"] for a in answers],
            seed=seed,
            samples=samples,
        )


def best_label(labels: Sequence[str], scores: Floats) -> Answer:
    """The likeliest label and what each has."""
    chances = softmax(scores)
    best = int(chances.argmax())
    return {
        "label": labels[best],
        "probability": float(chances[best]),
        "probabilities": dict(zip(labels, chances.tolist(), strict=True)),
    }
