"""All output layers in one table: the same encoder, text and minutes; tokens/s, training loss and test perplexity.

    python bench/outputs.py [--recipes lstm ffnn] [--only full classes] [--minutes 2] [--samples 1000] [--threads 2]
    python bench/outputs.py --alone

The text is the Penn Treebank if it is beside the repository, and builtin:pydoc otherwise, with every twentieth document
held out for the test. Training loss is that of the last records of a run, in nats per token, with dropout; that of
noise-contrastive estimation is not comparable with the others. Perplexities are exact for all layers.
With --alone only the layers are timed: milliseconds of CPU time for the loss and its gradients of 4,096 predictions
from hidden states of width 300, with 10,000 words whose frequencies follow Zipf's law.
"""

from __future__ import annotations

import argparse
import gzip
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import data
import firth
from firth.abilities import total
from firth.errors import RecipeError
from firth.nets.dropout import DropoutRng
from firth.nets.embedding import Embedding
from firth.nets.network import make_output
from firth.nets.outputs.output import frequencies
from firth.nets.outputs.sampled import find_bigrams
from firth.nets.recipe import EmbeddingRecipe, EncoderRecipe, NetRecipe, OutputRecipe
from firth.text.corpus import read_corpus
from harness import make_parser

LAYERS = {
    "full": ("output.kind=full",),
    "tied": ("output.kind=tied",),
    "classes": ("output.kind=classes",),
    "huffman": ("output.kind=huffman",),
    "tree": ("output.kind=tree",),
    "importance": ("output.kind=importance",),
    "importance-bigram": ("output.kind=importance", "output.proposal=bigram"),
    "nce": ("output.kind=nce",),
    "nce-bigram": ("output.kind=nce", "output.proposal=bigram"),
    "adaptive": ("output.kind=adaptive",),
}
RECIPES = {
    "lstm": ("embedding.width=300", "encoder.width=300", "learning.lr=0.003"),
    "rnn": ("embedding.width=200", "encoder.width=200", "learning.lr=0.001"),
    "ffnn": ("embedding.width=100", "encoder.width=200", "learning.lr=0.002"),
    "lbl": ("embedding.width=200", "encoder.width=200", "learning.lr=0.002"),
    "gpt": ("sequence.length=64", "learning.lr=0.001"),
}
"""Recipes of next-word prediction, one for each kind of encoder."""
_COMMON = (
    *("embedding.dropout=0.2", "encoder.dropout=0.2", "sequence.length=64"),
    *("learning.batch=2048", "learning.warmup=0.05", "learning.beta2=0.999", "learning.weight_decay=0"),
)


class BenchmarkText(NamedTuple):
    """Training text and test sentences."""

    train: Any
    test: list[str]
    layout: str


def main() -> None:
    parser = make_parser(__doc__, threads=True)
    parser.add_argument("--recipes", nargs="+", choices=list(RECIPES), default=["lstm"])
    parser.add_argument("--only", nargs="+", choices=list(LAYERS), default=list(LAYERS))
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--samples", type=int, default=1000, help="noise words from the unigram distribution")
    parser.add_argument("--bigram-samples", type=int, default=100, help="noise words from the bigram distribution")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--alone", action="store_true", help="time the layers, without an encoder")
    options = parser.parse_args()
    if options.alone:
        time_alone(options)
        return
    text = read_text()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        firth.train(
            "words",
            text.train,
            out=folder / "words",
            layout=text.layout,
            settings=["split=space", "vocab_size=10_000"],
            reload=False,
        )
        for recipe in options.recipes:
            compare(recipe, text, folder, options)


def read_text() -> BenchmarkText:
    """The Penn Treebank or the built-in text."""
    if (data.SHARED / "ptb.train.txt.gz").exists():
        with gzip.open(data.SHARED / "ptb.test.txt.gz", "rt", encoding="utf-8") as file:
            return BenchmarkText(data.SHARED / "ptb.train.txt.gz", [line.strip() for line in file], "lines")
    data.note_fallback("builtin:pydoc")
    documents = [document.sentences for document in read_corpus("builtin:pydoc")]
    test = [sentence for document in documents[::20] for sentence in document]
    train = [document for number, document in enumerate(documents) if number % 20]
    return BenchmarkText(train, test, "auto")


def compare(recipe: str, text: BenchmarkText, folder: Path, options: argparse.Namespace) -> None:
    """Train a recipe with each output layer and print the table."""
    print(f"\n{recipe}: {options.minutes:g} minutes each, {options.threads} threads")
    print(f"{'layer':<19}{'parameters':>12}{'tokens/s':>10}{'epochs':>8}{'loss':>8}{'perplexity':>12}", flush=True)
    for layer in options.only:
        samples = options.bigram_samples if layer.endswith("bigram") else options.samples
        settings = [*_COMMON, *RECIPES[recipe], *LAYERS[layer], f"output.samples={samples}"]
        out = folder / f"{recipe}-{layer}"
        try:
            model = firth.train(
                recipe,
                text.train,
                out=out,
                layout=text.layout,
                tokenizer=folder / "words",
                settings=settings,
                size="tiny" if recipe == "gpt" else None,
                budget=f"{round(60 * options.minutes)}s",
                threads=options.threads,
                seed=options.seed,
            )
        except RecipeError as error:
            print(f"{layer:<19}{error}", flush=True)
            continue
        print_row(layer, out, model, text)


def print_row(layer: str, out: Path, model: Any, text: BenchmarkText) -> None:
    facts = firth.info(out)
    spent, metrics = facts["budget"]["spent"], facts["metrics"]
    score = total(model.score(text.test, as_document=True))
    speed = spent["tokens"] / spent["seconds"]
    print(
        f"{layer:<19}{metrics['parameters']:>12,}{speed:>10,.0f}{metrics['epochs']:>8.2f}"
        f"{metrics['loss']:>8.3f}{score.perplexity:>12.1f}",
        flush=True,
    )


def time_alone(options: argparse.Namespace) -> None:
    """Print CPU time and FLOPs of each layer without an encoder."""
    rng = np.random.default_rng(0)
    counts = 1_000_000 // np.arange(1, 10_001)
    ids = rng.choice(counts.size, 200_000, p=frequencies(counts))
    hidden = torch.from_numpy(rng.normal(size=(4096, 300)).astype(np.float32)).requires_grad_()
    print(f"{'layer':<19}{'ms':>8}{'MFLOP':>20}")
    for name in options.only:
        kind, _, proposal = name.partition("-")
        samples = options.bigram_samples if proposal else options.samples
        recipe = NetRecipe(
            embedding=EmbeddingRecipe(width=300),
            encoder=EncoderRecipe(kind="lstm", width=300, heads=1),
            output=OutputRecipe(kind=kind, samples=samples, proposal=proposal or "unigram"),
        )
        layer = make_output(recipe, counts, Embedding(recipe, [str(number) for number in range(counts.size)]))
        if proposal:
            layer.proposal.bigrams = find_bigrams(ids, counts.size)
        targets, previous = torch.from_numpy(ids[1:4097]), torch.from_numpy(ids[:4096])
        times = []
        for step in range(6):
            started = time.process_time()
            layer.loss(hidden, targets, previous, DropoutRng(0, step)).backward()
            times.append(time.process_time() - started)
            layer.zero_grad()
        print(f"{name:<19}{1000 * min(times):>8.1f}{4096 * layer.flops() / 1e6:>20,.0f}", flush=True)


if __name__ == "__main__":
    main()
