"""Task: builds sequences from examples and scores them with its head. TaskModel: a fine-tuned network with its task."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from itertools import islice
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from firth.metrics.measure import measure
from firth.nets.batch import Batch, Loss
from firth.nets.dropout import DropoutRng
from firth.nets.model import NetModel, own_tensors
from firth.nets.network import HiddenStates, Network, Vocabulary
from firth.nets.restore import HEADS, load_tensors
from firth.nets.scoring import BATCH_TOKENS
from firth.objectives.heads.head import ObjectiveHead
from firth.tasks.examples import Example
from firth.tasks.head import TaskHead
from firth.tasks.knowledge import KnowledgeGraph, graph_array
from firth.tasks.linear_part import LinearPart, restore_linear_part, split_arrays
from firth.tasks.predictor import DROPPED, MetricInputs, Prediction, Predictor, with_truncation
from firth.tasks.recipe import TaskRecipe
from firth.tasks.sequences import GROUPS, POSITIONS, BuiltSequence, InputSequence, Ints, SequenceBuilder, pack
from firth.tokens.tokenizer import FIRST_WORD, Tokenizer

Floats = npt.NDArray[np.floating[Any]]
LABELS = "labels"
FACTS = "knowledge.triples"
"""The name of the array of a knowledge graph."""


class ScoredExample(NamedTuple):
    """The input sequences of an example, none if it is empty, and the scores of a head."""

    sequences: Sequence[InputSequence]
    scores: Sequence[Floats]


class Task(ObjectiveHead):
    """A task to fine-tune a network for: an objective whose labels come with the examples."""

    kind: ClassVar[str]
    weight: float = 1.0  # of the loss
    uses_output_layer: ClassVar[bool] = False  # of the network
    pooled: ClassVar[bool] = False  # whether one pooled state represents a whole sequence
    linear: LinearPart | None = None  # whose scores are mixed with those of the head in predictions

    def __init__(self, recipe: TaskRecipe, vocabulary: Vocabulary) -> None:
        nn.Module.__init__(self)
        self.recipe: Any = recipe
        self.name = self.kind
        self.head = TaskHead(recipe, vocabulary, self.outputs, self.pooled)
        self.label_weights = torch.ones(max(1, len(recipe.labels)))  # of the labels in the training loss

    @property
    def outputs(self) -> int:
        """Number of scores for a position or sequence."""
        return len(self.recipe.labels)

    @abstractmethod
    def sequences(self, examples: Sequence[Example], builder: SequenceBuilder) -> list[list[InputSequence]]:
        """The input sequences of each example, with the labels if they are known."""

    def pooled_positions(self, built: BuiltSequence) -> Ints:
        """The positions to pool: the first, the last, or all of the text; with its end if the last is among them."""
        if self.recipe.head.pooling == "first":
            return np.zeros(1, dtype=np.int64)
        begin, end = built.begins[0], max(one + size for one, size in zip(built.begins, built.lengths, strict=True))
        if self.recipe.head.pooling == "last" or begin >= end:
            return np.array([built.ids.size - 1])
        return np.arange(begin, built.ids.size if self.recipe.head.pooling == "concat" else end)

    def outputs_per_example(self, sequences: int) -> int:
        """Number of score vectors for an example with that many sequences."""
        return sequences

    def encode(
        self, network: Network, built: Sequence[Sequence[InputSequence]]
    ) -> Iterator[tuple[list[int], Batch, HiddenStates]]:
        """Batches of examples of similar length: their indices, the batch and its hidden states."""
        for bucket in length_buckets(built):
            batch = self.rewrite(pack([one for index in bucket for one in built[index]], FIRST_WORD), network, None)
            yield bucket, batch, network(batch, self.positions(batch))

    def predict(self, network: Network, examples: Sequence[Example], builder: SequenceBuilder) -> list[Prediction]:
        """Predictions for examples."""
        scored = self.score_examples(network, examples, builder)
        return self.answers(examples, scored, None if self.linear is None else self.linear.scores(examples))

    @torch.inference_mode()
    def score_examples(
        self, network: Network, examples: Sequence[Example], builder: SequenceBuilder
    ) -> list[ScoredExample]:
        """The input sequences of examples, and the head's scores of them."""
        built = self.sequences(examples, builder)
        found = [ScoredExample((), ()) for _ in built]
        for bucket, batch, states in self.encode(network, built):
            scores = iter(self.split(self.scores(states, batch, None), batch))
            for index in bucket:
                own = list(islice(scores, self.outputs_per_example(len(built[index]))))
                found[index] = ScoredExample(built[index], own)
        return found

    def answers(
        self, examples: Sequence[Example], scored: Sequence[ScoredExample], added: Sequence[Floats] | None = None
    ) -> list[Prediction]:
        """The predictions of scored examples, mixed with the scores that the linear part adds."""
        found = []
        for index, (example, (sequences, scores)) in enumerate(zip(examples, scored, strict=True)):
            if added is not None and sequences:
                scores = self.mix(sequences, scores, added[index])
            truncated, dropped = any(one.truncated for one in sequences), sum(one.dropped for one in sequences)
            found.append(with_truncation(self.answer(example, sequences, scores), truncated, dropped))
        return found

    def mix(self, sequences: Sequence[InputSequence], scores: Sequence[Floats], added: Floats) -> list[Floats]:
        """The scores of an example, mixed with those of the linear part."""
        assert self.linear is not None
        return [self.linear.mix(scores[0], added)]

    @abstractmethod
    def answer(self, example: Example, sequences: Sequence[InputSequence], scores: Sequence[Floats]) -> Prediction:
        """The prediction for an example from the scores of its sequences."""

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays of the head and of the linear part."""
        linear = {} if self.linear is None else self.linear.arrays()
        return {name: tensor.detach().numpy() for name, tensor in own_tensors(self).items()} | linear

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]], tokenizer: Tokenizer) -> None:
        """Take over the arrays of an artifact, whose names, types and shapes are checked."""
        linear, own = split_arrays(arrays)
        load_tensors(self, own)
        self.linear = restore_linear_part(self.recipe, linear, tokenizer)

    def calibrate(self, examples: Sequence[Example], answers: Sequence[Prediction]) -> list[Prediction]:
        """Fit decision thresholds of the recipe to held-out examples; returns the predictions with them."""
        return list(answers)

    @abstractmethod
    def metric_inputs(self, examples: Sequence[Example], answers: Sequence[Prediction]) -> MetricInputs:
        """The inputs of `measure`."""

    def measure(
        self, examples: Sequence[Example], answers: Sequence[Prediction], seed: int = 0, samples: int = 1000
    ) -> dict[str, Any]:
        """Metrics with confidence intervals, and those of a trivial baseline."""
        return measure(*self.metric_inputs(examples, answers), seed=seed, samples=samples)

    def nll_metrics(
        self, network: Network, examples: Sequence[Example], builder: SequenceBuilder, **bootstrap: int
    ) -> dict[str, Any]:
        """Metrics of the likelihood of the references, with intervals; empty unless the task generates text.

        bootstrap: `seed` and `samples` of the intervals.
        """
        return {}

    def output_count(self, batch: Batch) -> int:
        return self.count(batch) if self.uses_output_layer else 0

    def flops(self, network: Network, batch: Batch) -> float:
        """Floating-point operations of the head's forward pass, where they matter."""
        return batch.ids.numel() * self.head.flops(batch.shape[1])

    def init_from_pretraining(self, heads: Mapping[str, Tensor]) -> None:
        """Copy the pooler of a pre-training head, such as that of NSP, if there is one (Devlin et al. 2019)."""
        pooler = self.head.pooler
        for name in [name.removesuffix(".weight") for name in heads if name.endswith(".pooler.weight")]:
            weight, bias = heads.get(f"{name}.weight"), heads.get(f"{name}.bias")
            if pooler is not None and weight is not None and bias is not None and weight.shape == pooler.weight.shape:
                with torch.no_grad():
                    pooler.weight.copy_(weight)
                    pooler.bias.copy_(bias)

    def has_layers_of(self, other: Task) -> bool:
        """Whether the layers of another task can be replaced by these: the labels and all shapes are the same."""
        own, others = ({name: one.shape for name, one in task.state_dict().items()} for task in (self, other))
        is_same = all(getattr(self.recipe, field) == getattr(other.recipe, field) for field in ("form", "labels"))
        return type(self) is type(other) and is_same and own == others

    def weights(self, progress: float) -> dict[str, float]:
        return {self.name: self.weight}

    def positions(self, batch: Batch) -> Tensor | None:
        """The sorted positions to predict at; None if the head needs all."""
        return None if self.head.needs_all_positions else batch.labels[POSITIONS].sort().values

    def count(self, batch: Batch) -> int:
        """Number of predictions in a batch."""
        return len(batch.labels[LABELS]) if LABELS in batch.labels else 0

    def scores(self, states: HiddenStates, batch: Batch, rng: DropoutRng | None) -> Tensor:
        """(sequences or positions, outputs): logits."""
        found = self.head.states(states, batch, batch.labels[POSITIONS], rng)
        if self.pooled:
            groups = batch.labels[GROUPS]
            return self.head.pool(found, groups, int(groups.max()) + 1, rng)
        return self.head.score(found, rng)

    def loss(self, network: Network, states: HiddenStates, batch: Batch, rng: DropoutRng | None) -> Loss:
        """The summed loss of all predictions."""
        return Loss(self.total(self.scores(states, batch, rng), batch, rng), self.count(batch))

    def total(self, scores: Tensor, batch: Batch, rng: DropoutRng | None) -> Tensor:
        """Summed cross-entropy; label smoothing and label weights apply in training only."""
        smoothing = self.recipe.head.label_smoothing if rng is not None else 0.0
        weights = self.label_weights if rng is not None and self.recipe.head.balanced else None
        return cross_entropy(scores, batch.labels[LABELS], weight=weights, reduction="sum", label_smoothing=smoothing)

    def split(self, scores: Tensor, batch: Batch) -> list[Floats]:
        """The scores of each packed sequence, in the given order."""
        if self.pooled:
            return list(scores.numpy())
        sizes = torch.bincount(batch.labels[GROUPS])
        return [one.numpy() for one in torch.split(scores, sizes.tolist())]


