"""Training of every recipe: from text to an artifact."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import singledispatch
from pathlib import Path
from typing import Any, cast

from firth.abilities import Predicts, Score, Scores, ScoresPairs, total
from firth.arguments import check_licence, require_path
from firth.artifact.any_model import AnyModel
from firth.artifact.folder import open_artifact
from firth.artifact.models import load, load_tokenizer
from firth.counts.recipe import CacheRecipe, ClassRecipe, MaxentRecipe, MixtureRecipe, NgramRecipe
from firth.errors import ArgumentError, BudgetError, RecipeError
from firth.fit.adaptive import train_adaptive
from firth.fit.checkpoints import clear_finished, is_finished, require_place, training_place
from firth.fit.counts import train_counts
from firth.fit.knowledge import Knowledge, open_knowledge, require_knowledge
from firth.fit.labels import accuracy, open_labelled
from firth.fit.mixed_corpus import mixes_sources, open_sources
from firth.fit.resolve import unset_fields
from firth.fit.run import (
    Budget,
    Text,
    TrainingResult,
    TrainingRun,
    open_corpus,
    open_languages,
    open_pairs,
    open_triples,
)
from firth.fit.vectors import train_vectors
from firth.lm.pieces import score_documents
from firth.nets.recipe import NetRecipe
from firth.recipes.families import Recipe
from firth.recipes.nets import with_size
from firth.recipes.table import RECIPES, find_recipe
from firth.recipes.values import Settings, flatten, override, recipe_to_json, setting_list
from firth.text.corpus import Corpus
from firth.text.parallel import ParallelCorpus, ParallelInput
from firth.tokens.gazetteer import Gazetteer, read_gazetteer
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.store import TokenStore
from firth.tokens.tokenizer import Tokenizer
from firth.vectors.recipe import ClassifierRecipe, GraphRecipe, VectorRecipe


def train(
    recipe: str | Recipe,
    *corpora: Text,
    out: str | Path,
    valid: Text | None = None,
    size: str | None = None,
    budget: str | None = None,
    tokenizer: str | Path | Tokenizer | None = None,
    settings: Settings = (),
    seed: int = 0,
    threads: int | None = None,
    resume: bool = False,
    field: str = "text",
    encoding: str | None = None,
    layout: str = "auto",
    licence: str | None = None,
    pair: str | None = None,
    entities: str | Path | None = None,
    knowledge: str | Path | None = None,
    reload: bool = True,
) -> AnyModel:
    """The model of `recipe` trained on the corpora, saved as an artifact in the folder `out`.

    `tokenizer` is a tokenizer, a folder that holds one, or the name of its recipe, such as `words`. `settings` are
    fields of the recipe, such as `{"order": 2}`; `licence` is that of the text, such as CC-BY-4.0. `pair` names the two
    columns of parallel text, source and target, or two files without a corpus. `entities` is a file of entities that
    knowledge masking masks as a whole, one a line or `.spo` triples. `knowledge` is the folder of a trained graph whose
    entities the network reads; then `entities` names them, with the columns entity and name. With `reload=False` the
    model is only saved, and None returned.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model = train("unigram", [["to be or not to be"]], out=folder + "/model")
    >>> model.score(["to be"])[0].tokens
    3
    """
    name = recipe if isinstance(recipe, str) else str(recipe_to_json(recipe)["type"])
    found = find_recipe(recipe) if isinstance(recipe, str) else recipe
    settings = setting_list(settings)
    if _is_recipe_name(tokenizer):
        settings, tokenizer = [*settings, f"tokenizer={tokenizer}"], None
    wanted = override(found if size is None else with_size(found, name, size), settings)
    folder = require_path(out, "out", "the folder to write")
    check_licence(licence)
    if is_finished(folder, resume):
        return _load_finished(folder, wanted, settings, size)
    require_place(folder, resume)
    require_pairs(wanted, pair)
    graph = _open_knowledge(wanted, knowledge, entities)
    gazetteer = open_gazetteer(wanted, entities) if graph is None else graph.gazetteer
    corpus = _open_training(wanted, corpora, field, encoding, layout, pair)
    run = TrainingRun(
        corpus=corpus,
        valid=None if valid is None else _open_valid(wanted, valid, field, encoding, corpus, pair),
        tokenizer=load_tokenizer(open_artifact(Path(tokenizer))) if isinstance(tokenizer, str | Path) else tokenizer,
        budget=Budget.parse(budget) if budget else None,
        seed=seed,
        threads=threads,
        out=folder,
        resume=resume,
        named=isinstance(recipe, str),
        size=size,
        settings=settings,
        licence=licence,
        gazetteer=gazetteer,
        knowledge=graph,
    )
    with training_place(folder, resume):
        result = pretrain(wanted, run)
        result.save(folder, run, name, seed, {} if run.valid is None else _validate(result.model, run.valid))
    return cast(AnyModel, load(folder, verify=False) if reload else None)  # it was written just now


def _is_recipe_name(tokenizer: str | Path | Tokenizer | None) -> bool:
    """Whether it is the name of a tokenizer's recipe, and not of a folder."""
    entry = RECIPES.get(str(tokenizer)) if isinstance(tokenizer, str | Path) and not Path(tokenizer).exists() else None
    return entry is not None and entry.family == "tokenizers"


