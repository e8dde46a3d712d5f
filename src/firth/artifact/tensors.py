"""Safetensors files: a strict reader, which checks the header before it maps the data, and a writer."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import mmap
import os
import stat
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from firth.artifact.manifest import COPY_AGAIN, parse_json
from firth.errors import ArtifactError

if TYPE_CHECKING:
    import numpy as np

_HEADER_LIMIT = 100_000_000  # the safetensors format's own bound
_BLOCK = 1 << 22  # bytes written at once
_MAX_PENDING = 4  # blocks that may wait for their digest
_DTYPES = {
    **{"F64": "<f8", "F32": "<f4", "F16": "<f2", "C64": "<c8", "BOOL": "|b1"},
    **{"I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1"},
    **{"U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "|u1"},
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


def map_tensors(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of a safetensors file by name, read-only and memory-mapped."""
    import numpy as np

    entries = read_header(path)
    with read_errors(path), open_plain(path) as file:
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return {entry.name: np.ndarray(entry.shape, entry.dtype, content, entry.start) for entry in entries}


def write_tensors(
    path: Path, arrays: Mapping[str, np.ndarray[Any, Any]], metadata: Mapping[str, str] | None = None
) -> str:
    """Write arrays as a safetensors file, block by block without a copy in memory; returns its SHA-256.

    The digest is computed in a thread of its own while the blocks are written.
    """
    import numpy as np

    header: dict[str, Any] = {} if metadata is None else {"__metadata__": dict(metadata)}
    begin = 0
    # Widest dtypes first, so that every array is aligned to its item size.
    ordered = sorted(arrays.items(), key=lambda item: (-item[1].dtype.itemsize, item[0]))
    for name, array in ordered:
        end = begin + array.nbytes
        header[name] = {"dtype": _NAMES[array.dtype.str], "shape": list(array.shape), "data_offsets": [begin, end]}
        begin = end
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    digest = hashlib.sha256()
    with open(path, "wb") as file, ThreadPoolExecutor(1) as executor:
        pending: deque[Future[None]] = deque()
        for block in _blocks(len(head).to_bytes(8, "little") + head, [np.asarray(array) for _, array in ordered]):
            pending.append(executor.submit(digest.update, block))
            file.write(block)
            if len(pending) > _MAX_PENDING:
                pending.popleft().result()
        for future in pending:
            future.result()
    return digest.hexdigest()


def _blocks(head: bytes, arrays: Sequence[np.ndarray[Any, Any]]) -> Iterator[bytes | memoryview]:
    import numpy as np

    yield head
    for array in arrays:
        if array.size:
            flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
            for begin in range(0, len(flat), _BLOCK):
                yield flat[begin : begin + _BLOCK]


@contextmanager
def open_plain(path: Path) -> Iterator[BinaryIO]:
    """Open a plain file to read; pipes and devices, which could be waited for or read for ever, are refused."""
    _require_regular(path, os.stat(path))
    # Without O_NONBLOCK the file could become a pipe after the check, and opening it would wait.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        _require_regular(path, os.fstat(file.fileno()))
        yield file


def _require_regular(path: Path, info: os.stat_result) -> None:
    if stat.S_ISDIR(info.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(info.st_mode):
        raise ArtifactError(f"{path} is a device, pipe or socket: give a plain file.")


@contextmanager
def read_errors(path: Path) -> Iterator[None]:
    """Turn an `OSError` of reading into an `ArtifactError`."""
    try:
        yield
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ArtifactError(f"cannot read {path} ({reason}): check its permissions, or {COPY_AGAIN}.") from error


@dataclass(frozen=True)
class TensorEntry:
    """One array of a safetensors file; `start` and `end` are offsets in the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


def read_header(path: Path) -> list[TensorEntry]:
    """The arrays of a safetensors file in order; they must fill it without gap or overlap."""
    with read_errors(path), open_plain(path) as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(_HEADER_LIMIT, size - 8):
            raise _invalid(path, 0, f"a header of {length} bytes does not fit into a file of {size}")
        data = file.read(length)
    if not data.startswith(b"{"):
        raise _invalid(path, 8, "the header is no JSON object")
    header = parse_json(data, path, start=8)
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise _invalid(path, 8, "__metadata__ is not an object of strings")
    entries = [_parse_tensor(name, entry, path, 8 + length) for name, entry in header.items()]
    entries.sort(key=lambda entry: (entry.start, entry.end))
    end = 8 + length
    for entry in entries:
        if entry.start != end:
            raise _invalid(path, end, f"tensor {entry.name!r:.80} starts at byte {entry.start} instead")
        end = entry.end
    if end != size:
        raise _invalid(path, min(end, size), f"the tensors end at byte {end}, the file at byte {size}")
    return entries


def _parse_tensor(name: str, entry: Any, path: Path, base: int) -> TensorEntry:
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise _invalid(path, 8, f"tensor {name!r:.80} must have dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _DTYPES:
        raise _invalid(path, 8, f"tensor {name!r:.80} has an unknown dtype, none of {', '.join(_DTYPES)}")
    if not _whole_numbers(shape) or len(shape) > 64:
        raise _invalid(path, 8, f"the shape of tensor {name!r:.80} is not a list of at most 64 whole numbers")
    if not _whole_numbers(offsets) or len(offsets) != 2:
        raise _invalid(path, 8, f"the data_offsets of tensor {name!r:.80} are not two whole numbers")
    item = int(_DTYPES[dtype][2:])
    if math.prod(shape) * item != offsets[1] - offsets[0] or math.prod(filter(None, shape)) * item >= 1 << 63:
        raise _invalid(path, base + offsets[0], f"the shape of tensor {name!r:.80} does not match its bytes")
    return TensorEntry(name, _DTYPES[dtype], tuple(shape), base + offsets[0], base + offsets[1])


def _whole_numbers(value: Any) -> bool:
    return isinstance(value, list) and all(type(number) is int and number >= 0 for number in value)


def _invalid(path: Path, offset: int, reason: str) -> ArtifactError:
    return ArtifactError(f"{path} is not a valid safetensors file at byte {offset} ({reason}): {COPY_AGAIN}.")
