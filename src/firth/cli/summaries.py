"""What people read of a manifest: a summary in ten lines, and the table that training ends with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from firth.cli.console import format_interval, format_value
from firth.errors import RecipeError
from firth.recipes.values import differing_fields, flatten, recipe_to_json

_WIDTH = 100  # characters of a line
_COUNTS = ("documents", "sentences", "words", "tokens", "examples")
_LIBRARIES = ("firth", "python", "torch", "numba", "tokenizers")


def summarise_artifact(facts: Mapping[str, Any]) -> dict[str, str]:
    """The main facts of a manifest by name, a line for each of ten."""
    budget = facts["budget"]
    rows: dict[str, Iterable[str] | str] = {
        "model": f"{facts['name']} ({facts['kind']}), {format_bytes(facts['bytes'])} in {facts['folder']}",
        **_describe_tasks(facts["recipe"]),
        **_describe_lineage(facts["metrics"].get("compression")),
        "recipe": _describe_recipe(facts["name"], facts["recipe"]),
        "tokenizer": _describe_tokenizer(_tokenizer_of(facts["recipe"])),
        "text": _describe_text(facts["corpus"]),
        "budget": f"{budget['asked'] or 'none'} asked, spent: {', '.join(_amounts(budget['spent']))}",
        "seed": format_value(facts["seed"]),
        "metrics": _scalars({name: value for name, value in facts["metrics"].items() if name != "compression"}),
        "versions": [f"{name} {facts['versions'][name]}" for name in _LIBRARIES if name in facts["versions"]],
        "files": facts["files"],
        "more": "firth info --all prints every field, firth verify checks every byte",
    }
    return {name: value if isinstance(value, str) else _join(value) for name, value in rows.items()}


def summarise_training(facts: Mapping[str, Any]) -> dict[str, str]:
    """The size of the training text and the metrics of a manifest by name, rounded."""
    counts = {name: facts["corpus"][name] for name in (*_COUNTS, "bytes", "layout") if name in facts["corpus"]}
    return {name: format_rounded(value) for name, value in flatten(counts | facts["metrics"]).items()}


def format_rounded(value: Any) -> str:
    """A value with rounded numbers; of a long list the beginning.

    >>> format_rounded([0.123456, 2, "x"])
    '0.1235, 2, x'
    """
    return _join(map(format_rounded, value)) if isinstance(value, list | tuple) else format_value(value)


def format_bytes(size: float) -> str:
    """A size in units of 1,000 bytes.

    >>> format_bytes(999), format_bytes(12_345_678)
    ('999 bytes', '12.3 MB')
    """
    if size < 1000:
        return f"{size:.0f} bytes"
    unit = next(unit for unit in ("kB", "MB", "GB", "TB") if (size := size / 1000) < 1000 or unit == "TB")
    return f"{size:.1f} {unit}"


def _describe_recipe(name: str, recipe: dict[str, Any]) -> list[str]:
    """The fields that differ from the recipe of that name or, if there is none, all fields."""
    from firth.recipes.table import find_recipe

    try:
        changed = differing_fields(recipe_to_json(find_recipe(name)), recipe)
    except RecipeError:
        return [f"{field}={format_value(value)}" for field, value in flatten(recipe).items()]
    if not changed:
        return [f"{name}, as firth recipes lists it"]
    first, *others = (f"{field}={format_value(value)}" for field, (_, value) in changed.items())
    return [f"{name} with {first}", *others]


def _describe_lineage(compression: Any) -> dict[str, Iterable[str] | str]:
    """What a compressed model was made of, and what that cost."""
    if not isinstance(compression, dict):
        return {}
    steps = [
        f"{one['method']} of {one['name']} ({one['mb']:.1f} MB, {one['digest'][:12]})" for one in compression["lineage"]
    ]
    before, after = compression["before"], compression["after"]
    return {
        "lineage": steps,
        "compression": [
            f"{compression['smaller']:.3g} x smaller",
            f"{compression['faster']:.3g} x faster",
            f"{compression['metric']} {before['quality']:.4f} -> {after['quality']:.4f}",
        ],
    }


def _describe_tasks(recipe: Mapping[str, Any]) -> dict[str, list[str]]:
    """The tasks of a model that has several, by name."""
    tasks = recipe.get("tasks")
    if not isinstance(tasks, dict):
        return {}
    return {"tasks": [f"{name} ({one.get('task')})" for name, one in tasks.items() if isinstance(one, dict)]}


def _tokenizer_of(recipe: Mapping[str, Any]) -> Mapping[str, Any]:
    """The fields of the tokenizer of a recipe, which may be nested in the recipe of a network or n-gram model."""
    for part in (recipe, recipe.get("base"), recipe.get("network")):
        if isinstance(part, dict) and isinstance(part.get("tokenizer"), dict):
            return dict(part["tokenizer"])
    return recipe if recipe.get("type") == "tokenizer" else {}


def _describe_tokenizer(tokenizer: Mapping[str, Any]) -> list[str]:
    size = tokenizer.get("vocab_size")
    return [format_value(tokenizer.get("model")), *([] if size is None else [f"{format_value(size)} tokens at most"])]


def _describe_text(corpus: Mapping[str, Any]) -> list[str]:
    counts = [f"{format_value(corpus[name])} {name}" for name in _COUNTS if name in corpus]
    if isinstance(size := corpus.get("bytes"), int | float):
        counts.append(format_bytes(size))
    others = [f"{name} {corpus[name]}" for name in ("layout", "imported", "licence") if name in corpus]
    return [*counts, *others]


def _amounts(spent: Mapping[str, Any]) -> list[str]:
    """The resources spent; large numbers, of FLOPs, as powers of ten."""
    is_large = {name: isinstance(value, int | float) and value >= 1e9 for name, value in spent.items()}
    return [
        f"{format(value, '.3g') if is_large[name] else format_value(value)} {name}" for name, value in spent.items()
    ]


def _scalars(metrics: dict[str, Any]) -> list[str]:
    """The numbers among metrics, qualities before counts."""
    flat = {name: value for name, value in flatten(metrics).items() if isinstance(value, int | float)}
    intervals = flatten(metrics)
    ordered = sorted(flat, key=lambda name: isinstance(flat[name], int))
    return [f"{name} {format_value(flat[name])}{format_interval(intervals, name)}" for name in ordered] or ["none"]


def _join(parts: Iterable[str]) -> str:
    """Parts with commas between them, as many as fit on a line, with their number if some are left out."""
    listed = list(parts)
    shown = 0
    while shown < len(listed) and len(", ".join(listed[: shown + 1])) <= _WIDTH:
        shown += 1
    rest = len(listed) - shown
    text = ", ".join(listed[:shown]) if shown else f"{''.join(listed[:1]):.{_WIDTH}}"
    return f"{text}, and {rest} more" if rest and shown else text
