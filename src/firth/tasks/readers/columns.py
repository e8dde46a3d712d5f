"""Column names of each task, the recognition of files of other tasks, and the log of reading."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from firth.errors import ArgumentError, CorpusError, near_miss
from firth.metrics.tags import is_fault, scheme_of_pairs, tag_pairs
from firth.tasks.examples import Example, Origin

Record = Mapping[str, Any]
"""An object of JSONL, a question of SQuAD's JSON, or an item from Python as such an object."""

ROLES: dict[str, dict[str, tuple[str, ...]]] = {
    "classify": {"text": ("text", "text_a", "source"), "label": ("label", "labels")},
    "pair": {"text_a": ("text_a",), "text_b": ("text_b",), "label": ("label", "score")},
    "tag": {"word": ("words", "tokens"), "tag": ("tags",)},
    "span": {
        "passage": ("passage", "context"),
        "question": ("question",),
        "answers": ("answers", "answer"),
        "id": ("id",),
    },
    "choice": {role: (role,) for role in ("context", "question", "choices", "label", "id")},
    "generate": {"source": ("source",), "target": ("target",)},
    "typing": {
        "text": ("text", "text_a"),
        **{role: (role,) for role in ("start", "end", "left", "mention", "right")},
        "label": ("labels", "types", "label"),
    },
    "relation": {"text": ("text", "text_a"), "head": ("head",), "tail": ("tail",), "label": ("label", "relation")},
}
"""The roles of each task, and the columns or fields that may hold them."""
TASKS = tuple(ROLES)

HOW = {
    "classify": "give TSV or CSV with the columns label and text_a named in its first line, JSONL with the fields "
    "label and text, or lines that begin with __label__NAME",
    "pair": "give TSV or CSV with the columns label, text_a and text_b named in its first line, or JSONL with these "
    "fields",
    "tag": "give a word and its tag on each line with a blank line between sentences, CoNLL-U, or lines of word/TAG",
    "span": "give JSON as SQuAD has it",
    "choice": "give JSONL with the fields context, question, choices and label",
    "generate": "give TSV or CSV with two columns, the source and the target, named in its first line, or JSONL with "
    "the fields source and target",
    "typing": "give JSONL with the fields text, labels, and start and end of the mention in characters, or with left, "
    "mention, right and types; or TSV with the columns labels, text, start and end",
    "relation": "give TSV with the columns label, text, head and tail, the latter as characters such as 0:5, or JSONL "
    "with these fields",
}
Given = TypeVar("Given")


@dataclass(frozen=True)
class ReadOptions:
    """The task, whether labels are read, and the columns named by the user."""

    task: str
    labelled: bool
    columns: Mapping[str, str]

    def names(self, role: str) -> tuple[str, ...]:
        """The columns or fields that may hold a role, in order of preference."""
        usual, named = ROLES[self.task][role], self.columns.get(role)
        if named is None:
            return usual
        return (named, *usual) if named in usual else (named,)

    def find(self, role: str, names: Collection[str]) -> str | None:
        """The column or field of a file that holds a role."""
        return next((name for name in self.names(role) if name in names), None)


def read_options(task: str, labelled: bool, columns: Mapping[str, str] | None) -> ReadOptions:
    """Options whose task and roles are checked."""
    if task not in TASKS:
        raise ArgumentError(f"there is no task {task!r:.80}: {near_miss(task, TASKS)}")
    usual = {name: role for role, names in ROLES[task].items() for name in names}
    chosen = {}
    for given, column in (columns or {}).items():
        role = given if given in ROLES[task] else usual.get(given)  # text_a=review, too, names the text of classify
        if role is None:
            known = near_miss(given, ROLES[task])
            raise ArgumentError(f"{task} has no part {given!r:.80} that a field could be named for: {known}")
        chosen[role] = column
    return ReadOptions(task, labelled, chosen)


def parse_columns(given: Iterable[str]) -> dict[str, str]:
    """The columns of roles from ROLE=NAME options.

    >>> parse_columns(["tag=xpos"])
    {'tag': 'xpos'}
    """
    columns = {}
    for one in given:
        role, _, name = (part.strip() for part in one.partition("="))
        if not (role and name):
            raise ArgumentError(f"--field {one!r:.80} must be ROLE=NAME, such as --field text_a=review.")
        columns[role] = name
    return columns


