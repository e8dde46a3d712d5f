"""Examples from TSV whose first line names the columns, from lines in fastText's form, and from plain lines.

Quotes in TSV are text like any other character: no field holds a tab or a line end.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from firth.errors import CorpusError
from firth.tasks.examples import Example, GenerateExample, Origin, TextExample
from firth.tasks.reading_records import check_labels
from firth.tasks.reading_roles import ROLES, Asked, hint
from firth.tasks.reading_tally import Tally

Maker = Callable[[int, str], Example | None]
"""Makes an example of a line and its number from 0."""

_PREFIX = "__label__"
_LABEL = re.compile(rf"(?<!\S){_PREFIX}(\S+)\s*")
_SENTENCE = re.compile(r"[.!?。！？…]\s*$")
_LONG_NAME = 40  # characters; what is longer is no name of a column
_KEPT = 10_000  # labels that are kept as one object each
_CSV = "write it as TSV without quotes, for example by pandas' to_csv(sep='\\t', index=False, quoting=3)"


def is_header(asked: Asked, line: str) -> bool:
    """Whether the first line of a file names columns."""
    columns = _columns(line)
    known = {name for role in ROLES[asked.task] for name in asked.names(role)} | {"label"}
    if asked.task == "generate" and len(columns) > 1:
        return True
    if len(columns) > 1:
        return bool(known & set(columns)) or asked.task == "pair"
    alone = {"text_a", "source"} & known | set(asked.fields.values())
    return not asked.labelled and columns[0] in alone


def refuse_csv(asked: Asked, line: str, name: str) -> None:
    """Raises `CorpusError` if the first line of a file names columns as CSV has them."""
    known = {name for roles in ROLES.values() for names in roles.values() for name in names} | set(
        asked.fields.values()
    )
    for separator in ("\t", ","):
        columns = [column.strip() for column in line.split(separator)]
        bare = [column.strip('"') for column in columns]
        if len(known & {*bare}) > 1 and (separator == "," or bare != columns):
            raise CorpusError(f"the first line of {name} names its columns as CSV does: {_CSV}.")


def table_maker(asked: Asked, header: str, name: str, tally: Tally) -> Maker:
    """What makes an example of a line of TSV."""
    columns = _columns(header)
    if asked.task == "generate":
        return _generate_maker(asked, columns, name, tally)
    if asked.task == "classify":
        if "text_b" in columns and "text" not in asked.fields:
            raise CorpusError(f"{name} has a second text, text_b: {hint(asked, columns)}.")
        return _text_maker(asked, columns, ("text",), name, tally)
    return _text_maker(asked, columns, ("text_a", "text_b"), name, tally)


def _columns(line: str) -> list[str]:
    return [column.strip() for column in line.split("\t")]


def _text_maker(asked: Asked, columns: list[str], roles: tuple[str, ...], name: str, tally: Tally) -> Maker:
    """For classify and pair."""
    places = [_place(asked, role, columns, name) for role in roles]
    first, second = places[0], places[-1] if len(places) > 1 else None
    label = _place(asked, "label", columns, name) if asked.labelled else None
    width = len(columns)
    known: dict[str, tuple[str, ...]] = {}  # so that equal labels are one object

    def make(number: int, line: str) -> TextExample | None:
        fields = line.split("\t")
        if len(fields) != width:
            _other_width(fields, width, name, number)
            return None
        text, other = fields[first].strip(), None if second is None else fields[second].strip()
        labels = None
        if label is not None:
            labels = known.get(fields[label]) or _new_label(fields[label], known, name, number, asked.task)
        if not (text and other != "") and tally.leave_out_empty():
            return None
        return TextExample(text, other, labels, Origin(name, number + 1))

    return make


def _new_label(field: str, known: dict[str, tuple[str, ...]], name: str, number: int, task: str) -> tuple[str, ...]:
    bare = field.strip()
    labels = check_labels((bare,) if bare else (), str(Origin(name, number + 1)), task)
    if len(known) < _KEPT:
        known[field] = labels
    return labels


def _generate_maker(asked: Asked, columns: list[str], name: str, tally: Tally) -> Maker:
    source, target = _source_and_target(asked, columns, name)
    width = len(columns)

    def make(number: int, line: str) -> GenerateExample | None:
        fields = line.split("\t")
        if len(fields) != width:
            _other_width(fields, width, name, number)
            return None
        text, wanted = fields[source].strip(), None if target is None else fields[target].strip()
        if not (text and wanted != "") and tally.leave_out_empty():
            return None
        return GenerateExample(text, wanted, Origin(name, number + 1))

    return make


def _source_and_target(asked: Asked, columns: list[str], name: str) -> tuple[int, int | None]:
    """The columns of both texts: those that are named so, or the first two."""
    if any(len(column) > _LONG_NAME or _SENTENCE.search(column) for column in columns):
        raise CorpusError(f"the first line of {name} looks like text: write the names of the columns above it.")
    clause = hint(asked, columns)
    if clause and not asked.fields:
        raise CorpusError(f"{name} has the columns {', '.join(columns)}: {clause}.")
    named = [asked.find(role, columns) for role in ("source", "target")]
    if named == [None, None] and not asked.fields and len(columns) <= 2:
        return 0, 1 if asked.labelled else None
    source = _place(asked, "source", columns, name)
    return source, _place(asked, "target", columns, name) if asked.labelled else None


def _place(asked: Asked, role: str, columns: list[str], name: str) -> int:
    """Which column holds a part."""
    found = asked.find(role, columns)
    if found is not None:
        return columns.index(found)
    shown = ", ".join(columns[:20])
    usual = asked.names(role)[1 if asked.names(role)[0] == "text" else 0]
    clause = hint(asked, columns) or f"name it {usual}, or by --field {role}=NAME"
    raise CorpusError(f"{name} has the columns {shown}, and none that holds the {role}: {clause}.")


def _other_width(fields: list[str], width: int, name: str, number: int) -> None:
    """Raises the error for a line with more or fewer fields than columns, unless it is blank."""
    if len(fields) > 1 or fields[0].strip():
        count = "1 field" if len(fields) == 1 else f"{len(fields)} fields"
        verb = "is" if len(fields) == 1 else "are"
        raise CorpusError(
            f"{Origin(name, number + 1)}: there {verb} {count} where the first line names {width}: "
            "write spaces for tabs inside texts, and a tab between columns."
        )


def line_maker(asked: Asked, name: str, tally: Tally) -> Maker:
    """What makes an example of a line that is a text, with labels in fastText's form if they are wanted."""

    def make(number: int, line: str) -> TextExample | None:
        origin = Origin(name, number + 1)
        text = line.strip()
        if asked.labelled and not text:
            return None
        found: tuple[str, ...] = ()
        if _PREFIX in line:
            found = tuple(dict.fromkeys(_LABEL.findall(line)))
            text = _LABEL.sub("", line).strip()
        labels = check_labels(found, str(origin), asked.task) if asked.labelled else None
        if not text and tally.leave_out_empty():
            return None
        return TextExample(text, None, labels, origin)

    return make


def source_maker(name: str, tally: Tally) -> Maker:
    """What makes an example of a line to which a text is to be written."""

    def make(number: int, line: str) -> GenerateExample:
        if not line.strip():
            tally.leave_out_empty()
        return GenerateExample(line.strip(), None, Origin(name, number + 1))

    return make
