"""Sentence vectors: transfer to classification by logistic regression, and similarity, as in SentEval.

Files decide what is measured: a text with a label is classified, two texts with a label by the differences and products
of their vectors, and two texts with a score are compared by the cosine, or the angle if the model is made for that.
`X.train.tsv` and `X.test.tsv` (or `dev`) belong together; a file alone is cross-validated.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from firth.abilities import HasLayers
from firth.apply.embed import require_embeds, text_vectors
from firth.apply.similarity import text_similarities
from firth.errors import ArgumentError, CorpusError
from firth.metrics.measure import measure
from firth.progress import progress
from firth.report.suites import WILSON, fit_predict, wilson
from firth.tasks.examples import TextExample, numeric_labels
from firth.tasks.readers.reader import parse_columns, read_task
from firth.text.files import find_files
from firth.text.readers import read_lines

Vectors = Any
"""(texts, dimension): an array, or a sparse matrix."""
_FOLDS = 10
_STRENGTHS = (0.01, 0.1, 1.0)  # of the regression: inverse weights of the squared norm
_RANDOM_PAIRS = 10_000
_PART = re.compile(r"\.(train|dev|valid|test)(?=\.|$)")
_TINY = 1e-12


class SentenceSet(NamedTuple):
    """A dataset: its files by part, and what its columns hold."""

    name: str
    parts: dict[str, Path]
    is_pair: bool
    has_label: bool
    has_score: bool

    @property
    def tested(self) -> str | None:
        """The part that is tested after training on another one; None to cross-validate the only file."""
        return next((part for part in ("test", "dev", "valid") if part in self.parts and "train" in self.parts), None)


def evaluate_sentences(model: Any, files: Sequence[Path], **options: Any) -> dict[str, Any]:
    """The metrics of each dataset of the files, their means, and how alike the vectors of random texts are.

    `options` are those of `NetModel.embed`.
    """
    require_embeds(model)
    sets = group_files(files)
    embedder = _Embedder(model, options)
    found: dict[str, Any] = {}
    for one in sets:
        found[one.name] = {}
        if one.has_label:
            found[one.name] |= _classify(one, embedder)
        if one.has_score:
            found[one.name] |= _compare(one, embedder)
    report: dict[str, Any] = {"sets": found}
    for metric, name in (("accuracy", "mean_accuracy"), ("spearman", "mean_spearman")):
        known = [one[metric] for one in found.values() if metric in one]
        report |= {name: float(np.mean(known))} if known else {}
    return report | {"mean_cosine": embedder.mean_cosine(), "interval": WILSON}


def group_files(files: Sequence[Path]) -> list[SentenceSet]:
    """The datasets of files, which are grouped by their names.

    >>> _PART.sub("", "trec.train.tsv.gz"), _PART.sub("", "trec.test.tsv")
    ('trec.tsv.gz', 'trec.tsv')
    """
    groups: dict[str, dict[str, Path]] = {}
    for path in files:
        part = _PART.search(path.name)
        stem = _PART.sub("", path.name).split(".")[0]
        parts = groups.setdefault(stem, {})
        key = part.group(1) if part else "all"
        if key in parts:
            raise ArgumentError(f"{path} and {parts[key]} are both the part {key} of {stem}: name one of them.")
        parts[key] = path
    return [_read_header(name, parts) for name, parts in groups.items()]


def _read_header(name: str, parts: dict[str, Path]) -> SentenceSet:
    path = next(iter(parts.values()))
    (file,) = find_files([str(path)])
    columns = {one.strip().strip('"') for one in re.split(r"[\t,]", next(read_lines(file), (0, ""))[1])}
    has_score = "score" in columns and "text_b" in columns
    is_pair = "text_b" in columns
    return SentenceSet(name, parts, is_pair, "label" in columns or not is_pair, has_score)


class _Embedder:
    """The vectors of texts, each computed once for all datasets of a file."""

    def __init__(self, model: Any, options: Mapping[str, Any]) -> None:
        self.model, self.options = model, options
        self._sample: list[Vectors] = []

    def __call__(self, texts: Sequence[str]) -> Vectors:
        distinct = list(dict.fromkeys(texts))
        if isinstance(self.model, HasLayers):
            rows: Vectors = text_vectors(self.model, distinct, **self.options)[0]
        else:
            rows = require_embeds(self.model).embed(distinct)
        self._sample.append(rows[: _RANDOM_PAIRS // 4])
        number = {text: index for index, text in enumerate(distinct)}
        return rows[np.array([number[text] for text in texts])]

    def mean_cosine(self) -> float:
        """The mean cosine of random pairs of texts: near 0 if vectors point everywhere, near 1 in a narrow cone."""
        rng, total, count = np.random.default_rng(0), 0.0, 0
        for rows in self._sample:
            one, two = rng.integers(0, rows.shape[0], (2, _RANDOM_PAIRS))
            kept = one != two
            if kept.any():
                total, count = total + float(cosines(rows[one[kept]], rows[two[kept]]).sum()), count + int(kept.sum())
        return total / max(count, 1)


def cosines(one: Vectors, two: Vectors) -> npt.NDArray[np.float64]:
    """The cosine of each pair of rows; 0 for zero vectors.

    >>> cosines(np.array([[1.0, 0.0], [0.0, 0.0]]), np.array([[1.0, 1.0], [1.0, 0.0]])).round(4).tolist()
    [0.7071, 0.0]
    """
    if isinstance(one, np.ndarray):
        one, two = one.astype(np.float64), two.astype(np.float64)
        products, norms = (one * two).sum(1), np.linalg.norm(one, axis=1) * np.linalg.norm(two, axis=1)
    else:
        products = np.asarray(one.multiply(two).sum(1)).ravel()
        norms = np.sqrt(np.asarray(one.multiply(one).sum(1)) * np.asarray(two.multiply(two).sum(1))).ravel()
    return np.asarray(products / np.maximum(norms, _TINY))


def _read(one: SentenceSet, part: str, column: str) -> list[TextExample]:
    """The examples of a part with the labels of a column."""
    columns = parse_columns([f"label={column}"] if one.is_pair else [])
    reader = read_task("pair" if one.is_pair else "classify", one.parts[part], columns=columns)
    return [example for example in reader if isinstance(example, TextExample)]


def _classify(one: SentenceSet, embedder: _Embedder) -> dict[str, Any]:
    """The accuracy of a logistic regression."""
    train = _read(one, "train" if one.tested else next(iter(one.parts)), "label")
    labels, vectors = _labels_of(train), _features(one, train, embedder)
    if len(set(labels)) < 2:
        raise CorpusError(f"{one.name} has one label only: give examples of two or more.")
    if one.tested:
        tests = _read(one, one.tested, "label")
        gold = _labels_of(tests)
        predicted = fit_predict(vectors, labels, _features(one, tests, embedder), best_strength(vectors, labels))
    else:
        gold, predicted = labels, _cross_validate(one.name, vectors, labels)
    correct = int((predicted == gold).sum())
    names, counts = np.unique(labels, return_counts=True)
    return {
        "accuracy": correct / len(gold),
        "accuracy_interval": wilson(correct, len(gold)),
        "majority": float(np.mean(gold == names[counts.argmax()])),
        "examples": len(gold),
        "folds": None if one.tested else _FOLDS,
    }


def _labels_of(examples: Sequence[TextExample]) -> npt.NDArray[Any]:
    return np.array([(example.labels or ("",))[0] for example in examples])


def _features(one: SentenceSet, examples: Sequence[TextExample], embedder: _Embedder) -> Vectors:
    """The vectors of texts, or |u - v| and u v of pairs (Tai et al. 2015)."""
    first = embedder([example.text for example in examples])
    if not one.is_pair:
        return first
    second = embedder([example.other or "" for example in examples])
    if isinstance(first, np.ndarray):
        return np.hstack([np.abs(first - second), first * second])
    from scipy.sparse import hstack  # type: ignore[import-untyped]

    return hstack([abs(first - second), first.multiply(second)], format="csr")


def _cross_validate(name: str, vectors: Vectors, labels: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The predictions of ten folds; the strength of the regression is chosen on the first."""
    from sklearn.model_selection import StratifiedKFold

    if np.unique(labels, return_counts=True)[1].min() < _FOLDS:
        raise CorpusError(f"a label of {name} has fewer than {_FOLDS} texts: give more, or files for train and test.")
    predicted, strength = np.empty_like(labels), None
    folds = StratifiedKFold(_FOLDS, shuffle=True, random_state=0).split(labels, labels)
    with progress(f"classifying {name}", _FOLDS, "folds") as advance:
        for train, held_out in folds:
            strength = strength or best_strength(vectors[train], labels[train])
            predicted[held_out] = fit_predict(vectors[train], labels[train], vectors[held_out], strength)
            advance(1)
    return predicted


