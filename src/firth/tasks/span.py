"""span: extractive question answering, with or without unanswerable questions (Devlin et al. 2019, section 4).

softmax(S . h_i) is the probability that the answer starts at i, softmax(E . h_j) that it ends at j. A span from i to j,
inclusive, scores S . h_i + E . h_j with i <= j and at most `max_length` tokens; that of the first token stands for no
answer. A long passage is split into overlapping windows; a token may start a span only in the window in which it has
most context.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from firth.errors import RecipeError
from firth.metrics.measure import is_chinese, measure
from firth.metrics.texts import answer_scores, best_threshold
from firth.nets.batch import Batch
from firth.nets.dropout import DropoutRng
from firth.nets.groups import pad_groups
from firth.tasks.examples import Example, SpanExample
from firth.tasks.predictor import MetricInputs, Prediction
from firth.tasks.sequences import GROUPS, POSITIONS, InputSequence, Ints, SequenceBuilder
from firth.tasks.task import LABELS, Floats, Task

CHARACTERS = "characters"
"""Key of the character offsets of each token in the passage, as begin * 2**32 + end; 0 for the first position."""
WINDOW = "window"  # key of the index of the first passage token of each sequence
_SHIFT = 32
_MAX_QUESTION = 64  # tokens of a question
Array = npt.NDArray[Any]
Window = tuple[int, int]


class SpanTask(Task):
    """Start and end scores for each token of the passage."""

    kind: ClassVar[str] = "span"

    @property
    def outputs(self) -> int:
        return 2

    def sequences(self, examples: Sequence[Example], builder: SequenceBuilder) -> list[list[InputSequence]]:
        spans = cast(Sequence[SpanExample], examples)
        questions = builder.encode([one.question for one in spans])
        passages = builder.encode_with_offsets([one.passage for one in spans])
        return [
            self._windows(example, question[:_MAX_QUESTION], *passage, builder)
            for example, question, passage in zip(spans, questions, passages, strict=True)
        ]

    def _windows(
        self, example: SpanExample, question: Ints, ids: Ints, offsets: Ints, builder: SequenceBuilder
    ) -> list[InputSequence]:
        """A sequence for each window over the passage."""
        capacity = max(1, builder.capacity(2) - question.size)
        answer = answer_tokens(example, offsets)
        found = []
        spans = list(windows(ids.size, capacity, min(self.recipe.stride, capacity)))
        for begin, end in spans:
            built = builder.build(question, ids[begin:end])
            bounds = offsets[begin:end]
            labels = {
                POSITIONS: np.concatenate([[0], built.begins[1] + np.arange(end - begin)]),
                CHARACTERS: np.concatenate([[0], (bounds[:, 0] << _SHIFT) + bounds[:, 1]]),
                WINDOW: np.array([begin]),
            }
            if answer is not None:
                is_inside = answer[0] >= begin and answer[1] < end
                labels[LABELS] = np.array([answer[0] - begin + 1, answer[1] - begin + 1] if is_inside else [0, 0])
            truncated = built.truncated or len(spans) > 1
            found.append(InputSequence(built.ids, built.segment_ids, labels=labels, truncated=truncated))
        return found

    def count(self, batch: Batch) -> int:
        return super().count(batch) // 2

    def total(self, scores: Tensor, batch: Batch, rng: DropoutRng | None) -> Tensor:
        groups = batch.labels[GROUPS]
        padded, mask = pad_groups(scores, groups, int(groups.max()) + 1)
        hidden = padded.masked_fill(~mask[..., None], -torch.inf)
        labels = batch.labels[LABELS].view(-1, 2)
        both = [cross_entropy(hidden[..., one], labels[:, one], reduction="sum") for one in (0, 1)]
        return (both[0] + both[1]) / 2

    def answer(self, example: Example, sequences: Sequence[InputSequence], scores: Sequence[Floats]) -> Prediction:
        passage = cast(SpanExample, example).passage
        firsts = [int(one.labels[WINDOW][0]) for one in sequences]
        bounds = [(first, first + len(one) - 1) for first, one in zip(firsts, scores, strict=True)]
        starts, ends = ([one[1:, side] for one in scores] for side in (0, 1))
        found = best_span(starts, ends, bounds, self.recipe.max_length)
        if found is None:
            return {"answer": "", "start": -1, "span": "", "none": 0.0}
        first, _ = self._characters(sequences, bounds, found.begin)
        _, last = self._characters(sequences, bounds, found.end)
        # As in BERT's code for SQuAD 2.0, the score of no answer is that of the first token, the lowest of all windows.
        none = min(float(one[0].sum()) for one in scores) - found.score
        prediction = {"answer": passage[first:last], "start": first, "score": found.score}
        return self._with_threshold(prediction | {"span": passage[first:last], "none": none})

    def _with_threshold(self, prediction: Prediction) -> Prediction:
        """No answer if its margin over the best span is above the threshold."""
        is_empty = self.recipe.allow_no_answer and prediction["none"] > self.recipe.no_answer_threshold
        return prediction | {"answer": "" if is_empty else prediction["span"]}

    def calibrate(self, examples: Sequence[Example], answers: Sequence[Prediction]) -> list[Prediction]:
        """Choose the no-answer threshold with the best F1 (Rajpurkar et al. 2018)."""
        if not self.recipe.allow_no_answer:
            return list(answers)
        gold = _gold(examples)
        scores = answer_scores(gold, [one["span"] for one in answers], is_chinese("span", gold))[:, 1]
        found = best_threshold([one["none"] for one in answers], scores.tolist(), [bool(one) for one in gold])
        self.recipe = replace(self.recipe, no_answer_threshold=found.value)
        return [self._with_threshold(one) for one in answers]

    def _characters(
        self, sequences: Sequence[InputSequence], bounds: Sequence[tuple[int, int]], token: int
    ) -> tuple[int, int]:
        """The character offsets of a token of the passage."""
        for one, (first, after) in zip(sequences, bounds, strict=True):
            if first <= token < after:
                value = int(one.labels[CHARACTERS][token - first + 1])
                return value >> _SHIFT, value & (2**_SHIFT - 1)
        raise AssertionError("the windows cover the passage")

    def metric_inputs(self, examples: Sequence[Example], answers: Sequence[Prediction]) -> MetricInputs:
        return "span", _gold(examples), [one["answer"] for one in answers]

    def measure(
        self, examples: Sequence[Example], answers: Sequence[Prediction], seed: int = 0, samples: int = 1000
    ) -> dict[str, Any]:
        found = super().measure(examples, answers, seed, samples)
        # Also the F1 of the best spans of answerable questions, whether or not the threshold lets them pass.
        answerable = [(one, answer["span"]) for one, answer in zip(_gold(examples), answers, strict=True) if one]
        if answerable:
            spans = measure("span", *zip(*answerable, strict=True), seed=seed, samples=samples)
            found |= {f"span_{name}": spans[name] for name in ("f1", "f1_interval") if name in spans}
        return found


def _gold(examples: Sequence[Example]) -> list[list[str]]:
    return [[answer.text for answer in cast(SpanExample, example).answers or ()] for example in examples]


def answer_tokens(example: SpanExample, offsets: Ints) -> tuple[int, int] | None:
    """The first and last token of the first answer; (-1, -1) if there is none, None if unknown."""
    if example.answers is None:
        return None
    if not example.answers or not len(offsets):
        return -1, -1
    first = example.answers[0]
    begin = int(np.searchsorted(offsets[:, 1], first.start, side="right"))
    end = int(np.searchsorted(offsets[:, 0], first.start + len(first.text), side="left")) - 1
    return (begin, end) if begin <= end < len(offsets) else (-1, -1)


class ScoredSpan(NamedTuple):
    """A span of tokens, both ends included."""

    begin: int
    end: int
    score: float


def best_span(
    starts: Sequence[Array], ends: Sequence[Array], windows: Sequence[Window], max_length: int
) -> ScoredSpan | None:
    """The best span in tokens of the passage; ties are broken by the earlier start, then the shorter span.

    starts, ends: the scores of the tokens of each window.

    >>> best_span([np.array([0.0, 2.0, 1.0])], [np.array([9.0, 0.0, 3.0])], [(0, 3)], 2)
    ScoredSpan(begin=0, end=0, score=9.0)
    """
    owners = window_owners(windows)
    found = []
    for number, (first, after) in enumerate(windows):
        if first == after:
            continue
        limit = min(max_length, after - first)
        start = np.where(owners[first:after] == number, np.asarray(starts[number], dtype=np.float64), -np.inf)
        end = np.pad(np.asarray(ends[number], dtype=np.float64), (0, limit - 1), constant_values=-np.inf)
        scores = (start[:, None] + np.lib.stride_tricks.sliding_window_view(end, limit)).ravel()
        best = int(scores.argmax())
        if scores[best] > -np.inf:
            begin = first + best // limit
            found.append(ScoredSpan(begin, begin + best % limit, float(scores[best])))
    return min(found, key=lambda span: (-span.score, span.begin, span.end), default=None)


def windows(length: int, capacity: int, stride: int) -> list[Window]:
    """Bounds of windows of at most `capacity` tokens, `stride` tokens apart; one empty window for an empty passage.

    >>> windows(10, capacity=6, stride=3)
    [(0, 6), (3, 9), (6, 10)]
    """
    if not 1 <= stride <= capacity:
        raise RecipeError(
            f"windows of {capacity} tokens cannot be {stride} apart: choose a stride from 1 to {capacity}."
        )
    last = max(0, -(-(length - capacity) // stride))
    return [(first * stride, min(first * stride + capacity, length)) for first in range(last + 1)]


def window_owners(windows: Sequence[Window]) -> Array:
    """For each token of the passage the window in which it has most context.

    Context is the distance to the nearer border plus a hundredth of the window's width; ties go to the first window, as
    in BERT's code.

    >>> window_owners([(0, 6), (3, 9), (6, 10)]).tolist()
    [0, 0, 0, 0, 0, 1, 1, 1, 2, 2]
    """
    first, after = np.array(windows, dtype=np.int64).T
    tokens = np.arange(windows[-1][1])[:, None]
    distance = np.minimum(tokens - first, after - 1 - tokens)
    owners: Array = np.where(distance >= 0, distance + 0.01 * (after - first), -1.0).argmax(axis=1)
    return owners
