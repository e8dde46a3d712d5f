"""A token store of a 2 GB corpus: peak memory while building, time to reopen it, time for a batch of random windows.

Also compares, on 100 MB of tokenised lines, training the tokenizer and building the store in two passes over the text
with `open_tokens`, which takes one. The environment variable FIRTH_BENCH_MB sets the size of the corpus.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import data
import firth
from firth.tokens.build import build_store, open_tokens
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.store import FILES, TokenStore, open_verified
from firth.tokens.train import train_tokenizer
from harness import make_parser, peak_kilobytes, run_child, timed

SIZE = int(os.environ.get("FIRTH_BENCH_MB", "2000")) * 1_000_000
WORD = re.compile(r"\w+|[^\w\s]")


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return build(options.child)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["FIRTH_CACHE"] = name
        data.write(data.english, folder / "small.txt", 20_000_000)
        size = data.write(data.english, folder / "large.txt", SIZE)
        firth.train("wordpiece", folder / "small.txt", out=folder / "wp")
        facts = run_child(__file__, folder)
        compare_passes(folder)
        speed = size / 1e6 / facts["seconds"]
        print(f"{size / 1e9:.2f} GB, {facts['tokens']:,} tokens: {facts['seconds']:.1f} s, {speed:.1f} MB/s")
        total = facts["own"] + facts["workers"] * facts["worker"]
        print(
            f"peak memory: {facts['own']:.2f} GB in the main process, at most {facts['worker']:.2f} GB in each of "
            f"{facts['workers']} workers, {total:.2f} GB in all (limit 1)"
        )
        measure_reading(Path(facts["folder"]))
    return None


def build(folder: Path) -> None:
    """The child process: build the store and print time and memory (in GB)."""
    tokenizer = firth.load(folder / "wp")
    store, seconds = timed(lambda: build_store(firth.read_corpus(folder / "large.txt"), tokenizer, folder / "stores"))
    facts = {
        "seconds": seconds,
        "tokens": len(store),
        "folder": str(store.folder),
        "own": peak_kilobytes() / 1e6,
        "worker": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6,
        "workers": os.cpu_count(),
    }
    print(json.dumps(facts))


def compare_passes(folder: Path) -> None:
    """Time `train_tokenizer` followed by `build_store`, then `open_tokens`, on space-separated words."""
    size = data.write(tokenised_lines, folder / "words.txt", min(SIZE, 100_000_000))
    corpus = firth.read_corpus(folder / "words.txt", layout="lines")
    recipe = TokenizerRecipe(model="words", split="space")
    open_tokens(recipe, firth.read_corpus([["load the kernels first"]]))
    two, two_seconds = timed(lambda: build_store(corpus, train_tokenizer(recipe, corpus), folder / "stores"))
    (_, one), one_seconds = timed(lambda: open_tokens(recipe, corpus))
    verdict = "identical" if one.digest == two.digest else "DIFFERENT"
    print(
        f"{size / 1e6:.0f} MB of words, {len(one):,} tokens, tokenizer and store: two passes "
        f"{two_seconds:.2f} s, one pass {one_seconds:.2f} s, {verdict}"
    )


def tokenised_lines() -> Iterator[str]:
    """Lines of lower-cased, space-separated words and punctuation."""
    return (" ".join(WORD.findall(line.lower())) + "\n" for line in data.english())


def measure_reading(folder: Path) -> None:
    store, seconds = timed(lambda: TokenStore(folder))
    print(f"reopening: {seconds * 1e3:.2f} ms (limit 50)")
    _, seconds = timed(lambda: open_verified(folder, 1 << 16))
    size = sum((folder / name).stat().st_size for name in FILES)
    print(f"verifying {size / 1e9:.2f} GB found in the cache: {seconds:.2f} s, {size / 1e9 / seconds:.2f} GB/s")
    rng = np.random.default_rng(0)
    starts = [rng.integers(0, len(store) - 128, size=64) for _ in range(200)]
    times = [timed(lambda: store.windows(begins, 128))[1] for begins in starts]  # noqa: B023
    print(f"64 random windows of 128 tokens: {np.median(times) * 1e3:.3f} ms (limit 1)")


if __name__ == "__main__":
    main()
