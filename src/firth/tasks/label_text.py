"""classify and pair with labels as text: a decoder writes the label (Raffel et al. 2020).

The prediction is the label with the highest probability of its tokens and its end, given the text: a label that begins
with another one is no less probable for that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from firth.errors import RecipeError
from firth.metrics.measure import measure
from firth.nets.batch import Batch
from firth.nets.dropout import DropoutRng
from firth.nets.network import HiddenStates, Network, Vocabulary
from firth.nets.scoring import BATCH_TOKENS
from firth.nets.scoring import max_length as network_max_length
from firth.tasks.examples import Example, TextExample, numeric_labels
from firth.tasks.generate import EncoderDecoderTask, source_states
from firth.tasks.predictor import MetricInputs, Prediction, single_label, text_metric_inputs
from firth.tasks.recipe import TaskRecipe
from firth.tasks.sequences import POSITIONS, InputSequence, Ints, SequenceBuilder
from firth.tasks.task import Floats, Task, label_indices, softmax
from firth.tokens.tokenizer import EOS

_MAX_NUMBERS = 26  # labels of a number: 0.0, 0.2, ..., 5.0 for similarities up to 5, as in T5
_NICE = (1.0, 2.0, 5.0)


class LabelTextTask(EncoderDecoderTask):
    """-log p(label | hidden states of the text or of both texts), by the decoder."""

    def __init__(self, recipe: TaskRecipe, vocabulary: Vocabulary) -> None:
        super().__init__(recipe, vocabulary)
        self.name = recipe.task
        self._label_ids: list[Ints] = []

    def sequences(self, examples: Sequence[Example], builder: SequenceBuilder) -> list[list[InputSequence]]:
        texts = cast(Sequence[TextExample], examples)
        encoded = [builder.encode([one.text for one in texts])]
        if self.recipe.task == "pair":
            encoded.append(builder.encode([one.other or "" for one in texts]))
        targets = self.label_ids(builder)
        found = []
        for example, *ids in zip(texts, *encoded, strict=True):
            built = builder.build(*ids)
            labels: dict[str, Ints] = {POSITIONS: np.arange(built.ids.size)}
            if example.labels is not None:
                labels |= self.target_labels(targets[self._label_of(example)])
            found.append([InputSequence(built.ids, built.segment_ids, labels=labels, truncated=built.truncated)])
        return found

    def _label_of(self, example: TextExample) -> int:
        """The index of the label; of numbers the nearest."""
        if self.recipe.form == "number":
            numbers = np.array([float(label) for label in self.recipe.labels])
            return int(np.abs(numbers - numeric_labels([example])[0]).argmin())
        return label_indices(self.recipe.labels)[(example.labels or ("",))[0]]

    def label_ids(self, builder: SequenceBuilder) -> list[Ints]:
        """The tokens of each label without its end, which are different ones."""
        if not self._label_ids:
            found = builder.encode(self.recipe.labels)
            self._check_labels(found)
            self._label_ids = found
        return self._label_ids

    def _check_labels(self, ids: Sequence[Ints]) -> None:
        seen: dict[tuple[int, ...], str] = {}
        limit = network_max_length(self.decoder.recipe)
        for label, tokens in zip(self.recipe.labels, ids, strict=True):
            key = tuple(tokens.tolist())
            if key in seen:
                raise RecipeError(
                    f"the labels {seen[key]!r:.80} and {label!r:.80} are the same tokens to this model: rename one of "
                    "them, or set head.answer=pooled."
                )
            if limit is not None and tokens.size >= limit:
                raise RecipeError(f"the label {label!r:.80} has {tokens.size} tokens: give one of fewer than {limit}.")
            seen[key] = label

    def scores(self, states: HiddenStates, batch: Batch, rng: DropoutRng | None) -> Tensor:
        """(examples, labels): the log-probability of each label and its end.

        The decoder reads the source once; its states are repeated for each of some labels at a time.
        """
        labels = self._label_ids
        encoded = source_states(states, batch)
        rows, length = encoded.states.shape[:2]
        starts = torch.full((rows, 1), self.start_token)
        first, cache = self.decoder.decode_step(starts, encoder_states=encoded)
        found = torch.empty(rows, len(labels))
        step = max(1, BATCH_TOKENS // (rows * length))
        for begin in range(0, len(labels), step):
            some = labels[begin : begin + step]
            targets, inputs = _padded([*one.tolist(), EOS] for one in some), _padded(one.tolist() for one in some)
            states_of = first.repeat_interleave(len(some), 0)
            if inputs.shape[1]:
                repeated = cache.select_rows(torch.arange(rows).repeat_interleave(len(some)))
                more, _ = self.decoder.decode_step(inputs.clamp(min=0).repeat(rows, 1), repeated)
                states_of = torch.cat([states_of, more], 1)
            wanted, is_token = targets.clamp(min=0).repeat(rows, 1), (targets >= 0).repeat(rows, 1)
            logs = torch.zeros(wanted.shape)
            logs[is_token] = self.decoder.output.log_probability(states_of[is_token], wanted[is_token]).float()
            found[:, begin : begin + step] = logs.sum(1).view(rows, len(some))
        return found

    def outputs_per_example(self, sequences: int) -> int:
        return 1

    def split(self, scores: Tensor, batch: Batch) -> list[Floats]:
        return list(scores.numpy())

    def predict(self, network: Network, examples: Sequence[Example], builder: SequenceBuilder) -> list[Prediction]:
        """The likeliest label of each example."""
        return Task.predict(self, network, examples, builder)

    def answer(self, example: Example, sequences: Sequence[InputSequence], scores: Sequence[Floats]) -> Prediction:
        """Probabilities are relative to those of the other labels."""
        if self.recipe.form == "number":
            return {"score": float(self.recipe.labels[int(scores[0].argmax())])}
        return single_label(self.recipe.labels, softmax(scores[0]).tolist())

    def metric_inputs(self, examples: Sequence[Example], answers: Sequence[Prediction]) -> MetricInputs:
        return text_metric_inputs(self.recipe.task, self.recipe.form, examples, answers)

    def measure(
        self, examples: Sequence[Example], answers: Sequence[Prediction], seed: int = 0, samples: int = 1000
    ) -> dict[str, Any]:
        return measure(*self.metric_inputs(examples, answers), seed=seed, samples=samples)

    def nll_metrics(
        self, network: Network, examples: Sequence[Example], builder: SequenceBuilder, **bootstrap: int
    ) -> dict[str, Any]:
        return {}


def number_labels(values: Iterable[float]) -> tuple[str, ...]:
    """Numbers at equal distances of 1, 2 or 5 times a power of ten, at most 26, which cover the given ones.

    >>> number_labels([0.0, 3.8, 5.0])[:3], len(number_labels([0.0, 3.8, 5.0])), number_labels([12, 88])[-1]
    (('0.0', '0.2', '0.4'), 26, '90')
    """
    given = list(values)
    low, high = min(given), max(given)
    exponent = int(np.floor(np.log10(max(high - low, 1e-9) / _MAX_NUMBERS)))
    for power in count(exponent):
        for nice in _NICE:
            step = nice * 10.0**power
            first, last = int(np.floor(low / step + 1e-9)), int(np.ceil(high / step - 1e-9))
            if last - first < _MAX_NUMBERS:
                return tuple(f"{number * step:.{max(0, -power)}f}" for number in range(first, last + 1))
    raise AssertionError("some power of ten is large enough")


def _padded(rows: Iterable[Sequence[int]]) -> Tensor:
    """Rows of different lengths, -1 after their ends."""
    given = list(rows)
    found = torch.full((len(given), max(map(len, given))), -1)
    for number, row in enumerate(given):
        found[number, : len(row)] = torch.tensor(row, dtype=torch.int64)
    return found
