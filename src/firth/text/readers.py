"""Reading documents from plain text, JSONL and Parquet files, possibly compressed, block by block."""

from __future__ import annotations

import codecs
import io
import json
import math
import re
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain
from typing import Any

from firth.errors import CorpusError, EncodingError
from firth.text.encoding import canonical_encoding, codec_name, detect_encoding, mixed_encodings, require_same_encoding
from firth.text.files import CorpusFile, open_bytes
from firth.text.layout import RawDocument
from firth.text.parquet import missing_field, read_column

PIECE = 1 << 20  # characters; a longer document is read in pieces
MAX_LINE = 1 << 23  # characters; a longer line raises an error, so that memory is bounded
_BLOCK = 1 << 18  # bytes
_BLANK = re.compile(r"\n\s*\n")


def read_documents(
    source: CorpusFile, *, encoding: str | None = None, field: str = "text", max_line: int = MAX_LINE
) -> Iterator[RawDocument]:
    """The documents of a file: between blank lines of text, or `field` of each record of JSONL and Parquet."""
    if source.format == "parquet":
        return _read_parquet(source, field, max_line)
    blocks = _read_blocks(source, encoding, max_line)
    return _read_jsonl(blocks, source, field, max_line) if source.format == "jsonl" else _read_text(blocks, source)


def read_blocks(source: CorpusFile, *, encoding: str | None = None, size: int) -> Iterator[bytes]:
    """The text of a plain text file as UTF-8, in blocks of whole lines of about `size` bytes."""
    if file_encoding(source, encoding) == "utf-8":
        return _read_utf8(source, encoding, size)
    return whole_lines((text.encode() for text in _read_blocks(source, encoding, MAX_LINE)), size)


def _read_utf8(source: CorpusFile, encoding: str | None, size: int) -> Iterator[bytes]:
    """The blocks of a file that starts as UTF-8: its own bytes after a check."""
    with open_bytes(source) as stream:
        parts = chain([stream.read(_BLOCK).removeprefix(codecs.BOM_UTF8)], iter(partial(stream.read, _BLOCK), b""))
        for block in whole_lines(_normalise_newlines(parts), size, MAX_LINE):
            if not _is_valid(block):
                for _ in _read_blocks(source, encoding, MAX_LINE):
                    pass  # raises an error with the position
            yield block


def _normalise_newlines(parts: Iterable[bytes]) -> Iterator[bytes]:
    held = b""
    for part in parts:
        if held or b"\r" in part:
            part = held + part
            held = b"\r" if part.endswith(b"\r") else b""  # the other half may follow
            part = part.removesuffix(held).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        yield part
    if held:
        yield b"\n"


def _is_valid(block: bytes) -> bool:
    """Whether bytes are UTF-8 without NUL, and no line can exceed `MAX_LINE`."""
    try:
        return len(block) <= MAX_LINE and b"\0" not in block and (block.isascii() or bool(block.decode()))
    except UnicodeDecodeError:
        return False


def whole_lines(parts: Iterable[bytes], size: int, max_line: float = math.inf) -> Iterator[bytes]:
    """The text, ended by a newline, in blocks of whole lines of about `size` bytes; lines over `max_line` are split.

    >>> list(whole_lines([b"one\\nt", b"wo\\nthr", b"ee"], 5))
    [b'one\\n', b'two\\n', b'three\\n']
    """
    held, length, unfinished = [b""], 0, 0
    for part in parts:
        end = part.rfind(b"\n") + 1
        unfinished = 0 if end else unfinished + len(part.decode(errors="ignore"))
        if unfinished > max_line:
            end = len(part)
        held.append(part)
        length += len(part)
        if length >= size and end:
            held[-1], rest = part[:end], part[end:]
            yield b"".join(held)
            held, length = [rest], len(rest)
    if length:
        yield b"".join(held).removesuffix(b"\n") + b"\n"


