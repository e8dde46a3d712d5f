"""The metrics of each task, with bootstrap intervals and the metrics of a trivial baseline.

| task       | gold, predicted                     | metrics, the main one first                                      |
|------------|-------------------------------------|------------------------------------------------------------------|
| classify   | a label each                        | accuracy, macro_f1, matthews                                     |
| multilabel | a set of labels each                | macro_f1, micro_f1, accuracy (of whole sets)                     |
| pair       | a label each                        | accuracy, macro_f1, matthews                                     |
| similarity | a number each                       | spearman, pearson                                                |
| tag        | a tag for each word                 | entity_f1, precision, recall if there are entities; accuracy     |
| segment    | a BIES tag for each character       | word_f1, precision, recall, accuracy                             |
| span       | all gold answers; an answer, or ""  | f1, exact_match; both for questions with an answer and without;  |
|            |                                     | span_f1 of the best spans of answerable questions                |
| choice     | the index of a choice each          | accuracy                                                         |
| generate   | a text each                         | chrf, bleu, rouge_l                                              |

All are from 0 to 1 (correlations from -1) except BLEU and chrF, which are sacrebleu's from 0 to 100; higher is better.
Generating networks add bits_per_byte of the references: lower is better.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from firth.errors import CorpusError, RecipeError, near_miss
from firth.metrics.bootstrap import Sample, measured, ratio, values
from firth.metrics.labels import (
    choices_sample,
    label_codes,
    labels_sample,
    numbers_sample,
    relations_sample,
    sets_sample,
    types_sample,
)
from firth.metrics.tags import segments_sample, tags_sample
from firth.metrics.texts import answer_scores, answers_sample, has_answer, texts_sample
from firth.text.scripts import script_counts

_SAMPLE = 200  # texts inspected to detect Chinese
Sampler = Callable[[Sequence[Any], Sequence[Any]], Sample]
_TASKS: dict[str, tuple[Sampler | None, str]] = {
    "classify": (labels_sample, "accuracy"),
    "multilabel": (sets_sample, "macro_f1"),
    "pair": (labels_sample, "accuracy"),
    "typing": (types_sample, "micro_f1"),
    "relation": (relations_sample, "micro_f1"),
    "similarity": (numbers_sample, "spearman"),
    "tag": (tags_sample, "entity_f1"),
    "segment": (segments_sample, "word_f1"),
    "span": (None, "f1"),
    "choice": (choices_sample, "accuracy"),
    "generate": (None, "chrf"),
}
"""The sample function, unless it depends on the language, and the main metric."""


def measure(
    task: str,
    gold: Sequence[Any],
    predicted: Sequence[Any],
    *,
    seed: int = 0,
    samples: int = 1000,
    language: str | None = None,
    sources: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Each metric of the task with its 95% bootstrap interval, those of a baseline, and the name of the main one.

    language: for span and generate; "zh" counts characters instead of words. None: detected from the gold texts.
    sources: for generate; the baseline copies them. None: it always predicts the most frequent text.

    >>> found = measure("classify", ["good", "bad", "good", "good"], ["good", "bad", "bad", "good"])
    >>> found["accuracy"], found["accuracy_interval"], found["examples"]
    (0.75, [0.25, 1.0], 4)
    >>> found["baseline"]["kind"], found["baseline"]["accuracy"]
    ('majority label', 0.75)
    """
    _check(task, gold, predicted)
    chinese = language == "zh" if language else is_chinese(task, gold)
    kind, baseline = _baseline(task, gold) if sources is None else ("source copied", sources)
    result = measured(_sample(task, gold, predicted, chinese), seed=seed, samples=samples)
    if task == "span":
        result |= _by_answerable(gold, predicted, chinese)
    result["baseline"] = {"kind": kind, **values(_sample(task, gold, baseline, chinese))}
    result |= {"examples": len(gold), "main": main_metric(task, result)}
    return result


def main_metric(task: str, found: Mapping[str, Any] | None = None) -> str:
    """The metric by which models of a task are compared; given the metrics found, accuracy for tags without entities.

    >>> main_metric("tag"), main_metric("tag", {"accuracy": 0.9})
    ('entity_f1', 'accuracy')
    """
    if task not in _TASKS:
        raise RecipeError(f"there are no metrics for a task {task!r}: {near_miss(task, _TASKS)}")
    metric = _TASKS[task][1]
    return metric if found is None or metric in found else "accuracy"


