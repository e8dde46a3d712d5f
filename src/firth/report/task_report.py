"""Error analysis of a fine-tuned model: confusions, worst predictions, and scores by length and by rare words."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from firth.apply.predict import predict_labelled, require_task_predictor
from firth.artifact.manifest import installed_versions
from firth.errors import OutputError
from firth.files import digest_file, new_file
from firth.metrics.bootstrap import Floats
from firth.metrics.measure import is_chinese, label_table, length_breakdown
from firth.metrics.tags import entities, has_entities, scheme_of, words
from firth.metrics.texts import answer_scores, chrf, chrf_counts
from firth.report.rendering import render
from firth.tasks.examples import ChoiceExample, Example, GenerateExample, SpanExample, TagExample, TextExample, texts_of
from firth.tasks.predictor import count_truncated
from firth.text.segment import HAN
from firth.tokens.tokenizer import UNK, Tokens

Prediction = Mapping[str, Any]
_SHOWN = 20  # errors, and labels that are not folded or merged
_EXCERPT = 600  # characters of a text that are shown
_BATCH = 1000  # examples that are tokenised at a time
_LENGTHS = (8, 16, 32, 64, 128, 256, 512)
_RARE = (1, 6, 11, 21, 41)  # per cent, rounded up: none, up to 5, 10, 20, 40, and more
_SECTIONS = {
    "numbers": "Metrics",
    "confusion": "Confusion matrix",
    "labels": "Labels",
    "errors": "Errors",
    "length": "By length",
    "rare": "By rare words",
    "origin": "Provenance",
}


class ExampleScore(NamedTuple):
    """The score of a single prediction."""

    name: str
    compute: Callable[[Sequence[Any], Sequence[Prediction]], Floats]
    best: float = 1.0
    """The score of a correct prediction."""


def write_task_report(
    model: Any,
    path: Path,
    out: Path,
    *,
    name: str,
    task: str | None = None,
    seed: int = 0,
    skip_bad: bool = False,
    columns: Sequence[str] = (),
) -> dict[str, Any]:
    """Evaluate a model as `evaluate_task` does and write the page; returns the metrics and the path of the page."""
    if out.is_dir():
        raise OutputError(f"{out} is a folder: name a file with -o, such as {out / 'report.html'}.")
    predictor: Any = require_task_predictor(model, task)
    with new_file(out) as file:
        examples, answers = predict_labelled(predictor, path, skip_bad=skip_bad, columns=columns)
        metrics: dict[str, Any] = predictor.measure(examples, answers, seed=seed)
        report = {
            "model": name if task is None else f"{name}, {task}",
            "task": predictor.task,
            "file": str(path),
            "digest": digest_file(path) if path.is_file() else None,
            "truncated": count_truncated(answers),
            "seed": seed,
            "version": installed_versions().get("firth", "–"),
            "metrics": metrics,
            **analyse(predictor.task, examples, answers, predictor.tokenizer),
        }
        file.write(render_task_page(report).encode())
    return {"task": predictor.task} | metrics | {"report": str(out)}


def render_task_page(report: Mapping[str, Any]) -> str:
    """The error analysis as one self-contained HTML page; the same report gives the same bytes."""
    metrics = report["metrics"]
    names = [name for name in metrics if f"{name}_interval" in metrics]
    return render(
        "task.html.j2",
        title=f"Error analysis of {report['model']}",
        report=report,
        metric_names=sorted(names, key=lambda name: name != metrics["main"]),
        sections=[(name, title) for name, title in _SECTIONS.items() if report.get(name, True) or name == "errors"],
        open_labels=_SHOWN,
    )


def analyse(task: str, examples: Sequence[Any], answers: Sequence[Prediction], tokenizer: Any) -> dict[str, Any]:
    """The error analysis of predictions for labelled examples.

    score: name of the score of one prediction, its mean, and its best value. labels: as of `label_table`, where there
    are labels; without `confusion` for multi-label data. confusion: of the most frequent labels. wrong: number of
    predictions that are not fully correct. errors: the worst of them, of equals the most confident first. by_length:
    mean score by number of tokens. by_rare: mean score by the fraction of rare words, in per cent, rounded up.
    """
    kind = _kind(task, examples, answers)
    score = _SCORES[kind]
    scores = score.compute(examples, answers)
    lengths, rare = read_sizes(examples, tokenizer)
    confidence = [_confidence(kind, answer) for answer in answers]
    name, values = ("probability", confidence) if kind in ("label", "choice") else ("score", scores.tolist())
    wrong = np.flatnonzero(scores != score.best)
    worst = wrong[np.lexsort((-np.array(confidence)[wrong], -np.abs(scores - score.best)[wrong]))]
    labels = _label_scores(kind, examples, answers)
    return {
        "score": {"name": score.name, "mean": float(scores.mean()), "best": score.best},
        "labels": labels,
        "confusion": most_frequent(labels) if labels and "confusion" in labels else None,
        "wrong": len(wrong),
        "errors": [
            _describe_error(kind, examples[index], answers[index]) | {name: values[index]}
            for index in worst[:_SHOWN].tolist()
        ],
        "by_length": length_breakdown(lengths, scores.tolist(), _LENGTHS),
        "by_rare": length_breakdown([math.ceil(100 * fraction) for fraction in rare], scores.tolist(), _RARE),
    }


def _kind(task: str, examples: Sequence[Any], answers: Sequence[Prediction]) -> str:
    """The type of the predictions: tasks on whole texts give a label, a set of labels or a number."""
    if task in ("classify", "pair", "typing", "relation"):
        return "labels" if "labels" in answers[0] else "label" if "label" in answers[0] else "number"
    if task == "tag":
        tags = [tag for one in examples for tag in one.tags or ()]
        if scheme_of(tags) == "BIES":
            return "segment"
        return "entity" if has_entities([tags]) else "tag"
    return task


def _is_equal(gold: Sequence[Any], predicted: Sequence[Any]) -> Floats:
    return np.array([float(a == b) for a, b in zip(gold, predicted, strict=True)])


def _set_f1(gold: Sequence[Any], predicted: Sequence[Any]) -> Floats:
    """2 |both| / (|gold| + |predicted|) of sets; 1 where both are empty."""
    pairs = [(set(a), set(b)) for a, b in zip(gold, predicted, strict=True)]
    return np.array([2 * len(a & b) / (len(a) + len(b)) if a or b else 1.0 for a, b in pairs])


def _chunks_f1(find: Callable[[Sequence[str]], set[Any]]) -> Callable[[Sequence[Any], Sequence[Prediction]], Floats]:
    return lambda examples, answers: _set_f1([find(x.tags) for x in examples], [find(x["tags"]) for x in answers])


def _tag_accuracy(examples: Sequence[TagExample], answers: Sequence[Prediction]) -> Floats:
    correct = [_is_equal(one.tags or (), answer["tags"]) for one, answer in zip(examples, answers, strict=True)]
    return np.array([float(one.mean()) if one.size else 1.0 for one in correct])


def _absolute_error(examples: Sequence[TextExample], answers: Sequence[Prediction]) -> Floats:
    return np.array([abs(float(_gold(one)) - answer["score"]) for one, answer in zip(examples, answers, strict=True)])


def _answer_f1(examples: Sequence[SpanExample], answers: Sequence[Prediction]) -> Floats:
    gold = [[one.text for one in example.answers or ()] for example in examples]
    return answer_scores(gold, [one["answer"] for one in answers], is_chinese("span", gold))[:, 1]


def _chrf(examples: Sequence[GenerateExample], answers: Sequence[Prediction]) -> Floats:
    counts = [chrf_counts(one.target or "", answer["text"]) for one, answer in zip(examples, answers, strict=True)]
    return chrf(np.array(counts, dtype=np.float64))


def _gold(example: Any) -> Any:
    """The label of a text, or the index of the correct choice."""
    return example.label if isinstance(example, ChoiceExample) else (example.labels or ("",))[0]


_SCORES = {
    "label": ExampleScore("accuracy", lambda e, a: _is_equal([_gold(x) for x in e], [x["label"] for x in a])),
    "labels": ExampleScore(
        "F1 of the labels", lambda e, a: _set_f1([x.labels or () for x in e], [x["labels"] for x in a])
    ),
    "number": ExampleScore("absolute error", _absolute_error, best=0.0),
    "tag": ExampleScore("tag accuracy of a sentence", _tag_accuracy),
    "entity": ExampleScore("entity F1 of a sentence", _chunks_f1(entities)),
    "segment": ExampleScore("word F1 of a sentence", _chunks_f1(words)),
    "span": ExampleScore("F1 of the answer", _answer_f1),
    "choice": ExampleScore("accuracy", lambda e, a: _is_equal([_gold(x) for x in e], [x["choice"] for x in a])),
    "generate": ExampleScore("chrF", _chrf, best=100.0),
}


def _label_scores(kind: str, examples: Sequence[Any], answers: Sequence[Prediction]) -> dict[str, Any] | None:
    """Precision, recall and confusions of the labels; of tags, over all words together."""
    match kind:
        case "label" | "choice":
            return label_table([str(_gold(one)) for one in examples], [str(one[kind]) for one in answers])
        case "tag" | "entity" | "segment":
            gold = list(chain.from_iterable(one.tags or () for one in examples))
            return label_table(gold, list(chain.from_iterable(one["tags"] for one in answers))) if gold else None
        case "labels":
            return _multilabel_scores([one.labels or () for one in examples], [one["labels"] for one in answers])
    return None


def _multilabel_scores(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Each label as a binary decision; there is no confusion between labels."""
    known = sorted(set[str]().union(*gold, *predicted))
    tables = {
        label: label_table([label in one for one in gold], [label in one for one in predicted]) for label in known
    }
    return {"labels": known, "by_label": {label: table["by_label"][True] for label, table in tables.items()}}


