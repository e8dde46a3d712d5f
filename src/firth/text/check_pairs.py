"""Statistics and problems of parallel text: the analysis of `firth check` for pairs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

import numpy as np

from firth.errors import CorpusError
from firth.text import scripts
from firth.text.check import Problem, summarise_lengths
from firth.text.duplicates import HashSet64, fingerprints
from firth.text.parallel import ParallelInput, TextPair
from firth.text.segment import Segmenter, split_words

_BATCH = 4096  # pairs
_MIN_PAIRS = 10_000
_UNLIKELY = 3.0  # times the median ratio of lengths, or a third of it
_SHORT = 20  # characters by which an unlikely pair differs at least
_MESSAGES = {
    "few-pairs": "There are only {count} pairs, too few to learn more than phrases: add some.",
    "empty-sides": "{amount} pairs have a side without text, which training refuses: remove them.",
    "duplicate-pairs": "{amount} pairs repeat an earlier one: keep one copy of each.",
    "identical-sides": "{amount} pairs have the same text on both sides, so copying is learned: remove them.",
    "unlikely-lengths": f"{{amount}} pairs have a ratio of lengths over {_UNLIKELY:g} times the usual one or under a "
    "third of it, so they are probably no translations: look at them.",
    "leaked-pairs": "{amount} pairs of the test text are in the corpus: take them out, or scores will be too good.",
    "leaked-sources": "{amount} sources of the test text are in the corpus: take them out, or scores will be too good.",
}


@dataclass(frozen=True, kw_only=True)
class PairReport:
    """Statistics of parallel text. Fractions are between 0 and 1."""

    pairs: int
    columns: tuple[str, str]
    """The names of source and target."""
    words: dict[str, int]
    """Of each column."""
    characters: dict[str, int]
    languages: dict[str, dict[str, float]]
    """Of the letters of each column."""
    lengths: dict[str, dict[str, float]]
    """Characters of a text, for each column."""
    ratios: dict[str, float]
    """Characters of the target per character of the source."""
    empty: dict[str, int]
    """Texts without any character, for each column."""
    duplicates: float
    """Pairs that equal an earlier one."""
    repeated_sources: float
    """Sources that equal an earlier one, whatever their targets."""
    identical: float
    """Pairs whose sides are the same."""
    encodings: dict[str, str]
    overlap: dict[str, float] | None = None
    """Pairs and sources of a test text that are in the corpus."""
    problems: tuple[Problem, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The report as plain JSON."""
        found = asdict(self) | {"columns": list(self.columns), "problems": [asdict(one) for one in self.problems]}
        return found if self.overlap else {name: value for name, value in found.items() if name != "overlap"}


def check_pairs(
    inputs: Sequence[ParallelInput],
    segmenter: Segmenter,
    against: Iterable[TextPair] | None = None,
    advance: Callable[[float], None] = lambda size: None,
) -> PairReport:
    """A report on parallel files, and on the overlap with test pairs; `advance` is called with the bytes read."""
    stats = _PairStats(inputs[0].languages, segmenter, list(against or ()))
    rows = (row for one in inputs for row in one.rows())
    while some := list(islice(rows, _BATCH)):
        stats.add(some)
        advance(sum(len(one.source.encode()) + len(one.target.encode()) for one in some))
    if not stats.pairs:
        raise CorpusError(f"there is no pair in {', '.join(one.title() for one in inputs)}: name other files.")
    encodings = {name: found for one in inputs for name, found in one.encodings().items()}
    return stats.report(encodings)


