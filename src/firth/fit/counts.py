"""Training of n-gram models, in memory or on disk."""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np

from firth.counts.counting import count_in_runs, count_store, estimate_bytes
from firth.counts.ngram import NgramModel, NgramRecipe
from firth.counts.train import train_ngram
from firth.counts.trie import ArrayAllocator, Trie
from firth.errors import BudgetError, RecipeError
from firth.files import cache_folder
from firth.fit.run import TrainingResult, TrainingRun
from firth.memory import memory_available
from firth.progress import note
from firth.tokens.store import TokenStore

_MEMORY_FRACTION = 0.7
_SAMPLE = 200_000  # tokens counted to measure the speed for a time budget


def train_counts(recipe: NgramRecipe, run: TrainingRun) -> TrainingResult:
    """The n-gram model of as many sentences of the corpus as the budget allows."""
    tokenizer, store = run.open_tokens(recipe.tokenizer)
    recipe, vocabulary = recipe.with_tokenizer(tokenizer.recipe), len(tokenizer)
    end = _sentences_within(run, store, recipe.order, vocabulary)
    trie, allocator = _count(store, vocabulary, recipe.order, end, run.threads)
    valid = run.open_valid(tokenizer)
    model = train_ngram(
        recipe,
        trie,
        tokenizer,
        run.corpus.layout,
        heldout=None if valid is None else count_store(valid, vocabulary, recipe.order, threads=run.threads),
        seed=run.seed,
        threads=run.threads,
        allocator=allocator,
        consume=allocator.folder is None,
    )
    return TrainingResult(model, store, run.spent(int(store.sentences[end])), count_metrics(model))


def _count(
    store: TokenStore, vocabulary: int, order: int, end: int, threads: int | None
) -> tuple[Trie, ArrayAllocator]:
    """The trie of the store's first `end` sentences, counted in memory if it fits, else in runs on disk."""
    tokens = int(store.sentences[end]) + 2 * end
    memory = memory_limit()
    if estimate_bytes(tokens, order, vocabulary) <= memory:
        return count_store(store, vocabulary, order, 0, end, threads), ArrayAllocator()
    folder = cache_folder() / "runs"
    note(f"counting {tokens:,} tokens in runs on disk ({folder}), since they might not fit into {memory >> 20:,} MB")

    def count_part(begin: int, last: int) -> Trie:
        return count_store(store, vocabulary, order, begin, last, threads)

    return count_in_runs(count_part, store, order, vocabulary, memory, folder, end), ArrayAllocator(folder)


def memory_limit() -> int:
    """The bytes that counting may use: `$FIRTH_MEMORY` in megabytes, or most of the available memory."""
    given = os.environ.get("FIRTH_MEMORY", "")
    if not given:
        return int(_MEMORY_FRACTION * memory_available())
    if not given.isdecimal():
        raise RecipeError(f"FIRTH_MEMORY={given!r} must be a whole number of megabytes, such as 4000.")
    return int(given) << 20


def _sentences_within(run: TrainingRun, store: TokenStore, order: int, vocabulary: int) -> int:
    """How many of the store's sentences the budget allows, at least one."""
    budget, sentences = run.budget, store.info.sentences
    if budget is None:
        return sentences
    if budget.flops is not None:
        raise BudgetError("counting takes no FLOPs to speak of: give the budget in time or tokens.")
    tokens = len(store) if budget.tokens is None else budget.tokens
    if budget.seconds is not None:
        end = min(max(1, int(np.searchsorted(store.sentences, _SAMPLE)) - 1), sentences)
        began = time.monotonic()
        count_store(store, vocabulary, order, 0, end)
        # Smoothing takes about twice as long as counting.
        token_seconds = 3 * (time.monotonic() - began) / max(int(store.sentences[end]), 1)
        left = budget.seconds - (time.monotonic() - run.started)
        tokens = int(max(left, 0.0) / token_seconds) if token_seconds > 0 else tokens
    reached = int(np.searchsorted(store.sentences, min(tokens, len(store)), side="right")) - 1
    return min(max(reached, 1), sentences)


def count_metrics(model: NgramModel) -> dict[str, Any]:
    """The number of n-grams of each order and the estimated parameters."""
    parameters = {"parameters": model.parameters} if model.parameters else {}
    return {"ngrams": np.diff(model.trie.levels).tolist()} | parameters
