"""One verb for every recipe: from text to an artifact."""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from firth.abilities import Predicts, Scores, score_documents
from firth.artifact.folder import open_artifact
from firth.artifact.models import load, load_tokenizer, save
from firth.counts.cache import CacheRecipe
from firth.counts.classes import ClassRecipe
from firth.counts.maxent import MaxentRecipe
from firth.counts.mixture import MixtureRecipe
from firth.counts.recipe import NgramRecipe
from firth.errors import BudgetError, CorpusError, RecipeError, near_miss
from firth.fit.adaptive import train_entropy, train_mixed, train_over_classes, train_with_cache
from firth.fit.budget import Budget
from firth.fit.checkpoints import require_place
from firth.fit.counts import count_metrics, train_counts
from firth.fit.labels import accuracy, open_labelled
from firth.fit.settle import left_open, settle_vocabulary
from firth.fit.vectors import train_vectors
from firth.nets.recipe import NetRecipe
from firth.progress import note
from firth.recipes.families import Recipe
from firth.recipes.nets import SIZES, resize
from firth.recipes.table import find_recipe
from firth.recipes.values import flatten, override, recipe_to_json
from firth.text.corpus import Corpus, read_corpus
from firth.tokens.build import open_store, open_tokens
from firth.tokens.language import LanguageModel
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.store import TokenStore
from firth.tokens.tokenizer import Tokenizer
from firth.vectors.recipe import ClassifierRecipe, VectorRecipe

_PSEUDO = 20  # documents, and sentences of each

Text = str | Path | Corpus | Iterable[str | Sequence[str]]


@dataclass(frozen=True)
class Run:
    """What a trainer is given beside its recipe."""

    corpus: Corpus
    valid: Corpus | None
    """Held-out text, for free parameters that are fitted to what the model has not seen."""
    tokenizer: Tokenizer | None
    budget: Budget | None
    seed: int
    threads: int | None
    out: Path | None = None
    """Where the model will be: trainers that take long keep their state there."""
    resume: bool = False
    """Go on with the state that was kept there."""
    named: bool = False
    """Whether the recipe was given by its name: then what its fields leave open may be chosen."""
    size: str | None = None
    settings: Sequence[str] = ()
    """What was set by hand, and is not to be chosen."""
    start: str | None = None
    """The digest of the model that is gone on from."""


@dataclass(frozen=True)
class Trained:
    """What a trainer gives back."""

    model: Any
    recipe: Recipe
    """As asked for, with what was left open filled in."""
    store: TokenStore
    spent: Mapping[str, float]
    metrics: Mapping[str, Any]
    files: Mapping[str, bytes] = dataclasses.field(default_factory=dict)
    """What else belongs into the artifact."""


def train(
    recipe: str | Recipe,
    *corpora: Text,
    out: str | Path,
    valid: Text | None = None,
    size: str | None = None,
    budget: str | None = None,
    tokenizer: str | Path | Tokenizer | None = None,
    settings: Sequence[str] = (),
    seed: int = 0,
    threads: int | None = None,
    resume: bool = False,
    field: str = "text",
    encoding: str | None = None,
    layout: str = "auto",
    reload: bool = True,
) -> Any:
    """The model that `recipe` makes of the corpora, saved as an artifact in the folder `out`.

    `reload=False` returns None: for those who only want the folder.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model = train("unigram", [["to be or not to be"]], out=folder + "/model")
    >>> model.score(["to be"])[0].tokens
    3
    """
    name = recipe if isinstance(recipe, str) else str(recipe_to_json(recipe)["type"])
    found = find_recipe(recipe) if isinstance(recipe, str) else recipe
    wanted = override(found if size is None else _resized(found, name, size), settings)
    folder = Path(out)
    if resume and (folder / "manifest.json").exists():
        return _finished(folder, wanted, settings, size)
    require_place(folder, resume)
    corpus = _open_training(wanted, corpora, field, encoding, layout)
    run = Run(
        corpus=corpus,
        valid=None if valid is None else _open_training(wanted, (valid,), field, encoding, corpus.layout),
        tokenizer=_given_tokenizer(tokenizer),
        budget=Budget.parse(budget) if budget else None,
        seed=seed,
        threads=threads,
        out=folder,
        resume=resume,
        named=isinstance(recipe, str),
        size=size,
        settings=settings,
    )
    trained = pretrain(wanted, run)
    metrics = dict(trained.metrics)
    if run.valid is not None and isinstance(trained.model, Scores) and trained.model.score_kind == "causal":
        metrics |= _validate(trained.model, run.valid)
    if run.valid is not None and isinstance(trained.model, Predicts):
        metrics["valid_accuracy"] = accuracy(trained.model, run.valid)
    save(
        folder,
        trained.model,
        name=name,
        recipe=trained.recipe,
        budget={"asked": budget, "spent": dict(trained.spent)},
        corpus=run.corpus.describe() | store_counts(trained.store),
        seed=seed,
        metrics=metrics,
        files=trained.files,
    )
    return load(folder, verify=False) if reload else None  # it was written just now


