"""The metrics of every task: hand-worked numbers, and parity with scikit-learn and SciPy, on resamples too."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics as sk
from sklearn.preprocessing import MultiLabelBinarizer

from firth.errors import CorpusError, RecipeError
from firth.metrics.bootstrap import Sample, resamples, values
from firth.metrics.labels import labels_sample, numbers_sample, sets_sample
from firth.metrics.measure import label_table, length_breakdown, main_metric, measure
from firth.nets.network import Vocabulary
from firth.nets.recipe import NetRecipe
from firth.tasks.examples import Answer, SpanExample
from firth.tasks.recipe import TaskRecipe
from firth.tasks.registry import make_task

LABELS = ["neutral", "good", "bad", "odd"]


def random_labels(seed: int, number: int, labels: Sequence[str] = LABELS) -> tuple[list[str], list[str]]:
    rng = np.random.default_rng(seed)
    gold = rng.choice(labels, number, p=None if len(labels) != 4 else [0.6, 0.3, 0.08, 0.02])
    noise = rng.choice(labels, number)
    return gold.tolist(), np.where(rng.random(number) < 0.6, gold, noise).tolist()


def sklearn_labels(gold: Sequence[str], predicted: Sequence[str]) -> dict[str, float]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {
            "accuracy": sk.accuracy_score(gold, predicted),
            "macro_f1": sk.f1_score(gold, predicted, average="macro", zero_division=0),
            "matthews": sk.matthews_corrcoef(gold, predicted),
        }


@pytest.mark.parametrize("number", [1, 2, 7, 200])
def test_labels_equal_scikit_learn(number: int) -> None:
    for seed in range(20):
        gold, predicted = random_labels(seed, number)
        assert values(labels_sample(gold, predicted)) == pytest.approx(sklearn_labels(gold, predicted))


def check_resamples(sample: Sample, pairs: Sequence[Any], expected: Any) -> None:
    """What is measured on weights is what the reference measures on examples drawn so often."""
    kinds = list(dict.fromkeys(pairs))
    (weights,) = resamples(sample.counts, seed=3, samples=25)
    found = sample.measures(weights)
    for row, weight in enumerate(weights.astype(int)):
        drawn = [pair for pair, times in zip(kinds, weight, strict=True) for _ in range(times)]
        gold, predicted = zip(*drawn, strict=True)
        assert {name: value[row] for name, value in found.items()} == pytest.approx(expected(gold, predicted))


def test_labels_of_resamples_equal_scikit_learn() -> None:
    gold, predicted = random_labels(0, 30)
    check_resamples(labels_sample(gold, predicted), list(zip(gold, predicted, strict=True)), sklearn_labels)


def sklearn_sets(gold: Sequence[frozenset[str]], predicted: Sequence[frozenset[str]]) -> dict[str, float]:
    coder = MultiLabelBinarizer().fit([*gold, *predicted])
    gold_matrix, predicted_matrix = coder.transform(gold), coder.transform(predicted)
    return {
        "accuracy": sk.accuracy_score(gold_matrix, predicted_matrix),
        "macro_f1": sk.f1_score(gold_matrix, predicted_matrix, average="macro", zero_division=0),
        "micro_f1": sk.f1_score(gold_matrix, predicted_matrix, average="micro", zero_division=0),
    }


def test_sets_of_labels_equal_scikit_learn() -> None:
    rng = np.random.default_rng(1)
    gold, predicted = ([frozenset(np.array(LABELS)[rng.random(4) < 0.4].tolist()) for _ in range(60)] for _ in range(2))
    sample = sets_sample(gold, predicted)
    assert values(sample) == pytest.approx(sklearn_sets(gold, predicted))
    check_resamples(sample, list(zip(gold, predicted, strict=True)), sklearn_sets)
    assert values(sets_sample([()], [()])) == {"accuracy": 1.0, "macro_f1": 0.0, "micro_f1": 0.0}


def scipy_numbers(gold: Sequence[float], predicted: Sequence[float]) -> dict[str, float]:
    return {
        "pearson": stats.pearsonr(gold, predicted).statistic,
        "spearman": stats.spearmanr(gold, predicted).statistic,
    }


@pytest.mark.parametrize("scale", [1.0, 1e-170, 1e8])
@pytest.mark.parametrize("tied", [False, True])
def test_correlations_equal_scipy(scale: float, tied: bool) -> None:
    rng = np.random.default_rng(4)
    gold = rng.normal(size=50)
    predicted = (gold + rng.normal(size=50)) * scale
    if tied:
        gold, predicted = np.round(gold), np.round(predicted / scale) * scale
    one, two = gold.tolist(), predicted.tolist()
    sample = numbers_sample(one, two)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = scipy_numbers(one, (predicted / scale).tolist())
        assert values(sample) == pytest.approx(expected)
        check_resamples(sample, list(zip(one, (predicted / scale).tolist(), strict=True)), scipy_numbers)


@pytest.mark.parametrize("constant", [0.0, 0.1, 3.3e7])
def test_correlation_with_what_does_not_vary_is_0(constant: float) -> None:
    assert values(numbers_sample([1, 2, 3], [constant] * 3)) == {"pearson": 0.0, "spearman": 0.0}
    assert values(numbers_sample([constant], [constant])) == {"pearson": 0.0, "spearman": 0.0}


def test_predictions_that_vary_by_rounding_alone_do_not_vary() -> None:
    """Resamples without the one prediction that differs from all others."""
    rng = np.random.default_rng(0)
    sample = numbers_sample(rng.normal(size=61).tolist(), [0.1] * 60 + [0.7])
    weights = np.hstack([rng.integers(0, 4, (50, 60)), np.zeros((50, 1))])
    found = sample.measures(weights.astype(float))
    assert (found["pearson"] == 0).all()
    assert (found["spearman"] == 0).all()


def test_a_perfect_correlation_is_1_and_no_more() -> None:
    numbers = np.random.default_rng(0).normal(size=40).tolist()
    found = measure("similarity", [str(number) for number in numbers], [2 * number + 1 for number in numbers])
    assert found["pearson"] == found["spearman"] == pytest.approx(1.0)
    assert max(found["pearson_interval"] + found["spearman_interval"]) <= 1.0
    assert measure("similarity", [1, 2, 3], [3, 2, 1])["spearman"] == -1.0


PERFECT: dict[str, tuple[list[Any], str]] = {
    "classify": (["a", "b", "a"], "majority label"),
    "multilabel": ([("a", "b"), ("b",), ("b",)], "majority set of labels"),
    "pair": (["yes", "no", "yes"], "majority label"),
    "similarity": (["1.0", "2.5", "4"], "the same number"),
    "tag": ([["B-PER", "I-PER", "O"], ["O"], ["O", "B-LOC"]], "majority tag"),
    "segment": ([["B", "E", "S"], ["S"], ["B", "I", "E"]], "every character a word"),
    "span": ([["in Paris", "Paris"], [], ["1066"]], "no answer"),
    "choice": ([0, 2, 2], "majority choice"),
    "generate": (
        ["a dog runs in the park .", "two men sit on a bench .", "hello to all of you ."],
        "most frequent text",
    ),
}


@pytest.mark.parametrize("task", PERFECT)
def test_right_predictions_have_the_best_score_in_every_task(task: str) -> None:
    gold, kind = PERFECT[task]
    predicted = [(answers or [""])[0] for answers in gold] if task == "span" else gold
    found = measure(task, gold, predicted, samples=50)
    best = 100.0 if task == "generate" else 1.0
    metric = main_metric(task, found)
    assert found[metric] == pytest.approx(best)
    assert found[f"{metric}_interval"][1] == pytest.approx(best)
    assert found["examples"] == 3
    assert found["baseline"]["kind"] == kind
    assert found["baseline"][metric] < best
    assert {name for name in found if f"{name}_interval" in found} == set(found["baseline"]) - {"kind"}
    json.dumps(found, allow_nan=False)
    assert measure(task, gold, predicted, samples=50) == found


def test_baselines_by_hand() -> None:
    classify = measure("classify", ["a", "a", "b", "c"], ["b"] * 4)["baseline"]
    assert classify == {"kind": "majority label", "accuracy": 0.5, "macro_f1": pytest.approx(2 / 9), "matthews": 0.0}
    segment = measure("segment", ["SSBE"], ["SSBE"])["baseline"]  # words 3, said 4, right 2
    assert segment["word_f1"] == pytest.approx(4 / 7)
    span = measure("span", [["x"], [], []], ["x", "", ""])["baseline"]
    assert (span["exact_match"], span["f1"]) == (pytest.approx(2 / 3), pytest.approx(2 / 3))
    tag = measure("tag", [["N", "V"], ["N"]], [["N", "N"], ["N"]])
    assert tag["baseline"] == {"kind": "majority tag", "accuracy": pytest.approx(2 / 3)}
    copied = measure("generate", ["a b c d"], ["x"], sources=["a b c d"])["baseline"]
    assert copied == {"kind": "source copied", "bleu": pytest.approx(100), "chrf": 100.0, "rouge_l": 1.0}


def test_spans_are_told_apart_by_whether_there_is_an_answer() -> None:
    found = measure("span", [["the cat"], ["a dog"], [], []], ["cat", "dog house", "", "x"])
    assert found["exact_match"] == 0.5
    assert found["f1"] == pytest.approx((1 + 2 / 3 + 1 + 0) / 4)
    assert found["has_answer"] == {"exact_match": 0.5, "f1": pytest.approx(5 / 6), "examples": 2}
    assert found["no_answer"] == {"exact_match": 0.5, "f1": 0.5, "examples": 2}
    assert "no_answer" not in measure("span", [["x"]], ["x"])


def test_the_best_spans_are_measured_apart_from_the_no_answer_threshold() -> None:
    task = make_task(TaskRecipe(task="span", network=NetRecipe()), Vocabulary(["<unk>"], np.ones(1, np.int64)))
    given = [((Answer("the cat", 0),), "", "cat"), ((Answer("a dog", 0),), "dog house", "dog house"), ((), "", "x")]
    examples = [SpanExample("passage", "question", gold) for gold, _, _ in given]
    answers = [{"answer": answer, "span": span} for _, answer, span in given]
    found = task.measure(examples, answers)
    assert found["f1"] == pytest.approx((0 + 2 / 3 + 1) / 3)
    assert found["span_f1"] == pytest.approx((1 + 2 / 3) / 2)
    assert found["span_f1_interval"][0] <= found["span_f1"] <= found["span_f1_interval"][1]
    quick = task.measure(examples, answers, samples=0)
    assert quick["span_f1"] == found["span_f1"]
    assert "span_f1_interval" not in quick
    assert "span_f1" not in task.measure(examples[2:], answers[2:])


def test_chinese_is_seen_or_said() -> None:
    gold, predicted = ["今天天气很好我们去公园"], ["今天天气不好我们去公园"]
    seen = measure("generate", gold, predicted)
    assert seen["bleu"] == measure("generate", gold, predicted, language="zh")["bleu"] > 0
    assert measure("generate", gold, predicted, language="en")["bleu"] == 0
    assert measure("span", [["范廷颂"], []], ["范廷", ""])["f1"] == pytest.approx((0.8 + 1) / 2)
    assert measure("span", [["范廷颂"], []], ["范廷", ""], language="en")["f1"] == 0.5


def test_the_main_metric_is_told() -> None:
    assert measure("classify", ["a", "b"], ["a", "a"])["main"] == "accuracy"
    assert measure("tag", [["B-X", "O"]], [["O", "O"]])["main"] == "entity_f1"
    assert measure("tag", [["N", "V"]], [["N", "N"]])["main"] == "accuracy"
    with pytest.raises(RecipeError, match="did you mean 'classify'"):
        main_metric("clasify")


@pytest.mark.parametrize(
    ("task", "gold", "predicted", "message"),
    [
        ("classify", [], [], "no examples"),
        ("classify", ["a"], [], "0 predictions for 1 examples"),
        ("tag", [["O"], ["O", "O"]], [["O"], ["O"]], "example 2 has 2 words but 1 tags"),
        ("similarity", ["1", "high"], [1, 2], "'high' is not a finite number"),
        ("similarity", [1, 2], [1, float("nan")], "nan is not a finite number"),
    ],
)
def test_what_cannot_be_measured_is_refused(task: str, gold: list[Any], predicted: list[Any], message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        measure(task, gold, predicted)


def test_label_table_equals_scikit_learn() -> None:
    gold, predicted = random_labels(9, 80)
    gold.append("only gold")
    predicted.append("only predicted")
    table = label_table(gold, predicted)
    assert table["confusion"] == sk.confusion_matrix(gold, predicted, labels=table["labels"]).tolist()
    report = sk.classification_report(gold, predicted, output_dict=True, zero_division=0)
    for label, row in table["by_label"].items():
        expected = report[label]
        assert [row[name] for name in ("precision", "recall", "f1", "support")] == pytest.approx(
            [expected[name] for name in ("precision", "recall", "f1-score", "support")]
        )
        assert row["predicted"] == predicted.count(label)
    json.dumps(table)


def test_lengths_at_a_border_are_in_the_bin_that_begins_there() -> None:
    rows = length_breakdown([1, 8, 8, 500], [1, 1, 0, 0.5], bins=(16, 8))
    assert rows == [
        {"from": 0, "below": 8, "examples": 1, "score": 1.0},
        {"from": 8, "below": 16, "examples": 2, "score": 0.5},
        {"from": 16, "below": None, "examples": 1, "score": 0.5},
    ]
