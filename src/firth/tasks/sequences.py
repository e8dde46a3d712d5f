"""Token sequences of one text or two with special tokens, and their packing into batches.

Packing puts several short sequences into one row. It changes speed only: each sequence attends to itself alone and has
its own position ids.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from firth.nets.batch import Batch
from firth.nets.packing import pack_rows
from firth.nets.recipe import NetRecipe
from firth.nets.scoring import max_length, one_line
from firth.nets.special_tokens import task_special_tokens
from firth.tasks.knowledge import KnowledgeGraph, branch_text
from firth.tasks.recipe import KnowledgeRecipe
from firth.tasks.trees import HeadWord, SentenceTree, fit, grow, within
from firth.tokens.encoder import TextEncoder
from firth.tokens.offsets import token_offsets
from firth.tokens.special_tokens import tokenizer_special_tokens
from firth.tokens.tokenizer import EOS, FIRST_WORD, UNK, Tokenizer

Ints = npt.NDArray[np.int64]
POSITIONS = "positions"  # key of the labels that are positions in the sequence
MARKERS = "markers"  # key of the positions of tokens that a task has vectors of
GROUPS = "groups"  # key of the index of the sequence that each of those positions belongs to
# Replaced one for one, so that character offsets stay.
_LINE_ENDS = {ord(one): " " for one in "\0\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"}
_MAX_LENGTH = 512  # tokens of a sequence for networks without a limit


@dataclass(frozen=True)
class InputSequence:
    """A tokenized example, or a window of it."""

    ids: Ints
    segment_ids: Ints | None = None
    attention_order: Ints | None = None
    """Order of attention if it is not that of the tokens: all of a source first, then its target token by token."""
    labels: Mapping[str, Ints] = field(default_factory=dict)
    """Labels of a task; `positions` are counted from the beginning of the sequence."""
    position_ids: Ints | None = None  # if they are not 0, 1, 2, ...
    query_only: int = 0  # number of tokens at the end that no other attends to
    truncated: bool = False  # whether it has not all of its example
    tree: SentenceTree | None = None  # if facts were inserted into its text
    dropped: int = 0  # number of facts that did not fit


def pack(sequences: Sequence[InputSequence], first_word: int) -> Batch:
    """All sequences in one batch; positions are those of the flattened batch.

    Labels keep the given order of the sequences. `first_word` is the first id that is not a special token.

    >>> one = InputSequence(np.array([2, 7, 3]), labels={"positions": np.array([0])})
    >>> two = InputSequence(np.array([2, 8, 9, 9, 3]), labels={"positions": np.array([1])})
    >>> batch = pack([one, InputSequence(np.array([2, 3])), two], 5)
    >>> batch.ids.tolist(), batch.labels["positions"].tolist(), batch.labels["groups"].tolist()
    ([[2, 8, 9, 9, 3], [2, 7, 3, 2, 3]], [5, 1], [0, 2])
    """
    lengths = np.array([one.ids.size for one in sequences])
    rows, begins, numbers = pack_rows(lengths, int(lengths.max())).offsets(lengths)
    shape = (int(rows.max()) + 1, int(lengths.max()))
    ids = np.zeros(shape, dtype=np.int64)
    sequence_ids = np.full(shape, -1, dtype=np.int64)
    position_ids, segment_ids, attention_order = (np.zeros(shape, dtype=np.int64) for _ in range(3))
    query_only = np.zeros(shape, dtype=np.bool_)
    for one, row, begin, number in zip(sequences, rows.tolist(), begins.tolist(), numbers.tolist(), strict=True):
        end = begin + one.ids.size
        ids[row, begin:end], sequence_ids[row, begin:end] = one.ids, number
        position_ids[row, begin:end] = np.arange(one.ids.size) if one.position_ids is None else one.position_ids
        query_only[row, end - one.query_only : end] = True
        if one.segment_ids is not None:
            segment_ids[row, begin:end] = one.segment_ids
        if one.attention_order is not None:
            attention_order[row, begin:end] = one.attention_order
    unpacked = shape[0] == len(sequences) and int(lengths.min()) == shape[1]
    return Batch(
        ids=torch.from_numpy(ids),
        word_starts=torch.from_numpy(ids >= first_word),
        sequence_ids=None if unpacked else torch.from_numpy(sequence_ids),
        position_ids=None
        if unpacked and all(one.position_ids is None for one in sequences)
        else torch.from_numpy(position_ids),
        segment_ids=None if all(one.segment_ids is None for one in sequences) else torch.from_numpy(segment_ids),
        attention_order=None
        if all(one.attention_order is None for one in sequences)
        else torch.from_numpy(attention_order),
        query_only=torch.from_numpy(query_only) if query_only.any() else None,
        visible=None
        if all(one.tree is None for one in sequences)
        else torch.from_numpy(_visible(sequences, rows, begins, shape)),
        labels=_labels(sequences, rows * shape[1] + begins),
        tokens=count_text_tokens(ids),
    )


def _visible(
    sequences: Sequence[InputSequence], rows: Ints, begins: Ints, shape: tuple[int, int]
) -> npt.NDArray[np.bool_]:
    """(rows, length, length): which tokens a sequence with inserted facts may attend to; all, for other sequences."""
    visible = np.ones((*shape, shape[1]), dtype=np.bool_)
    for one, row, begin in zip(sequences, rows.tolist(), begins.tolist(), strict=True):
        if one.tree is not None:
            own = slice(begin, begin + one.ids.size)
            visible[row, own, own] = one.tree.visible()
    return visible


def count_text_tokens(ids: Ints) -> int:
    """The number of tokens of text, known or unknown, without special ones.

    >>> count_text_tokens(np.array([EOS, FIRST_WORD, UNK, EOS]))
    2
    """
    return int(np.count_nonzero((ids >= FIRST_WORD) | (ids == UNK)))


def _labels(sequences: Sequence[InputSequence], offsets: Ints) -> dict[str, torch.Tensor]:
    """The concatenated labels of all sequences."""
    found: dict[str, list[Ints]] = {}
    for index, one in enumerate(sequences):
        for name, values in one.labels.items():
            found.setdefault(name, []).append(values + offsets[index] if name in (POSITIONS, MARKERS) else values)
        if POSITIONS in one.labels:
            found.setdefault(GROUPS, []).append(np.full(one.labels[POSITIONS].size, index))
    return {name: torch.from_numpy(np.concatenate(values)) for name, values in found.items()}


class BuiltSequence(NamedTuple):
    """One text or two with special tokens."""

    ids: Ints
    segment_ids: Ints | None
    begins: tuple[int, int]  # position of the first token of each text
    lengths: tuple[int, int]  # number of tokens of each text after truncation
    truncated: bool  # whether a text was longer


class SequenceBuilder:
    """Builds the input sequences of one network.

    Masked networks get `[CLS] a [SEP] b [SEP]` with segments, or `<s> a </s></s> b </s>` without. Causal ones get
    `start a delimiter b extract` (Radford et al. 2018): start and delimiter are tokens unused in pre-training, and the
    state of the end of sentence is classified. Others get their end of sentence around and between texts. Imported
    models may define other special tokens in their tokenizer.json.
    """

    def __init__(
        self,
        recipe: NetRecipe,
        tokenizer: Tokenizer,
        knowledge: KnowledgeRecipe | None = None,
        graph: KnowledgeGraph | None = None,
    ) -> None:
        """The facts of a `graph` are inserted as `knowledge` says."""
        self.recipe, self.tokenizer, self.knowledge, self.graph = recipe, tokenizer, knowledge, graph
        self.max_length = max_length(recipe) or _MAX_LENGTH
        self.segments = recipe.segments > 1
        self.special_tokens = tokenizer_special_tokens(tokenizer.backend) or task_special_tokens(recipe)
        self._encoder = TextEncoder(tokenizer)
        self._branches: dict[str, tuple[Ints, ...]] = {}  # of the names that occurred

    def encode(self, texts: Sequence[str]) -> list[Ints]:
        """The ids of each text; special tokens in it are unknown words."""
        encoded = self._encoder.encode([one_line(text) for text in texts])
        ids = encoded.ids.astype(np.int64)
        ids = np.where(ids >= FIRST_WORD, ids, UNK)
        ends = np.cumsum(encoded.lengths).tolist()
        return [ids[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]

    def encode_with_offsets(self, texts: Sequence[str]) -> list[tuple[Ints, Ints]]:
        """The ids of each text and the character offsets of its tokens, (tokens, 2)."""
        found = token_offsets(self.tokenizer, [text.translate(_LINE_ENDS) for text in texts])
        return [(np.where(ids >= FIRST_WORD, ids, UNK), offsets) for ids, offsets in found]

    def heads(self, texts: Sequence[str]) -> list[list[HeadWord]]:
        """The names of the graph in each text as tokens, with their facts; nothing without a graph."""
        if self.graph is None:
            return [[] for _ in texts]
        lines = [one_line(text) for text in texts]
        matched = {line: None for line in lines if next(self.graph.find(line), None)}
        encoded = dict(zip(matched, self.encode_with_offsets(list(matched)), strict=True))
        return [self.heads_at(line, encoded[line][1]) if line in encoded else [] for line in lines]

    def heads_at(self, text: str, offsets: Ints) -> list[HeadWord]:
        """The names of the graph in a text whose tokens have these character offsets."""
        if self.graph is None:
            return []
        found: list[HeadWord] = []
        for begin, end in self.graph.find(text):
            first = int(np.searchsorted(offsets[:, 1], begin, side="right"))
            last = int(np.searchsorted(offsets[:, 0], end, side="left"))
            # Of two names in the same token, the first one has it.
            if first < last and not (found and first < found[-1].end) and (facts := self._facts(text[begin:end])):
                found.append(HeadWord(first, last, facts))
        return found

    def _facts(self, name: str) -> tuple[Ints, ...]:
        """The tokens of the facts about a name."""
        assert self.graph is not None
        assert self.knowledge is not None
        if name not in self._branches:
            facts = self.graph.facts[name][: self.knowledge.triples]
            encoded = self.encode([branch_text(fact, self.knowledge.predicate) for fact in facts])
            self._branches[name] = tuple(ids for ids in encoded if ids.size)
        return self._branches[name]

    def sequence(
        self,
        built: BuiltSequence,
        labels: Mapping[str, Ints],
        heads: Sequence[Sequence[HeadWord]] = (),
        truncated: bool | None = None,
    ) -> InputSequence:
        """The input sequence of one text or two; facts about their head words are inserted as far as there is room."""
        parts = zip(heads, built.begins, built.lengths, strict=False)
        inside = [head for own, begin, length in parts for head in within(own, 0, length, begin)]
        kept, dropped = fit(inside, self.max_length - built.ids.size)
        plain = InputSequence(
            built.ids,
            built.segment_ids,
            labels=labels,
            truncated=built.truncated if truncated is None else truncated,
            dropped=dropped,
        )
        if not kept:
            return plain
        grown = grow(built.ids, kept)
        return replace(
            plain,
            ids=grown.ids,
            segment_ids=None if built.segment_ids is None else built.segment_ids[grown.parents],
            position_ids=grown.position_ids,
            labels={name: grown.trunk[one] if name == POSITIONS else one for name, one in labels.items()},
            tree=grown.tree,
        )

    def capacity(self, texts: int) -> int:
        """Maximum number of text tokens in a sequence of one text or two."""
        before, between, end, *_ = self.special_tokens
        return max(1, self.max_length - len(before) - len(end) - (texts - 1) * len(between))

    def build(self, first: Ints, second: Ints | None = None) -> BuiltSequence:
        """A sequence of one text or two; too long ones are truncated at their ends, the longer one first."""
        if second is None:
            lengths = (min(first.size, self.capacity(1)), 0)
        else:
            lengths = truncated_lengths(first.size, second.size, self.capacity(2))
        truncated = lengths[0] < first.size or (second is not None and lengths[1] < second.size)
        before, between, end, segment, last = self.special_tokens
        parts = [before, first[: lengths[0]], *([] if second is None else [between, second[: lengths[1]]]), end]
        ids = np.concatenate([np.asarray(part, dtype=np.int64) for part in parts])
        ids = ids if ids.size else np.array([EOS])  # an empty text without special tokens
        begins = (len(before), 0 if second is None else len(before) + lengths[0] + len(between))
        segment_ids = None
        if self.segments:
            segment_ids = np.where((second is not None) & (np.arange(ids.size) >= begins[1]), segment, 0)
            segment_ids[-1] = segment_ids[-1] if last is None else last
        return BuiltSequence(ids, segment_ids, begins, lengths, truncated)


def truncated_lengths(first: int, second: int, capacity: int) -> tuple[int, int]:
    """The lengths of two texts after truncation of the longer one, then of both alike.

    >>> truncated_lengths(10, 3, 8), truncated_lengths(10, 10, 9), truncated_lengths(2, 3, 9)
    ((5, 3), (5, 4), (2, 3))
    """
    if first + second <= capacity:
        return first, second
    half = capacity // 2
    if second <= half:
        return capacity - second, second
    if first <= capacity - half:
        return first, capacity - first
    return capacity - half, half
