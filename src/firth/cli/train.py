"""firth train, adapt, mix, finetune: from text or labelled examples to an artifact."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from firth.arguments import check_licence
from firth.cli import options
from firth.cli.checks import check_budget, check_examples, check_reading, check_recipe, check_task
from firth.cli.console import (
    INTERVAL,
    checking_arguments,
    format_interval,
    format_value,
    print_fields,
    print_metrics,
    show,
    verb,
)
from firth.errors import ArgumentError


@verb
def train(
    recipe: Annotated[
        str, Argument(help="The recipe; firth recipes lists all.", autocompletion=options.completion("recipes"))
    ],
    out: options.Out,
    corpus: Annotated[list[str] | None, Argument(help="Files, folders, globs, - or builtin:NAME.")] = None,
    valid: Annotated[str | None, Option("--valid", help="Held-out text to score at the end.")] = None,
    size: Annotated[str | None, Option("--size", help="tiny, mini, small or base.")] = None,
    budget: options.Budget = None,
    tokenizer: Annotated[
        Path | None, Option("--tokenizer", help="Use the tokenizer of this artifact, or a recipe such as words.")
    ] = None,
    settings: options.Settings = None,
    seed: options.Seed = 0,
    threads: options.Threads = None,
    resume: options.Resume = False,
    field: Annotated[
        list[str] | None,
        Option("--field", help="The field of the text in JSONL and Parquet; of labelled texts also label=NAME."),
    ] = None,
    encoding: options.Encoding = None,
    layout: options.Layout = "auto",
    licence: options.Licence = None,
    pair: options.Pair = None,
    entities: options.Entities = None,
    knowledge: options.Knowledge = None,
    as_json: options.Json = False,
) -> None:
    """Train a recipe on text and save it as an artifact.

    Example: firth train wordpiece news.txt -o wp --set vocab_size=16000
    """
    with checking_arguments():
        check_recipe(recipe, size, settings or [])
        check_budget(budget)
        if not corpus and pair is None:
            raise ArgumentError("nothing to train on was given: name a corpus.")
        check_reading(layout, encoding, [*(corpus or []), valid])
        check_licence(licence)

    from firth.fit.train import train as run
    from firth.memory import return_freed_memory

    return_freed_memory()
    run(
        recipe,
        *(corpus or []),
        out=out,
        valid=valid,
        size=size,
        budget=budget,
        tokenizer=tokenizer,
        settings=settings or [],
        seed=seed,
        threads=threads,
        resume=resume,
        field=",".join(field or ["text"]),
        encoding=encoding,
        layout=layout,
        licence=licence,
        pair=pair,
        entities=entities,
        knowledge=knowledge,
        reload=False,
    )
    _print_result(as_json, out)


@verb
def adapt(
    model: Annotated[Path, Argument(help="The folder of a trained model or tokenizer.")],
    out: options.Out,
    corpus: Annotated[list[str] | None, Argument(help="Files, folders, globs, - or builtin:NAME.")] = None,
    add: Annotated[list[str] | None, Option("--add", help="Text or n-gram model whose counts to add.")] = None,
    remove: Annotated[list[str] | None, Option("--remove", help="The same, to subtract.")] = None,
    valid: Annotated[str | None, Option("--valid", help="Held-out text to tune parameters.")] = None,
    settings: options.Settings = None,
    budget: options.Budget = None,
    threads: options.Threads = None,
    resume: options.Resume = False,
    field: options.Field = "text",
    encoding: options.Encoding = None,
    layout: options.Layout = "auto",
    licence: options.Licence = None,
    pair: options.Pair = None,
    expand: Annotated[Path | None, Option("--expand", help="Word vectors whose words a network gets.")] = None,
    entities: options.Entities = None,
    knowledge: options.Knowledge = None,
    as_json: options.Json = False,
) -> None:
    """Continue training on domain text: extend a vocabulary, add n-gram counts, train vectors and networks further.

    Example: firth adapt kn --add june.txt --remove may.txt -o kn-june

    Example: firth adapt quick --expand glove -o quick-large
    """
    with checking_arguments():
        if not (corpus or add or remove or pair or expand):
            raise ArgumentError("nothing to adapt to was given: name a corpus, or --add, --remove or --expand.")
        check_budget(budget)
        check_reading(layout, encoding, [*(corpus or []), valid])
        check_licence(licence)

    from firth.fit.adapt import adapt as run

    run(
        model,
        *(corpus or []),
        out=out,
        add=add or [],
        remove=remove or [],
        valid=valid,
        settings=settings or [],
        budget=budget,
        threads=threads,
        resume=resume,
        field=field,
        encoding=encoding,
        layout=layout,
        licence=licence,
        pair=pair,
        expand=expand,
        entities=entities,
        knowledge=knowledge,
    )
    _print_result(as_json, out)


def _print_result(as_json: bool, out: Path) -> None:
    from firth.artifact.folder import artifact_info
    from firth.cli.summaries import format_bytes, summarise_training

    info = artifact_info(out)

    def text() -> None:
        seconds = info["budget"]["spent"]["seconds"]
        print(f"{info['name']} -> {out}  ({format_bytes(info['bytes'])}, {seconds:.1f} s)")
        print_fields(summarise_training(info))

    show(as_json, {"out": str(out), **info}, text)


@verb
def mix(
    models: Annotated[list[Path], Argument(help="The folders of language models with the same tokens.")],
    valid: Annotated[str, Option("--valid", help="Held-out text that determines the weights.")],
    out: options.Out,
    field: options.Field = "text",
    encoding: options.Encoding = None,
    as_json: options.Json = False,
) -> None:
    """Interpolate language models of any family linearly, with the weights that fit held-out text best.

    Example: firth mix kn5-cache lstm --valid valid.txt -o both
    """
    with checking_arguments():
        check_reading("auto", encoding, [valid])
        if len(models) < 2:
            raise ArgumentError("a mixture has two models or more: name them one after another.")

    from firth.artifact.folder import artifact_info
    from firth.fit.mixing import mix as run
    from firth.recipes.values import flatten

    run(models, valid, out, field=field, encoding=encoding)
    facts = artifact_info(out)
    show(as_json, facts, lambda: print_fields(flatten(facts["metrics"])))


@verb
def finetune(
    model: options.Model,
    task: Annotated[
        str,
        Argument(
            help="classify, pair, tag, span, choice, generate, typing, relation, or many at once.",
            autocompletion=options.completion("tasks"),
        ),
    ],
    out: options.Out,
    train: Annotated[str | None, Option("--train", help="Labelled training examples.")] = None,
    dev: Annotated[str | None, Option("--dev", help="Labelled examples that select the checkpoint.")] = None,
    test: Annotated[str | None, Option("--test", help="Labelled examples for the final evaluation.")] = None,
    tasks: Annotated[Path | None, Option("--tasks", help="many: the TOML file that lists the tasks.")] = None,
    strategy: Annotated[
        str | None, Option("--strategy", help="full, frozen, features, discriminative, gradual or ulmfit.")
    ] = None,
    settings: options.Settings = None,
    field: options.Columns = None,
    random: Annotated[bool, Option("--random", help="Start from random weights, as a baseline.")] = False,
    domain: Annotated[str | None, Option("--domain", help="Domain text to pre-train on first.")] = None,
    task_text: Annotated[bool, Option("--task-text", help="Also pre-train on the text of the examples.")] = False,
    budget: Annotated[str | None, Option("--budget", help="Of each pre-training stage, or of fine-tuning.")] = None,
    decoder: Annotated[Path | None, Option("--decoder", help="generate: a decoder for the encoder MODEL.")] = None,
    knowledge: Annotated[
        Path | None, Option("--knowledge", help="classify, pair, tag: a graph of facts to insert into texts, .spo.")
    ] = None,
    shuffle_graph: Annotated[bool, Option("--shuffle-graph", help="Permute the objects of its facts first.")] = False,
    search: Annotated[bool, Option("--search", help="Search 18 rates, batch sizes and epochs.")] = False,
    seeds: Annotated[int, Option("--seeds", min=1, help="Number of runs with other seeds; keeps the best.")] = 1,
    seed: options.Seed = 0,
    threads: options.Threads = None,
    resume: options.Resume = False,
    skip_bad: options.SkipBad = False,
    as_json: options.Json = False,
) -> None:
    """Fine-tune a model for a task: text classification, pairs, tagging, reading comprehension, choice, generation.

    Example: firth finetune bert classify --train reviews.train.tsv --dev reviews.dev.tsv -o sentiment

    Example: firth finetune bert many --tasks tasks.toml -o several

    Example: firth finetune bert tag --train ner.train.txt --dev ner.dev.txt --knowledge medical.spo -o kbert
    """
    with checking_arguments():
        check_task(task, strategy, field or [])
        single = {"--test": test, "--field": field, "--decoder": decoder, "--knowledge": knowledge}
        check_examples(task, tasks, {"--train": train, "--dev": dev, **single})
        check_budget(budget)
        check_reading("auto", None, [domain])

    from firth.artifact.folder import artifact_info
    from firth.fit.finetune import finetune as run_one
    from firth.fit.search import finetune_all

    several: dict[str, Any] = {"search": search, "seeds": seeds} if search or seeds > 1 else {}
    run: Callable[..., Any] = finetune_all if several else run_one
    examples = {"train": train, "dev": dev, "test": test, "tasks": tasks, "columns": field or [], "skip_bad": skip_bad}
    stages = {"domain": domain, "task_text": task_text, "budget": budget, "decoder": decoder, "random": random}
    stages |= {"knowledge": knowledge, "shuffle_graph": shuffle_graph}
    running = {"seed": seed, "threads": threads, "resume": resume, **several}
    run(model, task, out=out, strategy=strategy, settings=settings or [], **examples, **stages, **running)
    facts = artifact_info(out)
    show(as_json, facts, lambda: _print_finetuned(facts))


def _print_finetuned(facts: dict[str, Any]) -> None:
    metrics = facts["metrics"]
    for row in metrics.get("runs", ()):
        spread = format_interval({"mean_interval": row.get("interval")}, "mean")
        print(f"{row['metric']} {format_value(row['mean'])}{spread}  {' '.join(row['settings'])}".rstrip())
    print_fields({name: metrics[name] for name in ("examples", "steps", "trainable_parameters")})
    if "knowledge" in metrics:
        names = ("triples", "names", "facts", "examples_with_facts", "dropped_facts")
        found = (f"{format_value(metrics['knowledge'][name])} {name.replace('_', ' ')}" for name in names)
        print(f"knowledge: {', '.join(found)}")
    for stage in metrics["stages"]:
        before, after = map(format_value, (stage["dev_loss_before"], stage["dev_loss"]))
        effect = "" if stage["dev_loss"] is None else f", loss on the text of the dev examples from {before} to {after}"
        print(f"stage {stage['stage']}: {format_value(round(stage['budget']['spent']['seconds']))} s{effect}")
    for part in ("dev", "test"):
        print_metrics(metrics.get(part, {}), f"{part} ")
    for name, one in metrics.get("tasks", {}).items():
        print(f"{name}: {one['task']}, {format_value(one['examples'])} examples")
        for part in ("dev", "test"):
            print_metrics(one.get(part, {}), f"{name} {part} ")
    if "mean" in metrics:
        print(f"mean of the main metrics on dev: {format_value(metrics['mean'])}")
    print(INTERVAL)
