"""Splitting a text into sequences, and filling batches with rows of them, any row without the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from firth.fit._cutting_kernels import (
    count_longer,
    cut_documents,
    cut_pairs,
    cut_sentences,
    cut_text,
    pair_sentences,
)
from firth.fit._row_kernels import END_ID, fill_sequences, fill_stream, find_documents, mark_sentences, measure
from firth.nets.batch import Batch, StreamOffsets
from firth.nets.packing import BatchArrays, Packed, pack_rows
from firth.nets.recipe import Format
from firth.objectives.sequences import Integers, Sequences
from firth.tokens.store import TokenStore
from firth.tokens.tokenizer import EOS, UNK

assert EOS == END_ID

PAIRS: tuple[Format, ...] = ("segment-pair", "sentence-pair")
_NO_EDGES = np.zeros(0, dtype=np.int64)


def bounds_of(store: TokenStore) -> tuple[Integers, Integers]:
    """The offsets of sentences and of documents of a store as signed integers, memory-mapped."""
    return store.sentences.view(np.int64), store.documents.view(np.int64)


def pair_bounds(store: TokenStore) -> Integers:
    """(pairs, 3): where the two sentences of each pair begin, and where it ends.

    A document of another number of sentences was a pair of which a side has no token.
    """
    sentences, documents = bounds_of(store)
    firsts = documents[:-1][np.diff(documents) == 2]
    return np.stack([sentences[firsts], sentences[firsts + 1], sentences[firsts + 2]], axis=1)


def text_capacity(form: Format, length: int, copies: int = 1) -> int:
    """Tokens of text in a sequence of a length, without the special tokens before it and after its segments.

    >>> text_capacity("full-sentences", 128), text_capacity("segment-pair", 128)
    (126, 125)
    >>> text_capacity("sentences", 128, copies=2)
    62
    """
    segments = 2 if form in PAIRS or form == "contiguous-pair" else 1
    return (length - 1 - segments * copies) // copies


def cut_sequences(store: TokenStore, form: Format, limit: int, key: int) -> Sequences:
    """The text of a store as sequences of at most `limit` tokens, in order; every token is in one of them.

    Random choices (in segment pairs: the split and the short ones) depend on `key` only.
    """
    sentences, documents = bounds_of(store)
    edges = sentences[documents] if form in PAIRS else _NO_EDGES
    if form == "sentences" and count_longer(sentences, limit) == 0:
        return Sequences(sentences[:-1, None], sentences[1:, None], limit, edges, {})
    if form == "sentences":
        cuts = cut_sentences(sentences, store.word_starts, limit)
    elif form == "full-sentences":
        cuts = cut_text(sentences, documents, store.word_starts, limit)
    elif form == "doc-sentences":
        cuts = cut_documents(sentences, documents, store.word_starts, limit)
    elif form == "segment-pair":
        cuts = cut_pairs(sentences, documents, store.word_starts, limit, key)
    else:
        pieces = cut_sentences(sentences, store.word_starts, limit // 2)
        cuts = pair_sentences(pieces, sentences, documents, store.word_starts)
    return Sequences(cuts[:, :-1], cuts[:, 1:], limit, edges, {})


class BatchRows(Protocol):
    """The rows of an epoch."""

    @property
    def count(self) -> int:
        """The number of rows."""

    @property
    def fill(self) -> float:
        """The fraction of positions that are not padding."""

    def batch(self, rows: Integers) -> Batch:
        """The batch of some rows."""


class StreamRows:
    """A circular stream of documents, `EOS s1 EOS s2 EOS`, split into rows of a fixed length.

    With an overlap of one, the last token of a row is also the first of the next, so that each is predicted once.
    Memory does not grow with the text: offsets are found by bisection in the memory-mapped bounds.
    """

    def __init__(self, store: TokenStore, length: int, overlap: int, key: int, columns: Sequence[str] = ()) -> None:
        self.store, self.overlap, self.columns = store, overlap, columns
        self._sentences, self._documents = bounds_of(store)
        self._size = stream_size(store)
        self._whole = self._size <= length
        self._stride = self._size if self._whole else length - overlap
        self._offset = 0 if self._whole else key % self._size

    @property
    def count(self) -> int:
        return -(-self._size // self._stride)

    @property
    def fill(self) -> float:
        return self._size / (self.count * self._stride)

    def batch(self, rows: Integers) -> Batch:
        reach = 0 if self._whole else self.overlap
        counts = np.minimum(self._stride, self._size - rows * self._stride) + reach
        arrays = BatchArrays(rows.size, int(counts.max()))
        begins = (self._offset + rows * self._stride) % self._size

        def fill(tokens: npt.NDArray[Any], arrays: BatchArrays) -> int:
            return int(fill_stream(
                tokens, self.store.word_starts, self._sentences, self._documents, begins, counts, reach > 0,
                arrays.ids, arrays.word_starts, arrays.sequence_ids, arrays.position_ids,
            ))  # fmt: skip

        batch = arrays.batch(rows, fill(self.store.ids, arrays))
        batch.columns = fill_columns(self.store, self.columns, batch, fill)
        return batch


def stream_size(store: TokenStore) -> int:
    """Tokens of the documents as `EOS s1 EOS s2 EOS`."""
    return len(store) + store.info.sentences + store.info.documents


class ContiguousRows:
    """The same stream as a number of parallel ones, each of them contiguous from step to step.

    Row number t x streams + b is the t-th of stream b. The first streams may be longer by one token than others, and
    have a row more then.
    """

    def __init__(self, store: TokenStore, length: int, overlap: int, key: int, streams: int) -> None:
        self.store, self.overlap, self.streams = store, overlap, streams
        self._sentences, self._documents = bounds_of(store)
        self._size = stream_size(store)
        self._whole = self._size <= length
        self._stride = self._size if self._whole else length - overlap
        self._offset = 0 if self._whole else key % self._size
        self._span, self._longer = divmod(self._size, streams)

    @property
    def count(self) -> int:
        steps = -(-self._span // self._stride)
        return steps * self.streams + (self._longer if self._span % self._stride == 0 else 0)

    @property
    def fill(self) -> float:
        return self._size / (self.count * self._stride)

    def batch(self, rows: Integers) -> Batch:
        steps, streams = np.divmod(rows, self.streams)
        reach = 0 if self._whole else self.overlap
        spans = self._span + (streams < self._longer)
        lengths = np.minimum(self._stride, spans - steps * self._stride)
        arrays = BatchArrays(rows.size, int(lengths.max()) + reach)
        firsts = streams * self._span + np.minimum(streams, self._longer)
        begins = self._offset + firsts + steps * self._stride
        text = fill_stream(
            self.store.ids, self.store.word_starts, self._sentences, self._documents, begins % self._size,
            lengths + reach, reach > 0, arrays.ids, arrays.word_starts, arrays.sequence_ids, arrays.position_ids,
        )  # fmt: skip
        batch = arrays.batch(rows, text)
        laps, within = np.divmod(begins, self._size)
        # A document is another one when the stream comes to it again.
        documents = find_documents(within, self._sentences, self._documents) + laps * self.store.info.documents
        documents = np.where(arrays.sequence_ids < 0, -1, documents[:, None] + arrays.sequence_ids)
        batch.offsets = StreamOffsets(*map(torch.from_numpy, (streams, begins, lengths, documents)))
        return batch


class BestFitRows:
    """Rows into which sequences are packed."""

    def __init__(self, store: TokenStore, lengths: Integers, length: int, packed: Packed | None = None) -> None:
        """`lengths` are those of the sequences, `length` that of a row; `packed` has the sequences of each row."""
        self.store, self._length = store, length
        self._packed = pack_rows(lengths, length) if packed is None else packed

    @property
    def count(self) -> int:
        return self._packed.used.size

    @property
    def fill(self) -> float:
        return float(self._packed.used.mean()) / self._length


class PackedRows(BestFitRows):
    """Rows of packed sequences `[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]`."""

    def __init__(
        self,
        store: TokenStore,
        sequences: Sequences,
        length: int,
        opening: int,
        crosses_documents: bool,
        segments: bool,
        packed: Packed | None = None,
    ) -> None:
        """`opening` is the token before a sequence; with `crosses_documents`, `EOS` separates documents within it."""
        self.sequences, self._segments = sequences, segments
        self._opening, self._crosses_documents = opening, crosses_documents
        self.marks_sentences = False
        """Whether batches tell where sentences begin."""
        self.columns: Sequence[str] = ()
        """The columns of the store that batches have."""
        self._sentences, self._documents = bounds_of(store)
        lengths = measure(sequences.starts, sequences.ends, crosses_documents, self._sentences, self._documents)
        super().__init__(store, lengths, length, packed)

    def batch(self, rows: Integers) -> Batch:
        bounds, members, used = self._packed
        arrays = BatchArrays(rows.size, int(used[rows].max()))

        def fill(tokens: npt.NDArray[Any], arrays: BatchArrays) -> int:
            return int(fill_sequences(
                tokens, self.store.word_starts, self._sentences, self._documents, self.sequences.starts,
                self.sequences.ends, self._crosses_documents, self._opening, bounds, members, rows, arrays.ids,
                arrays.word_starts, arrays.sequence_ids, arrays.position_ids, arrays.segments,
            ))  # fmt: skip

        batch = arrays.batch(rows, fill(self.store.ids, arrays))
        batch.columns = fill_columns(self.store, self.columns, batch, fill)
        if self._segments:
            batch.segment_ids = torch.from_numpy(arrays.segments)
        if self.marks_sentences:
            starts = np.zeros(batch.shape, dtype=np.bool_)
            mark_sentences(
                self._sentences, self._documents, self.sequences.starts, self.sequences.ends, self._crosses_documents,
                bounds, members, rows, starts,
            )  # fmt: skip
            batch.sentence_starts = torch.from_numpy(starts)
        in_batch = np.concatenate([members[bounds[row] : bounds[row + 1]] for row in rows])
        for name, labels in self.sequences.labels.items():
            batch.labels[name] = torch.from_numpy(labels[in_batch])
        return batch


def fill_columns(
    store: TokenStore, names: Sequence[str], batch: Batch, fill: Callable[[npt.NDArray[Any], BatchArrays], int]
) -> dict[str, torch.Tensor]:
    """The columns of a batch, by the function that has filled in its tokens."""
    found = {}
    for name in names:
        if name in store.columns:  # a text without it has no such spans
            arrays = BatchArrays(*batch.shape)
            fill(store.columns[name], arrays)
            is_text = (batch.ids > EOS) | (batch.ids == UNK)
            wide = store.columns[name].dtype.itemsize > 1
            found[name] = torch.from_numpy(arrays.ids).where(is_text, 0).to(torch.int64 if wide else torch.uint8)
    return found