def label_table(gold: Sequence[Any], predicted: Sequence[Any]) -> dict[str, Any]:
    """The confusion matrix (rows: gold, columns: predicted, in the order of `labels`) and the scores of each label.

    >>> table = label_table(["a", "a", "b"], ["a", "b", "b"])
    >>> table["confusion"], table["by_label"]["a"]
    ([[1, 1], [0, 1]], {'precision': 1.0, 'recall': 0.5, 'f1': 0.6666666666666666, 'support': 2, 'predicted': 1})
    """
    _check("classify", gold, predicted)
    codes = label_codes([*gold, *predicted])
    confusion = np.zeros((len(codes), len(codes)), dtype=np.int64)
    np.add.at(confusion, ([codes[label] for label in gold], [codes[label] for label in predicted]), 1)
    both, support, guessed = np.diag(confusion), confusion.sum(axis=1), confusion.sum(axis=0)
    columns = {
        "precision": ratio(both.astype(np.float64), guessed),
        "recall": ratio(both.astype(np.float64), support),
        "f1": ratio((2 * both).astype(np.float64), support + guessed),
        "support": support,
        "predicted": guessed,
    }
    by_label = {label: {name: column[code].item() for name, column in columns.items()} for label, code in codes.items()}
    return {"labels": list(codes), "confusion": confusion.tolist(), "by_label": by_label}


def length_breakdown(
    lengths: Sequence[int], scores: Sequence[float], bins: Sequence[int] = (8, 16, 32, 64, 128, 256)
) -> list[dict[str, Any]]:
    """The mean score by length; `bins` are the lower bounds of the length ranges, empty ones are left out.

    >>> length_breakdown([3, 9, 10], [1, 0, 1], bins=[8])
    [{'from': 0, 'below': 8, 'examples': 1, 'score': 1.0}, {'from': 8, 'below': None, 'examples': 2, 'score': 0.5}]
    """
    edges = sorted(set(bins))
    bin_of = np.searchsorted(edges, np.asarray(lengths), side="right")
    rows = []
    for number, (low, high) in enumerate(zip([0, *edges], [*edges, None], strict=True)):
        chosen = np.asarray(scores, dtype=np.float64)[bin_of == number]
        if len(chosen):
            rows.append({"from": low, "below": high, "examples": len(chosen), "score": float(chosen.mean())})
    return rows


def _check(task: str, gold: Sequence[Any], predicted: Sequence[Any]) -> None:
    main_metric(task)
    if not len(gold):
        raise CorpusError("there are no examples to measure: give a file with at least one.")
    if len(gold) != len(predicted):
        raise CorpusError(f"{len(predicted)} predictions for {len(gold)} examples: give one for each.")
    if task in ("tag", "segment"):
        for number, (true, found) in enumerate(zip(gold, predicted, strict=True), 1):
            if len(true) != len(found):
                raise CorpusError(f"example {number} has {len(true)} words but {len(found)} tags: give one for each.")


def _sample(task: str, gold: Sequence[Any], predicted: Sequence[Any], chinese: bool) -> Sample:
    sampler = _TASKS[task][0]
    if sampler is not None:
        return sampler(gold, predicted)
    return (answers_sample if task == "span" else texts_sample)(gold, predicted, chinese)


def _baseline(task: str, gold: Sequence[Any]) -> tuple[str, Sequence[Any]]:
    """A kind of baseline and its predictions: always the most frequent, or the simplest if that is uninformative."""
    if task == "segment":
        return "every character a word", [["S"] * len(tags) for tags in gold]
    if task == "span":
        return "no answer", [""] * len(gold)
    if task == "similarity":
        return "the same number", [0.0] * len(gold)
    if task == "tag":
        tag = _most_frequent(list(chain.from_iterable(gold)))
        return "majority tag", [[tag] * len(tags) for tags in gold]
    kinds = {
        "multilabel": "majority set of labels",
        "typing": "majority set of labels",
        "choice": "majority choice",
        "generate": "most frequent text",
    }
    answers = [frozenset(labels) for labels in gold] if task in ("multilabel", "typing") else list(gold)
    return kinds.get(task, "majority label"), [_most_frequent(answers)] * len(gold)


def _most_frequent(items: Sequence[Any]) -> Any:
    """The first of the most frequent items; the empty string if there are none."""
    return Counter(items).most_common(1)[0][0] if items else ""


def _by_answerable(gold: Sequence[Sequence[str]], predicted: Sequence[str], chinese: bool) -> dict[str, Any]:
    """Exact match and F1 of answerable and of unanswerable questions, where there are any."""
    answerable = np.array([has_answer(answers, chinese) for answers in gold])
    scores = answer_scores(gold, predicted, chinese)
    result = {}
    for name, chosen in (("has_answer", scores[answerable]), ("no_answer", scores[~answerable])):
        if len(chosen):
            exact, f1 = chosen.mean(axis=0).tolist()
            result[name] = {"exact_match": exact, "f1": f1, "examples": len(chosen)}
    return result


def is_chinese(task: str, gold: Sequence[Any]) -> bool:
    """Whether the gold texts are mostly Chinese; a Chinese character counts as much as two Latin letters."""
    if task not in ("span", "generate"):
        return False
    texts = gold if task == "generate" else chain.from_iterable(gold)
    sample = [text for text, _ in zip(texts, range(_SAMPLE), strict=False)]
    counts = script_counts("\n".join(sample))
    return 2 * counts.get("han", 0) > counts.get("latin", 0)
