"""N-gram models against KenLM: from a text file to a saved model, queries, next words, generation.

    python bench/counts.py [--size 100] [--orders 3 5]

Peers: `lmplz` and `build_binary` where they are on PATH (never built here), the `kenlm` Python module for queries.
Without lmplz its figures from a machine of the same kind are printed beside ours, with this machine's speed of copying
and sorting to compare the two by.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
import data
import firth
from firth.abilities import total

PUBLISHED = {3: (20.6, 7.2, 0.697, 287), 5: (49.3, 32.2, 1.07, 1007)}
"""Order -> seconds of lmplz and of build_binary, GB of lmplz, MB of the binary: 19.26 M words, 2 cores of Zen 3."""
_TOKEN = re.compile(r"\w+|[^\w\s]")
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'(])")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=100, help="megabytes of text at most")
    parser.add_argument("--orders", type=int, nargs="+", default=[3, 5])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        words, sentences = write_text(folder, options.size << 20)
        size = (folder / "train.txt").stat().st_size
        print(f"{words:,} words in {sentences:,} sentences, {size / 1e6:.0f} MB, one a line, words separated by spaces")
        print_machine()
        warm = warm_up(folder)
        print(f"warm-up (imports, compiled kernels from cache or anew): {warm:.1f} s, not counted below\n")
        for order in options.orders:
            compare(folder, order, words)


def write_text(folder: Path, size: int) -> tuple[int, int]:
    """Writes train.txt and valid.txt (every hundredth document): lower-cased words and marks, a sentence a line."""
    words = sentences = written = 0
    with open(folder / "train.txt", "w") as train, open(folder / "valid.txt", "w") as valid:
        for document, lines in enumerate(documents()):
            out = valid if document % 100 == 99 else train
            for line in lines:
                for sentence in _SENTENCE.split(line):
                    tokens = _TOKEN.findall(sentence.lower())
                    if tokens:
                        written += out.write(" ".join(tokens) + "\n")
                        if out is train:
                            words, sentences = words + len(tokens), sentences + 1
            if written >= size:
                break
    return words, sentences


def documents() -> Iterator[list[str]]:
    """The documents of the English text."""
    lines: list[str] = []
    for line in data.english():
        if line == "\n":
            if lines:
                yield lines
            lines = []
        else:
            lines.append(line)


def print_machine() -> None:
    numbers = np.random.default_rng(0).integers(0, 1 << 62, size=20_000_000)
    copy = timed(lambda: numbers.copy())
    sort = timed(lambda: np.sort(numbers))
    print(f"this machine: {os.cpu_count()} cores, copies {2 * numbers.nbytes / copy / 1e9:.1f} GB/s, ", end="")
    print(f"sorts {numbers.size / sort / 1e6:.1f} million numbers a second (one core, NumPy)")


def warm_up(folder: Path) -> float:
    (folder / "few.txt").write_text("to be or not to be\n" * 2000)
    return timed(lambda: run_firth(folder, "few.txt", 3, "few"))


def compare(folder: Path, order: int, words: int) -> None:
    print(f"order {order}, modified Kneser-Ney")
    ours = measure(lambda: run_firth(folder, "train.txt", order, f"m{order}"))
    size = sum(path.stat().st_size for path in (folder / f"m{order}").iterdir())
    report("firth train", ours, words, size)
    peer = run_lmplz(folder, order, words)
    faster, memory = peer["seconds"] / ours["seconds"], ours["memory"] / peer["memory"]
    print(f"  ratio: {faster:.1f}x faster, {memory:.2f}x the memory, {size / peer['size']:.2f}x the disk")
    compare_queries(folder, order)
    shutil.rmtree(folder / f"m{order}")


def run_firth(folder: Path, text: str, order: int, out: str) -> int:
    """Trains in a process of its own, with an empty cache: from the text file to the saved model."""
    cache = folder / f"cache-{out}"
    command = [sys.executable, "-m", "firth", "train", f"mkn{order}", text, "-o", out, "--layout", "lines"]
    process = subprocess.Popen(
        [*command, "--set", "tokenizer.split=space"],
        cwd=folder,
        env={**os.environ, "FIRTH_CACHE": str(cache)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    peak = watch(process)
    if process.returncode:
        assert process.stderr is not None
        raise SystemExit(process.stderr.read().decode())
    shutil.rmtree(cache, ignore_errors=True)
    return peak


def run_lmplz(folder: Path, order: int, words: int) -> dict[str, float]:
    """lmplz and build_binary on the same text, or the published figures for about as much."""
    tools = [shutil.which(name) for name in ("lmplz", "build_binary")]
    if not all(tools):
        count, binary, memory, size = PUBLISHED[order]
        share = words / 19.26e6
        print(f"  lmplz + build_binary (not on PATH; published, times {share:.2f} for the words): ", end="")
        print(f"{count:.1f} + {binary:.1f} s, {memory:.2f} GB, {size} MB")
        return {"seconds": (count + binary) * share, "memory": memory * 1e9 * share, "size": size * 1e6 * share}
    arpa, model = folder / f"{order}.arpa", folder / f"{order}.bin"
    commands = [
        [tools[0], "-o", str(order), "-S", "2G", "--text", "train.txt", "--arpa", arpa.name],
        [tools[1], "-S", "50%", "probing", arpa.name, model.name],
    ]
    spent = [measure(lambda command=command: run_tool(folder, command)) for command in commands]  # type: ignore[misc]
    peer = {
        "seconds": sum(one["seconds"] for one in spent),
        "memory": spent[0]["memory"],
        "size": float(model.stat().st_size),
    }
    report(f"lmplz {spent[0]['seconds']:.1f} s + build_binary {spent[1]['seconds']:.1f} s", peer, words, peer["size"])
    arpa.unlink()
    return peer


def run_tool(folder: Path, command: list[Any]) -> int:
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return watch(process)


def watch(process: subprocess.Popen[bytes]) -> int:
    """The most memory that the process and its children held at once, seen every 20 ms, in bytes."""
    peak = 0

    def look() -> None:
        nonlocal peak
        while process.poll() is None:
            peak = max(peak, sum(map(resident, family(process.pid))))
            time.sleep(0.02)

    watcher = threading.Thread(target=look)
    watcher.start()
    process.wait()
    watcher.join()
    return peak


def family(pid: int) -> list[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return [pid]
    return [pid, *(one for child in children for one in family(int(child)))]


def resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def measure(work: Callable[[], int]) -> dict[str, float]:
    begun = time.perf_counter()
    memory = work()
    return {"seconds": time.perf_counter() - begun, "memory": float(memory)}


def report(what: str, spent: dict[str, float], words: int, size: float) -> None:
    print(f"  {what}: {spent['seconds']:.1f} s, {words / spent['seconds'] / 1e6:.2f} M words/s, ", end="")
    print(f"{spent['memory'] / 1e9:.2f} GB, {size / 1e6:.0f} MB on disk")


def compare_queries(folder: Path, order: int) -> None:
    """The held-out text ten times over, sentence by sentence, as KenLM's published figures were measured."""
    model = firth.load(folder / f"m{order}", verify=False)
    lines = (folder / "valid.txt").read_text().splitlines()
    sentences = lines * 10
    tokens = total(model.score(lines)).tokens * 10
    model.log_probabilities(lines)
    ours = min(timed(lambda: model.log_probabilities(sentences)) for _ in range(3))
    whole = min(timed(lambda: model.score(sentences)) for _ in range(3))
    short = [line for line in lines if len(line.split()) <= 20][:2000]
    model.log_probability(short[0])
    one = min(timed(lambda: [model.log_probability(line) for line in short]) for _ in range(3)) / len(short)
    rates = [tokens / spent / 1e6 for spent in (ours, whole)]
    print(f"  firth, a list of sentences: {rates[0]:.2f} M tokens/s ({rates[1]:.2f} M as full scores); ", end="")
    print(f"one sentence alone {one * 1e6:.1f} us")
    compare_kenlm(folder, order, model, lines, sentences, tokens, ours)
    print_next_words(model, lines)


