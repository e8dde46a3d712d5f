"""firth finetune: a model learns a task from labelled examples."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from firth.cli.console import JsonFlag, ThreadsOption, format_value, print_fields, print_metrics, show, verb
from firth.cli.use import ModelArgument


@verb
def finetune(
    model: ModelArgument,
    task: Annotated[str, typer.Argument(help="classify, pair, tag, span, choice or generate.")],
    train: Annotated[str, typer.Option("--train", help="Labelled examples to learn from.")],
    dev: Annotated[str, typer.Option("--dev", help="Labelled examples that decide which state is kept.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The new folder to write.")],
    test: Annotated[str | None, typer.Option("--test", help="Labelled examples to measure the result on.")] = None,
    strategy: Annotated[
        str | None, typer.Option("--strategy", help="full, frozen, features, discriminative or gradual.")
    ] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="Change a field: key.sub=value.")] = None,
    field: Annotated[
        list[str] | None, typer.Option("--field", help="Where a part of the examples stands: ROLE=NAME, as tag=xpos.")
    ] = None,
    random: Annotated[
        bool, typer.Option("--random", help="Begin with new parameters: what is pre-training worth?")
    ] = False,
    domain: Annotated[
        str | None, typer.Option("--domain", help="Text of the domain, to go on pre-training with at first.")
    ] = None,
    task_text: Annotated[
        bool, typer.Option("--task-text", help="Go on pre-training with the text of the examples, too.")
    ] = False,
    budget: Annotated[
        str | None, typer.Option("--budget", help="Of each such stage: 20s, 10min, 300ktok; else about ten minutes.")
    ] = None,
    decoder: Annotated[
        Path | None, typer.Option("--decoder", help="generate: the model that writes, if MODEL is only to read.")
    ] = None,
    search: Annotated[
        bool, typer.Option("--search", help="Try 18 rates, batches and passes, and keep the best on the dev examples.")
    ] = False,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Run with so many seeds; the best run is kept.")] = 1,
    seed: Annotated[int, typer.Option("--seed", help="Decides all that is random.")] = 0,
    threads: ThreadsOption = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where an earlier run stopped.")] = False,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave bad examples out and count them.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Fine-tune a model for a task: text classification, pairs, tagging, reading comprehension, choice, generation.

    Example: firth finetune bert classify --train reviews.train.tsv --dev reviews.dev.tsv -o sentiment
    """
    from firth.artifact.folder import artifact_info
    from firth.fit.finetune import finetune as run_one
    from firth.fit.search import finetune_all

    many: dict[str, Any] = {"search": search, "seeds": seeds} if search or seeds > 1 else {}
    run: Callable[..., Any] = finetune_all if many else run_one
    run(
        model,
        task,
        train=train,
        dev=dev,
        test=test,
        out=out,
        strategy=strategy,
        settings=settings or [],
        fields=field or [],
        random=random,
        seed=seed,
        threads=threads,
        resume=resume,
        skip_bad=skip_bad,
        domain=domain,
        task_text=task_text,
        budget=budget,
        decoder=decoder,
        **many,
    )
    facts = artifact_info(out)
    show(as_json, facts, lambda: _print(facts))


def _print(facts: dict[str, Any]) -> None:
    metrics = facts["metrics"]
    for row in metrics.get("runs", ()):
        spread = "  [{} to {}]".format(*map(format_value, row["interval"])) if "interval" in row else ""
        print(f"{row['metric']} {format_value(row['mean'])}{spread}  {' '.join(row['settings'])}".rstrip())
    print_fields({"examples": metrics["examples"], "steps": metrics["steps"], "parameters learnt": metrics["learnt"]})
    for stage in metrics["stages"]:
        known = stage["dev_loss"] is not None
        effect = f"{format_value(stage['dev_loss_before'])} to {format_value(stage['dev_loss'])}" if known else ""
        spent = f"{format_value(round(stage['budget']['spent']['seconds']))} s"
        print(f"stage {stage['stage']}: {spent}" + known * f", loss on the text of the dev examples from {effect}")
    for part in ("dev", "test"):
        print_metrics(metrics.get(part, {}), f"{part} ")
