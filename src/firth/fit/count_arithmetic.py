"""Adding text to an n-gram model and subtracting it: exactly the model of training on the resulting text.

A vocabulary of all the words of the text grows and shrinks with it; one that was limited or given stays.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from firth.artifact.folder import open_artifact
from firth.artifact.manifest import MANIFEST
from firth.artifact.models import load
from firth.counts.counting import count_store
from firth.counts.merge import REMOVED, combine
from firth.counts.ngram import NgramModel
from firth.counts.train import train_ngram
from firth.counts.trie import Trie
from firth.errors import AbilityError, CorpusError, RecipeError
from firth.files import digest_bytes
from firth.text.corpus import Corpus
from firth.tokens.build import open_store
from firth.tokens.tokenizer import MASK, Tokenizer
from firth.tokens.train import tokenizer_from_words, train_tokenizer

Words = npt.NDArray[np.uint32]

_FIRST_WORD = MASK + 1
_COUNTED = ("documents", "sentences", "words", "tokens", "bytes", "unknown")


@dataclass(frozen=True)
class CountTerm:
    """The counts of a text or a model, to be added or subtracted."""

    trie: Trie
    words: list[str]
    """The vocabulary of the trie."""
    info: dict[str, Any]
    """The counts of the text for the manifest."""
    sign: int


def require_complete(model: NgramModel, name: str) -> None:
    """Raise `AbilityError` unless the model has the count of every n-gram of its text."""
    recipe = model.recipe
    if recipe.smoothing == "imported":
        raise AbilityError(f"{name} came from another tool without its counts: train it again on all the text.")
    if recipe.prune or max(recipe.min_counts_by_order()) > 1:
        raise AbilityError(
            f"{name} was pruned, so its counts are incomplete: add to a model without prune and min_counts."
        )


def is_open_ended(model: NgramModel) -> bool:
    """Whether the vocabulary is all the words of the text."""
    recipe = model.tokenizer.recipe
    counted = np.asarray(model.trie.counts)[_FIRST_WORD : model.trie.vocab_size]
    return (
        recipe.model in ("words", "chars")
        and recipe.min_count == 1
        and recipe.vocab_size is None
        and bool(counted.all())
    )


def model_counts(path: Path, other: NgramModel, sign: int) -> CountTerm:
    """The counts of a saved model."""
    model = load(path)
    if not isinstance(model, NgramModel):
        raise RecipeError(f"{path} holds no n-gram counts: add a text or an n-gram model.")
    require_complete(model, str(path))
    if model.trie.order != other.trie.order:
        raise RecipeError(
            f"{path} has order {model.trie.order}, not {other.trie.order}: train both with the same order."
        )
    same = model.tokenizer.digest == other.tokenizer.digest
    if not same and not (
        is_open_ended(model) and is_open_ended(other) and model.tokenizer.recipe == other.tokenizer.recipe
    ):
        raise RecipeError(f"{path} has other tokens: train both models with the same --tokenizer.")
    info = open_artifact(path, verify=False).manifest.corpus
    return CountTerm(_with_plain_counts(model.trie), model.tokenizer.vocabulary, info, sign)


def text_counts(corpus: Corpus, model: NgramModel, sign: int, threads: int | None) -> CountTerm:
    """The counts of a text; its new words are included where the vocabulary is open-ended."""
    tokenizer = model.tokenizer
    if sign > 0 and is_open_ended(model):
        tokenizer = train_tokenizer(model.tokenizer.recipe, corpus, threads)
    store = open_store(corpus, tokenizer, threads)
    trie = count_store(store, len(tokenizer), model.trie.order, threads=threads)
    info = {"digest": store.info.corpus} | {name: getattr(store.info, name) for name in _COUNTED}
    return CountTerm(trie, tokenizer.vocabulary, info, sign)


def is_model(path: str | Path) -> bool:
    """Whether a path is a saved model rather than a text."""
    return (Path(path) / MANIFEST).is_file()


def _with_plain_counts(trie: Trie) -> Trie:
    """The trie with its counts as an ordinary array."""
    return Trie(trie.levels, trie.words, trie.first, trie.links, np.asarray(trie.counts))


def change_counts(
    model: NgramModel,
    terms: Sequence[CountTerm],
    *,
    heldout: Corpus | None = None,
    seed: int = 0,
    threads: int | None = None,
) -> NgramModel:
    """The model of the sum of its own counts and the terms."""
    everything = [CountTerm(_with_plain_counts(model.trie), model.tokenizer.vocabulary, {}, 1), *terms]
    tokenizer = model.tokenizer
    if is_open_ended(model):
        tokenizer, trie = _with_all_words(model.tokenizer, everything)
    else:
        trie = _sum(everything, [None] * len(everything), len(tokenizer))
    valid = None
    if heldout is not None:
        valid = count_store(open_store(heldout, tokenizer, threads), len(tokenizer), trie.order, threads=threads)
    recipe = model.recipe.with_tokenizer(tokenizer.recipe)
    return train_ngram(recipe, trie, tokenizer, model.layout, heldout=valid, seed=seed, threads=threads)


def _sum(terms: Sequence[CountTerm], mappings: Sequence[Words | None], vocabulary: int) -> Trie:
    return combine([term.trie for term in terms], [term.sign for term in terms], mappings, vocabulary)


def _with_all_words(old: Tokenizer, terms: Sequence[CountTerm]) -> tuple[Tokenizer, Trie]:
    """The vocabulary of all the text, frequent words first as in training, and the counts in its ids."""
    counts: dict[str, int] = {}
    for term in terms:
        amounts = np.asarray(term.trie.counts[term.trie.level(1)]).tolist()
        for word, amount in zip(term.words[_FIRST_WORD:], amounts[_FIRST_WORD:], strict=True):
            counts[word] = counts.get(word, 0) + term.sign * amount
    left = {word: count for word, count in counts.items() if count > 0}
    if not left:
        raise CorpusError("nothing would be left of the text: keep some of it.")
    tokenizer = tokenizer_from_words(old.recipe, left, old.dictionary)
    # Words that disappear need ids until their n-grams are removed: they come last.
    words = [*tokenizer.vocabulary, *(word for word in counts if word not in left)]
    numbers = {word: number for number, word in enumerate(words)}
    mappings = [np.array([numbers[word] for word in term.words], dtype=np.uint32) for term in terms]
    trie = _sum(terms, mappings, len(words))
    if len(words) > len(tokenizer):
        last = np.arange(len(words), dtype=np.uint32)
        last[len(tokenizer) :] = REMOVED
        trie = combine([trie], [1], [last], len(tokenizer))
    return tokenizer, trie


def describe_change(old: dict[str, Any], terms: Sequence[CountTerm]) -> dict[str, Any]:
    """The manifest's description of the text of a changed model."""
    info = dict(old)
    for term in terms:
        for name in _COUNTED:
            info[name] = info.get(name, 0) + term.sign * term.info.get(name, 0)
    history = [*old.get("changes", [])]
    history += [{"sign": term.sign, "digest": term.info.get("digest")} for term in terms]
    info["changes"] = history
    info["digest"] = digest_bytes(json.dumps([old.get("digest"), history]).encode())
    return info
