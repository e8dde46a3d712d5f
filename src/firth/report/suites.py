"""Measuring vectors: word pairs, analogies, words in context, and a linear probe on texts.

Every measure comes with how much of the file it covers, an interval of 95%, and the words that are missing.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from firth.abilities import HasVectors
from firth.apply.embed import require_embeds
from firth.apply.similar import require_vectors
from firth.errors import AbilityError, CorpusError
from firth.report.suite_files import (
    Labelled,
    Pair,
    Question,
    read_contexts,
    read_labelled,
    read_pairs,
    read_questions,
    unmarked,
)

_Z = 1.959963984540054  # of an interval of 95%
_FOLDS = 5
FISHER = "Fisher's z with the variance of Bonett and Wright (2000), 95%"
WILSON = "Wilson, 95%"


def evaluate_words(model: Any, files: Sequence[Path]) -> dict[str, Any]:
    """How well similarities rank pairs of words as people do: Spearman's correlation."""
    vectors = require_vectors(model)
    spell = _Spelling(vectors)
    return _over_files(files, lambda path: _rank(read_pairs(path), vectors, spell))


def evaluate_contexts(model: Any, files: Sequence[Path]) -> dict[str, Any]:
    """The same for words in context (SCWS): by the words alone, and by their senses where a model has several."""
    vectors = require_vectors(model)
    spell = _Spelling(vectors)

    def measure(path: Path) -> dict[str, Any]:
        pairs = read_contexts(path)
        report = _rank(pairs, vectors, spell) | {"measure": "AvgSim"}
        return report | (_in_context(pairs, model, spell) if hasattr(model, "similarity_in_context") else {})

    return _over_files(files, measure)


def _rank(pairs: Sequence[Pair], model: HasVectors, spell: _Spelling) -> dict[str, Any]:
    """The correlation of a model's similarities with the scores of pairs."""
    known = [(pair, spell(pair.one), spell(pair.two)) for pair in pairs]
    covered = [(pair, one, two) for pair, one, two in known if one is not None and two is not None]
    ours = np.array([model.similarity(one, two) for _, one, two in covered])
    gold = np.array([pair.score for pair, _, _ in covered])
    report = {"pairs": len(pairs), "covered": len(covered)} | correlation(ours, gold)
    filled = np.full(len(pairs), ours.mean() if len(ours) else 0.0)
    filled[[one is not None and two is not None for _, one, two in known]] = ours
    whole = correlation(filled, np.array([pair.score for pair in pairs]))
    return report | {"spearman_all": whole["spearman"], "missing": _missing(spell, pairs)}


def _in_context(pairs: Sequence[Pair], model: Any, spell: _Spelling) -> dict[str, Any]:
    """The correlation of similarities of senses, which are chosen by the contexts."""
    ours, gold = [], []
    for pair in pairs:
        one, two = spell(pair.one), spell(pair.two)
        if one is None or two is None or pair.contexts is None:
            continue
        before, after = (unmarked(context) for context in pair.contexts)
        asked = (one, before, two, after)
        both = model.similarity_in_context(*asked), model.max_similarity_in_context(*asked)
        ours.append({"AvgSimC": both[0], "MaxSimC": both[1]})
        gold.append(pair.score)
    report: dict[str, Any] = {}
    for name in ours[0] if ours else ():
        measured = correlation(np.array([one[name] for one in ours]), np.array(gold))
        report |= {f"spearman_{name}": measured["spearman"], f"spearman_{name}_interval": measured["spearman_interval"]}
    return report


def correlation(ours: npt.NDArray[Any], gold: npt.NDArray[Any]) -> dict[str, Any]:
    """Spearman's correlation, ties sharing their mean rank, with its interval; null where it is not defined.

    >>> round(correlation(np.array([1.0, 2.0, 2.0, 3.0]), np.array([1, 2, 3, 4]))["spearman"], 4)
    0.9487
    """
    from scipy.stats import spearmanr  # type: ignore[import-untyped]

    report: dict[str, Any] = {"spearman": None, "spearman_interval": None, "interval": FISHER}
    report |= {"ties": _tied(ours), "ties_of_people": _tied(gold)}
    if len(ours) < 2 or np.ptp(ours) == 0 or np.ptp(gold) == 0:
        return report | {"note": "no ranking can be compared: there are fewer than two pairs, or all are equal"}
    value = float(spearmanr(ours, gold).statistic)
    report["spearman"] = value
    if len(ours) > 3:
        error = _Z * math.sqrt((1 + value**2 / 2) / (len(ours) - 3))
        middle = math.atanh(min(max(value, -1 + 1e-15), 1 - 1e-15))
        report["spearman_interval"] = [math.tanh(middle - error), math.tanh(middle + error)]
    return report


