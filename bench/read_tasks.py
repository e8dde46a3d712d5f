"""Reading a TSV of a million labelled texts: seconds and peak memory, beside csv and, where installed, pandas.

The environment variable FIRTH_BENCH_ROWS sets the number of rows.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np

import data
from harness import make_parser, peak_kilobytes, run_child, timed

ROWS = int(os.environ.get("FIRTH_BENCH_ROWS", "1000000"))
MAX_LENGTH = 160  # characters of a text


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return measure(*options.child)
    with tempfile.TemporaryDirectory() as folder:
        small, path = Path(folder) / "few.tsv", Path(folder) / "rows.tsv"
        write_rows(small, 10)
        write_rows(path, ROWS)
        print(f"{ROWS:,} rows, {path.stat().st_size / 1e6:.0f} MB")
        for reader in READERS:
            found = run_child(__file__, reader, small, path)
            print(
                f"{reader}: {found['seconds']:.2f} s, {ROWS / found['seconds'] / 1e6:.2f} million rows/s, "
                f"peak memory +{found['megabytes']:.0f} MB"
                if found
                else f"{reader}: not installed"
            )
    return None


def write_rows(path: Path, rows: int) -> None:
    """Write chunks of English prose, each with one of five labels."""
    rng = np.random.default_rng(0)
    with open(path, "w", encoding="utf-8") as file:
        file.write("label\ttext_a\n")
        for text in islice(text_chunks(), rows):
            file.write(f"{rng.integers(5)}\t{text}\n")


def text_chunks() -> Iterator[str]:
    while True:
        for line in data.english():
            words = " ".join(line.split())
            for begin in range(0, len(words), MAX_LENGTH):
                if chunk := words[begin : begin + MAX_LENGTH].strip():
                    yield chunk


def measure(reader: str, small: str, path: str) -> None:
    """The child process: read the file and print seconds and memory; an empty object if the reader is missing."""
    read = READERS[reader]
    try:
        read(small)  # so that imports are not timed
    except ImportError:
        return print("{}")
    before = peak_kilobytes()
    rows, seconds = timed(lambda: read(path))
    assert rows == ROWS
    return print(json.dumps({"seconds": seconds, "megabytes": (peak_kilobytes() - before) / 1e3}))


def read_firth(path: str) -> int:
    from firth.tasks.readers.reader import read_task

    return sum(example.labels is not None for example in read_task("classify", path))


def read_csv(path: str) -> int:
    import csv

    with open(path, encoding="utf-8", newline="") as file:
        return sum(row["label"] != "" for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def read_pandas(path: str) -> int:
    import pandas

    return len(pandas.read_csv(path, sep="\t", quoting=3, dtype=str, keep_default_na=False))


READERS = {"firth": read_firth, "csv": read_csv, "pandas": read_pandas}


if __name__ == "__main__":
    main()
