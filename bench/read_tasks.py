"""Reading a TSV of a million labelled texts: seconds and peak memory, beside csv and, where it is installed, pandas."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
import data

ROWS = int(os.environ.get("FIRTH_BENCH_ROWS", "1000000"))
LONGEST = 160  # characters of a text
READERS = ("firth", "csv", "pandas")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        small, path = Path(folder) / "few.tsv", Path(folder) / "rows.tsv"
        write_rows(small, 10)
        write_rows(path, ROWS)
        size = path.stat().st_size / 1e6
        print(f"{ROWS:,} rows, {size:.0f} MB")
        for reader in READERS:
            # In a process of its own, so that its memory is not that of another.
            run = subprocess.run(
                [sys.executable, __file__, reader, str(small), str(path)], stdout=subprocess.PIPE, text=True
            )
            print(run.stdout.strip() or f"{reader}: not installed")


def write_rows(path: Path, rows: int) -> None:
    """Pieces of English prose, each with one of five labels."""
    draws = np.random.default_rng(0)
    with open(path, "w", encoding="utf-8") as file:
        file.write("label\ttext_a\n")
        for text in islice(pieces(), rows):
            file.write(f"{draws.integers(5)}\t{text}\n")


def pieces() -> Iterator[str]:
    while True:
        for line in data.english():
            words = " ".join(line.split())
            for begin in range(0, len(words), LONGEST):
                if piece := words[begin : begin + LONGEST].strip():
                    yield piece


def measure(reader: str, small: str, path: str) -> None:
    """Reads the file and prints what it took."""
    read = {"firth": by_firth, "csv": by_csv, "pandas": by_pandas}[reader]
    try:
        read(small)  # imports what it needs
    except ImportError:
        return
    before, started = peak(), time.perf_counter()
    rows = read(path)
    seconds = time.perf_counter() - started
    assert rows == ROWS
    print(
        f"{reader}: {seconds:.2f} s, {rows / seconds / 1e6:.2f} million rows/s, {peak() - before:.0f} MB more at most"
    )


def by_firth(path: str) -> int:
    from firth.tasks.reading import read_task

    return sum(example.labels is not None for example in read_task("classify", path))


def by_csv(path: str) -> int:
    """The plainest reader that there is, one dictionary a row."""
    import csv

    with open(path, encoding="utf-8", newline="") as file:
        return sum(row["label"] != "" for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def by_pandas(path: str) -> int:
    import pandas

    return len(pandas.read_csv(path, sep="\t", quoting=3, dtype=str, keep_default_na=False))


def peak() -> float:
    """The most memory that this process has had, in MB; what `getrusage` says begins with what its parent had."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    (found,) = (line.split()[1] for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return int(found) / 1e3


if __name__ == "__main__":
    if len(sys.argv) > 2:
        measure(*sys.argv[1:])
    else:
        main()
