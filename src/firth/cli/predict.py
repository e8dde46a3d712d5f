"""firth predict: the labels of texts."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from firth.cli.console import EncodingOption, FieldOption, JsonFlag, print_fields, show, to_json, verb
from firth.cli.use import ModelArgument


@verb
def predict(
    model: ModelArgument,
    file: Annotated[Path, typer.Argument(help="Texts, one on each line, or a labelled file; - for standard input.")],
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", help="Write each text's label here as JSONL; without it they are shown."),
    ] = None,
    count: Annotated[int, typer.Option("--count", min=1, help="How many of the likeliest labels to give.")] = 1,
    field: FieldOption = "text",
    encoding: EncodingOption = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave bad examples out and count them.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """The likeliest label of each text of a file, and how probable it is.

    Example: firth predict sentiment reviews.txt -o labels.jsonl
    """
    from firth.abilities import Solves
    from firth.apply.predict import predict_file
    from firth.artifact.models import load
    from firth.files import new_file
    from firth.progress import progress

    loaded = load(model)
    if isinstance(loaded, Solves):
        _solve(loaded, file, out, encoding, skip_bad, as_json)
        return
    found: Counter[str] = Counter()
    shown: list[dict[str, Any]] = []
    with ExitStack() as stack:
        rows = stack.enter_context(new_file(out)) if out else None
        advance = stack.enter_context(progress("predicting", None, "texts"))
        for number, (_, best) in enumerate(predict_file(loaded, file, count, encoding=encoding, field=field)):
            row = {"line": number, "label": best[0][0], "probability": best[0][1]}
            if count > 1:
                row["top"] = [{"label": label, "probability": chance} for label, chance in best]
            found[best[0][0]] += 1
            if rows:
                rows.write(to_json(row).encode() + b"\n")
            else:
                shown.append(row)
            advance(1)
    summary = {"texts": sum(found.values()), "labels": dict(found.most_common())}
    details = {"out": str(out)} if out else {"predictions": shown}
    show(as_json, summary | details, lambda: _print(summary, shown))


def _solve(model: Any, file: Path, out: Path | None, encoding: str | None, skip_bad: bool, as_json: bool) -> None:
    """What a fine-tuned model says of each example, as JSONL or shown."""
    from firth.apply.solve import solve_file
    from firth.files import new_file
    from firth.progress import progress

    shown: list[dict[str, Any]] = []
    count = 0
    with ExitStack() as stack:
        rows = stack.enter_context(new_file(out)) if out else None
        advance = stack.enter_context(progress("predicting", None, "examples"))
        for count, (_, answer) in enumerate(solve_file(model, file, encoding=encoding, skip_bad=skip_bad), 1):
            row = {"line": count - 1} | answer
            if rows:
                rows.write(to_json(row).encode() + b"\n")
            else:
                shown.append(row)
            advance(1)
    summary = {"task": model.task, "examples": count, "truncated": model.frame.cut}
    details = {"out": str(out)} if out else {"predictions": shown}
    show(as_json, summary | details, lambda: _print_answers(summary, shown))


def _print_answers(summary: dict[str, Any], shown: list[dict[str, Any]]) -> None:
    for row in shown:
        print(to_json({name: value for name, value in row.items() if name != "probabilities"}))
    if not shown:
        print_fields(summary)


def _print(summary: dict[str, Any], shown: list[dict[str, Any]]) -> None:
    for row in shown:
        for best in row.get("top", [row]):
            print(f"{best['probability']:.4f}  {best['label']}", end="\t" if "top" in row else "\n")
        if "top" in row:
            print()
    if not shown:
        print_fields({"texts": summary["texts"]} | summary["labels"])
