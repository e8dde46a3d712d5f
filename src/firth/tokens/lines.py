"""Lines: the sentences of a block of documents as UTF-8, ready to be cut into chunks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from firth.text.layout import Block, Layout, sentences_of, unpack_documents
from firth.text.sentences import split_sentences
from firth.tokens import _line_kernels
from firth.tokens.chunks import Bytes, as_array


@dataclass(frozen=True)
class Lines:
    """Sentences, one a line, and what was noticed about them."""

    text: npt.NDArray[np.uint8]
    """UTF-8; a line end closes each sentence."""
    bounds: npt.NDArray[np.int64]
    """Where each sentence begins, and the end."""
    flags: npt.NDArray[np.uint8]
    """What each sentence holds: see the kernels."""
    opens: npt.NDArray[np.bool_]
    """Whether each sentence is known to be the first of a document."""
    parted: bool = False
    """Whether the last document ends with the last sentence."""

    def __len__(self) -> int:
        return self.flags.size

    def line(self, index: int) -> bytes:
        """One sentence, without the line end."""
        return self.text[self.bounds[index] : self.bounds[index + 1] - 1].tobytes()


def lines_of(sentences: Sequence[str], pairs: bool = False) -> Lines:
    """Sentences as they are, all of one document; none may hold a line end."""
    text = "\n".join(sentences) + "\n" if sentences else ""
    return _look_at(text.encode(), len(sentences), pairs)


def read_block(block: Block, layout: Layout, pairs: bool = False) -> Lines:
    """The sentences of a block, without the white space around them, none empty.

    `pairs` says whether two characters of white space in a row are to be noticed.

    >>> lines = read_block(Block(b" to be \\nor not\\n\\nto be\\n"), "lines")
    >>> lines.text.tobytes(), lines.opens.tolist()
    (b'to be\\nor not\\nto be\\n', [False, False, True])
    """
    if layout == "wrapped":
        documents, goes_on = unpack_documents(block)
        split = [sentences_of(document, layout) for document in documents]
        opens = np.ones(len(split), dtype=np.bool_)
        opens[:1] = not goes_on
        return _join(split, opens, False, pairs)
    lines = _find(block, pairs)
    if layout == "lines":
        return lines
    split = [split_sentences(line) for line in lines.text.tobytes().decode().split("\n")[:-1]]
    return _join(split, lines.opens, lines.parted, pairs)


def keep_opens(
    opens: npt.NDArray[np.bool_], parted: bool, counts: npt.NDArray[Any]
) -> tuple[npt.NDArray[np.bool_], bool]:
    """Which parts open a document where things are cut into, or left with, so many parts each; none is lost.

    >>> keep_opens(np.array([True, False, True]), False, np.array([0, 2, 0]))
    (array([ True, False]), True)
    """
    documents = np.cumsum(opens)
    owners = np.repeat(documents, counts)
    last = int(documents[-1]) if documents.size else 0
    seen = int(owners[-1]) if owners.size else 0
    return np.diff(owners, prepend=0) > 0, parted or last > seen


def _find(block: Block, pairs: bool) -> Lines:
    data = as_array(block.data)
    most = block.data.count(b"\n") + 1
    begins, ends = np.empty(most, dtype=np.int64), np.empty(most, dtype=np.int64)
    flags, opens = np.empty(most, dtype=np.uint8), np.empty(most, dtype=np.bool_)
    lines, parted = _line_kernels.find_lines(data, block.packed, pairs, begins, ends, flags, opens)
    begins, ends = begins[:lines], ends[:lines]
    size = int((ends - begins).sum()) + lines
    bounds = np.zeros(lines + 1, dtype=np.int64)
    if size == data.size and block.data.endswith(b"\n"):  # nothing is left out
        bounds[1:] = ends + 1
        text = data
    else:
        text = np.empty(size, dtype=np.uint8)
        _line_kernels.gather(data, begins, ends, text, bounds)
    return Lines(text, bounds, flags[:lines], opens[:lines], bool(parted))


def _join(split: Sequence[Sequence[str]], opens: npt.NDArray[np.bool_], parted: bool, pairs: bool) -> Lines:
    """The sentences of paragraphs or documents, of which `opens` tells the first ones."""
    lines = lines_of([sentence for part in split for sentence in part], pairs)
    opens, parted = keep_opens(opens, parted, np.array([len(part) for part in split], dtype=np.int64))
    return replace(lines, opens=opens, parted=parted)


def _look_at(text: Bytes, lines: int, pairs: bool) -> Lines:
    data = as_array(text)
    bounds, flags = np.zeros(lines + 1, dtype=np.int64), np.empty(lines, dtype=np.uint8)
    _line_kernels.look_at_lines(data, pairs, bounds, flags)
    return Lines(data, bounds, flags, np.zeros(lines, dtype=np.bool_))
