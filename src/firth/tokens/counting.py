"""How often each chunk of a corpus occurs."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from firth.progress import progress
from firth.text.corpus import Corpus
from firth.tokens.jobs import Setup
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.workers import run_job, told


def count_chunks(
    corpus: Corpus, recipe: TokenizerRecipe, dictionary: Path | None = None, threads: int | None = None
) -> dict[str, int]:
    """Chunk -> count, over all sentences of the corpus, segmented where the writing has no spaces."""
    setup = Setup("count", recipe, corpus.layout, dictionary=str(dictionary) if dictionary else None)
    counts: dict[str, int] = {}
    with progress("counting words", corpus.size()) as advance:
        for reply in run_job(setup, told(corpus.blocks(), advance), threads):
            if reply.arrays and reply.arrays[0]:
                _add(counts, reply.arrays[0].decode().split("\n"), np.frombuffer(reply.arrays[1], dtype=np.int64))
    return counts


def _add(counts: dict[str, int], chunks: list[str], amounts: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
    for chunk, amount in zip(chunks, amounts.tolist(), strict=True):
        counts[chunk] = counts.get(chunk, 0) + amount
