"""Files of other programs, plain or gzip, read in blocks; errors name the file, the position and the remedy."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple, NoReturn, cast

from firth.artifact.tensors import open_plain
from firth.errors import ArtifactError
from firth.progress import progress

_BLOCK = 1 << 22
_MAX_LINE = 1 << 20  # bytes
_GZIP = b"\x1f\x8b"
_MAX_GZIP_RATIO = 1032  # the best compression that deflate reaches
_ARCHIVE = {b"PK\x03\x04": "is a zip archive: unpack it and give the file that was in it"}
GET_AGAIN = "get the file again, or write it again"


class LineBlock(NamedTuple):
    """Complete lines of a file, each with its line end."""

    line: int  # number of the first line, counted from 1
    data: bytes


class InputFile:
    """A file that is read once from start to end in bounded memory."""

    def __init__(self, path: Path, file: BinaryIO, max_size: int, advance: Callable[[float], None]) -> None:
        self.path = path
        self.max_size = max_size  # upper bound of the uncompressed size in bytes
        self._file = file
        self._advance = advance
        self.start = self.read()  # the first block, which `chunks` and `line_blocks` return again

    def read(self, size: int = 0) -> bytes:
        """The next block of at least `size` bytes; it is shorter at the end of the file."""
        data = self._file.read(max(_BLOCK, size))
        self._advance(len(data))
        return data

    def chunks(self, skip: int) -> Iterator[bytes]:
        """All bytes after the first `skip`, which must lie in `start`."""
        yield self.start[skip:]
        self.start = b""
        while chunk := self.read():
            yield chunk

    def line_blocks(self, skip: int, line: int) -> Iterator[LineBlock]:
        """All lines after the first `skip` bytes; `line` is the number of the first one."""
        rest = b""
        for chunk in self.chunks(skip):
            text = rest + chunk
            end = text.rfind(b"\n") + 1
            rest = text[end:]
            if end:
                yield LineBlock(line, text[:end])
                line += text.count(b"\n")
            if len(rest) > _MAX_LINE:
                self.fail(f"line {line}", f"it is longer than {_MAX_LINE} bytes")
        if rest:
            yield LineBlock(line, rest + b"\n")

    def fail(self, where: str, reason: str, remedy: str = GET_AGAIN) -> NoReturn:
        """Raise the error for a position such as "line 3" or "byte 16"."""
        raise ArtifactError(f"{self.path}, {where}: {reason}; {remedy}.")


@contextmanager
def open_input(path: Path, refused: Mapping[bytes, str] = _ARCHIVE) -> Iterator[InputFile]:
    """Open a file, decompressed if it is gzip; a file that cannot be read raises `ArtifactError`.

    `refused` maps the first bytes of other kinds of files to the end of the error message.
    """
    try:
        with ExitStack() as stack:
            plain = stack.enter_context(open_plain(path))
            start = plain.read(64)
            plain.seek(0)
            for magic, message in refused.items():
                if start.startswith(magic):
                    raise ArtifactError(f"{path} {message}.")
            is_gzip = start.startswith(_GZIP)
            size = os.fstat(plain.fileno()).st_size
            file = stack.enter_context(gzip.open(plain)) if is_gzip else plain
            advance = stack.enter_context(progress("reading", None if is_gzip else size))
            yield InputFile(path, cast(BinaryIO, file), size * _MAX_GZIP_RATIO if is_gzip else size, advance)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ArtifactError(f"{path} is a damaged gzip file ({error}): {GET_AGAIN}.") from error
    except MemoryError as error:
        raise ArtifactError(f"{path} does not fit into memory: give a smaller file.") from error
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ArtifactError(f"cannot read {path} ({reason}): check the path and its permissions.") from error


def quote(data: bytes) -> str:
    """The first bytes of a field for an error message."""
    return repr(data[:80].decode(errors="replace"))
