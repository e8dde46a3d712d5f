"""The pages of a column of a Parquet file, by their own headers.

The footer states sizes as well, but memory is allocated by the page headers, and the two need not agree. The footer is
read here, too, because pyarrow aborts the process at some damaged metadata of columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

_USUAL_HEADER, _MAX_HEADER, _MAX_FOOTER = 1 << 14, 1 << 24, 1 << 26  # bytes
_DICTIONARY = 2  # type of a page
_MAX_VARINT_BITS = 70

# Numbers of fields in the structs of the format.
_ROW_GROUPS = 4  # of the footer
_COLUMNS = 1  # of a row group
_METADATA = 3  # of a column chunk
_PATH, _COMPRESSED, _DATA_OFFSET, _DICTIONARY_OFFSET = 3, 7, 9, 11  # of its metadata
_PAGE_TYPE, _PAGE_SIZE, _PAGE_COMPRESSED = 1, 2, 3  # of a page header


class Page(NamedTuple):
    size: int  # uncompressed
    is_dictionary: bool  # whose values the other pages refer to


def read_pages(file: BinaryIO, field: str) -> Iterator[Page]:
    """The pages of a column in all row groups; `ValueError` if the file is damaged."""
    try:
        for group in _read_footer(file)[_ROW_GROUPS]:
            for column in group[_COLUMNS]:
                metadata = column[_METADATA]
                if metadata[_PATH] == [field.encode()]:
                    offsets = (metadata.get(_DICTIONARY_OFFSET, 0), metadata[_DATA_OFFSET])
                    first = min(offset for offset in offsets if offset)
                    yield from _read_chunk(file, first, first + metadata[_COMPRESSED])
    except (LookupError, TypeError, AttributeError):
        raise ValueError("the metadata of a column are incomplete") from None


def _read_footer(file: BinaryIO) -> dict[int, Any]:
    end = file.seek(0, 2) - 8
    file.seek(max(end, 0))
    size = int.from_bytes(file.read(4), "little")
    if not 0 < size <= min(end, _MAX_FOOTER):
        raise ValueError(f"the footer has {size:,} bytes")
    file.seek(end - size)
    return _CompactReader(file.read(size)).struct()


def _read_chunk(file: BinaryIO, offset: int, end: int) -> Iterator[Page]:
    file_size = file.seek(0, 2)
    while offset < end:
        file.seek(offset)
        reader = _CompactReader(file.read(_USUAL_HEADER))
        try:
            header = reader.struct()
        except IndexError:  # statistics may be long
            reader = _CompactReader(reader.data + file.read(_MAX_HEADER))
            header = reader.struct()
        if header[_PAGE_SIZE] < 0 or not 0 <= header[_PAGE_COMPRESSED] <= file_size - offset:
            raise ValueError(f"the page at byte {offset} has an impossible size")
        yield Page(header[_PAGE_SIZE], header[_PAGE_TYPE] == _DICTIONARY)
        offset += reader.at + header[_PAGE_COMPRESSED]


class _CompactReader:
    """Values of Thrift's compact protocol; data that end too early raise `IndexError`."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def struct(self) -> dict[int, Any]:
        """The fields by number."""
        fields: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._integer()
            kind = head & 15
            fields[number] = kind == 1 if kind in (1, 2) else self._value(kind)  # true and false take no bytes
        return fields

    def _value(self, kind: int) -> Any:
        match kind:
            case 1 | 2 | 3:
                return self._byte()
            case 4 | 5 | 6:
                return self._integer()
            case 7:
                return self._bytes(8)
            case 8:
                return self._bytes(self._varint())
            case 9 | 10:
                head = self._byte()
                return [self._value(head & 15) for _ in range(head >> 4 if head >> 4 < 15 else self._varint())]
            case 11:
                count = self._varint()
                kinds = self._byte() if count else 0
                return [(self._value(kinds >> 4), self._value(kinds & 15)) for _ in range(count)]
            case 12:
                return self.struct()
        raise ValueError(f"there is no type {kind}")

    def _byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def _bytes(self, size: int) -> bytes:
        self.at += size
        if self.at > len(self.data):
            raise IndexError
        return self.data[self.at - size : self.at]

    def _varint(self) -> int:
        value = 0
        for shift in range(0, _MAX_VARINT_BITS, 7):
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise ValueError("a number is too long")

    def _integer(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
