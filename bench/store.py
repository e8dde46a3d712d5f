"""A store of a 2 GB corpus: peak memory while building, time to reopen it, time for a batch of random rows."""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
import data
import firth
from firth.recipes.values import override
from firth.tokens.build import build_store
from firth.tokens.store import TokenStore
from firth.tokens.train import train_tokenizer

SIZE = int(os.environ.get("FIRTH_BENCH_MB", "2000")) * 1_000_000


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["FIRTH_CACHE"] = folder
        small, large = Path(folder) / "small.txt", Path(folder) / "large.txt"
        data.write(data.english(), small, 20_000_000)
        size = data.write(data.english(), large, SIZE)
        tokenizer = train_tokenizer(override(firth.find_recipe("wordpiece"), []), firth.read_corpus(small))
        started = time.perf_counter()
        store = build_store(firth.read_corpus(large), tokenizer, Path(folder) / "stores")
        seconds = time.perf_counter() - started
        rate = size / 1e6 / seconds
        print(f"built a store of {size / 1e9:.2f} GB, {len(store):,} tokens: {seconds:.1f} s, {rate:.1f} MB/s")
        own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        worker = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6
        peak = own + (os.cpu_count() or 1) * worker
        print(f"peak memory: {own:.2f} GB here, {worker:.2f} GB in the largest worker, {peak:.2f} GB in all (limit 1)")

        started = time.perf_counter()
        store = TokenStore(store.folder)
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
    main()
