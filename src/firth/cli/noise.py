"""firth noise: what the objectives of a recipe do to a text."""

from __future__ import annotations

from typing import Annotated, Any

from typer import Argument, Option

from firth.cli import options
from firth.cli.checks import check_reading, check_recipe
from firth.cli.console import checking_arguments, format_value, show, verb


@verb
def noise(
    recipe: Annotated[
        str, Argument(help="A network; firth recipes lists all.", autocompletion=options.completion("recipes"))
    ],
    corpus: options.Corpus,
    tokens: Annotated[int, Option("--tokens", min=1, help="Tokens of text to measure.")] = 200_000,
    settings: options.Settings = None,
    seed: options.Seed = 0,
    threads: options.Threads = None,
    field: options.Field = "text",
    encoding: options.Encoding = None,
    layout: options.Layout = "auto",
    entities: options.Entities = None,
    knowledge: options.Knowledge = None,
    as_json: options.Json = False,
) -> None:
    """Measure what the objectives of a recipe do to a text, beside what their papers state; nothing is trained.

    Example: firth noise spanbert news.txt
    """
    with checking_arguments():
        check_recipe(recipe, None, settings or [])
        check_reading(layout, encoding, corpus)

    from firth.fit.noise import noise as measure

    report = measure(
        recipe,
        *corpus,
        tokens=tokens,
        settings=settings or (),
        seed=seed,
        threads=threads,
        field=field,
        encoding=encoding,
        layout=layout,
        entities=entities,
        knowledge=knowledge,
    )
    show(as_json, report, lambda: _print(report))


def _print(report: dict[str, Any]) -> None:
    from firth.fit.noise import noise_rows

    print(f"{report['recipe']}: {report['tokens']:,} tokens of text in sequences of at most {report['length']}")
    print(f"{'objective':<14}{'':<14}{'measured':>10}{'stated':>10}")
    for objective, what, measured, stated in noise_rows(report["objectives"]):
        print(f"{objective:<14}{what:<14}{_format(measured):>10}{_format(stated):>10}")


def _format(value: float | None) -> str:
    return "" if value is None else format_value(float(f"{value:.4f}"))
