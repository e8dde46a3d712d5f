"""tag: sequence labelling of words (part of speech, entities) or characters (word segmentation)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from firth.nets.batch import Batch
from firth.nets.dropout import DropoutRng
from firth.nets.groups import pad_groups
from firth.nets.network import HiddenStates, Vocabulary
from firth.tasks.crf import Crf, decode_jointly
from firth.tasks.examples import Example, TagExample, texts_of
from firth.tasks.linear_tagger import LinearTagger
from firth.tasks.predictor import MetricInputs, Prediction, tag_metric_inputs
from firth.tasks.recipe import TaskRecipe
from firth.tasks.sequences import GROUPS, POSITIONS, InputSequence, Ints, SequenceBuilder
from firth.tasks.task import LABELS, Floats, Task, label_indices, softmax
from firth.tasks.trees import within
from firth.tokens.tokenizer import UNK

WORDS = "words"  # key of the index of each labelled word in its sentence
WORD_IN_TOKEN = "word_in_token"  # key of the index of each word among those that begin in the same token
_MANY_WORDS = 1.2  # words per token above which unspaced sentences are tokenized as a whole
_MAX_WORDS_PER_TOKEN = 4  # later words of a token use the scores of this one
_SAMPLE = 1000  # sentences inspected for this


class TagTask(Task):
    """Each word is classified by the state of its first token, with or without a CRF.

    Where words are single characters (Chinese) and the network was trained on longer tokens, the sentence is tokenized
    as a whole and the n-th word of a token has its own classifier (`words_per_token`).
    """

    kind: ClassVar[str] = "tag"

    def __init__(self, recipe: TaskRecipe, vocabulary: Vocabulary) -> None:
        super().__init__(recipe, vocabulary)
        self.crf = Crf(recipe.labels, constrained=True) if recipe.head.crf else None

    @property
    def outputs(self) -> int:
        return len(self.recipe.labels) * int(self.recipe.words_per_token)

    def sequences(self, examples: Sequence[Example], builder: SequenceBuilder) -> list[list[InputSequence]]:
        indices = label_indices(self.recipe.labels)
        return [self._windows(cast(TagExample, example), builder, indices) for example in examples]

    def _windows(self, example: TagExample, builder: SequenceBuilder, indices: dict[str, int]) -> list[InputSequence]:
        """One sequence, or overlapping windows of a long sentence, each labelling the words in its middle."""
        if not example.words:
            return []
        ids, first_tokens, ranks, offsets = align(example, builder, whole=self.recipe.words_per_token > 1)
        heads = builder.heads_at("".join(texts_of(example)), offsets)
        targets = None if example.tags is None else np.array([indices[tag] for tag in example.tags])
        openers = np.flatnonzero(ranks == 0)  # words that begin a token, each followed by the others of that token
        words, tokens = np.append(openers, ranks.size), np.append(first_tokens[openers], ids.size)
        tokens[0] = 0
        found = []
        spans = list(word_windows(np.diff(tokens), builder.capacity(1)))
        for first, end, (low, high) in spans:
            built = builder.build(ids[tokens[first] : tokens[end]][: builder.capacity(1)])
            labelled = np.arange(words[low], words[high])
            labels = {POSITIONS: built.begins[0] + first_tokens[labelled] - tokens[first], WORDS: labelled}
            if self.recipe.words_per_token > 1:
                labels[WORD_IN_TOKEN] = np.minimum(ranks[labelled], self.recipe.words_per_token - 1)
            if targets is not None:
                labels[LABELS] = targets[labelled]
            own = within(heads, tokens[first], tokens[end], 0)
            found.append(builder.sequence(built, labels, [own], truncated=len(spans) > 1))
        return found

    def scores(self, states: HiddenStates, batch: Batch, rng: DropoutRng | None) -> Tensor:
        found = super().scores(states, batch, rng)
        if self.recipe.words_per_token == 1:
            return found
        rows = torch.arange(len(found), device=found.device)
        return found.view(len(found), self.recipe.words_per_token, -1)[rows, batch.labels[WORD_IN_TOKEN]]

    def total(self, scores: Tensor, batch: Batch, rng: DropoutRng | None) -> Tensor:
        if self.crf is None:
            return super().total(scores, batch, rng)
        groups = batch.labels[GROUPS]
        count = int(groups.max()) + 1
        padded, mask = pad_groups(scores, groups, count)
        labels, _ = pad_groups(batch.labels[LABELS], groups, count)
        return self.crf.loss(padded, labels, mask.sum(1))

    def answer(self, example: Example, sequences: Sequence[InputSequence], scores: Sequence[Floats]) -> Prediction:
        if not scores:
            return {"tags": [], "probabilities": []}
        labels, chances = self._decode(np.concatenate(scores))  # windows label the words of a sentence in their order
        return {"tags": [self.recipe.labels[index] for index in labels.tolist()], "probabilities": chances.tolist()}

    def _decode(self, scores: Floats) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """The labels of a sentence and their probabilities: jointly if the head or the linear part has transitions."""
        if self.linear is not None:
            size = len(self.recipe.labels) + 1
            own = np.zeros((size, size)) if self.crf is None else self.crf.transitions()
            return decode_jointly(scores, self.linear.mix(own, cast(LinearTagger, self.linear.model).valid_transitions))
        if self.crf is not None:
            return self.crf.decode(scores)
        chances = softmax(scores)
        return chances.argmax(1), chances.max(1)

    def mix(self, sequences: Sequence[InputSequence], scores: Sequence[Floats], added: Floats) -> list[Floats]:
        assert self.linear is not None
        pairs = zip(scores, sequences, strict=True)
        return [self.linear.mix(one, added[sequence.labels[WORDS]]) for one, sequence in pairs]

    def metric_inputs(self, examples: Sequence[Example], answers: Sequence[Prediction]) -> MetricInputs:
        return tag_metric_inputs(examples, answers)


class Alignment(NamedTuple):
    """A tokenized sentence and its words."""

    ids: Ints
    first_tokens: Ints  # the token in which each word begins
    ranks: Ints  # the index of each word among those that begin in the same token
    offsets: Ints  # (tokens, 2): the characters of the sentence that each token is from


def align(example: TagExample, builder: SequenceBuilder, *, whole: bool) -> Alignment:
    """Tokens of a sentence, word by word, or with `whole` at once if it has no spaces.

    A word without a token is an unknown one; in a sentence tokenized as a whole it belongs to the token before.
    """
    if whole and not example.spaced:
        ids, offsets = builder.encode_with_offsets(["".join(example.words)])[0]
        lengths = np.array([len(word) for word in example.words])
        begins = np.cumsum(lengths) - lengths
        first_tokens = np.maximum(np.searchsorted(offsets[:, 0], begins, side="right") - 1, 0)
        ranks = np.arange(first_tokens.size) - np.searchsorted(first_tokens, first_tokens)
        if not ids.size:
            ids, offsets = np.array([UNK]), np.array([[0, int(lengths.sum())]])
        return Alignment(ids, first_tokens, ranks, offsets)
    words = [f" {word}" if example.spaced and index else word for index, word in enumerate(example.words)]
    pieces = [ids if ids.size else np.array([UNK]) for ids in builder.encode(words)]
    sizes = np.array([piece.size for piece in pieces])
    lengths = np.array([len(word) for word in example.words])
    begins = np.cumsum(lengths + example.spaced) - lengths - example.spaced
    offsets = np.repeat(np.column_stack([begins, begins + lengths]), sizes, axis=0)
    return Alignment(np.concatenate(pieces), np.cumsum(sizes) - sizes, np.zeros_like(sizes), offsets)


def find_words_per_token(examples: Sequence[TagExample], builder: SequenceBuilder) -> int:
    """How many words of a token need classifiers of their own; 1 if words are to be tokenized one by one.

    Words of unspaced text can be shorter than the tokens of a network.
    """
    sample = [one for one in examples if one.words and not one.spaced][:_SAMPLE]
    aligned = [align(one, builder, whole=True) for one in sample]
    words, tokens = sum(one.first_tokens.size for one in aligned), sum(one.ids.size for one in aligned)
    if words <= _MANY_WORDS * tokens:
        return 1
    return min(_MAX_WORDS_PER_TOKEN, 1 + max(int(one.ranks.max()) for one in aligned))


def word_windows(sizes: Ints, capacity: int) -> list[tuple[int, int, tuple[int, int]]]:
    """Windows over words of given token counts: the first word, the end, and the bounds of the words to label."""
    ends = np.cumsum(sizes)
    if sizes.size == 0 or ends[-1] <= capacity:
        return [(0, sizes.size, (0, sizes.size))] if sizes.size else []
    found: list[tuple[int, int]] = []
    first = 0
    while True:
        offset = int(ends[first] - sizes[first])
        end = max(first + 1, int(np.searchsorted(ends, offset + capacity, side="right")))
        found.append((first, end))
        if end == sizes.size:
            break
        middle = int(np.searchsorted(ends, offset + capacity // 2, side="right"))
        first = min(max(first + 1, middle), end)
    borders = [0, *((a[1] + b[0]) // 2 for a, b in pairwise(found)), sizes.size]
    return [(begin, end, bounds) for (begin, end), bounds in zip(found, pairwise(borders), strict=True)]
