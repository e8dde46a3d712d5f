"""Training n-gram models: smoothing, estimation, pruning and quantisation of counted n-grams."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from firth.counts.counting import count_store
from firth.counts.estimate import BackoffTable, dequantise, estimate, prune, quantise, renormalise
from firth.counts.ngram import NO_CHURCH_GALE, ChurchGaleTable, NgramModel, backs_off_to_uniform
from firth.counts.parameters import church_gale
from firth.counts.recipe import NgramRecipe
from firth.counts.smoothing import plan_smoothing
from firth.counts.trie import ArrayAllocator, PackedCounts, Trie, pack_counts, predictable_words
from firth.errors import RecipeError
from firth.lm.language_model import UnknownWordModel
from firth.text.corpus import read_corpus
from firth.text.layout import Layout
from firth.tokens.build import open_store
from firth.tokens.tokenizer import FIRST_WORD, Tokenizer
from firth.tokens.train import train_tokenizer

_FLOAT32_NGRAMS = 8_000_000  # n-grams beyond which precision=auto is float32


def train_ngram(
    recipe: NgramRecipe,
    trie: Trie,
    tokenizer: Tokenizer,
    layout: Layout,
    *,
    heldout: Trie | None = None,
    seed: int = 0,
    threads: int | None = None,
    allocator: ArrayAllocator | None = None,
    consume: bool = False,
) -> NgramModel:
    """The model of counted n-grams, with parameters fitted to `heldout`; `consume` allows overwriting the counts."""
    if recipe.smoothing == "imported":
        raise RecipeError(
            "an imported model is not trained: bring it in with firth import arpa, or choose a smoothing."
        )
    mask = predictable_words(trie.vocab_size, recipe.vocabulary == "open")
    words = int(mask.sum())
    unknown_word_model = train_unknown_word_model(tokenizer, trie)
    buckets = NO_CHURCH_GALE
    if recipe.smoothing == "church-gale":
        (logp, bow), found, parameters = church_gale(trie, mask)
        table, buckets = BackoffTable(logp, bow), ChurchGaleTable(*found)
    else:
        packed = PackedCounts(*pack_counts(trie.counts).values())
        plan = plan_smoothing(trie, recipe, words, heldout, seed, allocator, consume)
        trie = replace(trie, counts=packed)
        is_large = recipe.precision == "auto" and trie.words.size > _FLOAT32_NGRAMS
        table = estimate(trie, plan, mask, is_large or recipe.precision == "float32", threads, allocator)
        parameters = dict(plan.parameters)
        del plan
    uniform = 1 / words if backs_off_to_uniform(recipe) else 0.0
    trie, table, codebooks, further = shrink(recipe, trie, table, uniform, threads)
    parameters |= further
    return NgramModel(
        recipe, tokenizer, layout, trie, table.logp, table.bow, unknown_word_model,
        codebooks=codebooks, church_gale=buckets, parameters=parameters,
    )  # fmt: skip


def shrink(
    recipe: NgramRecipe, trie: Trie, table: BackoffTable, uniform: float, threads: int | None
) -> tuple[Trie, BackoffTable, npt.NDArray[np.float64], dict[str, Any]]:
    """A table pruned and quantised as the recipe says, with its codebooks and what was measured."""
    trie, table = prune(recipe, trie, table, uniform, threads)
    if recipe.precision != "8bit":
        return trie, table, np.zeros((0, 0)), {}
    codes, codebooks = quantise(trie, table.logp)
    rounded = dequantise(trie, codes, codebooks)
    bow = table.bow if recipe.smoothing == "stupid" else renormalise(trie, rounded, uniform, threads)
    ratio = _perplexity_ratio(trie, table.logp, rounded)
    return trie, BackoffTable(codes, bow), codebooks, {"quantised_perplexity_ratio": ratio}


def compress_ngram(model: NgramModel, prune: float, precision: str, threads: int | None = None) -> NgramModel:
    """The model without n-grams whose removal raises perplexity by less than a fraction `prune`, and quantised.

    Probabilities of what is kept are those of the model; back-off weights are recomputed, so all sum to one.
    """
    table = BackoffTable(model.logp, model.bow)
    if model.codebooks.size:
        table = BackoffTable(dequantise(model.trie, model.logp, model.codebooks), model.bow)
    recipe = replace(model.recipe, prune=prune, precision=precision, min_counts="1")
    words = int(predictable_words(model.trie.vocab_size, recipe.vocabulary == "open").sum())
    uniform = 1 / words if backs_off_to_uniform(recipe) else 0.0
    trie, table, codebooks, further = shrink(recipe, model.trie, table, uniform, threads)
    return NgramModel(
        recipe, model.tokenizer, model.layout, trie, table.logp, table.bow, model.unknown_word_model,
        codebooks=codebooks, church_gale=model.church_gale, parameters=model.parameters | further,
    )  # fmt: skip


def _perplexity_ratio(trie: Trie, before: npt.NDArray[Any], after: npt.NDArray[Any]) -> float:
    """The factor by which quantisation raises the training perplexity of the longest n-grams."""
    level = trie.level(trie.order)
    counts = np.asarray(trie.counts[level], dtype=np.float64)
    counted = np.isfinite(before[level]) & (counts > 0)
    gap = (before[level][counted].astype(np.float64) - after[level][counted]) @ counts[counted]
    return float(np.exp(gap / counts.sum())) if counts.any() else 1.0


def train_unknown_word_model(tokenizer: Tokenizer, trie: Trie) -> UnknownWordModel:
    """The character model of unknown words, trained on the words that occur once."""
    once = np.flatnonzero(np.asarray(trie.counts[trie.level(1)]) == 1)
    return UnknownWordModel.train(tokenizer.vocabulary[word] for word in once.tolist() if word >= FIRST_WORD)


def train_on_sentences(sentences: Sequence[str], recipe: NgramRecipe) -> NgramModel:
    """A model of a few sentences, without an artifact."""
    corpus = read_corpus([list(sentences)], layout="lines")
    tokenizer = train_tokenizer(recipe.tokenizer, corpus, 1)
    store = open_store(corpus, tokenizer, 1)
    trie = count_store(store, len(tokenizer), recipe.order, threads=1)
    return train_ngram(replace(recipe, tokenizer=tokenizer.recipe), trie, tokenizer, "lines", threads=1)
