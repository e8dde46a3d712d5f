"""Examples from records: objects of JSONL, questions of SQuAD's JSON, and Python objects."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from firth.errors import CorpusError
from firth.tasks.examples import (
    ChoiceExample,
    Example,
    GenerateExample,
    MentionExample,
    Origin,
    SpanExample,
    TagExample,
    TextExample,
)
from firth.tasks.readers.columns import HOW, ReadLog, ReadOptions, Record, hint
from firth.tasks.readers.squad import locate_answers
from firth.tasks.readers.tagged import is_spaced, words_of_line
from firth.text.readers import require_text

_MAX_LABELS = 1000
_MAX_DIGITS = 12  # of a number of characters
_MAX_NUMBER = 1e9  # of a pair's label
_FORMS = {
    "classify": "a pair of a label, or a list of labels, and a text",
    "pair": "a label and two texts",
    "tag": "a pair of a list of words and a list of tags",
    "span": "a passage, a question and the answers",
    "choice": "a context, a question, a list of choices and the index of the correct one",
    "generate": "a pair of a source and a target",
    "typing": "a list of types, a text, and the characters from which and to which a mention goes",
    "relation": "a label, a text, and a pair of characters for each of the head and the tail",
}
_PARTS = {
    "classify": ("label", "text"),
    "pair": ("label", "text_a", "text_b"),
    "tag": ("words", "tags"),
    "span": ("passage", "question", "answers"),
    "choice": ("context", "question", "choices", "label"),
    "generate": ("source", "target"),
    "typing": ("label", "text", "start", "end"),
    "relation": ("label", "text", "head", "tail"),
}
_LABELS = ("label", "tags", "answers", "target")


def parse_record(line: str, where: str) -> Record:
    """The object on a line of JSONL."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise CorpusError(f"{where} is not JSON ({error}): write one JSON object a line.") from None
    if not isinstance(record, dict):
        raise CorpusError(f"{where} is not a JSON object: write one JSON object a line.")
    return record


def one_line(text: str) -> str:
    """A text without line breaks."""
    return " ".join(text.splitlines()).strip()


def check_labels(labels: tuple[str, ...], where: str, task: str) -> tuple[str, ...]:
    """The same labels, after a check of their number and of the numeric labels of pairs."""
    if not labels:
        raise CorpusError(f"{where}: there is no label: {HOW[task]}.")
    if len(labels) > _MAX_LABELS:
        raise CorpusError(f"{where}: {len(labels)} labels are too many: {_MAX_LABELS} at most.")
    for label in labels:
        require_text(label, where)
    if task == "pair" and any(map(_is_out_of_range, labels)):
        raise CorpusError(f"{where}: the label {labels[0]!r:.80} is out of range for a number: write a finite one.")
    return labels


def _is_out_of_range(label: str) -> bool:
    """Whether a label is a number that is too large or not finite.

    >>> [_is_out_of_range(label) for label in ("NaN", "-inf", "1e300", "3.5", "nano")]
    [True, True, True, False, False]
    """
    try:
        return not abs(float(label)) <= _MAX_NUMBER
    except ValueError:
        return False


