"""Rows whose first part goes on from step to step, followed by two segments of text (Yang et al. 2019)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from firth.fit._reuse_kernels import CLASS_ID, END_ID, place_segments
from firth.fit._row_kernels import fill_stream
from firth.fit.rows import bounds_of, stream_size
from firth.nets.batch import Batch, StreamOffsets
from firth.nets.packing import BatchArrays
from firth.nets.recipe import SequenceRecipe
from firth.objectives._noise_kernels import draw_all
from firth.objectives.sequences import Integers
from firth.tokens.store import TokenStore
from firth.tokens.tokenizer import BOS, EOS

assert (BOS, EOS) == (CLASS_ID, END_ID)


def reused_tokens(sequence: SequenceRecipe, length: int) -> int:
    """Tokens of a row of a length that are contiguous from step to step.

    >>> reused_tokens(SequenceRecipe(format="contiguous-pair"), 128)
    64
    """
    return max(1, int(sequence.reused * length))


class ContiguousPairRows:
    """Rows `text A <sep> B <sep> <cls>` of parallel streams: the text of a row is followed by that of the next one.

    A begins where the text ends, and B follows A or, in half of the rows, is from elsewhere. So every token is once in
    the contiguous part of a row, whose states may be remembered, and about once in a segment. The stream `EOS s1 EOS s2
    EOS` of documents is a circle; tokens attend across the ends of documents. With `reversed`, the streams of odd
    numbers read their part of the text from its end to its beginning.
    """

    def __init__(self, store: TokenStore, sequence: SequenceRecipe, length: int, key: int, streams: int) -> None:
        self.store, self.streams, self._length = store, streams, length
        self._sentences, self._documents = bounds_of(store)
        self._size = stream_size(store)
        self._reused = reused_tokens(sequence, length)
        self._key, self._offset = key, key % self._size
        self._span, self._longer = divmod(self._size, streams)
        self._reversed = sequence.reversed

    @property
    def count(self) -> int:
        return self.streams * -(-self._span // self._reused)

    @property
    def fill(self) -> float:
        return 1.0

    def batch(self, rows: Integers) -> Batch:
        steps, streams = np.divmod(rows, self.streams)
        is_reversed = (streams % 2 == 1) & self._reversed
        firsts = self._offset + streams * self._span + np.minimum(streams, self._longer)
        begins = firsts + steps * self._reused
        needed = self._length - 2  # the reused part, both segments and the end of the first
        mirrored = 2 * firsts + self._span - begins - needed
        text = self._read(np.where(is_reversed, mirrored, begins), needed, is_reversed)
        numbers = _uniforms(self._key, rows, 3)
        other = self._read(self._elsewhere(numbers[:, 2], is_reversed, needed), needed, is_reversed)
        arrays = BatchArrays(rows.size, self._length)
        functions: npt.NDArray[np.bool_] = np.zeros(arrays.ids.shape, dtype=bool)
        tokens = place_segments(
            *text, *other, self._reused, numbers[:, :2], arrays.ids, arrays.word_starts, arrays.segments, functions
        )
        arrays.sequence_ids[:] = 0
        batch = arrays.batch(rows, tokens)
        batch.segment_ids, batch.is_function = torch.from_numpy(arrays.segments), torch.from_numpy(functions)
        batch.is_reversed = torch.from_numpy(is_reversed) if is_reversed.any() else None
        lengths = np.full(rows.size, self._reused)
        documents = np.zeros_like(arrays.ids)  # the memory is visible whatever document it is of
        batch.offsets = StreamOffsets(*map(torch.from_numpy, (streams, begins, lengths, documents)))
        return batch

    def _read(
        self, begins: Integers, count: int, is_reversed: npt.NDArray[np.bool_]
    ) -> tuple[Integers, npt.NDArray[np.bool_]]:
        """(rows, count): tokens of the stream from some offsets on, and where words begin, as each row reads them."""
        arrays = BatchArrays(begins.size, count)
        counts = np.full(begins.size, count)
        fill_stream(
            self.store.ids, self.store.word_starts, self._sentences, self._documents, begins % self._size, counts,
            False, arrays.ids, arrays.word_starts, arrays.sequence_ids, arrays.position_ids,
        )  # fmt: skip
        ids, starts = arrays.ids, arrays.word_starts
        ends = np.ones_like(starts)
        ends[:, :-1] = starts[:, 1:]  # backwards, a word begins with its last token
        ids = np.where(is_reversed[:, None], ids[:, ::-1], ids)
        return ids, np.where(is_reversed[:, None], ends[:, ::-1], starts)

    def _elsewhere(self, numbers: npt.NDArray[np.float64], is_reversed: npt.NDArray[np.bool_], count: int) -> Integers:
        """The offsets from which `count` tokens begin with a sentence or, for reversed rows, end with one."""
        chosen = (numbers * (self._sentences.size - 1)).astype(np.int64)
        special = chosen + np.searchsorted(self._documents, chosen, side="right")  # tokens that are not in the store
        ends = self._sentences[chosen + 1] + special - count
        return np.asarray(np.where(is_reversed, ends, self._sentences[chosen] + special))


def _uniforms(key: int, rows: Integers, count: int) -> npt.NDArray[np.float64]:
    """(rows, count): numbers in [0, 1) for each row."""
    bits = draw_all(np.uint64(key), (rows[:, None] * count + np.arange(count)).ravel())
    return np.asarray((bits >> np.uint64(11)) * 2.0**-53).reshape(-1, count)
