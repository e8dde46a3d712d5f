"""A two-dimensional map of words: similar words lie together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from firth.apply.similar import require_dense_vectors
from firth.errors import AbilityError
from firth.plots import COLOURS, FONT_SIZE
from firth.report.charts import NARROW, WIDE, text_width
from firth.report.rendering import render
from firth.report.suites import rows_by_frequency

_MARGIN = 12
_RADIUS = 2.6  # of a dot
_MOST = 2000  # words on a map


@dataclass(frozen=True, eq=False)
class WordMap:
    """Words, their positions (0 to 1 from left to right and from top to bottom), and the cluster of each."""

    words: list[str]
    positions: npt.NDArray[np.float64]
    clusters: list[int]

    def to_json(self) -> dict[str, Any]:
        return {"words": self.words, "positions": self.positions.round(4).tolist(), "clusters": self.clusters}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> WordMap:
        return cls(data["words"], np.array(data["positions"]), data["clusters"])

    def figure(self) -> Markup:
        """The map for a page: a wide and a narrow SVG of which the page shows one."""
        return render("figure.html.j2", wide=self.svg(), narrow=self.svg(NARROW, 480))

    def svg(self, width: int = WIDE, height: int = 620) -> str:
        """The map as an SVG element or file; words that would overlap others are dots with a tooltip."""
        points = _MARGIN + self.positions * (width - 2 * _MARGIN, height - 2 * _MARGIN)
        dots = [
            {"word": word, "x": x, "y": y, "colour": cluster % len(COLOURS)}
            for (x, y), word, cluster in zip(points.tolist(), self.words, self.clusters, strict=True)
        ]
        labels = list(place_labels(points, self.words, width, height))
        return render(
            "word_map.svg.j2", dots=dots, labels=labels, width=width, height=height, radius=_RADIUS, colours=COLOURS,
            font_size=FONT_SIZE,
        ).strip()  # fmt: skip


def word_map(model: Any, words: Sequence[str] | None = None, count: int = 200, seed: int = 0) -> WordMap:
    """A map of given words, or of the `count` most frequent ones: t-SNE of their vectors, coloured by k-means.

    The same model, words and seed give the same map.
    """
    model = require_dense_vectors(model, "map")
    if words is None:
        ordered = (model.words[row] for row in rows_by_frequency(model, len(model.words)))
        words = [word for word in ordered if any(character.isalpha() for character in word)][: min(count, _MOST)]
    words = list(dict.fromkeys(words))
    if not 3 <= len(words) <= _MOST:
        raise AbilityError(f"a map shows 3 to {_MOST:,} words, not {len(words):,}: name more, or fewer.")
    vectors = np.array([model.vector(word) for word in words], dtype=np.float32)
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    if not np.ptp(vectors, axis=0).any():
        raise AbilityError("all these words have the same vector, so there is no map: name other words.")
    positions, clusters = _project(vectors, seed)
    return WordMap(words, positions, clusters)


def _project(vectors: npt.NDArray[np.float32], seed: int) -> tuple[npt.NDArray[np.float64], list[int]]:
    """The position of each vector, 0 to 1 in both directions, and its cluster, numbered by first occurrence."""
    from sklearn.cluster import KMeans
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    with threadpool_limits(limits=1):  # sums in another order would move the words
        perplexity = min(30.0, max(1.0, (len(vectors) - 1) / 3))
        inputs = vectors if vectors.shape[1] > 1 else np.hstack([vectors, np.zeros_like(vectors)])
        projected = TSNE(2, perplexity=perplexity, init="pca", random_state=seed).fit_transform(inputs)
        count = min(len(COLOURS), len(np.unique(vectors, axis=0)), max(1, len(vectors) // 8))
        found = KMeans(count, n_init=4, random_state=seed).fit_predict(vectors).tolist()
    extent = np.maximum(np.ptp(projected, axis=0), 1e-12)
    numbers = {cluster: number for number, cluster in enumerate(dict.fromkeys(found))}
    return (projected - projected.min(axis=0)) / extent.astype(np.float64), [numbers[cluster] for cluster in found]


@dataclass(frozen=True)
class _WordLabel:
    """A word at (x, y); x is its start, middle or end, y its baseline."""

    word: str
    x: float
    y: float
    anchor: str

    @property
    def box(self) -> tuple[float, float, float, float]:
        """Left, top, right, bottom."""
        width = text_width(self.word, 0.58)
        left = self.x - {"start": 0.0, "middle": 0.5, "end": 1.0}[self.anchor] * width
        return left, self.y - 0.8 * FONT_SIZE, left + width, self.y + 0.25 * FONT_SIZE


def place_labels(
    points: npt.NDArray[np.float64], words: Sequence[str], width: int, height: int
) -> Iterator[_WordLabel]:
    """Labels for the words that fit beside, above or below their dots without overlap, in the order of the words."""
    occupied = np.column_stack([points - _RADIUS, points + _RADIUS])  # left, top, right, bottom
    for word, (x, y) in zip(words, points.tolist(), strict=True):
        candidates = (
            _WordLabel(word, x + 2 * _RADIUS, y + 0.3 * FONT_SIZE, "start"),
            _WordLabel(word, x - 2 * _RADIUS, y + 0.3 * FONT_SIZE, "end"),
            _WordLabel(word, x, y - 2 * _RADIUS, "middle"),
            _WordLabel(word, x, y + 2 * _RADIUS + 0.8 * FONT_SIZE, "middle"),
        )
        for label in candidates:
            left, top, right, bottom = label.box
            inside = left >= 0 and top >= 0 and right <= width and bottom <= height
            overlaps = (
                (occupied[:, 0] < right) & (occupied[:, 2] > left) & (occupied[:, 1] < bottom) & (occupied[:, 3] > top)
            )
            if inside and not overlaps.any():
                occupied = np.vstack([occupied, label.box])
                yield label
                break
