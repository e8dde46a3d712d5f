"""firth recipes, firth diff: what can be trained, and how two recipes differ."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from firth.cli.console import JsonFlag, print_fields, show, verb


@verb
def recipes(
    name: Annotated[str | None, typer.Argument(help="A recipe to describe; all are listed if left out.")] = None,
    tree: Annotated[bool, typer.Option("--tree", help="Draw the lineage as a tree with years.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """What can be trained, with year, paper and ancestors.

    Example: firth recipes --tree
    """
    from firth.recipes.table import RECIPES, lineage

    if name is not None:
        _describe(name, as_json)
    elif tree and not as_json:
        for line in _draw(list(lineage())):
            print(line)
    else:
        rows = {known: _facts(known) for known in RECIPES}
        show(as_json, {"recipes": rows}, lambda: _list(rows))


@verb
def diff(
    first: Annotated[str, typer.Argument(help="A recipe.")],
    second: Annotated[str, typer.Argument(help="Another recipe.")],
    as_json: JsonFlag = False,
) -> None:
    """How two recipes differ, field by field.

    Example: firth diff bpe byte-bpe
    """
    from firth.recipes.table import find_recipe
    from firth.recipes.values import difference

    found = difference(find_recipe(first), find_recipe(second))
    rows = {field: {first: one, second: two} for field, (one, two) in found.items()}

    def text() -> None:
        if not found:
            print(f"{first} and {second} are the same recipe.")
        print_fields({field: f"{one}  ->  {two}" for field, (one, two) in found.items()})

    show(as_json, {"first": first, "second": second, "differences": rows}, text)


def _facts(name: str) -> dict[str, Any]:
    from firth.recipes.table import find_entry

    entry = find_entry(name)
    return {
        "family": entry.family,
        "year": entry.year,
        "paper": entry.paper,
        "parents": list(entry.parents),
        "about": entry.about,
    }


def _list(rows: dict[str, dict[str, Any]]) -> None:
    width = max(map(len, rows))
    for family in dict.fromkeys(row["family"] for row in rows.values()):
        print(f"{family}:")
        for name, row in rows.items():
            if row["family"] == family:
                print(f"  {name:<{width}} {row['year']}  {row['about']}")


def _describe(name: str, as_json: bool) -> None:
    from firth.recipes.table import find_recipe
    from firth.recipes.values import describe_type, field_types, flatten, recipe_to_json

    facts = _facts(name)
    recipe = find_recipe(name)
    values = recipe_to_json(recipe)

    def text() -> None:
        print(f"{name} ({facts['year']}): {facts['about']}")
        print(f"  {facts['paper']}" + (f"; after {', '.join(facts['parents'])}" if facts["parents"] else ""))
        print("Fields, to be changed with --set field=value:")
        hints = field_types(type(recipe))
        for field, value in flatten(values).items():
            if field != "type":
                kind = f"  ({describe_type(hints[field])})" if field in hints else ""
                print(f"  {field} = {value}{kind}")

    show(as_json, {"name": name, **facts, "recipe": values}, text)


def _draw(lines: list[tuple[int, str]]) -> list[str]:
    """The lineage as a tree of text, drawn from the last line up so that each branch knows what follows it."""
    from firth.recipes.table import RECIPES

    drawn: list[str] = []
    below: set[int] = set()  # depths at which a later sibling waits
    for depth, name in reversed(lines):
        branch = "".join("│  " if level in below else "   " for level in range(1, depth))
        if depth:
            branch += "├─ " if depth in below else "└─ "
        entry = RECIPES[name]
        drawn.append(f"{branch}{name} ({entry.year})  {entry.about}")
        below = {level for level in below if level < depth} | {depth}
    return drawn[::-1]
