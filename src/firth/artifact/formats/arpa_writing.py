"""Writing ARPA files: blocks of n-grams become text, and with .gz are packed, on all cores."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from firth.artifact.formats import _arpa_writing_kernels as kernels
from firth.cores import in_order
from firth.counts.trie import Trie
from firth.errors import OutputError
from firth.files import new_file
from firth.progress import progress
from firth.tokens.tokenizer import BOS, EOS, MASK, PAD, UNK

NAMES = {PAD: "<pad>", UNK: "<unk>", BOS: "<s>", EOS: "</s>", MASK: "<mask>"}
"""What the special tokens are called in an ARPA file, or would be: `<pad>` and `<mask>` never stand in one."""
UNKNOWN_AS_WELL = "<UNK>"
"""Another spelling of `<unk>`, which some programs write and all read."""
SPACE_MARK = "▁"
_FORBIDDEN = "\0\t\n\v\f\r"
_BLOCK = 1 << 16  # n-grams that are written as one piece
_PACKING = 1  # of 9: a tenth larger than at 6, and six times as fast

_GZIP_HEAD = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"  # deflated, without a name and a time, so the same at any time
_GZIP_LAST = b"\x03\0"  # an empty block that says it is the last

Floats = npt.NDArray[Any]


def write_arpa(path: Path, trie: Trie, logp: Floats, bow: Floats, vocabulary: list[str]) -> list[int]:
    """Writes a back-off model in ARPA format, packed if the name ends with .gz, whole or not at all.

    `logp` is the natural logarithm of every node's probability, `bow` that of the back-off weight of every node below
    the highest level. `<pad>` and `<mask>` are left out. A model of single words gets an empty section of pairs, since
    KenLM takes no less. Returns the number of n-grams of each length.
    """
    _check_numbers(path, trie, logp, bow)
    spelling = _Spelling(path, vocabulary)
    sizes = [int(size) for size in np.diff(trie.levels)] + [0] * (trie.order == 1)
    sizes[0] -= 2  # <pad> and <mask>
    packed = path.name.endswith(".gz")

    def write_block(block: tuple[bytes, int, int]) -> tuple[bytes, bytes, int]:
        head, begin, end = block
        text = head + spelling.rows(trie, logp, bow, begin, end) if begin < end else head
        return text, _deflate(text) if packed else text, end - begin

    check, size = 0, 0
    with new_file(path) as file, progress("writing", sum(sizes), "n-grams") as advance:
        file.write(_GZIP_HEAD if packed else b"")
        for text, data, count in in_order(write_block, _blocks(trie, sizes)):
            file.write(data)
            check, size = zlib.crc32(text, check), size + len(text)
            advance(count)
        file.write(_GZIP_LAST + struct.pack("<II", check, size & 0xFFFFFFFF) if packed else b"")
    return sizes


def _blocks(trie: Trie, sizes: list[int]) -> Iterator[tuple[bytes, int, int]]:
    """What stands before each block of n-grams, where the block begins and where it ends."""
    head = "\\data\\\n" + "".join(f"ngram {n}={size}\n" for n, size in enumerate(sizes, 1))
    for n in range(1, len(sizes) + 1):
        head += f"\n\\{n}-grams:\n"
        level = trie.level(n) if n <= trie.order else slice(0, 0)
        for begin in range(level.start, level.stop, _BLOCK):
            yield head.encode(), begin, min(begin + _BLOCK, level.stop)
            head = ""
    yield (head + "\n\\end\\\n").encode(), 0, 0


class _Spelling:
    """The words as bytes, one after the other."""

    def __init__(self, path: Path, vocabulary: list[str]) -> None:
        names = [*NAMES.values(), *(word.replace(" ", SPACE_MARK) for word in vocabulary[len(NAMES) :])]
        _check_words(path, names)
        spelt = [name.encode() for name in names]
        self.pool = np.frombuffer(b"".join(spelt), dtype=np.uint8)
        lengths = [len(word) for word in spelt]
        self.bounds = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        self.longest = max(lengths)

    def rows(self, trie: Trie, logp: Floats, bow: Floats, begin: int, end: int) -> bytes:
        """The lines of the nodes from `begin` to `end`, which are all of one level."""
        path = [begin]
        while path[0] >= trie.vocabulary:
            child = trie.first.dtype.type(path[0])  # of another type it would make a copy of the whole array
            path.insert(0, int(np.searchsorted(trie.first, child, side="right")) - 1)
        nodes = np.array(path, dtype=np.int64)
        lines = kernels.put_rows(
            begin, end, nodes, trie.words, trie.first, logp, bow, self.pool, self.bounds, self.longest
        )
        return bytes(lines)


def _check_numbers(path: Path, trie: Trie, logp: Floats, bow: Floats) -> None:
    beyond = trie.words[trie.vocabulary :]
    if np.isin(beyond, (PAD, MASK)).any():
        raise OutputError(f"cannot write {path}: the model has n-grams of <pad> or <mask>, which ARPA does not know.")
    if not logp.max(initial=-np.inf) <= kernels.SLACK or not bow.max(initial=-np.inf) < np.inf:  # NaN is neither
        raise OutputError(
            f"cannot write {path}: the model holds what is no logarithm of a probability; check it with firth verify."
        )


def _check_words(path: Path, names: list[str]) -> None:
    known = {UNKNOWN_AS_WELL}
    for name in names:
        if name in known:
            raise OutputError(
                f"cannot write {path}: two words would both be spelt {name!r} in ARPA (a space becomes {SPACE_MARK}, "
                f"{UNKNOWN_AS_WELL} is {NAMES[UNK]}): leave one of them out of the text and train again."
            )
        if not name or any(character in name for character in _FORBIDDEN):
            raise OutputError(
                f"cannot write {path}: ARPA cannot hold the word {name!r}; take such characters out of the text and "
                "train again."
            )
        known.add(name)


def _deflate(text: bytes) -> bytes:
    """A piece that others can follow: it ends at a byte and does not say that it is the last."""
    packer = zlib.compressobj(_PACKING, zlib.DEFLATED, -zlib.MAX_WBITS)
    return packer.compress(text) + packer.flush(zlib.Z_SYNC_FLUSH)
