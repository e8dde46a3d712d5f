"""firth recipes, diff, demo: the recipes, differences of recipes and artifacts, and a comparison of models."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, NamedTuple

from typer import Argument, Option

from firth.cli import options
from firth.cli.console import print_fields, show, verb


@verb
def recipes(
    name: Annotated[
        str | None,
        Argument(help="A recipe to describe; default: list all.", autocompletion=options.completion("recipes")),
    ] = None,
    tree: Annotated[bool, Option("--tree", help="Draw the lineage as a tree with years.")] = False,
    as_json: options.Json = False,
) -> None:
    """List the recipes that can be trained, with year, paper and ancestors.

    Example: firth recipes --tree
    """
    from firth.recipes.table import FINETUNED, RECIPES, lineage

    if name is not None:
        _describe(name, as_json)
    elif tree and not as_json:
        for line in _draw_tree(list(lineage())):
            print(line)
    else:
        rows = {known: _facts(known) for known in (*RECIPES, *FINETUNED)}
        show(as_json, {"recipes": rows}, lambda: _print_list(rows))


RecipeOrFolder = Annotated[
    str, Argument(help="A recipe, or the folder of an artifact.", autocompletion=options.completion("recipes"))
]


@verb
def diff(first: RecipeOrFolder, second: RecipeOrFolder, as_json: options.Json = False) -> None:
    """Compare two recipes or artifacts field by field; of two artifacts also text, budget, seed and metrics.

    Example: firth diff bpe byte-bpe

    Example: firth diff news-bert bert
    """
    from firth.recipes.values import differing_fields

    compared = [_find_compared(name) for name in (first, second)]
    recipe = differing_fields(compared[0].recipe, compared[1].recipe)
    are_artifacts = all(one.training for one in compared)
    training = differing_fields(compared[0].training, compared[1].training) if are_artifacts else {}

    def text() -> None:
        if not recipe:
            print(f"{first} and {second} have the same recipe.")
        print_fields({field: _format_change(*values) for field, values in recipe.items()})
        if training:
            print("\ntraining:")
            print_fields({field: _format_change(*values) for field, values in training.items()})

    def rows(found: dict[str, tuple[Any, Any]]) -> dict[str, dict[str, Any]]:
        return {field: {first: one, second: two} for field, (one, two) in found.items()}

    differences = {"differences": rows(recipe)} | ({"training": rows(training)} if are_artifacts else {})
    show(as_json, {"first": first, "second": second} | differences, text)


class _Compared(NamedTuple):
    recipe: dict[str, Any]
    training: dict[str, Any]
    """Of an artifact: how and on what it was trained."""


def _find_compared(name: str) -> _Compared:
    """The artifact or, if there is none, the recipe of a name."""
    from firth.errors import ArgumentError, RecipeError
    from firth.progress import note
    from firth.recipes.table import find_recipe
    from firth.recipes.values import recipe_to_json

    folder = Path(name)
    is_artifact = (folder / "manifest.json").is_file()
    try:
        recipe = recipe_to_json(find_recipe(name))
    except RecipeError as error:
        if not (is_artifact or folder.exists() or folder.name != name):
            raise ArgumentError(str(error)) from None
    else:
        if not is_artifact:
            return _Compared(recipe, {})
        note(f"{name} is a folder here and a recipe: the folder is compared.")
    from firth.artifact.folder import artifact_info

    facts = artifact_info(folder)
    training = {part: facts[part] for part in ("corpus", "budget", "seed", "tokenizer", "metrics", "versions", "bytes")}
    return _Compared(facts["recipe"], training)


def _format_change(one: Any, two: Any) -> str:
    from firth.cli.summaries import format_rounded

    return f"{format_rounded(one):.60}  ->  {format_rounded(two):.60}"


def _facts(name: str) -> dict[str, Any]:
    from firth.recipes.table import FINETUNED, find_entry

    entry = FINETUNED[name] if name in FINETUNED else find_entry(name)
    fields = ("family", "year", "paper", "parents", "about")
    command = {"command": FINETUNED[name].command} if name in FINETUNED else {}
    return {field: getattr(entry, field) for field in fields} | {"parents": list(entry.parents)} | command


def _print_list(rows: dict[str, dict[str, Any]]) -> None:
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

    def title() -> None:
        print(f"{name} ({facts['year']}): {facts['about']}")
        print(f"  {facts['paper']}" + (f"; after {', '.join(facts['parents'])}" if facts["parents"] else ""))
        if "command" in facts:
            print(f"Made by {facts['command']}")

    if "command" in facts:
        show(as_json, {"name": name, **facts}, title)
        return
    recipe = find_recipe(name)
    values = recipe_to_json(recipe)

    def text() -> None:
        title()
        print("Fields, set with --set field=value:")
        hints = field_types(type(recipe))
        for field, value in flatten(values).items():
            if field != "type":
                kind = f"  ({describe_type(hints[field])})" if field in hints else ""
                print(f"  {field} = {value}{kind}")

    show(as_json, {"name": name, **facts, "recipe": values}, text)


def _draw_tree(lines: list[tuple[int, str]]) -> list[str]:
    """The lineage as a text tree, drawn from the last line up so that each branch knows what follows it."""
    from firth.recipes.table import FINETUNED, RECIPES

    members = RECIPES | FINETUNED
    drawn: list[str] = []
    below: set[int] = set()  # depths with a later sibling
    for depth, name in reversed(lines):
        branch = "".join("│  " if level in below else "   " for level in range(1, depth))
        if depth:
            branch += "├─ " if depth in below else "└─ "
        entry = members[name]
        drawn.append(f"{branch}{name} ({entry.year})  {entry.about}")
        below = {level for level in below if level < depth} | {depth}
    return drawn[::-1]


@verb
def demo(
    out: Annotated[Path, Option("-o", "--out", help="The folder to write.")] = Path("firth-demo"),
    threads: options.Threads = None,
    as_json: options.Json = False,
) -> None:
    """Train and compare recipes on the built-in corpus, and write a report.

    Example: firth demo -o demo-report
    """
    from firth.progress import note
    from firth.report.demo import run_demo

    report = run_demo(out, threads, log=note)
    show(as_json, report, lambda: _print_comparison(report, out))


def _print_comparison(report: dict[str, Any], out: Path) -> None:
    print(f"\n{'model':<20} {'bits/byte':>10} {'perplexity':>12} {'vocabulary':>11} {'seconds':>8}")
    for run in sorted(report["runs"], key=lambda run: float(run["bits_per_byte"])):
        print(
            f"{run['name']:<20} {run['bits_per_byte']:>10.4f} {run['perplexity']:>12,.1f} "
            f"{run['vocabulary']:>11,} {run['budget']['spent']['seconds']:>8.1f}"
        )
    print("\nLower is better. After some seconds on a small text:\n")
    for one in report["oracle"]["learned"]:
        print(f"{one['name']:<9} {one['given']}  ->  {' | '.join(one['found'])}")
    print(f"\nFull report: {out / 'report.html'} ({report['seconds']:.0f} s)")