@dataclass(frozen=True)
class Records:
    """Builds examples from records."""

    options: ReadOptions
    log: ReadLog
    source: str = ""

    def maker(self) -> Callable[[int, Record], Example | None]:
        """The function from the number of a record and the record to an example, or None if it has no text."""
        makers = (
            *(self.classify, self.pair, self.tag, self.span, self.choice, self.generate),
            *(self.typing, self.relation),
        )
        return next(make for make in makers if make.__name__ == self.options.task)

    def item_maker(self) -> Callable[[int, Any], Example | None]:
        """The function from the number of a Python object and the object to an example, or None if it has no text."""
        make, task = self.maker(), self.options.task
        return lambda number, item: make(number, record_of(task, item, number))

    def line_maker(self) -> Callable[[int, str], Example | None]:
        """The function from a line number and a line of JSONL to an example, or None if it is blank."""
        make = self.maker()

        def from_line(number: int, line: str) -> Example | None:
            if not line or line.isspace():
                return None
            return make(number + 1, parse_record(line, str(Origin(self.source, number + 1))))

        return from_line

    def classify(self, number: int, record: Record) -> TextExample | None:
        origin = Origin(self.source, number)
        if "text" not in self.options.columns and "text_b" in record and "text" not in record:
            raise CorpusError(f"{origin} has a second text, text_b: {hint(self.options, record)}.")
        text = self._text(record, "text", origin)
        labels = self._labels(record, origin)
        if not text and self.log.leave_out_empty():
            return None
        return TextExample(text, None, labels, origin)

    def pair(self, number: int, record: Record) -> TextExample | None:
        origin = Origin(self.source, number)
        text, other = self._text(record, "text_a", origin), self._text(record, "text_b", origin)
        labels = self._labels(record, origin)
        if labels is not None and len(labels) > 1:
            raise CorpusError(f"{origin} has {len(labels)} labels: give a pair of texts one.")
        if not (text and other) and self.log.leave_out_empty():
            return None
        return TextExample(text, other, labels, origin)

    def tag(self, number: int, record: Record) -> TagExample:
        origin = Origin(self.source, number)
        words = self._strings(record, "word", origin)
        if not words or "" in words:
            raise CorpusError(f"{origin} has no words, or an empty one: give each sentence its words.")
        tags: tuple[str, ...] | None = None
        if self._wants("tag", record, origin):
            tags = self._strings(record, "tag", origin)
            if len(tags) != len(words):
                raise CorpusError(f"{origin} has {len(words)} words and {len(tags)} tags: give each word one tag.")
            if "" in tags:
                raise CorpusError(f"{origin} has an empty tag: give each word one tag.")
            self.log.add_tags(tags, origin)
        spaced = record.get("spaced")
        return TagExample(words, tags, spaced if isinstance(spaced, bool) else is_spaced(words), origin)

    def span(self, number: int, record: Record) -> SpanExample | None:
        origin = Origin(self.source, number)
        where = f"{self.source}, question {number}" if self.log.unit == "question" else str(origin)
        # The passage stays as it is: answers refer to its characters.
        passage = require_text(self._string(record, "passage", where), where)
        question = self._text(record, "question", where)
        if not passage.strip():
            raise CorpusError(f"{where} has an empty passage: give it one, or leave the question out.")
        if not question and self.log.leave_out_empty():
            return None
        name = self._name(record, where)
        if not self._wants("answers", record, where, record.get("is_impossible") is True):
            return SpanExample(passage, question, None, name, origin)
        given = [] if record.get("is_impossible") is True else self._value(record, "answers")
        answers = locate_answers(given, passage, where, self.log)
        return None if answers is None else SpanExample(passage, question, answers, name, origin)

    def choice(self, number: int, record: Record) -> ChoiceExample:
        origin = Origin(self.source, number)
        choices = tuple(map(one_line, self._strings(record, "choices", origin)))
        if len(choices) < 2 or "" in choices:
            raise CorpusError(f"{origin} has {len(choices)} choices or an empty one: give two sentences or more.")
        context, question = (
            self._text(record, role, origin) if self.options.find(role, record) else ""
            for role in ("context", "question")
        )
        if not (context or question):
            raise CorpusError(f"{origin} has neither a context nor a question: give it one of them.")
        label: int | None = None
        if self._wants("label", record, origin):
            label = self._value(record, "label")
            if type(label) is not int or not 0 <= label < len(choices):
                raise CorpusError(
                    f"{origin} has the label {label!r:.80}: give the index of the correct choice, from 0 to "
                    f"{len(choices) - 1}."
                )
        name = self._name(record, origin)
        return ChoiceExample(context, question, choices, label, name, origin)

    def generate(self, number: int, record: Record) -> GenerateExample | None:
        origin = Origin(self.source, number)
        source = self._text(record, "source", origin)
        target = self._text(record, "target", origin) if self._wants("target", record, origin) else None
        if not (source and target != "") and self.log.leave_out_empty():
            return None
        return GenerateExample(source, target, origin)

    def typing(self, number: int, record: Record) -> MentionExample | None:
        origin = Origin(self.source, number)
        if self.options.find("mention", record) is not None:
            parts = self._part(record, "left", origin), self._part(record, "mention", origin)
            text, begin = f"{parts[0]}{parts[1]}", len(parts[0])
            span, text = (begin, len(text)), text + self._part(record, "right", origin)
        else:
            text = require_text(self._string(record, "text", origin), str(origin))
            span = whole_number(self._value(record, "start")), whole_number(self._value(record, "end"))
        return self._mentions(record, origin, text, (span,))

    def relation(self, number: int, record: Record) -> MentionExample | None:
        origin = Origin(self.source, number)
        text = require_text(self._string(record, "text", origin), str(origin))
        spans = tuple(span_of(self._value(record, role)) for role in ("head", "tail"))
        return self._mentions(record, origin, text, spans)

    def _mentions(
        self, record: Record, origin: Origin, text: str, spans: Sequence[tuple[int, int]]
    ) -> MentionExample | None:
        """The example of a text with mentions, which must be within it."""
        labels = self._labels(record, origin)
        if labels is not None and self.options.task == "relation" and len(labels) != 1:
            raise CorpusError(f"{origin} has {len(labels)} labels: give a relation one.")
        if not text.strip() and self.log.leave_out_empty():
            return None
        for begin, end in spans:
            if not 0 <= begin < end <= len(text):
                raise CorpusError(
                    f"{origin} has a mention from {begin} to {end} in a text of {len(text)} characters: give the "
                    "number of its first character, from 0, and of the one after its last."
                )
        return MentionExample(text, None, labels, origin, tuple(spans))

    def _part(self, record: Record, role: str, where: object) -> str:
        """A part of the text around a mention, as a text or as words; these have spaces between them."""
        found = self._value(record, role)
        if role == "mention" or isinstance(found, str):
            return require_text(self._string(record, role, where), str(where))
        words = " ".join(self._strings(record, role, where))
        return f" {words}" if role == "right" and words else f"{words} " if words else ""

    def _wants(self, role: str, record: Record, where: object, known: bool = False) -> bool:
        """Whether to read labels; raises `CorpusError` if they are missing."""
        if not self.options.labelled:
            return False
        if not known and self._value(record, role) is None:
            verb = "are" if role == "answers" else "is"
            raise CorpusError(
                f"{where}: there {verb} no {role} in {self.options.names(role)[0]!r}: {self._remedy(record, role)}."
            )
        return True

    def _labels(self, record: Record, origin: Origin) -> tuple[str, ...] | None:
        """The distinct labels of a text; an empty list under `labels` or `types` means that none applies."""
        if not self._wants("label", record, origin):
            return None
        found = self._value(record, "label")
        labels = list(found) if isinstance(found, list | tuple | set | frozenset) else [found]
        if not all(isinstance(label, str | int | float) for label in labels):
            raise CorpusError(
                f"{origin} has a label that is neither a name nor a number: write one, or a list of them."
            )
        if not labels and self.options.find("label", record) in ("labels", "types"):
            return ()
        return check_labels(
            tuple(dict.fromkeys(str(label).strip() for label in labels if label != "")), str(origin), self.options.task
        )

    def _remedy(self, record: Record, role: str) -> str:
        fields = f"{', '.join(map(str, record)):.200}" or "none"
        return hint(self.options, record) or (
            f"its fields are {fields}; give it there, or name the field that holds it by --field {role}=NAME"
        )

    def _value(self, record: Record, role: str) -> Any:
        return record.get(self.options.find(role, record) or "")

    def _name(self, record: Record, where: Any) -> str:
        """The id of a record, which predictions repeat, or an empty string."""
        return require_text(str(record.get(self.options.find("id", record) or "", "")), str(where))

    def _text(self, record: Record, role: str, where: object) -> str:
        return one_line(require_text(self._string(record, role, where), str(where)))

    def _string(self, record: Record, role: str, where: object) -> str:
        text = self._value(record, role)
        if not isinstance(text, str):
            raise CorpusError(f"{where} has no text in {self.options.names(role)[0]!r}: {self._remedy(record, role)}.")
        return text

    def _strings(self, record: Record, role: str, where: object) -> tuple[str, ...]:
        """A list of texts; numbers are converted."""
        found = self._value(record, role)
        if not isinstance(found, list | tuple) or not all(isinstance(one, str | int | float) for one in found):
            raise CorpusError(
                f"{where} has no list of texts in {self.options.names(role)[0]!r}: {self._remedy(record, role)}."
            )
        return tuple(require_text(str(one), str(where)) for one in found)


