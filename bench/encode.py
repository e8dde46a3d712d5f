"""Text to a token store: throughput of Firth and of the tokenizers library, same lines and cores, identical ids.

Prints MB/s of both and their ratio for each tokenizer. The library only encodes a list in memory; Firth reads the file,
splits it into lines, encodes them and writes a store to disk. The environment variable FIRTH_BENCH_MB sets the size.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
import tokenizers

import data
import firth
from firth.recipes.values import override
from firth.tokens.build import build_store
from firth.tokens.train import train_tokenizer
from harness import make_parser, timed

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
BATCH = 100_000  # lines at a time, because the encodings of the library take much memory


def main() -> None:
    make_parser(__doc__).parse_args()
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
    recipe = override(firth.find_recipe(kind), [setting])
    tokenizer, trained = timed(lambda: train_tokenizer(recipe, corpus))
    lines = [tokenizer.presegment(line) for line in corpus.sentences()]
    store, ours = timed(lambda: build_store(corpus, tokenizer, folder / "stores"))
    backend = tokenizers.Tokenizer.from_str(tokenizer.data.decode())
    theirs, same, begin = 0.0, True, 0
    for first in range(0, len(lines), BATCH):
        batch = lines[first : first + BATCH]
        encoded, seconds = timed(lambda: backend.encode_batch_fast(batch, add_special_tokens=False))  # noqa: B023
        theirs += seconds
        ids = np.concatenate([np.array(one.ids, dtype=np.uint32) for one in encoded])
        same &= np.array_equal(ids, store.ids[begin : begin + ids.size])
        begin += ids.size
    same &= begin == len(store)
    size, verdict = text.stat().st_size / 1e6, "identical" if same else "DIFFERENT"
    speeds = f"{trained:>8.1f}{size / theirs:>11.2f}{size / ours:>12.2f}{theirs / ours:>6.1f}x"
    print(f"{kind:<11}{language:<10}{speeds}  {verdict}", flush=True)
    if not same:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
