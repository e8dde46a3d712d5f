"""Lines: the sentences of a block of documents as UTF-8, ready to be split into chunks."""
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from firth.text.layout import Layout, TextBlock, sentences_of, unpack_documents
from firth.text.sentences import split_sentences
from firth.tokens._kernels import BREAK, LINE_END, SPACE, eight_bytes

Bytes = bytes | npt.NDArray[np.uint8]


def as_array(data: Bytes) -> npt.NDArray[np.uint8]:
    """The same bytes as a read-only array, the only type that kernels are compiled for."""
    array = np.frombuffer(data, dtype=np.uint8)
    array.flags.writeable = False
    return array


@dataclass(frozen=True)
class Lines:
    """Sentences, one per line, with flags and document boundaries."""

    text: npt.NDArray[np.uint8]  # UTF-8; each sentence ends with a newline
    bounds: npt.NDArray[np.int64]  # offsets of the sentences, and the end
    flags: npt.NDArray[np.uint8]  # MAY_HOLD_HAN and HAS_DOUBLE_SPACE of each sentence
    starts_document: npt.NDArray[np.bool_]  # whether each sentence is known to be the first of a document
    ends_document: bool = False  # with the last sentence

    def __len__(self) -> int:
        return self.flags.size

    def line(self, index: int) -> bytes:
        return self.text[self.bounds[index] : self.bounds[index + 1] - 1].tobytes()


def lines_of(sentences: Sequence[str], double_space: bool = False) -> Lines:
    """The given sentences as lines of one document; none may contain a newline."""
    data = as_array(("\n".join(sentences) + "\n" if sentences else "").encode())
    count = len(sentences)
    bounds, flags = np.zeros(count + 1, dtype=np.int64), np.empty(count, dtype=np.uint8)
    inspect_lines(data, double_space, bounds, flags)
    return Lines(data, bounds, flags, np.zeros(count, dtype=np.bool_))


def read_block(block: TextBlock, layout: Layout, double_space: bool = False) -> Lines:
    """The non-empty sentences of a block, stripped; with `double_space`, consecutive white space is flagged.

    >>> lines = read_block(TextBlock(b" to be \\nor not\\n\\nto be\\n"), "lines")
    >>> lines.text.tobytes(), lines.starts_document.tolist()
    (b'to be\\nor not\\nto be\\n', [False, False, True])
    """
    if layout == "wrapped":
        documents, continues = unpack_documents(block)
        split = [sentences_of(document, layout) for document in documents]
        starts = np.ones(len(split), dtype=np.bool_)
        starts[:1] = not continues
        return _join(split, starts, False, double_space)
    lines = _find(block, double_space)
    if layout == "lines":
        return lines
    split = [split_sentences(line) for line in lines.text.tobytes().decode().split("\n")[:-1]]
    return _join(split, lines.starts_document, lines.ends_document, double_space)


def carry_document_starts(
    starts_document: npt.NDArray[np.bool_], ends_document: bool, counts: npt.NDArray[Any]
) -> tuple[npt.NDArray[np.bool_], bool]:
    """Document starts and end after each sentence was replaced by `counts` parts (0 drops it); no start is lost.

    >>> carry_document_starts(np.array([True, False, True]), False, np.array([0, 2, 0]))
    (array([ True, False]), True)
    """
    documents = np.cumsum(starts_document)
    owners = np.repeat(documents, counts)
    last = int(documents[-1]) if documents.size else 0
    covered = int(owners[-1]) if owners.size else 0
    return np.diff(owners, prepend=0) > 0, ends_document or last > covered


def _find(block: TextBlock, double_space: bool) -> Lines:
    data = as_array(block.data)
    most = block.data.count(b"\n") + 1
    begins, ends = np.empty(most, dtype=np.int64), np.empty(most, dtype=np.int64)
    flags, starts = np.empty(most, dtype=np.uint8), np.empty(most, dtype=np.bool_)
    lines, ended = find_lines(data, block.packed, double_space, begins, ends, flags, starts)
    begins, ends = begins[:lines], ends[:lines]
    size = int((ends - begins).sum()) + lines
    bounds = np.zeros(lines + 1, dtype=np.int64)
    if size == data.size and block.data.endswith(b"\n"):  # nothing is dropped
        bounds[1:] = ends + 1
        text = data
    else:
        text = np.empty(size, dtype=np.uint8)
        gather(data, begins, ends, text, bounds)
    return Lines(text, bounds, flags[:lines], starts[:lines], bool(ended))


def _join(split: Sequence[Sequence[str]], starts: npt.NDArray[np.bool_], ended: bool, double_space: bool) -> Lines:
    """The sentences of paragraphs or documents; `starts` flags those that start a document."""
    lines = lines_of([sentence for part in split for sentence in part], double_space)
    starts, ended = carry_document_starts(starts, ended, np.array([len(part) for part in split], dtype=np.int64))
    return replace(lines, starts_document=starts, ends_document=ended)