@singledispatch
def pretrain(recipe: Any, run: TrainingRun) -> TrainingResult:
    """The result of training a recipe; each family of recipes has its own trainer."""
    raise RecipeError(f"nothing trains a {type(recipe).__name__}.")


@pretrain.register
def _(recipe: TokenizerRecipe, run: TrainingRun) -> TrainingResult:
    if run.tokenizer is not None:
        raise RecipeError("a tokenizer is not trained from another: leave --tokenizer out, or use firth adapt.")
    if run.budget is not None:
        raise BudgetError("a tokenizer reads its corpus once: leave --budget out and give less text instead.")
    tokenizer, store = run.open_tokens(recipe)  # the store stays in the cache for models trained on these tokens
    return TrainingResult(tokenizer, store, run.spent(store.info.tokens), token_metrics(store, tokenizer))


@pretrain.register
def _(recipe: NetRecipe, run: TrainingRun) -> TrainingResult:
    from firth.fit.nets import train_net  # which imports torch

    return train_net(recipe, run)


pretrain.register(NgramRecipe, train_counts)
pretrain.register(VectorRecipe, train_vectors)
for _kind in (CacheRecipe, MixtureRecipe, ClassRecipe, MaxentRecipe):
    pretrain.register(_kind, train_adaptive)


def token_metrics(store: TokenStore, tokenizer: Tokenizer) -> dict[str, float]:
    """How well a tokenizer fits its training text."""
    info = store.info
    return {
        "vocabulary": len(tokenizer),
        "bytes_per_token": info.bytes / info.tokens,
        "tokens_per_word": info.tokens / max(info.words, 1),
        "unknown_share": info.unknown / info.tokens,
    }


def _open_training(
    recipe: Recipe, texts: Sequence[Text], field: str, encoding: str | None, layout: str, pair: str | None
) -> Corpus:
    """The text, or for classifiers the labelled texts, or the pairs, that a recipe is trained on."""
    if isinstance(recipe, ClassifierRecipe):
        return open_labelled(texts, field, encoding)
    if isinstance(recipe, GraphRecipe):
        return open_triples(texts, encoding)
    if isinstance(recipe, NetRecipe) and recipe.embedding.languages:
        reading: dict[str, Any] = {"field": field, "encoding": encoding, "layout": layout}
        return open_languages(texts, recipe.sampling.vocabulary, recipe.language, **reading)
    if isinstance(recipe, NetRecipe) and mixes_sources(recipe):
        return open_sources(recipe, texts, field=field, encoding=encoding, layout=layout)
    return open_pairs(texts, pair, encoding) if reads_pairs(recipe) else open_corpus(texts, field, encoding, layout)


