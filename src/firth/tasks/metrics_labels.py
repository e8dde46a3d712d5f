"""Metrics of labels and of numbers: accuracy, F1, Matthews' correlation; Pearson's and Spearman's.

Each function takes the gold answers and the predicted ones, and gives a `Sample`, which holds all that the metrics need
of the examples. A quotient of nothing by nothing counts as 0, as scikit-learn has it; so does a correlation with what
does not vary.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from firth.errors import CorpusError
from firth.tasks.bootstrap import Floats, Ints, Sample, kinds_of, ratio, sums_by_code

_NO_SPREAD = 1e-12  # a variance below this, of numbers brought to variance 1, is rounding


def labels_sample(gold: Sequence[Any], predicted: Sequence[Any]) -> Sample:
    """accuracy, macro_f1 and matthews of one label for each example.

    Macro F1 is the mean over all labels that occur, be it in the gold answers or in the predicted ones.
    """
    pairs, counts = kinds_of(list(zip(gold, predicted, strict=True)))
    code = label_codes([label for pair in pairs for label in pair])
    true = np.array([code[label] for label, _ in pairs], dtype=np.int64)
    told = np.array([code[label] for _, label in pairs], dtype=np.int64)

    def measures(weights: Floats) -> dict[str, Floats]:
        right = true == told
        both = sums_by_code(weights[:, right], true[right], len(code))
        in_gold = sums_by_code(weights, true, len(code))
        in_predicted = sums_by_code(weights, told, len(code))
        total = weights.sum(axis=1)
        return {
            "accuracy": both.sum(axis=1) / total,
            "macro_f1": macro_f1(both, in_gold, in_predicted),
            "matthews": matthews(both, in_gold, in_predicted),
        }

    return Sample(counts, measures)


def sets_sample(gold: Sequence[Collection[Any]], predicted: Sequence[Collection[Any]]) -> Sample:
    """accuracy (the whole set is right), macro_f1 and micro_f1 of any number of labels for each example."""
    pairs, counts = kinds_of([(frozenset(one), frozenset(two)) for one, two in zip(gold, predicted, strict=True)])
    code = label_codes([label for one, two in pairs for label in one | two])
    both_rows = _indicators([one & two for one, two in pairs], code)
    gold_rows = _indicators([one for one, _ in pairs], code)
    predicted_rows = _indicators([two for _, two in pairs], code)
    right = np.array([one == two for one, two in pairs], dtype=np.float64)

    def measures(weights: Floats) -> dict[str, Floats]:
        both, in_gold, in_predicted = weights @ both_rows, weights @ gold_rows, weights @ predicted_rows
        return {
            "accuracy": weights @ right / weights.sum(axis=1),
            "macro_f1": macro_f1(both, in_gold, in_predicted),
            "micro_f1": ratio(2 * both.sum(axis=1), (in_gold + in_predicted).sum(axis=1)),
        }

    return Sample(counts, measures)


def choices_sample(gold: Sequence[Any], predicted: Sequence[Any]) -> Sample:
    """accuracy."""
    kinds, counts = kinds_of([one == two for one, two in zip(gold, predicted, strict=True)])
    right = np.array(kinds, dtype=np.float64)
    return Sample(counts, lambda weights: {"accuracy": weights @ right / weights.sum(axis=1)})


def numbers_sample(gold: Sequence[Any], predicted: Sequence[Any]) -> Sample:
    """pearson and spearman of a number for each example; equal numbers share their ranks."""
    pairs, counts = kinds_of(list(zip(_finite(gold), _finite(predicted), strict=True)))
    true, true_codes = np.unique([pair[0] for pair in pairs], return_inverse=True)
    told, told_codes = np.unique([pair[1] for pair in pairs], return_inverse=True)
    true_values = np.broadcast_to(_standard(true[true_codes], counts), (1, len(pairs)))
    told_values = np.broadcast_to(_standard(told[told_codes], counts), (1, len(pairs)))

    def measures(weights: Floats) -> dict[str, Floats]:
        true_ranks = _ranks(weights, true_codes, len(true))
        told_ranks = _ranks(weights, told_codes, len(told))
        return {
            "pearson": correlation(weights, true_values, told_values),
            "spearman": correlation(weights, true_ranks, told_ranks),
        }

    return Sample(counts, measures)


def macro_f1(both: Floats, in_gold: Floats, in_predicted: Floats) -> Floats:
    """The mean over labels of 2 tp / (gold + predicted), for each row; labels that do not occur do not count."""
    occurrences = in_gold + in_predicted
    return ratio(ratio(2 * both, occurrences).sum(axis=1), (occurrences > 0).sum(axis=1).astype(np.float64))


def matthews(both: Floats, in_gold: Floats, in_predicted: Floats) -> Floats:
    """Matthews' correlation of any number of labels, for each row (Gorodkin 2004)."""
    total = in_gold.sum(axis=1)
    together = both.sum(axis=1) * total - (in_gold * in_predicted).sum(axis=1)
    alone = (total**2 - (in_gold**2).sum(axis=1)) * (total**2 - (in_predicted**2).sum(axis=1))
    return ratio(together, np.sqrt(alone))


def correlation(weights: Floats, x: Floats, y: Floats) -> Floats:
    """Pearson's correlation of x and y in each row, each pair as often as its weight says."""
    total = weights.sum(axis=1, keepdims=True)
    x = x - (weights * x).sum(axis=1, keepdims=True) / total
    y = y - (weights * y).sum(axis=1, keepdims=True) / total
    together = (weights * x * y).sum(axis=1) / total[:, 0]
    x_spread, y_spread = ((weights * v**2).sum(axis=1) / total[:, 0] for v in (x, y))
    varied = np.minimum(x_spread, y_spread) > _NO_SPREAD
    # Rounding must not bring a perfect correlation above 1.
    bounded: Floats = np.clip(ratio(together, np.where(varied, np.sqrt(x_spread * y_spread), 0.0)), -1.0, 1.0)
    return bounded


def label_codes(labels: Sequence[Any]) -> dict[Any, int]:
    """A number for each label, in their order."""
    return {label: code for code, label in enumerate(sorted(set(labels), key=lambda label: (str(label), repr(label))))}


def _indicators(sets: Sequence[frozenset[Any]], code: dict[Any, int]) -> Floats:
    rows = np.zeros((len(sets), len(code)))
    for row, labels in zip(rows, sets, strict=True):
        row[[code[label] for label in labels]] = 1.0
    return rows


def _ranks(weights: Floats, codes: Ints, size: int) -> Floats:
    """In each row the rank of each kind's value; equal values have the mean of the ranks they take up."""
    alike = sums_by_code(weights, codes, size)
    ranks: Floats = (np.cumsum(alike, axis=1) - (alike - 1) / 2)[:, codes]
    return ranks


def _standard(numbers: Floats, counts: Ints) -> Floats:
    """The numbers less their mean, over their deviation: so that rounding can be told from spread."""
    if np.ptp(numbers) == 0:  # equal numbers may have a mean that is not quite theirs
        return np.zeros_like(numbers)
    centred = numbers - np.average(numbers, weights=counts)
    centred /= np.abs(centred).max()  # squares of very small numbers would be 0
    standard: Floats = centred / np.sqrt(np.average(centred**2, weights=counts))
    return standard


def _finite(numbers: Sequence[Any]) -> list[float]:
    for number in numbers:
        try:
            if np.isfinite(float(number)):
                continue
        except (TypeError, ValueError):
            pass
        raise CorpusError(f"{number!r} is not a number that could be compared: give similarities as numbers.")
    return [float(number) for number in numbers]
