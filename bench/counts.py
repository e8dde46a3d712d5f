"""N-gram models against KenLM: from a text file to a saved model, queries, next words, generation.

    python bench/counts.py [--size 100] [--orders 3 5]

Peers: `lmplz` and `build_binary` if they are on PATH (never built here), the `kenlm` Python module for queries. Without
lmplz, its figures from a machine of the same kind are printed instead, with the copying and sorting speed of this
machine for comparison.
"""

from __future__ import annotations

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
from typing import Any, NamedTuple

import numpy as np

import data
import firth
from firth.abilities import total
from harness import make_parser, timed

PUBLISHED = {3: (20.6, 7.2, 0.697, 287), 5: (49.3, 32.2, 1.07, 1007)}
"""By order: seconds of lmplz and of build_binary, GB of lmplz, MB of the binary; 19.26 M words, 2 cores of Zen 3."""
_TOKEN = re.compile(r"\w+|[^\w\s]")
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'(])")


class Cost(NamedTuple):
    """Time, peak memory and disk space of building a model."""

    seconds: float
    memory: float
    """Bytes."""
    disk: float
    """Bytes."""


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--size", type=int, default=100, help="megabytes of text at most")
    parser.add_argument("--orders", type=int, nargs="+", default=[3, 5])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        words, sentences = write_text(folder, options.size << 20)
        size = (folder / "train.txt").stat().st_size
        print(f"{words:,} words in {sentences:,} sentences, {size / 1e6:.0f} MB, one per line, words between spaces")
        print_machine()
        (folder / "few.txt").write_text("to be or not to be\n" * 2000)
        warmup = run_firth(folder, "few.txt", 3, "few").seconds
        print(f"warm-up (imports, kernels compiled or from the cache): {warmup:.1f} s, not counted below\n")
        for order in options.orders:
            compare(folder, order, words)


def write_text(folder: Path, size: int) -> tuple[int, int]:
    """Write train.txt and valid.txt (every hundredth document): lower-cased words and punctuation, a sentence per line.

    Returns the words and sentences of train.txt.
    """
    words = sentences = written = 0
    with open(folder / "train.txt", "w") as train, open(folder / "valid.txt", "w") as valid:
        for document, lines in enumerate(read_documents()):
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


def read_documents() -> Iterator[list[str]]:
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
    copy, sort = seconds_of(numbers.copy), seconds_of(lambda: np.sort(numbers))
    print(f"this machine: {os.cpu_count()} cores, copies {2 * numbers.nbytes / copy / 1e9:.1f} GB/s, ", end="")
    print(f"sorts {numbers.size / sort / 1e6:.1f} million numbers per second (one core, NumPy)")


def compare(folder: Path, order: int, words: int) -> None:
    print(f"order {order}, modified Kneser-Ney")
    ours = run_firth(folder, "train.txt", order, f"m{order}")
    print_cost("firth train", ours, words)
    peer = run_lmplz(folder, order, words)
    faster, memory, disk = peer.seconds / ours.seconds, ours.memory / peer.memory, ours.disk / peer.disk
    print(f"  ratio: {faster:.1f}x faster, {memory:.2f}x the memory, {disk:.2f}x the disk")
    compare_queries(folder, order)
    shutil.rmtree(folder / f"m{order}")


def run_firth(folder: Path, text: str, order: int, out: str) -> Cost:
    """Train in a process of its own with an empty cache, from the text file to the saved model."""
    cache = folder / f"cache-{out}"
    command = [sys.executable, "-m", "firth", "train", f"mkn{order}", text, "-o", out, "--layout", "lines"]
    command += ["--set", "tokenizer.split=space"]
    environment = {**os.environ, "FIRTH_CACHE": str(cache)}
    started = time.perf_counter()
    process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    memory = wait_for_peak_memory(process)
    if process.returncode:
        assert process.stderr is not None
        raise SystemExit(process.stderr.read().decode())
    shutil.rmtree(cache, ignore_errors=True)
    seconds = time.perf_counter() - started
    return Cost(seconds, memory, sum(path.stat().st_size for path in (folder / out).iterdir()))


