"""Recipes as values: to JSON and back, how two differ, and changing single fields by name."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from firth.errors import ArtifactError, RecipeError, near_miss
from firth.recipes.families import FAMILIES, Recipe
from firth.recipes.table import RECIPES, find_recipe

_NAMES = tuple[str, ...]


def recipe_to_json(recipe: Recipe) -> dict[str, Any]:
    """The recipe as plain JSON, with the name of its type under `type`."""
    name = next(name for name, kind in FAMILIES.items() if isinstance(recipe, kind))
    return {"type": name, **dataclasses.asdict(recipe)}


def recipe_from_json(data: dict[str, Any]) -> Recipe:
    """The recipe that `recipe_to_json` wrote.

    >>> recipe = find_recipe("unigram")
    >>> recipe_from_json(recipe_to_json(recipe)) == recipe
    True
    """
    fields = dict(data)
    name = fields.pop("type", None)
    if name not in FAMILIES:
        raise ArtifactError(f"the recipe is of an unknown type {name!r}: upgrade Firth to read it.")
    return typing.cast(Recipe, _from_json(FAMILIES[name], fields, "recipe"))


def field_types(kind: type) -> dict[str, Any]:
    """The type of each field of a recipe."""
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def _is_needed(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _part_of(hint: Any) -> type | None:
    """The recipe that a field holds, or may hold."""
    return next((one for one in _options(hint) if dataclasses.is_dataclass(one) and isinstance(one, type)), None)


def _from_json(kind: type, data: Any, where: str) -> Any:
    hints = field_types(kind)
    if not isinstance(data, dict):
        raise ArtifactError(f"{where} is {data!r}, not an object with fields: write it again with firth train.")
    if unknown := sorted(set(data) - set(hints)):
        raise ArtifactError(f"{where} has unknown fields ({', '.join(unknown)}): upgrade Firth to read it.")
    # A field that is younger than the artifact has its default, which is what was done before there was a choice.
    if lost := sorted({field.name for field in dataclasses.fields(kind) if _is_needed(field)} - set(data)):
        raise ArtifactError(f"{where} lacks {', '.join(lost)}: it was made by another Firth.")
    values = {}
    for name, value in data.items():
        hint = hints[name]
        part = _part_of(hint)
        if part is not None and not (value is None and fits(None, hint)):
            value = _from_json(part, value, f"{where}.{name}")
        elif not fits(value, hint):
            raise ArtifactError(f"{where}.{name} is {value!r}, not {describe_type(hint)}.")
        elif hint == _NAMES:
            value = tuple(value)
        values[name] = value
    return kind(**values)


def flatten(data: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested fields under dotted names.

    >>> flatten({"a": {"b": 1}, "c": 2})
    {'a.b': 1, 'c': 2}
    """
    flat: dict[str, Any] = {}
    for name, value in data.items():
        if isinstance(value, dict):
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


def difference(first: Recipe, second: Recipe) -> dict[str, tuple[Any, Any]]:
    """Field -> its value in the first and in the second recipe, where they differ; None where there is none.

    >>> difference(find_recipe("bpe"), find_recipe("byte-bpe"))
    {'model': ('bpe', 'byte-bpe')}
    """
    one, two = flatten(recipe_to_json(first)), flatten(recipe_to_json(second))
    names = [*one, *(name for name in two if name not in one)]
    return {name: (one.get(name), two.get(name)) for name in names if one.get(name) != two.get(name)}


def override(recipe: Recipe, settings: Iterable[str]) -> Recipe:
    """The recipe with fields set by `key.sub=value`, each checked against the type of its field.

    A field that is itself a recipe can be set to the name of one.

    >>> override(find_recipe("unigram"), ["tokenizer=chars", "delta=0.5"]).tokenizer.model
    'chars'
    """
    changes: dict[str, str] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise RecipeError(f"--set takes key=value, not {setting!r}.")
        changes[name.strip()] = value.strip()
    return typing.cast(Recipe, _set(recipe, changes, "")) if changes else recipe