def length_buckets(built: Sequence[Sequence[InputSequence]]) -> Iterator[list[int]]:
    """Indices of examples of similar length, longest first, in batches of limited size."""
    lengths = np.array([max(one.ids.size for one in sequences) if sequences else 0 for sequences in built])
    bucket: list[int] = []
    filled = 0
    for index in np.argsort(-lengths, kind="stable").tolist():
        size = int(lengths[index]) * len(built[index])
        if not size:
            continue
        if bucket and filled + size > BATCH_TOKENS:
            yield bucket
            bucket, filled = [], 0
        bucket.append(index)
        filled += size
    if bucket:
        yield bucket


def label_indices(labels: Sequence[str]) -> dict[str, int]:
    """The index of each label."""
    return {label: index for index, label in enumerate(labels)}


def softmax(scores: Floats) -> Floats:
    """Probabilities along the last axis."""
    exponentials = np.exp(scores.astype(np.float64) - scores.max(-1, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(-1, keepdims=True), dtype=np.float32)


def class_weights(counts: Mapping[str, int], labels: Sequence[str]) -> Tensor:
    """n / (k n_label): inverse frequencies with a mean of 1 over the examples."""
    total = sum(counts.values())
    return torch.tensor([total / (len(labels) * max(1, counts.get(label, 0))) for label in labels])


class TaskModel(Predictor):
    """A network and the head of a task."""

    def __init__(self, recipe: TaskRecipe, base: NetModel, task: Task, graph: KnowledgeGraph | None = None) -> None:
        """The facts of a `graph` are inserted into texts as the recipe says."""
        self.recipe, self.base, self.graph = recipe, base, graph
        self.head = task.eval()
        self.task: str = recipe.task
        self.labels = recipe.labels
        self.columns = recipe.columns
        self.tokenizer = base.tokenizer
        self.builder = SequenceBuilder(recipe.network, base.tokenizer, recipe.knowledge, graph)

    def without_linear(self) -> TaskModel:
        """The same model without its linear part, for another tokenizer or a program that has no place for it."""
        task = copy(self.head)
        task.linear = None
        task.recipe = replace(self.recipe, linear=None, linear_weight=0.0)
        return TaskModel(task.recipe, self.base, task, self.graph)

    @property
    def pretrained(self) -> NetModel:
        """The network as a model of its own, without the head of the task."""
        return self.base

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays of the network, those of the head under the name of the task, and the facts."""
        own = {f"{HEADS}{self.task}.{name}": array for name, array in self.head.arrays().items()}
        facts = {} if self.graph is None else {FACTS: graph_array(self.graph)}
        return self.base.arrays() | own | facts

    def predict_chunk(self, examples: Sequence[Example]) -> list[Prediction]:
        return self.head.predict(self.base.network, examples, self.builder)

    def metric_inputs(self, examples: Sequence[Example], answers: Sequence[Prediction]) -> MetricInputs:
        return self.head.metric_inputs(examples, answers)

    def measure(
        self, examples: Sequence[Example], answers: Sequence[Prediction], seed: int = 0, samples: int = 1000
    ) -> dict[str, Any]:
        """Metrics of predictions with intervals, and the number of facts that had no room."""
        found = self.head.measure(examples, answers, seed=seed, samples=samples)
        if dropped := sum(answer.get(DROPPED, 0) for answer in answers):
            found[DROPPED] = dropped
        return found | self.head.nll_metrics(self.base.network, examples, self.builder, seed=seed, samples=samples)
