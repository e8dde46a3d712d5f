"""Examples from records: the objects of JSONL, the questions of SQuAD's JSON, and what Python gives."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
from firth.tasks.reading_answers import place_answers
from firth.tasks.reading_roles import HOW, Asked, hint
from firth.tasks.reading_spacing import is_spaced
from firth.tasks.reading_tally import Tally
from firth.text.readers import check_text

Record = Mapping[str, Any]
MOST_LABELS = 1000
_LARGEST = 1e9  # number that two texts may have for a label


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
    """A text without line ends, so that it is one sentence."""
    return " ".join(text.splitlines()).strip()


def check_labels(labels: tuple[str, ...], where: str, task: str) -> tuple[str, ...]:
    """The same labels, if there are neither none nor too many, and no number among those of pairs is beyond reason."""
    if not labels:
        raise CorpusError(f"{where}: there is no label: {HOW[task]}.")
    if len(labels) > MOST_LABELS:
        raise CorpusError(f"{where}: {len(labels)} labels are too many: {MOST_LABELS} may be.")
    if task == "pair" and any(map(_beyond_reason, labels)):
        raise CorpusError(f"{where}: the label {labels[0]!r:.80} is no number that can be learnt: write a finite one.")
    return labels


def _beyond_reason(label: str) -> bool:
    """Whether a label is written like a number but is none to compute with.

    >>> [_beyond_reason(label) for label in ("NaN", "-inf", "1e300", "3.5", "nano")]
    [True, True, True, False, False]
    """
    try:
        return not abs(float(label)) <= _LARGEST
    except ValueError:
        return False


@dataclass(frozen=True)
class Records:
    """Makes examples of records."""

    asked: Asked
    tally: Tally
    source: str = ""

    def maker(self) -> Callable[[int, Record], Example | None]:
        """What makes an example of a record and its number, or None if it has no text."""
        makers: dict[str, Callable[[int, Record], Example | None]] = {
            "classify": self.text,
            "pair": self.pair,
            "tag": self.tag,
            "span": self.span,
            "choice": self.choice,
            "generate": self.generate,
        }
        return makers[self.asked.task]

    def line_maker(self) -> Callable[[int, str], Example | None]:
        """What makes an example of a line of JSONL and its number from 0, or None if it is blank."""
        make = self.maker()

        def from_line(number: int, line: str) -> Example | None:
            if not line or line.isspace():
                return None
            return make(number + 1, parse_record(line, str(Origin(self.source, number + 1))))

        return from_line

    def text(self, number: int, record: Record) -> TextExample | None:
        origin = Origin(self.source, number)
        if "text" not in self.asked.fields and "text_b" in record and "text" not in record:
            raise CorpusError(f"{origin} has a second text, text_b: {hint(self.asked, record)}.")
        text = self._text(record, "text", origin)
        labels = self._labels(record, origin)
        if not text and self.tally.leave_out_empty():
            return None
        return TextExample(text, None, labels, origin)

    def pair(self, number: int, record: Record) -> TextExample | None:
        origin = Origin(self.source, number)
        text, other = self._text(record, "text_a", origin), self._text(record, "text_b", origin)
        labels = self._labels(record, origin)
        if labels is not None and len(labels) > 1:
            raise CorpusError(f"{origin} has {len(labels)} labels: give a pair of texts one.")
        if not (text and other) and self.tally.leave_out_empty():
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
            self.tally.see_tags(tags, origin)
        spaced = record.get("spaced")
        return TagExample(words, tags, spaced if isinstance(spaced, bool) else is_spaced(words), origin)

    def span(self, number: int, record: Record) -> SpanExample | None:
        origin = Origin(self.source, number)
        where = f"{self.source}, question {number}" if self.tally.unit == "question" else str(origin)
        passage = check_text(self._string(record, "passage", where), where)  # as it is: places in it are counted
        question = self._text(record, "question", where)
        if not passage.strip():
            raise CorpusError(f"{where} has an empty passage: give it one, or leave the question out.")
        if not question and self.tally.leave_out_empty():
            return None
        name = str(record.get(self.asked.find("id", record) or "", ""))
        if not self._wants("answers", record, where, record.get("is_impossible") is True):
            return SpanExample(passage, question, None, name, origin)
        given = [] if record.get("is_impossible") is True else self._value(record, "answers")
        answers = place_answers(given, passage, where, self.tally)
        return None if answers is None else SpanExample(passage, question, answers, name, origin)

    def choice(self, number: int, record: Record) -> ChoiceExample:
        origin = Origin(self.source, number)
        choices = tuple(map(one_line, self._strings(record, "choices", origin)))
        if len(choices) < 2 or "" in choices:
            raise CorpusError(f"{origin} has {len(choices)} choices or an empty one: give two sentences or more.")
        context, question = (
            self._text(record, role, origin) if self.asked.find(role, record) else ""
            for role in ("context", "question")
        )
        if not (context or question):
            raise CorpusError(f"{origin} has neither a context nor a question: give it one of them.")
        label: int | None = None
        if self._wants("label", record, origin):
            label = self._value(record, "label")
            if type(label) is not int or not 0 <= label < len(choices):
                raise CorpusError(
                    f"{origin} has the label {label!r}: give the number of the right choice, from 0 to "
                    f"{len(choices) - 1}."
                )
        name = str(record.get(self.asked.find("id", record) or "", ""))
        return ChoiceExample(context, question, choices, label, name, origin)

    def generate(self, number: int, record: Record) -> GenerateExample | None:
        origin = Origin(self.source, number)
        source = self._text(record, "source", origin)
        target = self._text(record, "target", origin) if self._wants("target", record, origin) else None
        if not (source and target != "") and self.tally.leave_out_empty():
            return None
        return GenerateExample(source, target, origin)

    def _wants(self, role: str, record: Record, where: object, known: bool = False) -> bool:
        """Whether labels are to be taken from a record; an error if they should be there and are not."""
        if not self.asked.labelled:
            return False
        if not known and self._value(record, role) is None:
            clause = hint(self.asked, record) or f"give it there, or name the field by --field {role}=NAME"
            verb = "are" if role == "answers" else "is"
            raise CorpusError(f"{where}: there {verb} no {role} in {self.asked.names(role)[0]!r}: {clause}.")
        return True

    def _labels(self, record: Record, origin: Origin) -> tuple[str, ...] | None:
        """The labels of a text, each once; an empty list under `labels` says that none fits."""
        if not self._wants("label", record, origin):
            return None
        found = self._value(record, "label")
        labels = list(found) if isinstance(found, list | tuple | set | frozenset) else [found]
        if not all(isinstance(label, str | int | float) for label in labels):
            raise CorpusError(
                f"{origin} has a label that is neither a name nor a number: write one, or a list of them."
            )
        if not labels and self.asked.find("label", record) == "labels":
            return ()
        return check_labels(
            tuple(dict.fromkeys(str(label).strip() for label in labels if label != "")), str(origin), self.asked.task
        )

    def _value(self, record: Record, role: str) -> Any:
        return record.get(self.asked.find(role, record) or "")

    def _text(self, record: Record, role: str, where: object) -> str:
        return one_line(check_text(self._string(record, role, where), str(where)))

    def _string(self, record: Record, role: str, where: object) -> str:
        text = self._value(record, role)
        if not isinstance(text, str):
            clause = hint(self.asked, record) or f"give it there, or name the field by --field {role}=NAME"
            raise CorpusError(f"{where} has no text in {self.asked.names(role)[0]!r}: {clause}.")
        return text

    def _strings(self, record: Record, role: str, where: object) -> tuple[str, ...]:
        """A list of texts; numbers as they are written."""
        found = self._value(record, role)
        if not isinstance(found, list | tuple) or not all(isinstance(one, str | int | float) for one in found):
            clause = hint(self.asked, record) or f"give it there, or name the field by --field {role}=NAME"
            raise CorpusError(f"{where} has no list of texts in {self.asked.names(role)[0]!r}: {clause}.")
        return tuple(check_text(str(one), str(where)) for one in found)
