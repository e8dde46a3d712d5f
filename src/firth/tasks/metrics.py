"""What predictions are worth: the metrics of each task, with intervals, beside those of a trivial predictor.

| task       | gold, predicted                     | metrics, the main one first                                      |
|------------|-------------------------------------|------------------------------------------------------------------|
| classify   | a label each                        | accuracy, macro_f1, matthews                                     |
| multilabel | a set of labels each                | macro_f1, micro_f1, accuracy (the whole set is right)            |
| pair       | a label each                        | accuracy, macro_f1, matthews                                     |
| similarity | a number each                       | spearman, pearson                                                |
| tag        | a tag for each word                 | entity_f1, precision, recall if there are entities; accuracy     |
| segment    | a BIES tag for each character       | word_f1, precision, recall, accuracy                             |
| span       | all right answers; an answer, or "" | f1, exact_match; both for questions with an answer and without;  |
|            |                                     | span_f1 of the best span where there is an answer, if it is told |
| choice     | the number of a choice each         | accuracy                                                         |
| generate   | a text each                         | chrf, bleu, rouge_l                                              |

All are from 0 to 1 (correlations from -1) but BLEU and chrF: those are sacrebleu's scores, 0 to 100. More is better.
Networks that write add bits_per_byte, of the right texts: less is better.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from firth.errors import CorpusError, RecipeError, near_miss
from firth.tasks.bootstrap import Sample, measured, ratio, values
from firth.tasks.metrics_answers import answer_scores, answers_sample, has_answer
from firth.tasks.metrics_labels import choices_sample, label_codes, labels_sample, numbers_sample, sets_sample
from firth.tasks.metrics_tags import segments_sample, tags_sample
from firth.tasks.metrics_texts import texts_sample
from firth.tasks.schemes import scheme_of
from firth.text.scripts import script_counts

_SEEN = 200  # texts that are looked at to tell whether they are Chinese
_SAMPLES: dict[str, Callable[[Sequence[Any], Sequence[Any]], Sample]] = {
    "classify": labels_sample,
    "multilabel": sets_sample,
    "pair": labels_sample,
    "similarity": numbers_sample,
    "tag": tags_sample,
    "segment": segments_sample,
    "choice": choices_sample,
}
_MAIN = {
    "classify": "accuracy",
    "multilabel": "macro_f1",
    "pair": "accuracy",
    "similarity": "spearman",
    "tag": "entity_f1",
    "segment": "word_f1",
    "span": "f1",
    "choice": "accuracy",
    "generate": "chrf",
}


class Baseline(NamedTuple):
    """What a predictor says that does not look at the question."""

    kind: str
    predicted: Sequence[Any]


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
    """Each metric of the task with its 95% bootstrap interval, those of a baseline, and which of them decides.

    language: of span and generate; "zh" counts characters instead of words. None: as the gold texts look.
    sources: of generate; the baseline is to copy them. None: it is to give the most frequent text every time.

    >>> found = measure("classify", ["good", "bad", "good", "good"], ["good", "bad", "bad", "good"])
    >>> found["accuracy"], found["accuracy_interval"], found["examples"]
    (0.75, [0.25, 1.0], 4)
    >>> found["baseline"]["kind"], found["baseline"]["accuracy"]
    ('majority label', 0.75)
    """
    _check(task, gold, predicted)
    chinese = language == "zh" if language else is_chinese(task, gold)
    baseline = _baseline(task, gold) if sources is None else Baseline("source copied", sources)
    result = measured(_sample(task, gold, predicted, chinese), seed=seed, samples=samples)
    if task == "span":
        result |= _by_answerable(gold, predicted, chinese)
    result["baseline"] = {"kind": baseline.kind, **values(_sample(task, gold, baseline.predicted, chinese))}
    result |= {"examples": len(gold), "main": main_metric(task, result)}
    return result


def measure_tags(
    examples: Sequence[Any], answers: Sequence[Any], *, seed: int = 0, samples: int = 1000
) -> dict[str, Any]:
    """As `measure` for the tags of examples and of answers: those of characters that make words are segments."""
    gold = [list(one.tags or ()) for one in examples]
    kind = "segment" if scheme_of([tag for tags in gold for tag in tags]) == "BIES" else "tag"
    return measure(kind, gold, [one["tags"] for one in answers], seed=seed, samples=samples)


def main_metric(task: str, found: Mapping[str, Any] | None = None) -> str:
    """The metric by which models of a task are compared; of tags without entities, given what was found, accuracy.

    >>> main_metric("tag"), main_metric("tag", {"accuracy": 0.9})
    ('entity_f1', 'accuracy')
    """
    if task not in _MAIN:
        raise RecipeError(f"there are no metrics for a task {task!r}: {near_miss(task, _MAIN)}")
    metric = _MAIN[task]
    return metric if found is None or metric in found else "accuracy"


def label_table(gold: Sequence[Any], predicted: Sequence[Any]) -> dict[str, Any]:
    """How often each label was taken for each, and how well each was found.

    In `confusion` rows are gold labels and columns predicted ones, in the order of `labels`.

    >>> table = label_table(["a", "a", "b"], ["a", "b", "b"])
    >>> table["confusion"], table["by_label"]["a"]
    ([[1, 1], [0, 1]], {'precision': 1.0, 'recall': 0.5, 'f1': 0.6666666666666666, 'support': 2, 'predicted': 1})
    """
    _check("classify", gold, predicted)
    codes = label_codes([*gold, *predicted])
    confusion = np.zeros((len(codes), len(codes)), dtype=np.int64)
    np.add.at(confusion, ([codes[label] for label in gold], [codes[label] for label in predicted]), 1)
    both, support, told = np.diag(confusion), confusion.sum(axis=1), confusion.sum(axis=0)
    precision, recall, f1 = (
        ratio(part.astype(np.float64), whole)
        for part, whole in ((both, told), (both, support), (2 * both, support + told))
    )
    by_label = {
        label: {
            "precision": float(precision[code]),
            "recall": float(recall[code]),
            "f1": float(f1[code]),
            "support": int(support[code]),
            "predicted": int(told[code]),
        }
        for label, code in codes.items()
    }
    return {"labels": list(codes), "confusion": confusion.tolist(), "by_label": by_label}


def length_breakdown(
    lengths: Sequence[int], scores: Sequence[float], bins: Sequence[int] = (8, 16, 32, 64, 128, 256)
) -> list[dict[str, Any]]:
    """The mean score of examples of like length, where there are any; `bins` are the lengths at which the next begins.

    >>> length_breakdown([3, 9, 10], [1, 0, 1], bins=[8])
    [{'from': 0, 'below': 8, 'examples': 1, 'score': 1.0}, {'from': 8, 'below': None, 'examples': 2, 'score': 0.5}]
    """
    edges = sorted(set(bins))
    bin_of = np.searchsorted(edges, np.asarray(lengths), side="right")
    rows = []
    for number, (low, high) in enumerate(zip([0, *edges], [*edges, None], strict=True)):
        inside = np.asarray(scores, dtype=np.float64)[bin_of == number]
        if len(inside):
            rows.append({"from": low, "below": high, "examples": len(inside), "score": float(inside.mean())})
    return rows


def _check(task: str, gold: Sequence[Any], predicted: Sequence[Any]) -> None:
    main_metric(task)
    if not len(gold):
        raise CorpusError("there are no examples to measure: give a file with at least one.")
    if len(gold) != len(predicted):
        raise CorpusError(f"{len(predicted)} predictions for {len(gold)} examples: give one for each.")
    if task in ("tag", "segment"):
        for number, (true, told) in enumerate(zip(gold, predicted, strict=True), 1):
            if len(true) != len(told):
                raise CorpusError(f"example {number} has {len(true)} words but {len(told)} tags: give one for each.")


def _sample(task: str, gold: Sequence[Any], predicted: Sequence[Any], chinese: bool) -> Sample:
    if task == "span":
        return answers_sample(gold, predicted, chinese)
    if task == "generate":
        return texts_sample(gold, predicted, chinese)
    return _SAMPLES[task](gold, predicted)


def _baseline(task: str, gold: Sequence[Any]) -> Baseline:
    """What is most frequent, every time; or where that says little, what is simplest."""
    if task == "segment":
        return Baseline("every character a word", [["S"] * len(tags) for tags in gold])
    if task == "span":
        return Baseline("no answer", [""] * len(gold))
    if task == "similarity":
        return Baseline("the same number", [0.0] * len(gold))
    if task == "tag":
        tag = _most_frequent(list(chain.from_iterable(gold)))
        return Baseline("majority tag", [[tag] * len(tags) for tags in gold])
    kinds = {"multilabel": "majority set of labels", "choice": "majority choice", "generate": "most frequent text"}
    answers = [frozenset(labels) for labels in gold] if task == "multilabel" else list(gold)
    return Baseline(kinds.get(task, "majority label"), [_most_frequent(answers)] * len(gold))


def _most_frequent(items: Sequence[Any]) -> Any:
    """The first of the most frequent; a sentence without words has no tag to speak of."""
    return Counter(items).most_common(1)[0][0] if items else ""


def _by_answerable(gold: Sequence[Sequence[str]], predicted: Sequence[str], chinese: bool) -> dict[str, Any]:
    """Exact match and F1 of the questions with an answer and of those without, where there are any."""
    answerable = np.array([has_answer(answers, chinese) for answers in gold])
    scores = answer_scores(gold, predicted, chinese)
    result = {}
    for name, chosen in (("has_answer", scores[answerable]), ("no_answer", scores[~answerable])):
        if len(chosen):
            exact, f1 = chosen.mean(axis=0).tolist()
            result[name] = {"exact_match": exact, "f1": f1, "examples": len(chosen)}
    return result


def is_chinese(task: str, gold: Sequence[Any]) -> bool:
    """Whether the gold texts are mostly Chinese; a Chinese character says about as much as two letters."""
    if task not in ("span", "generate"):
        return False
    texts = gold if task == "generate" else chain.from_iterable(gold)
    seen = [text for text, _ in zip(texts, range(_SEEN), strict=False)]
    counts = script_counts("\n".join(seen))
    return 2 * counts.get("han", 0) > counts.get("latin", 0)