MAY_HOLD_HAN, HAS_DOUBLE_SPACE = 1, 2
"""Flags of a line: first bytes of Chinese characters; two consecutive white-space characters."""

_HIGH_BITS = np.uint64(0x8080808080808080)
_SPACES = np.uint64(0x2020202020202020)


@njit(cache=True, nogil=True)
def _space_at(data: Any, position: Any, end: Any) -> Any:
    """The number of bytes of the white-space character (`str.isspace`) at `position`; 0 if there is none."""
    byte = data[position]
    if byte < 0x80:
        return 1 if byte == SPACE or 0x09 <= byte <= 0x0D or 0x1C <= byte <= 0x1F else 0
    if byte == 0xC2:
        return 2 if position + 1 < end and data[position + 1] in (0x85, 0xA0) else 0
    if not 0xE1 <= byte <= 0xE3 or position + 2 >= end:
        return 0
    code = (byte & 0x0F) << 12 | (data[position + 1] & 0x3F) << 6 | data[position + 2] & 0x3F
    if code == 0x1680 or 0x2000 <= code <= 0x200A or code in (0x2028, 0x2029, 0x202F, 0x205F, 0x3000):
        return 3
    return 0


@njit(cache=True, nogil=True)
def _space_before(data: Any, begin: Any, end: Any) -> Any:
    """The number of bytes of the white-space character that ends at `end`; 0 if there is none."""
    if data[end - 1] < 0x80:
        return _space_at(data, end - 1, end)
    for size in (2, 3):
        if end - size >= begin and _space_at(data, end - size, end) == size:
            return size
    return 0


@njit(cache=True, nogil=True)
def _strip(data: Any, begin: Any, end: Any) -> Any:
    while begin < end:
        size = _space_at(data, begin, end)
        if size == 0:
            break
        begin += size
    while begin < end:
        size = _space_before(data, begin, end)
        if size == 0:
            break
        end -= size
    return begin, end


@njit(cache=True, nogil=True)
def _line_end(data: Any, begin: Any, double_space: Any) -> Any:
    """The end of the line, and its flags; HAS_DOUBLE_SPACE only if `double_space`."""
    end, flags, white = begin, 0, False
    while end < data.size:
        if not double_space:
            word = eight_bytes(data, end)
            if (word | (word - _SPACES)) & _HIGH_BITS == 0:  # eight plain ASCII characters
                end += 8
                continue
        byte = data[end]
        if byte == LINE_END:
            break
        if 0xE3 <= byte <= 0xE9 or byte == 0xEF or byte == 0xF0:
            flags |= MAY_HOLD_HAN
        size = _space_at(data, end, data.size) if double_space else 0
        if white and size > 0:
            flags |= HAS_DOUBLE_SPACE
        white = size > 0
        end += max(size, 1)
    return end, flags


@njit(cache=True, nogil=True)
def find_lines(data: Any, packed: Any, double_space: Any, begins: Any, ends: Any, flags: Any, starts_doc: Any) -> Any:
    """Fill the stripped bounds and flags of each line, and whether it starts a document.

    Blank lines are dropped. They separate documents, or if `packed`, lines of a single BREAK do. Returns the number of
    lines, and whether the last document ends with them.
    """
    lines, position, ended = 0, 0, False
    while position < data.size:
        begin = position
        end, flag = _line_end(data, begin, double_space)
        position = end + 1
        if packed and end - begin == 1 and data[begin] == BREAK:
            ended = True
            continue
        begin, end = _strip(data, begin, end)
        if begin == end:
            ended = ended or not packed
            continue
        begins[lines], ends[lines], flags[lines], starts_doc[lines] = begin, end, flag, ended
        ended = False
        lines += 1
    return lines, ended


@njit(cache=True, nogil=True)
def inspect_lines(data: Any, double_space: Any, bounds: Any, flags: Any) -> Any:
    """Fill the bounds and flags of each line; every line must end with a newline."""
    position, line = 0, 0
    while position < data.size:
        end, flags[line] = _line_end(data, position, double_space)
        position = end + 1
        line += 1
        bounds[line] = position


@njit(cache=True, nogil=True)
def gather(data: Any, begins: Any, ends: Any, out: Any, bounds: Any) -> Any:
    """Concatenate parts of `data`, each ended by a newline; fills `bounds` with their offsets."""
    written = 0
    for line in range(begins.size):
        size = ends[line] - begins[line]
        out[written : written + size] = data[begins[line] : ends[line]]
        written += size + 1
        out[written - 1] = LINE_END
        bounds[line + 1] = written
