"""Going on with new text: what a domain adds to what was trained."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from firth.artifact.folder import open_artifact
from firth.artifact.models import load, save
from firth.errors import AbilityError, RecipeError
from firth.files import require_free
from firth.fit.train import Text, open_corpus, store_counts, token_metrics
from firth.recipes.values import override
from firth.tokens.build import open_store
from firth.tokens.extend import extend_tokenizer
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.tokenizer import Tokenizer

_GROWTH = 1.25  # how much larger a vocabulary becomes if nothing else is said


def adapt(
    model: str | Path,
    *corpora: Text,
    out: str | Path,
    settings: tuple[str, ...] | list[str] = (),
    threads: int | None = None,
    field: str = "text",
    encoding: str | None = None,
    layout: str = "auto",
) -> Any:
    """The model after more training on the corpora, saved in the folder `out`.

    A tokenizer's vocabulary grows, by a quarter or to `vocab_size`; the ids of its old tokens stay.
    """
    artifact = open_artifact(Path(model))
    require_free(Path(out))
    old = load(model)
    if not isinstance(old, Tokenizer):
        raise AbilityError(f"{model} ({artifact.manifest.name}) cannot go on training: train it on all the text.")
    wanted = override(old.recipe, settings)
    if not isinstance(wanted, TokenizerRecipe) or replace(wanted, vocab_size=old.recipe.vocab_size) != old.recipe:
        raise RecipeError("adapting keeps the kind of tokens: set vocab_size only.")
    size = wanted.vocab_size if settings else int(len(old) * _GROWTH)
    corpus = open_corpus(corpora, field, encoding, layout)
    started = time.monotonic()
    grown = extend_tokenizer(old, corpus, size or 0, threads)
    store = open_store(corpus, grown, threads)
    before = open_store(corpus, old, threads)
    metrics = token_metrics(store, grown) | {
        "added": len(grown) - len(old),
        "bytes_per_token_before": before.facts.bytes / before.facts.tokens,
        "unknown_share_before": before.facts.unknown / before.facts.tokens,
    }
    save(
        Path(out),
        grown,
        name=artifact.manifest.name,
        recipe=grown.recipe,
        budget={"asked": None, "spent": {"seconds": time.monotonic() - started, "tokens": store.facts.tokens}},
        corpus=corpus.describe() | store_counts(store),
        seed=artifact.manifest.seed,
        metrics=metrics,
    )
    return load(out)
