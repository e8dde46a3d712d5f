"""Going on with new text: what a domain adds to what was trained."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from firth.artifact.folder import Artifact, open_artifact
from firth.artifact.models import load, save
from firth.counts.ngram import NgramModel
from firth.errors import AbilityError, BudgetError, RecipeError
from firth.files import require_free
from firth.fit.algebra import change_counts, describe_change, is_model, require_whole, share_of_model, share_of_text
from firth.fit.budget import Budget
from firth.fit.checkpoints import require_place
from firth.fit.counts import count_metrics
from firth.fit.train import Run, Text, open_corpus, store_counts, token_metrics
from firth.fit.vectors import adapt_vectors
from firth.nets.recipe import NetRecipe
from firth.recipes.values import override
from firth.text.corpus import Corpus
from firth.tokens.build import open_store
from firth.tokens.extend import extend_tokenizer
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.tokenizer import Tokenizer
from firth.vectors.model import VectorModel
from firth.vectors.recipe import Word2vecRecipe

_FREE = ("epochs", "learning_rate", "mode", "subsample", "negatives", "window")
_FIXED = ("tokenizer", "embedding", "encoder", "visibility", "output")
_OPEN = ("objectives", "masking", "rows.format", "learning")
_GROWTH = 1.25  # how much larger a vocabulary becomes if nothing else is said


def adapt(
    model: str | Path,
    *corpora: Text,
    out: str | Path,
    add: Sequence[str | Path] = (),
    remove: Sequence[str | Path] = (),
    valid: Text | None = None,
    settings: Sequence[str] = (),
    budget: str | None = None,
    threads: int | None = None,
    resume: bool = False,
    field: str = "text",
    encoding: str | None = None,
    layout: str = "auto",
) -> Any:
    """The model after more training on the corpora, saved in the folder `out`.

    A tokenizer's vocabulary grows, by a quarter or to `vocab_size`; the ids of its old tokens stay. An n-gram model
    becomes exactly the one that training on all the text would give: texts and other models' counts are added, and with
    `remove` taken away again. Skip-gram, CBOW and fastText vectors go on learning, with the new text's new words. Nets
    go on from their weights, with their tokens, for as long as `budget` says; with `resume` after an interruption.
    """
    artifact = open_artifact(Path(model))
    if artifact.manifest.kind == "nets":
        require_place(Path(out), resume)
    elif budget is not None or resume:
        raise BudgetError(
            f"{model} ({artifact.manifest.name}) reads its text at once: leave --budget and --resume out."
        )
    else:
        require_free(Path(out))
    if not (corpora or add or remove):
        raise RecipeError("nothing to adapt to was given: name a corpus, or --add or --remove.")
    old = load(model)

    def read(texts: Sequence[Text], kind: str) -> Corpus:
        return open_corpus(texts, field, encoding, kind)

    if isinstance(old, NgramModel):
        given = [*((one, 1) for one in (*corpora, *add)), *((one, -1) for one in remove)]
        return _change(artifact, old, given, Path(out), read, valid, settings, threads)
    if add or remove:
        raise AbilityError(
            f"{model} ({artifact.manifest.name}) holds no counts to add to: name a corpus without --add."
        )
    if artifact.manifest.kind == "nets":
        found = read(corpora, layout)
        held_out = None if valid is None else read((valid,), found.layout)
        run = Run(
            corpus=found,
            valid=held_out,
            tokenizer=old.tokenizer,
            budget=Budget.parse(budget) if budget else None,
            seed=artifact.manifest.seed,
            threads=threads,
            out=Path(out),
            resume=resume,
            settings=settings,
            start=artifact.manifest.files["model.safetensors"].sha256,
        )
        return _go_on(artifact, old, run)
    if isinstance(old, VectorModel) and isinstance(old.recipe, Word2vecRecipe):
        return _learn_on(artifact, old, read(corpora, layout), Path(out), settings, threads)
    if not isinstance(old, Tokenizer):
        raise AbilityError(f"{model} ({artifact.manifest.name}) cannot go on training: train it on all the text.")
    return _grow(artifact, old, read(corpora, layout), Path(out), settings, threads)


def _grow(
    artifact: Artifact, old: Tokenizer, corpus: Corpus, out: Path, settings: Sequence[str], threads: int | None
) -> Any:
    """A tokenizer with the tokens of a domain added."""
    wanted = override(old.recipe, settings)
    if not isinstance(wanted, TokenizerRecipe) or replace(wanted, vocab_size=old.recipe.vocab_size) != old.recipe:
        raise RecipeError("adapting keeps the kind of tokens: set vocab_size only.")
    size = wanted.vocab_size if settings else int(len(old) * _GROWTH)
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
        out,
        grown,
        name=artifact.manifest.name,
        recipe=grown.recipe,
        budget={"asked": None, "spent": {"seconds": time.monotonic() - started, "tokens": store.facts.tokens}},
        corpus=corpus.describe() | store_counts(store),
        seed=artifact.manifest.seed,
        metrics=metrics,
    )
    return load(out, verify=False)


def _go_on(artifact: Artifact, old: Any, run: Run) -> Any:
    """A net after more pre-training on other text, in the same tokens."""
    recipe = cast(NetRecipe, override(old.recipe, run.settings))
    if (
        recipe.tokenizer
        == replace(old.recipe.tokenizer, vocab_size=recipe.tokenizer.vocab_size)
        != old.recipe.tokenizer
    ):
        old = import_module("firth.fit.growth").grow(old, run.corpus, recipe.tokenizer.vocab_size or 0, run.threads)
        recipe, run = replace(recipe, tokenizer=old.recipe.tokenizer), replace(run, tokenizer=old.tokenizer)
    kept = {part: getattr(recipe, part) == getattr(old.recipe, part) for part in _FIXED}
    if not all(kept.values()):
        free = ", ".join((*_OPEN, "tokenizer.vocab_size"))
        raise RecipeError(f"adapting keeps the network: set {free} only, not {_first_false(kept)}.")
    assert run.out is not None
    store = open_store(run.corpus, old.tokenizer, run.threads)
    trained = import_module("firth.fit.nets").train_net(recipe, run, old.tokenizer, store, old)
    save(
        run.out,
        trained.model,
        name=artifact.manifest.name,
        recipe=trained.recipe,
        budget={"asked": run.budget.text if run.budget else None, "spent": dict(trained.spent)},
        corpus=run.corpus.describe() | store_counts(store),
        seed=run.seed,
        metrics=trained.metrics,
        files=trained.files,
    )
    return load(run.out, verify=False)


def _first_false(found: Mapping[str, bool]) -> str:
    return next(name for name, true in found.items() if not true)


def _learn_on(
    artifact: Artifact, old: VectorModel, corpus: Corpus, out: Path, settings: Sequence[str], threads: int | None
) -> Any:
    """Vectors after more learning, with the vectors of new words."""
    recipe = override(old.recipe, settings)
    free = {name: getattr(old.recipe, name) for name in _FREE}
    if replace(cast(Word2vecRecipe, recipe), **free) != old.recipe:
        raise RecipeError(f"adapting keeps the kind of vectors: set {', '.join(_FREE)} only.")
    started = time.monotonic()
    run = Run(corpus, None, None, None, artifact.manifest.seed, threads)
    known = len(old.words)
    old.recipe = recipe
    result, store = adapt_vectors(old, run)
    save(
        out,
        result.model,
        name=artifact.manifest.name,
        recipe=result.model.recipe,
        budget={"asked": None, "spent": {"seconds": time.monotonic() - started, "tokens": result.tokens}},
        corpus=corpus.describe() | store_counts(store),
        seed=artifact.manifest.seed,
        metrics=result.metrics | {"added": len(result.model.words) - known},
    )
    return load(out, verify=False)


def _change(
    artifact: Artifact,
    old: NgramModel,
    given: Sequence[tuple[Any, int]],
    out: Path,
    read: Callable[[Sequence[Text], str], Corpus],
    valid: Text | None,
    settings: Sequence[str],
    threads: int | None,
) -> Any:
    """An n-gram model with texts and other models added or taken away."""
    if settings:
        raise RecipeError("adapting keeps an n-gram model's recipe: train again to change it.")
    require_whole(old, str(artifact.folder))
    started = time.monotonic()
    shares = [
        share_of_model(Path(one), old, sign)
        if isinstance(one, str | Path) and is_model(one)
        else share_of_text(read((one,), old.layout), old, sign, threads)
        for one, sign in given
    ]
    heldout = None if valid is None else read((valid,), old.layout)
    changed = change_counts(old, shares, heldout=heldout, seed=artifact.manifest.seed, threads=threads)
    tokens = sum(int(share.facts.get("tokens", 0)) for share in shares)
    save(
        out,
        changed,
        name=artifact.manifest.name,
        recipe=changed.recipe,
        budget={"asked": None, "spent": {"seconds": time.monotonic() - started, "tokens": tokens}},
        corpus=describe_change(artifact.manifest.corpus, shares),
        seed=artifact.manifest.seed,
        metrics=count_metrics(changed),
    )
    return load(out, verify=False)
