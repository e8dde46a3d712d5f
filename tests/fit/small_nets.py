"""A text of a few words, and networks that are trained on it in a moment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from firth.fit.budget import Budget
from firth.fit.nets import Session, machine, open_session
from firth.fit.settle import fill_in
from firth.fit.train import Run, train
from firth.nets.recipe import (
    EmbeddingRecipe,
    EncoderRecipe,
    LearningRecipe,
    NetRecipe,
    OutputRecipe,
    RowsRecipe,
)
from firth.text.corpus import read_corpus
from firth.tokens.build import open_tokens
from firth.tokens.recipe import TokenizerRecipe

BATCH = 64


def sentences(count: int = 120, seed: int = 0) -> list[str]:
    """Words that follow each other by a rule, so that there is something to learn."""
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
    """The folder of a BERT of 16 numbers, in `home`, where what is cached goes, too."""
    settings = [
        *("tokenizer=words", "tokenizer.min_count=1", "embedding.width=16", "encoder.width=16", "encoder.inner=32"),
        *(f"encoder.layers={layers}", "encoder.heads=2", f"rows.length={length}"),
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FIRTH_CACHE", str(home / "cache"))
        train("bert", text(), out=home / "bert", settings=settings, budget=budget, threads=1, reload=False)
        yield home / "bert"


def small(**learning: Any) -> NetRecipe:
    """A Transformer of 16 numbers."""
    return NetRecipe(
        tokenizer=TokenizerRecipe(model="words"),
        embedding=EmbeddingRecipe(width=16, positions="learned", dropout=0.1),
        encoder=EncoderRecipe(layers=1, width=16, inner=32, heads=2),
        output=OutputRecipe(kind="tied"),
        rows=RowsRecipe(length=16),
        learning=LearningRecipe(**{"batch": BATCH, "rate": 0.01} | learning),
    )


def masked(**learning: Any) -> NetRecipe:
    """The same, taught by masks and pairs."""
    base = small(**learning)
    return replace(
        base,
        embedding=replace(base.embedding, segments=2),
        visibility="bidirectional",
        objectives="mlm+nsp",
        rows=RowsRecipe(format="segment-pair", length=32),
    )


def make_run(
    out: Path | None = None,
    budget: str | None = None,
    valid: bool = False,
    resume: bool = False,
    seed: int = 0,
    settings: Sequence[str] = (),
) -> Run:
    return Run(
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


def open_small(recipe: NetRecipe, run: Run) -> Session:
    """A session that has its plan but has not begun to learn."""
    tokenizer, store = open_tokens(recipe.tokenizer, run.corpus, 1)
    with machine(1):
        return open_session(
            fill_in(recipe.with_tokenizer(tokenizer.recipe), len(tokenizer)), run, tokenizer, store, None
        )


def learn(session: Session) -> Session:
    """The session after learning."""
    with machine(1):
        session.learn()
    return session


def parameters(session: Session) -> dict[str, Any]:
    """A copy of all parameters."""
    return {name: array.copy() for name, array in session.learner.arrays().items()}


def same(one: dict[str, Any], two: dict[str, Any]) -> bool:
    """Whether all arrays are the same, bit by bit."""
    return one.keys() == two.keys() and all(one[name].tobytes() == two[name].tobytes() for name in one)
