"""tag: a label for each word: parts of speech, names, or where words begin and end."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor

from firth.nets.batch import Batch
from firth.nets.network import Vocabulary
from firth.nets.noise import Noise
from firth.tasks.crf import Crf
from firth.tasks.examples import Example, TagExample
from firth.tasks.frame import Frame
from firth.tasks.head import spread
from firth.tasks.metrics import measure_tags
from firth.tasks.recipe import TaskRecipe
from firth.tasks.rows import GROUPS, PLACES, Numbers, Row
from firth.tasks.solver import Answer
from firth.tasks.task import LABELS, Floats, Task, numbers_of, softmax
from firth.tokens.tokenizer import UNK

WORDS = "words"
"""Which word of its sentence each place is."""


class Tag(Task):
    """The state of a word's first token decides; with a CRF also the tags beside it."""

    name: ClassVar[str] = "tag"

    def __init__(self, recipe: TaskRecipe, vocabulary: Vocabulary) -> None:
        super().__init__(recipe, vocabulary)
        self.crf = Crf(recipe.labels, constrained=True) if recipe.head.crf else None

    def rows(self, examples: Sequence[Example], frame: Frame) -> list[list[Row]]:
        known = numbers_of(self.recipe.labels)
        return [self._rows(cast(TagExample, example), frame, known) for example in examples]

    def _rows(self, example: TagExample, frame: Frame, known: dict[str, int]) -> list[Row]:
        """A row for the sentence, or several that overlap, each telling of the words in its middle."""
        pieces = word_pieces(example, frame)
        sizes = np.array([piece.size for piece in pieces])
        numbers = None if example.tags is None else np.array([known[tag] for tag in example.tags])
        rows = []
        for first, end, tells in _windows(sizes, frame.room(1)):
            ids = np.concatenate(pieces[first:end])[: frame.room(1)]
            framed = frame.row(ids)
            begins = framed.begins[0] + np.cumsum(sizes[first:end]) - sizes[first:end]
            told = np.arange(*tells)
            marks = {PLACES: begins[told - first], WORDS: told}
            if numbers is not None:
                marks[LABELS] = numbers[told]
            rows.append(Row(framed.ids, framed.segments, marks=marks))
        frame.cut += len(rows) > 1
        return rows

    def total(self, scores: Tensor, batch: Batch, noise: Noise | None) -> Tensor:
        if self.crf is None:
            return super().total(scores, batch, noise)
        groups = batch.marks[GROUPS]
        count = int(groups.max()) + 1
        rows, held = spread(scores, groups, count)
        labels, _ = spread(batch.marks[LABELS], groups, count)
        return self.crf.loss(rows, labels, held.sum(1))

    def answer(self, example: Example, rows: Sequence[Row], scores: Sequence[Floats], frame: Frame) -> Answer:
        best: list[int] = []
        chances: list[float] = []
        for one in scores:
            shares = np.array([softmax(place) for place in one])
            chosen = shares.argmax(1) if self.crf is None else self._together(one)
            best += chosen.tolist()
            chances += shares[np.arange(len(chosen)), chosen].tolist()
        return {"tags": [self.recipe.labels[number] for number in best], "probabilities": chances}

    def _together(self, scores: Floats) -> Numbers:
        assert self.crf is not None
        with torch.inference_mode():
            found, _ = self.crf.viterbi(torch.from_numpy(scores)[None], torch.tensor([len(scores)]))
        return np.asarray(found[0])

    def measure(
        self, examples: Sequence[Example], answers: Sequence[Answer], seed: int = 0, samples: int = 1000
    ) -> dict[str, Any]:
        return measure_tags(examples, answers, seed=seed, samples=samples)


def word_pieces(example: TagExample, frame: Frame) -> list[Numbers]:
    """The tokens of each word, as they would be in the sentence; a word without any is an unknown one."""
    words = [f" {word}" if example.spaced and number else word for number, word in enumerate(example.words)]
    return [ids if ids.size else np.array([UNK]) for ids in frame.encode(words)]


def _windows(sizes: Numbers, room: int) -> list[tuple[int, int, tuple[int, int]]]:
    """Windows over words of so many tokens: the first word, the one after the last, and those that are told of."""
    ends = np.cumsum(sizes)
    if sizes.size == 0 or ends[-1] <= room:
        return [(0, sizes.size, (0, sizes.size))] if sizes.size else []
    found: list[tuple[int, int]] = []
    first = 0
    while True:
        begun = int(ends[first] - sizes[first])
        end = max(first + 1, int(np.searchsorted(ends, begun + room, side="right")))
        found.append((first, end))
        if end == sizes.size:
            break
        middle = int(np.searchsorted(ends, begun + room // 2, side="right"))
        first = min(max(first + 1, middle), end)
    turns = [0, *((a[1] + b[0]) // 2 for a, b in pairwise(found)), sizes.size]
    return [(a, b, (turns[i], turns[i + 1])) for i, (a, b) in enumerate(found)]
