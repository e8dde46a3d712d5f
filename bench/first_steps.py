"""Masked LM loss in the first training steps, by initialisation.

    python bench/first_steps.py [--tokens 1000] [--size tiny] [--threads 2]

BERT on wiki_zh with the same tokens and batches for every initialisation. Each line has the mean loss of the masked
tokens in each tenth of the run. The unigram distribution has a loss of 6.92.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import data
from harness import make_parser

PUBLISHED = ("mlm.masking.rate=0.15", "embedding.dropout=0.1", "encoder.dropout=0.1", "encoder.attention_dropout=0.1")
RANDOM = ("embedding.init=random", "encoder.init=random")
RUNS = {
    "random, as published": (*PUBLISHED, *RANDOM),
    "random, no dropout, 30% masked": RANDOM,
    "heads on adjacent tokens": (RANDOM[0], "encoder.init=adjacent"),
    "CBOW vectors": ("embedding.init=vectors", RANDOM[1]),
    "both": ("embedding.init=vectors", "encoder.init=adjacent"),
}


def main() -> None:
    parser = make_parser(__doc__, threads=True)
    parser.add_argument("--tokens", type=int, default=1000, help="thousands of training tokens")
    parser.add_argument("--size", default="tiny")
    options = parser.parse_args()
    import firth

    text = data.SHARED / "wiki_zh.txt.gz"
    with tempfile.TemporaryDirectory() as name:
        tokenizer = Path(name, "tokens")
        firth.train("wordpiece", text, out=tokenizer, settings=["vocab_size=16000"])
        for number, (title, settings) in enumerate(RUNS.items()):
            out = Path(name, str(number))
            firth.train(
                "bert",
                text,
                out=out,
                tokenizer=tokenizer,
                size=options.size,
                budget=f"{options.tokens}ktok",
                settings=settings,
                threads=options.threads,
                reload=False,
            )
            print(f"{title:36}", *(f"{loss:.2f}" for loss in mean_losses(out)), flush=True)


def mean_losses(out: Path) -> list[float]:
    """The mean masked LM loss in each tenth of a run."""
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    losses = [record["losses"]["mlm"] for record in records if record["losses"]]
    tenths = [losses[len(losses) * tenth // 10 : len(losses) * (tenth + 1) // 10] for tenth in range(10)]
    return [sum(tenth) / len(tenth) for tenth in tenths]


if __name__ == "__main__":
    main()
