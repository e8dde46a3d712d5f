"""What is asked for when labelled data is read: the task, and the names under which its parts stand in a file."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from firth.errors import CorpusError, near_miss

TASKS = ("classify", "pair", "tag", "span", "choice", "generate")

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
    "choice": {
        "context": ("context",),
        "question": ("question",),
        "choices": ("choices",),
        "label": ("label",),
        "id": ("id",),
    },
    "generate": {"source": ("source",), "target": ("target",)},
}
"""The parts of each task, and the columns or fields in which each is looked for."""

HOW = {
    "classify": "give TSV with the columns label and text_a named in its first line, JSONL with the fields label and "
    "text, or lines that begin with __label__NAME",
    "pair": "give TSV with the columns label, text_a and text_b named in its first line, or JSONL with these fields",
    "tag": "give a word and its tag on each line with a blank line between sentences, CoNLL-U, or lines of word/TAG",
    "span": "give JSON as SQuAD has it",
    "choice": "give JSONL with the fields context, question, choices and label",
    "generate": "give TSV with two columns, the source and the target, named in its first line, or JSONL with the "
    "fields source and target",
}


@dataclass(frozen=True)
class Asked:
    """What is asked for."""

    task: str
    labelled: bool
    fields: Mapping[str, str]
    """Names that the user has given for parts."""

    def names(self, role: str) -> tuple[str, ...]:
        """The columns or fields that may hold a part, the likeliest first."""
        usual = ROLES[self.task][role]
        named = self.fields.get(role)
        if named is None:
            return usual
        return (named, *usual) if named in usual else (named,)

    def find(self, role: str, names: Collection[str]) -> str | None:
        """Which of the columns or fields of a file holds a part."""
        return next((name for name in self.names(role) if name in names), None)


def ask(task: str, labelled: bool, fields: Mapping[str, str] | None) -> Asked:
    """What is asked for, once it is known to make sense."""
    if task not in TASKS:
        raise CorpusError(f"there is no task {task!r}: {near_miss(task, TASKS)}")
    known = ROLES[task]
    for role in fields or {}:
        if role not in known:
            raise CorpusError(f"{task} has no part {role!r} that a field could be named for: {near_miss(role, known)}")
    return Asked(task, labelled, dict(fields or {}))


def likely_task(names: Collection[str]) -> str | None:
    """The task whose files have such columns or fields.

    >>> likely_task(["label", "text_a", "text_b"]), likely_task(["source", "target"]), likely_task(["x"])
    ('pair', 'generate', None)
    """
    signs = {
        "choice": "choices" in names,
        "span": "paragraphs" in names or {"data", "version"} <= {*names} or _asks(names),
        "pair": "text_a" in names and "text_b" in names,
        "tag": "tags" in names and ("words" in names or "tokens" in names),
        "generate": "source" in names and "target" in names,
        "classify": ("label" in names or "labels" in names) and bool({"text", "text_a", "source"} & set(names)),
    }
    return next((task for task, found in signs.items() if found), None)


def _asks(names: Collection[str]) -> bool:
    return "question" in names and bool({"context", "passage", "answers"} & {*names})


def hint(asked: Asked, names: Collection[str]) -> str:
    """A clause for an error: that a file with these columns or fields is one of another task; nothing if it is not."""
    return other_task(asked, likely_task(names))


def other_task(asked: Asked, likely: str | None) -> str:
    """A clause that a file is one of another task; nothing if it is not."""
    return "" if likely in (None, asked.task) else f"this looks like {likely}: use firth finetune MODEL {likely}"
