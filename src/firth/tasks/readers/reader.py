"""Labelled files and Python objects of every task as examples.

The format is detected from the name and the first lines: TSV with a header, JSONL, fastText lines, CoNLL columns,
CoNLL-U, lines of word/TAG or of words, SQuAD's JSON. Errors name file and line; invalid examples can be skipped.

>>> reading = read_items("classify", [("good", "a fine film"), ("bad", "a dull one")])
>>> [(example.labels, example.text) for example in reading]
[(('good',), 'a fine film'), (('bad',), 'a dull one')]
>>> reading.counts.read
2
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from firth.errors import CorpusError
from firth.tasks.examples import Example, GenerateExample, Origin, TextExample
from firth.tasks.readers.columns import (
    HOW,
    ROLES,
    ReadCounts,
    ReadLog,
    ReadOptions,
    hint,
    likely_task,
    other_task,
    read_options,
)
from firth.tasks.readers.records import Records, check_labels
from firth.tasks.readers.squad import read_json, read_questions
from firth.tasks.readers.tagged import looks_like_tags, read_sentences
from firth.text.corpus import save_stdin
from firth.text.files import CorpusFile, find_files
from firth.text.readers import file_encoding, read_lines

_HEAD = 200  # lines inspected to detect the format
_TABLES = ("classify", "pair", "generate")  # tasks that TSV may hold
_ITEMS = "the items given"
Maker = Callable[[int, str], Example | None]  # from a line number, counted from 0, and a line

_PREFIX = "__label__"
_LABEL = re.compile(rf"(?<!\S){_PREFIX}(\S+)\s*")
_SENTENCE = re.compile(r"[.!?。！？…]\s*$")
_MAX_NAME = 40  # characters of a column name
_MAX_CACHED = 10_000  # label tuples
_CSV = "write it as TSV without quotes, for example by pandas' to_csv(sep='\\t', index=False, quoting=3)"


class ExampleReader:
    """The examples of a task, read and counted again in each iteration."""

    def __init__(
        self, start: Callable[[ReadLog], Iterator[Example]], what: str, options: ReadOptions, skip_bad: bool
    ) -> None:
        self._start, self._what, self._asked, self._skip_bad = start, what, options, skip_bad
        self._tally = ReadLog(skip_bad, options.labelled)

    def __iter__(self) -> Iterator[Example]:
        log = self._tally = ReadLog(self._skip_bad, self._asked.labelled)
        yield from self._start(log)
        if not log.counts.read and (self._asked.labelled or self._what != _ITEMS):
            if log.first_bad:
                raise CorpusError(f"nothing in {self._what} can be used; the first error: {log.first_bad}")
            kind = "labelled texts" if log.labelled else "texts"
            raise CorpusError(f"there are no {kind} in {self._what}: {HOW[self._asked.task]}.")

    @property
    def counts(self) -> ReadCounts:
        """The counts of the last iteration."""
        return self._tally.counts

    def notes(self) -> list[str]:
        """Messages on the last iteration for the user."""
        return self._tally.notes()


def read_task(
    task: str,
    path: str | Path | CorpusFile,
    *,
    skip_bad: bool = False,
    encoding: str | None = None,
    columns: Mapping[str, str] | None = None,
    labelled: bool = True,
) -> ExampleReader:
    """The examples of a file, of a glob or folder, or of standard input (-).

    skip_bad: count invalid examples instead of raising `CorpusError`. columns: the column or field of each role; for
    tag, `tag` is the name of a column of CoNLL-U, the number of another one, or `segment` for word segmentation.
    Without `labelled`, labels are not read, and lines of plain text are examples of classify, tag and generate.
    """
    options = read_options(task, labelled, columns)
    sources = [path] if isinstance(path, CorpusFile) else [save_stdin()] if str(path) == "-" else find_files([path])
    what = path.name if isinstance(path, CorpusFile) else str(path)
    return ExampleReader(partial(_from_files, options, sources, encoding), what, options, skip_bad)


def parse_columns(given: Sequence[str]) -> dict[str, str]:
    """The columns of roles from ROLE=NAME options.

    >>> parse_columns(["tag=xpos"])
    {'tag': 'xpos'}
    """
    pairs = [one.partition("=") for one in given]
    if wrong := [one for one, (_, equals, name) in zip(given, pairs, strict=True) if not (equals and name)]:
        raise CorpusError(f"--field {wrong[0]} must be ROLE=NAME, such as --field text_a=review.")
    return {role.strip(): name.strip() for role, _, name in pairs}


def read_items(task: str, items: Iterable[Any], *, skip_bad: bool = False, labelled: bool = True) -> ExampleReader:
    """The examples of Python objects: dictionaries with the fields of JSONL, or tuples.

    classify: (label or labels, text); pair: (label, text, text); tag: (words, tags); span: (passage, question,
    answers); choice: (context, question, choices, label); generate: (source, target). Without
    `labelled`, tuples may omit the labels, and a single text needs no tuple.
    """
    options = read_options(task, labelled, None)
    if isinstance(items, str | bytes | Mapping):
        raise CorpusError(f"{type(items).__name__} is not a list of examples: give a list.")
    listed = items if isinstance(items, Sequence) else list(items)
    return ExampleReader(partial(_from_items, options, listed), _ITEMS, options, skip_bad)


def _from_items(options: ReadOptions, items: Sequence[Any], log: ReadLog) -> Iterator[Example]:
    log.unit = "item"
    return log.each(Records(options, log).from_item, enumerate(items, 1))


def _from_files(
    options: ReadOptions, sources: Sequence[CorpusFile], encoding: str | None, log: ReadLog
) -> Iterator[Example]:
    for source in sources:
        if source.format == "parquet":
            raise CorpusError(f"{source.name} is Parquet, which holds no labels that Firth reads: {HOW[options.task]}.")
        found = file_encoding(source, encoding)
        if found != "utf-8":
            log.encodings[source.name] = found
        yield from _from_file(options, source, encoding, log)


def _from_file(options: ReadOptions, source: CorpusFile, encoding: str | None, log: ReadLog) -> Iterator[Example]:
    name = source.name
    if options.task == "span" and source.format != "jsonl":
        text = read_json(source, encoding)
        if text is not None:
            log.unit = "question"
            return log.each(Records(options, log, name).span, enumerate(read_questions(options, text, name), 1))
    lines = partial(read_lines, replace(source, format="text"), encoding=encoding)
    head = [line for _, line in islice(lines(), _HEAD)]
    first = next((line for line in head if line.strip()), "")
    if source.format == "jsonl" or _is_object(first):
        return log.each(Records(options, log, name).line_maker(), lines())
    _refuse_csv(options, first, name)
    if options.task == "tag":
        if clause := hint(options, _columns(first)):
            raise CorpusError(f"{name} has the columns {', '.join(first.split(chr(9)))}: {clause}.")
        return read_sentences(options, lines(), head, name, log)
    if head and options.task in _TABLES and _is_header(options, head[0]):
        return log.each(_table_maker(options, head[0], name, log), islice(lines(), 1, None))
    if first:
        _refuse_lines(options, first, head, name)
    return log.each(_line_maker(options, name, log), lines())


def _is_object(line: str) -> bool:
    """Whether a line is a JSON object."""
    if not line.lstrip().startswith("{"):
        return False
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _refuse_lines(options: ReadOptions, first: str, head: Sequence[str], name: str) -> None:
    """Raise `CorpusError` if lines without a header cannot be examples of the task."""
    likely = likely_task(_columns(first))
    if first.lstrip().startswith(("{", "[")) and options.labelled:
        likely = "span"
    elif first.startswith("__label__"):
        likely = "classify"
    elif options.labelled and looks_like_tags(head):
        likely = "tag"
    clause = other_task(options, likely)
    if options.task in ("pair", "choice", "span") or (options.task == "generate" and options.labelled):
        raise CorpusError(f"{name} cannot be read for {options.task}: {clause or HOW[options.task]}.")
    if clause and options.labelled:
        raise CorpusError(f"{name} has no labels as {options.task} has them: {clause}.")


def _is_header(options: ReadOptions, line: str) -> bool:
    """Whether the first line of a file is a header."""
    columns = _columns(line)
    known = {name for role in ROLES[options.task] for name in options.names(role)} | {"label"}
    if len(columns) > 1:
        return bool(known & set(columns)) or options.task in ("pair", "generate")
    alone = {"text_a", "source"} & known | set(options.columns.values())
    return not options.labelled and columns[0] in alone


def _refuse_csv(options: ReadOptions, line: str, name: str) -> None:
    """Raise `CorpusError` if the first line of a file is a header of CSV."""
    known = {
        *options.columns.values(),
        *(name for roles in ROLES.values() for names in roles.values() for name in names),
    }
    for separator in ("\t", ","):
        columns = [column.strip() for column in line.split(separator)]
        bare = [column.strip('"') for column in columns]
        if len(known & {*bare}) > 1 and (separator == "," or bare != columns):
            raise CorpusError(f"the first line of {name} names its columns as CSV does: {_CSV}.")


def _table_maker(options: ReadOptions, header: str, name: str, log: ReadLog) -> Maker:
    """The maker of examples from lines of TSV."""
    columns = _columns(header)
    width, is_generate = len(columns), options.task == "generate"
    label: int | None = None
    if is_generate:
        first, second = _source_and_target(options, columns, name)
    else:
        is_classify = options.task == "classify"
        if is_classify and "text_b" in columns and "text" not in options.columns:
            raise CorpusError(f"{name} has a second text, text_b: {hint(options, columns)}.")
        first = _column(options, "text" if is_classify else "text_a", columns, name)
        second = None if is_classify else _column(options, "text_b", columns, name)
        label = _column(options, "label", columns, name) if options.labelled else None
    known: dict[str, tuple[str, ...]] = {}  # equal labels share one tuple

    def make(number: int, line: str) -> Example | None:
        fields = line.split("\t")
        if len(fields) != width:
            _refuse_width(fields, width, name, number)
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


def _columns(line: str) -> list[str]:
    return [column.strip() for column in line.split("\t")]


def _new_label(field: str, known: dict[str, tuple[str, ...]], name: str, number: int, task: str) -> tuple[str, ...]:
    bare = field.strip()
    labels = check_labels((bare,) if bare else (), str(Origin(name, number + 1)), task)
    if len(known) < _MAX_CACHED:
        known[field] = labels
    return labels


def _source_and_target(options: ReadOptions, columns: list[str], name: str) -> tuple[int, int | None]:
    """The indices of the columns source and target, by default the first two."""
    if any(len(column) > _MAX_NAME or _SENTENCE.search(column) for column in columns):
        raise CorpusError(f"the first line of {name} looks like text: write the names of the columns above it.")
    clause = hint(options, columns)
    if clause and not options.columns:
        raise CorpusError(f"{name} has the columns {', '.join(columns)}: {clause}.")
    named = [options.find(role, columns) for role in ("source", "target")]
    if named == [None, None] and not options.columns and len(columns) <= 2:
        return 0, 1 if options.labelled else None
    source = _column(options, "source", columns, name)
    return source, _column(options, "target", columns, name) if options.labelled else None


def _column(options: ReadOptions, role: str, columns: list[str], name: str) -> int:
    """The index of the column that holds a role."""
    found = options.find(role, columns)
    if found is not None:
        return columns.index(found)
    shown = ", ".join(columns[:20])
    usual = options.names(role)[1 if options.names(role)[0] == "text" else 0]
    clause = hint(options, columns) or f"name it {usual}, or by --field {role}=NAME"
    raise CorpusError(f"{name} has the columns {shown}, and none that holds the {role}: {clause}.")


def _refuse_width(fields: list[str], width: int, name: str, number: int) -> None:
    """Raise `CorpusError` for a line with more or fewer fields than columns, unless it is blank."""
    if len(fields) > 1 or fields[0].strip():
        count = "1 field" if len(fields) == 1 else f"{len(fields)} fields"
        verb = "is" if len(fields) == 1 else "are"
        raise CorpusError(
            f"{Origin(name, number + 1)}: there {verb} {count} where the first line names {width}: "
            "write spaces for tabs inside texts, and a tab between columns."
        )


def _line_maker(options: ReadOptions, name: str, log: ReadLog) -> Maker:
    """The maker of examples from lines of text, with fastText labels if the data is labelled."""
    is_generate = options.task == "generate"

    def make(number: int, line: str) -> Example | None:
        origin = Origin(name, number + 1)
        text = line.strip()
        if options.labelled and not text:
            return None
        found: tuple[str, ...] = ()
        if _PREFIX in line and not is_generate:
            found = tuple(dict.fromkeys(_LABEL.findall(line)))
            text = _LABEL.sub("", line).strip()
        labels = check_labels(found, str(origin), options.task) if options.labelled else None
        if not text and log.leave_out_empty():
            return None
        return GenerateExample(text, None, origin) if is_generate else TextExample(text, None, labels, origin)

    return make
