"""tasks.toml: the tasks that one network is fine-tuned for in one run.

mixing = "size"          # or "sqrt", "equal"

[[task]]
name = "sst2"
task = "classify"
train = "sst2.train.tsv" # relative to the file
dev = "sst2.dev.tsv"
test = "sst2.test.tsv"   # optional, as are the following
weight = 0.5
columns = { text_a = "sentence" }
set = { "head.dropout" = 0.3 }
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from firth.arguments import require_path
from firth.errors import ArgumentError, CorpusError, RecipeError, near_miss
from firth.objectives.registry import OBJECTIVES
from firth.tasks.readers.columns import parse_columns, read_options
from firth.tasks.recipe import MIXINGS, SHARED_FIELDS, TASKS, Mixing, NamedTask, TaskName, TaskRecipe

_MAX_BYTES = 1 << 20
_MAX_WEIGHT = 1e12  # integers may be too large for a float
_KEYS = ("name", "task", "train", "dev", "test", "weight", "columns", "set")
_NEEDED = ("name", "task", "train", "dev")
_KINDS = tuple(task for task in TASKS if task != "generate")
_SHARED = (*SHARED_FIELDS, "lm_weight", "task", "decoder", "columns", "labels")  # not to be set for one task


@dataclass(frozen=True)
class TaskEntry:
    """A task with its examples: files, or lists of them from Python."""

    name: str
    task: TaskName
    train: Any
    dev: Any
    test: Any = None
    weight: float = 1.0
    columns: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()


@dataclass(frozen=True)
class TaskFile:
    """Several tasks and how their batches are mixed."""

    tasks: tuple[TaskEntry, ...]
    mixing: Mixing = "size"


def read_tasks(given: Any) -> TaskFile:
    """The tasks of a TOML file, or of a dictionary with the same keys."""
    if isinstance(given, Mapping):
        return _parse(given, "tasks", None)
    path = require_path(given, "tasks", "the file that lists the tasks")
    try:
        with open(path, "rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise CorpusError(f"{path} cannot be read ({error.strerror}): name a file that lists tasks.") from None
    if len(content) > _MAX_BYTES:
        raise CorpusError(f"{path} is larger than {_MAX_BYTES >> 20} MB: name a file that lists tasks, not examples.")
    try:
        data = tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise CorpusError(f"{path} is not TOML ({reason:.200}): write a table [[task]] for each task.") from None
    return _parse(data, str(path), path.parent)


def _parse(data: Mapping[str, Any], where: str, folder: Path | None) -> TaskFile:
    _check_keys(data, ("mixing", "task"), where)
    mixing, tables = data.get("mixing", "size"), data.get("task")
    if mixing not in MIXINGS:
        raise RecipeError(f"{where}: there is no mixing {mixing!r:.80}: {near_miss(str(mixing), MIXINGS)}")
    if not isinstance(tables, list) or not tables:
        raise RecipeError(f"{where} lists no tasks: write a table [[task]] with name, task, train and dev for each.")
    tasks = tuple(_parse_task(table, f"{where}, task {number}", folder) for number, table in enumerate(tables, 1))
    names = [one.name for one in tasks]
    if twice := [name for name in names if names.count(name) > 1]:
        raise RecipeError(f"{where}: two tasks are named {twice[0]}: give each a name of its own.")
    return TaskFile(tasks, cast(Mixing, mixing))


def _parse_task(table: Any, where: str, folder: Path | None) -> TaskEntry:
    if not isinstance(table, Mapping):
        raise RecipeError(f"{where} is no table: write [[task]] with name, task, train and dev.")
    _check_keys(table, _KEYS, where)
    if missing := [key for key in _NEEDED if key not in table]:
        raise RecipeError(f"{where} lacks {missing[0]}: give name, task, train and dev.")
    name, task, weight = table["name"], table["task"], table.get("weight", 1.0)
    if not isinstance(name, str):
        raise RecipeError(f"{where}: the name must be a string, not {name!r:.80}: put it in quotes.")
    if name in OBJECTIVES:
        raise RecipeError(f"{where}: {name} is the name of an objective of pre-training: give the task another name.")
    if task not in _KINDS:
        known = near_miss(str(task), _KINDS)
        raise RecipeError(f"{where}: there is no task {task!r:.80} among those that share a network: {known}")
    is_huge = isinstance(weight, int) and abs(weight) > _MAX_WEIGHT
    if isinstance(weight, bool) or not isinstance(weight, int | float) or is_huge:
        raise RecipeError(f"{where}: the weight must be a number above 0, not {weight!r:.80}: correct it.")
    checked = NamedTask(name=name, weight=float(weight), recipe=TaskRecipe(task=task))  # raises for bad ones
    columns = tuple(_pairs(table.get("columns", ()), "columns", where))
    try:
        read_options(task, True, parse_columns(columns))
    except ArgumentError as error:  # the file is wrong, not the arguments
        raise RecipeError(f"{where}: {error}") from None
    settings = tuple(_pairs(table.get("set", ()), "set", where))
    if shared := [one for one in settings if one.partition("=")[0].partition(".")[0].strip() in _SHARED]:
        raise RecipeError(f"{where}: {shared[0]:.80} concerns all tasks: give it with --set instead.")
    paths = {key: _source(table.get(key), f"{where}: {key}", folder) for key in ("train", "dev", "test")}
    return TaskEntry(name, task, **paths, weight=checked.weight, columns=columns, settings=settings)


def _check_keys(table: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    if unknown := [key for key in table if key not in known]:
        raise RecipeError(f"{where} has an unknown key {unknown[0]!r:.80}: {near_miss(str(unknown[0]), known)}")


def _pairs(given: Any, key: str, where: str) -> list[str]:
    """`key=value` strings of a table or a list.

    >>> _pairs({"head": {"dropout": 0.3}, "symmetric": True}, "set", "task 1")
    ['head.dropout=0.3', 'symmetric=true']
    """
    if isinstance(given, Mapping):
        return [pair for name, value in given.items() for pair in _flat(str(name), value, key, where)]
    if isinstance(given, list | tuple) and all(isinstance(one, str) and "=" in one for one in given):
        return list(given)
    raise RecipeError(f"{where}: {key} must be a table of names and values, not {given!r:.80}: correct it.")


def _flat(name: str, value: Any, key: str, where: str) -> list[str]:
    if isinstance(value, Mapping):
        return [pair for part, one in value.items() for pair in _flat(f"{name}.{part}", one, key, where)]
    if not isinstance(value, str | int | float):
        raise RecipeError(f"{where}: {key}.{name:.80} must be text, a number, true or false: correct it.")
    return [f"{name}={str(value).lower() if isinstance(value, bool) else value}"]


def _source(given: Any, where: str, folder: Path | None) -> Any:
    """The examples of a file beside the list of tasks; from Python also a list of them."""
    if given is None:
        return None
    if folder is None and not isinstance(given, str):
        return given
    if not isinstance(given, str) or not given:
        raise RecipeError(f"{where} must be the path of a file, not {given!r:.80}: correct it.")
    return given if folder is None or given.startswith("builtin:") else folder / given
