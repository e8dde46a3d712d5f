"""The lines of an ARPA file, plain or packed, in blocks; and what to say of a line that is wrong."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple, NoReturn, cast

from firth.errors import ArtifactError
from firth.progress import progress

_BLOCK = 1 << 22
_LONGEST_LINE = 1 << 20
_PACKED = b"\x1f\x8b"
_OTHERS = {
    b"mmap lm http://kheafield.com/code": "is a KenLM binary: give the ARPA file that it was made from",
    b"iARPA": "is an IRSTLM file: turn it into ARPA with compile-lm --text yes",
    b"blmt": "is an IRSTLM binary: turn it into ARPA with compile-lm --text yes",
}
AGAIN = "get it again from where it came, or have it written again"


class Block(NamedTuple):
    """Whole lines of a file, each with its end."""

    line: int
    """The number of the first of them, counted from 1."""
    data: bytes


class Source:
    """A file that is read once from its beginning to its end, in little memory however large it is."""

    def __init__(self, path: Path, file: BinaryIO, advance: Callable[[float], None]) -> None:
        self.path = path
        self.line = 1
        """The number of the next line."""
        self._file = file
        self._advance = advance
        self._data = b""  # whole lines
        self._at = 0
        self._rest = b""  # the beginning of a line that is not read to its end yet

    def next_line(self) -> bytes | None:
        """The next line that is not blank, without white space around it; None at the end of the file."""
        while self._at < len(self._data) or self._fill():
            end = self._data.index(b"\n", self._at)
            found = self._data[self._at : end].strip(b" \t\r")
            self._at = end + 1
            self.line += 1
            if found:
                return found
        return None

    def blocks(self) -> Iterator[Block]:
        r"""All lines up to the next one that begins with a backslash."""
        while self._at < len(self._data) or self._fill():
            if self._data.startswith(b"\\", self._at):
                return
            begin, line = self._at, self.line
            stop = self._data.find(b"\n\\", begin)
            self._at = stop + 1 if stop >= 0 else len(self._data)
            data = self._data[begin : self._at]
            self.line += data.count(b"\n")
            yield Block(line, data)

    def wrong(self, line: int, reason: str, remedy: str = AGAIN) -> NoReturn:
        """Raises the error for a line."""
        raise ArtifactError(f"{self.path}, line {line}: {reason}; {remedy}.")

    def _fill(self) -> bool:
        """Goes on to the next whole lines; False at the end of the file."""
        self._data, self._at = b"", 0
        while not self._data:
            chunk = self._file.read(_BLOCK)
            self._advance(len(chunk))
            text = self._rest + chunk if chunk or not self._rest else self._rest + b"\n"
            end = text.rfind(b"\n") + 1
            self._data, self._rest = text[:end], text[end:]
            if len(self._rest) > _LONGEST_LINE:
                self.wrong(self.line + self._data.count(b"\n"), f"it is longer than {_LONGEST_LINE} bytes")
            if not chunk:
                break
        return bool(self._data)


@contextmanager
def open_source(path: Path) -> Iterator[Source]:
    """The lines of a file, unpacked where its first bytes say so; what cannot be read is an `ArtifactError`."""
    try:
        with ExitStack() as stack:
            plain = stack.enter_context(open(path, "rb"))
            start = plain.read(64)
            plain.seek(0)
            for magic, what in _OTHERS.items():
                if start.startswith(magic):
                    raise ArtifactError(f"{path} {what}.")
            packed = start.startswith(_PACKED)
            file = stack.enter_context(gzip.open(plain)) if packed else plain
            size = None if packed else os.fstat(plain.fileno()).st_size
            yield Source(path, cast(BinaryIO, file), stack.enter_context(progress("reading", size)))
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ArtifactError(f"{path} is a damaged gzip file ({error}): {AGAIN}.") from error
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ArtifactError(f"cannot read {path} ({reason}): check the path and whether you may read it.") from error
