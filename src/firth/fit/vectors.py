"""Training vectors: each kind of recipe has its trainer, which sees a text of ids and nothing else."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, cast

from firth.fit.checkpoints import Checkpoints
from firth.recipes.values import recipe_to_json
from firth.tokens.store import TokenStore
from firth.tokens.tokenizer import Tokenizer
from firth.vectors.job import Job, Result
from firth.vectors.phrases import find_phrases
from firth.vectors.recipe import (
    BagRecipe,
    BrownRecipe,
    GloveRecipe,
    ParagraphRecipe,
    SenseRecipe,
    SvdRecipe,
    VectorRecipe,
    Word2vecRecipe,
)
from firth.vectors.text import training_text

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
}
"""The function in the recipe's home that trains it."""


def train_vectors(recipe: VectorRecipe, run: Run, tokenizer: Tokenizer, store: TokenStore) -> Result:
    """The vectors that the recipe makes of the store."""
    budget = run.budget
    recipe = recipe.with_tokenizer(tokenizer.recipe)
    text, phrases = find_phrases(training_text(store, tokenizer), recipe.phrases)
    job = Job(
        text=text,
        phrases=phrases,
        tokenizer=tokenizer,
        layout=run.corpus.layout,
        seed=run.seed,
        threads=run.threads or os.cpu_count() or 1,
        tokens=budget.tokens if budget else None,
        seconds=budget.seconds if budget else None,
        flops=budget.flops if budget else None,
        keeper=_keeper(recipe, run, store),
    )
    trainer = getattr(import_module(recipe.home), TRAINERS[type(recipe)])
    return cast(Result, trainer(recipe, job))


def _keeper(recipe: VectorRecipe, run: Run, store: TokenStore) -> Checkpoints | None:
    """What keeps the state of the run, if it has a folder. Whoever goes on may take smaller steps, no other recipe."""
    if run.out is None:
        return None
    settings = recipe_to_json(recipe)
    settings.pop("learning_rate", None)
    budget = run.budget.text if run.budget else None
    identity = {"recipe": settings, "store": store.digest, "seed": run.seed, "budget": budget}
    return Checkpoints(run.out, identity, run.resume)
