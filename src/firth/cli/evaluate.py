"""firth predict, evaluate: predictions for the examples of a file, and evaluation on test files."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from firth.abilities import POOLINGS
from firth.cli import options
from firth.cli.checks import check_encoding, parse_layer, require_choice
from firth.cli.console import (
    INTERVAL,
    checking_arguments,
    format_interval,
    format_value,
    print_fields,
    print_metrics,
    show,
    to_json,
    verb,
)


@verb
def evaluate(
    model: options.Model,
    suite: Annotated[
        str,
        Argument(
            help="words, analogies, context, senses, probe, sentences, links, classify, task, translation, retrieval, "
            "pairs.",
            autocompletion=options.completion("suites"),
        ),
    ],
    files: Annotated[list[Path], Argument(help="Word pairs, analogies, labelled or parallel texts, minimal pairs.")],
    method: options.Method = "add",
    restrict: Annotated[int, Option("--restrict", min=1, help="Analogies: only the N most frequent words.")] = 300_000,
    out: Annotated[Path | None, Option("-o", "--out", help="Task: error analysis, such as report.html.")] = None,
    force: options.Force = False,
    task: options.Task = None,
    field: options.Columns = None,
    skip_bad: options.SkipBad = False,
    pair: options.Pair = None,
    beams: Annotated[int | None, Option("--beams", min=1, help="Translation: of beam search; default: 4.")] = None,
    layer: options.Layer = None,
    pooling: options.Pooling = None,
    floor: Annotated[list[Path] | None, Option("--floor", help="Pairs: a further model to compare with.")] = None,
    shots: options.Shots = None,
    train: options.ShotsFile = None,
    template: options.Template = None,
    answer: options.Answer = None,
    as_json: options.Json = False,
) -> None:
    """Evaluate vectors on word pairs, analogies, contexts, a linear probe or translations; a language model; or a task.

    Example: firth evaluate sg words ws353.tsv --json

    Example: firth evaluate sentiment task test.tsv -o report.html

    Example: firth evaluate gpt pairs blimp.jsonl --floor kn5 --floor unigram

    Example: firth evaluate gpt task test.tsv --shots 4 --train train.tsv --template "{text_a} : {label}"
    """
    from firth import api

    with checking_arguments():
        chosen = {"layer": parse_layer(layer), "pooling": pooling}
        require_choice("pooling", pooling, POOLINGS)
    choices: dict[str, Any] = {"method": method, "restrict": restrict, "columns": field or [], "skip_bad": skip_bad}
    choices |= {"pair": pair, "beams": beams, "floors": floor or [], **chosen}
    choices |= {"shots": shots, "train": train, "template": template, "answers": answer or []}
    report = api.evaluate(model, suite, *files, **choices, out=out, force=force, task=task)
    is_task = suite in ("task", "translation")
    show(as_json, {"suite": suite} | report, lambda: _print_task(report) if is_task else _print(report))


def _print_task(report: dict[str, Any]) -> None:
    print_fields({"task": report["task"], "examples": report["examples"], "baseline": report["baseline"]["kind"]})
    print_metrics(report)
    print(INTERVAL)
    printed = {"task", "examples", "baseline", "main"}
    printed |= {one for name in report if name.endswith("_interval") for one in (name, name.removesuffix("_interval"))}
    rows = {name: value for name, value in report.items() if name not in printed and value is not None}
    ways = {f"accuracy by {way}": value for way, value in rows.pop("accuracies", {}).items()}
    print_fields({name: _format_list(value) for name, value in (ways | rows).items()})


def _print(report: dict[str, Any]) -> None:
    for part in report.get("files", ()):
        _print(part)
        print()
    for name, found in report.get("sets", {}).items():
        _print_set(name, found)
    hidden = {"files", "sections", "missing", "labels", "floors", "by_paradigm", "sets"}
    hidden |= {name for name in report if name.endswith("_interval")}
    rows = {name: value for name, value in report.items() if name not in hidden and value is not None}
    print_fields({name: f"{_format_list(value)}{format_interval(report, name)}" for name, value in rows.items()})
    if "interval" not in report and any(format_interval(report, name) for name in rows):
        print(INTERVAL)
    print_fields({f"floor: {name}": value for name, value in report.get("floors", {}).items()})
    if report.get("missing"):
        print(f"missing words: {', '.join(report['missing'][:20])}{', ...' * (len(report['missing']) > 20)}")
    for label, row in report.get("labels", {}).items():
        scores = "  ".join(f"{name} {row[name]:.3f}" for name in ("precision", "recall", "f1"))
        print(f"label {label}: {scores}  of {row['examples']:,} texts")
    sections = report.get("sections", {})
    print_fields({name: _format_accuracy(section) for name, section in sections.items()} if len(sections) > 1 else {})


def _print_set(name: str, found: dict[str, Any]) -> None:
    """Print the metrics of a dataset of sentences in a line each."""
    for metric, count in (("accuracy", "examples"), ("spearman", "pairs")):
        if metric in found:
            beside = f"majority {found['majority']:.3f}" if metric == "accuracy" else ""
            remedies = found.get("remedies", {}) if metric == "spearman" else {}
            beside += "  ".join(f"{one.replace('_', ' ')} {value:.3f}" for one, value in remedies.items())
            value = f"{found[metric]:.3f}{format_interval(found, metric)}"
            print(f"{name:<14}{metric:<10}{value}  of {found[count]:,} {count}  {beside}".rstrip())


def _format_list(value: Any) -> str:
    return " to ".join(map(format_value, value)) if isinstance(value, list) else format_value(value)


def _format_accuracy(section: dict[str, Any]) -> str:
    accuracy = "    –" if section["accuracy"] is None else f"{section['accuracy']:5.1%}"
    if "pairs" in section:
        return f"{accuracy}{format_interval(section, 'accuracy')}  of {section['pairs']:,} pairs"
    return f"{accuracy}  of {section['covered']:,} (of {section['questions']:,} questions)"


@verb
def predict(
    model: options.Model,
    file: Annotated[Path, Argument(help="Texts, one per line, or a labelled file; - for standard input.")],
    out: Annotated[Path | None, Option("-o", "--out", help="JSONL file to write; default: print.")] = None,
    force: options.Force = False,
    count: Annotated[int, Option("--count", min=1, help="Number of the most probable labels of a text.")] = 1,
    task: options.Task = None,
    field: options.Columns = None,
    encoding: options.Encoding = None,
    skip_bad: options.SkipBad = False,
    as_json: options.Json = False,
) -> None:
    """Predict the labels of texts, or the answers of a fine-tuned model.

    Example: firth predict sentiment reviews.txt -o labels.jsonl

    Example: firth predict several reviews.txt --task sst2 -o labels.jsonl
    """
    from firth.files import new_file, require_new_file
    from firth.tasks.readers.columns import parse_columns

    columns = [one if "=" in one else f"text={one}" for one in field or []]
    with checking_arguments():
        check_encoding(encoding)
        parse_columns(columns)
    if out is not None:
        require_new_file(out, force, [file, model])

    from firth.abilities import TaskPredictor, for_task
    from firth.apply.predict import ClassifierAdapter, predict_file, require_predicts
    from firth.artifact.models import load
    from firth.progress import progress

    loaded: Any = for_task(load(model), task)
    is_task = isinstance(loaded, TaskPredictor)
    predictor = loaded if is_task else ClassifierAdapter(require_predicts(loaded), count)
    arguments: dict[str, Any] = {
        "encoding": encoding,
        "columns": columns,
        **({"skip_bad": skip_bad} if is_task else {}),
    }
    labels: Counter[str] = Counter()
    printed: list[dict[str, Any]] = []
    examples = truncated = dropped = 0
    with ExitStack() as stack:
        rows = stack.enter_context(new_file(out)) if out else None
        advance = stack.enter_context(progress("predicting", None, "examples" if is_task else "texts"))
        for examples, (_, answer) in enumerate(predict_file(predictor, file, **arguments), 1):
            row = {"line": examples - 1} | (answer if is_task else _label_row(answer, count))
            truncated += "truncated" in answer
            dropped += answer.get("dropped_facts", 0)
            if not is_task:
                labels[answer["label"]] += 1
            if rows:
                rows.write(to_json(row).encode() + b"\n")
            else:
                printed.append(row)
            advance(1)
    if is_task:
        summary = {"task": loaded.task, "examples": examples, "truncated": truncated}
        summary |= {"dropped_facts": dropped} if dropped else {}
    else:
        summary = {"texts": examples, "labels": dict(labels.most_common())}
    details = {"out": str(out)} if out else {"predictions": printed}
    show(
        as_json,
        summary | details,
        lambda: _print_task_answers(summary, printed) if is_task else _print_labels(summary, printed),
    )


def _label_row(answer: dict[str, Any], count: int) -> dict[str, Any]:
    row = {"label": answer["label"], "probability": answer["probability"]}
    if count > 1:
        row["top"] = [{"label": label, "probability": p} for label, p in answer["probabilities"].items()]
    return row


def _print_task_answers(summary: dict[str, Any], printed: list[dict[str, Any]]) -> None:
    for row in printed:
        print(to_json({name: value for name, value in row.items() if name != "probabilities"}))
    if not printed:
        print_fields(summary)


def _print_labels(summary: dict[str, Any], printed: list[dict[str, Any]]) -> None:
    for row in printed:
        for best in row.get("top", [row]):
            print(f"{best['probability']:.4f}  {best['label']}", end="\t" if "top" in row else "\n")
        if "top" in row:
            print()
    if not printed:
        print_fields({"texts": summary["texts"]} | summary["labels"])
