"""Checks of arguments that need neither a model nor a text, nor a library that takes time to load."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from firth.abilities import LAYERS
from firth.errors import ArgumentError, near_miss


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


def parse_layer(given: str | None) -> str | int | None:
    """A layer as a number or a name; anything else raises `ArgumentError`.

    >>> parse_layer("mix"), parse_layer("-2")
    ('mix', -2)
    >>> parse_layer("1.5")
    Traceback (most recent call last):
    ...
    firth.errors.ArgumentError: there is no layer '1.5': give a number, all, last or mix.
    """
    if given is None or given in LAYERS:
        return given
    if re.fullmatch("-?[0-9]{1,9}", given):
        return int(given)
    clause = near_miss(given, LAYERS)
    remedy = clause if clause.startswith("did you mean") else "give a number, all, last or mix."
    raise ArgumentError(f"there is no layer {given!r:.80}: {remedy}")


def check_temperature(given: float) -> None:
    """Raise `ArgumentError` for a temperature of sampling that is negative, infinite or no number."""
    if not 0 <= given < math.inf:
        raise ArgumentError(f"--temperature is {given}: give 0 (greedy decoding) or above.")


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
