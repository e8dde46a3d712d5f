"""classify, pair and choice: tasks on the pooled state of each sequence.

classify: single- or multi-label classification of texts. pair: the relation of two texts, as a label or a number.
choice: multiple choice; each option is encoded by itself with the question.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, cast

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from firth.nets.batch import Batch
from firth.nets.dropout import DropoutRng
from firth.nets.groups import pad_groups
from firth.nets.network import HiddenStates, Network
from firth.tasks.examples import ChoiceExample, Example, TextExample, numeric_labels
from firth.tasks.predictor import MetricInputs, Prediction, multiple_labels, single_label, text_metric_inputs
from firth.tasks.sequences import GROUPS, POSITIONS, BuiltSequence, InputSequence, Ints, SequenceBuilder
from firth.tasks.task import LABELS, Floats, Task, label_indices, softmax

_SCALE = 1000  # numeric targets are stored as integers, in thousandths
SIDES = "sides"  # key of which of two texts each position belongs to
OPTIONS = "options"  # key of the number of options of each example


class ClassifyTask(Task):
    """A linear classifier on the pooled state of the text."""

    kind: ClassVar[str] = "classify"
    pooled: ClassVar[bool] = True

    def sequences(self, examples: Sequence[Example], builder: SequenceBuilder) -> list[list[InputSequence]]:
        texts = cast(Sequence[TextExample], examples)
        sides = [[one.text for one in texts]]
        if self.kind == "pair":
            sides.append([one.other or "" for one in texts])
        encoded = [list(zip(builder.encode(side), builder.heads(side), strict=True)) for side in sides]
        indices = label_indices(self.recipe.labels)
        found = []
        for example, *both in zip(texts, *encoded, strict=True):
            sequences: list[InputSequence] = []
            for order in (both, both[::-1]) if self.recipe.symmetric and len(both) == 2 else (both,):
                built = builder.build(*(ids for ids, _ in order))
                labels = self.inputs(built)
                if example.labels is not None and not sequences:
                    labels[LABELS] = self.targets(example, indices)
                sequences.append(builder.sequence(built, labels, [heads for _, heads in order]))
            found.append(sequences)
        return found

    def inputs(self, built: BuiltSequence) -> dict[str, Ints]:
        """The positions whose states the head needs."""
        return {POSITIONS: self.pooled_positions(built)}

    def targets(self, example: TextExample, indices: dict[str, int]) -> Ints:
        """The index of the label, or a multi-hot vector of all labels."""
        labels = example.labels or ()
        if self.recipe.form == "multi":
            targets = np.zeros(len(indices), dtype=np.int64)
            targets[[indices[label] for label in labels if label in indices]] = 1
            return targets
        return np.array([indices[labels[0]]])

    def count(self, batch: Batch) -> int:
        count = super().count(batch)
        return count // len(self.recipe.labels) if self.recipe.form == "multi" else count

    def total(self, scores: Tensor, batch: Batch, rng: DropoutRng | None) -> Tensor:
        if self.recipe.form != "multi":
            return super().total(scores, batch, rng)
        targets = batch.labels[LABELS].view_as(scores).to(scores.dtype)
        return binary_cross_entropy_with_logits(scores, targets, reduction="sum")

    def answer(self, example: Example, sequences: Sequence[InputSequence], scores: Sequence[Floats]) -> Prediction:
        if self.recipe.form == "multi":
            return multiple_labels(self.recipe.labels, torch.from_numpy(scores[0]).sigmoid().tolist())
        return single_label(self.recipe.labels, softmax(scores[0]).tolist())

    def metric_inputs(self, examples: Sequence[Example], answers: Sequence[Prediction]) -> MetricInputs:
        return text_metric_inputs(self.kind, self.recipe.form, examples, answers)


class PairTask(ClassifyTask):
    """Both texts in one sequence; for symmetric relations in both orders, whose scores are added."""

    kind: ClassVar[str] = "pair"

    @property
    def outputs(self) -> int:
        return 1 if self.recipe.form == "number" else len(self.recipe.labels)

    def targets(self, example: TextExample, indices: dict[str, int]) -> Ints:
        if self.recipe.form == "number":
            return np.array([round(_SCALE * numeric_labels([example])[0])])
        return super().targets(example, indices)

    def inputs(self, built: BuiltSequence) -> dict[str, Ints]:
        if self.recipe.head.answer != "san":
            return super().inputs(built)
        # As in MT-DNN's code, [CLS] and the separator belong to the first text, and the end to the second.
        positions = np.arange(built.ids.size)
        return {POSITIONS: positions, SIDES: (positions >= built.begins[1]).astype(np.int64)}

    def scores(self, states: HiddenStates, batch: Batch, rng: DropoutRng | None) -> Tensor:
        if self.head.answer is None:
            found = super().scores(states, batch, rng)
        else:
            groups = batch.labels[GROUPS]
            tokens = self.head.states(states, batch, batch.labels[POSITIONS], rng)
            found = self.head.answer(tokens, groups, batch.labels[SIDES] > 0, int(groups.max()) + 1, rng)
        return found[0::2] + found[1::2] if self.recipe.symmetric else found

    def outputs_per_example(self, sequences: int) -> int:
        return 1

    def flops(self, network: Network, batch: Batch) -> float:
        found = super().flops(network, batch)
        if self.head.answer is not None:
            groups = batch.labels[GROUPS]
            found += self.head.answer.flops(int(groups.max()) + 1, len(groups))
        return found

    def total(self, scores: Tensor, batch: Batch, rng: DropoutRng | None) -> Tensor:
        if self.recipe.form != "number":
            return super().total(scores, batch, rng)
        targets = batch.labels[LABELS].to(scores.dtype) / _SCALE
        return ((scores[:, 0] - targets) ** 2).sum()

    def answer(self, example: Example, sequences: Sequence[InputSequence], scores: Sequence[Floats]) -> Prediction:
        if self.recipe.form == "number":
            return {"score": float(scores[0][0])}
        return super().answer(example, sequences, scores)


class ChoiceTask(Task):
    """softmax over one score for each option (Radford et al. 2018; Devlin et al. 2019)."""

    kind: ClassVar[str] = "choice"
    pooled: ClassVar[bool] = True

    @property
    def outputs(self) -> int:
        return 1

    def sequences(self, examples: Sequence[Example], builder: SequenceBuilder) -> list[list[InputSequence]]:
        found = []
        for example in cast(Sequence[ChoiceExample], examples):
            question = " ".join(filter(None, (example.context, example.question)))
            first, *others = builder.encode([question, *example.choices])
            sequences = []
            for second in others:
                # The beginning of a long context is dropped, so that its end and the question stay.
                dropped = max(0, min(first.size - 1, first.size + second.size - builder.capacity(2)))
                built = builder.build(first[dropped:], second)
                labels = {POSITIONS: self.pooled_positions(built)}
                truncated = built.truncated or dropped > 0
                sequences.append(InputSequence(built.ids, built.segment_ids, labels=labels, truncated=truncated))
            labels = {OPTIONS: np.array([len(sequences)])}
            if example.label is not None:
                labels[LABELS] = np.array([example.label])
            sequences[0] = replace(sequences[0], labels={**sequences[0].labels, **labels})
            found.append(sequences)
        return found

    def total(self, scores: Tensor, batch: Batch, rng: DropoutRng | None) -> Tensor:
        sizes = batch.labels[OPTIONS]
        groups = torch.repeat_interleave(torch.arange(len(sizes)), sizes)
        padded, mask = pad_groups(scores[:, 0], groups, len(sizes))
        return cross_entropy(padded.masked_fill(~mask, -torch.inf), batch.labels[LABELS], reduction="sum")

    def answer(self, example: Example, sequences: Sequence[InputSequence], scores: Sequence[Floats]) -> Prediction:
        probabilities = softmax(np.array([one[0] for one in scores]))
        best = int(probabilities.argmax())
        choices = cast(ChoiceExample, example).choices
        return {"choice": best, "text": choices[best], "probabilities": probabilities.tolist()}

    def metric_inputs(self, examples: Sequence[Example], answers: Sequence[Prediction]) -> MetricInputs:
        return "choice", [cast(ChoiceExample, one).label for one in examples], [one["choice"] for one in answers]
