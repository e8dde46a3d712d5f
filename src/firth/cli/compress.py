"""firth compress: a smaller model, with a card of what it cost."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from typer import Option

from firth.cli import options
from firth.cli.checks import check_budget, require_choice
from firth.cli.console import checking_arguments, show, verb
from firth.errors import ArgumentError


@verb
def compress(
    model: options.Model,
    out: options.Out,
    method: Annotated[str, Option("--method", help="distil, prune, quantise, static or auto.")] = "auto",
    corpus: Annotated[list[str] | None, Option("--corpus", help="Text without labels; repeat for several.")] = None,
    train: Annotated[str | None, Option("--train", help="Labelled examples of a fine-tuned model.")] = None,
    dev: Annotated[str | None, Option("--dev", help="Labelled examples that select the checkpoint.")] = None,
    eval: Annotated[
        list[Path] | None,
        Option("--eval", help="What quality is measured on: labelled examples, scored pairs or text; repeat."),
    ] = None,
    at_most_loss: Annotated[
        float | None, Option("--at-most-loss", help="Write nothing if the metric loses more, such as 0.02.")
    ] = None,
    max_mb: Annotated[float | None, Option("--max-mb", help="Largest size of the result in MB.")] = None,
    max_ms: Annotated[float | None, Option("--max-ms", help="Longest time of one text in milliseconds.")] = None,
    allow_slower: Annotated[bool, Option("--allow-slower", help="Write a result that is slower.")] = False,
    settings: Annotated[list[str] | None, Option("--set", help="Set an option of the method: key=value.")] = None,
    field: options.Columns = None,
    budget: options.Budget = None,
    seed: options.Seed = 0,
    threads: options.Threads = None,
    resume: options.Resume = False,
    as_json: options.Json = False,
) -> None:
    """Make a model smaller or faster, and print size, speed, memory and quality before and after.

    Example: firth compress minilm --method static --corpus news.txt --eval stsb.dev.tsv -o small
    """
    from firth.fit.compress.methods import AUTO, METHODS

    with checking_arguments():
        require_choice("method", method, (*METHODS, AUTO))
        check_budget(budget)
        for name, value in (("--max-mb", max_mb), ("--max-ms", max_ms)):
            if value is not None and not value > 0:
                raise ArgumentError(f"{name} {value:g} must be above 0.")

    from firth.artifact.folder import artifact_info
    from firth.fit.compress.run import compress as run

    run(
        model,
        out=out,
        method=method,
        corpus=corpus,
        train=train,
        dev=dev,
        eval=eval or [],
        settings=settings or [],
        budget=budget,
        at_most_loss=at_most_loss,
        max_mb=max_mb,
        max_ms=max_ms,
        allow_slower=allow_slower,
        columns=field or [],
        seed=seed,
        threads=threads,
        resume=resume,
    )
    facts = artifact_info(out)
    card = facts["metrics"]["compression"]
    show(as_json, {"out": str(out), **card}, lambda: _print_card(facts, card))


def _print_card(facts: dict[str, Any], card: dict[str, Any]) -> None:
    from firth.fit.compress.card import card_rows

    print(f"{card['lineage'][-1]['name']} -> {card['method']} -> {facts['folder']}")
    rows = [("", "before", "after", ""), *card_rows(card)]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for name, before, after, change in rows:
        print(f"{name:<{widths[0]}}  {before:>{widths[1]}}  {after:>{widths[2]}}  {change}".rstrip())
    for line in card["notes"]:
        print(f"- {line}")