def read_lines(source: CorpusFile, *, encoding: str | None = None) -> Iterator[tuple[int, str]]:
    """The lines of a text file, including blank ones, with numbers from 0."""
    if source.format != "text":
        raise CorpusError(f"{source.name} is not plain text: give a file with one text a line.")
    return enumerate(_split_lines(_read_blocks(source, encoding, MAX_LINE)))


def file_encoding(source: CorpusFile, encoding: str | None = None) -> str:
    if source.format == "parquet":
        return "utf-8"
    with open_bytes(source) as stream:
        return _choose_encoding(stream.read(_BLOCK), source, encoding)


def require_text(text: str, where: str) -> str:
    """The same text; raises `EncodingError` if it contains a NUL character or half of a surrogate pair.

    >>> require_text("as it was", "line 1")
    'as it was'
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise EncodingError(f"{where} holds half of a surrogate pair (character {error.start}): remove it.") from None
    nul = text.find("\0")
    if nul >= 0:
        raise EncodingError(f"{where} holds a NUL character (character {nul}): remove it.")
    return text


def split_document(text: str, source: str, continues: bool = False) -> Iterator[RawDocument]:
    """The pieces of a document without blank lines: whole lines, at most `PIECE` characters unless a line is longer.

    >>> list(split_document("one line", "a.txt"))
    [RawDocument(text='one line', source='a.txt', continues=False)]
    """
    start = 0
    while (end := _end_of_piece(text, start)) >= 0:
        yield RawDocument(text[start:end], source, continues)
        start, continues = end + 1, True
    last = text[start:]
    if last and not last.isspace():
        yield RawDocument(last, source, continues)


def _end_of_piece(text: str, start: int) -> int:
    """The end of the piece from `start` on, or -1 if the text is too short to split or the line has no newline."""
    if len(text) - start <= PIECE:
        return -1
    end = text.rfind("\n", start, start + PIECE + 1)
    return end if end >= 0 else text.find("\n", start + PIECE)


def _choose_encoding(head: bytes, source: CorpusFile, encoding: str | None) -> str:
    if encoding is not None:
        return canonical_encoding(encoding)
    return detect_encoding(head, len(head) < _BLOCK, source.name)


def _read_blocks(source: CorpusFile, encoding: str | None, max_line: int) -> Iterator[str]:
    """The decoded text in blocks with "\\n" newlines; too long a line raises an error before it is read."""
    line, length = 1, 0  # number and length so far of the unfinished line
    for block in _decode(source, encoding):
        first = block.find("\n")
        if first < 0:
            length += len(block)
        else:
            _check_length(length + first, line, source, max_line)
            if len(block) > max_line:
                for number, inner in enumerate(block.split("\n")[1:-1], line + 1):
                    _check_length(len(inner), number, source, max_line)
            line += block.count("\n")
            length = len(block) - block.rfind("\n") - 1
        _check_length(length, line, source, max_line)
        yield block


def _check_length(length: int, line: int, source: CorpusFile, max_line: int) -> None:
    if length > max_line:
        remedy = "split the record" if source.format == "jsonl" else "break it into lines, for example with fold -s"
        raise CorpusError(f"line {line} of {source.name} is longer than {max_line:,} characters: {remedy}.")


def _decode(source: CorpusFile, encoding: str | None) -> Iterator[str]:
    """The decoded text in blocks with "\\n" newlines, without a byte order mark."""
    with open_bytes(source) as stream:
        data = stream.read(_BLOCK)
        chosen = _choose_encoding(data, source, encoding)
        codec = codec_name(chosen, data, source.name)
        decoder = codecs.getincrementaldecoder(codec)()
        newlines = io.IncrementalNewlineDecoder(None, translate=True)
        read = 0
        while True:
            start = read - len(decoder.getstate()[0])  # the decoder may buffer the start of a character
            try:
                text = decoder.decode(data, final=not data)
            except UnicodeDecodeError as error:
                at = start + error.start
                raise mixed_encodings(source.name, f"{chosen} at first, not at byte {at}") from None
            nul = text.find("\0")
            if nul >= 0:
                at = start + len(text[:nul].encode(codec))
                raise EncodingError(f"{source.name} holds a NUL character (byte {at}): remove it.")
            if encoding is None and read:
                require_same_encoding(chosen, data, text, source.name, start)
            yield newlines.decode(text[1:] if not read and text.startswith("\ufeff") else text, final=not data)
            if not data:
                return
            read += len(data)
            data = stream.read(_BLOCK)


def _split_lines(blocks: Iterable[str]) -> Iterator[str]:
    rest = ""
    for block in blocks:
        *lines, rest = (rest + block).split("\n")
        yield from lines
    if rest:
        yield rest


def _read_text(blocks: Iterable[str], source: CorpusFile) -> Iterator[RawDocument]:
    """The documents between blank lines, with at most a piece and a line in memory."""
    rest, continues = "", False  # of the unfinished document; after a piece it starts with a newline
    for block in blocks:
        solid = rest.rstrip()  # contains no blank line, so it is not searched again
        first, *others = _BLANK.split(rest[len(solid) :] + block)
        *finished, rest = solid + first, *others
        for text in finished:
            yield from split_document(text[1:] if continues else _trim_start(text), source.name, continues)
            continues = False
        if not continues:
            rest = _trim_start(rest)
        while (end := _end_of_piece(rest, start := int(continues))) >= 0:
            yield RawDocument(rest[start:end], source.name, continues)
            rest, continues = rest[end:], True
    yield from split_document(_trim_end(rest[1:] if continues else rest), source.name, continues)


def _read_jsonl(blocks: Iterable[str], source: CorpusFile, field: str, max_line: int) -> Iterator[RawDocument]:
    for number, line in enumerate(_split_lines(blocks), 1):
        if line and not line.isspace():
            where = f"line {number} of {source.name}"
            yield from _record_documents(_field_of(line, field, where), field, where, source, max_line)


def read_json_objects(source: CorpusFile, *, encoding: str | None = None) -> Iterator[tuple[dict[str, Any], str]]:
    """The objects of a JSONL file, each with its file and line."""
    for number, line in enumerate(_split_lines(_read_blocks(source, encoding, MAX_LINE)), 1):
        if line and not line.isspace():
            where = f"line {number} of {source.name}"
            yield _object_of(line, where), where


def _field_of(line: str, field: str, where: str) -> Any:
    record = _object_of(line, where)
    if field not in record:
        raise missing_field(field, list(record), where)
    return record[field]


def _object_of(line: str, where: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise CorpusError(
            f"{where} is not JSON ({error.msg}, column {error.colno}): write one JSON object a line."
        ) from None
    except (ValueError, RecursionError) as error:  # thousands of digits or brackets
        raise CorpusError(f"{where} cannot be read as JSON ({error}): write one plain object a line.") from None
    if not isinstance(record, dict):
        raise CorpusError(f"{where} is not a JSON object: write one JSON object a line.")
    return record


def _record_documents(
    value: object, field: str, where: str, source: CorpusFile, max_line: int
) -> Iterator[RawDocument]:
    if not isinstance(value, str):
        kind = "null" if value is None else type(value).__name__
        raise CorpusError(f"{where} has no text but {kind} in {field!r}: mend it, or choose another with --field.")
    text = require_text(value, where).replace("\r\n", "\n").replace("\r", "\n")
    text = _trim_start(_trim_end(_BLANK.sub("\n", text)))
    if len(text) > max_line and max(map(len, text.split("\n"))) > max_line:
        raise CorpusError(f"{where} holds a line longer than {max_line:,} characters: break it into lines.")
    yield from split_document(text, source.name)


def _read_parquet(source: CorpusFile, field: str, max_line: int) -> Iterator[RawDocument]:
    for where, value in read_column(source, field):
        yield from _record_documents(value, field, where, source, max_line)


def _trim_start(text: str) -> str:
    space = len(text) - len(text.lstrip())
    return text[text.rfind("\n", 0, space) + 1 :]


def _trim_end(text: str) -> str:
    """The text without blank lines at its end and without the last newline."""
    end = text.find("\n", len(text.rstrip()))
    return text[:end] if end >= 0 else text