@singledispatch
def pretrain(recipe: Any, run: Run) -> Trained:
    """Trains what the recipe describes; each family of recipes has its own trainer."""
    raise RecipeError(f"nothing trains a {type(recipe).__name__}.")


@pretrain.register
def _(recipe: TokenizerRecipe, run: Run) -> Trained:
    if run.tokenizer is not None:
        raise RecipeError("a tokenizer is not trained from another: leave --tokenizer out, or use firth adapt.")
    if run.budget is not None:
        raise BudgetError("a tokenizer reads its corpus once: leave --budget out and give less text instead.")
    started = time.monotonic()
    tokenizer, store = open_tokens(
        recipe, run.corpus, run.threads
    )  # what is trained on these tokens will find it there
    spent = {"seconds": time.monotonic() - started, "tokens": store.facts.tokens}
    return Trained(tokenizer, tokenizer.recipe, store, spent, token_metrics(store, tokenizer))


@pretrain.register
def _(recipe: NgramRecipe, run: Run) -> Trained:
    started = time.monotonic()
    tokenizer, store = _tokens(recipe.tokenizer, run)
    model, tokens = train_counts(recipe, run, tokenizer, store, started)
    spent = {"seconds": time.monotonic() - started, "tokens": tokens}
    return Trained(model, model.recipe, store, spent, count_metrics(model))


@pretrain.register(CacheRecipe)
@pretrain.register(MixtureRecipe)
@pretrain.register(ClassRecipe)
@pretrain.register(MaxentRecipe)
def _(recipe: CacheRecipe | MixtureRecipe | ClassRecipe | MaxentRecipe, run: Run) -> Trained:
    if run.budget is not None:
        raise BudgetError("this model reads all its text: leave --budget out and give less text instead.")
    started = time.monotonic()
    tokenizer, store = _tokens(recipe.tokenizer, run)
    model, parameters = _train_around(recipe, run, tokenizer, store)
    spent = {"seconds": time.monotonic() - started, "tokens": store.facts.tokens}
    return Trained(model, model.recipe, store, spent, {"parameters": parameters})


@pretrain.register
def _(recipe: VectorRecipe, run: Run) -> Trained:
    started = time.monotonic()
    tokenizer, store = _tokens(recipe.tokenizer, run)
    result = train_vectors(recipe, run, tokenizer, store)
    spent = {"seconds": time.monotonic() - started, "tokens": result.tokens}
    return Trained(result.model, result.model.recipe, store, spent, result.metrics)


@pretrain.register
def _(recipe: NetRecipe, run: Run) -> Trained:
    if run.tokenizer is None and run.named:
        recipe, why = settle_vocabulary(recipe, run.settings, run.corpus)
        if why:
            note(f"chosen: {why}")
    tokenizer, store = _tokens(recipe.tokenizer, run)
    trainer = import_module("firth.fit.nets")  # which imports torch
    return cast(Trained, trainer.train_net(recipe, run, tokenizer, store))


def _train_around(
    recipe: CacheRecipe | MixtureRecipe | ClassRecipe | MaxentRecipe, run: Run, tokenizer: Tokenizer, store: TokenStore
) -> tuple[LanguageModel, dict[str, Any]]:
    """The model, and what was estimated."""
    if isinstance(recipe, MaxentRecipe):
        return train_entropy(recipe, run, tokenizer, store)
    if isinstance(recipe, CacheRecipe):
        cached = train_with_cache(recipe, run, tokenizer, store)
        return cached, cached.parameters
    if isinstance(recipe, MixtureRecipe):
        mixed = train_mixed(recipe, run, tokenizer, store)
        return mixed, mixed.parameters
    over_classes = train_over_classes(recipe, run, tokenizer, store)
    return over_classes, over_classes.parameters


