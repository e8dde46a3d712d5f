"""The pages of a Parquet file, by their own headers.

The footer of a file states sizes as well, but memory is allocated by the page headers, and the two need not agree.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

_USUAL_HEADER, _MAX_HEADER = 1 << 14, 1 << 24  # bytes
_TYPE, _UNCOMPRESSED_SIZE, _COMPRESSED_SIZE = 1, 2, 3  # fields of a page header
_DICTIONARY = 2  # type of a page
_BYTE, _INTEGERS, _DOUBLE, _BINARY, _LISTS, _MAP, _STRUCT = 3, (4, 5, 6), 7, 8, (9, 10), 11, 12
_FIXED_SIZES = {1: 0, 2: 0, _BYTE: 1, _DOUBLE: 8}  # of a field; 1 and 2 are true and false
_MAX_VARINT_BITS = 70


class Page(NamedTuple):
    size: int  # uncompressed
    is_dictionary: bool  # whose values the other pages refer to


def read_pages(file: BinaryIO, offset: int, size: int) -> Iterator[Page]:
    """The pages of a column chunk; `ValueError` if it is damaged."""
    end = offset + size
    while offset < end:
        file.seek(offset)
        start = file.read(_USUAL_HEADER)
        try:
            header, sizes = _read_header(start)
        except IndexError:  # statistics may be long
            header, sizes = _read_whole_header(start + file.read(_MAX_HEADER))
        expanded, compressed = sizes.get(_UNCOMPRESSED_SIZE, -1), sizes.get(_COMPRESSED_SIZE, -1)
        if expanded < 0 or compressed < 0:
            raise ValueError(f"the page at byte {offset} has no size")
        yield Page(expanded, sizes.get(_TYPE) == _DICTIONARY)
        offset += header + compressed


def _read_whole_header(data: bytes) -> tuple[int, dict[int, int]]:
    try:
        return _read_header(data)
    except IndexError:
        raise ValueError("a page header is cut off") from None


def _read_header(data: bytes) -> tuple[int, dict[int, int]]:
    """The length of the page header at the start of the data, and its fields that are integers."""
    reader, sizes = _CompactReader(data), {}
    for number, kind in reader.fields():
        if kind in _INTEGERS:
            sizes[number] = reader.integer()
        else:
            reader.skip(kind)
    return reader.at, sizes


class _CompactReader:
    """Thrift's compact protocol; data that ends too early raise `IndexError`."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def varint(self) -> int:
        value = 0
        for shift in range(0, _MAX_VARINT_BITS, 7):
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise ValueError("a number is too long")

    def integer(self) -> int:
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def fields(self) -> Iterator[tuple[int, int]]:
        """The number and type of each field of a struct; the caller reads or skips its value."""
        number = 0
        while head := self.byte():
            number = number + (head >> 4) if head >> 4 else self.integer()
            yield number, head & 15

    def skip(self, kind: int) -> None:
        if kind in _FIXED_SIZES:
            self.at += _FIXED_SIZES[kind]
        elif kind in _INTEGERS:
            self.varint()
        elif kind == _BINARY:
            length = self.varint()
            self.at += length
        elif kind == _STRUCT:
            for _, inner in self.fields():
                self.skip(inner)
        elif kind in _LISTS:
            head = self.byte()
            for _ in range(head >> 4 if head >> 4 < 15 else self.varint()):
                self._skip_element(head & 15)
        elif kind == _MAP and (length := self.varint()):
            kinds = self.byte()
            for _ in range(length):
                self._skip_element(kinds >> 4)
                self._skip_element(kinds & 15)
        elif kind != _MAP:
            raise ValueError(f"there is no type {kind}")

    def _skip_element(self, kind: int) -> None:
        """Unlike those of fields, the booleans of lists and maps take a byte."""
        if kind in (1, 2):
            self.byte()
        else:
            self.skip(kind)