def whole_number(value: Any) -> int:
    """A number of characters, as a number or as text; -1 for anything else."""
    if isinstance(value, str) and value.strip().isdecimal() and len(value) < _MAX_DIGITS:
        return int(value)
    return value if type(value) is int else -1


def span_of(value: Any) -> tuple[int, int]:
    """Two numbers of characters, as a list or as text; (-1, -1) for anything else.

    >>> span_of([0, 5]), span_of("0:5"), span_of("x")
    ((0, 5), (0, 5), (-1, -1))
    """
    parts = value.split(":") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple) or len(parts) != 2:
        return -1, -1
    return whole_number(parts[0]), whole_number(parts[1])


def record_of(task: str, item: Any, number: int) -> Record:
    """A Python object as a record.

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
            words, spaced = words_of_line(require_text(item, str(Origin(number=number))))
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
    if not isinstance(example, TextExample):
        return {field.name: getattr(example, field.name) for field in fields(example)}
    labels = None if example.labels is None else list(example.labels)
    if isinstance(example, MentionExample):
        spans = [list(span) for span in example.mentions]
        if len(spans) == 1:
            return {"text": example.text, "start": spans[0][0], "end": spans[0][1], "labels": labels}
        return {"text": example.text, "head": spans[0], "tail": spans[1], "label": labels}
    if example.other is None:
        return {"text": example.text, "labels": labels}
    return {"text_a": example.text, "text_b": example.other, "label": labels}