def best_strength(vectors: Vectors, labels: npt.NDArray[Any]) -> float:
    """The strength of the regression with the highest accuracy on a tenth of the examples."""
    order = np.random.default_rng(0).permutation(len(labels))
    held, kept = order[: max(1, len(order) // 10)], order[max(1, len(order) // 10) :]
    if len(set(labels[kept])) < 2:
        return _STRENGTHS[-1]
    accuracies = [
        float((fit_predict(vectors[kept], labels[kept], vectors[held], one) == labels[held]).mean())
        for one in _STRENGTHS
    ]
    return _STRENGTHS[int(np.argmax(accuracies))]


def _compare(given: SentenceSet, embedder: _Embedder) -> dict[str, Any]:
    """The correlation of cosines with human scores, of the vectors as they are and after the remedies."""
    examples = _read(given, given.tested or next(iter(given.parts)), "score")
    gold = numeric_labels(examples)
    first, second = embedder([one.text for one in examples]), embedder([one.other or "" for one in examples])
    found = measure("similarity", gold, text_similarities(embedder.model, cosines(first, second)).tolist())
    kept = ("spearman", "spearman_interval", "pearson", "pearson_interval")
    report: dict[str, Any] = {name: found[name] for name in kept} | {"pairs": len(gold)}
    if isinstance(first, np.ndarray):
        report["remedies"] = {
            name: measure("similarity", gold, cosines(*remedy(first, second)).tolist())["spearman"]
            for name, remedy in REMEDIES.items()
        }
    return report


def without_first_component(*sides: npt.NDArray[Any]) -> list[npt.NDArray[np.float64]]:
    """Vectors less their mean and their first principal component (Arora et al. 2017; Mu and Viswanath 2018)."""
    rows = np.vstack(sides).astype(np.float64)
    mean = rows.mean(0)
    direction = np.linalg.svd(rows - mean, full_matrices=False)[2][0]
    return [side - mean - ((side - mean) @ direction)[:, None] * direction for side in sides]


def whitened(*sides: npt.NDArray[Any]) -> list[npt.NDArray[np.float64]]:
    """Vectors of which the covariance is the identity (Su et al. 2021)."""
    rows = np.vstack(sides).astype(np.float64)
    mean = rows.mean(0)
    values, directions = np.linalg.eigh(np.cov(rows - mean, rowvar=False))
    kept = values > 1e-6 * values[-1]
    scale = directions[:, kept] / np.sqrt(values[kept])
    return [(side - mean) @ scale for side in sides]


REMEDIES = {"first_component_off": without_first_component, "whitened": whitened}
