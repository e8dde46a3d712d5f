"""tag: a label for each word: parts of speech, names, or where words begin and end."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from firth.nets.batch import Batch
from firth.nets.network import States, Vocabulary
from firth.nets.noise import Noise
from firth.tasks.chain import Decoded
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
INSIDE = "inside"
"""Which word of its token each word is."""
_CROWDED = 1.2  # words for each token from which on a sentence is read as a whole
_MOST_INSIDE = 4  # words of a token with scores of their own; those after them share the last one's
_SEEN = 1000  # sentences that decide


class Tag(Task):
    """The state of a word's first token decides; with a CRF also the tags beside it.

    Characters of Chinese are words here and there, but not for a network that has learnt from whole words: it reads the
    sentence as it was taught to, and each of the characters in a token has a classifier of its own (`inside`).
    """

    name: ClassVar[str] = "tag"

    def __init__(self, recipe: TaskRecipe, vocabulary: Vocabulary) -> None:
        super().__init__(recipe, vocabulary)
        self.crf = Crf(recipe.labels, constrained=True) if recipe.head.crf else None

    @property
    def outputs(self) -> int:
        return len(self.recipe.labels) * int(self.recipe.inside)

    def rows(self, examples: Sequence[Example], frame: Frame) -> list[list[Row]]:
        known = numbers_of(self.recipe.labels)
        return [self._rows(cast(TagExample, example), frame, known) for example in examples]

    def _rows(self, example: TagExample, frame: Frame, known: dict[str, int]) -> list[Row]:
        """A row for the sentence, or several that overlap, each telling of the words in its middle."""
        if not example.words:
            return []
        ids, places, ranks = lay(example, frame, whole=self.recipe.inside > 1)
        numbers = None if example.tags is None else np.array([known[tag] for tag in example.tags])
        opening = np.flatnonzero(ranks == 0)  # words that begin a token; those up to the next one go with them
        words, tokens = np.append(opening, ranks.size), np.append(places[opening], ids.size)
        tokens[0] = 0
        rows = []
        for first, end, tells in _windows(np.diff(tokens), frame.room(1)):
            framed = frame.row(ids[tokens[first] : tokens[end]][: frame.room(1)])
            told = np.arange(words[tells[0]], words[tells[1]])
            marks = {PLACES: framed.begins[0] + places[told] - tokens[first], WORDS: told}
            if self.recipe.inside > 1:
                marks[INSIDE] = np.minimum(ranks[told], self.recipe.inside - 1)
            if numbers is not None:
                marks[LABELS] = numbers[told]
            rows.append(Row(framed.ids, framed.segments, marks=marks))
        frame.cut += len(rows) > 1
        return rows

    def scores(self, states: States, batch: Batch, noise: Noise | None) -> Tensor:
        found = super().scores(states, batch, noise)
        if self.recipe.inside == 1:
            return found
        places = torch.arange(len(found), device=found.device)
        return found.view(len(found), self.recipe.inside, -1)[places, batch.marks[INSIDE]]

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
            chosen, shares = _alone(one) if self.crf is None else self.crf.decode(one)
            best += chosen.tolist()
            chances += shares.tolist()
        return {"tags": [self.recipe.labels[number] for number in best], "probabilities": chances}

    def measure(
        self, examples: Sequence[Example], answers: Sequence[Answer], seed: int = 0, samples: int = 1000
    ) -> dict[str, Any]:
        return measure_tags(examples, answers, seed=seed, samples=samples)


def _alone(scores: Floats) -> Decoded:
    """The best label of each place by itself."""
    shares = softmax(scores)
    chosen = shares.argmax(1)
    return Decoded(chosen, shares[np.arange(chosen.size), chosen])


class Laid(NamedTuple):
    """A sentence as tokens, and where its words are among them."""

    ids: Numbers
    places: Numbers
    """The token in which each word begins."""
    ranks: Numbers
    """Which of the words that begin in the same token each word is, from 0."""


def lay(example: TagExample, frame: Frame, *, whole: bool) -> Laid:
    """The tokens of the words of a sentence, each for itself, or of the sentence if no spaces are in it.

    A word without a token of its own is an unknown one; in a sentence that is read as a whole it goes with the token
    before.
    """
    if whole and not example.spaced:
        ids, offsets = frame.encode_with_offsets(["".join(example.words)])[0]
        lengths = np.array([len(word) for word in example.words])
        begins = np.cumsum(lengths) - lengths
        places = np.maximum(np.searchsorted(offsets[:, 0], begins, side="right") - 1, 0)
        ranks = np.arange(places.size) - np.searchsorted(places, places)
        return Laid(ids if ids.size else np.array([UNK]), places, ranks)
    words = [f" {word}" if example.spaced and number else word for number, word in enumerate(example.words)]
    pieces = [ids if ids.size else np.array([UNK]) for ids in frame.encode(words)]
    sizes = np.array([piece.size for piece in pieces])
    return Laid(np.concatenate(pieces), np.cumsum(sizes) - sizes, np.zeros_like(sizes))


def words_inside(examples: Sequence[TagExample], frame: Frame) -> int:
    """How many words of a token are to be told apart; 1 if words are to be read one by one.

    What is written without spaces can be cut into words that are smaller than the tokens that a network knows.
    """
    seen = [one for one in examples if one.words and not one.spaced][:_SEEN]
    if not seen:
        return 1
    laid = [lay(one, frame, whole=True) for one in seen]
    words, tokens = sum(one.places.size for one in laid), sum(one.ids.size for one in laid)
    return min(_MOST_INSIDE, 1 + max(int(one.ranks.max()) for one in laid)) if words > _CROWDED * tokens else 1


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
