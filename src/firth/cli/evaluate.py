"""firth evaluate: how good a model is, by files that people have made."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from firth.cli.console import JsonFlag, format_value, print_fields, print_metrics, show, verb
from firth.cli.use import ModelArgument

SUITES = ("words", "analogies", "context", "probe", "classify", "task")


@verb
def evaluate(
    model: ModelArgument,
    suite: Annotated[str, typer.Argument(help="words, analogies, context, probe, classify or task.")],
    files: Annotated[list[Path], typer.Argument(help="Word pairs, analogies, words in context or labelled texts.")],
    method: Annotated[str, typer.Option("--method", help="Analogies: add (3CosAdd) or mul (3CosMul).")] = "add",
    restrict: Annotated[
        int, typer.Option("--restrict", min=1, help="Analogies: among so many of the most frequent words.")
    ] = 300_000,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", help="Task: write a page here on where the model errs, such as report.html."),
    ] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Task: leave bad examples out and count them.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Measure vectors: word pairs, analogies, words in context, a linear probe on labelled texts; or a classifier.

    Example: firth evaluate sg words ws353.tsv --json

    Where a fine-tuned model errs: firth evaluate sentiment task test.tsv -o report.html
    """
    from firth.artifact.models import load
    from firth.errors import RecipeError, near_miss
    from firth.report import classify, suites

    if suite not in SUITES:
        raise RecipeError(f"there is no suite {suite!r}: {near_miss(suite, SUITES)}")
    if suite != "task" and (out or skip_bad):
        option = "-o" if out else "--skip-bad"
        raise RecipeError(f"{option} belongs to the suite task, not to {suite}: leave it out.")
    loaded: Any = load(model)
    match suite:
        case "words":
            report = suites.evaluate_words(loaded, files)
        case "context":
            report = suites.evaluate_contexts(loaded, files)
        case "probe":
            report = suites.evaluate_probe(loaded, files)
        case "task":
            report = _task(loaded, model, files, out, skip_bad)
        case "classify":
            report = classify.evaluate_labels(loaded, files)
        case _:
            report = suites.evaluate_analogies(loaded, files, method, restrict)
    show(as_json, {"suite": suite} | report, lambda: _print_task(report) if suite == "task" else _print(report))


def _task(loaded: Any, model: Path, files: list[Path], out: Path | None, skip_bad: bool) -> dict[str, Any]:
    from firth.apply.solve import evaluate_task
    from firth.errors import RecipeError
    from firth.report.task_report import write_task_report

    if len(files) != 1:
        raise RecipeError("a task is measured on one file of labelled examples: name one.")
    if out is None:
        return evaluate_task(loaded, files[0], skip_bad=skip_bad)
    return write_task_report(loaded, files[0], out, name=model.resolve().name, skip_bad=skip_bad)


def _print_task(report: dict[str, Any]) -> None:
    """The metrics with their intervals, then what else was found."""
    print_fields({"task": report["task"], "examples": report["examples"], "baseline": report["baseline"]["kind"]})
    print_metrics(report)
    seen = {"task", "examples", "baseline", "main"}
    seen |= {one for name in report if name.endswith("_interval") for one in (name, name.removesuffix("_interval"))}
    print_fields({name: _shown(value) for name, value in report.items() if name not in seen and value is not None})


def _print(report: dict[str, Any]) -> None:
    for part in report.get("files", ()):
        _print(part)
        print()
    rows = {name: value for name, value in report.items() if name not in ("files", "sections", "missing", "labels")}
    print_fields({name: _shown(value) for name, value in rows.items() if value is not None})
    if report.get("missing"):
        print(f"missing words: {', '.join(report['missing'][:20])}{', ...' * (len(report['missing']) > 20)}")
    for label, row in report.get("labels", {}).items():
        shares = "  ".join(f"{name} {row[name]:.3f}" for name in ("precision", "recall", "f1"))
        print(f"label {label}: {shares}  of {row['examples']:,} texts")
    sections = report.get("sections", {})
    print_fields({name: _share(section) for name, section in sections.items()} if len(sections) > 1 else {})


def _shown(value: Any) -> Any:
    return " to ".join(map(format_value, value)) if isinstance(value, list) else value


def _share(section: dict[str, Any]) -> str:
    accuracy = "    –" if section["accuracy"] is None else f"{section['accuracy']:5.1%}"
    return f"{accuracy}  of {section['covered']:,} (of {section['questions']:,} questions)"
