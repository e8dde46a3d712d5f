"""Training of vectors."""

from __future__ import annotations

from typing import Any

from firth.cores import cores
from firth.errors import AbilityError, RecipeError, TokenizerError
from firth.fit.labels import read_labels
from firth.fit.run import TrainingResult, TrainingRun
from firth.memory import trim_heap
from firth.recipes.values import recipe_to_json
from firth.records import METRICS, MetricsFile, to_lines
from firth.tokens.build import open_store
from firth.tokens.store import TokenStore
from firth.tokens.tokenizer import Tokenizer
from firth.tokens.train import extend_tokenizer
from firth.vectors.job import VectorJob, VectorResult
from firth.vectors.model import VectorModel
from firth.vectors.phrases import find_phrases
from firth.vectors.recipe import (
    BagRecipe,
    BrownRecipe,
    ClassifierRecipe,
    GloveRecipe,
    GraphRecipe,
    ParagraphRecipe,
    SenseRecipe,
    SifRecipe,
    SvdRecipe,
    VectorRecipe,
    Word2vecRecipe,
)
from firth.vectors.text import training_text
from firth.vectors.word2vec import train_word2vec

_MAX_NEW_WORDS = 100_000_000


def train_vectors(recipe: VectorRecipe, run: TrainingRun) -> TrainingResult:
    """The vectors of the corpus."""
    tokenizer, store = run.open_tokens(recipe.tokenizer)
    trim_heap()  # memory that tokenisation has freed
    budget = run.budget
    recipe = recipe.with_tokenizer(tokenizer.recipe)
    text, phrases = find_phrases(training_text(store, tokenizer), recipe.phrases)
    settings = recipe_to_json(recipe)
    for one in (settings, settings.get("base", {})):
        one.pop("lr", None)  # a resumed run may use another one
    labels, others = None, {}
    if isinstance(recipe, ClassifierRecipe):
        labels = read_labels(run.corpus, store, tokenizer)
        others = {"labels": labels.digest}
    job = VectorJob(
        text=text,
        phrases=phrases,
        tokenizer=tokenizer,
        layout=run.corpus.layout,
        seed=run.seed,
        threads=cores(run.threads),
        tokens=budget.tokens if budget else None,
        seconds=budget.seconds if budget else None,
        flops=budget.flops if budget else None,
        checkpointer=run.checkpointer(settings, store, **others),
        file=MetricsFile(run.out),
        labels=labels.numbers if labels else None,
        names=labels.names if labels else (),
    )
    result = _train(recipe, job)
    return _result(result, run, store)


def _train(recipe: VectorRecipe, job: VectorJob) -> VectorResult:
    match recipe:
        case Word2vecRecipe():
            return train_word2vec(recipe, job)
        case BagRecipe():
            from firth.vectors.bag import train_bag

            return train_bag(recipe, job)
        case SvdRecipe():
            from firth.vectors.svd import train_svd

            return train_svd(recipe, job)
        case BrownRecipe():
            from firth.vectors.brown import train_brown

            return train_brown(recipe, job)
        case GloveRecipe():
            from firth.vectors.glove import train_glove

            return train_glove(recipe, job)
        case GraphRecipe():
            from firth.vectors.graph import train_graph

            return train_graph(recipe, job)
        case SenseRecipe():
            from firth.vectors.senses import train_senses

            return train_senses(recipe, job)
        case SifRecipe():
            from firth.vectors.sif import train_sif

            return train_sif(recipe, job)
        case ParagraphRecipe():
            from firth.vectors.paragraph import train_paragraphs

            return train_paragraphs(recipe, job)
        case ClassifierRecipe():
            from firth.vectors.classifier import train_classifier

            return train_classifier(recipe, job)
    raise RecipeError(f"nothing trains a {type(recipe).__name__}.")


def _result(result: VectorResult, run: TrainingRun, store: TokenStore, **metrics: Any) -> TrainingResult:
    files = {METRICS: to_lines(result.records)} if result.records else {}  # a plot takes longer than some of them
    return TrainingResult(result.model, store, run.spent(result.tokens), result.metrics | metrics, files)


def adapt_vectors(model: VectorModel, recipe: Word2vecRecipe, run: TrainingRun) -> TrainingResult:
    """The vectors after further training on new text, whose words are added to the vocabulary."""
    if model.phrases is not None:
        raise AbilityError("phrases are found in all the text at once: train the model again on all of it.")
    tokenizer: Tokenizer = model.tokenizer
    try:
        grown = extend_tokenizer(tokenizer, run.corpus, len(tokenizer) + _MAX_NEW_WORDS, run.threads)
        tokenizer = Tokenizer(grown.data, tokenizer.recipe, tokenizer.dictionary)
    except TokenizerError:  # there are no new words
        pass
    store = open_store(run.corpus, tokenizer, run.threads)
    known = len(model.words)
    model.recipe = recipe
    job = VectorJob(
        text=training_text(store, tokenizer),
        tokenizer=tokenizer,
        layout=run.corpus.layout,
        seed=run.seed,
        threads=cores(run.threads),
        start=model,
    )
    result = train_word2vec(recipe.with_tokenizer(tokenizer.recipe), job)
    return _result(result, run, store, added=len(result.model.words) - known)
