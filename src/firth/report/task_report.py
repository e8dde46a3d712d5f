"""Where a fine-tuned model errs: which label it takes for which, its worst answers, and what makes examples hard."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from firth.apply.solve import answer_task, require_solves
from firth.artifact.manifest import installed_versions
from firth.errors import OutputError
from firth.files import digest_file, new_file
from firth.report.task_page import render_task_page
from firth.tasks.examples import ChoiceExample, Example, GenerateExample, SpanExample, TagExample, TextExample, texts_of
from firth.tasks.metrics import is_chinese, label_table, length_breakdown
from firth.tasks.metrics_answers import answer_scores
from firth.tasks.metrics_tags import entities, has_entities, words
from firth.tasks.metrics_texts import chrf, chrf_counts
from firth.tasks.schemes import scheme_of
from firth.text.segment import HAN
from firth.tokens.tokenizer import UNK, Tokens

Answer = Mapping[str, Any]
Floats = npt.NDArray[np.float64]
_SHOWN = 20  # errors, and labels that have a row of their own
_EXCERPT = 600  # characters of a text that are shown
_TOGETHER = 1000  # examples that are cut into tokens at a time
_LENGTHS = (8, 16, 32, 64, 128, 256, 512)
_RARE = (1, 6, 11, 21, 41)  # per cent, rounded up: none, up to 5, 10, 20, 40, and more


class Score(NamedTuple):
    """What tells how good a single answer is."""

    name: str
    each: Callable[[Sequence[Any], Sequence[Answer]], Floats]
    best: float = 1.0
    """What a right answer has."""


def write_task_report(
    model: Any, path: Path, out: Path, *, name: str, seed: int = 0, skip_bad: bool = False
) -> dict[str, Any]:
    """Measures a model as `evaluate_task` does, and writes the page; the metrics, and where the page is."""
    if out.is_dir():
        raise OutputError(f"{out} is a folder: name a file with -o, such as {out / 'report.html'}.")
    solver: Any = require_solves(model)
    with new_file(out) as file:
        examples, answers = answer_task(solver, path, skip_bad=skip_bad)
        metrics: dict[str, Any] = solver.measure(examples, answers, seed=seed)
        report = {
            "model": name,
            "task": solver.task,
            "file": str(path),
            "digest": digest_file(path) if path.is_file() else None,
            "truncated": solver.frame.cut,
            "seed": seed,
            "version": installed_versions().get("firth", "–"),
            "metrics": metrics,
            **analyse(solver.task, examples, answers, solver.tokenizer),
        }
        file.write(render_task_page(report).encode())
    return {"task": solver.task} | metrics | {"report": str(out)}


def analyse(task: str, examples: Sequence[Any], answers: Sequence[Answer], tokenizer: Any) -> dict[str, Any]:
    """What there is to learn from the answers to labelled examples.

    score: what one answer is measured by, its mean, and what a right one has. labels: as `label_table` gives it, where
    there are labels; of sets without `confusion`. confusion: that of the most frequent labels. wrong: how many answers
    are not wholly right. errors: the worst of them, of equals those that the model was surest of. by_length: the score
    of examples with like numbers of tokens. by_rare: of those with like shares of rare words, in per cent, rounded up.
    """
    kind = _kind(task, examples, answers)
    score = _SCORES[kind]
    scores = score.each(examples, answers)
    lengths, rare = read_sizes(examples, tokenizer)
    sure = [_confidence(kind, answer) for answer in answers]
    told = {"probability": sure} if kind in ("label", "choice") else {"score": scores.tolist()}
    wrong = np.flatnonzero(scores != score.best)
    worst = wrong[np.lexsort((-np.array(sure)[wrong], -np.abs(scores - score.best)[wrong]))]
    labels = _labels(kind, examples, answers)
    return {
        "score": {"name": score.name, "mean": float(scores.mean()), "best": score.best},
        "labels": labels,
        "confusion": most_frequent(labels) if labels and "confusion" in labels else None,
        "wrong": len(wrong),
        "errors": [
            _error(kind, examples[place], answers[place]) | {name: values[place] for name, values in told.items()}
            for place in worst[:_SHOWN].tolist()
        ],
        "by_length": length_breakdown(lengths, scores.tolist(), _LENGTHS),
        "by_rare": length_breakdown([math.ceil(100 * share) for share in rare], scores.tolist(), _RARE),
    }


def _kind(task: str, examples: Sequence[Any], answers: Sequence[Answer]) -> str:
    """What answers look like: classify and pair tell a label, a set of labels or a number."""
    if task in ("classify", "pair"):
        return "labels" if "labels" in answers[0] else "label" if "label" in answers[0] else "number"
    if task == "tag":
        tags = [tag for one in examples for tag in one.tags or ()]
        if scheme_of(tags) == "BIES":
            return "segment"
        return "entity" if has_entities([tags]) else "tag"
    return task


def _right(gold: Sequence[Any], told: Sequence[Any]) -> Floats:
    return np.array([float(a == b) for a, b in zip(gold, told, strict=True)])


def _f1(gold: Sequence[Any], told: Sequence[Any]) -> Floats:
    """2 |both| / (|gold| + |told|) of sets; 1 where there is nothing to find and nothing was found."""
    pairs = [(set(a), set(b)) for a, b in zip(gold, told, strict=True)]
    return np.array([2 * len(a & b) / (len(a) + len(b)) if a or b else 1.0 for a, b in pairs])


def _chunks_f1(find: Callable[[Sequence[str]], set[Any]]) -> Callable[[Sequence[Any], Sequence[Answer]], Floats]:
    return lambda examples, answers: _f1([find(one.tags) for one in examples], [find(one["tags"]) for one in answers])


def _tags_right(examples: Sequence[TagExample], answers: Sequence[Answer]) -> Floats:
    shares = [_right(one.tags or (), told["tags"]) for one, told in zip(examples, answers, strict=True)]
    return np.array([float(share.mean()) if share.size else 1.0 for share in shares])


def _off(examples: Sequence[TextExample], answers: Sequence[Answer]) -> Floats:
    return np.array([abs(float(_gold(one)) - told["score"]) for one, told in zip(examples, answers, strict=True)])


def _answers_f1(examples: Sequence[SpanExample], answers: Sequence[Answer]) -> Floats:
    gold = [[one.text for one in example.answers or ()] for example in examples]
    return answer_scores(gold, [one["answer"] for one in answers], is_chinese("span", gold))[:, 1]


def _chrf(examples: Sequence[GenerateExample], answers: Sequence[Answer]) -> Floats:
    counts = [chrf_counts(one.target or "", told["text"]) for one, told in zip(examples, answers, strict=True)]
    return chrf(np.array(counts, dtype=np.float64))


def _gold(example: Any) -> Any:
    """The one label of a text, or the number of the right choice."""
    return example.label if isinstance(example, ChoiceExample) else (example.labels or ("",))[0]


_SCORES = {
    "label": Score("share that is right", lambda e, a: _right([_gold(x) for x in e], [x["label"] for x in a])),
    "labels": Score("F1 of the labels", lambda e, a: _f1([x.labels or () for x in e], [x["labels"] for x in a])),
    "number": Score("distance from the right number", _off, best=0.0),
    "tag": Score("share of words that is right", _tags_right),
    "entity": Score("F1 of the entities in a sentence", _chunks_f1(entities)),
    "segment": Score("F1 of the words in a sentence", _chunks_f1(words)),
    "span": Score("F1 of the answer", _answers_f1),
    "choice": Score("share that is right", lambda e, a: _right([_gold(x) for x in e], [x["choice"] for x in a])),
    "generate": Score("chrF of the text", _chrf, best=100.0),
}


def _labels(kind: str, examples: Sequence[Any], answers: Sequence[Answer]) -> dict[str, Any] | None:
    """How often each label was taken for each; of tags, those of all words together."""
    match kind:
        case "label" | "choice":
            return label_table([str(_gold(one)) for one in examples], [str(one[kind]) for one in answers])
        case "tag" | "entity" | "segment":
            gold = list(chain.from_iterable(one.tags or () for one in examples))
            return label_table(gold, list(chain.from_iterable(one["tags"] for one in answers))) if gold else None
        case "labels":
            return _each_label([set(one.labels or ()) for one in examples], [set(one["labels"]) for one in answers])
    return None


def _each_label(gold: Sequence[set[str]], told: Sequence[set[str]]) -> dict[str, Any]:
    """Of sets: for each label, whether it was told where it should be; one is not taken for another."""
    known = sorted(set[str]().union(*gold, *told))
    tables = {label: label_table([label in one for one in gold], [label in one for one in told]) for label in known}
    return {"labels": known, "by_label": {label: table["by_label"][True] for label, table in tables.items()}}


def most_frequent(table: Mapping[str, Any], most: int = _SHOWN) -> dict[str, Any]:
    """The confusion of the labels that are most frequent in the gold data; the rest, if there is one, is one more row.

    >>> most_frequent(label_table(["a", "b", "b", "c"], ["a", "b", "c", "c"]), 1)
    {'labels': ['b'], 'counts': [[1, 1], [0, 2]], 'others': 2}
    """
    confusion = np.array(table["confusion"])
    order = np.lexsort((-confusion.sum(axis=0), -confusion.sum(axis=1)))
    places = np.empty_like(order)
    places[order] = np.minimum(np.arange(len(order)), most)
    size = min(len(order), most + 1)
    counts = np.zeros((size, size), dtype=np.int64)
    np.add.at(counts, (places[:, None], places[None, :]), confusion)
    kept = [table["labels"][one] for one in order[:most]]
    return {"labels": kept, "counts": counts.tolist(), "others": len(order) - len(kept)}


def _confidence(kind: str, answer: Answer) -> float:
    """How sure the model was: a probability for labels and choices, else any number that is higher if it was surer."""
    match kind:
        case "label":
            return float(answer["probability"])
        case "choice":
            return float(max(answer["probabilities"]))
        case "tag" | "entity" | "segment":
            return float(np.mean(answer["probabilities"])) if answer.get("probabilities") else 0.0
        case "span":
            return abs(float(answer["none"]))  # by how much no answer is better than the best one, or worse
        case "generate":
            return float(answer["logprob"])
    return 0.0


def _error(kind: str, example: Example, answer: Answer) -> dict[str, Any]:
    """Where an example stands, its text, what is right and what was told."""
    where = f"{Path(example.origin.source).name}, " * bool(example.origin.source) + f"line {example.origin.number}"
    text, gold, told = _sides(kind, example, answer)
    return {"where": where, "text": text, "gold": gold, "predicted": told}


def _sides(kind: str, example: Example, answer: Answer) -> tuple[str, str, str]:
    match example:
        case TextExample():
            told = (
                f"{answer['score']:.3f}" if kind == "number" else ", ".join(answer.get("labels", [answer.get("label")]))
            )
            return "\n".join(map(excerpt, texts_of(example))), ", ".join(example.labels or ()), told
        case TagExample():
            gold, told = (_tagged(kind, example, answer["tags"], tags) for tags in (example.tags or (), answer["tags"]))
            return excerpt(texts_of(example)[0]), gold, told
        case SpanExample():
            right = list(dict.fromkeys(one.text for one in example.answers or ()))
            first = example.answers[0].start if example.answers else answer["start"]
            passage = excerpt(example.passage, first, _EXCERPT // 2)
            return f"{example.question}\n{passage}", " | ".join(right), answer["answer"]
        case ChoiceExample():
            text = "\n".join(filter(None, (excerpt(example.context), example.question)))
            return text, example.choices[cast(int, example.label)], example.choices[answer["choice"]]
        case _:
            return excerpt(example.source), excerpt(example.target or ""), excerpt(answer["text"])


def _tagged(kind: str, example: TagExample, told: Sequence[str], shown: Sequence[str]) -> str:
    """The words that tags make of characters; or else the words whose tag is wrong, each with the one `shown`."""
    if kind == "segment":
        return " ".join("".join(example.words[first : last + 1]) for _, first, last in sorted(words(shown)))
    places = [place for place, tag in enumerate(example.tags or ()) if tag != told[place]]
    return "  ".join(f"{example.words[place]}/{shown[place]}" for place in places)


def excerpt(text: str, place: int = 0, room: int = _EXCERPT) -> str:
    """A text, or of a long one what stands around a place.

    >>> excerpt("one two three", 4, 3), excerpt("short")
    ('…two…', 'short')
    """
    begin = max(0, min(place - room // 4, len(text) - room))
    end = begin + room
    return "…" * (begin > 0) + text[begin:end] + "…" * (end < len(text))


def read_sizes(examples: Sequence[Example], tokenizer: Any) -> tuple[list[int], list[float]]:
    """How many tokens each example has, and which share of its words is rare."""
    lengths, rare = [], []
    for one in _encoded(examples, tokenizer):
        counts = [rare_words(text, tokens, tokenizer.recipe.model == "chars") for text, tokens in one]
        found, number = (sum(column) for column in zip(*counts, strict=True)) if counts else (0, 0)
        lengths.append(sum(len(tokens.ids) for _, tokens in one))
        rare.append(found / number if number else 0.0)
    return lengths, rare


def _encoded(examples: Sequence[Example], tokenizer: Any) -> Iterator[list[tuple[str, Tokens]]]:
    """The texts of each example with their tokens; of a text that is to be written, those of its source."""
    for begin in range(0, len(examples), _TOGETHER):
        texts = [
            [one.source] if isinstance(one, GenerateExample) else texts_of(one)
            for one in examples[begin : begin + _TOGETHER]
        ]
        lines = [" ".join(text.replace("\0", " ").split()) for several in texts for text in several]
        found = zip(map(tokenizer.spaced, lines), tokenizer.encode_batch(lines), strict=True)
        for several in texts:
            yield [next(found) for _ in several]


def rare_words(text: str, tokens: Tokens, characters: bool = False) -> tuple[int, int]:
    """How many words of a text are rare, and how many there are; marks are no words.

    Rare is what the tokenizer does not know, and what it cuts into pieces; Chinese words, and all words where tokens
    are `characters`, only if there are more pieces than characters.

    >>> offsets = [(0, 3), (3, 6), (6, 9), (9, 10), (10, 14)]
    >>> rare_words("the unapt, cat", Tokens([7, 8, 9, 10, 11], [True, True, False, True, True], offsets))
    (1, 3)
    """
    rare = number = 0
    begins = [place for place, start in enumerate(tokens.starts) if start]
    for first, after in pairwise([*begins, len(tokens.ids)]):
        word = text[tokens.offsets[first][0] : tokens.offsets[after - 1][1]]
        if any(letter.isalnum() for letter in word):
            most = len(word) if characters or HAN.search(word) else 1
            number += 1
            rare += UNK in tokens.ids[first:after] or after - first > most
    return rare, number
