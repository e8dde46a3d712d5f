"""The literal table of everything that can be trained, and its lineage."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from firth.counts.unigram import UnigramRecipe
from firth.errors import RecipeError, near_miss
from firth.recipes import counts, tokenizers
from firth.tokens.recipe import TokenizerRecipe

Recipe = TokenizerRecipe | UnigramRecipe

FAMILIES: dict[str, type[Recipe]] = {"tokenizer": TokenizerRecipe, "unigram": UnigramRecipe}
"""The name that a manifest gives to each type of recipe."""


@dataclass(frozen=True)
class Entry:
    """A recipe, when it was published, where, and what it descends from."""

    make: Callable[[], Recipe]
    family: str
    year: int
    paper: str
    parents: tuple[str, ...] = ()

    @property
    def about(self) -> str:
        """What it is, in a line."""
        return (inspect.getdoc(self.make) or "").splitlines()[0]


RECIPES: dict[str, Entry] = {
    "words": Entry(tokenizers.words, "tokenizers", 1948, "Shannon, A Mathematical Theory of Communication"),
    "chars": Entry(
        tokenizers.chars, "tokenizers", 1951, "Shannon, Prediction and Entropy of Printed English", ("words",)
    ),
    "wordpiece": Entry(
        tokenizers.wordpiece, "tokenizers", 2012, "Schuster and Nakajima, Japanese and Korean Voice Search", ("chars",)
    ),
    "bpe": Entry(
        tokenizers.bpe,
        "tokenizers",
        2016,
        "Sennrich et al., Neural Machine Translation of Rare Words with Subword Units",
        ("chars",),
    ),
    "pieces": Entry(tokenizers.pieces, "tokenizers", 2018, "Kudo, Subword Regularization", ("bpe",)),
    "byte-bpe": Entry(
        tokenizers.byte_bpe,
        "tokenizers",
        2019,
        "Radford et al., Language Models are Unsupervised Multitask Learners",
        ("bpe",),
    ),
    "unigram": Entry(counts.unigram, "counts", 1948, "Shannon, A Mathematical Theory of Communication"),
}


def find_entry(name: str) -> Entry:
    """The entry of that name; a wrong one raises `RecipeError` with the nearest right one."""
    if name not in RECIPES:
        raise RecipeError(f"there is no recipe {name!r}: {near_miss(name, RECIPES)}")
    return RECIPES[name]


def find_recipe(name: str) -> Recipe:
    """The recipe of that name.

    >>> find_recipe("wordpiece").vocab_size
    16000
    >>> find_recipe("wordpeice")
    Traceback (most recent call last):
    ...
    firth.errors.RecipeError: there is no recipe 'wordpeice': did you mean 'wordpiece'?
    """
    return find_entry(name).make()


def lineage() -> Iterator[tuple[int, str]]:
    """(depth, name) of all recipes, each below its first parent, older ones first."""
    children: dict[str | None, list[str]] = {}
    for name, entry in RECIPES.items():
        children.setdefault(entry.parents[0] if entry.parents else None, []).append(name)

    def walk(parent: str | None, depth: int) -> Iterator[tuple[int, str]]:
        for name in sorted(children.get(parent, []), key=lambda name: (RECIPES[name].family, RECIPES[name].year)):
            yield depth, name
            yield from walk(name, depth + 1)

    return walk(None, 0)
