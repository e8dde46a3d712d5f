"""A model that tells labels of texts, asked like one that was fine-tuned to classify."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from firth.abilities import Predicts
from firth.tasks.examples import Example, TextExample
from firth.tasks.linear import Whole
from firth.tasks.metrics import measure
from firth.tasks.solver import Answer, Solver


class Labeller(Solver):
    """A fastText classifier, say, with the answers and the metrics of `classify`."""

    task = "classify"
    fields: Sequence[str] = ()
    frame = Whole()

    def __init__(self, model: Predicts) -> None:
        self.model, self.labels = model, model.labels
        self.tokenizer: Any = cast(Any, model).tokenizer

    def answer_all(self, examples: Sequence[Example]) -> list[Answer]:
        """The likeliest label of each text, and what each label has."""
        texts = [one.text for one in cast(Sequence[TextExample], examples)]
        found = self.model.predict(texts, len(self.labels))
        return [{"label": best[0][0], "probability": best[0][1], "probabilities": dict(best)} for best in found]

    def measure(
        self, examples: Sequence[Example], answers: Sequence[Answer], seed: int = 0, samples: int = 1000
    ) -> dict[str, Any]:
        """Metrics with intervals; of a text with several labels, any of them is right."""
        given = [answer["label"] for answer in answers]
        known = [one.labels or ("",) for one in cast(Sequence[TextExample], examples)]
        gold = [one if one in labels else labels[0] for one, labels in zip(given, known, strict=True)]
        return measure("classify", gold, given, seed=seed, samples=samples)