class _PairStats:
    def __init__(self, columns: tuple[str, str], segmenter: Segmenter, test: list[TextPair]) -> None:
        self.columns, self._segmenter = columns, segmenter
        self.pairs = self.duplicates = self.repeated = self.identical = 0
        self.lengths: tuple[Counter[int], Counter[int]] = (Counter(), Counter())
        self.words = [0, 0]
        self.letters: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
        self.stop_words: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
        self.sizes: list[np.ndarray[Any, Any]] = []
        self._seen, self._seen_sources = HashSet64(), HashSet64()
        self._test = test
        self._leaked: dict[str, set[str]] = {"pairs": set(), "sources": set()}
        self._wanted = {"pairs": {_key(one) for one in test}, "sources": {one.source for one in test}}

    def add(self, some: list[TextPair]) -> None:
        """Add a batch of pairs."""
        self.pairs += len(some)
        for side, texts in enumerate(([one.source for one in some], [one.target for one in some])):
            self.lengths[side].update(map(len, texts))
            split = [split_words(self._segmenter.mark(text)) for text in texts]
            self.words[side] += sum(map(len, split))
            self.letters[side].update(scripts.character_counts("".join(texts)))
            self.stop_words[side].update(scripts.stop_word_counts(word for one in split for word in one))
        self.identical += sum(bool(one.source) and one.source == one.target for one in some)
        self.sizes.append(np.array([[len(one.source), len(one.target)] for one in some], dtype=np.int64))
        self.duplicates += int((~self._seen.add_many(fingerprints(map(_key, some)))).sum())
        self.repeated += int((~self._seen_sources.add_many(fingerprints(one.source for one in some))).sum())
        if self._test:
            self._leaked["pairs"] |= self._wanted["pairs"] & set(map(_key, some))
            self._leaked["sources"] |= self._wanted["sources"] & {one.source for one in some}

    def report(self, encodings: dict[str, str]) -> PairReport:
        """The report on all pairs."""
        sizes = np.concatenate(self.sizes)
        whole = sizes[sizes.min(1) > 0]
        ratios = whole[:, 1] / whole[:, 0]
        overlap = {
            what: sum((_key(one) if what == "pairs" else one.source) in found for one in self._test) / len(self._test)
            for what, found in (self._leaked.items() if self._test else ())
        }
        return PairReport(
            pairs=self.pairs,
            columns=self.columns,
            words=self._by_column(self.words),
            characters=self._by_column(sizes.sum(0).tolist()),
            languages=self._by_column(
                [
                    scripts.language_fractions(letters, stop_words)
                    for letters, stop_words in zip(self.letters, self.stop_words, strict=True)
                ]
            ),
            lengths=self._by_column([summarise_lengths(one) for one in self.lengths]),
            ratios=_percentiles(ratios),
            empty=self._by_column([one[0] for one in self.lengths]),
            duplicates=self.duplicates / self.pairs,
            repeated_sources=self.repeated / self.pairs,
            identical=self.identical / self.pairs,
            encodings=encodings,
            overlap=overlap or None,
            problems=tuple(self._problems(whole, ratios, overlap)),
        )

    def _by_column(self, values: Sequence[Any]) -> dict[str, Any]:
        return dict(zip(self.columns, values, strict=True))

    def _problems(self, whole: Any, ratios: Any, overlap: dict[str, float]) -> Iterator[Problem]:
        median = float(np.median(ratios)) if len(ratios) else 1.0
        differs = np.abs(whole[:, 1] - median * whole[:, 0]) > _SHORT
        unlikely = int((differs & ((ratios > _UNLIKELY * median) | (ratios < median / _UNLIKELY))).sum())
        candidates = [
            ("few-pairs", self.pairs if self.pairs < _MIN_PAIRS else 0, 1, 0.0),
            ("empty-sides", self.pairs - len(whole), self.pairs, 0.0),
            ("duplicate-pairs", self.duplicates, self.pairs, 0.01),
            ("identical-sides", self.identical, self.pairs, 0.01),
            ("unlikely-lengths", unlikely, self.pairs, 0.001),
        ]
        for what, share in overlap.items():
            found = round(share * len(self._test))
            candidates.append((f"leaked-{what}", found, len(self._test), 0.01 if what == "sources" else 0.0))
        for what, count, total, threshold in candidates:
            if count and count / total >= threshold:
                amount = f"{count:,} of {total:,} ({count / total:.1%})"
                yield Problem(what, _MESSAGES[what].format(count=f"{count:,}", amount=amount), count)


def _key(pair: TextPair) -> str:
    return f"{pair.source}\t{pair.target}"


def _percentiles(values: Any) -> dict[str, float]:
    if not len(values):
        return {}
    points = np.percentile(values, (5, 50, 95)).tolist()
    return {
        "mean": float(values.mean()),
        **dict(zip(("p5", "p50", "p95"), points, strict=True)),
        "max": float(values.max()),
    }
