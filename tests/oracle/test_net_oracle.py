"""Networks against what a perfect model of the oracle's texts would score."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from firth.abilities import total
from firth.fit.train import train
from firth.text.oracle import OracleSource, oracle_source

SMALL = ["tokenizer=words", "embedding.width=32", "encoder.width=32", "rows.length=32", "learning.batch=1024"]
TRANSFORMER = [*SMALL, "encoder.inner=64", "encoder.heads=2", "encoder.layers=2", "learning.rate=0.004"]
RECURRENT = [*SMALL, "learning.rate=0.01"]
STILL = ["embedding.dropout=0", "encoder.dropout=0", "encoder.attention_dropout=0"]


def sentences(source: OracleSource, first: int, documents: int, each: int = 10) -> list[str]:
    return [one.text for index in range(first, first + documents) for one in source.sample_document(0, index, each)]


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FIRTH_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def trained(recipe: str, texts: Sequence[str], out: Path, settings: Sequence[str], budget: str) -> Any:
    documents = [texts[begin : begin + 10] for begin in range(0, len(texts), 10)]
    return train(recipe, documents, out=out, settings=settings, budget=budget, threads=2)


@pytest.mark.parametrize(
    ("recipe", "settings", "gap"),
    [
        ("gpt", [*TRANSFORMER, *STILL], 0.04),
        ("lstm", [*RECURRENT, "embedding.dropout=0", "encoder.dropout=0"], 0.04),
        ("ffnn", RECURRENT, 0.04),
    ],
)
def test_causal_models_approach_the_known_entropy(recipe: str, settings: list[str], gap: float, tmp_path: Path) -> None:
    """A chain of order one: what is lost against the true probabilities is less than `gap` nats a token."""
    source = oracle_source("markov1")
    model = trained(recipe, sentences(source, 0, 600), tmp_path / "model", settings, "300ktok")
    held_out = sentences(source, 5000, 60)
    score = total(model.score(held_out))
    best = sum(source.log_probability(text) for text in held_out)
    assert score.tokens > 5000
    assert 0 < (best - score.logprob) / score.tokens < gap
