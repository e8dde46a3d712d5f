"""Damaged n-gram tables are refused before a kernel follows their indices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from firth.counts.ngram import NgramModel, restore_ngram
from firth.counts.recipe import NgramRecipe
from firth.counts.saved import check_links
from firth.counts.train import train_on_sentences
from firth.counts.trie import ROOT
from firth.errors import ArtifactError

SENTENCES = ["he reads a book", "she reads a page", "he reads the book a page"]
Arrays = dict[str, np.ndarray[Any, Any]]


def model_of(**settings: Any) -> NgramModel:
    return train_on_sentences(SENTENCES, NgramRecipe(order=3, **settings))


def arrays_of(model: NgramModel) -> Arrays:
    return {name: np.array(array) for name, array in model.arrays().items()}


def restored(model: NgramModel, arrays: Arrays) -> NgramModel:
    return restore_ngram(model.recipe, arrays, model.tokenizer, model.layout)


@pytest.fixture(scope="module")
def model() -> NgramModel:
    return model_of(smoothing="modified-kneser-ney")


CHANGES: dict[str, Callable[[Arrays], Any]] = {
    "a link out of the table": lambda a: a["links"].__setitem__(-1, a["links"].size),
    "a link to a longer n-gram": lambda a: a["links"].__setitem__(int(a["levels"][1]), int(a["levels"][2])),
    "a link to itself": lambda a: a["links"].__setitem__(int(a["levels"][2]), int(a["levels"][2])),
    "a link to the root": lambda a: a["links"].__setitem__(-1, ROOT),
    "a link of a word": lambda a: a["links"].__setitem__(0, 1),
    "a word out of the vocabulary": lambda a: a["words"].__setitem__(-1, int(a["levels"][1])),
    "a word that is another node": lambda a: a["words"].__setitem__(0, 1),
    "children that descend": lambda a: a["words"].__setitem__(_second_child(a), 0),
    "children out of the table": lambda a: a["first"].__setitem__(-1, a["words"].size + 1),
    "children of another node": lambda a: a["first"].__setitem__(5, a["words"].size),
    "children of another level": lambda a: a["first"].__setitem__(int(a["levels"][1]), int(a["levels"][1])),
    "levels that descend": lambda a: a["levels"].__setitem__(2, 3),
    "a level that begins late": lambda a: a["levels"].__setitem__(0, 1),
    "a count out of the table": lambda a: a.update(_large(a["words"].size, 300)),
    "a negative count": lambda a: a.update(_large(0, -300)),
    "negative counts of bytes": lambda a: a["spelling"].__setitem__((0, 0), -1),
    "parameters that are no UTF-8": lambda a: a.update(parameters=np.array([34, 255, 34], dtype=np.uint8)),
    "parameters that are a list": lambda a: a.update(parameters=np.array([91, 93], dtype=np.uint8)),
    "codes without a codebook": lambda a: a.update(logp=np.zeros(a["words"].size, dtype=np.uint8)),
}


def _second_child(arrays: Arrays) -> int:
    sizes = np.diff(arrays["first"].astype(np.int64))
    return int(arrays["first"][np.flatnonzero(sizes > 1)[0]]) + 1


def _large(index: int, count: int) -> Arrays:
    return {"large_indices": np.array([index], dtype=np.uint32), "large_counts": np.array([count], dtype=np.int64)}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_changed_indices_are_refused(model: NgramModel, change: Callable[[Arrays], Any]) -> None:
    arrays = arrays_of(model)
    change(arrays)
    with pytest.raises(ArtifactError):
        restored(model, arrays)


def test_unchanged_tables_are_restored(model: NgramModel) -> None:
    again = restored(model, arrays_of(model))
    assert again.score(SENTENCES) == model.score(SENTENCES)
    again.verify()


def test_quantised_tables_need_a_codebook_for_every_level() -> None:
    model = model_of(smoothing="modified-kneser-ney", precision="8bit")
    restored(model, arrays_of(model)).verify()
    with pytest.raises(ArtifactError, match="codebooks"):
        restored(model, arrays_of(model) | {"codebooks": model.codebooks[:2]})
    with pytest.raises(ArtifactError, match="codebooks"):
        restored(model, arrays_of(model) | {"codebooks": model.codebooks[:, :100]})


@pytest.mark.parametrize("name", ["history_scores", "word_scores"])
def test_church_gale_tables_have_the_size_of_the_trie(name: str) -> None:
    model = train_on_sentences(SENTENCES, NgramRecipe(order=2, smoothing="church-gale"))
    arrays = arrays_of(model)
    restored(model, arrays)
    with pytest.raises(ArtifactError, match=name):
        restored(model, arrays | {name: arrays[name][:-1]})


def test_verify_finds_a_link_that_is_not_the_longest_suffix(model: NgramModel) -> None:
    arrays = arrays_of(model)
    last = int(arrays["levels"][2])
    arrays["links"][last] = arrays["words"][last]  # a word in place of the bigram
    with pytest.raises(ArtifactError, match="longest suffix"):
        check_links(restored(model, arrays).trie)


def test_sampling_ends_if_the_probabilities_do_not_sum_to_one(model: NgramModel) -> None:
    """Every word is rejected after the history if it has a child there whose own probability is 0."""
    arrays = arrays_of(model)
    bigrams = slice(int(arrays["levels"][1]), None)
    word = int(arrays["words"][int(arrays["first"][2])])
    arrays["logp"][:] = -np.inf
    arrays["logp"][word] = 0.0
    arrays["logp"][bigrams] = -np.inf
    arrays["bow"][:] = 0.0
    with pytest.raises(ArtifactError, match="sum to one"):
        restored(model, arrays).generate(length=3)
