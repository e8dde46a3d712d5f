"""Adding text to an n-gram model and taking it away again: exactly the model that training on the rest would give.

Counts are sums. Where the vocabulary is all the words of the text, it grows and shrinks with them; where it was limited
or given, it stays.
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
from firth.counts.merge import GONE, combine
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
class Share:
    """A text or a model that is added or taken away."""

    trie: Trie
    words: list[str]
    """The vocabulary of the trie."""
    facts: dict[str, Any]
    sign: int


def require_whole(model: NgramModel, name: str) -> None:
    """Raises unless every n-gram of the model's text is still there with its count."""
    recipe = model.recipe
    if recipe.smoothing == "imported":
        raise AbilityError(f"{name} came from another tool without its counts: train it again on all the text.")
    if recipe.prune or max(recipe.least_counts()) > 1:
        raise AbilityError(
            f"{name} was pruned, so its counts are not whole: add to a model without prune and min_counts."
        )


def is_open_ended(model: NgramModel) -> bool:
    """Whether the vocabulary is simply all the words of the text."""
    recipe = model.tokenizer.recipe
    counted = np.asarray(model.trie.counts)[_FIRST_WORD : model.trie.vocabulary]
    return (
        recipe.model in ("words", "chars")
        and recipe.min_count == 1
        and recipe.vocab_size is None
        and bool(counted.all())
    )


def share_of_model(path: Path, other: NgramModel, sign: int) -> Share:
    """The counts of a saved model."""
    model = load(path)
    if not isinstance(model, NgramModel):
        raise RecipeError(f"{path} holds no n-gram counts: add a text or an n-gram model.")
    require_whole(model, str(path))
    if model.trie.order != other.trie.order:
        raise RecipeError(
            f"{path} has order {model.trie.order}, not {other.trie.order}: train both with the same order."
        )
    same = model.tokenizer.digest == other.tokenizer.digest
    if not same and not (
        is_open_ended(model) and is_open_ended(other) and model.tokenizer.recipe == other.tokenizer.recipe
    ):
        raise RecipeError(f"{path} has other tokens: train both models with the same --tokenizer.")
    facts = open_artifact(path, verify=False).manifest.corpus
    return Share(_unpacked(model.trie), model.tokenizer.vocabulary, facts, sign)


def share_of_text(corpus: Corpus, model: NgramModel, sign: int, threads: int | None) -> Share:
    """The counts of a text; new words get in where the vocabulary is open-ended."""
    tokenizer = model.tokenizer
    if sign > 0 and is_open_ended(model):
        tokenizer = train_tokenizer(model.tokenizer.recipe, corpus, threads)
    store = open_store(corpus, tokenizer, threads)
    trie = count_store(store, len(tokenizer), model.trie.order, threads=threads)
    facts = {"digest": store.facts.corpus} | {name: getattr(store.facts, name) for name in _COUNTED}
    return Share(trie, tokenizer.vocabulary, facts, sign)


def is_model(path: str | Path) -> bool:
    """Whether a path is a saved model rather than a text."""
    return (Path(path) / MANIFEST).is_file()


def _unpacked(trie: Trie) -> Trie:
    return Trie(trie.levels, trie.words, trie.first, trie.links, np.asarray(trie.counts))


def change_counts(
    model: NgramModel,
    shares: Sequence[Share],
    *,
    heldout: Corpus | None = None,
    seed: int = 0,
    threads: int | None = None,
) -> NgramModel:
    """The model of its text and the shares together."""
    everything = [Share(_unpacked(model.trie), model.tokenizer.vocabulary, {}, 1), *shares]
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


def _sum(shares: Sequence[Share], mappings: Sequence[Words | None], vocabulary: int) -> Trie:
    return combine([share.trie for share in shares], [share.sign for share in shares], mappings, vocabulary)


def _with_all_words(old: Tokenizer, shares: Sequence[Share]) -> tuple[Tokenizer, Trie]:
    """The vocabulary of all the text, frequent words first as training makes it, and the counts in its ids."""
    counts: dict[str, int] = {}
    for share in shares:
        amounts = np.asarray(share.trie.counts[share.trie.level(1)]).tolist()
        for word, amount in zip(share.words[_FIRST_WORD:], amounts[_FIRST_WORD:], strict=True):
            counts[word] = counts.get(word, 0) + share.sign * amount
    left = {word: count for word, count in counts.items() if count > 0}
    if not left:
        raise CorpusError("nothing would be left of the text: keep some of it.")
    tokenizer = tokenizer_from_words(old.recipe, left, old.dictionary)
    # Words that vanish need ids until their n-grams are gone: they come last.
    words = [*tokenizer.vocabulary, *(word for word in counts if word not in left)]
    numbers = {word: number for number, word in enumerate(words)}
    mappings = [np.array([numbers[word] for word in share.words], dtype=np.uint32) for share in shares]
    trie = _sum(shares, mappings, len(words))
    if len(words) > len(tokenizer):
        last = np.arange(len(words), dtype=np.uint32)
        last[len(tokenizer) :] = GONE
        trie = combine([trie], [1], [last], len(tokenizer))
    return tokenizer, trie


def describe_change(old: dict[str, Any], shares: Sequence[Share]) -> dict[str, Any]:
    """What the manifest says of the text that a changed model stands for."""
    facts = dict(old)
    for share in shares:
        for name in _COUNTED:
            facts[name] = facts.get(name, 0) + share.sign * share.facts.get(name, 0)
    history = [*old.get("changes", [])]
    history += [{"sign": share.sign, "digest": share.facts.get("digest")} for share in shares]
    facts["changes"] = history
    facts["digest"] = digest_bytes(json.dumps([old.get("digest"), history]).encode())
    return facts
