"""Compression: what each method reaches, beside the targets.

    python bench/compress.py --minilm DIR --corpus TEXT --pairs stsb.dev.tsv [--sentences 20000]
    python bench/compress.py --teacher DIR --train sst2.train.tsv --dev sst2.dev.tsv [--budget 20min]

DIR is the folder of a saved model: an imported all-MiniLM-L6-v2, or a model fine-tuned for the examples. Prints a
line for each target: static vectors at least 200 times as fast with at most 12 points less of rank correlation,
8 bits at least 1.5 times as fast with a cosine of 0.99, a student of two layers twice as fast with at most 2 points
less. Run it on an idle machine.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import harness
from firth.artifact.folder import artifact_info
from firth.artifact.models import load
from firth.errors import FirthError
from firth.fit.compress.quality import Side, cosines, read_set, sample_texts
from firth.fit.compress.run import compress


def main() -> None:
    parser = harness.make_parser(__doc__)
    parser.add_argument("--minilm", type=Path)
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--pairs", type=Path)
    parser.add_argument("--sentences", type=int, default=20_000)
    parser.add_argument("--teacher", type=Path)
    parser.add_argument("--train", type=Path)
    parser.add_argument("--dev", type=Path)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--budget")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if given.minilm is not None:
            static(given, Path(folder, "static"))
            int8(given, Path(folder, "int8"))
        if given.teacher is not None:
            student(given, Path(folder, "student"))


def static(given: argparse.Namespace, out: Path) -> None:
    settings = {"sentences": given.sentences}
    compress(given.minilm, method="static", corpus=given.corpus, eval=[given.pairs], settings=settings, out=out)
    card = card_of(out)
    report("static", card, speed=200, loss=0.12)
    print(f"        with shuffled words the original has {card['words_shuffled']:.4f}")


def int8(given: argparse.Namespace, out: Path) -> None:
    try:
        compress(given.minilm, method="quantise", eval=[given.pairs], allow_slower=True, out=out)
    except FirthError as error:
        print(f"int8    not available: {error}")
        return
    card = card_of(out)
    report("int8", card, speed=1.5, loss=0.01)
    before = Side(load(given.minilm), "whole")
    texts = sample_texts([read_set(given.pairs, before, False)])[:1000]
    found = cosines(before.embed(texts), Side(load(out), "whole").embed(texts))
    print(f"        cosine with float32: mean {found.mean():.4f}, least {np.min(found):.4f} (target 0.99)")


def student(given: argparse.Namespace, out: Path) -> None:
    examples: dict[str, Any] = {"train": given.train, "dev": given.dev, "budget": given.budget}
    settings = {"layers": given.layers}
    compress(given.teacher, method="distil", settings=settings, allow_slower=True, out=out, **examples)
    report("distil", card_of(out), speed=2, loss=0.02)


def card_of(folder: Path) -> dict[str, Any]:
    return dict(artifact_info(folder)["metrics"]["compression"])


def report(name: str, card: dict[str, Any], speed: float, loss: float) -> None:
    low, high = card["loss_interval"]
    reached = card["faster"] >= speed and card["loss"] <= loss
    before, after = card["before"], card["after"]
    print(
        f"{name:<7} {card['faster']:.2f} x as fast (target {speed:g}), {card['metric']} {before['quality']:.4f} -> "
        f"{after['quality']:.4f}, loss {card['loss']:.4f} [{low:.4f} to {high:.4f}] (at most {loss:g}), "
        f"{before['mb']:.1f} -> {after['mb']:.1f} MB: {'reached' if reached else 'not reached'}"
    )


if __name__ == "__main__":
    main()
