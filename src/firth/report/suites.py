"""Evaluation of vectors: word pairs, analogies, words in context, and a linear probe on texts.

Every result comes with its coverage of the file, a 95% interval, and the missing words.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from firth.abilities import HasSenses, HasVectors
from firth.apply.embed import require_embeds
from firth.apply.similar import require_dense_vectors, require_method, require_vectors
from firth.errors import AbilityError, CorpusError
from firth.report.suite_files import WordPair, read_contexts, read_labelled, read_pairs, read_questions, strip_tags

_Z = 1.959963984540054  # of a 95% interval
_FOLDS = 5
FISHER = "Fisher's z with the variance of Bonett and Wright (2000), 95%"
WILSON = "Wilson, 95%"


def evaluate_words(model: Any, files: Sequence[Path]) -> dict[str, Any]:
    """Spearman's correlation of the model's similarities with human ratings of word pairs."""
    vectors = require_vectors(model)
    find = WordFinder(vectors)
    return _over_files(files, lambda path: _correlate(read_pairs(path), vectors, find))


def evaluate_contexts(model: Any, files: Sequence[Path]) -> dict[str, Any]:
    """The same for words in context (SCWS): by the words alone, and by their senses where a model has several."""
    vectors = require_vectors(model)
    find = WordFinder(vectors)

    def evaluate(path: Path) -> dict[str, Any]:
        pairs = read_contexts(path)
        report = _correlate(pairs, vectors, find) | {"measure": "AvgSim"}
        return report | (_correlate_senses(pairs, vectors, find) if isinstance(vectors, HasSenses) else {})

    return _over_files(files, evaluate)


def _correlate(pairs: Sequence[WordPair], model: HasVectors, find: WordFinder) -> dict[str, Any]:
    words = [(find(pair.one), find(pair.two)) for pair in pairs]
    is_covered = np.array([one is not None and two is not None for one, two in words])
    predicted = np.array([model.similarity(one, two) for one, two in words if one is not None and two is not None])
    gold = np.array([pair.score for pair in pairs])
    report = {"pairs": len(pairs), "covered": len(predicted)} | correlation(predicted, gold[is_covered])
    filled = np.full(len(pairs), predicted.mean() if len(predicted) else 0.0)  # missing words: the mean similarity
    filled[is_covered] = predicted
    missing = sorted({word for pair in pairs for word in (pair.one, pair.two) if find(word) is None})
    return report | {"spearman_all": correlation(filled, gold)["spearman"], "missing": missing}


def _correlate_senses(pairs: Sequence[WordPair], model: HasSenses, find: WordFinder) -> dict[str, Any]:
    """The correlation of the similarities of senses, which are selected by the contexts."""
    predicted, gold = [], []
    for pair in pairs:
        one, two = find(pair.one), find(pair.two)
        if one is None or two is None or pair.contexts is None:
            continue
        first, second = map(strip_tags, pair.contexts)
        words = (one, first, two, second)
        predicted.append((model.similarity_in_context(*words), model.max_similarity_in_context(*words)))
        gold.append(pair.score)
    report: dict[str, Any] = {}
    for name, values in zip(("AvgSimC", "MaxSimC"), zip(*predicted, strict=True), strict=False):
        found = correlation(np.array(values), np.array(gold))
        report |= {f"spearman_{name}": found["spearman"], f"spearman_{name}_interval": found["spearman_interval"]}
    return report


def correlation(predicted: npt.NDArray[Any], gold: npt.NDArray[Any]) -> dict[str, Any]:
    """Spearman's correlation, ties having their mean rank, with its interval; None where it is not defined.

    >>> round(correlation(np.array([1.0, 2.0, 2.0, 3.0]), np.array([1, 2, 3, 4]))["spearman"], 4)
    0.9487
    """
    from scipy.stats import spearmanr  # type: ignore[import-untyped]

    report: dict[str, Any] = {"spearman": None, "spearman_interval": None, "interval": FISHER}
    report |= {"ties": _count_ties(predicted), "ties_of_people": _count_ties(gold)}
    if len(predicted) < 2 or np.ptp(predicted) == 0 or np.ptp(gold) == 0:
        return report | {"note": "no ranking can be compared: there are fewer than two pairs, or all are equal"}
    value = float(spearmanr(predicted, gold).statistic)
    report["spearman"] = value
    if len(predicted) > 3:
        margin = _Z * math.sqrt((1 + value**2 / 2) / (len(predicted) - 3))
        middle = math.atanh(min(max(value, -1 + 1e-15), 1 - 1e-15))
        report["spearman_interval"] = [math.tanh(middle - margin), math.tanh(middle + margin)]
    return report


def _count_ties(values: npt.NDArray[Any]) -> int:
    _, counts = np.unique(values, return_counts=True)
    return int(counts[counts > 1].sum())


def evaluate_analogies(
    model: Any, files: Sequence[Path], method: str = "add", restrict: int = 300_000
) -> dict[str, Any]:
    """The accuracy of "a is to b as c is to ?", with answers from the `restrict` most frequent words.

    Case is ignored, and no word of the question is an answer to it.
    """
    require_method(method)
    vectors = require_dense_vectors(model, "analogies")
    questions = [question for path in files for question in read_questions(path)]
    among = rows_by_frequency(vectors, restrict)
    folded, row_of = _fold_case(vectors.names if isinstance(vectors, HasSenses) else vectors.words, among)
    rows = np.array([[row_of.get(word.upper(), -1) for word in question.words] for question in questions])
    covered = np.all(rows >= 0, axis=1)
    correct = np.zeros(len(questions), dtype=np.bool_)
    if covered.any():
        answers = vectors.answers(np.ascontiguousarray(rows[covered, :3]), folded, among, cast(Any, method))
        correct[covered] = (answers >= 0) & (folded[answers] == folded[rows[covered, 3]])
    sections: dict[str, list[int]] = {}
    for number, question in enumerate(questions):
        sections.setdefault(question.section, []).append(number)
    return _accuracy(correct, covered) | {
        "accuracy_interval": wilson(int(correct.sum()), int(covered.sum())),
        "interval": WILSON,
        "accuracy_all": float(correct.mean()),
        "method": method,
        "restrict": restrict,
        "sections": {name: _accuracy(correct[chosen], covered[chosen]) for name, chosen in sections.items()},
        "missing": sorted({word for question in questions for word in question.words if word.upper() not in row_of}),
    }


def rows_by_frequency(model: HasVectors, count: int) -> npt.NDArray[np.int64]:
    """The rows of the most frequent words, most frequent first; in the order of rows where counts are not known."""
    from firth.tokens.tokenizer import FIRST_WORD

    rows = np.arange(FIRST_WORD, len(model.words))
    if model.counts is not None:
        rows = rows[np.argsort(-model.counts[FIRST_WORD:], kind="stable")]
    return rows[:count]


def _fold_case(words: Sequence[str], rows: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], dict[str, int]]:
    """For each row the most frequent one that differs in case alone, and that row by its word in upper case."""
    row_of: dict[str, int] = {}
    folded = np.full(len(words), -1, dtype=np.int64)
    for row in rows.tolist():
        folded[row] = row_of.setdefault(words[row].upper(), row)
    return folded, row_of


def _accuracy(correct: npt.NDArray[np.bool_], covered: npt.NDArray[np.bool_]) -> dict[str, Any]:
    known = int(covered.sum())
    accuracy = float(correct.sum() / known) if known else None
    return {"accuracy": accuracy, "questions": len(covered), "covered": known}


def wilson(successes: float, total: int) -> list[float] | None:
    """The interval of a proportion of successes (Wilson 1927).

    >>> [round(bound, 4) for bound in wilson(5, 10)]
    [0.2366, 0.7634]
    """
    if not total:
        return None
    proportion, spread = successes / total, _Z**2 / total
    middle = proportion + spread / 2
    margin = math.sqrt(proportion * (1 - proportion) * spread + spread**2 / 4)
    return [max(0.0, (middle - margin) / (1 + spread)), min(1.0, (middle + margin) / (1 + spread))]


def evaluate_probe(model: Any, files: Sequence[Path]) -> dict[str, Any]:
    """The accuracy of a linear classifier of the vectors of texts.

    One file is cross-validated; of two, the first is for training and the second for testing.
    """
    from sklearn.metrics import f1_score
    from sklearn.model_selection import StratifiedKFold

    embedder = require_embeds(model)
    if len(files) > 2:
        raise CorpusError("a probe takes one file, or one for training and one for testing.")
    (train_labels, train_texts), *test = map(read_labelled, files)
    labels = np.array(train_labels)
    names, counts = np.unique(labels, return_counts=True)
    if len(counts) < 2:
        raise CorpusError(f"{files[0]} has one label only: a probe needs two or more.")
    if not test and counts.min() < _FOLDS:
        raise CorpusError(
            f"a label of {files[0]} has fewer than {_FOLDS} texts: give more, or a second file to test on."
        )
    vectors = embedder.embed(train_texts)
    if test:
        gold = np.array(test[0][0])
        predicted = fit_predict(vectors, labels, embedder.embed(test[0][1]))
    else:
        gold, predicted = labels, np.empty_like(labels)
        for train, held_out in StratifiedKFold(_FOLDS, shuffle=True, random_state=0).split(labels, labels):
            predicted[held_out] = fit_predict(vectors[train], labels[train], vectors[held_out])
    correct = int((predicted == gold).sum())
    return {
        "accuracy": correct / len(gold),
        "accuracy_interval": wilson(correct, len(gold)),
        "interval": WILSON,
        "macro_f1": float(f1_score(gold, predicted, average="macro", zero_division=0)),
        "majority": float(np.mean(gold == names[counts.argmax()])),
        "classes": len(names),
        "rows": len(labels),
        "tested": len(gold),
        "folds": None if test else _FOLDS,
    }


def fit_predict(vectors: Any, labels: npt.NDArray[Any], tested: Any, strength: float = 1.0) -> npt.NDArray[Any]:
    """The predictions of a logistic regression on standardised features; `strength` is the inverse of its penalty."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    is_dense = isinstance(vectors, np.ndarray)
    classifier = make_pipeline(StandardScaler(with_mean=is_dense), LogisticRegression(C=strength, max_iter=300))
    with warnings.catch_warnings(), threadpool_limits(limits=1, user_api="blas"):  # the same bits on any machine
        warnings.simplefilter("ignore", ConvergenceWarning)  # a nearly converged probe is good enough
        classifier.fit(vectors, labels)
        predicted: npt.NDArray[Any] = classifier.predict(tested)
    return predicted


class WordFinder:
    """Maps a word to the model's form of it: as given, or in another case; None if the model has neither."""

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
                self._folded = _fold_case(self.model.words, rows_by_frequency(self.model, len(self.model.words)))[1]
            row = self._folded.get(word.upper())
            return None if row is None else self.model.words[row]
        return word


def _over_files(files: Sequence[Path], evaluate: Callable[[Path], dict[str, Any]]) -> dict[str, Any]:
    """The report of one file; of several, pairs are added up and the correlations averaged."""
    reports: list[dict[str, Any]] = [{"file": str(path)} | evaluate(path) for path in files]
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
