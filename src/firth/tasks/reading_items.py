"""Examples from Python objects: for each task the form in which they are naturally written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from firth.errors import CorpusError
from firth.tasks.examples import (
    ChoiceExample,
    Example,
    GenerateExample,
    Origin,
    SpanExample,
    TagExample,
    TextExample,
)
from firth.tasks.reading_columns import words_of_line
from firth.tasks.reading_records import Record, Records
from firth.text.readers import check_text

_FORMS = {
    "classify": "a pair of a label, or a list of labels, and a text",
    "pair": "a label and two texts",
    "tag": "a pair of a list of words and a list of tags",
    "span": "a passage, a question and the answers",
    "choice": "a context, a question, a list of choices and the number of the right one",
    "generate": "a pair of a source and a target",
}
_PARTS = {
    "classify": ("label", "text"),
    "pair": ("label", "text_a", "text_b"),
    "tag": ("words", "tags"),
    "span": ("passage", "question", "answers"),
    "choice": ("context", "question", "choices", "label"),
    "generate": ("source", "target"),
}
_LABELS = ("label", "tags", "answers", "target")


def from_item(records: Records, number: int, item: Any) -> Example | None:
    """The example that an item from Python is."""
    return records.maker()(number, record_of(records.asked.task, item, number))


def record_of(task: str, item: Any, number: int) -> Record:
    """An item as a record.

    >>> record_of("pair", (1, "one text", "another"), 1)
    {'label': 1, 'text_a': 'one text', 'text_b': 'another'}
    >>> record_of("classify", "a text alone has no label", 1)
    {'text': 'a text alone has no label'}
    """
    if isinstance(item, Mapping):
        return item
    if isinstance(item, TextExample | TagExample | SpanExample | ChoiceExample | GenerateExample):
        return _of_example(item)
    parts, inputs = _PARTS[task], [part for part in _PARTS[task] if part not in _LABELS]
    if isinstance(item, str):
        if task == "tag":
            words, spaced = words_of_line(check_text(item, str(Origin(number=number))))
            return {"words": words, "spaced": spaced}
        if len(inputs) == 1:
            return {inputs[0]: item}
    elif isinstance(item, list | tuple):
        if task == "tag" and all(isinstance(word, str) for word in item):
            return {"words": list(item)}
        for names in (parts, inputs):
            if len(item) == len(names):
                return dict(zip(names, item, strict=True))
    raise CorpusError(f"{Origin(number=number)} is not {_FORMS[task]}: give such items, or dictionaries.")


def _of_example(example: Example) -> Record:
    match example:
        case TextExample(text, None, labels):
            return {"text": text, "labels": None if labels is None else list(labels)}
        case TextExample(text, other, labels):
            return {"text_a": text, "text_b": other, "label": None if labels is None else list(labels)}
        case TagExample(words, tags, spaced):
            return {"words": words, "tags": tags, "spaced": spaced}
        case SpanExample(passage, question, answers, name):
            return {"passage": passage, "question": question, "answers": answers, "id": name}
        case ChoiceExample(context, question, choices, label, name):
            return {"context": context, "question": question, "choices": choices, "label": label, "id": name}
        case GenerateExample(source, target):
            return {"source": source, "target": target}
