"""Classes of the words of a text: clusters of their skip-gram vectors.

A small network learns little of rare words in minutes, but skip-gram learns from their neighbours that some are names
of people and others of towns. Taggers that see classes need fewer examples (Miller et al. 2004; Turian et al. 2010).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from firth.cores import cores
from firth.progress import note
from firth.tokens import _unit_kernels as kernels
from firth.tokens.store import TokenStore
from firth.tokens.tokenizer import FIRST_WORD, UNK, Tokenizer
from firth.tokens.word_classes import WordClasses, class_counts, is_chinese, word_key
from firth.vectors.job import VectorJob
from firth.vectors.kmeans import find_centroids, nearest_centroids
from firth.vectors.loop import auto_epochs
from firth.vectors.recipe import Word2vecRecipe
from firth.vectors.text import TrainingText
from firth.vectors.word2vec import train_word2vec

_MAX_WORDS = 1 << 24  # at the beginning of a text
_MIN_COUNT = 5
_EPOCHS, _LONG = 3, 2_000_000  # of skip-gram over texts of as many words or more
_DIMENSION = 100
_MIN_TEXT = 10  # words for each class


def learn_word_classes(
    store: TokenStore, tokenizer: Tokenizer, finest: int, seed: int, threads: int | None, words: int = _MAX_WORDS
) -> WordClasses | None:
    """Classes of the words that occur at least five times in the first `words` of a text.

    None if it is too small, or mostly Chinese: features of characters have no classes.
    """
    if is_chinese(store, tokenizer.vocabulary):
        return None
    text = word_text(store, tokenizer, min(words, _MAX_WORDS))
    known = len(text.words) - FIRST_WORD
    finest = min(finest, known // 2)
    if finest < 2 or text.total < _MIN_TEXT * finest:
        return None
    epochs = _EPOCHS if text.total >= _LONG else auto_epochs(text.total)
    note(f"classes of {known:,} words: skip-gram reads {epochs * text.total:,} words")
    recipe = Word2vecRecipe(tokenizer=tokenizer.recipe, dimension=_DIMENSION, epochs=epochs)
    job = VectorJob(text=text, tokenizer=tokenizer, layout="lines", seed=seed, threads=cores(threads))
    vectors = np.asarray(train_word2vec(recipe, job).model.vectors)[FIRST_WORD:]
    return _cluster(text.words[FIRST_WORD:], vectors, finest, seed)


def _cluster(words: Sequence[str], vectors: npt.NDArray[np.floating[Any]], finest: int, seed: int) -> WordClasses:
    """The clusters of the directions of vectors from their mean."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    units = vectors - vectors.mean(0)
    units = (units / np.maximum(np.linalg.norm(units, axis=1, keepdims=True), 1e-12)).astype(np.float32)
    rng = np.random.default_rng(seed)
    with threadpool_limits(1):  # whose products do not depend on the number of threads
        levels = [nearest_centroids(units, find_centroids(units, count, rng)) for count in class_counts(finest)]
    keys = np.array([word_key(word) for word in words], dtype=np.int64)
    order = np.argsort(keys)
    return WordClasses(keys[order], np.stack(levels, 1).astype(np.int16)[order])


def word_text(store: TokenStore, tokenizer: Tokenizer, limit: int) -> TrainingText:
    """The first words of a text, lower-cased, as ids.

    Forms of a word that differ in case or tokens are counted apart: those that occur less than five times are unknown.
    """
    sentences = np.asarray(store.sentences).astype(np.int64)
    ids, starts = np.asarray(store.ids), np.asarray(store.word_starts)
    limit = min(int(np.count_nonzero(starts)) + sentences.size, limit)
    keys, begins, ends, _ = kernels.hash_words(ids, starts, sentences, limit)
    distinct, firsts, inverse, counts = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
    frequent = np.flatnonzero(counts >= _MIN_COUNT)
    numbers: dict[str, int] = {}
    of_key = np.full(distinct.size, UNK, dtype=np.uint32)
    for row in frequent[np.argsort(-counts[frequent], kind="stable")].tolist():
        first = firsts[row]
        word = "".join(tokenizer.decode(ids[begins[first] : ends[first]].tolist()).lower().split())
        if word:
            of_key[row] = numbers.setdefault(word, len(numbers) + FIRST_WORD)
    bounds = np.searchsorted(begins, sentences).astype(np.uint64)
    return TrainingText(
        of_key[inverse], bounds, np.array([0, bounds.size - 1], dtype=np.uint64), [*[""] * FIRST_WORD, *numbers]
    )
