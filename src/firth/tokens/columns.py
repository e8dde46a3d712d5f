"""Columns of a token store: named and typed facts of each token beside its id, built with the store.

A recipe names the columns that its objectives require; a store has no others. A column is a file with a digest of its
own, and the digest of the store covers it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from firth.files import digest_file
from firth.tokens.store import FILES, StoreInfo
from firth.tokens.tokenizer import Tokenizer

OUTSIDE, BEGINS, CONTINUES = range(3)
"""The values of a column of spans: a token outside spans, the first one of a span, and the others."""


class ColumnText(NamedTuple):
    """The text of a store that a column is made of."""

    tokenizer: Tokenizer
    ids: npt.NDArray[Any]
    word_starts: npt.NDArray[np.bool_]
    sentences: npt.NDArray[np.int64]
    """The offset of each sentence, and the end."""
    documents: npt.NDArray[np.int64]
    """The first sentence of each document, and the end."""
    columns: dict[str, npt.NDArray[Any]]
    """The columns before it."""


@dataclass(frozen=True)
class Column(ABC):
    """A named fact of each token."""

    name: ClassVar[str]
    dtype: ClassVar[str] = "uint8"
    needs: ClassVar[tuple[type[Column], ...]] = ()
    """Columns that it is made of."""

    @property
    def file(self) -> str:
        """The name of its file in a store."""
        return f"{self.name}.{self.dtype}.bin"

    @property
    def key(self) -> str:
        """What determines it, besides the text and the tokenizer."""
        return self.name

    @abstractmethod
    def values(self, text: ColumnText) -> npt.NDArray[Any]:
        """The value of each token."""


@dataclass(frozen=True)
class CapitalColumn(Column):
    """1 for tokens of words that begin with a capital letter; written while the text is encoded."""

    name: ClassVar[str] = "capitals"

    def values(self, text: ColumnText) -> npt.NDArray[Any]:
        raise AssertionError("capital letters are read from the text, not from its tokens")


def with_needed(columns: Sequence[Column]) -> tuple[Column, ...]:
    """The columns after those that they are made of, each name once.

    >>> [column.name for column in with_needed([CapitalColumn(), CapitalColumn()])]
    ['capitals']
    """
    needed = [*(need() for column in columns for need in column.needs), *columns]
    return tuple({column.name: column for column in needed}.values())


def reads_capitals(columns: Sequence[Column]) -> bool:
    """Whether one of the columns is of capital letters."""
    return any(isinstance(column, CapitalColumn) for column in columns)


def write_columns(folder: Path, info: StoreInfo, tokenizer: Tokenizer, columns: Sequence[Column]) -> StoreInfo:
    """Add columns to a store whose other files are written; returns the facts with their digests."""
    derived = [column for column in columns if not isinstance(column, CapitalColumn)]
    if not derived:
        return info

    def read(name: str, dtype: str) -> npt.NDArray[Any]:
        return np.asarray(np.memmap(folder / name, dtype=dtype, mode="r"))

    ids, starts, sentences, documents = map(read, FILES, (info.dtype, "bool", "uint64", "uint64"))
    bounds = sentences.view(np.int64), documents.view(np.int64)
    made = {name: read(*file) for name, file in info.columns.items()}
    files = dict(info.files)
    for column in derived:
        values = column.values(ColumnText(tokenizer, ids, starts, *bounds, made))
        assert values.shape == ids.shape
        assert values.dtype == column.dtype
        (folder / column.file).write_bytes(values.data)
        files[column.file] = digest_file(folder / column.file)
        made[column.name] = read(column.file, column.dtype)
    return replace(info, files=files)
