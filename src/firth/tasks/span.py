"""span: the piece of a passage that answers a question, or none.

P(i) = softmax(S . h_i) is the probability that the answer begins at i, and with E that it ends there; the best span
i <= j has the highest S . h_i + E . h_j. No answer is a span of the first token alone (Devlin et al. 2019).
"""

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
from firth.tasks.examples import Example, SpanExample
from firth.tasks.frame import Frame
from firth.tasks.head import spread
from firth.tasks.metrics import is_chinese, measure
from firth.tasks.metrics_answers import answer_scores, best_threshold
from firth.tasks.rows import GROUPS, PLACES, Numbers, Row
from firth.tasks.solver import Answer
from firth.tasks.spans import best_over_windows, windows
from firth.tasks.task import LABELS, Floats, Task

CHARACTERS = "characters"
"""Of each place but the first: where its token begins and ends in the passage, as begin * 2**32 + end."""
WINDOW = "window"
"""Of each row: the first token of the passage that it has."""
_SHIFT = 32
_QUESTION = 64  # tokens of a question at most


class Span(Task):
    """Two products give each token the scores of a beginning and of an end."""

    name: ClassVar[str] = "span"

    @property
    def outputs(self) -> int:
        return 2

    def rows(self, examples: Sequence[Example], frame: Frame) -> list[list[Row]]:
        spans = cast(Sequence[SpanExample], examples)
        questions = frame.encode([one.question for one in spans])
        passages = frame.encode_with_offsets([one.passage for one in spans])
        return [
            self._rows(example, question[:_QUESTION], *passage, frame)
            for example, question, passage in zip(spans, questions, passages, strict=True)
        ]

    def _rows(self, example: SpanExample, question: Numbers, ids: Numbers, offsets: Numbers, frame: Frame) -> list[Row]:
        room = max(1, frame.room(2) - question.size)
        wanted = answer_tokens(example, offsets)
        rows = []
        for begin, end in windows(ids.size, room, min(self.recipe.stride, room)):
            framed = frame.row(question, ids[begin:end])
            places = np.concatenate([[0], framed.begins[1] + np.arange(end - begin)])
            held = offsets[begin:end]
            marks = {PLACES: places, CHARACTERS: np.concatenate([[0], (held[:, 0] << _SHIFT) + held[:, 1]])}
            marks[WINDOW] = np.array([begin])
            if wanted is not None:
                inside = wanted[0] >= begin and wanted[1] < end
                marks[LABELS] = np.array([wanted[0] - begin + 1, wanted[1] - begin + 1] if inside else [0, 0])
            rows.append(Row(framed.ids, framed.segments, marks=marks))
        frame.cut += len(rows) > 1
        return rows

    def count(self, batch: Batch) -> int:
        return super().count(batch) // 2

    def total(self, scores: Tensor, batch: Batch, noise: Noise | None) -> Tensor:
        groups = batch.marks[GROUPS]
        rows, held = spread(scores, groups, int(groups.max()) + 1)
        hidden = rows.masked_fill(~held[..., None], -torch.inf)
        labels = batch.marks[LABELS].view(-1, 2)
        both = [cross_entropy(hidden[..., one], labels[:, one], reduction="sum") for one in (0, 1)]
        return (both[0] + both[1]) / 2

    def answer(self, example: Example, rows: Sequence[Row], scores: Sequence[Floats], frame: Frame) -> Answer:
        passage = cast(SpanExample, example).passage
        bounds = [
            (int(row.marks[WINDOW][0]), int(row.marks[WINDOW][0]) + len(one) - 1)
            for row, one in zip(rows, scores, strict=True)
        ]
        found = best_over_windows(
            [one[1:, 0] for one in scores],
            [one[1:, 1] for one in scores],
            [float(one[0].sum()) for one in scores],
            bounds,
            longest=self.recipe.longest,
        )
        if not found.spans:
            return {"answer": "", "start": -1, "span": "", "none": 0.0}
        begin, end, score = found.spans[0]
        first, _ = self._characters(rows, bounds, begin)
        _, last = self._characters(rows, bounds, end)
        told = {"answer": passage[first:last], "start": first, "score": score}
        return self._decided(told | {"span": passage[first:last], "none": found.odds})

    def _decided(self, answer: Answer) -> Answer:
        """No answer where there may be none and that is better than the best span by more than the threshold."""
        if self.recipe.empty and answer["none"] > self.recipe.threshold:
            return answer | {"answer": ""}
        return answer | {"answer": answer["span"]}

    def calibrate(self, examples: Sequence[Example], answers: Sequence[Answer]) -> list[Answer]:
        """The threshold is the one that gives the best F1 (Rajpurkar et al. 2018)."""
        if not self.recipe.empty:
            return list(answers)
        gold = [[one.text for one in cast(SpanExample, example).answers or ()] for example in examples]
        scores = answer_scores(gold, [one["span"] for one in answers], is_chinese("span", gold))[:, 1]
        found = best_threshold([one["none"] for one in answers], scores.tolist(), [bool(one) for one in gold])
        self.recipe = replace(self.recipe, threshold=found.value)
        return [self._decided(one) for one in answers]

    def _characters(self, rows: Sequence[Row], bounds: Sequence[tuple[int, int]], place: int) -> tuple[int, int]:
        """Where a token of the passage begins and ends."""
        for row, (first, after) in zip(rows, bounds, strict=True):
            if first <= place < after:
                value = int(row.marks[CHARACTERS][place - first + 1])
                return value >> _SHIFT, value & (2**_SHIFT - 1)
        raise AssertionError("the windows cover the passage")

    def measure(
        self, examples: Sequence[Example], answers: Sequence[Answer], seed: int = 0, samples: int = 1000
    ) -> dict[str, Any]:
        gold = [[one.text for one in cast(SpanExample, example).answers or ()] for example in examples]
        found = measure("span", gold, [one["answer"] for one in answers], seed=seed, samples=samples)
        # A model that finds answers may still be too unsure to give any: how good are the spans it would give?
        answerable = [(one, answer["span"]) for one, answer in zip(gold, answers, strict=True) if one]
        if answerable:
            apart = measure("span", *zip(*answerable, strict=True), seed=seed, samples=samples)
            found |= {f"span_{name}": apart[name] for name in ("f1", "f1_interval") if name in apart}
        return found


def answer_tokens(example: SpanExample, offsets: Numbers) -> tuple[int, int] | None:
    """The first and the last token of the first answer; (-1, -1) if there is none; None if that is not known."""
    if example.answers is None:
        return None
    if not example.answers or not len(offsets):
        return -1, -1
    first = example.answers[0]
    begin = int(np.searchsorted(offsets[:, 1], first.start, side="right"))
    end = int(np.searchsorted(offsets[:, 0], first.start + len(first.text), side="left")) - 1
    return (begin, end) if begin <= end < len(offsets) else (-1, -1)
