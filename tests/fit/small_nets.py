"""A small synthetic text, and tiny networks to train on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from firth.fit.nets import NetTrainer, open_trainer, torch_settings
from firth.fit.resolve import fill_in
from firth.fit.run import Budget, TrainingRun
from firth.fit.train import train
from firth.nets.recipe import (
    EmbeddingRecipe,
    EncoderRecipe,
    LearningRecipe,
    NetRecipe,
    OutputRecipe,
    SequenceRecipe,
)
from firth.objectives.registry import parse_objectives
from firth.text.corpus import read_corpus
from firth.tokens.build import open_tokens
from firth.tokens.recipe import TokenizerRecipe

BATCH = 64


def sentences(count: int = 120, seed: int = 0) -> list[str]:
    """Sentences of a Markov chain over twenty words."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        words = [int(rng.integers(20))]
        for _ in range(int(rng.integers(3, 9))):
            words.append((3 * words[-1] + int(rng.integers(3))) % 20)
        found.append(" ".join(f"w{word}" for word in words))
    return found


def text(count: int = 120, seed: int = 0) -> list[list[str]]:
    """The sentences in documents of six."""
    lines = sentences(count, seed)
    return [lines[begin : begin + 6] for begin in range(0, count, 6)]


@contextmanager
def small_bert(home: Path, budget: str, layers: int = 2, length: int = 16) -> Iterator[Path]:
    """The folder of a BERT of width 16 in `home`, which also holds the cache."""
    settings = [
        *("tokenizer=words", "tokenizer.min_count=1", "embedding.width=16", "encoder.width=16", "encoder.ffn_width=32"),
        *(f"encoder.layers={layers}", "encoder.heads=2", f"sequence.length={length}"),
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FIRTH_CACHE", str(home / "cache"))
        train("bert", text(), out=home / "bert", settings=settings, budget=budget, threads=1, reload=False)
        yield home / "bert"


def small(**learning: Any) -> NetRecipe:
    """A Transformer of width 16."""
    return NetRecipe(
        tokenizer=TokenizerRecipe(model="words"),
        embedding=EmbeddingRecipe(width=16, positions="learned", dropout=0.1),
        encoder=EncoderRecipe(layers=1, width=16, ffn_width=32, heads=2),
        objectives=parse_objectives("clm"),
        output=OutputRecipe(kind="tied"),
        sequence=SequenceRecipe(length=16),
        learning=LearningRecipe(**{"batch": BATCH, "lr": 0.01} | learning),
    )


def masked(**learning: Any) -> NetRecipe:
    """The same with MLM and NSP."""
    base = small(**learning)
    return replace(
        base,
        embedding=replace(base.embedding, segments=2),
        visibility="bidirectional",
        objectives=parse_objectives("mlm+nsp"),
        sequence=SequenceRecipe(format="segment-pair", length=32),
    )


def make_run(
    out: Path | None = None,
    budget: str | None = None,
    valid: bool = False,
    resume: bool = False,
    seed: int = 0,
    settings: Sequence[str] = (),
) -> TrainingRun:
    return TrainingRun(
        corpus=read_corpus(text(), layout="lines"),
        valid=read_corpus(text(30, seed=1), layout="lines") if valid else None,
        tokenizer=None,
        budget=Budget.parse(budget) if budget else None,
        seed=seed,
        threads=1,
        out=out,
        resume=resume,
        settings=settings,
    )


def open_small(recipe: NetRecipe, run: TrainingRun) -> NetTrainer:
    """A trainer with its plan, before the first step."""
    tokenizer, store = open_tokens(recipe.tokenizer, run.corpus, 1)
    with torch_settings(1):
        return open_trainer(
            fill_in(recipe.with_tokenizer(tokenizer.recipe), len(tokenizer)), run, tokenizer, store, None
        )


def valid_batches(trainer: NetTrainer) -> Any:
    """The validation batches of a trainer."""
    assert isinstance(trainer.evaluate, partial)
    return trainer.evaluate.args[1]


def trained(trainer: NetTrainer) -> NetTrainer:
    """The trainer after training."""
    with torch_settings(1):
        trainer.train()
    return trainer


def parameters(trainer: NetTrainer) -> dict[str, Any]:
    """A copy of all parameters."""
    return {name: array.copy() for name, array in trainer.module.arrays().items()}


def same(one: dict[str, Any], two: dict[str, Any]) -> bool:
    """Whether all arrays are the same, bit by bit."""
    return one.keys() == two.keys() and all(one[name].tobytes() == two[name].tobytes() for name in one)