def most_frequent(table: Mapping[str, Any], most: int = _SHOWN) -> dict[str, Any]:
    """The confusion matrix of the most frequent gold labels; all others, if there are any, are the last row and column.

    >>> most_frequent(label_table(["a", "b", "b", "c"], ["a", "b", "c", "c"]), 1)
    {'labels': ['b'], 'counts': [[1, 1], [0, 2]], 'others': 2}
    """
    confusion = np.array(table["confusion"])
    order = np.lexsort((-confusion.sum(axis=0), -confusion.sum(axis=1)))
    index = np.empty_like(order)
    index[order] = np.minimum(np.arange(len(order)), most)
    size = min(len(order), most + 1)
    counts = np.zeros((size, size), dtype=np.int64)
    np.add.at(counts, (index[:, None], index[None, :]), confusion)
    kept = [table["labels"][one] for one in order[:most]]
    return {"labels": kept, "counts": counts.tolist(), "others": len(order) - len(kept)}


def _confidence(kind: str, answer: Prediction) -> float:
    """A probability for labels and choices, else any number that is higher for more confident predictions."""
    match kind:
        case "label":
            return float(answer["probability"])
        case "choice":
            return float(max(answer["probabilities"]))
        case "tag" | "entity" | "segment":
            return float(np.mean(answer["probabilities"])) if answer.get("probabilities") else 0.0
        case "span":
            return abs(float(answer["none"]))  # the margin between no answer and the best answer
        case "generate":
            return float(answer["logprob"])
    return 0.0


