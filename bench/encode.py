"""Text to a token store: throughput next to the tokenizers library, on the same lines and cores, with identical ids.

Prints a line for each tokenizer: MB/s of the peer and of Firth, and their ratio. The peer only encodes a list that is
in memory; Firth reads the file, splits it, encodes it, and writes a store to disk.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import tokenizers

sys.path.insert(0, str(Path(__file__).parent))
import data
import firth
from firth.tokens.build import build_store

SIZE = int(os.environ.get("FIRTH_BENCH_MB", "100")) * 1_000_000
CASES = (
    ("wordpiece", "english", "vocab_size=16000"),
    ("byte-bpe", "english", "vocab_size=16000"),
    ("bpe", "english", "vocab_size=16000"),
    ("pieces", "english", "vocab_size=16000"),
    ("words", "english", "vocab_size=50000"),
    ("wordpiece", "chinese", "vocab_size=16000"),
    ("words", "chinese", "vocab_size=50000"),
    ("chars", "chinese", "vocab_size=8000"),
)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["FIRTH_CACHE"] = folder
        os.environ["TOKENIZERS_PARALLELISM"] = "true"
        texts = {}
        for language in ("english", "chinese"):
            texts[language] = Path(folder) / f"{language}.txt"
            size = data.write(getattr(data, language), texts[language], SIZE)
            print(f"{language}: {size / 1e6:.1f} MB of lines, {os.cpu_count()} cores")
        print(f"{'tokenizer':<11}{'language':<10}{'train s':>8}{'peer MB/s':>11}{'Firth MB/s':>12}{'ratio':>7}  ids")
        for kind, language, setting in CASES:
            compare(kind, language, setting, texts[language], Path(folder))


def compare(kind: str, language: str, setting: str, text: Path, folder: Path) -> None:
    corpus = firth.read_corpus(text, layout="lines")
    started = time.perf_counter()
    tokenizer = firth.tokens.train.train_tokenizer(
        firth.recipes.values.override(firth.find_recipe(kind), [setting]), corpus
    )
    trained = time.perf_counter() - started
    lines = [tokenizer.spaced(line) for line in corpus.sentences()]
    size = text.stat().st_size / 1e6

    started = time.perf_counter()
    store = build_store(corpus, tokenizer, folder / "stores")
    ours = size / (time.perf_counter() - started)

    backend = tokenizers.Tokenizer.from_str(tokenizer.data.decode())
    theirs, same, begin = 0.0, True, 0
    for first in range(0, len(lines), 100_000):  # in parts, because the library's answers take much memory
        part = lines[first : first + 100_000]
        started = time.perf_counter()
        encoded = backend.encode_batch_fast(part, add_special_tokens=False)
        theirs += time.perf_counter() - started
        ids = np.concatenate([np.array(one.ids, dtype=np.uint32) for one in encoded])
        same &= np.array_equal(ids, store.ids[begin : begin + ids.size])
        begin += ids.size
    same &= begin == len(store)
    peer = size / theirs
    verdict = "identical" if same else "DIFFERENT"
    print(
        f"{kind:<11}{language:<10}{trained:>8.1f}{peer:>11.2f}{ours:>12.2f}{ours / peer:>6.1f}x  {verdict}", flush=True
    )
    if not same:
        raise SystemExit(1)


if __name__ == "__main__":
    import firth.recipes.values
    import firth.tokens.train

    main()
