"""What a masked model learns in its first steps, by the parameters that it starts with.

    python bench/first_steps.py [--tokens 1000] [--size tiny] [--threads 2]

BERT on wiki_zh, the same tokens and batches for all; a line has the loss of the masked tokens over each tenth of the
run. By their frequency alone it would be 6.92.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import data

PUBLISHED = ("masking.rate=0.15", "embedding.dropout=0.1", "encoder.dropout=0.1", "encoder.attention_dropout=0.1")
RANDOM = ("embedding.start=random", "encoder.start=random")
RUNS = {
    "random, as published": (*PUBLISHED, *RANDOM),
    "random, no dropout, 30% hidden": RANDOM,
    "heads that look at neighbours": (RANDOM[0], "encoder.start=neighbours"),
    "vectors of CBOW": ("embedding.start=vectors", RANDOM[1]),
    "both": ("embedding.start=vectors", "encoder.start=neighbours"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=1000, help="thousands that are learnt from")
    parser.add_argument("--size", default="tiny")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    options = parser.parse_args()
    import firth

    with tempfile.TemporaryDirectory() as name:
        tokens = Path(name, "tokens")
        firth.train("wordpiece", data.SHARED / "wiki_zh.txt.gz", out=tokens, settings=["vocab_size=16000"])
        for number, (title, settings) in enumerate(RUNS.items()):
            out = Path(name, str(number))
            firth.train(
                "bert",
                data.SHARED / "wiki_zh.txt.gz",
                out=out,
                tokenizer=tokens,
                size=options.size,
                budget=f"{options.tokens}ktok",
                settings=settings,
                threads=options.threads,
                reload=False,
            )
            print(f"{title:36}", *(f"{loss:.2f}" for loss in curve(out)), flush=True)


def curve(out: Path) -> list[float]:
    """The mean loss of masked tokens in each tenth of a run."""
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    losses = [line["losses"]["mlm"] for line in lines if line["losses"]]
    parts = [losses[len(losses) * part // 10 : len(losses) * (part + 1) // 10] for part in range(10)]
    return [sum(part) / len(part) for part in parts]


if __name__ == "__main__":
    main()
