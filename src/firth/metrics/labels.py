"""Metrics of labels (accuracy, F1, Matthews correlation) and of numbers (Pearson and Spearman correlation).

Each `*_sample` function turns references and predictions into a `Sample` for the bootstrap. As in scikit-learn, 0 / 0
counts as 0; so does a correlation with a constant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from firth.errors import CorpusError
from firth.metrics.bootstrap import Floats, Ints, Sample, kinds_of, ratio, sums_by_code

_NO_VARIANCE = 1e-12  # of standardised numbers: rounding errors

LabelPairs = Mapping[tuple[str, str], int]  # (gold label, predicted label) -> number of examples


def labels_sample(gold: Sequence[Any], predicted: Sequence[Any]) -> Sample:
    """accuracy, macro_f1 and matthews of one label for each example.

    Macro F1 is the mean over all labels that occur as references or predictions.
    """
    pairs, counts = kinds_of(list(zip(gold, predicted, strict=True)))
    code = label_codes([label for pair in pairs for label in pair])
    true = np.array([code[label] for label, _ in pairs], dtype=np.int64)
    guessed = np.array([code[label] for _, label in pairs], dtype=np.int64)

    def measures(weights: Floats) -> dict[str, Floats]:
        right = true == guessed
        both = sums_by_code(weights[:, right], true[right], len(code))
        in_gold = sums_by_code(weights, true, len(code))
        in_predicted = sums_by_code(weights, guessed, len(code))
        total = weights.sum(axis=1)
        return {
            "accuracy": both.sum(axis=1) / total,
            "macro_f1": macro_f1(both, in_gold, in_predicted),
            "matthews": matthews(both, in_gold, in_predicted),
        }

    return Sample(counts, measures)


def sets_sample(gold: Sequence[Collection[Any]], predicted: Sequence[Collection[Any]]) -> Sample:
    """accuracy (of whole sets), macro_f1 and micro_f1 of any number of labels for each example."""
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


def types_sample(gold: Sequence[Collection[Any]], predicted: Sequence[Collection[Any]]) -> Sample:
    """Those of `sets_sample`, and loose_macro_f1: of the mean precision and the mean recall of examples.

    (Ling and Weld 2012; precision is over the examples with a prediction.)
    """
    sets = sets_sample(gold, predicted)
    pairs, _ = kinds_of([(frozenset(one), frozenset(two)) for one, two in zip(gold, predicted, strict=True)])
    true, guessed, both = (np.array([len(one) for one in each], dtype=np.float64) for each in (
        [one for one, _ in pairs], [two for _, two in pairs], [one & two for one, two in pairs]
    ))  # fmt: skip

    def measures(weights: Floats) -> dict[str, Floats]:
        precision = ratio(weights @ ratio(both, guessed), weights @ (guessed > 0).astype(np.float64))
        recall = ratio(weights @ ratio(both, true), weights @ (true > 0).astype(np.float64))
        return sets.measures(weights) | {"loose_macro_f1": ratio(2 * precision * recall, precision + recall)}

    return Sample(sets.counts, measures)


NO_RELATION = frozenset({"no_relation", "Other", "NA"})
"""Labels of examples without a relation, which F1 is not about (TACRED, SemEval-2010)."""


def relations_sample(gold: Sequence[Any], predicted: Sequence[Any]) -> Sample:
    """accuracy, and micro_f1 and macro_f1 of the labels that are relations."""
    pairs, counts = kinds_of(list(zip(gold, predicted, strict=True)))
    code = label_codes([label for pair in pairs for label in pair if label not in NO_RELATION])
    gold_rows, predicted_rows = (
        _indicators([frozenset({one} - NO_RELATION) for one in side], code) for side in zip(*pairs, strict=True)
    )
    right = np.array([one == two for one, two in pairs], dtype=np.float64)

    def measures(weights: Floats) -> dict[str, Floats]:
        both, in_gold, in_predicted = (
            weights @ rows for rows in (gold_rows * predicted_rows, gold_rows, predicted_rows)
        )
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
    """pearson and spearman of a number for each example; ties have their mean rank."""
    pairs, counts = kinds_of(list(zip(_finite(gold), _finite(predicted), strict=True)))
    true, true_codes = np.unique([pair[0] for pair in pairs], return_inverse=True)
    guessed, guessed_codes = np.unique([pair[1] for pair in pairs], return_inverse=True)
    true_values = np.broadcast_to(_standard(true[true_codes], counts), (1, len(pairs)))
    guessed_values = np.broadcast_to(_standard(guessed[guessed_codes], counts), (1, len(pairs)))

    def measures(weights: Floats) -> dict[str, Floats]:
        true_ranks = _ranks(weights, true_codes, len(true))
        guessed_ranks = _ranks(weights, guessed_codes, len(guessed))
        return {
            "pearson": correlation(weights, true_values, guessed_values),
            "spearman": correlation(weights, true_ranks, guessed_ranks),
        }

    return Sample(counts, measures)


def macro_f1(both: Floats, in_gold: Floats, in_predicted: Floats) -> Floats:
    """The mean over labels of 2 tp / (gold + predicted), for each resample; labels that do not occur are left out."""
    occurrences = in_gold + in_predicted
    return ratio(ratio(2 * both, occurrences).sum(axis=1), (occurrences > 0).sum(axis=1).astype(np.float64))


def matthews(both: Floats, in_gold: Floats, in_predicted: Floats) -> Floats:
    """Multi-class Matthews correlation for each resample (Gorodkin 2004)."""
    total = in_gold.sum(axis=1)
    covariance = both.sum(axis=1) * total - (in_gold * in_predicted).sum(axis=1)
    variances = (total**2 - (in_gold**2).sum(axis=1)) * (total**2 - (in_predicted**2).sum(axis=1))
    return ratio(covariance, np.sqrt(variances))


def correlation(weights: Floats, x: Floats, y: Floats) -> Floats:
    """The weighted Pearson correlation of x and y for each resample."""
    total = weights.sum(axis=1, keepdims=True)
    x = x - (weights * x).sum(axis=1, keepdims=True) / total
    y = y - (weights * y).sum(axis=1, keepdims=True) / total
    covariance = (weights * x * y).sum(axis=1) / total[:, 0]
    x_variance, y_variance = ((weights * v**2).sum(axis=1) / total[:, 0] for v in (x, y))
    varies = np.minimum(x_variance, y_variance) > _NO_VARIANCE
    # Rounding must not bring a perfect correlation above 1.
    bounded: Floats = np.clip(ratio(covariance, np.where(varies, np.sqrt(x_variance * y_variance), 0.0)), -1.0, 1.0)
    return bounded


def label_codes(labels: Sequence[Any]) -> dict[Any, int]:
    """The index of each label in sorted order."""
    return {label: code for code, label in enumerate(sorted(set(labels), key=lambda label: (str(label), repr(label))))}


def label_scores(pairs: LabelPairs) -> dict[str, dict[str, Any]]:
    """Precision, recall and F1 of each gold or predicted label, the most frequent first.

    >>> label_scores({("a", "a"): 3, ("a", "b"): 1, ("b", "b"): 1})["b"]
    {'precision': 0.5, 'recall': 1.0, 'f1': 0.6666666666666666, 'examples': 1}
    """
    gold, predicted = Counter[str](), Counter[str]()
    for (one, other), count in pairs.items():
        gold[one] += count
        predicted[other] += count
    table = {}
    for label in sorted({*gold, *predicted}, key=lambda name: (-gold[name], name)):
        correct = pairs.get((label, label), 0)
        table[label] = {
            "precision": correct / predicted[label] if predicted[label] else 0.0,
            "recall": correct / gold[label] if gold[label] else 0.0,
            "f1": 2 * correct / (gold[label] + predicted[label]),
            "examples": gold[label],
        }
    return table


def matching_label(predicted: str, labels: Sequence[str] | None) -> str:
    """The gold label to compare with a prediction: the same one if it is among several, else the first."""
    return predicted if labels and predicted in labels else (labels or ("",))[0]


def _indicators(sets: Sequence[frozenset[Any]], code: dict[Any, int]) -> Floats:
    rows = np.zeros((len(sets), len(code)))
    for row, labels in zip(rows, sets, strict=True):
        row[[code[label] for label in labels]] = 1.0
    return rows


def _ranks(weights: Floats, codes: Ints, size: int) -> Floats:
    """The rank of each value in each resample; ties have their mean rank."""
    tied = sums_by_code(weights, codes, size)
    ranks: Floats = (np.cumsum(tied, axis=1) - (tied - 1) / 2)[:, codes]
    return ranks


def _standard(numbers: Floats, counts: Ints) -> Floats:
    """Standardised numbers, so that rounding errors can be recognised."""
    if np.ptp(numbers) == 0:  # the mean of equal numbers may be rounded
        return np.zeros_like(numbers)
    centred = numbers - np.average(numbers, weights=counts)
    centred /= np.abs(centred).max()  # avoids underflow of squares
    standard: Floats = centred / np.sqrt(np.average(centred**2, weights=counts))
    return standard


def _finite(numbers: Sequence[Any]) -> list[float]:
    for number in numbers:
        try:
            if np.isfinite(float(number)):
                continue
        except (TypeError, ValueError):
            pass
        raise CorpusError(f"{number!r} is not a finite number: give similarities as numbers.")
    return [float(number) for number in numbers]