def compare_kenlm(
    folder: Path, order: int, model: Any, lines: list[str], sentences: list[str], tokens: int, ours: float
) -> None:
    try:
        import kenlm
    except ImportError:
        print("  kenlm is not installed: no comparison of queries")
        return
    path = folder / f"{order}.bin"
    if not path.exists():
        path = folder / f"{order}.arpa"
        print(f"  export to ARPA: {timed(lambda: firth.export_model(model, 'arpa', path)):.1f} s")
    peer = kenlm.Model(str(path))
    theirs = min(timed(lambda: [peer.score(line) for line in sentences]) for _ in range(3))
    print(f"  kenlm.Model.score, one by one: {tokens / theirs / 1e6:.2f} M tokens/s; ratio {theirs / ours:.2f}x")
    log10 = sum(peer.score(line) for line in lines)
    mine = total(model.score(lines))
    their_perplexity = 10 ** (-log10 / mine.tokens)
    print(f"  held-out perplexity: firth {mine.perplexity:.3f}, kenlm {their_perplexity:.3f}")
    path.unlink()


def print_next_words(model: Any, lines: list[str]) -> None:
    histories = [model.history(" ".join(line.split()[:4])) for line in lines[:2000]]
    model.top_next(histories[0], 10)
    top = timed(lambda: [model.top_next(history, 10) for history in histories]) / len(histories)
    model.draw([], 1, 50, 0)
    drawn: list[list[int]] = []
    spent = timed(lambda: drawn.extend(model.draw([], 3000, 50, 1)))
    words = sum(map(len, drawn))
    print(f"  ten likeliest next words: {top * 1e6:.0f} us a history; generation {words / spent:,.0f} words/s\n")


def timed(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


if __name__ == "__main__":
    main()
