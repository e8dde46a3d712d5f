"""The texts of a column of a Parquet file, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, BinaryIO

from firth.errors import CorpusError, EncodingError, near_miss
from firth.text.files import CorpusFile, expanded_limit, expands_too_much, open_seekable
from firth.text.parquet_pages import read_pages

_BUFFER = 1 << 18  # bytes
_ROWS = 256
_MAX_BATCH = 1 << 24  # bytes


def read_column(source: CorpusFile, field: str) -> Iterator[tuple[str, object]]:
    """Each value of a column of text, with its row for error messages.

    A small file can expand to a huge text: its pages are compressed, and rows can refer to the same value of a
    dictionary. So both are limited, and a batch has so few rows that even the whole dictionary in each would fit.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    where, left = source.name, (limit := expanded_limit(source.path.stat().st_size))
    with open_seekable(source) as file:
        try:
            # otherwise a whole column would be in memory
            with pq.ParquetFile(file, buffer_size=_BUFFER, pre_buffer=False) as table:
                _check_column(table.schema_arrow, field, source.name)
                size, dictionary = _page_sizes(file, field)
                if size > limit:
                    raise expands_too_much(source.name, limit)
                row, rows = 0, min(_ROWS, _MAX_BATCH // (dictionary + 1) + 1)
                for batch in table.iter_batches(rows, columns=[field]):
                    for scalar in batch.column(0):
                        row += 1
                        where = f"row {row} of {source.name}"
                        value = scalar.as_py()
                        left -= len(value) if value else 0
                        if left < 0:
                            raise expands_too_much(source.name, limit)
                        yield where, value
        except UnicodeDecodeError:
            raise EncodingError(f"{where} is not UTF-8: write the file again.") from None
        except (pa.ArrowException, OSError, ValueError, RecursionError) as error:
            reason = (str(error).splitlines() or ["no reason given"])[0].rstrip(".")
            raise CorpusError(f"{source.name} is damaged Parquet ({reason}): fetch or write it again.") from None


def _check_column(schema: Any, field: str, name: str) -> None:
    import pyarrow as pa

    if field not in schema.names:
        raise missing_field(field, schema.names, name)
    kind = schema.field(field).type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise CorpusError(f"the column {field!r} of {name} holds {kind}, not text: choose another with --field.")


def _page_sizes(file: Path | BinaryIO, field: str) -> tuple[int, int]:
    """The bytes of all pages of a column after decompression, and of its largest dictionary."""
    size = dictionary = 0
    with open(file, "rb") if isinstance(file, Path) else nullcontext(file) as stream:
        for page in read_pages(stream, field):
            size += page.size
            dictionary = max(dictionary, page.size if page.is_dictionary else 0)
    return size, dictionary


def missing_field(field: str, fields: list[str], where: str) -> CorpusError:
    """The error for a record or a file without the field that should have the text."""
    if not fields:
        return CorpusError(f"{where} has no fields: give it the field {field!r}.")
    some = ", ".join(fields[:20])
    return CorpusError(
        f"{where} has no field {field!r} but {some}; name the one with the text by --field: {near_miss(field, fields)}"
    )
