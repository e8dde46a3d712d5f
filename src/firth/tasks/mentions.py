"""typing and relation: labels of the marked mentions of entities in a text (Zhang et al. 2019).

typing: the types of one mention, which has [ENT] before and after it. relation: the relation of two, of which the head
has [HD] and the tail [TL] around it. The markers are vectors of the task, so that any network can have them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, cast

import numpy as np
import torch
from torch import nn

from firth.nets.batch import Batch, TokenVectors
from firth.nets.dropout import DropoutRng
from firth.nets.linear import INIT_STD
from firth.nets.network import Network, Vocabulary
from firth.tasks.classify import ClassifyTask
from firth.tasks.examples import Example, MentionExample
from firth.tasks.predictor import MetricInputs, Prediction
from firth.tasks.recipe import TaskRecipe
from firth.tasks.sequences import MARKERS, InputSequence, Ints, SequenceBuilder
from firth.tasks.task import LABELS, Floats, label_indices
from firth.tokens.tokenizer import UNK

KINDS = "marker_kinds"
"""The key of the kind of each marker."""


class MentionTask(ClassifyTask):
    """A classifier on the pooled state of a text with marked mentions."""

    markers: ClassVar[tuple[str, ...]]
    """The marker around each mention."""

    def __init__(self, recipe: TaskRecipe, vocabulary: Vocabulary) -> None:
        super().__init__(recipe, vocabulary)
        self.marker_vectors = nn.Parameter(torch.empty(len(self.markers), recipe.network.embedding.width))
        nn.init.normal_(self.marker_vectors, std=INIT_STD)

    def sequences(self, examples: Sequence[Example], builder: SequenceBuilder) -> list[list[InputSequence]]:
        given = cast(Sequence[MentionExample], examples)
        indices = label_indices(self.recipe.labels)
        found = []
        for example, (ids, offsets) in zip(
            given, builder.encode_with_offsets([one.text for one in given]), strict=True
        ):
            marked, kinds = mark_mentions(ids, offsets, example.mentions)
            kept = nearest_tokens(kinds, builder.capacity(1))
            built = builder.build(marked[kept])
            where = np.flatnonzero(kinds[kept] >= 0)
            labels = self.inputs(built) | {MARKERS: built.begins[0] + where, KINDS: kinds[kept][where]}
            if example.labels is not None:
                labels[LABELS] = self.targets(example, indices)
            is_cut = kept.size < marked.size
            found.append([InputSequence(built.ids, built.segment_ids, labels=labels, truncated=is_cut)])
        return found

    def rewrite(self, batch: Batch, network: Network, rng: DropoutRng | None) -> Batch:
        """The batch with the vectors of markers."""
        vectors = TokenVectors(batch.labels[MARKERS], self.marker_vectors[batch.labels[KINDS]])
        return replace(batch, token_vectors=vectors)


class TypingTask(MentionTask):
    """Any number of types of a mention; the likeliest one if none has a probability of one half."""

    kind: ClassVar[str] = "typing"
    markers: ClassVar[tuple[str, ...]] = ("[ENT]",)

    def answer(self, example: Example, sequences: Sequence[InputSequence], scores: Sequence[Floats]) -> Prediction:
        found = super().answer(example, sequences, scores)
        if not found["labels"]:
            found["labels"] = [max(found["probabilities"], key=found["probabilities"].__getitem__)]
        return found

    def metric_inputs(self, examples: Sequence[Example], answers: Sequence[Prediction]) -> MetricInputs:
        gold = [cast(MentionExample, one).labels or () for one in examples]
        return self.kind, gold, [one["labels"] for one in answers]


class RelationTask(MentionTask):
    """The relation of a head and a tail."""

    kind: ClassVar[str] = "relation"
    markers: ClassVar[tuple[str, ...]] = ("[HD]", "[TL]")


def mark_mentions(ids: Ints, offsets: Ints, mentions: Sequence[tuple[int, int]]) -> tuple[Ints, Ints]:
    """The tokens with two more around each mention, and the kind of these markers, -1 for tokens outside mentions.

    `offsets` are those of the tokens in the characters of the text. The tokens of a mention have the kind -2, and so
    has everything between markers that overlap.

    >>> offsets = np.array([[0, 2], [3, 8], [9, 11]])
    >>> ids, kinds = mark_mentions(np.array([7, 8, 9]), offsets, [(3, 8)])
    >>> ids.tolist(), kinds.tolist()
    ([7, 1, 8, 1, 9], [-1, 0, -2, 0, -1])
    """
    inside = np.zeros(ids.size, dtype=np.bool_)
    added = list[tuple[int, int, int, int]]()
    for kind, (begin, end) in enumerate(mentions):
        own = np.flatnonzero((offsets[:, 0] < end) & (offsets[:, 1] > begin)) if ids.size else np.zeros(0, np.int64)
        first = int(own[0]) if own.size else int(np.searchsorted(offsets[:, 0], begin)) if ids.size else 0
        last = int(own[-1]) + 1 if own.size else first
        inside[first:last] = True
        is_empty = first == last
        # Of markers between the same tokens, those that end a mention are before those that begin one.
        added += [(first, 1 if is_empty else 2, -last, kind), (last, 1 if is_empty else 0, -first, kind)]
    where, kinds = [one[0] for one in sorted(added)], [one[-1] for one in sorted(added)]
    return np.insert(ids, where, UNK), np.insert(np.where(inside, -2, -1), where, kinds)


def nearest_tokens(kinds: Ints, capacity: int) -> Ints:
    """The indices of at most `capacity` tokens, those nearest to a mention, in their order.

    >>> nearest_tokens(np.array([-1, -1, 0, -2, 0, -1, -1]), 4).tolist()
    [1, 2, 3, 4]
    """
    marked = np.flatnonzero(kinds != -1)
    if kinds.size <= capacity or not marked.size:
        return np.arange(min(kinds.size, capacity))
    positions = np.arange(kinds.size)
    after = np.minimum(np.searchsorted(marked, positions), marked.size - 1)
    distances = np.minimum(np.abs(marked[after] - positions), np.abs(positions - marked[np.maximum(after - 1, 0)]))
    distances[kinds >= 0] = -1  # of a long mention the markers are kept
    return np.sort(np.argsort(distances, kind="stable")[:capacity])
