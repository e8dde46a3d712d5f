"""Tasks answered by a language model without training, after examples in its prompt (Brown et al. 2020).

An example is a line made by a template, such as `{text_a} : {label}`. The prompt of a question are the lines of some
training examples and the beginning of its own line; the answer is the label or choice whose tokens are most probable
after that. Answers of several lengths can be compared in four ways:

sum             the log-probability of the answer
token           the same divided by its tokens
byte            the same divided by its UTF-8 bytes
unconditional   the same minus that of the answer to an empty question without examples
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from firth.apply.continuations import Continuation, ContinuationScore, score_continuations
from firth.errors import ArgumentError, CorpusError, near_miss
from firth.metrics.measure import measure
from firth.tasks.examples import ChoiceExample, Example, TextExample
from firth.tasks.readers.columns import parse_columns
from firth.tasks.readers.reader import read_task

NORMALISATIONS = ("sum", "token", "byte", "unconditional")
TEMPLATES = {
    "choice": "{context} {question} {choice}",
    "pair": "{text_a} / {text_b} : {label}",
    "classify": "{text_a} : {label}",
}
"""The default template of each task; the last field is the answer."""
_FIELD = re.compile(r"\{(\w*)\}")
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Template:
    """How an example is written as a line that ends with its answer."""

    task: str
    text: str

    def __post_init__(self) -> None:
        fields = _FIELD.findall(TEMPLATES[self.task])
        used, answer = _FIELD.findall(self.text), f"{{{fields[-1]}}}"
        if unknown := [name for name in used if name not in fields]:
            raise ArgumentError(f"the template has no field {unknown[0]!r:.80}: {near_miss(unknown[0], fields)}")
        if not self.text.endswith(answer) or self.text.count(answer) > 1:
            raise ArgumentError(f"a template of {self.task} ends with the answer: write {answer} at its end, once.")
        if not set(fields[:-1]) & set(used):
            others = " or ".join(f"{{{name}}}" for name in fields[:-1])
            raise ArgumentError(f"the template has no text of the example: write {others} into it.")

    def begin(self, example: Example) -> str:
        """The line of an example up to its answer, with the space before it."""
        return self._begin(_values(example))

    @property
    def empty(self) -> str:
        """The same without any text."""
        return self._begin({}).lstrip()

    def _begin(self, values: dict[str, str]) -> str:
        head = self.text[: self.text.rindex("{")]
        return _FIELD.sub(lambda found: values.get(found[1], ""), head)


def _values(example: Example) -> dict[str, str]:
    if isinstance(example, ChoiceExample):
        return {"context": example.context, "question": example.question}
    assert isinstance(example, TextExample)
    return {"text_a": example.text, "text_b": example.other or ""}


class Question(NamedTuple):
    """An example with the prompt that precedes its answer."""

    shots: tuple[str, ...]
    begin: str
    answers: tuple[str, ...]
    gold: int


def evaluate_shots(
    model: Any,
    file: Path,
    *,
    shots: int = 0,
    train: Path | None = None,
    template: str | None = None,
    task: str | None = None,
    seed: int = 0,
    columns: Sequence[str] = (),
    skip_bad: bool = False,
    answers: Sequence[str] = (),
) -> dict[str, Any]:
    """The accuracy of a language model after `shots` examples of `train`, other ones for each question.

    `task` is classify, pair or choice; by default the one whose fields the file has. `answers`, such as `1=good`, are
    words for labels that say nothing. Beside the four ways to compare
    answers stand the majority's accuracy, as baseline, and that of the answers to an empty question.
    """
    if shots < 0 or (shots and train is None):
        raise ArgumentError(f"--shots {shots} takes examples of --train FILE: name it, or give --shots 0.")
    reading = {"columns": parse_columns(columns), "skip_bad": skip_bad}
    name = _task_of(file, task, reading)
    made = Template(name, template or TEMPLATES[name])
    tested = list(read_task(name, file, **cast(Any, reading)))
    known = list(read_task(name, train, **cast(Any, reading))) if train is not None else []
    words = parse_answers(answers)
    tested, known = ([_reword(one, words) for one in each] for each in (tested, known))
    chosen = [_choose(known, shots, train, [seed, number]) for number in range(len(tested))]
    questions = list(_questions(tested, known, made, chosen))
    conditional, empty = _score(model, questions, made)
    return _report(name, questions, conditional, empty, seed) | {
        "shots": shots,
        "template": made.text,
        "score": getattr(model, "score_kind", "causal"),
        "cut_prompts": sum(one.dropped > 0 for row in conditional for one in row[:1]),
    }


def shots_prompt(
    model: Any, text: str, shots: int, train: Path | None, *, template: str | None = None, seed: int = 0
) -> str:
    """The prompt after which a language model writes the label of a text: `shots` lines of a file, and its own."""
    if train is None:
        raise ArgumentError(f"--shots {shots} takes examples of --train FILE: name it.")
    made = Template("classify", template or TEMPLATES["classify"])
    known = list(read_task("classify", train))
    lines = [_line(known[one], made) for one in _choose(known, shots, train, [seed, 0])]
    joint = "\n" if getattr(model, "carries_context", False) else " "
    return joint.join([*lines, made.begin(TextExample(text)).strip()])


def _choose(known: Sequence[Example], shots: int, file: Path | None, seed: Sequence[int]) -> list[int]:
    """The numbers of some examples, in random order."""
    if shots > len(known):
        raise CorpusError(f"{file} has {len(known):,} examples: give fewer --shots.")
    chosen: list[int] = np.random.default_rng(seed).choice(max(len(known), 1), shots, replace=False).tolist()
    return chosen


def parse_answers(given: Sequence[str]) -> dict[str, str]:
    """The words of labels.

    >>> parse_answers(["0=bad", "1=very good"])
    {'0': 'bad', '1': 'very good'}
    """
    found = {}
    for one in given:
        label, sign, word = one.partition("=")
        if not sign or not label.strip() or not word.strip():
            raise ArgumentError(f"--answer {one:.80} is no label with its word: write --answer 1=good, say.")
        found[label.strip()] = word.strip()
    return found


def _reword(example: Example, words: Mapping[str, str]) -> Example:
    """An example with the words of its labels."""
    if not words or not isinstance(example, TextExample) or example.labels is None:
        return example
    return replace(example, labels=tuple(words.get(label, label) for label in example.labels))


def _task_of(file: Path, task: str | None, reading: dict[str, Any]) -> str:
    """The task whose examples a file has."""
    if task is not None:
        if task not in TEMPLATES:
            raise ArgumentError(f"--shots is for classify, pair and choice, not {task!r:.80}: name one with --task.")
        return task
    refused: CorpusError | None = None
    for name in TEMPLATES:
        try:
            next(iter(read_task(name, file, **reading)))
        except CorpusError as error:
            refused = error
        else:
            return name
    assert refused is not None
    raise refused


def _questions(
    tested: Sequence[Example], known: Sequence[Example], template: Template, chosen: Sequence[Sequence[int]]
) -> Iterator[Question]:
    labels = () if template.task == "choice" else _labels([*known, *tested])
    for example, numbers in zip(tested, chosen, strict=True):
        lines = tuple(_line(known[one], template) for one in numbers)
        if isinstance(example, ChoiceExample):
            assert example.label is not None
            yield Question(lines, template.begin(example), example.choices, example.label)
        else:
            yield Question(lines, template.begin(example), labels, labels.index(_label(example)))


def _labels(examples: Sequence[Example]) -> tuple[str, ...]:
    """All labels in order; raises `CorpusError` if one begins another, for it would always be more probable."""
    labels = tuple(sorted({_label(one) for one in examples}))
    for one, other in pairwise(labels):
        if other.startswith(one):
            raise CorpusError(f"the label {one!r:.80} begins the label {other!r:.80}: rename one of them.")
    return labels


def _label(example: Example) -> str:
    assert isinstance(example, TextExample)
    labels = example.labels or ()
    if len(labels) != 1:
        raise CorpusError(f"{example.origin}: {len(labels)} labels, where an answer is one: give each text a label.")
    return labels[0]


def _line(example: Example, template: Template) -> str:
    """A training example with its answer."""
    answer = example.choices[example.label or 0] if isinstance(example, ChoiceExample) else _label(example)
    return template.begin(example) + answer


Scores = list[list[ContinuationScore]]


def _score(model: Any, questions: Sequence[Question], template: Template) -> tuple[Scores, Scores]:
    """The scores of the answers of each question, and those to an empty one."""
    asked = [Continuation(one.shots, one.begin, answer) for one in questions for answer in one.answers]
    different = {answer: None for one in questions for answer in one.answers}
    asked += [Continuation((), template.empty, answer) for answer in different]
    found = score_continuations(model, asked)
    empty = dict(zip(different, found[len(found) - len(different) :], strict=True))
    left = iter(found)
    conditional = [[next(left) for _ in one.answers] for one in questions]
    return conditional, [[empty[answer] for answer in one.answers] for one in questions]


def _report(task: str, questions: Sequence[Question], asked: Scores, empty: Scores, seed: int) -> dict[str, Any]:
    """The metrics of the answers by the sum, and the accuracy of each way to compare them."""
    gold = [one.gold for one in questions]
    chosen = {
        name: [int(_compared(*rows, name).argmax()) for rows in zip(asked, empty, strict=True)]
        for name in NORMALISATIONS
    }
    if task == "choice":
        report = measure(task, gold, chosen["sum"], seed=seed)
    else:
        labels = [one.answers for one in questions]
        named = [[answers[one] for answers, one in zip(labels, some, strict=True)] for some in (gold, chosen["sum"])]
        report = measure(task, *named, seed=seed)
    right = {name: float(np.mean(np.equal(some, gold))) for name, some in chosen.items()}
    guessed = [int(np.argmax([one.logprob for one in row])) for row in empty]
    return {"task": task, **report, "accuracies": right, "empty_context": float(np.mean(np.equal(guessed, gold)))}


def _compared(asked: Sequence[ContinuationScore], empty: Sequence[ContinuationScore], way: str) -> Floats:
    """The numbers by which the answers of a question are compared."""
    sums = np.array([one.logprob for one in asked])
    if way == "token":
        return np.asarray(sums / [max(one.tokens, 1) for one in asked])
    if way == "byte":
        return np.asarray(sums / [max(one.bytes, 1) for one in asked])
    return sums if way == "sum" else np.asarray(sums - [one.logprob for one in empty])
