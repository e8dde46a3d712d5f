"""The texts that the benchmarks run on: real data where it lies beside the repository, built-in text otherwise."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

from firth.text.corpus import read_corpus

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data" / "lm"


def english() -> Iterator[str]:
    """Lines of English prose, each a paragraph; blank lines between documents."""
    if (SHARED / "wiki_en.txt.gz").exists():
        return chain(_lines(SHARED / "wiki_en.txt.gz"), _lines(SHARED / "wikinews_en.txt.gz"))
    print("note: no real data beside the repository, using builtin:pydoc", file=sys.stderr)
    return _documents("builtin:pydoc")


def chinese() -> Iterator[str]:
    """Lines of Chinese prose, as above."""
    if (SHARED / "wiki_zh.txt.gz").exists():
        return _lines(SHARED / "wiki_zh.txt.gz")
    print("note: no real data beside the repository, using builtin:oracle-chinese", file=sys.stderr)
    return _documents("builtin:oracle-chinese")


def write(lines: Callable[[], Iterator[str]], path: Path, size: int) -> int:
    """Writes lines to a file until it has `size` bytes, again and again if they run out; returns its bytes."""
    written = 0
    with open(path, "w", encoding="utf-8") as file:
        while True:
            for line in lines():
                file.write(line)
                written += len(line.encode())
                if written >= size and line == "\n":
                    return written


def _lines(path: Path) -> Iterator[str]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        yield from file
    yield "\n"


def _documents(name: str) -> Iterator[str]:
    for document in read_corpus(name).raw_documents():
        yield from (line + "\n" for line in document.text.split("\n"))
        yield "\n"
