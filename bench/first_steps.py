"""Loss in the first training steps, by initialisation.

    python bench/first_steps.py [--recipe bert|bart|mass|t5] [--tokens 1000] [--size tiny] [--threads 2]

A recipe on wiki_zh with the same tokens and batches for every initialisation. Each line has the mean loss of the
predicted tokens in each tenth of the run; for BERT, the unigram distribution has a loss of 6.92. For an encoder with a
decoder it ends with the cosine of the embeddings of unlike sentences: of 1 if the encoder has collapsed.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import data
from harness import make_parser

PUBLISHED = ("mlm.masking.rate=0.15", "embedding.dropout=0.1", "encoder.dropout=0.1", "encoder.attention_dropout=0.1")
RANDOM = ("embedding.init=random", "encoder.init=random")
MASKED = {
    "random, as published": (*PUBLISHED, *RANDOM),
    "random, no dropout, 30% masked": RANDOM,
    "heads on adjacent tokens": (RANDOM[0], "encoder.init=adjacent"),
    "CBOW vectors": ("embedding.init=vectors", RANDOM[1]),
    "both": ("embedding.init=vectors", "encoder.init=adjacent"),
}
UNREAD = "decoder.cross_init=random"
RESTORED = {
    "random": (*RANDOM, UNREAD),
    "CBOW vectors": ("embedding.init=vectors", RANDOM[1], UNREAD),
    "CBOW, matching tokens": ("embedding.init=vectors", RANDOM[1], "decoder.cross_init=matching"),
    "CBOW, adjacent and matching tokens": (),
}
RELATIVE = {
    "fan-in": (UNREAD,),
    "matching tokens": ("decoder.cross_init=matching",),
}
RUNS = {"bert": MASKED, "bart": RESTORED, "mass": RESTORED, "t5": RELATIVE}
UNLIKE = ("他于1923年出生在伦敦。", "这种植物分布于中国南方的山地。", "函数的导数描述其变化率。", "球队以三比一获胜。")


def main() -> None:
    parser = make_parser(__doc__, threads=True)
    parser.add_argument("--recipe", choices=RUNS, default="bert")
    parser.add_argument("--tokens", type=int, default=1000, help="thousands of training tokens")
    parser.add_argument("--size", default="tiny")
    options = parser.parse_args()
    import firth

    text = data.SHARED / "wiki_zh.txt.gz"
    with tempfile.TemporaryDirectory() as name:
        tokenizer = Path(name, "tokens")
        own = firth.find_recipe(options.recipe).tokenizer
        firth.train(own.model, text, out=tokenizer, settings=["vocab_size=16000", f"sentinels={own.sentinels}"])
        for number, (title, settings) in enumerate(RUNS[options.recipe].items()):
            out = Path(name, str(number))
            model = firth.train(
                options.recipe,
                text,
                out=out,
                tokenizer=tokenizer,
                size=options.size,
                budget=f"{options.tokens}ktok",
                settings=settings,
                threads=options.threads,
            )
            print(f"{title:36}", *(f"{loss:.2f}" for loss in mean_losses(out)), *collapse(model), flush=True)


def collapse(model: Any) -> list[str]:
    """The mean cosine of the embeddings of unlike sentences, for an encoder with a decoder."""
    if model.recipe.decoder is None:
        return []
    vectors = model.embed(UNLIKE)
    vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return [f"cosine {np.mean((vectors @ vectors.T)[np.triu_indices(len(UNLIKE), 1)]):.4f}"]


def mean_losses(out: Path) -> list[float]:
    """The mean loss in each tenth of a run."""
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    losses = [next(iter(record["losses"].values())) for record in records if record["losses"]]
    tenths = [losses[len(losses) * tenth // 10 : len(losses) * (tenth + 1) // 10] for tenth in range(10)]
    return [sum(tenth) / len(tenth) for tenth in tenths]


if __name__ == "__main__":
    main()
