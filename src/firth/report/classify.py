"""Measuring a classifier on labelled texts: accuracy and F1, each with an interval of 95%, and a table by label."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from firth.apply.predict import predict_file, require_predicts
from firth.report.suites import WILSON, wilson

_SAMPLES = 1000
_MOST_PAIRS = 20_000  # of labels, beyond which resampling takes too long
Cells = dict[tuple[str, str], int]
"""How often a text of one label was given another."""


def evaluate_labels(model: Any, files: Sequence[Path]) -> dict[str, Any]:
    """How often the likeliest label is right; of a text with several labels, any of them is."""
    predictor = require_predicts(model)
    cells: Counter[tuple[str, str]] = Counter()
    for path in files:
        for example, best in predict_file(predictor, path, labelled=True):
            labels, given = example.labels or ("",), best[0][0]
            cells[given if given in labels else labels[0], given] += 1
    total = sum(cells.values())
    right = sum(count for (gold, given), count in cells.items() if gold == given)
    table = label_table(cells)
    unknown = sorted({gold for gold, _ in cells} - set(predictor.labels))
    return {
        "accuracy": right / total,
        "accuracy_interval": wilson(right, total),
        "interval": f"{WILSON}; of macro_f1, {_SAMPLES} samples of the texts",
        "macro_f1": float(np.mean([row["f1"] for row in table.values()])),
        "macro_f1_interval": macro_f1_interval(cells),
        "examples": total,
        "majority": max(row["examples"] for row in table.values()) / total,
        "classes": sum(row["examples"] > 0 for row in table.values()),
        "labels": table,
    } | ({"unknown_labels": unknown} if unknown else {})


def label_table(cells: Cells) -> dict[str, dict[str, Any]]:
    """Precision, recall and F1 of each label that is right or was given, the most frequent first.

    >>> label_table({("a", "a"): 3, ("a", "b"): 1, ("b", "b"): 1})["b"]
    {'precision': 0.5, 'recall': 1.0, 'f1': 0.6666666666666666, 'examples': 1}
    """
    gold, given = Counter[str](), Counter[str]()
    for (one, other), count in cells.items():
        gold[one] += count
        given[other] += count
    table = {}
    for label in sorted({*gold, *given}, key=lambda name: (-gold[name], name)):
        right = cells.get((label, label), 0)
        table[label] = {
            "precision": right / given[label] if given[label] else 0.0,
            "recall": right / gold[label] if gold[label] else 0.0,
            "f1": 2 * right / (gold[label] + given[label]),
            "examples": gold[label],
        }
    return table


def macro_f1_interval(cells: Cells) -> list[float] | None:
    """Between which values 95% of the F1s lie if texts are drawn again; None where there are too many labels."""
    if len(cells) > _MOST_PAIRS:
        return None
    pairs = sorted(cells)
    counts = np.array([cells[pair] for pair in pairs])
    names = sorted({label for pair in pairs for label in pair})
    places = {name: place for place, name in enumerate(names)}
    gold, given = (np.array([places[pair[side]] for pair in pairs]) for side in range(2))
    drawn = np.random.default_rng(0).multinomial(int(counts.sum()), counts / counts.sum(), size=_SAMPLES)
    values = [_macro_f1(sample, gold, given, len(names)) for sample in drawn]
    low, high = np.quantile(values, [0.025, 0.975])
    return [float(low), float(high)]


def _macro_f1(counts: npt.NDArray[Any], gold: npt.NDArray[Any], given: npt.NDArray[Any], labels: int) -> float:
    """The mean F1 of the labels that are right or were given."""
    right = np.bincount(gold[gold == given], counts[gold == given], minlength=labels)
    both = np.bincount(gold, counts, minlength=labels) + np.bincount(given, counts, minlength=labels)
    return float(np.mean(2 * right[both > 0] / both[both > 0]))
