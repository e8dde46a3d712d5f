"""Finding the files of a corpus and opening them as streams of decompressed bytes."""

from __future__ import annotations

import bz2
import difflib
import glob
import gzip
import io
import lzma
import os
import re
import shutil
import stat
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, NoReturn

from firth.errors import CorpusError, near_miss

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

Format = Literal["text", "jsonl", "parquet"]
Compression = Literal["", "gz", "bz2", "xz", "zst"]

_FORMATS: dict[str, Format] = {
    **dict.fromkeys((".txt", ".text", ".md"), "text"),
    **dict.fromkeys((".jsonl", ".ndjson"), "jsonl"),
    ".parquet": "parquet",
}
_COMPRESSIONS: dict[str, Compression] = {".gz": "gz", ".bz2": "bz2", ".xz": "xz", ".zst": "zst"}
_MAGIC = {
    "gz": re.compile(rb"\x1f\x8b"),
    "bz2": re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)"),
    "xz": re.compile(rb"\xfd7zXZ\x00"),
    "zst": re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"),
}
_FOREIGN = {b"PK\x03\x04": "a zip archive: unpack it first", b"%PDF-": "a PDF: convert it to text first"}
_BLOCK = 1 << 18
_ZSTD_INPUT = 1 << 10  # bytes; four may decompress to 128 kB, so these to at most 32 MB
MAX_EXPANSION = 100  # times the size of a compressed file; text is rarely compressed to less than a twentieth
_ALWAYS_EXPANDED = 1 << 26  # bytes that any compressed file may have


@dataclass(frozen=True, slots=True)
class CorpusFile:
    path: Path
    name: str  # as displayed
    format: Format = "text"
    compression: Compression = ""


def find_files(paths: Sequence[str | Path]) -> list[CorpusFile]:
    """The distinct files of paths, globs and folders (there of known suffixes, recursively) in a fixed order."""
    found: dict[str, CorpusFile] = {}
    for path in paths:
        if not str(path) or "\0" in str(path):
            raise CorpusError(f"{str(path)!r} is not a path: name a file, a folder or a glob.")
        for file in _expand(Path(path)):
            name = _shown(file)
            if not os.access(file, os.R_OK):
                raise CorpusError(f"may not read {name}: change its permissions or copy it.")
            suffix, compression = _suffixes(file)
            source = CorpusFile(file, name, _FORMATS.get(suffix, "text"), _COMPRESSIONS.get(compression, ""))
            found.setdefault(os.path.realpath(file), source)
    return list(found.values())


def open_bytes(source: CorpusFile) -> BinaryIO:
    """A stream of the decompressed bytes of a file; a damaged file raises `CorpusError`."""
    try:
        file = open(source.path, "rb")  # noqa: SIM115 (the stream returned closes it)
        head = file.read(16)
    except OSError as error:
        raise CorpusError(f"cannot read {source.name}: {error.strerror}.") from error
    try:
        _check_magic(source, head)
        file.seek(0)
        return io.BufferedReader(_Stream(source, file), _BLOCK)
    except BaseException:
        file.close()
        raise


@contextmanager
def open_seekable(source: CorpusFile) -> Iterator[Path | BinaryIO]:
    """A seekable file: the file itself, or a temporary decompressed copy."""
    if not source.compression:
        yield source.path
        return
    with ExitStack() as stack:
        try:
            copy = stack.enter_context(tempfile.TemporaryFile())
            shutil.copyfileobj(stack.enter_context(open_bytes(source)), copy, _BLOCK)
            copy.seek(0)
        except OSError as error:
            raise CorpusError(
                f"cannot unpack {source.name} into the folder for temporary files ({error.strerror}): "
                "free some space there, set TMPDIR to another folder, or unpack the file yourself."
            ) from error
        yield copy


def expanded_limit(compressed: int) -> int:
    """The bytes to which a compressed file of that size may expand: `$FIRTH_MAX_EXPANSION` times as many, or 100."""
    given = os.environ.get("FIRTH_MAX_EXPANSION") or str(MAX_EXPANSION)
    if not given.isdecimal() or len(given) > 15:
        raise CorpusError(f"FIRTH_MAX_EXPANSION={given!r:.40} must be a whole number, such as 1000.")
    return max(_ALWAYS_EXPANDED, int(given) * compressed)


def expands_too_much(name: str, limit: int) -> CorpusError:
    """The error for a compressed file that expands to more than `limit` bytes."""
    return CorpusError(
        f"{name} expands to over {limit:,} bytes, far more than text does: if that is intended, unpack it first or set "
        "FIRTH_MAX_EXPANSION to a larger factor than 100, such as 10000."
    )


