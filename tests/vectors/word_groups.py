"""Texts for trainers of vectors, and how near words of the oracle's classes and topics are to each other."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from firth.text import oracle_grammars
from firth.text.corpus import Corpus, read_corpus
from firth.text.oracle import oracle_source
from firth.tokens.build import open_tokens
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.tokenizer import FIRST_WORD
from firth.vectors.job import VectorJob
from firth.vectors.model import VectorModel
from firth.vectors.text import TrainingText, training_text

WORDS = TokenizerRecipe(model="words", lowercase=True)


def text_of(sentences: Sequence[Sequence[int]], words: int) -> TrainingText:
    """A text of ids, all one document."""
    bounds = np.cumsum([0, *map(len, sentences)]).astype(np.uint64)
    ids = np.array([word for sentence in sentences for word in sentence], dtype=np.uint32)
    documents = np.array([0, len(sentences)], dtype=np.uint64)
    return TrainingText(ids, bounds, documents, [f"w{word}" for word in range(words)])


def job_of(corpus: Corpus, recipe: TokenizerRecipe = WORDS, **options: object) -> VectorJob:
    """What a trainer is given for a corpus."""
    tokenizer, store = open_tokens(recipe, corpus, 1)
    return VectorJob(training_text(store, tokenizer), tokenizer, corpus.layout, **options)  # type: ignore[arg-type]


def oracle_job(**options: object) -> VectorJob:
    """The job of the English oracle corpus."""
    return job_of(read_corpus("builtin:oracle"), **options)


def class_words() -> list[list[str]]:
    """The unambiguous nouns of each class of the oracle: animals, people, tools, ..."""
    return [" ".join(topics.values()).split() for topics in oracle_grammars.ENGLISH_NOUNS.values()]


def topic_words() -> list[list[str]]:
    """The unambiguous nouns of each topic of the oracle: farm, harbour, ..."""
    nouns = oracle_grammars.ENGLISH_NOUNS.values()
    return [" ".join(topics[topic] for topics in nouns).split() for topic in oracle_source("english").topics]


def nearness(model: VectorModel, groups: list[list[str]]) -> tuple[float, float]:
    """The mean cosine of pairs of words in one group, and of pairs in two."""
    found = {True: [], False: []}  # type: dict[bool, list[float]]
    labelled = [(word, label) for label, group in enumerate(groups) for word in group]
    for (one, first), (two, second) in itertools.combinations(labelled, 2):
        found[first == second].append(model.similarity(one, two))
    return float(np.mean(found[True])), float(np.mean(found[False]))


def no_special_rows(model: VectorModel) -> bool:
    """Whether all words have vectors and special tokens have none."""
    return bool(np.all(model.vectors[:FIRST_WORD] == 0) and np.all(np.any(model.vectors[FIRST_WORD:] != 0, axis=1)))
