"""A map of words: those that mean alike lie together."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from firth.apply.similar import require_vectors
from firth.errors import AbilityError
from firth.report.charts import COLOURS, escape, name_language
from firth.report.suites import frequent_rows

_WIDE, _NARROW = (860, 620), (380, 480)  # units of a drawing for a desk and for a phone
_EDGE = 12
_SIZE = 13  # of text
_DOT = 2.6
_MOST = 2000  # words on a map


@dataclass(frozen=True, eq=False)
class WordMap:
    """Words, where each lies (0 to 1 from left to right and from top to bottom), and which group it is of."""

    words: list[str]
    places: npt.NDArray[np.float64]
    groups: list[int]

    def to_json(self) -> dict[str, Any]:
        """The map as plain numbers."""
        places = self.places.round(4).tolist()
        return {"words": self.words, "places": places, "groups": self.groups}

    def figure(self) -> str:
        """The map for a page: a wide and a narrow drawing of which the page shows one."""
        parts = (("wide", _WIDE), ("narrow", _NARROW))
        drawn = (f'<div class="{name}">{self.svg(*size)}</div>' for name, size in parts)
        return f'<figure class="chart">{"".join(drawn)}</figure>'

    def svg(self, width: int = _WIDE[0], height: int = _WIDE[1]) -> str:
        """The map as an SVG element, which can also stand alone; words that would overlap are dots with a title."""
        points = _EDGE + self.places * (width - 2 * _EDGE, height - 2 * _EDGE)
        marks = [
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{_DOT}" fill="{_colour(group)}">'
            f"<title>{escape(word)}</title></circle>"
            for (x, y), word, group in zip(points.tolist(), self.words, self.groups, strict=True)
        ]
        labels = [label.svg() for label in _place_labels(points, self.words, width, height)]
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
            f'aria-label="A map of {len(self.words)} words" font-size="{_SIZE}" font-family="sans-serif">'
            f'<g>{"".join(marks)}</g><g fill="currentColor">{"".join(labels)}</g></svg>'
        )


def word_map(model: Any, words: Sequence[str] | None = None, count: int = 200, seed: int = 0) -> WordMap:
    """A map of some words, or of the `count` most frequent ones: t-SNE of their vectors, coloured by k-means.

    The same model, words and seed give the same map.
    """
    require_vectors(model)
    if not hasattr(model, "vector"):
        raise AbilityError(f"a {type(model).__name__} has no map: use dense vectors, such as skipgram or glove.")
    if words is None:
        words = [model.words[row] for row in frequent_rows(model, len(model.words)) if _has_letter(model.words[row])]
        words = words[: min(count, _MOST)]
    words = list(dict.fromkeys(words))
    if not 3 <= len(words) <= _MOST:
        raise AbilityError(f"a map shows 3 to {_MOST:,} words, not {len(words):,}: name more, or fewer.")
    vectors = np.array([model.vector(word) for word in words], dtype=np.float32)
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    if not np.ptp(vectors, axis=0).any():
        raise AbilityError("all these words have the same vector, so there is no map: name other words.")
    places, groups = _lay_out(vectors, seed)
    return WordMap(words, places, groups)


def _has_letter(word: str) -> bool:
    return any(character.isalpha() for character in word)


def _lay_out(units: npt.NDArray[np.float32], seed: int) -> tuple[npt.NDArray[np.float64], list[int]]:
    """Where each row lies, 0 to 1 in both directions, and its group, numbered in the order of first rows."""
    from sklearn.cluster import KMeans
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    with threadpool_limits(limits=1):  # sums in another order would move the words
        nearness = min(30.0, max(1.0, (len(units) - 1) / 3))
        start = units if units.shape[1] > 1 else np.hstack([units, np.zeros_like(units)])
        drawn = TSNE(2, perplexity=nearness, init="pca", random_state=seed).fit_transform(start)
        kinds = min(len(COLOURS), len(np.unique(units, axis=0)), max(1, len(units) // 8))
        groups = KMeans(kinds, n_init=4, random_state=seed).fit_predict(units)
    spread = np.maximum(np.ptp(drawn, axis=0), 1e-12)
    numbers = {group: number for number, group in enumerate(dict.fromkeys(groups.tolist()))}
    return (drawn - drawn.min(axis=0)) / spread.astype(np.float64), [numbers[group] for group in groups.tolist()]


def _colour(group: int) -> str:
    return f"var(--c{group % len(COLOURS)}, {COLOURS[group % len(COLOURS)]})"


@dataclass(frozen=True)
class _Label:
    """A word that begins, ends or has its middle at x, on the line y."""

    word: str
    x: float
    y: float
    align: float = 0.0
    """How much of the word lies before x."""

    def svg(self) -> str:
        anchor = {0.0: "", 0.5: ' text-anchor="middle"', 1.0: ' text-anchor="end"'}[self.align]
        place = f'x="{self.x:.1f}" y="{self.y:.1f}"{anchor}{name_language(self.word)}'
        return f"<text {place}>{escape(self.word)}</text>"

    @property
    def box(self) -> tuple[float, float, float, float]:
        """Left, top, right, bottom."""
        width = _text_width(self.word)
        left = self.x - self.align * width
        return left, self.y - 0.8 * _SIZE, left + width, self.y + 0.25 * _SIZE


def _place_labels(points: npt.NDArray[np.float64], words: Sequence[str], width: int, height: int) -> Iterator[_Label]:
    """The words that have room beside, above or below their dots, the first ones first."""
    taken = np.column_stack([points - _DOT, points + _DOT])  # left, top, right, bottom
    for word, (x, y) in zip(words, points.tolist(), strict=True):
        for label in _positions(word, x, y):
            left, top, right, bottom = label.box
            inside = left >= 0 and top >= 0 and right <= width and bottom <= height
            overlaps = (taken[:, 0] < right) & (taken[:, 2] > left) & (taken[:, 1] < bottom) & (taken[:, 3] > top)
            if inside and not overlaps.any():
                taken = np.vstack([taken, label.box])
                yield label
                break


def _positions(word: str, x: float, y: float) -> Iterator[_Label]:
    """Right and left of the dot, above and below it."""
    yield _Label(word, x + 2 * _DOT, y + 0.3 * _SIZE)
    yield _Label(word, x - 2 * _DOT, y + 0.3 * _SIZE, 1.0)
    yield _Label(word, x, y - 2 * _DOT, 0.5)
    yield _Label(word, x, y + 2 * _DOT + 0.8 * _SIZE, 0.5)


def _text_width(text: str) -> float:
    """About how wide a label will be: Chinese characters are square, others a little wider than half of that."""
    return _SIZE * sum(1.0 if unicodedata.east_asian_width(character) in "WF" else 0.58 for character in text)