def run_lmplz(folder: Path, order: int, words: int) -> Cost:
    """lmplz and build_binary on the same text, or their published figures in proportion to the number of words."""
    tools = [shutil.which(name) for name in ("lmplz", "build_binary")]
    if not all(tools):
        count, binary, memory, size = PUBLISHED[order]
        scale = words / 19.26e6
        print(f"  lmplz + build_binary (not on PATH; published, times {scale:.2f} for the words): ", end="")
        print(f"{count:.1f} + {binary:.1f} s, {memory:.2f} GB, {size} MB")
        return Cost((count + binary) * scale, memory * 1e9 * scale, size * 1e6 * scale)
    arpa, model = folder / f"{order}.arpa", folder / f"{order}.bin"
    seconds, peaks = [], []
    for command in (
        [tools[0], "-o", str(order), "-S", "2G", "--text", "train.txt", "--arpa", arpa.name],
        [tools[1], "-S", "50%", "probing", arpa.name, model.name],
    ):
        started = time.perf_counter()
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        peaks.append(wait_for_peak_memory(subprocess.Popen(command, cwd=folder, **quiet)))  # type: ignore[call-overload]
        seconds.append(time.perf_counter() - started)
    peer = Cost(sum(seconds), peaks[0], model.stat().st_size)
    print_cost(f"lmplz {seconds[0]:.1f} s + build_binary {seconds[1]:.1f} s", peer, words)
    arpa.unlink()
    return peer


def wait_for_peak_memory(process: subprocess.Popen[bytes]) -> int:
    """Wait for a process; returns the peak memory of it and its descendants together, sampled every 20 ms, in bytes."""
    peak = 0

    def sample() -> None:
        nonlocal peak
        while process.poll() is None:
            peak = max(peak, sum(map(resident_memory, process_tree(process.pid))))
            time.sleep(0.02)

    sampler = threading.Thread(target=sample)
    sampler.start()
    process.wait()
    sampler.join()
    return peak


def process_tree(pid: int) -> list[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return [pid]
    return [pid, *(descendant for child in children for descendant in process_tree(int(child)))]


def resident_memory(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def print_cost(what: str, cost: Cost, words: int) -> None:
    print(f"  {what}: {cost.seconds:.1f} s, {words / cost.seconds / 1e6:.2f} M words/s, ", end="")
    print(f"{cost.memory / 1e9:.2f} GB, {cost.disk / 1e6:.0f} MB on disk")


def compare_queries(folder: Path, order: int) -> None:
    """The held-out text ten times over, sentence by sentence, as KenLM's published figures were measured."""
    model = firth.load(folder / f"m{order}", verify=False)
    lines = (folder / "valid.txt").read_text().splitlines()
    sentences = lines * 10
    tokens = total(model.score(lines)).tokens * 10
    model.log_probabilities(lines)
    ours = best_seconds(lambda: model.log_probabilities(sentences))
    full = best_seconds(lambda: model.score(sentences))
    short = [line for line in lines if len(line.split()) <= 20][:2000]
    model.log_probability(short[0])
    single = best_seconds(lambda: [model.log_probability(line) for line in short]) / len(short)
    speeds = [tokens / seconds / 1e6 for seconds in (ours, full)]
    print(f"  firth, a list of sentences: {speeds[0]:.2f} M tokens/s ({speeds[1]:.2f} M as full scores); ", end="")
    print(f"a single sentence {single * 1e6:.1f} us")
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
        print(f"  export to ARPA: {seconds_of(lambda: firth.export_model(model, 'arpa', path)):.1f} s")
    peer = kenlm.Model(str(path))
    theirs = best_seconds(lambda: [peer.score(line) for line in sentences])
    print(f"  kenlm.Model.score, one by one: {tokens / theirs / 1e6:.2f} M tokens/s; ratio {theirs / ours:.2f}x")
    log10 = sum(peer.score(line) for line in lines)
    our_score = total(model.score(lines))
    their_perplexity = 10 ** (-log10 / our_score.tokens)
    print(f"  held-out perplexity: firth {our_score.perplexity:.3f}, kenlm {their_perplexity:.3f}")
    path.unlink()


def print_next_words(model: Any, lines: list[str]) -> None:
    histories = [model.history(" ".join(line.split()[:4])) for line in lines[:2000]]
    model.top_next(histories[0], 10)
    top = seconds_of(lambda: [model.top_next(history, 10) for history in histories]) / len(histories)
    model.sample([], 1, 50, 0)
    samples, seconds = timed(lambda: model.sample([], 3000, 50, 1))
    speed = sum(map(len, samples)) / seconds
    print(f"  ten most probable next words: {top * 1e6:.0f} us per history; generation {speed:,.0f} words/s\n")


def seconds_of(function: Callable[[], object]) -> float:
    return timed(function)[1]


def best_seconds(function: Callable[[], object]) -> float:
    return min(seconds_of(function) for _ in range(3))


if __name__ == "__main__":
    main()
