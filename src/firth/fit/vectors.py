"""Training vectors: each kind of recipe has its trainer, which sees a text of ids and nothing else."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, cast

from firth.cores import cores
from firth.errors import AbilityError, TokenizerError
from firth.fit.checkpoints import Checkpoints
from firth.fit.labels import Labels, read_labels
from firth.recipes.values import recipe_to_json
from firth.tokens.build import open_store
from firth.tokens.extend import extend_tokenizer
from firth.tokens.memory import return_freed
from firth.tokens.store import TokenStore
from firth.tokens.tokenizer import Tokenizer
from firth.vectors.job import Job, Result
from firth.vectors.model import VectorModel
from firth.vectors.phrases import find_phrases
from firth.vectors.recipe import (
    BagRecipe,
    BrownRecipe,
    ClassifierRecipe,
    GloveRecipe,
    ParagraphRecipe,
    SenseRecipe,
    SvdRecipe,
    VectorRecipe,
    Word2vecRecipe,
)
from firth.vectors.text import training_text
from firth.vectors.word2vec import train_word2vec

_MOST_WORDS = 100_000_000  # that a text may add

if TYPE_CHECKING:
    from firth.fit.train import Run

TRAINERS: dict[type[VectorRecipe], str] = {
    BagRecipe: "train_bag",
    SvdRecipe: "train_svd",
    BrownRecipe: "train_brown",
    Word2vecRecipe: "train_word2vec",
    GloveRecipe: "train_glove",
    SenseRecipe: "train_senses",
    ParagraphRecipe: "train_paragraphs",
    ClassifierRecipe: "train_classifier",
}
"""The function in the recipe's home that trains it."""


def train_vectors(recipe: VectorRecipe, run: Run, tokenizer: Tokenizer, store: TokenStore) -> Result:
    """The vectors that the recipe makes of the store."""
    return_freed()  # of what reading has left behind
    budget = run.budget
    recipe = recipe.with_tokenizer(tokenizer.recipe)
    text, phrases = find_phrases(training_text(store, tokenizer), recipe.phrases)
    labels = read_labels(run.corpus, store, tokenizer) if isinstance(recipe, ClassifierRecipe) else None
    job = Job(
        text=text,
        phrases=phrases,
        tokenizer=tokenizer,
        layout=run.corpus.layout,
        seed=run.seed,
        threads=cores(run.threads),
        tokens=budget.tokens if budget else None,
        seconds=budget.seconds if budget else None,
        flops=budget.flops if budget else None,
        keeper=_keeper(recipe, run, store, labels),
        labels=labels.numbers if labels else None,
        names=labels.names if labels else (),
    )
    trainer = getattr(import_module(recipe.home), TRAINERS[type(recipe)])
    return cast(Result, trainer(recipe, job))


def adapt_vectors(model: VectorModel, run: Run) -> tuple[Result, TokenStore]:
    """The vectors after more training on new text, whose words are added to the model's; and the text's store.

    The recipe in the model is the one to go on with: it may differ from the old one in how long and how fast it learns.
    """
    if model.phrases is not None:
        raise AbilityError("phrases are found in all the text at once: train the model again on all of it.")
    tokenizer = _with_new_words(model.tokenizer, run)
    store = open_store(run.corpus, tokenizer, run.threads)
    job = Job(
        text=training_text(store, tokenizer),
        tokenizer=tokenizer,
        layout=run.corpus.layout,
        seed=run.seed,
        threads=cores(run.threads),
        start=model,
    )
    return train_word2vec(model.recipe.with_tokenizer(tokenizer.recipe), job), store


def _with_new_words(tokenizer: Tokenizer, run: Run) -> Tokenizer:
    """The tokenizer with the words of the text that occur often enough; the ids of the old ones stay."""
    try:
        grown = extend_tokenizer(tokenizer, run.corpus, len(tokenizer) + _MOST_WORDS, run.threads)
    except TokenizerError:  # nothing is new
        return tokenizer
    return Tokenizer(grown.data, tokenizer.recipe, tokenizer.dictionary)


def _keeper(recipe: VectorRecipe, run: Run, store: TokenStore, labels: Labels | None) -> Checkpoints | None:
    """What keeps the state of the run, if it has a folder. Whoever goes on may take smaller steps, no other recipe."""
    if run.out is None:
        return None
    settings = recipe_to_json(recipe)
    settings.pop("learning_rate", None)
    budget = run.budget.text if run.budget else None
    identity = {"recipe": settings, "store": store.digest, "seed": run.seed, "budget": budget}
    if labels is not None:
        identity["labels"] = labels.digest
    return Checkpoints(run.out, identity, run.resume)
