"""Paragraph vectors compared with gensim: inference from the same words, and classification of topics."""

from __future__ import annotations

import gzip
import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from gensim.models.doc2vec import Doc2Vec, TaggedDocument
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score

from firth.text.corpus import read_corpus
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.tokenizer import FIRST_WORD
from firth.vectors.bag import document_bounds
from firth.vectors.job import VectorJob
from firth.vectors.paragraph import ParagraphModel, train_paragraphs
from firth.vectors.recipe import ParagraphRecipe
from tests.vectors.word_groups import job_of, oracle_job

ARCHITECTURES: dict[str, int] = {"dbow": 0, "dm": 1}
both = pytest.mark.parametrize("architecture", ARCHITECTURES)


def split_words(job: VectorJob) -> list[list[str]]:
    """The known words of each document."""
    bounds, ids, words = document_bounds(job.text), np.asarray(job.text.ids), job.text.words
    documents = [ids[begin:end] for begin, end in itertools.pairwise(bounds)]
    return [[words[word] for word in document if word >= FIRST_WORD] for document in documents]


def train_gensim(documents: list[list[str]], recipe: ParagraphRecipe, seed: int) -> Doc2Vec:
    return Doc2Vec(
        [TaggedDocument(words, [number]) for number, words in enumerate(documents)],
        dm=ARCHITECTURES[recipe.architecture], dm_mean=1, vector_size=recipe.dimension, window=recipe.window,
        negative=recipe.negatives, sample=recipe.subsample, alpha=recipe.lr, epochs=recipe.epochs,
        min_count=1, workers=1, seed=seed,
    )  # fmt: skip


@both
def test_the_same_words_give_the_same_documents(architecture: Any) -> None:
    """With the word vectors of gensim, new documents get the vectors that gensim infers."""
    job = oracle_job()
    recipe = ParagraphRecipe(
        tokenizer=job.tokenizer.recipe, architecture=architecture, dimension=20, epochs=5, negatives=5,
        lr=0.05, subsample=0,
    )  # fmt: skip
    documents = split_words(job)[:500]
    theirs = train_gensim(documents, recipe, seed=1)
    rows = [theirs.wv.key_to_index.get(word, -1) for word in job.text.words]
    known = np.array(rows) >= 0
    outputs, inputs = (np.where(known[:, None], matrix[rows], 0) for matrix in (theirs.syn1neg, theirs.wv.vectors))
    counts = np.array([theirs.wv.get_vecattr(word, "count") if word in theirs.wv else 0 for word in job.text.words])
    tables = {"vectors": outputs} if architecture == "dbow" else {"vectors": inputs, "outputs": outputs}
    ours = ParagraphModel(
        recipe, job.tokenizer, job.layout, documents=theirs.dv.vectors, seed=0, counts=counts.astype(np.int64), **tables
    )
    some = documents[:20]
    found = ours.infer([" ".join(words) for words in some], epochs=100)
    wanted = np.array([theirs.infer_vector(words, alpha=0.05, epochs=100) for words in some])
    cosines = unit_rows(found) @ unit_rows(wanted).T
    assert np.diag(cosines).mean() > 0.95
    assert np.mean(cosines.argmax(axis=1) == np.arange(20)) > 0.8
    ratios = np.linalg.norm(found, axis=1) / np.linalg.norm(wanted, axis=1)
    assert ratios.mean() == pytest.approx(1, abs=0.1)


def unit_rows(matrix: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.asarray(matrix / np.linalg.norm(matrix, axis=1, keepdims=True))


@pytest.mark.shared
@pytest.mark.slow
@both
def test_topics_are_classified_as_well(architecture: Any, shared_data: Path) -> None:
    """Logistic regression on vectors of news articles is as accurate, up to one standard error."""
    with gzip.open(shared_data / "generate" / "bbc_news.train.jsonl.gz", "rt") as file:
        rows = [json.loads(line) for line in file][::2]
    texts = [[line for line in row["source"].splitlines() if line.strip()] for row in rows]
    tokenizer = TokenizerRecipe(model="words", lowercase=True, min_count=5)
    job = job_of(read_corpus(texts, layout="lines"), tokenizer, threads=2)
    recipe = ParagraphRecipe(tokenizer=tokenizer, architecture=architecture, dimension=50, negatives=5, lr=0.05)
    labels = [row["label"] for row in rows]
    seeds = (21, 22, 23)
    ours = [accuracy(train_paragraphs(recipe, replace(job, seed=seed)).model.documents, labels) for seed in seeds]
    documents = split_words(job)
    theirs = [accuracy(train_gensim(documents, recipe, seed).dv.vectors, labels) for seed in seeds]
    error = np.sqrt(np.mean(theirs) * (1 - np.mean(theirs)) / len(rows))
    assert np.mean(theirs) > 0.9
    assert np.mean(ours) >= np.mean(theirs) - error, (ours, theirs)


def accuracy(vectors: npt.NDArray[Any], labels: list[str]) -> float:
    model = LogisticRegression(max_iter=1000, C=10.0)
    return float(cross_val_score(model, unit_rows(vectors), labels, cv=5).mean())
