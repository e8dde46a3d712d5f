"""Task: reads examples as rows, scores them by its head, tells answers and measures them. Each is one file."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from itertools import islice
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from firth.nets.batch import Batch, Loss
from firth.nets.network import Network, States, Vocabulary
from firth.nets.noise import Noise
from firth.nets.scoring import ROOM
from firth.objectives.objective import Objective
from firth.tasks.examples import Example
from firth.tasks.frame import Frame
from firth.tasks.head import Head
from firth.tasks.recipe import TaskRecipe
from firth.tasks.rows import GROUPS, PLACES, Numbers, Row, pack
from firth.tasks.solver import Answer
from firth.tokens.language import FIRST_WORD

Floats = npt.NDArray[np.float32]
LABELS = "labels"


class Task(Objective):
    """What a network is fine-tuned for: an objective whose marks come with the examples."""

    name: ClassVar[str]
    writes: ClassVar[bool] = False
    """Whether it asks the network for tokens."""
    pooled: ClassVar[bool] = False
    """Whether one state stands for a whole row."""

    def __init__(self, recipe: TaskRecipe, vocabulary: Vocabulary) -> None:
        nn.Module.__init__(self)
        self.recipe: Any = recipe
        self.head = Head(recipe, vocabulary, self.outputs, self.pooled)
        self.weights = torch.ones(max(1, len(recipe.labels)))
        """How much each label counts while learning."""

    @property
    def outputs(self) -> int:
        """Scores of a place or row."""
        return len(self.recipe.labels)

    @abstractmethod
    def rows(self, examples: Sequence[Example], frame: Frame) -> list[list[Row]]:
        """The readings of each example, with what is known of the answer in their marks."""

    def told(self, rows: int) -> int:
        """How many sets of scores there are for an example with so many rows."""
        return rows

    def solve(self, network: Network, examples: Sequence[Example], frame: Frame) -> list[Answer]:
        """What is told of examples, those of nearly the same length being read together."""
        readings = self.rows(examples, frame)
        answers: list[Answer] = [{} for _ in examples]
        for number in (number for number, rows in enumerate(readings) if not rows):
            answers[number] = self.answer(examples[number], (), (), frame)
        for group in together(readings):
            batch = pack([row for number in group for row in readings[number]], FIRST_WORD)
            with torch.inference_mode():
                states = network(batch, self.places(batch))
                scores = iter(self.split(self.scores(states, batch, None), batch))
            for number in group:
                rows = readings[number]
                own = list(islice(scores, self.told(len(rows))))
                answers[number] = self.answer(examples[number], rows, own, frame)
        return answers

    @abstractmethod
    def answer(self, example: Example, rows: Sequence[Row], scores: Sequence[Floats], frame: Frame) -> Answer:
        """What is told of an example, by the scores of its rows."""

    def calibrate(self, examples: Sequence[Example], answers: Sequence[Answer]) -> list[Answer]:
        """Settles what held-out examples decide, in the recipe; the answers as they are then."""
        return list(answers)

    @abstractmethod
    def measure(
        self, examples: Sequence[Example], answers: Sequence[Answer], seed: int = 0, samples: int = 1000
    ) -> dict[str, Any]:
        """How good the answers are, with intervals and a trivial baseline."""

    def surprise(
        self, network: Network, examples: Sequence[Example], frame: Frame, seed: int = 0, samples: int = 1000
    ) -> dict[str, Any]:
        """How unlikely what is right seems to a task that writes, with intervals; nothing for others."""
        return {}

    def flops(self, batch: Batch) -> float:
        """Floating-point operations of a forward pass of what it has beside the network, where that is much."""
        return batch.ids.numel() * self.head.work(batch.shape[1])

    def take_over(self, heads: Mapping[str, Tensor]) -> None:
        """Begins with the pooler that was learnt by judging pairs, if there was one (Devlin et al. 2019)."""
        pooler = self.head.pooler
        for name in ("nsp", "sop"):
            weight, bias = heads.get(f"heads.{name}.pooler.weight"), heads.get(f"heads.{name}.pooler.bias")
            if pooler is not None and weight is not None and bias is not None and weight.shape == pooler.weight.shape:
                with torch.no_grad():
                    pooler.weight.copy_(weight)
                    pooler.bias.copy_(bias)

    def places(self, batch: Batch) -> Tensor | None:
        """The places that are asked about, in order; None if the head needs all."""
        return None if self.head.whole else batch.marks[PLACES].sort().values

    def count(self, batch: Batch) -> int:
        """Predictions in a batch."""
        return len(batch.marks[LABELS]) if LABELS in batch.marks else 0

    def scores(self, states: States, batch: Batch, noise: Noise | None) -> Tensor:
        """(rows that were packed or places, outputs): a score for each possible answer."""
        places = batch.marks[PLACES]
        found = self.head.states(states, batch, places, noise)
        if self.pooled:
            groups = batch.marks[GROUPS]
            return self.head.pool(found, groups, int(groups.max()) + 1, noise)
        return self.head.score(found, noise)

    def loss(self, network: Network, states: States, batch: Batch, noise: Noise | None) -> Loss:
        """The sum of the losses of all predictions."""
        return Loss(self.total(self.scores(states, batch, noise), batch, noise), self.count(batch))

    def total(self, scores: Tensor, batch: Batch, noise: Noise | None) -> Tensor:
        """-log softmax(scores)[label], summed; labels are smoothed while learning."""
        smoothing = self.recipe.head.smoothing if noise is not None else 0.0
        weights = self.weights if noise is not None and self.recipe.head.balanced else None
        return cross_entropy(scores, batch.marks[LABELS], weight=weights, reduction="sum", label_smoothing=smoothing)

    def split(self, scores: Tensor, batch: Batch) -> list[Floats]:
        """The scores of each row that was packed, in the order in which they were given."""
        if self.pooled:
            return list(scores.numpy())
        sizes = torch.bincount(batch.marks[GROUPS])
        return [one.numpy() for one in torch.split(scores, sizes.tolist())]


def together(readings: Sequence[Sequence[Row]]) -> Iterator[list[int]]:
    """Groups of examples of nearly the same length that fill the room, longest first."""
    lengths = np.array([max(row.ids.size for row in rows) if rows else 0 for rows in readings])
    group: list[int] = []
    filled = 0
    for number in np.argsort(-lengths, kind="stable").tolist():
        size = int(lengths[number]) * len(readings[number])
        if not size:
            continue
        if group and filled + size > ROOM:
            yield group
            group, filled = [], 0
        group.append(number)
        filled += size
    if group:
        yield group


def numbers_of(labels: Sequence[str]) -> dict[str, int]:
    """The number of each label."""
    return {label: number for number, label in enumerate(labels)}


def pooled_places(length: int, own: tuple[int, int], pooling: str) -> Numbers:
    """The places of a row whose states stand for it: the first, the last, or all of its own tokens."""
    if pooling == "first":
        return np.zeros(1, dtype=np.int64)
    if pooling == "last" or own[0] >= own[1]:
        return np.array([length - 1])
    return np.arange(*own)


def softmax(scores: Floats) -> Floats:
    """Probabilities along the last axis."""
    risen = np.exp(scores.astype(np.float64) - scores.max(-1, keepdims=True))
    return np.asarray(risen / risen.sum(-1, keepdims=True), dtype=np.float32)


_HOMES = {
    "classify": ("classify", "Classify"),
    "pair": ("pair", "Pair"),
    "tag": ("tag", "Tag"),
    "span": ("span", "Span"),
    "choice": ("choice", "Choice"),
    "generate": ("generate", "Generate"),
    "generate with a decoder": ("decode", "Decode"),
}


def make_task(recipe: TaskRecipe, vocabulary: Vocabulary) -> Task:
    """The task that a recipe names, with new layers."""
    module, name = _HOMES[recipe.task if recipe.decoder is None else f"{recipe.task} with a decoder"]
    made = getattr(import_module(f"firth.tasks.{module}"), name)(recipe, vocabulary)
    assert isinstance(made, Task)
    return made


def class_weights(counts: Mapping[str, int], labels: Sequence[str]) -> Tensor:
    """n / (k n_label): rare labels weigh more, and the mean over examples is 1."""
    total = sum(counts.values())
    return torch.tensor([total / (len(labels) * max(1, counts.get(label, 0))) for label in labels])
