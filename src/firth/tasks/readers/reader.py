"""Labelled files and Python objects of every task as examples.

The format is detected from the name and the first lines: TSV and CSV with a header, JSONL, fastText lines, CoNLL
columns, CoNLL-U, lines of word/TAG or of words, SQuAD's JSON. Errors name file and line; invalid examples can be
skipped.

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
    ReadCounts,
    ReadLog,
    ReadOptions,
    likely_task,
    other_task,
    parse_columns,
    read_options,
)
from firth.tasks.readers.records import Records, check_labels
from firth.tasks.readers.squad import read_json, read_questions
from firth.tasks.readers.tables import find_table, split_columns
from firth.tasks.readers.tagged import looks_like_tags, read_sentences
from firth.text.corpus import save_stdin
from firth.text.files import CorpusFile, find_files
from firth.text.readers import file_encoding, read_lines

__all__ = ["ExampleReader", "parse_columns", "read_items", "read_task"]

_HEAD = 200  # lines inspected to detect the format
_WITHOUT_LINES = ("pair", "choice", "span", "typing", "relation")  # tasks whose examples are no lines of text
_ITEMS = "the items given"
Maker = Callable[[int, str], Example | None]  # from a line number, counted from 0, and a line

_PREFIX = "__label__"
_LABEL = re.compile(rf"(?<!\S){_PREFIX}(\S+)\s*")


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


def read_items(task: str, items: Iterable[Any], *, skip_bad: bool = False, labelled: bool = True) -> ExampleReader:
    """The examples of Python objects: dictionaries with the fields of JSONL, or tuples.

    classify: (label or labels, text); pair: (label, text, text); tag: (words, tags); span: (passage, question,
    answers); choice: (context, question, choices, label); generate: (source, target); typing: (types, text, start,
    end); relation: (label, text, head, tail), the latter two pairs of characters. Without `labelled`, tuples may omit
    the labels, and a single text needs no tuple.
    """
    options = read_options(task, labelled, None)
    if isinstance(items, str | bytes | Mapping):
        raise CorpusError(f"{type(items).__name__} is not a list of examples: give a list.")
    listed = items if isinstance(items, Sequence) else list(items)
    return ExampleReader(partial(_from_items, options, listed), _ITEMS, options, skip_bad)


def _from_items(options: ReadOptions, items: Sequence[Any], log: ReadLog) -> Iterator[Example]:
    log.unit = "item"
    return log.each(Records(options, log).item_maker(), enumerate(items, 1))


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
    table = find_table(options, source, head)
    if table is not None:
        return table.read(lines(), log)
    if options.task == "tag":
        return read_sentences(options, lines(), head, name, log)
    if first or (head and options.task in _WITHOUT_LINES):
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
    likely = likely_task(split_columns(first))
    if first.lstrip().startswith(("{", "[")) and options.labelled:
        likely = "span"
    elif first.startswith("__label__"):
        likely = "classify"
    elif options.labelled and looks_like_tags(head):
        likely = "tag"
    clause = other_task(options, likely)
    if options.task in _WITHOUT_LINES or (options.task == "generate" and options.labelled):
        raise CorpusError(f"{name} cannot be read for {options.task}: {clause or HOW[options.task]}.")
    if clause and options.labelled:
        raise CorpusError(f"{name} has no labels as {options.task} has them: {clause}.")


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