def likely_task(names: Collection[str]) -> str | None:
    """The task whose files have such columns or fields, if any.

    >>> likely_task(["label", "text_a", "text_b"]), likely_task(["source", "target"]), likely_task(["x"])
    ('pair', 'generate', None)
    """
    has_question = "question" in names and bool({"context", "passage", "answers"} & {*names})
    signs = {
        "choice": "choices" in names,
        "relation": "head" in names and "tail" in names and bool({"text", "text_a"} & {*names}),
        "typing": "mention" in names or ({"start", "end"} <= {*names} and bool({"text", "text_a"} & {*names})),
        "span": "paragraphs" in names or {"data", "version"} <= {*names} or has_question,
        "pair": "text_a" in names and "text_b" in names,
        "tag": "tags" in names and ("words" in names or "tokens" in names),
        "generate": "source" in names and "target" in names,
        "classify": ("label" in names or "labels" in names) and bool({"text", "text_a", "source"} & set(names)),
    }
    return next((task for task, found in signs.items() if found), None)


def hint(options: ReadOptions, names: Collection[str]) -> str:
    """A clause for an error message if the columns or fields are those of another task, else empty."""
    return other_task(options, likely_task(names))


def other_task(options: ReadOptions, likely: str | None) -> str:
    """A clause for an error message if a file is one of another task, else empty."""
    return "" if likely in (None, options.task) else f"this looks like {likely}: use firth finetune MODEL {likely}"


@dataclass
class ReadCounts:
    """Numbers of examples."""

    read: int = 0
    skipped: int = 0  # invalid and left out
    repaired: int = 0  # read with an answer that was found at another offset than stated
    empty: int = 0  # without text: left out of labelled data, read otherwise


class ReadLog:
    """Counts and problems of one pass over the data."""

    def __init__(self, skip_bad: bool, labelled: bool) -> None:
        self.counts = ReadCounts()
        self.skip_bad, self.labelled = skip_bad, labelled
        self.unit = "line"  # that is skipped if it is invalid
        self.encodings: dict[str, str] = {}  # of the files that are not UTF-8
        self.first_bad: CorpusError | None = None
        self._first_repaired = ""
        self._pairs: Counter[tuple[str, str]] = Counter()
        self._first_seen: dict[tuple[str, str], str] = {}

    def each(
        self, make: Callable[[int, Given], Example | None], given: Iterable[tuple[int, Given]]
    ) -> Iterator[Example]:
        """The examples that `make` returns for numbered inputs, without None."""
        counts = self.counts
        for number, one in given:
            try:
                example = make(number, one)
            except CorpusError as error:
                if not self.skip_bad:
                    raise
                self.skip(error)
                continue
            if example is not None:
                counts.read += 1
                yield example

    def skip(self, error: CorpusError) -> None:
        """Count an invalid example."""
        self.counts.skipped += 1
        self.first_bad = self.first_bad or error

    def leave_out_empty(self) -> bool:
        """Count an example without text and return whether to leave it out."""
        self.counts.empty += 1
        return self.labelled

    def repair(self, what: str) -> None:
        """Count an example whose answer was relocated."""
        self.counts.repaired += 1
        self._first_repaired = self._first_repaired or what

    def add_tags(self, tags: Sequence[str], origin: Origin) -> None:
        """Count the tag bigrams, which determine the scheme and its violations."""
        pairs = list(tag_pairs(tags))
        self._pairs.update(pairs)
        for pair in dict.fromkeys(pairs):
            if pair not in self._first_seen:
                self._first_seen[pair] = str(origin)

    def notes(self) -> list[str]:
        """Messages to the user."""
        counts, notes = self.counts, [f"{name} was read as {code}." for name, code in self.encodings.items()]
        if counts.skipped:
            first = str(self.first_bad)
            notes.append(f"{_many(counts.skipped, self.unit)} skipped: {_first_of(counts.skipped, first)}")
        if counts.repaired:
            notes.append(
                f"{_many(counts.repaired, 'question')} repaired, whose answer is not at answer_start: "
                f"{_first_of(counts.repaired, self._first_repaired)}"
            )
        if counts.empty:
            end = " and left out." if self.labelled else "."
            notes.append(f"{_many(counts.empty, 'example')} without text{end}")
        return notes + self._scheme_notes()

    def _scheme_notes(self) -> list[str]:
        scheme = scheme_of_pairs(self._pairs)
        faults = [pair for pair in self._first_seen if is_fault(*pair, scheme)]
        if not faults:
            return []
        number = sum(self._pairs[pair] for pair in faults)
        before, tag = faults[0]
        what = f"{before} at the end" if not tag else f"{tag} after {before}" if before else f"{tag} at the beginning"
        return [
            f"{_many(number, 'tag')} against the rules of {scheme} and read as the beginning or end of an entity: "
            f"{_first_of(number, f'{what} in the sentence of {self._first_seen[faults[0]]}.')}"
        ]


def _many(number: int, unit: str) -> str:
    return f"1 {unit} was" if number == 1 else f"{number:,} {unit}s were"


def _first_of(number: int, sentence: str) -> str:
    return sentence if number == 1 else f"the first is {sentence}"