def _tied(values: npt.NDArray[Any]) -> int:
    """How many share their value with another."""
    _, counts = np.unique(values, return_counts=True)
    return int(counts[counts > 1].sum())


def evaluate_analogies(
    model: Any, files: Sequence[Path], method: str = "add", restrict: int = 300_000
) -> dict[str, Any]:
    """How often "a is to b as c is to what" is answered right, among the `restrict` most frequent words.

    Case makes no difference, and no word of the question is an answer to it.
    """
    require_vectors(model)
    if not hasattr(model, "answers"):
        raise AbilityError(f"a {type(model).__name__} answers no analogies: use dense vectors, such as skipgram.")
    if method not in ("add", "mul"):
        raise AbilityError(f"there is no method {method!r} for analogies: choose add or mul.")
    questions = [question for path in files for question in read_questions(path)]
    among = frequent_rows(model, restrict)
    kinds, place = _fold_case(getattr(model, "names", model.words), among)
    asked = np.array([[place.get(word.upper(), -1) for word in question.words] for question in questions])
    covered = np.all(asked >= 0, axis=1)
    right = np.zeros(len(questions), dtype=np.bool_)
    if covered.any():
        answers = model.answers(np.ascontiguousarray(asked[covered, :3]), kinds, among, method)
        right[covered] = (answers >= 0) & (kinds[answers] == kinds[asked[covered, 3]])
    missing = {word for question in questions for word in question.words if word.upper() not in place}
    sections = {name: _accuracy(right[chosen], covered[chosen]) for name, chosen in _sections(questions).items()}
    whole = _accuracy(right, covered)
    return whole | {
        "accuracy_interval": wilson(int(right.sum()), int(covered.sum())),
        "interval": WILSON,
        "accuracy_all": float(right.mean()),
        "method": method,
        "restrict": restrict,
        "sections": sections,
        "missing": sorted(missing),
    }


def frequent_rows(model: Any, count: int) -> npt.NDArray[np.int64]:
    """The rows of the most frequent words, most frequent first; in the order of rows where counts are not known."""
    from firth.vectors.text import FIRST_WORD

    counts = getattr(model, "counts", None)
    rows = np.arange(FIRST_WORD, len(model.words))
    if counts is not None:
        rows = rows[np.argsort(-counts[FIRST_WORD:], kind="stable")]
    return rows[:count]


def _fold_case(words: Sequence[str], rows: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], dict[str, int]]:
    """For each row the most frequent one that differs in case alone, and that row by its word in upper case."""
    place: dict[str, int] = {}
    kinds = np.full(len(words), -1, dtype=np.int64)
    for row in rows.tolist():
        kinds[row] = place.setdefault(words[row].upper(), row)
    return kinds, place


def _sections(questions: Sequence[Question]) -> dict[str, list[int]]:
    sections: dict[str, list[int]] = {}
    for number, question in enumerate(questions):
        sections.setdefault(question.section, []).append(number)
    return sections


def _accuracy(right: npt.NDArray[np.bool_], covered: npt.NDArray[np.bool_]) -> dict[str, Any]:
    known = int(covered.sum())
    accuracy = float(right.sum() / known) if known else None
    return {"accuracy": accuracy, "questions": len(covered), "covered": known}


def wilson(right: int, total: int) -> list[float] | None:
    """The interval of a share of successes (Wilson 1927).

    >>> [round(bound, 4) for bound in wilson(5, 10)]
    [0.2366, 0.7634]
    """
    if not total:
        return None
    share, spread = right / total, _Z**2 / total
    middle = share + spread / 2
    reach = math.sqrt(share * (1 - share) * spread + spread**2 / 4)
    return [max(0.0, (middle - reach) / (1 + spread)), min(1.0, (middle + reach) / (1 + spread))]


