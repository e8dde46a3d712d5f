"""Minimal pairs: how often a model finds a right sentence more probable than its wrong twin."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from firth.abilities import Score, ScoresFromBothSides
from firth.apply.score import require_scores
from firth.errors import CorpusError
from firth.report.suites import WILSON, wilson
from firth.tasks.readers.records import one_line
from firth.text.files import find_files
from firth.text.readers import read_json_objects

CHANCE = 0.5
_KINDS = {"causal": "log-probability", "pseudo": "pseudo-log-likelihood"}
Floats = npt.NDArray[np.float64]


class MinimalPair(NamedTuple):
    """A right sentence and a wrong one."""

    good: str
    bad: str
    phenomenon: str
    paradigm: str


def evaluate_pairs(model: Any, files: Sequence[Path], floors: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The fraction of pairs whose right sentence has the higher score; a tie counts one half.

    Sentences are compared by the sum of the log-probabilities of their tokens, the characters of unknown words
    included; a network that reads from left to right and from both sides adds those of its two readings. `floors` are
    models that are measured beside it, by name, such as an n-gram model of the same text.
    """
    pairs = [pair for path in files for pair in read_minimal_pairs(path)]
    wins = _wins(model, pairs)
    lengths = np.array([[len(pair.good), len(pair.bad)] for pair in pairs])
    others = {name: _wins(one, pairs).mean() for name, one in (floors or {}).items()}
    report: dict[str, Any] = _accuracy(wins) | {
        "interval": WILSON,
        "score": score_meaning(model),
        "floors": {"chance": CHANCE, "shorter": float(_compare(-lengths).mean()), **others},
    }
    for key, name in (("sections", "phenomenon"), ("by_paradigm", "paradigm")):
        groups = np.array([getattr(pair, name) for pair in pairs])
        names = [one for one in dict.fromkeys(groups.tolist()) if one]
        report[key] = {one: _accuracy(wins[groups == one]) for one in names}
    return report


def score_meaning(model: Any) -> str:
    """What a score of a model is: its own words, or those of its kind."""
    kind = require_scores(model).score_kind
    if kind == "causal" and isinstance(model, ScoresFromBothSides):
        return f"{_KINDS['causal']} + {_KINDS['pseudo']}"
    return str(getattr(model, "score_meaning", _KINDS[kind]))


def read_minimal_pairs(path: Path) -> Iterator[MinimalPair]:
    """The pairs of a JSONL file with `good` and `bad`, and `phenomenon` and `paradigm` if given."""
    found = False
    for source in find_files([path]):
        if source.format != "jsonl":
            raise CorpusError(f'{source.name} is not JSONL: give one object a line, {{"good": "...", "bad": "..."}}.')
        for record, where in read_json_objects(source):
            texts = [record.get(name) for name in ("good", "bad")]
            if not all(isinstance(text, str) and text.strip() for text in texts):
                raise CorpusError(f'{where}: a minimal pair is {{"good": "...", "bad": "..."}} with a text in each.')
            groups = [str(record.get(name) or "") for name in ("phenomenon", "paradigm")]
            found = True
            yield MinimalPair(*(one_line(str(text)) for text in texts), *groups)
    if not found:
        raise CorpusError(f"there are no minimal pairs in {path}: name another file.")


def _wins(model: Any, pairs: Sequence[MinimalPair]) -> Floats:
    """1 for each pair whose right sentence scores higher, 0.5 for a tie, 0 otherwise."""
    texts = [text for pair in pairs for text in (pair.good, pair.bad)]
    values = _log_probabilities(require_scores(model).score(texts))
    if model.score_kind == "causal" and isinstance(model, ScoresFromBothSides):
        values += _log_probabilities(model.pseudo_score(texts))
    return _compare(values.reshape(-1, 2))


def _log_probabilities(scores: Sequence[Score]) -> Floats:
    return np.array([score.logprob + score.spelling for score in scores])


def _compare(values: npt.NDArray[Any]) -> Floats:
    """Of each row, whether the first value is higher.

    >>> _compare(np.array([[2, 1], [1, 1], [0, 1]])).tolist()
    [1.0, 0.5, 0.0]
    """
    return np.asarray((1 + np.sign(values[:, 0] - values[:, 1])) / 2, dtype=np.float64)


def _accuracy(wins: Floats) -> dict[str, Any]:
    return {
        "pairs": len(wins),
        "accuracy": float(wins.mean()),
        "accuracy_interval": wilson(float(wins.sum()), len(wins)),
        "ties": int((wins == CHANCE).sum()),
    }
