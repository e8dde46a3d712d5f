"""The files a corpus is read from: finding them, and opening them as streams of plain bytes."""

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
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal, NoReturn

from firth.errors import CorpusError, near_miss

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

Format = Literal["text", "jsonl", "parquet"]
Compression = Literal["", "gz", "bz2", "xz", "zst"]

_FORMATS: dict[str, Format] = {
    ".txt": "text",
    ".text": "text",
    ".md": "text",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
}
_COMPRESSIONS: dict[str, Compression] = {".gz": "gz", ".bz2": "bz2", ".xz": "xz", ".zst": "zst"}
_MAGIC = {
    "gz": re.compile(rb"\x1f\x8b"),
    "bz2": re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)"),
    "xz": re.compile(rb"\xfd7zXZ\x00"),
    "zst": re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"),
}
_FOREIGN = {
    b"PK\x03\x04": "a zip archive: unpack it first",
    b"%PDF-": "a PDF: convert it to text first",
}
_BLOCK = 1 << 18
_ZSTD_INPUT = 1 << 10  # every four bytes of zstd may stand for 128 kB, so these for 32 MB at most


@dataclass(frozen=True, slots=True)
class Source:
    """One file of a corpus: where it is, what people call it, and how it is packed."""

    path: Path
    name: str
    format: Format = "text"
    compression: Compression = ""


def find_sources(paths: Sequence[str | Path]) -> list[Source]:
    """The files that `paths` name, each once and in a fixed order: files, folders with all in them, and globs.

    A file that is named, or matched by a glob, may have any suffix. In a folder only text, JSONL and Parquet
    files count, each possibly compressed.
    """
    found: dict[str, Source] = {}
    for path in paths:
        if not str(path) or "\0" in str(path):
            raise CorpusError(f"{str(path)!r} is not a path: name a file, a folder or a glob.")
        for file in _expand(Path(path)):
            source = _describe(file)
            if not os.access(file, os.R_OK):
                raise CorpusError(f"may not read {source.name}: change its permissions or copy it.")
            found.setdefault(os.path.realpath(file), source)
    return list(found.values())


def open_bytes(source: Source) -> BinaryIO:
    """The bytes of a file, decompressed while they are read; damage is a `CorpusError` that names the file."""
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
def open_any_order(source: Source) -> Iterator[Path | BinaryIO]:
    """A file that can be read in any order: the source itself, or an unpacked copy that vanishes afterwards."""
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


class _Stream(io.RawIOBase):
    """The unpacked bytes of an open file."""

    def __init__(self, source: Source, file: BinaryIO) -> None:
        self._source = source
        self._file = file
        self._bytes = _unpack(source.compression, file)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        try:
            return self._bytes.readinto(buffer) or 0
        except EOFError as error:
            self._refuse("it ends too early", error)
        except (OSError, zlib.error, lzma.LZMAError) as error:
            self._refuse(str(error), error)

    def close(self) -> None:
        self._file.close()
        super().close()

    def _refuse(self, reason: str, error: Exception) -> NoReturn:
        raise CorpusError(f"{self._source.name} is damaged ({reason}): fetch or compress it again.") from error


class _ZstdFile(io.RawIOBase):
    """The unpacked bytes of a zstd file: like zstandard's own reader, but a frame cut short is an `EOFError`."""

    def __init__(self, file: BinaryIO) -> None:
        import zstandard

        self._file = file
        self._new_frame = zstandard.ZstdDecompressor().decompressobj
        self._frame: zstandard.ZstdDecompressionObj | None = None
        self._error = zstandard.ZstdError
        self._packed = b""
        self._unpacked = memoryview(b"")

    def readinto(self, buffer: WriteableBuffer) -> int:
        while not self._unpacked:
            self._packed = self._packed or self._file.read(_ZSTD_INPUT)
            if not self._packed:
                if self._frame:
                    raise EOFError
                return 0
            self._unpack()
        target = memoryview(buffer).cast("B")
        size = min(len(target), len(self._unpacked))
        target[:size] = self._unpacked[:size]
        self._unpacked = self._unpacked[size:]
        return size

    def _unpack(self) -> None:
        frame = self._frame or self._new_frame()
        try:
            self._unpacked = memoryview(frame.decompress(self._packed))
        except self._error as error:
            raise OSError(str(error)) from error
        self._frame, self._packed = (None, frame.unused_data) if frame.eof else (frame, b"")


def _unpack(compression: Compression, file: BinaryIO) -> io.RawIOBase | io.BufferedIOBase:
    if compression == "gz":
        return gzip.GzipFile(fileobj=file)
    if compression == "bz2":
        return bz2.BZ2File(file)
    if compression == "xz":
        return lzma.LZMAFile(file)
    if compression == "zst":
        return _ZstdFile(file)
    assert isinstance(file, io.BufferedIOBase)
    return file


def _check_magic(source: Source, head: bytes) -> None:
    """Raises `CorpusError` if the first bytes of a file belie its suffix."""
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
    """The files that one path stands for."""
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


def _describe(path: Path) -> Source:
    suffix, packing = _suffixes(path)
    return Source(path, _shown(path), _FORMATS.get(suffix, "text"), _COMPRESSIONS.get(packing, ""))


def _suffixes(path: Path) -> tuple[str, str]:
    """The suffix that tells a file's format and the one that tells its compression, either possibly empty."""
    stem, suffix = os.path.splitext(path.name.lower())
    return (os.path.splitext(stem)[1], suffix) if suffix in _COMPRESSIONS else (suffix, "")


def _shown(path: Path) -> str:
    """A path that can be printed, even if its bytes are no text."""
    return os.fsencode(path).decode("utf-8", "replace")