def _set(part: Any, changes: Mapping[str, str], prefix: str) -> Any:
    """The part with some fields changed, all at once: values that fit only together may be set one by one."""
    hints = field_types(type(part))
    values: dict[str, Any] = {}
    for name in dict.fromkeys(name.partition(".")[0] for name in changes):
        if name not in hints:
            raise RecipeError(_no_such_field(name, prefix, changes, hints))
        own = {rest: value for key, value in changes.items() for rest in [key.removeprefix(f"{name}.")] if rest != key}
        kind, base = _part_of(hints[name]), getattr(part, name)
        if kind is None or (base is None and name not in changes):
            if own:
                raise RecipeError(f"{name!r} has no fields of its own: set {name}=value.")
            values[name] = parse_value(changes[name], hints[name], prefix + name)
            continue
        if name in changes:
            base = _recipe_named(changes[name], kind, prefix + name)
        values[name] = _set(base, own, f"{prefix}{name}.") if own else base
    return dataclasses.replace(part, **values)


def _no_such_field(name: str, prefix: str, changes: Mapping[str, str], hints: Mapping[str, Any]) -> str:
    whole = prefix + next(key for key in changes if key.partition(".")[0] == name)
    fields = ", ".join(f"{name} ({describe_type(hint)})" for name, hint in hints.items())
    close = near_miss(name, hints)
    advice = f"{close} " if close.startswith("did") else ""
    return f"there is no field {whole!r}: {advice}The fields are {fields}."


def _recipe_named(name: str, hint: Any, whole: str) -> Any:
    fitting = [known for known, entry in RECIPES.items() if isinstance(entry.make(), hint)]
    if name not in fitting:
        raise RecipeError(f"{whole}={name!r} names no recipe that fits there: {near_miss(name, fitting)}")
    return find_recipe(name)


def parse_value(text: str, hint: Any, name: str) -> Any:
    """The value that `text` stands for, of the type that the field has."""
    for option in _options(hint):
        value = _read(text, option)
        if value is not _WRONG:
            return value
    raise RecipeError(f"{name}={text!r} is wrong: {name} takes {describe_type(hint)}.")


_WRONG = object()


def _read(text: str, option: Any) -> Any:
    if option is bool:
        return {"true": True, "yes": True, "false": False, "no": False}.get(text.lower(), _WRONG)
    if option is type(None):
        return None if text.lower() == "none" else _WRONG
    if typing.get_origin(option) is Literal:
        return text if text in typing.get_args(option) else _WRONG
    if option == _NAMES:
        return tuple(filter(None, (name.strip() for name in text.split(","))))
    try:
        return option(text)
    except ValueError:
        return _WRONG


def fits(value: Any, hint: Any) -> bool:
    """Whether a value from JSON is one that a field of this type may have."""
    for option in _options(hint):
        if typing.get_origin(option) is Literal:
            if value in typing.get_args(option):
                return True
        elif option == _NAMES:
            if isinstance(value, list | tuple) and all(isinstance(name, str) for name in value):
                return True
        elif type(value) is option or (option is float and type(value) is int):
            return True
    return False


def _options(hint: Any) -> tuple[Any, ...]:
    """The alternatives of a type, plain text last, because it takes anything."""
    options = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    return tuple(sorted(options, key=lambda option: option is str))


def describe_type(hint: Any) -> str:
    """A type in plain words.

    >>> describe_type(int | None)
    'a whole number or none'
    """
    words = {
        int: "a whole number",
        float: "a number",
        bool: "true or false",
        str: "text",
        type(None): "none",
        _NAMES: "names with commas between them",
    }
    names = []
    for option in _options(hint):
        if typing.get_origin(option) is Literal:
            names.append(" | ".join(map(str, typing.get_args(option))))
        elif dataclasses.is_dataclass(option):
            names.append("a recipe's name")
        else:
            names.append(words[option])
    return " or ".join(sorted(names, key=lambda name: name == "none"))
