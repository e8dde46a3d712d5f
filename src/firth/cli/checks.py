"""Checks of arguments that need neither a model nor a text, nor a library that takes time to load."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from firth.errors import ArgumentError, OutputError, near_miss
from firth.files import require_new_file


def require_choice(what: str, given: str | None, choices: Sequence[str]) -> None:
    """Raise `ArgumentError` unless the name of a `what`, if it is given, is one of the choices.

    >>> require_choice("suite", "wrods", ["words", "task"])
    Traceback (most recent call last):
    ...
    firth.errors.ArgumentError: there is no suite 'wrods': did you mean 'words'?
    """
    if given is not None and given not in choices:
        raise ArgumentError(f"there is no {what} {given!r:.80}: {near_miss(given, choices)}")


def check_recipe(name: str, size: str | None, settings: Iterable[str]) -> None:
    """Raise unless there is a recipe of that name, in that size, with fields that can be set so."""
    from firth.recipes.nets import with_size
    from firth.recipes.table import find_recipe
    from firth.recipes.values import override

    recipe = find_recipe(name)
    override(recipe if size is None else with_size(recipe, name, size), settings)


def check_budget(budget: str | None) -> None:
    """Raise `BudgetError` unless the budget, if one is given, can be read."""
    if budget is not None:
        from firth.fit.budget import Budget

        Budget.parse(budget)


def check_encoding(encoding: str | None) -> None:
    """Raise `EncodingError` unless the encoding, if one is given, is known."""
    if encoding is not None:
        from firth.text.encoding import canonical_encoding

        canonical_encoding(encoding)


def check_reading(layout: str, encoding: str | None, corpora: Iterable[str | None] = ()) -> None:
    """Raise unless layout and encoding are known, and of the corpora those that are built in."""
    from firth.text.layout import Layout

    require_choice("layout", layout, (*get_args(Layout), "auto"))
    check_encoding(encoding)
    for name in corpora:
        if name is not None and name.startswith("builtin:"):
            from firth.text.oracle import builtin_names

            require_choice("built-in corpus", name, [f"builtin:{known}" for known in builtin_names()])


def require_output(out: Path, force: bool, model: Path, inputs: Iterable[Path] = ()) -> None:
    """Raise `OutputError` unless a file can be written that is no input and not in the folder of the model."""
    require_new_file(out, force, [*inputs, model])
    if out.resolve().is_relative_to(model.resolve()):
        raise OutputError(f"{out} would be a file of the model {model}, which could not be read then: write elsewhere.")


def check_task(task: str, strategy: str | None, fields: Iterable[str]) -> None:
    """Raise unless task and strategy are known, and each field is named as the column of a part of the task."""
    from firth.tasks.recipe import MANY, STRATEGIES, TASKS

    require_choice("task", task, (*TASKS, MANY))
    require_choice("strategy", strategy, STRATEGIES)
    if task == MANY:  # whose file names the fields of each task
        return
    from firth.tasks.readers.columns import parse_columns, read_options

    read_options(task, True, parse_columns(fields))


def check_examples(task: str, tasks: Path | None, given: Mapping[str, Any]) -> None:
    """Raise unless a task has its examples, and several tasks the file that lists them."""
    from firth.tasks.recipe import check_sources

    check_sources(task, tasks, given)