def _tokens(recipe: TokenizerRecipe, run: Run) -> tuple[Tokenizer, TokenStore]:
    """The tokenizer that was given, or one trained on the corpus, and the corpus in its tokens."""
    if run.tokenizer is None:
        return open_tokens(recipe, run.corpus, run.threads)
    return run.tokenizer, open_store(run.corpus, run.tokenizer, run.threads)


def token_metrics(store: TokenStore, tokenizer: Tokenizer) -> dict[str, float]:
    """How well a tokenizer fits the text it was trained on."""
    facts = store.facts
    return {
        "vocabulary": len(tokenizer),
        "bytes_per_token": facts.bytes / facts.tokens,
        "tokens_per_word": facts.tokens / facts.words,
        "unknown_share": facts.unknown / facts.tokens,
    }


def _open_training(recipe: Recipe, texts: Sequence[Text], field: str, encoding: str | None, layout: str) -> Corpus:
    """What the recipe is trained on: text, or labelled texts for those that learn to tell labels."""
    if isinstance(recipe, ClassifierRecipe):
        return open_labelled(texts, field, encoding)
    return open_corpus(texts, field, encoding, layout)


def open_corpus(texts: Sequence[Text], field: str, encoding: str | None, layout: str) -> Corpus:
    """The corpus of what a verb was given; encodings other than UTF-8 are told."""
    if len(texts) == 1 and isinstance(texts[0], Corpus):
        return texts[0]
    corpus = read_corpus(*cast(Sequence[str], texts), field=field, encoding=encoding, layout=layout)
    if next(corpus.raw_documents()).text.startswith("\\data\\"):
        raise CorpusError(
            f"{texts[0]} is an ARPA model, not a text: bring it in with firth import arpa {texts[0]} -o DIR."
        )
    for name, found in corpus.encodings().items():
        if found != "utf-8":
            note(f"{name}: reading as {found}")
    return corpus


def _given_tokenizer(tokenizer: str | Path | Tokenizer | None) -> Tokenizer | None:
    if tokenizer is None or isinstance(tokenizer, Tokenizer):
        return tokenizer
    return load_tokenizer(open_artifact(Path(tokenizer)))


def _resized(recipe: Recipe, name: str, size: str) -> Recipe:
    """The recipe in another size, where there are sizes."""
    if not isinstance(recipe, NetRecipe) or recipe.output.kind == "direct":
        raise RecipeError(f"{name} comes in one size: leave --size out.")
    if size not in SIZES:
        raise RecipeError(f"there is no size {size!r}: {near_miss(size, SIZES)}")
    return resize(recipe, size)


def _finished(folder: Path, recipe: Recipe, settings: Sequence[str], size: str | None) -> Any:
    """The model that an earlier run has left, if it was the same recipe."""
    artifact = open_artifact(folder)
    # Tokens, and what was left to be chosen, were filled in by the run.
    asked = {key: value for key, value in flatten(recipe_to_json(recipe)).items() if "tokenizer" not in key.split(".")}
    if isinstance(recipe, NetRecipe):
        asked = {key: value for key, value in asked.items() if key not in left_open(recipe, settings, size)}
    found = flatten(artifact.manifest.recipe)
    if any(found.get(key) != value for key, value in asked.items() if value != "auto"):
        raise RecipeError(f"{folder} holds another recipe: give the same options as before, or another -o.")
    note(f"{folder} is finished already.")
    return load(folder)


def _validate(model: Scores, corpus: Corpus) -> dict[str, float]:
    """Bits per byte and perplexity on held-out text: on its beginning, if sentences are read once for each token."""
    documents = (document.sentences for document in corpus)
    if model.score_kind == "pseudo":
        documents = (part[:_PSEUDO] for part in itertools.islice(documents, _PSEUDO))
    score = score_documents(model, documents)
    return {
        "valid_bits_per_byte": score.bits_per_byte,
        "valid_perplexity": score.perplexity,
        "valid_word_perplexity": score.word_perplexity,
    }


def store_counts(store: TokenStore) -> dict[str, Any]:
    """What a manifest says of the text: its digest and counts."""
    names = ("documents", "sentences", "words", "tokens", "bytes", "unknown")
    return {"digest": store.facts.corpus, "store": store.facts.digest} | {n: getattr(store.facts, n) for n in names}
