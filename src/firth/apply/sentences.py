"""Search among sentences: those whose vectors are nearest to that of a text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from firth.apply.embed import require_embeds, text_vectors
from firth.apply.score import file_lines
from firth.apply.similarity import text_similarities
from firth.arguments import require_strings
from firth.errors import CorpusError
from firth.vectors.index import ApproximateIndex, build_index
from firth.vectors.neighbours import ExactIndex

_EMBEDDED = 20_000  # texts embedded at a time


class SentenceIndex:
    """The vectors of texts by a model that embeds, for searches by the cosine."""

    def __init__(self, model: Any, texts: Iterable[str], **options: Any) -> None:
        """`options` are those of `NetModel.embed`. A text that occurs several times is kept once, blank ones never."""
        self.model, self.options = require_embeds(model), options
        given = require_strings(texts, "texts", "search")
        self.texts = list(dict.fromkeys(text.strip() for text in given if text.strip()))
        self._rows = {text: row for row, text in enumerate(self.texts)}
        if not self.texts:
            raise CorpusError("there is no text to search among: give one on each line.")
        parts = [self._embed(self.texts[begin : begin + _EMBEDDED]) for begin in range(0, len(self.texts), _EMBEDDED)]
        self.exact = ExactIndex(np.concatenate(parts))

    def _embed(self, texts: Sequence[str]) -> Any:
        return text_vectors(self.model, texts, **self.options)[0]

    @cached_property
    def approximate(self) -> ApproximateIndex:
        """Search in a fraction of the time, which finds about 96 % of the nearest; built once."""
        return build_index(self.exact)

    def similar(self, query: str, count: int = 10, *, approximate: bool = False) -> list[tuple[str, float]]:
        """The texts nearest to a query, which is not one of them, and their similarities, nearest first."""
        (vector,) = self._embed([query])
        search = self.approximate if approximate else self.exact
        own = self._rows.get(query.strip())
        found = search.nearest(vector, count, [] if own is None else [own])
        scores = text_similarities(self.model, [score for _, score in found]).tolist()
        return [(self.texts[row], score) for (row, _), score in zip(found, scores, strict=True)]


def index_file(model: Any, path: Path, encoding: str | None = None, **options: Any) -> SentenceIndex:
    """The index of the lines of a file."""
    return SentenceIndex(model, [line for _, line in file_lines(path, encoding)], **options)
