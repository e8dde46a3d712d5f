"""Reading labelled files, and labelled Python objects, of every task.

What kind of file it is shows in its name and its first lines: TSV whose first line names the columns, JSONL, lines in
fastText's form, columns as the CoNLL tasks have them, CoNLL-U, lines of word/TAG or of words, JSON as SQuAD has it.
Whatever is wrong is told with file and line; or, if so wished, it is skipped and counted.

>>> reading = read_items("classify", [("good", "a fine film"), ("bad", "a dull one")])
>>> [(example.labels, example.text) for example in reading]
[(('good',), 'a fine film'), (('bad',), 'a dull one')]
>>> reading.counts.read
2
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from firth.errors import CorpusError
from firth.tasks.examples import Example
from firth.tasks.reading_columns import looks_like_tags, read_sentences
from firth.tasks.reading_items import from_item
from firth.tasks.reading_records import Records
from firth.tasks.reading_roles import HOW, Asked, ask, hint, likely_task, other_task
from firth.tasks.reading_squad import read_json, read_questions
from firth.tasks.reading_tables import is_header, line_maker, refuse_csv, source_maker, table_maker
from firth.tasks.reading_tally import Counts, Tally, no_examples
from firth.text.corpus import stdin_source
from firth.text.readers import read_lines, source_encoding
from firth.text.sources import Source, find_sources

_HEAD = 200  # lines that show what kind of file it is
_TABLES = ("classify", "pair", "generate")  # tasks that TSV may hold
_ITEMS = "the items given"


class Reading:
    """The examples of a task, which are read anew, and counted anew, each time they are gone through."""

    def __init__(self, start: Callable[[Tally], Iterator[Example]], what: str, asked: Asked, skip_bad: bool) -> None:
        self._start, self._what, self._asked, self._skip_bad = start, what, asked, skip_bad
        self._tally = Tally(skip_bad, asked.labelled)

    def __iter__(self) -> Iterator[Example]:
        tally = self._tally = Tally(self._skip_bad, self._asked.labelled)
        yield from self._start(tally)
        if not tally.counts.read and (self._asked.labelled or self._what != _ITEMS):
            no_examples(tally, self._what, HOW[self._asked.task])

    @property
    def counts(self) -> Counts:
        """How many examples the last pass has read, skipped, repaired and found empty."""
        return self._tally.counts

    def notes(self) -> list[str]:
        """What a person should know of the last pass, in sentences."""
        return self._tally.notes()


def read_task(
    task: str,
    path: str | Path | Source,
    *,
    skip_bad: bool = False,
    encoding: str | None = None,
    fields: Mapping[str, str] | None = None,
    labelled: bool = True,
) -> Reading:
    """The examples of a file, or of all that a glob or a folder names, or of standard input (-).

    `skip_bad` counts what is wrong instead of raising `CorpusError`. `fields` names the columns or fields in which the
    parts of an example stand; for tag, `tag` also chooses a column of CoNLL-U by its name, another by its number, or
    `segment`: the words themselves are to be found. Without `labelled`, labels need not be there and are not looked at,
    and each line of plain text is an example for classify, tag and generate.
    """
    asked = ask(task, labelled, fields)
    sources = [path] if isinstance(path, Source) else [stdin_source()] if str(path) == "-" else find_sources([path])
    what = path.name if isinstance(path, Source) else str(path)
    return Reading(partial(_from_files, asked, sources, encoding), what, asked, skip_bad)


def parse_fields(given: Sequence[str]) -> dict[str, str]:
    """Roles and names as they are written on a command line.

    >>> parse_fields(["tag=xpos"])
    {'tag': 'xpos'}
    """
    pairs = [one.partition("=") for one in given]
    if wrong := [one for one, (_, equals, name) in zip(given, pairs, strict=True) if not (equals and name)]:
        raise CorpusError(f"--field {wrong[0]} must be ROLE=NAME, such as --field text_a=review.")
    return {role.strip(): name.strip() for role, _, name in pairs}


def read_items(task: str, items: Iterable[Any], *, skip_bad: bool = False, labelled: bool = True) -> Reading:
    """The examples that Python objects are: dictionaries with the fields of JSONL, or tuples.

    classify: (label or labels, text); pair: (label, text, text); tag: (words, tags); span: (passage, question,
    answers); choice: (context, question, choices, label); generate: (source, target). Where no labels are wanted, the
    tuples may go without them, and a text may stand alone.
    """
    asked = ask(task, labelled, None)
    if isinstance(items, str | bytes | Mapping):
        raise CorpusError(f"{type(items).__name__} is not a list of examples: give a list.")
    listed = items if isinstance(items, Sequence) else list(items)
    return Reading(partial(_from_items, asked, listed), _ITEMS, asked, skip_bad)


def _from_items(asked: Asked, items: Sequence[Any], tally: Tally) -> Iterator[Example]:
    tally.unit = "item"
    return tally.each(partial(from_item, Records(asked, tally)), enumerate(items, 1))


def _from_files(asked: Asked, sources: Sequence[Source], encoding: str | None, tally: Tally) -> Iterator[Example]:
    for source in sources:
        if source.format == "parquet":
            raise CorpusError(f"{source.name} is Parquet, which holds no labels that Firth reads: {HOW[asked.task]}.")
        found = source_encoding(source, encoding)
        if found != "utf-8":
            tally.encodings[source.name] = found
        yield from _from_file(asked, source, encoding, tally)


def _from_file(asked: Asked, source: Source, encoding: str | None, tally: Tally) -> Iterator[Example]:
    name = source.name
    if asked.task == "span" and source.format != "jsonl":
        text = read_json(source, encoding)
        if text is not None:
            tally.unit = "question"
            return tally.each(Records(asked, tally, name).span, enumerate(read_questions(asked, text, name), 1))
    lines = partial(read_lines, replace(source, format="text"), encoding=encoding)
    head = [line for _, line in islice(lines(), _HEAD)]
    if source.format == "jsonl" or _is_jsonl(head):
        return tally.each(Records(asked, tally, name).line_maker(), lines())
    first = next((line for line in head if line.strip()), "")
    refuse_csv(asked, first, name)
    if asked.task == "tag":
        _refuse_table(asked, first, name)
        return read_sentences(asked, lines(), head, name, tally)
    if head and asked.task in _TABLES and is_header(asked, head[0]):
        return tally.each(table_maker(asked, head[0], name, tally), islice(lines(), 1, None))
    _refuse_lines(asked, head, name)
    make = source_maker(name, tally) if asked.task == "generate" else line_maker(asked, name, tally)
    return tally.each(make, lines())


def _is_jsonl(head: Sequence[str]) -> bool:
    """Whether the first line that is not blank is a JSON object."""
    first = next((line for line in head if line.strip()), "")
    if not first.lstrip().startswith("{"):
        return False
    try:
        return isinstance(json.loads(first), dict)
    except (ValueError, RecursionError):
        return False


def _refuse_table(asked: Asked, first: str, name: str) -> None:
    """Raises `CorpusError` if a first line names the columns of another task."""
    clause = hint(asked, [column.strip() for column in first.split("\t")])
    if clause:
        raise CorpusError(f"{name} has the columns {', '.join(first.split(chr(9)))}: {clause}.")


def _refuse_lines(asked: Asked, head: Sequence[str], name: str) -> None:
    """Raises `CorpusError` if lines without named columns cannot be what is wanted."""
    first = next((line for line in head if line.strip()), "")
    if not first:
        return
    likely = likely_task([column.strip() for column in first.split("\t")])
    if first.lstrip().startswith(("{", "[")) and asked.labelled:
        likely = "span"
    elif first.startswith("__label__"):
        likely = "classify"
    elif asked.labelled and looks_like_tags(head):
        likely = "tag"
    clause = other_task(asked, likely)
    if asked.task in ("pair", "choice", "span") or (asked.task == "generate" and asked.labelled):
        raise CorpusError(f"{name} cannot be read for {asked.task}: {clause or HOW[asked.task]}.")
    if clause and asked.labelled:
        raise CorpusError(f"{name} has no labels as {asked.task} has them: {clause}.")
