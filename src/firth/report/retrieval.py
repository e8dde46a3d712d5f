"""Retrieval of translations: the nearest text of the other language, by the cosine of vectors of texts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from firth.apply.embed import require_embeds, text_vectors
from firth.apply.languages import has_languages
from firth.report.suites import WILSON, wilson
from firth.text.parallel import read_parallel

_CHUNK = 1 << 24  # similarities computed at a time
_TIE = 1e-9  # difference of cosines below which texts are equally near
Floats = npt.NDArray[Any]


def evaluate_retrieval(model: Any, files: Sequence[Path], **options: Any) -> dict[str, Any]:
    """How often the nearest target of a source is its translation, and the nearest source of a target.

    A text that occurs several times is one candidate, and each of its translations is right. Texts of a model with
    language embeddings are read in the languages that the header names. `options` are those of `NetModel.embed`.
    """
    require_embeds(model)
    corpus = read_parallel(*files)
    sides: list[dict[str, int]] = [{}, {}]
    pairs = []
    for pair in corpus.pairs():
        texts = (pair.source, pair.target)
        pairs.append([side.setdefault(text, len(side)) for side, text in zip(sides, texts, strict=True)])
    speakers = [model.in_language(one) if has_languages(model) else model for one in corpus.languages]
    vectors = [text_vectors(one, list(side), **options)[0] for one, side in zip(speakers, sides, strict=True)]
    rows = np.array(pairs, dtype=np.int64)
    report: dict[str, Any] = {"languages": list(corpus.languages), "pairs": len(pairs)}
    for name, one, other in (("forward", 0, 1), ("backward", 1, 0)):
        hits = nearest_hits(vectors[one], vectors[other], rows[:, one], rows[:, other])
        report[f"accuracy_{name}"] = hits / len(pairs)
        report[f"accuracy_{name}_interval"] = wilson(hits, len(pairs))
        report[f"chance_{name}"] = 1 / len(vectors[other])
    return report | {"interval": WILSON}


def nearest_hits(queries: Floats, candidates: Floats, sources: Floats, targets: Floats) -> float:
    """How many pairs of rows `sources` of queries and `targets` of candidates are retrieved.

    A pair counts 1 if the nearest candidate is one that its query is paired with; of m equally near candidates, each
    counts 1 / m.

    >>> vectors = np.array([[1.0, 0.0], [0.0, 2.0], [3.0, 3.0]])
    >>> nearest_hits(vectors, vectors[[1, 0, 2]], np.array([0, 1, 2]), np.array([1, 0, 0]))
    2.0
    """
    one, other = _units(queries), _units(candidates)
    answers: dict[int, set[int]] = {}
    for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
        answers.setdefault(source, set()).add(target)
    step, hits = max(1, _CHUNK // len(other)), np.zeros(len(one))
    for begin in range(0, len(one), step):
        cosines = one[begin : begin + step] @ other.T
        nearest = cosines >= cosines.max(axis=1, keepdims=True) - _TIE
        for row, near in enumerate(nearest, begin):
            found = np.flatnonzero(near).tolist()
            hits[row] = len(answers.get(row, set()).intersection(found)) / len(found)
    return float(hits[sources].sum())


def _units(vectors: Floats) -> Floats:
    exact = vectors.astype(np.float64)
    return np.asarray(exact / np.maximum(np.linalg.norm(exact, axis=1, keepdims=True), 1e-30))
