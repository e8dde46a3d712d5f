"""Words in two contexts: whether they have the same sense (WiC), and how similar they are (SCWS).

A network compares the states of the words in their contexts, vectors with senses the sense that each context selects,
and static vectors the words alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from firth.abilities import HasLayers, HasSenses
from firth.apply.similar import require_vectors
from firth.errors import AbilityError, CorpusError
from firth.report.suite_files import SensePair, find_tagged, is_sense_file, read_contexts, read_senses, strip_tags
from firth.report.suites import WILSON, WordFinder, correlation, evaluate_contexts, wilson

Floats = npt.NDArray[np.float64]
_FOLDS = 5


class Usage(NamedTuple):
    """A word in a text."""

    word: str
    text: str
    begin: int
    end: int


def evaluate_senses(model: Any, files: Sequence[Path], layer: str | int = "last") -> dict[str, Any]:
    """The accuracy of judging that two uses of a word have the same sense, or the correlation of SCWS.

    Uses are judged the same if their similarity is not below a threshold, which is chosen on the first of two files, or
    in one file by cross-validation.
    """
    if not all(map(is_sense_file, files)):
        if len(files) > 1 or is_sense_file(files[0]):
            raise CorpusError("SCWS is evaluated alone: name one file, or files with a column index_a.")
        return _evaluate_scws(model, files[0], layer)
    if len(files) > 2:
        raise CorpusError("senses are of one file, or of one to choose the threshold on and one to test: name these.")
    compare, kind = _comparison(model, layer)
    parts = [read_senses(path) for path in files]
    scores = [_scores(compare, part) for part in parts]
    labels = [np.array([pair.is_same for pair in part]) for part in parts]
    filled = [_filled(one) for one in scores]
    if len(files) == 2:
        threshold = choose_threshold(filled[0], labels[0])
        predicted, method = filled[1] >= threshold, f"chosen on {files[0].name}"
    else:
        predicted, method = _cross_validate(filled[0], labels[0], files[0]), f"cross-validation with {_FOLDS} folds"
        threshold = choose_threshold(filled[0], labels[0])
    gold = labels[-1]
    correct = int((predicted == gold).sum())
    return {
        "accuracy": correct / len(gold),
        "accuracy_interval": wilson(correct, len(gold)),
        "interval": WILSON,
        "majority": float(max(gold.mean(), 1 - gold.mean())),
        "pairs": len(gold),
        "covered": int(np.isfinite(scores[-1]).sum()),
        "compared": kind,
        "threshold": threshold,
        "threshold_by": method,
    }


def _evaluate_scws(model: Any, path: Path, layer: str | int) -> dict[str, Any]:
    """The correlations of words alone and of senses, and that of the states of a network."""
    report = evaluate_contexts(model, [path])
    if not isinstance(model, HasLayers):
        return report
    pairs = read_contexts(path)
    uses = []
    for pair in pairs:
        assert pair.contexts is not None
        uses.append((_tagged(pair.one, pair.contexts[0]), _tagged(pair.two, pair.contexts[1])))
    found = _cosines(model, uses, layer)
    known = np.isfinite(found)
    measured = correlation(found[known], np.array([pair.score for pair in pairs])[known])
    return report | {
        "spearman_contextual": measured["spearman"],
        "spearman_contextual_interval": measured["spearman_interval"],
        "covered_contextual": int(known.sum()),
    }


def _tagged(word: str, context: str) -> Usage:
    begin, end = find_tagged(context)
    return Usage(word, strip_tags(context), begin, end)


Compare = Callable[[Sequence[tuple[Usage, Usage]]], Floats]


def _comparison(model: Any, layer: str | int) -> tuple[Compare, str]:
    """The similarities of pairs of uses by a model, NaN for words that it does not know, and what is compared."""
    if isinstance(model, HasLayers):
        return lambda pairs: _cosines(model, pairs, layer), "states of words in context"
    if layer != "last":
        raise AbilityError("only networks have layers: leave --layer out.")
    vectors = require_vectors(model)
    find = WordFinder(vectors)

    def compare(pairs: Sequence[tuple[Usage, Usage]]) -> Floats:
        found = np.full(len(pairs), np.nan)
        for number, (one, two) in enumerate(pairs):
            words = [find(_form(use)) or find(use.word) for use in (one, two)]
            if words[0] is None or words[1] is None:
                continue
            if isinstance(vectors, HasSenses):
                found[number] = vectors.max_similarity_in_context(words[0], one.text, words[1], two.text)
            else:
                found[number] = vectors.similarity(words[0], words[1])
        return found

    return compare, "senses selected by the contexts" if isinstance(vectors, HasSenses) else "words without context"


def _form(use: Usage) -> str:
    return use.text[use.begin : use.end]


def _cosines(model: Any, pairs: Sequence[tuple[Usage, Usage]], layer: str | int) -> Floats:
    """The cosines of the states of words in their contexts; NaN where a word has no token."""
    from firth.nets.contextual_vectors import range_states

    uses = [use for pair in pairs for use in pair]
    states = range_states(model, [use.text for use in uses], [(use.begin, use.end) for use in uses], layer)
    lengths = np.linalg.norm(states, axis=1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        units = states.astype(np.float64) / lengths
    return np.asarray((units[::2] * units[1::2]).sum(axis=1))


def _scores(compare: Compare, pairs: Sequence[SensePair]) -> Floats:
    return compare(
        [
            (Usage(pair.word, pair.texts[0], *pair.ranges[0]), Usage(pair.word, pair.texts[1], *pair.ranges[1]))
            for pair in pairs
        ]
    )


def _filled(scores: Floats) -> Floats:
    """Scores with the mean where there is none."""
    known = np.isfinite(scores)
    return np.where(known, scores, scores[known].mean() if known.any() else 0.0)


def choose_threshold(scores: Floats, labels: npt.NDArray[np.bool_]) -> float:
    """The threshold from which on a score means true, with most right answers; of several the lowest.

    >>> choose_threshold(np.array([0.1, 0.4, 0.6, 0.9]), np.array([False, True, False, True]))
    0.25
    """
    order = np.argsort(scores, kind="stable")
    ranked, truths = scores[order], labels[order]
    right = np.concatenate([[0], np.cumsum(~truths)]) + np.concatenate([np.cumsum(truths[::-1])[::-1], [0]])
    cuts = np.concatenate([[-np.inf], (ranked[:-1] + ranked[1:]) / 2, [np.inf]])
    possible = np.concatenate([[True], ranked[:-1] < ranked[1:], [True]])  # equal scores are judged alike
    best = float(cuts[int(np.argmax(np.where(possible, right, -1)))])
    if np.isinf(best):
        return float(ranked[0] - 1 if best < 0 else ranked[-1] + 1)
    return best


def _cross_validate(scores: Floats, labels: npt.NDArray[np.bool_], path: Path) -> npt.NDArray[np.bool_]:
    from sklearn.model_selection import StratifiedKFold

    if min(labels.sum(), (~labels).sum()) < _FOLDS:
        raise CorpusError(
            f"{path} has fewer than {_FOLDS} pairs of a label: give a file to choose the threshold on before it."
        )
    predicted = np.zeros(len(labels), dtype=np.bool_)
    for train, held_out in StratifiedKFold(_FOLDS, shuffle=True, random_state=0).split(labels, labels):
        predicted[held_out] = scores[held_out] >= choose_threshold(scores[train], labels[train])
    return predicted
