"""Tables: TSV, in which quotes are characters like others, and CSV, whose quoted fields may hold anything.

The first line names the columns. A file is CSV if its name says so, or if its first line names columns with commas or
semicolons between them or in quotes.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from firth.errors import CorpusError
from firth.tasks.examples import Example, GenerateExample, Origin, TextExample
from firth.tasks.readers.columns import ROLES, ReadLog, ReadOptions, hint, likely_task
from firth.tasks.readers.records import Records, check_labels, one_line
from firth.tasks.readers.tagged import looks_like_tags
from firth.text.files import CorpusFile
from firth.text.readers import MAX_LINE

_MENTIONS = ("typing", "relation")  # tasks whose rows are read as records
_TASKS = ("classify", "pair", "generate", *_MENTIONS)  # that tables hold examples of
_SEPARATORS = (",", ";", "\t")
_SENTENCE = re.compile(r"[.!?。！？…]\s*$")
_PREFIX = "__label__"
_MAX_NAME = 40  # characters of a column name
_MAX_CACHED = 10_000  # label tuples
_SHOWN = 20  # columns
Row = list[str] | CorpusError  # the error of a row that cannot be read


def split_columns(line: str, separator: str = "\t") -> list[str]:
    """The columns that the first line of a file names."""
    return [column.strip() for column in line.split(separator)]


def find_table(options: ReadOptions, source: CorpusFile, head: Sequence[str]) -> Table | None:
    """The table in a file with these first lines, or None if it is none that holds examples of the task.

    A table of another task raises `CorpusError`.
    """
    header = head[0] if head else ""
    separator = _csv_separator(options, source, header)
    columns = split_columns(header) if separator is None else _csv_columns(header, separator)
    if separator is None and not (_names_columns(options, columns) or _is_unknown_table(options, head)):
        if options.task == "tag" and (clause := hint(options, columns)):
            raise CorpusError(f"{source.name} has the columns {', '.join(columns)}: {clause}.")
        return None
    if options.task not in _TASKS:
        clause = hint(options, columns) or "a table has no examples of this task"
        raise CorpusError(f"{source.name} has the columns {', '.join(columns):.200}: {clause}.")
    return Table(options, source.name, columns, separator)


def _csv_separator(options: ReadOptions, source: CorpusFile, header: str) -> str | None:
    """The separator of CSV, or None if the file is none."""
    known = {name for roles in ROLES.values() for names in roles.values() for name in names}
    known |= set(options.columns.values())
    for separator in _SEPARATORS:
        columns = _csv_columns(header, separator)
        is_quoted = columns != split_columns(header, separator)
        if len(known & set(columns)) > 1 and (separator != "\t" or is_quoted):
            return separator
    if ".csv" not in source.path.name.lower() or options.task not in _TASKS or header.startswith(_PREFIX):
        return None
    return max(_SEPARATORS, key=header.count)


def _csv_columns(header: str, separator: str) -> list[str]:
    try:
        return [column.strip() for column in next(csv.reader([header], delimiter=separator), [""])]
    except csv.Error:
        return [""]


def _names_columns(options: ReadOptions, columns: list[str]) -> bool:
    """Whether the first line of TSV names columns of the task."""
    if options.task not in _TASKS:
        return False
    known = {name for role in ROLES[options.task] for name in options.names(role)} | {"label"}
    if len(columns) > 1:
        return bool(known & set(columns)) or options.task in ("pair", "generate")
    alone = {"text_a", "source"} & known | set(options.columns.values())
    return not options.labelled and columns[0] in alone


def _is_unknown_table(options: ReadOptions, head: Sequence[str]) -> bool:
    """Whether labelled texts seem to be in columns, though with other names."""
    columns = split_columns(head[0]) if head else []
    if not options.labelled or options.task != "classify" or len(columns) < 2 or "" in columns:
        return False
    is_other = likely_task(columns) is not None or looks_like_tags(head)
    return not is_other and not any(_PREFIX in line for line in head)


@dataclass(frozen=True)
class Table:
    """A table of examples."""

    options: ReadOptions
    name: str
    columns: list[str]
    separator: str | None
    """The separator of CSV, or None for TSV."""

    def read(self, lines: Iterator[tuple[int, str]], log: ReadLog) -> Iterator[Example]:
        """The examples on all lines but the first, numbered from 0."""
        make = self._maker(log)
        if self.separator is not None:
            return log.each(make, read_csv(lines, self.separator, self.name))
        next(lines)
        return log.each(make, ((number, line.split("\t")) for number, line in lines))

    def _maker(self, log: ReadLog) -> Callable[[int, Row], Example | None]:
        """The function from the number and the fields of a row to an example."""
        if self.options.task in _MENTIONS:
            return self._record_maker(log)
        options, name, width, is_generate = self.options, self.name, len(self.columns), self.options.task == "generate"
        first, second, label = self._source_and_target() if is_generate else self._texts_and_label()
        known: dict[str, tuple[str, ...]] = {}  # equal labels share one tuple

        def make(number: int, fields: Row) -> Example | None:
            if isinstance(fields, CorpusError):
                raise fields
            if len(fields) != width:
                self._refuse_width(fields, number)
                return None
            text, other = fields[first].strip(), None if second is None else fields[second].strip()
            labels = None
            if label is not None:
                labels = known.get(fields[label]) or _new_label(fields[label], known, name, number, options.task)
            if not (text and other != "") and log.leave_out_empty():
                return None
            origin = Origin(name, number + 1)
            return GenerateExample(text, other, origin) if is_generate else TextExample(text, other, labels, origin)

        return make

    def _record_maker(self, log: ReadLog) -> Callable[[int, Row], Example | None]:
        """The same for tasks whose rows are records; labels have commas between them."""
        records = Records(self.options, log, self.name)
        parts = ("text", "start", "end") if self.options.task == "typing" else ("text", "head", "tail")
        self._find([*parts, *(["label"] if self.options.labelled else [])])
        make, label = records.maker(), self.options.find("label", self.columns)

        def from_row(number: int, fields: Row) -> Example | None:
            if isinstance(fields, CorpusError):
                raise fields
            if len(fields) != len(self.columns):
                self._refuse_width(fields, number)
                return None
            record: dict[str, Any] = dict(zip(self.columns, fields, strict=True))
            if label is not None and self.options.task == "typing":
                record[label] = [one.strip() for one in record[label].split(",")]
            return make(number + 1, record)

        return from_row

    def _texts_and_label(self) -> tuple[int, int | None, int | None]:
        """The indices of the columns of the text, the second text and the label."""
        options = self.options
        is_classify = options.task == "classify"
        if is_classify and "text_b" in self.columns and "text" not in options.columns:
            raise CorpusError(f"{self.name} has a second text, text_b: {hint(options, self.columns)}.")
        texts = ["text"] if is_classify else ["text_a", "text_b"]
        found = self._find([*texts, *(["label"] if options.labelled else [])])
        return found["text" if is_classify else "text_a"], found.get("text_b"), found.get("label")

    def _source_and_target(self) -> tuple[int, int | None, None]:
        """The indices of the columns source and target, by default the first two."""
        options, columns = self.options, self.columns
        if any(len(column) > _MAX_NAME or _SENTENCE.search(column) for column in columns):
            raise CorpusError(
                f"the first line of {self.name} looks like text: write the names of the columns above it."
            )
        clause = hint(options, columns)
        if clause and not options.columns:
            raise CorpusError(f"{self.name} has the columns {', '.join(columns)}: {clause}.")
        named = [options.find(role, columns) for role in ("source", "target")]
        if named == [None, None] and not options.columns and len(columns) in ((2,) if options.labelled else (1, 2)):
            return 0, 1 if options.labelled else None, None
        found = self._find(["source", *(["target"] if options.labelled else [])])
        return found["source"], found.get("target"), None

    def _find(self, roles: Sequence[str]) -> dict[str, int]:
        """The index of the column of each role; raises `CorpusError` if one has none."""
        found = {role: self.options.find(role, self.columns) for role in roles}
        missing = [role for role, column in found.items() if column is None]
        if not missing:
            return {role: self.columns.index(column) for role, column in found.items() if column is not None}
        usual = [self.options.names(role)[1 if self.options.names(role)[0] == "text" else 0] for role in missing]
        named = " ".join(f"--field {role}=NAME" for role in missing)
        clause = f"name {'it' if len(missing) == 1 else 'them'} {' and '.join(usual)}, or by {named}"
        raise CorpusError(
            f"{self.name} has the columns {', '.join(self.columns[:_SHOWN]):.400}, and none that holds the "
            f"{' or the '.join(missing)}: {hint(self.options, self.columns) or clause}."
        )

    def _refuse_width(self, fields: list[str], number: int) -> None:
        """Raise `CorpusError` for a row with more or fewer fields than columns, unless it is blank."""
        if len(fields) > 1 or (fields and fields[0].strip()):
            count = "1 field" if len(fields) == 1 else f"{len(fields)} fields"
            verb = "is" if len(fields) == 1 else "are"
            if self.separator is None:
                remedy = "write spaces for tabs inside texts, and a tab between columns"
            else:
                remedy = f"put texts that hold {self.separator!r} in double quotes"
            raise CorpusError(
                f"{Origin(self.name, number + 1)}: there {verb} {count} where the first line names "
                f"{len(self.columns)}: {remedy}."
            )


def read_csv(lines: Iterable[tuple[int, str]], separator: str, name: str) -> Iterator[tuple[int, Row]]:
    """The rows of CSV after the first, each with the number of its first line; line breaks in fields become spaces.

    >>> list(read_csv(enumerate(["label,text", 'good,"a fine', 'film"', "bad,dull"]), ",", "films.csv"))
    [(1, ['good', 'a fine film']), (3, ['bad', 'dull'])]
    """
    csv.field_size_limit(max(csv.field_size_limit(), MAX_LINE))
    reader = csv.reader((f"{line}\n" for _, line in lines), delimiter=separator, strict=True)
    while True:
        number = reader.line_num
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            where = Origin(name, number + 1)
            reason = "a quoted field does not end" if "unexpected end" in str(error) else str(error)
            yield number, CorpusError(f"{where} is not CSV ({reason}): write a double quote inside a field twice.")
            continue
        if number:
            yield number, [one_line(field) if "\n" in field else field for field in fields]


def _new_label(field: str, known: dict[str, tuple[str, ...]], name: str, number: int, task: str) -> tuple[str, ...]:
    bare = field.strip()
    labels = check_labels((bare,) if bare else (), str(Origin(name, number + 1)), task)
    if len(known) < _MAX_CACHED:
        known[field] = labels
    return labels
