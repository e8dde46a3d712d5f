"""Evaluation of a classifier on labelled texts: accuracy and F1, each with a 95% interval, and a table by label."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from firth.apply.predict import ClassifierAdapter, predict_file, require_predicts
from firth.metrics.bootstrap import interval
from firth.metrics.labels import LabelPairs, label_scores, labels_sample, matching_label
from firth.report.suites import WILSON, wilson

_SAMPLES = 1000
_MOST_PAIRS = 20_000  # of labels, beyond which resampling takes too long


def evaluate_labels(model: Any, files: Sequence[Path], columns: Sequence[str] = ()) -> dict[str, Any]:
    """The metrics of the most probable label; of a text with several gold labels, any of them is correct."""
    predictor = ClassifierAdapter(require_predicts(model), 1)
    pairs: Counter[tuple[str, str]] = Counter()
    for path in files:
        for example, found in predict_file(predictor, path, labelled=True, columns=columns):
            pairs[matching_label(found["label"], example.labels), found["label"]] += 1
    total = sum(pairs.values())
    correct = sum(count for (gold, predicted), count in pairs.items() if gold == predicted)
    table = label_scores(pairs)
    unknown = sorted({gold for gold, _ in pairs} - set(predictor.labels))
    return {
        "accuracy": correct / total,
        "accuracy_interval": wilson(correct, total),
        "interval": f"{WILSON}; of macro_f1, {_SAMPLES} samples of the texts",
        "macro_f1": float(np.mean([row["f1"] for row in table.values()])),
        "macro_f1_interval": macro_f1_interval(pairs),
        "examples": total,
        "majority": max(row["examples"] for row in table.values()) / total,
        "classes": sum(row["examples"] > 0 for row in table.values()),
        "labels": table,
    } | ({"unknown_labels": unknown} if unknown else {})


def macro_f1_interval(pairs: LabelPairs) -> list[float] | None:
    """The 95% bootstrap interval of macro F1; None where there are too many different pairs."""
    if len(pairs) > _MOST_PAIRS:
        return None
    ordered = sorted(pairs)
    counts = np.array([pairs[pair] for pair in ordered])
    resamples = np.random.default_rng(0).multinomial(int(counts.sum()), counts / counts.sum(), size=_SAMPLES)
    sample = labels_sample(*zip(*ordered, strict=True))
    parts = np.array_split(resamples.astype(np.float64), 20)  # to bound memory
    return interval(np.concatenate([sample.measures(part)["macro_f1"] for part in parts]))
