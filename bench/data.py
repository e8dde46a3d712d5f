"""Text for the benchmarks: real data if it is beside the repository, built-in text otherwise."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

from firth.text.corpus import read_corpus

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data" / "lm"


def english() -> Iterator[str]:
    """Lines of English prose, one per paragraph, with blank lines between documents."""
    return _read(["wiki_en.txt.gz", "wikinews_en.txt.gz"], "builtin:pydoc")


def chinese() -> Iterator[str]:
    """Lines of Chinese prose, one per paragraph, with blank lines between documents."""
    return _read(["wiki_zh.txt.gz"], "builtin:oracle-chinese")


def write(lines: Callable[[], Iterator[str]], path: Path, size: int) -> int:
    """Write documents to a file until it has `size` bytes, repeating them if needed; returns the bytes written."""
    written = 0
    with open(path, "w", encoding="utf-8") as file:
        while True:
            for line in lines():
                file.write(line)
                written += len(line.encode())
                if written >= size and line == "\n":
                    return written


def note_fallback(corpus: str) -> None:
    print(f"note: no real data beside the repository, using {corpus}", file=sys.stderr)


def _read(names: list[str], fallback: str) -> Iterator[str]:
    if (SHARED / names[0]).exists():
        return chain.from_iterable(_lines(SHARED / name) for name in names)
    note_fallback(fallback)
    return _documents(fallback)


def _lines(path: Path) -> Iterator[str]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        yield from file
    yield "\n"


def _documents(name: str) -> Iterator[str]:
    for document in read_corpus(name).raw_documents():
        yield from (line + "\n" for line in document.text.split("\n"))
        yield "\n"