def evaluate_probe(model: Any, files: Sequence[Path]) -> dict[str, Any]:
    """How well a linear classifier tells labels from the vectors of texts.

    Of one file in five parts, each tested on what the others teach; a second file is the test for the first.
    """
    embedder = require_embeds(model)
    if len(files) > 2:
        raise CorpusError("a probe takes one file, or one to learn from and one to be tested on.")
    train = read_labelled(files[0])
    test = read_labelled(files[1]) if len(files) == 2 else None
    _check_labels(train, test, files)
    rows = embedder.embed(train.texts)
    labels = np.array(train.labels)
    if test is not None:
        gold = np.array(test.labels)
        predicted = _predict(rows, labels, embedder.embed(test.texts))
        majority = float(np.mean(gold == _commonest(labels)))
    else:
        gold = labels
        predicted, majority = _cross_validate(rows, labels), float(np.mean(gold == _commonest(gold)))
    right = int((predicted == gold).sum())
    return {
        "accuracy": right / len(gold),
        "accuracy_interval": wilson(right, len(gold)),
        "interval": WILSON,
        "macro_f1": _macro_f1(gold, predicted),
        "majority": majority,
        "classes": len(set(train.labels)),
        "rows": len(train.texts),
        "tested": len(gold),
        "folds": None if test is not None else _FOLDS,
    }


def _check_labels(train: Labelled, test: Labelled | None, files: Sequence[Path]) -> None:
    _, counts = np.unique(train.labels, return_counts=True)
    if len(counts) < 2:
        raise CorpusError(f"{files[0]} has one label only: a probe needs two or more.")
    if test is None and counts.min() < _FOLDS:
        raise CorpusError(
            f"a label of {files[0]} has fewer than {_FOLDS} texts: give more, or a second file to test on."
        )


def _commonest(labels: npt.NDArray[Any]) -> Any:
    names, counts = np.unique(labels, return_counts=True)
    return names[counts.argmax()]


def _cross_validate(rows: Any, labels: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The label that is predicted for each row by a classifier that has not seen it."""
    from sklearn.model_selection import StratifiedKFold

    predicted = np.empty_like(labels)
    for train, test in StratifiedKFold(_FOLDS, shuffle=True, random_state=0).split(labels, labels):
        predicted[test] = _predict(rows[train], labels[train], rows[test])
    return predicted


def _predict(rows: Any, labels: npt.NDArray[Any], tested: Any) -> npt.NDArray[Any]:
    """What a logistic regression, learnt from rows of equal spread, says of other rows."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    dense = isinstance(rows, np.ndarray)
    classifier = make_pipeline(StandardScaler(with_mean=dense), LogisticRegression(max_iter=300))
    with warnings.catch_warnings(), threadpool_limits(limits=1, user_api="blas"):  # the same bits on any machine
        warnings.simplefilter("ignore", ConvergenceWarning)  # a probe that is nearly there is good enough
        classifier.fit(rows, labels)
        found: npt.NDArray[Any] = classifier.predict(tested)
    return found


def _macro_f1(gold: npt.NDArray[Any], predicted: npt.NDArray[Any]) -> float:
    from sklearn.metrics import f1_score

    return float(f1_score(gold, predicted, average="macro", zero_division=0))


class _Spelling:
    """Words as a model knows them: as given, or in another case; None if it does not."""

    def __init__(self, model: HasVectors) -> None:
        self.model = model
        self._found: dict[str, str | None] = {}
        self._folded: dict[str, int] | None = None

    def __call__(self, word: str) -> str | None:
        if word not in self._found:
            self._found[word] = self._find(word)
        return self._found[word]

    def _find(self, word: str) -> str | None:
        try:
            self.model.similarity(word, word)
        except AbilityError:
            if self._folded is None:
                self._folded = _fold_case(self.model.words, frequent_rows(self.model, len(self.model.words)))[1]
            row = self._folded.get(word.upper())
            return None if row is None else self.model.words[row]
        return word


def _missing(spell: _Spelling, pairs: Iterable[Pair]) -> list[str]:
    return sorted({word for pair in pairs for word in (pair.one, pair.two) if spell(word) is None})


def _over_files(files: Sequence[Path], measure: Any) -> dict[str, Any]:
    """The report of one file, or of several: pairs add up, and the correlation is the mean of theirs."""
    reports: list[dict[str, Any]] = [{"file": str(path)} | measure(path) for path in files]
    if len(reports) == 1:
        return reports[0]
    defined = [report["spearman"] for report in reports if report["spearman"] is not None]
    return {
        "spearman": float(np.mean(defined)) if defined else None,
        "pairs": sum(report["pairs"] for report in reports),
        "covered": sum(report["covered"] for report in reports),
        "missing": sorted({word for report in reports for word in report["missing"]}),
        "files": reports,
    }