def _describe_error(kind: str, example: Example, answer: Prediction) -> dict[str, Any]:
    where = f"{Path(example.origin.source).name}, " * bool(example.origin.source) + f"line {example.origin.number}"
    text, gold, predicted = _texts_of_error(kind, example, answer)
    return {"where": where, "text": text, "gold": gold, "predicted": predicted}


def _texts_of_error(kind: str, example: Example, answer: Prediction) -> tuple[str, str, str]:
    """The input, the gold answer and the prediction as text."""
    match example:
        case TextExample():
            labels = answer.get("labels", [answer.get("label")])
            predicted = f"{answer['score']:.3f}" if kind == "number" else ", ".join(labels)
            return "\n".join(map(excerpt, texts_of(example))), ", ".join(example.labels or ()), predicted
        case TagExample():
            gold, predicted = (
                _show_tags(kind, example, answer["tags"], tags) for tags in (example.tags or (), answer["tags"])
            )
            return excerpt(texts_of(example)[0]), gold, predicted
        case SpanExample():
            gold_answers = list(dict.fromkeys(one.text for one in example.answers or ()))
            first = example.answers[0].start if example.answers else answer["start"]
            passage = excerpt(example.passage, first, _EXCERPT // 2)
            return f"{example.question}\n{passage}", " | ".join(gold_answers), answer["answer"]
        case ChoiceExample():
            text = "\n".join(filter(None, (excerpt(example.context), example.question)))
            return text, example.choices[cast(int, example.label)], example.choices[answer["choice"]]
        case _:
            return excerpt(example.source), excerpt(example.target or ""), excerpt(answer["text"])


def _show_tags(kind: str, example: TagExample, predicted: Sequence[str], shown: Sequence[str]) -> str:
    """The words of a segmentation; otherwise the words with a wrong tag, each with its tag in `shown`."""
    if kind == "segment":
        return " ".join("".join(example.words[first : last + 1]) for _, first, last in sorted(words(shown)))
    wrong = [index for index, tag in enumerate(example.tags or ()) if tag != predicted[index]]
    return "  ".join(f"{example.words[index]}/{shown[index]}" for index in wrong)


def excerpt(text: str, position: int = 0, length: int = _EXCERPT) -> str:
    """A text, or the part of a long one around a position.

    >>> excerpt("one two three", 4, 3), excerpt("short")
    ('…two…', 'short')
    """
    begin = max(0, min(position - length // 4, len(text) - length))
    end = begin + length
    return "…" * (begin > 0) + text[begin:end] + "…" * (end < len(text))


def read_sizes(examples: Sequence[Example], tokenizer: Any) -> tuple[list[int], list[float]]:
    """The number of tokens of each example, and the fraction of its words that are rare."""
    lengths, rare = [], []
    for encoded in _encode(examples, tokenizer):
        counts = [rare_words(text, tokens, tokenizer.recipe.model == "chars") for text, tokens in encoded]
        found, total = (sum(column) for column in zip(*counts, strict=True)) if counts else (0, 0)
        lengths.append(sum(len(tokens.ids) for _, tokens in encoded))
        rare.append(found / total if total else 0.0)
    return lengths, rare


def _encode(examples: Sequence[Example], tokenizer: Any) -> Iterator[list[tuple[str, Tokens]]]:
    """The texts of each example with their tokens; of a generation example, only the source."""
    for begin in range(0, len(examples), _BATCH):
        texts = [
            [one.source] if isinstance(one, GenerateExample) else texts_of(one)
            for one in examples[begin : begin + _BATCH]
        ]
        lines = [" ".join(text.replace("\0", " ").split()) for several in texts for text in several]
        found = zip(map(tokenizer.presegment, lines), tokenizer.encode_batch(lines), strict=True)
        for several in texts:
            yield [next(found) for _ in several]


def rare_words(text: str, tokens: Tokens, characters: bool = False) -> tuple[int, int]:
    """The number of rare words of a text and of all its words; punctuation is not counted.

    A word is rare if it contains an unknown token or is split into several; a Chinese word, and any word where tokens
    are `characters`, only if it has more tokens than characters.

    >>> offsets = [(0, 3), (3, 6), (6, 9), (9, 10), (10, 14)]
    >>> rare_words("the unapt, cat", Tokens([7, 8, 9, 10, 11], [True, True, False, True, True], offsets))
    (1, 3)
    """
    rare = total = 0
    starts = [index for index, start in enumerate(tokens.word_starts) if start]
    for first, after in pairwise([*starts, len(tokens.ids)]):
        word = text[tokens.offsets[first][0] : tokens.offsets[after - 1][1]]
        if any(character.isalnum() for character in word):
            most = len(word) if characters or HAN.search(word) else 1
            total += 1
            rare += UNK in tokens.ids[first:after] or after - first > most
    return rare, total