class _Stream(io.RawIOBase):
    def __init__(self, source: CorpusFile, file: BinaryIO) -> None:
        self._name = source.name
        self._file = file
        self._bytes = _DECOMPRESSORS[source.compression](file)
        self._limit = expanded_limit(os.fstat(file.fileno()).st_size) if source.compression else sys.maxsize
        self._read = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        try:
            size = int(self._bytes.readinto(buffer) or 0)
        except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
            reason = "it ends too early" if isinstance(error, EOFError) else str(error)
            raise CorpusError(f"{self._name} is damaged ({reason}): fetch or compress it again.") from error
        self._read += size
        if self._read > self._limit:
            raise expands_too_much(self._name, self._limit)
        return size

    def close(self) -> None:
        self._file.close()
        super().close()


class _ZstdFile(io.RawIOBase):
    """The decompressed bytes of a zstd file; unlike zstandard's reader, a truncated frame raises `EOFError`."""

    def __init__(self, file: BinaryIO) -> None:
        import zstandard

        self._file = file
        self._new_frame = zstandard.ZstdDecompressor().decompressobj
        self._frame: zstandard.ZstdDecompressionObj | None = None
        self._error = zstandard.ZstdError
        self._compressed = b""
        self._decompressed = memoryview(b"")

    def readinto(self, buffer: WriteableBuffer) -> int:
        while not self._decompressed:
            self._compressed = self._compressed or self._file.read(_ZSTD_INPUT)
            if not self._compressed:
                if self._frame:
                    raise EOFError
                return 0
            self._fill()
        target = memoryview(buffer).cast("B")
        size = min(len(target), len(self._decompressed))
        target[:size] = self._decompressed[:size]
        self._decompressed = self._decompressed[size:]
        return size

    def _fill(self) -> None:
        frame = self._frame or self._new_frame()
        try:
            self._decompressed = memoryview(frame.decompress(self._compressed))
        except self._error as error:
            raise OSError(str(error)) from error
        self._frame, self._compressed = (None, frame.unused_data) if frame.eof else (frame, b"")


_DECOMPRESSORS: dict[str, Callable[[BinaryIO], Any]] = {
    "": lambda file: file,
    "gz": lambda file: gzip.GzipFile(fileobj=file),
    "bz2": bz2.BZ2File,
    "xz": lzma.LZMAFile,
    "zst": _ZstdFile,
}


def _check_magic(source: CorpusFile, head: bytes) -> None:
    if source.compression:
        if not _MAGIC[source.compression].match(head):
            raise CorpusError(
                f"{source.name} is not the .{source.compression} file that its name says: "
                "fetch it again, or drop the suffix if it is not compressed."
            )
        return
    for suffix, magic in _MAGIC.items():
        if magic.match(head):
            raise CorpusError(f"{source.name} is compressed: add .{suffix} to its name.")
    for start, what in _FOREIGN.items():
        if head.startswith(start):
            raise CorpusError(f"{source.name} is {what}.")


def _expand(path: Path) -> list[Path]:
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return _matches(path)
    except OSError as error:
        raise CorpusError(f"cannot read {_shown(path)}: {error.strerror}.") from error
    if stat.S_ISDIR(mode):
        return _files_under(path)
    if not stat.S_ISREG(mode):
        raise CorpusError(f"{_shown(path)} is not a regular file: save it as one, or use - for standard input.")
    return [path]


def _matches(pattern: Path) -> list[Path]:
    if not glob.has_magic(str(pattern)):
        raise _missing(pattern)
    files = sorted(path for path in map(Path, glob.glob(str(pattern), recursive=True)) if path.is_file())
    if not files:
        raise CorpusError(f"no file matches {_shown(pattern)}: check the pattern, or name a folder.")
    return files


def _files_under(folder: Path) -> list[Path]:
    def refuse(error: OSError) -> NoReturn:
        raise CorpusError(f"cannot look into {error.filename}: {error.strerror}.") from error

    files = []
    for parent, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            path = Path(parent, name)
            if not name.startswith(".") and _suffixes(path)[0] in _FORMATS and path.is_file():
                files.append(path)
    if not files:
        kinds = ", ".join(_FORMATS)
        raise CorpusError(f"no text in the folder {_shown(folder)}: name files, or use the suffixes {kinds}.")
    return sorted(files)


def _missing(path: Path) -> CorpusError:
    try:
        names = os.listdir(path.parent)
    except OSError:
        return CorpusError(f"no such file: {_shown(path)} (nor such a folder): check the path.")
    close = difflib.get_close_matches(path.name, names, n=1)
    return CorpusError(f"no such file: {_shown(path)}: {near_miss(path.name, close) if close else 'check the path.'}")


def _suffixes(path: Path) -> tuple[str, str]:
    """The suffixes of a file's format and compression, each possibly empty."""
    stem, suffix = os.path.splitext(path.name.lower())
    return (os.path.splitext(stem)[1], suffix) if suffix in _COMPRESSIONS else (suffix, "")


def _shown(path: Path) -> str:
    """A printable path, even if its bytes are not UTF-8."""
    return os.fsencode(path).decode("utf-8", "replace")