def _open_valid(
    recipe: Recipe, text: Text, field: str, encoding: str | None, corpus: Corpus, pair: str | None
) -> Corpus:
    """Held-out text like that of the corpus: of parallel text the same columns."""
    if pair is not None and isinstance(corpus, ParallelCorpus):
        pair = None if any(len(one.files) > 1 for one in corpus.inputs if isinstance(one, ParallelInput)) else pair
    return _open_training(recipe, (text,), field, encoding, corpus.layout, pair)


def _open_knowledge(recipe: Recipe, path: str | Path | None, names: str | Path | None) -> Knowledge | None:
    """The entities of a trained graph; raises unless the recipe reads them, or if it does and there are none."""
    require_knowledge(recipe, path)
    return None if path is None else open_knowledge(require_path(path, "knowledge", "the folder of a graph"), names)


def open_gazetteer(recipe: Recipe, path: str | Path | None) -> Gazetteer | None:
    """The entities of a file; raises unless the recipe masks entities."""
    if path is None:
        return None
    gazetteer = read_gazetteer(require_path(path, "entities", "the file of entities"))
    if not isinstance(recipe, NetRecipe) or "entities" not in recipe.columns:
        raise ArgumentError(
            "--entities is for recipes that mask entities, such as ernie, or with --knowledge: leave it out."
        )
    return gazetteer


def reads_pairs(recipe: Any) -> bool:
    """Whether a recipe is trained on pairs of a source and a target."""
    return isinstance(recipe, NetRecipe) and recipe.sequence.format == "parallel"


def require_pairs(recipe: Any, pair: str | None) -> None:
    """Raise `ArgumentError` if columns of parallel text are named for a recipe that reads none."""
    if pair is not None and not reads_pairs(recipe):
        raise ArgumentError("--pair is for recipes that read parallel text, such as transformer: leave it out.")


def _load_finished(folder: Path, recipe: Recipe, settings: Sequence[str], size: str | None) -> AnyModel:
    """The model of an earlier, finished run, if it had the same recipe."""
    artifact = open_artifact(folder)
    # The tokenizer's fields and unset ones were resolved by the run.
    asked = flatten(json.loads(json.dumps(recipe_to_json(recipe))))  # tuples become lists, as in the manifest
    asked = {key: value for key, value in asked.items() if "tokenizer" not in key.split(".")}
    if isinstance(recipe, NetRecipe):
        asked = {key: value for key, value in asked.items() if key not in unset_fields(recipe, settings, size)}
    found = flatten(artifact.manifest.recipe)
    if any(found.get(key) != value for key, value in asked.items() if value not in ("auto", None)):
        raise RecipeError(f"{folder} holds another recipe: give the same options as before, or another -o.")
    clear_finished(folder)
    return cast(AnyModel, load(folder))


def _validate(model: Any, corpus: Corpus) -> dict[str, float]:
    """Metrics on held-out text: accuracy of classifiers, bits per byte and perplexity of causal models.

    Context is carried within documents, as by `firth score --context document`.
    """
    metrics = {}
    if isinstance(model, ScoresPairs) and not isinstance(model, Scores):
        pairs = (document.sentences for document in corpus if len(document.sentences) == 2)
        return valid_metrics(total(model.score_pairs((source, target) for source, target in pairs)))
    if isinstance(model, Scores) and model.score_kind == "causal":
        metrics = valid_metrics(score_documents(model, corpus))
    if isinstance(model, Predicts):
        metrics["valid_accuracy"] = accuracy(model, corpus)
    return metrics


def valid_metrics(score: Score) -> dict[str, float]:
    """The metrics of a score on held-out text."""
    return {
        "valid_bits_per_byte": score.bits_per_byte,
        "valid_perplexity": score.perplexity,
        "valid_word_perplexity": score.word_perplexity,
    }
