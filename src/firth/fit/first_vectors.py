"""First vectors: CBOW, many times as fast as any network, tells one at its start which tokens are alike.

A network that has learnt from a few million tokens has seen most of them too seldom to know what they mean. CBOW goes
through ten times as many in a fifteenth of the time, so its vectors are what the table of a network begins with; they
are learnt further like any other parameter.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from firth.cores import cores
from firth.progress import note
from firth.tokens.store import TokenStore
from firth.tokens.tokenizer import Tokenizer
from firth.vectors.job import Job
from firth.vectors.recipe import Word2vecRecipe
from firth.vectors.text import TrainingText, training_text
from firth.vectors.word2vec import train_word2vec

Floats = npt.NDArray[np.float32]


def first_vectors(
    tokenizer: Tokenizer, store: TokenStore, width: int, tokens: int, seed: int, threads: int | None
) -> Floats:
    """(vocabulary, width): directions of the vectors that CBOW learns from so many tokens, however many threads."""
    note(f"first vectors: CBOW goes through {tokens:,} tokens")
    text = training_text(store, tokenizer)
    return directions(_cbow(text, tokenizer, width, tokens, seed, threads), text.counts)


def warm_up(tokenizer: Tokenizer, store: TokenStore, width: int) -> None:
    """Compiles what CBOW needs, half a minute where Firth is new: no part of anybody's budget of time."""
    _cbow(training_text(store, tokenizer), tokenizer, width, tokens=1, seed=0, threads=1)


def _cbow(
    text: TrainingText, tokenizer: Tokenizer, width: int, tokens: int, seed: int, threads: int | None
) -> npt.NDArray[np.floating]:
    recipe = Word2vecRecipe(tokenizer=tokenizer.recipe, dimension=width, architecture="cbow")
    job = Job(text=text, tokenizer=tokenizer, layout="lines", seed=seed, threads=cores(threads), tokens=tokens)
    return np.asarray(train_word2vec(recipe, job).model.vectors)


def directions(vectors: npt.NDArray[np.floating], counts: npt.NDArray[np.int64]) -> Floats:
    """Where each vector points from the mean of all; zeros for tokens that the text does not have.

    >>> directions(np.array([[9.0, 9.0], [3.0, 1.0], [1.0, 1.0]]), np.array([0, 5, 5])).tolist()
    [[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0]]
    """
    seen = counts[: len(vectors)] > 0
    away = np.where(seen[:, None], vectors - vectors[seen].mean(0), 0.0)
    return np.asarray(away / np.maximum(np.linalg.norm(away, axis=1, keepdims=True), 1e-12), dtype=np.float32)
