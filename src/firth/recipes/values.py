"""Recipes to and from JSON, their differences, and changes of single fields by name."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from firth.arguments import require_strings
from firth.errors import ArgumentError, ArtifactError, near_miss, reading
from firth.nets.objective import Objective
from firth.objectives.registry import OBJECTIVES, parse_objectives
from firth.recipes.families import FAMILIES, Recipe
from firth.recipes.peers import peer_hint
from firth.recipes.table import RECIPES, find_recipe
from firth.tasks.recipe import SHARED_FIELDS, NamedTask, TaskRecipe

_NAMES = tuple[str, ...]
OBJECTIVE_TUPLE = tuple[Objective, ...]
"""The type of a field that holds objectives."""
NAMED_TASKS = tuple[NamedTask, ...]
"""The type of a field that holds several tasks."""
_TYPES = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    type(None): "none",
    _NAMES: "names with commas between them",
    OBJECTIVE_TUPLE: "names with + between them",
    NAMED_TASKS: "named tasks",
}
_WRONG = object()
_ADDED = frozenset(
    {"word_classes", "differences", "training_samples", "cross_init", "linear", "linear_weight", "ngrams"}
)
"""Fields that earlier artifacts of this format lack: their defaults mean what was done before they existed."""


def recipe_to_json(recipe: Recipe) -> dict[str, Any]:
    """The recipe as plain JSON, with the name of its type under `type`."""
    name = next(name for name, kind in FAMILIES.items() if isinstance(recipe, kind))
    return {"type": name, **_to_json(recipe)}


def _to_json(part: Any) -> dict[str, Any]:
    """The fields of a part of a recipe; objectives are written by name."""
    found = {}
    for field in dataclasses.fields(part):
        value = getattr(part, field.name)
        if dataclasses.is_dataclass(value):
            value = _to_json(value)
        elif _is_tuple_of(value, Objective):
            value = {one.name: _to_json(one) for one in value}
        elif _is_tuple_of(value, NamedTask):
            value = {one.name: {"weight": one.weight, **_own_fields(one.recipe)} for one in value}
        found[field.name] = value
    return found


def _own_fields(recipe: TaskRecipe) -> dict[str, Any]:
    """The fields of one of several tasks that are not those of all."""
    return {name: value for name, value in _to_json(recipe).items() if name not in SHARED_FIELDS}


def _is_tuple_of(value: Any, kind: type) -> bool:
    return isinstance(value, tuple) and bool(value) and all(isinstance(one, kind) for one in value)


def recipe_from_json(data: dict[str, Any]) -> Recipe:
    """The recipe that `recipe_to_json` wrote.

    >>> recipe = find_recipe("unigram")
    >>> recipe_from_json(recipe_to_json(recipe)) == recipe
    True
    """
    with reading("the recipe", "upgrade Firth to read it, or train the model again"):
        fields = dict(data)
        name = fields.pop("type", None)
        if not isinstance(name, str) or name not in FAMILIES:
            raise ArtifactError(f"the recipe is of an unknown type {name!r:.80}: upgrade Firth to read it.")
        return typing.cast(Recipe, _from_json(FAMILIES[name], fields, "recipe"))


def field_types(kind: type) -> dict[str, Any]:
    """The type of each field of a recipe."""
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def _nested_recipe(hint: Any) -> type | None:
    """The recipe type of a field that holds, or may hold, a recipe."""
    return next((one for one in _options(hint) if dataclasses.is_dataclass(one) and isinstance(one, type)), None)


def _from_json(kind: type, data: Any, where: str) -> Any:
    hints = field_types(kind)
    if not isinstance(data, dict):
        raise ArtifactError(f"{where} is {data!r:.80}, not an object with fields: write it again with firth train.")
    if unknown := sorted(set(data) - set(hints)):
        raise ArtifactError(f"{where} has unknown fields ({', '.join(unknown):.80}): upgrade Firth to read it.")
    if missing := sorted(set(hints) - set(data) - _ADDED):
        raise ArtifactError(
            f"{where} lacks {', '.join(missing)}: it was made by another Firth; train or import it again."
        )
    values = {}
    for name, value in data.items():
        hint = hints[name]
        nested = _nested_recipe(hint)
        if hint == OBJECTIVE_TUPLE:
            value = _objectives_from_json(value, f"{where}.{name}")
        elif hint == NAMED_TASKS:
            value = _tasks_from_json(value, {field: data[field] for field in SHARED_FIELDS}, f"{where}.{name}")
        elif nested is not None and not (value is None and fits(None, hint)):
            value = _from_json(nested, value, f"{where}.{name}")
        elif not fits(value, hint):
            raise ArtifactError(f"{where}.{name} is {value!r:.80}, not {describe_type(hint)}: train it again.")
        values[name] = tuple(value) if hint == _NAMES else value
    return kind(**values)


def _objectives_from_json(data: Any, where: str) -> tuple[Objective, ...]:
    if data in ((), []):
        return ()
    if not isinstance(data, dict) or not data.keys() <= OBJECTIVES.keys():
        raise ArtifactError(f"{where} is {data!r:.80}, not objectives of this Firth: upgrade it to read the recipe.")
    # Manifests sort names; recipes have them in the order of the registry.
    named = {name: kind for name, kind in OBJECTIVES.items() if name in data}
    return tuple(_from_json(kind, data[name], f"{where}.{name}") for name, kind in named.items())


def _tasks_from_json(data: Any, shared: dict[str, Any], where: str) -> tuple[NamedTask, ...]:
    if not isinstance(data, dict) or not all(isinstance(fields, dict) for fields in data.values()):
        raise ArtifactError(f"{where} is {data!r:.80}, not tasks by name: train the model again.")
    found = []
    for name, fields in data.items():
        fields = dict(fields)
        weight = fields.pop("weight", None)
        if not fits(weight, float):
            raise ArtifactError(f"{where}.{name:.80}.weight is {weight!r:.80}, not a number: train the model again.")
        recipe = _from_json(TaskRecipe, fields | shared, f"{where}.{name:.80}")
        found.append(NamedTask(name=name, weight=weight, recipe=recipe))
    return tuple(found)


def flatten(data: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested fields under dotted names; those of objectives begin with the objective's name.

    >>> flatten({"a": {"b": 1}, "c": 2})
    {'a.b': 1, 'c': 2}
    >>> flatten({"objectives": {"mlm": {"weight": 1.0}, "nsp": {"weight": 0.5}}})
    {'objectives': 'mlm+nsp', 'mlm.weight': 1.0, 'nsp.weight': 0.5}
    """
    flat: dict[str, Any] = {}
    for name, value in data.items():
        if name == "objectives" and isinstance(value, dict):
            flat |= {prefix + name: "+".join(value)} | flatten(value, prefix)
        else:
            flat |= flatten(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return flat


def difference(first: Recipe, second: Recipe) -> dict[str, tuple[Any, Any]]:
    """Field -> its value in the first and in the second recipe, where they differ; None where there is none.

    >>> difference(find_recipe("bpe"), find_recipe("byte-bpe"))
    {'model': ('bpe', 'byte-bpe')}
    """
    return differing_fields(recipe_to_json(first), recipe_to_json(second))


def differing_fields(first: dict[str, Any], second: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Dotted name -> its value in the first and in the second JSON object, where they differ.

    >>> differing_fields({"seed": 1, "budget": {"asked": "20s"}}, {"seed": 1, "budget": {"asked": None}})
    {'budget.asked': ('20s', None)}
    """
    one, two = (flatten(json.loads(json.dumps(values))) for values in (first, second))  # tuples become lists
    changed = {name: (one.get(name), two.get(name)) for name in one | two if one.get(name) != two.get(name)}
    return {name: values for name, values in changed.items() if not _is_default(name, values)}


def _is_default(name: str, values: tuple[Any, Any]) -> bool:
    """Whether a field is of an objective that only one of two recipes has, and has its default value there."""
    parts = name.split(".")
    number = next((number for number, part in enumerate(parts[:-1]) if part in OBJECTIVES), None)
    if None not in values or number is None:
        return False
    defaults = flatten(json.loads(json.dumps(_to_json(OBJECTIVES[parts[number]]()))))
    return bool(defaults.get(".".join(parts[number + 1 :])) in values)


Settings = Mapping[str, Any] | Sequence[str]
"""Fields of a recipe and their values: `{"order": 2}`, or `["order=2"]` as on the command line."""


def setting_list(settings: Settings) -> list[str]:
    """The settings as `key=value`.

    >>> setting_list({"order": 2, "encoder": {"layers": 4, "residual": True}, "discount": None})
    ['order=2', 'encoder.layers=4', 'encoder.residual=true', 'discount=none']
    """
    if not isinstance(settings, Mapping):
        if isinstance(settings, str):
            name, _, value = settings.partition("=")
            raise ArgumentError(f"settings must be a dictionary, such as {{{name!r}: {value!r}}}, not a string.")
        return list(require_strings(settings, "settings"))
    return [f"{name}={_setting(name, value)}" for name, value in flatten(dict(settings)).items()]


def _setting(name: str, value: Any) -> str:
    """A value of Python as it is written on the command line."""
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, list | tuple):
        return ",".join(_setting(name, one) for one in value)
    raise ArgumentError(f"{name} must be a number, a string, True, False or None, not a {type(value).__name__}.")


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
            raise ArgumentError(f"--set takes key=value, not {setting!r:.80}.")
        changes[name.strip()] = value.strip()
    if not changes:
        return recipe
    return typing.cast(Recipe, _set_fields(recipe, changes, "", known_fields(recipe)))


def known_fields(recipe: Recipe) -> list[str]:
    """The dotted names of all fields that can be set; those of objectives begin with their names.

    >>> [name for name in known_fields(find_recipe("bert")) if name.startswith("mlm.masking.m")]
    ['mlm.masking.mask', 'mlm.masking.mode', 'mlm.masking.max_length']
    """
    return list(flatten(_to_json(recipe)))


def _set_fields(part: Any, changes: Mapping[str, str], prefix: str, known: Iterable[str]) -> Any:
    """The part with fields changed all at once: values that are valid only together may be set one by one."""
    hints = field_types(type(part))
    values: dict[str, Any] = {}
    if hints.get("objectives") == OBJECTIVE_TUPLE:
        values["objectives"], changes = _set_objectives(part.objectives, changes, prefix, known)
    for name in dict.fromkeys(name.partition(".")[0] for name in changes):
        if name not in hints:
            whole = prefix + next(key for key in changes if key.partition(".")[0] == name)
            raise ArgumentError(f"there is no field {whole!r:.80}: {_advise(whole, name, hints, known)}")
        nested_changes = {
            key.removeprefix(f"{name}."): value for key, value in changes.items() if key.startswith(f"{name}.")
        }
        nested, value = _nested_recipe(hints[name]), getattr(part, name)
        if nested is None or (value is None and name not in changes):
            if nested_changes:
                raise ArgumentError(f"{name!r:.80} has no fields of its own: set {name}=value.")
            values[name] = parse_value(changes[name], hints[name], prefix + name)
            continue
        if name in changes:
            value = _find_nested(changes[name], nested, prefix + name)
        values[name] = _set_fields(value, nested_changes, f"{prefix}{name}.", known) if nested_changes else value
    return dataclasses.replace(part, **values)


def _set_objectives(
    given: tuple[Objective, ...], changes: Mapping[str, str], prefix: str, known: Iterable[str]
) -> tuple[tuple[Objective, ...], dict[str, str]]:
    """The objectives with the changes of `objectives=a+b` and `NAME.field=value`, and the changes of other fields."""
    rest = {name.removeprefix("objectives."): value for name, value in changes.items() if name != "objectives"}
    found = parse_objectives(changes["objectives"], given) if "objectives" in changes else given
    by_name = {one.name: one for one in found}
    for name in dict.fromkeys(name.partition(".")[0] for name in rest):
        own = {key.partition(".")[2]: value for key, value in rest.items() if key.startswith(f"{name}.")}
        if name not in OBJECTIVES or not own:
            continue
        if name not in by_name:
            names = "+".join(by_name) or "none"
            raise ArgumentError(f"the recipe has no objective {name}: set objectives={names}+{name}, say, as well.")
        by_name[name] = _set_fields(by_name[name], own, f"{prefix}{name}.", known)
        rest = {key: value for key, value in rest.items() if not key.startswith(f"{name}.")}
    return tuple(by_name.values()), rest


def _advise(whole: str, name: str, hints: Mapping[str, Any], known: Iterable[str]) -> str:
    """The key that is meant, by the names of other libraries or by spelling, and the fields that there are."""
    close = near_miss(name, hints)
    advice = peer_hint(whole, known) or (close if close.startswith("did") else "")
    fields = ", ".join(f"{field} ({describe_type(hint)})" for field, hint in hints.items())
    return f"{advice[:1].lower()}{advice[1:]} The fields are {fields}.".lstrip()


def _find_nested(name: str, kind: type, whole: str) -> Any:
    matching = [known for known, entry in RECIPES.items() if isinstance(entry.make(), kind)]
    if name not in matching:
        raise ArgumentError(f"{whole}={name!r:.80} names no recipe that fits there: {near_miss(name, matching)}")
    return find_recipe(name)


def parse_value(text: str, hint: Any, name: str) -> Any:
    """The value of a text, of the type of its field."""
    for option in _options(hint):
        value = _parse_option(text, option)
        if value is not _WRONG:
            return value
    raise ArgumentError(f"{name}={text!r:.80} is wrong: {name} takes {describe_type(hint)}.")


def _parse_option(text: str, option: Any) -> Any:
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
    """Whether a JSON value is valid for a field of this type."""
    return any(_fits_option(value, option) for option in _options(hint))


def _fits_option(value: Any, option: Any) -> bool:
    if typing.get_origin(option) is Literal:
        return value in typing.get_args(option)
    if option == _NAMES:
        return isinstance(value, list | tuple) and all(isinstance(name, str) for name in value)
    return type(value) is option or (option is float and type(value) is int)


def _options(hint: Any) -> tuple[Any, ...]:
    """The alternatives of a type; text comes last, because it accepts anything."""
    options = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    return tuple(sorted(options, key=lambda option: option is str))


def describe_type(hint: Any) -> str:
    """A type in plain words.

    >>> describe_type(int | None)
    'a whole number or none'
    """
    names = []
    for option in _options(hint):
        if typing.get_origin(option) is Literal:
            names.append(" | ".join(map(str, typing.get_args(option))))
        else:
            names.append("a recipe's name" if dataclasses.is_dataclass(option) else _TYPES[option])
    return " or ".join(sorted(names, key=lambda name: name == "none"))
