"""Training count models: what they are given is a token store, what they give back is a model."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from firth.counts.counting import count_store
from firth.counts.ngram import NgramModel, NgramRecipe
from firth.counts.room import Room
from firth.counts.runs import count_in_runs, estimate_bytes, memory_available
from firth.counts.train import train_ngram
from firth.counts.trie import Trie
from firth.errors import BudgetError, RecipeError
from firth.files import cache_folder
from firth.fit.budget import Budget
from firth.progress import note
from firth.tokens.build import open_store
from firth.tokens.store import TokenStore
from firth.tokens.tokenizer import Tokenizer

if TYPE_CHECKING:
    from firth.fit.train import Run

_SHARE = 0.7  # of the free memory
_SAMPLE = 200_000  # tokens whose counting tells how many a time budget allows


def train_counts(
    recipe: NgramRecipe, run: Run, tokenizer: Tokenizer, store: TokenStore, started: float
) -> tuple[NgramModel, int]:
    """The n-gram model of the store, as much of it as the budget allows, and the tokens that were counted."""
    recipe = recipe.with_tokenizer(tokenizer.recipe)
    end = sentences_within(run.budget, store, recipe.order, len(tokenizer), started)
    trie, room = count_in_room(store, len(tokenizer), recipe.order, end, run.threads)
    heldout = held_out_trie(run, tokenizer, recipe.order)
    model = train_ngram(
        recipe,
        trie,
        tokenizer,
        run.corpus.layout,
        heldout=heldout,
        seed=run.seed,
        threads=run.threads,
        room=room,
        consume=room.folder is None,
    )
    return model, int(store.sentences[end])


def count_in_room(store: TokenStore, vocabulary: int, order: int, end: int, threads: int | None) -> tuple[Trie, Room]:
    """The trie of the store's first sentences, in memory if it fits, else counted in runs on disk."""
    tokens = int(store.sentences[end]) + 2 * end
    memory = memory_limit()
    if estimate_bytes(tokens, order, vocabulary) <= memory:
        return count_store(store, vocabulary, order, 0, end, threads), Room()
    folder = cache_folder() / "runs"
    note(f"counting {tokens:,} tokens in runs on disk ({folder}), since they might not fit into {memory >> 20:,} MB")

    def count_part(begin: int, last: int) -> Trie:
        return count_store(store, vocabulary, order, begin, last, threads)

    return count_in_runs(count_part, store, order, vocabulary, memory, folder, end), Room(folder)


def memory_limit() -> int:
    """The bytes that counting may take: `$FIRTH_MEMORY` in megabytes, or most of what is free."""
    given = os.environ.get("FIRTH_MEMORY", "")
    if not given:
        return int(_SHARE * memory_available())
    if not given.isdecimal():
        raise RecipeError(f"FIRTH_MEMORY={given!r} must be a whole number of megabytes, such as 4000.")
    return int(given) << 20


def held_out_trie(run: Run, tokenizer: Tokenizer, order: int) -> Trie | None:
    """The n-grams of the held-out text, where there is one."""
    if run.valid is None:
        return None
    return count_store(open_store(run.valid, tokenizer, run.threads), len(tokenizer), order, threads=run.threads)


def sentences_within(budget: Budget | None, store: TokenStore, order: int, vocabulary: int, started: float) -> int:
    """How many of the store's sentences the budget allows: at least one."""
    if budget is None:
        return store.facts.sentences
    if budget.flops is not None:
        raise BudgetError("counting takes no FLOPs to speak of: give the budget in time or tokens.")
    most = budget.tokens if budget.tokens is not None else _tokens_in(budget, store, order, vocabulary, started)
    reached = int(np.searchsorted(store.sentences, min(most, len(store)), side="right")) - 1
    return min(max(reached, 1), store.facts.sentences)


def _tokens_in(budget: Budget, store: TokenStore, order: int, vocabulary: int, started: float) -> int:
    """How many tokens can be counted and smoothed in the time that is left, judged by a sample."""
    assert budget.seconds is not None
    end = max(1, int(np.searchsorted(store.sentences, _SAMPLE)) - 1)
    begun = time.monotonic()
    count_store(store, vocabulary, order, 0, min(end, store.facts.sentences))
    pace = 3 * (time.monotonic() - begun) / max(int(store.sentences[min(end, store.facts.sentences)]), 1)
    left = budget.seconds - (time.monotonic() - started)
    return int(max(left, 0.0) / pace) if pace > 0 else len(store)


def count_metrics(model: NgramModel) -> dict[str, Any]:
    """What a manifest says of an n-gram model: its size and what was estimated."""
    parameters = {"parameters": model.parameters} if model.parameters else {}
    return {"ngrams": np.diff(model.trie.levels).tolist()} | parameters
