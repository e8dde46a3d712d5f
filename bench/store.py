"""A store of a 2 GB corpus: peak memory while building, time to reopen it, time for a batch of random rows.

And from 100 MB of lines of words to a tokenizer and a store: two passes over the text against one.
"""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
import data
import firth
from firth.tokens.build import build_store, open_tokens
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.store import TokenStore
from firth.tokens.train import train_tokenizer

SIZE = int(os.environ.get("FIRTH_BENCH_MB", "2000")) * 1_000_000
WORD = re.compile(r"\w+|[^\w\s]")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["FIRTH_CACHE"] = folder
        small, large = Path(folder) / "small.txt", Path(folder) / "large.txt"
        data.write(data.english, small, 20_000_000)
        size = data.write(data.english, large, SIZE)
        firth.train("wordpiece", small, out=Path(folder) / "wp")
        # In a process of its own, so that its memory is not ours.
        run = subprocess.run([sys.executable, __file__, folder], check=True, stdout=subprocess.PIPE, text=True)
        compare_passes(Path(folder))
        facts = json.loads(run.stdout)
        rate = size / 1e6 / facts["seconds"]
        print(f"{size / 1e9:.2f} GB, {facts['tokens']:,} tokens: {facts['seconds']:.1f} s, {rate:.1f} MB/s")
        total = facts["own"] + facts["workers"] * facts["worker"]
        print(
            f"peak memory: {facts['own']:.2f} GB in the main process, at most {facts['worker']:.2f} GB in each of "
            f"{facts['workers']} workers, {total:.2f} GB in all (limit 1)"
        )
        measure_reading(Path(facts["folder"]))


def build(folder: Path) -> None:
    """Builds the store and prints what it took as JSON; memory in GB."""
    tokenizer = firth.load(folder / "wp")
    started = time.perf_counter()
    store = build_store(firth.read_corpus(folder / "large.txt"), tokenizer, folder / "stores")
    facts = {
        "seconds": time.perf_counter() - started,
        "tokens": len(store),
        "folder": str(store.folder),
        "own": own_peak(),
        "worker": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6,
        "workers": os.cpu_count(),
    }
    print(json.dumps(facts))


def own_peak() -> float:
    """The most memory that this process has had, in GB; what `getrusage` says begins with what its parent had."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    (peak,) = (line.split()[1] for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return int(peak) / 1e6


def compare_passes(folder: Path) -> None:
    """Times `train_tokenizer` and `build_store` one after the other, then `open_tokens`, on words between spaces."""
    size = data.write(spaced_words, folder / "words.txt", min(SIZE, 100_000_000))
    corpus = firth.read_corpus(folder / "words.txt", layout="lines")
    recipe = TokenizerRecipe(model="words", split="space")
    open_tokens(recipe, firth.read_corpus([["kernels are loaded here"]]))
    started = time.perf_counter()
    tokenizer = train_tokenizer(recipe, corpus)
    two = build_store(corpus, tokenizer, folder / "stores")
    between = time.perf_counter()
    _, one = open_tokens(recipe, corpus)
    ended = time.perf_counter()
    same = "identical" if one.digest == two.digest else "DIFFERENT"
    print(
        f"{size / 1e6:.0f} MB of words, {len(one):,} tokens, tokenizer and store: two passes "
        f"{between - started:.2f} s, one pass {ended - between:.2f} s, {same}"
    )


def spaced_words() -> Iterator[str]:
    """Lines of lower-case words and marks between spaces."""
    return (" ".join(WORD.findall(line.lower())) + "\n" for line in data.english())


def measure_reading(folder: Path) -> None:
    started = time.perf_counter()
    store = TokenStore(folder)
    print(f"reopening: {(time.perf_counter() - started) * 1e3:.2f} ms (limit 50)")
    rng = np.random.default_rng(0)
    times = []
    for _ in range(200):
        begins = rng.integers(0, len(store) - 128, size=64)
        started = time.perf_counter()
        store.rows(begins, 128)
        times.append(time.perf_counter() - started)
    print(f"64 random rows of 128 tokens: {np.median(times) * 1e3:.3f} ms (limit 1)")


if __name__ == "__main__":
    build(Path(sys.argv[1])) if len(sys.argv) > 1 else main()
