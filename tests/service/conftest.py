"""Small models of every family, and a server of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from firth.fit.finetune import finetune
from firth.fit.train import train
from firth.service.limits import Limits
from tests.contracts.test_tasks import MODELS, TEXT, make_examples
from tests.service.running import RunningServer

TASKS = {"classifier": "classify", "pairs": "pair", "tagger": "tag", "spans": "span", "choices": "choice"}


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small model of each family."""
    folder = tmp_path_factory.mktemp("models")
    os.environ.setdefault("FIRTH_CACHE", str(tmp_path_factory.mktemp("cache")))
    for recipe, name in (("kn3", "kn"), ("skipgram", "sg"), ("lstm", "lstm"), ("gpt", "gpt"), ("bert", "bert")):
        budget = "3ktok" if recipe in ("lstm", "gpt", "bert") else None
        train(
            recipe,
            TEXT,
            out=folder / name,
            settings=MODELS.get(recipe, []),
            budget=budget,
            threads=1,
            reload=False,
        )
    pairs = folder / "pairs.tsv"
    sentences = [sentence for document in TEXT for sentence in document]
    pairs.write_text("en\tde\n" + "".join(f"{one}\t{one[::-1]}\n" for one in sentences[:60]), encoding="utf-8")
    small = ["width=16", "ffn_width=32", "heads=2", "layers=1"]
    settings = [f"{part}.{one}" for part in ("encoder", "decoder") for one in small]
    settings += ["embedding.width=16", "tokenizer.vocab_size=300", "sequence.length=64"]
    train("transformer", pairs, out=folder / "seq2seq", settings=settings, budget="2ktok", threads=1, reload=False)
    pairs.unlink()
    labelled = folder / "labelled.txt"
    labelled.write_text("".join(f"__label__{one.split()[4]} {one}\n" for one in sentences), encoding="utf-8")
    train("fasttext-classifier", labelled, out=folder / "topics", settings=["epochs=2"], threads=1, reload=False)
    labelled.unlink()
    for name, task in TASKS.items():
        examples = make_examples(task)
        finetune(
            folder / "bert",
            task,
            train=examples,
            dev=examples,
            out=folder / name,
            settings=["learning.epochs=1"],
            threads=1,
        )
    train("words", TEXT, out=folder / "tokens", threads=1, reload=False)
    return folder


@pytest.fixture(scope="session")
def server(model_folder: Path) -> Iterator[RunningServer]:
    """A server of all models, for the whole session."""
    with RunningServer(sorted(model_folder.iterdir()), Limits(reading=2.0, deadline=20.0, waiting=20.0)) as running:
        yield running
