"""Training n-gram models: count, smooth, prune, pack."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from firth.counts.church_gale import church_gale
from firth.counts.counting import count_store
from firth.counts.estimate import Table, estimate, renormalise
from firth.counts.ngram import NO_STEPS, NgramModel, Steps, falls_flat
from firth.counts.packing import PackedCounts
from firth.counts.prune import keep_nodes, stolcke, with_least_counts
from firth.counts.quantise import quantise
from firth.counts.recipe import NgramRecipe
from firth.counts.room import Room
from firth.counts.smoothing import make_plan
from firth.counts.trie import Trie, predictable
from firth.errors import RecipeError
from firth.text.corpus import read_corpus
from firth.text.layout import Layout
from firth.tokens.build import open_store
from firth.tokens.spelling import Spelling
from firth.tokens.tokenizer import MASK, Tokenizer
from firth.tokens.train import train_tokenizer

_LARGE = 8_000_000  # n-grams beyond which auto precision is float32


def train_ngram(
    recipe: NgramRecipe,
    trie: Trie,
    tokenizer: Tokenizer,
    layout: Layout,
    *,
    heldout: Trie | None = None,
    seed: int = 0,
    threads: int | None = None,
    room: Room | None = None,
    consume: bool = False,
) -> NgramModel:
    """The model that a recipe makes of counted n-grams; `heldout` text decides free parameters where it is given.

    With `consume` the trie's counts may be overwritten: the model keeps them packed.
    """
    if recipe.smoothing == "imported":
        raise RecipeError(
            "an imported model is not trained: bring it in with firth import arpa, or choose a smoothing."
        )
    mask = predictable(trie.vocabulary, recipe.vocabulary == "open")
    steps = NO_STEPS
    if recipe.smoothing == "church-gale":
        spelling = learn_spelling(tokenizer, trie)
        table, found, parameters = church_gale(trie, mask)
        steps = Steps(*found)
    else:
        spelling = learn_spelling(tokenizer, trie)
        packed = PackedCounts.of(trie.counts)
        plan = make_plan(trie, recipe, int(mask.sum()), heldout, seed, room, consume)
        trie = replace(trie, counts=packed)
        large = recipe.precision == "float32" or (recipe.precision == "auto" and trie.words.size > _LARGE)
        table = estimate(trie, plan, mask, large, threads, room)
        parameters = dict(plan.parameters)
        del plan
    trie, table = _prune(recipe, trie, table, 1 / int(mask.sum()), threads)
    books = np.zeros((0, 0))
    if recipe.precision == "8bit":
        codes, books = quantise(trie, table.logp)
        exact = np.concatenate([books[n - 1][codes[trie.level(n)]] for n in range(1, trie.order + 1)])
        flat = 1 / int(mask.sum()) if falls_flat(recipe) else 0.0
        bow = table.bow if recipe.smoothing == "stupid" else renormalise(trie, exact, flat, threads)
        parameters["quantised_perplexity_ratio"] = _loss(trie, table.logp, exact)
        table = Table(codes, bow)
    return NgramModel(
        recipe, tokenizer, layout, trie, table.logp, table.bow, spelling,
        books=books, steps=steps, parameters=parameters,
    )  # fmt: skip


def _prune(recipe: NgramRecipe, trie: Trie, table: Table, flat: float, threads: int | None) -> tuple[Trie, Table]:
    """Drops n-grams by their counts, then by how little they matter; what is left sums to one again."""
    least = recipe.least_counts()
    if max(least) == 1 and not recipe.prune:
        return trie, table
    if recipe.smoothing == "church-gale":
        raise RecipeError("church-gale models cannot be pruned: leave min_counts and prune out.")
    flat = flat if falls_flat(recipe) else 0.0
    if max(least) > 1:
        trie, table = _drop(recipe, trie, table, with_least_counts(trie, least), flat, threads)
    if recipe.prune:
        trie, table = _drop(recipe, trie, table, stolcke(trie, table, recipe.prune), flat, threads)
    return trie, table


def _drop(
    recipe: NgramRecipe, trie: Trie, table: Table, kept: npt.NDArray[np.bool_], flat: float, threads: int | None
) -> tuple[Trie, Table]:
    old = table.bow[kept[: table.bow.size]]
    trie, logp = keep_nodes(trie, kept, table.logp)
    return trie, Table(logp, old if recipe.smoothing == "stupid" else renormalise(trie, logp, flat, threads))


def _loss(trie: Trie, before: npt.NDArray[Any], after: npt.NDArray[Any]) -> float:
    """By what factor the perplexity of the longest n-grams of the training text has grown."""
    level = trie.level(trie.order)
    counts = np.asarray(trie.counts[level], dtype=np.float64)
    worth = np.isfinite(before[level]) & (counts > 0)
    gap = (before[level][worth].astype(np.float64) - after[level][worth]) @ counts[worth]
    return float(np.exp(gap / counts.sum()))


def learn_spelling(tokenizer: Tokenizer, trie: Trie) -> Spelling:
    """How unknown words are spelt, learnt from those that occur once."""
    once = np.flatnonzero(np.asarray(trie.counts[trie.level(1)]) == 1)
    return Spelling.train(tokenizer.vocabulary[word] for word in once.tolist() if word > MASK)


def train_on_sentences(sentences: Sequence[str], recipe: NgramRecipe) -> NgramModel:
    """A model of a few sentences, without an artifact."""
    corpus = read_corpus([list(sentences)], layout="lines")
    tokenizer = train_tokenizer(recipe.tokenizer, corpus, 1)
    store = open_store(corpus, tokenizer, 1)
    trie = count_store(store, len(tokenizer), recipe.order, threads=1)
    return train_ngram(replace(recipe, tokenizer=tokenizer.recipe), trie, tokenizer, "lines", threads=1)
