"""Fine-tuning of a model for a task on labelled examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

from firth.arguments import require_list, require_path
from firth.artifact.folder import open_artifact
from firth.artifact.models import load
from firth.errors import ArgumentError, RecipeError, near_miss
from firth.fit.backbones import (
    backbone,
    causal_network,
    decoder_network,
    earlier_decoder,
    earlier_tasks,
    own_decoder,
)
from firth.fit.checkpoints import clear_finished, is_finished, require_place, training_place
from firth.fit.examples import Examples, read_all
from firth.fit.facts import graph_metrics, open_graph
from firth.fit.linear import has_no_states, require_linear, train_linear
from firth.fit.many import finetune_many
from firth.fit.resolve_task import FinetuneConfig, labels_of, with_known_labels, writes_labels
from firth.fit.run import Budget, Text
from firth.fit.stages import remove_stages, run_stages
from firth.fit.task_run import FinetuneRun, open_run, open_trainer, save_run, training_metrics
from firth.fit.trainer import NetTrainer, torch_settings
from firth.fit.ulmfit import ULMFIT, language_model_settings
from firth.recipes.values import Settings, setting_list
from firth.tasks.examples import texts_of
from firth.tasks.many import ManyModel
from firth.tasks.predictor import Predictor
from firth.tasks.recipe import MANY, TASKS, Strategy, TaskName, base_name, check_sources
from firth.tasks.task import TaskModel


def finetune(
    model: str | Path,
    task: str,
    *,
    train: Examples | None = None,
    dev: Examples | None = None,
    test: Examples | None = None,
    tasks: str | Path | Mapping[str, Any] | None = None,
    out: str | Path,
    strategy: str | None = None,
    settings: Settings = (),
    seed: int = 0,
    threads: int | None = None,
    resume: bool = False,
    random: bool = False,
    skip_bad: bool = False,
    columns: Sequence[str] = (),
    domain: Text | None = None,
    task_text: bool = False,
    budget: str | None = None,
    decoder: str | Path | None = None,
    knowledge: str | Path | None = None,
    shuffle_graph: bool = False,
) -> Predictor | ManyModel:
    """The model fine-tuned for a task on labelled examples, saved in the folder `out`.

    `train`, `dev` and `test` are files or lists of examples. The parameters that are best on `dev` are saved. Before
    that, the model is pre-trained further on the text of a `domain`, and with `task_text` on that of the training
    examples, each within `budget`; without these stages it is the budget of fine-tuning itself, instead of epochs. The
    strategy ulmfit always has such a stage, on the domain or else on the examples, with lower rates in lower layers. A
    model without hidden states or vectors, such as an n-gram model or a tokenizer, gets a linear baseline on its tokens
    instead. To generate, the model encodes and decodes by itself, or a `decoder`, another model with the same tokens,
    attends to its hidden states. The task `many` is several at once, which the file `tasks` lists. `knowledge` is a
    file of triples: the facts about names that occur in a text are inserted there, and are saved with the model;
    `shuffle_graph` permutes the objects of all triples first, to tell whether the facts help.
    """
    if decoder is not None and task in TASKS and task != "generate":
        raise RecipeError(f"{task} generates no text: leave --decoder out, or choose the task generate.")
    if task not in (*TASKS, MANY):
        raise RecipeError(f"there is no task {task!r}: {near_miss(task, (*TASKS, MANY))}")
    single = {"--test": test, "--field": columns, "--decoder": decoder, "--knowledge": knowledge}
    check_sources(task, tasks, {"--train": train, "--dev": dev, **single})
    folder, model = require_path(out, "out", "the folder to write"), require_path(model, "model", "a saved model")
    settings, columns = setting_list(settings), require_list(columns, "columns")
    graph = None if knowledge is None else open_graph(knowledge, task)
    if shuffle_graph:
        if knowledge is None:
            raise ArgumentError("--shuffle-graph permutes a knowledge graph: give one with --knowledge.")
        settings = [*settings, "knowledge.shuffled=true"]
    if is_finished(folder, resume):
        clear_finished(folder)
        remove_stages(folder)
        return cast(Predictor | ManyModel, load(folder))
    require_place(folder, resume)
    if task == MANY:
        several: dict[str, Any] = {"settings": settings, "strategy": strategy, "random": random, "domain": domain}
        several |= {"task_text": task_text, "budget": budget, "skip_bad": skip_bad, "seed": seed}
        return finetune_many(model, tasks, out=folder, threads=threads, resume=resume, **several)
    assert train is not None
    assert dev is not None
    kind = cast(TaskName, task)
    read = partial(read_all, kind, skip_bad=skip_bad, columns=columns)
    artifact = open_artifact(model)
    shared: dict[str, Any] = {"task": kind, "out": folder, "settings": settings, "columns": columns, "seed": seed}
    if has_no_states(artifact):
        options = {"--strategy": strategy, "--random": random, "--domain": domain, "--task-text": task_text}
        require_linear(artifact, task, options | {"--budget": budget, "--decoder": decoder, "--knowledge": knowledge})
    examples, dev_examples = read(train), read(dev)
    if has_no_states(artifact):
        test_examples, labels = None if test is None else read(test), labels_of(kind, examples)[0]
        if test_examples is not None:
            test_examples = with_known_labels(test_examples, labels, skip_bad=True)
        dev_examples = with_known_labels(dev_examples, labels, skip_bad)
        return train_linear(FinetuneConfig(train=examples, dev=dev_examples, test=test_examples, **shared), artifact)
    origin = load(model)
    stage_settings: list[str] = []
    if strategy == ULMFIT:
        task_text = task_text or domain is None
        texts = (text for example in examples for text in texts_of(example)) if domain is None else ()
        stage_settings = language_model_settings(origin, task, texts)
    own_budget = Budget.parse(budget) if budget and domain is None and not task_text else None
    task_examples = examples if task_text else None
    running: dict[str, Any] = {"threads": threads, "resume": resume, "settings": stage_settings}
    start, stages = run_stages(model, folder, domain, task_examples, dev_examples, budget, **running)
    digest = open_artifact(start).manifest.files["model.safetensors"].sha256
    started = origin if start == model else load(start)
    base = backbone(started)
    has_decoder = task == "generate" or writes_labels(task, origin, settings)
    decoder_model = (earlier_decoder(origin) or own_decoder(started)) if has_decoder else None
    if decoder is not None:
        decoder_model = decoder_network(backbone(load(decoder)), base)
        digest += f" {open_artifact(Path(decoder)).manifest.files['model.safetensors'].sha256}"
    elif task == "generate" and decoder_model is None:
        base = causal_network(base)
    config = FinetuneConfig(
        train=examples,
        dev=dev_examples,
        test=None if test is None else read(test),
        strategy=cast(Strategy | None, strategy),
        budget=own_budget,
        threads=threads,
        resume=resume,
        random=random,
        start=digest,
        decoder=decoder_model,
        earlier=earlier_tasks(origin),
        graph=graph,
        **shared,
    )
    with training_place(folder, resume), torch_settings(threads):
        run = open_run(config, base, skip_bad)
        trainer = open_trainer(run)
        trainer.train()
        result = _save(run, trainer, artifact.manifest.name, stages)
    remove_stages(folder)
    return result


def _save(run: FinetuneRun, trainer: NetTrainer, name: str, stages: list[dict[str, Any]]) -> TaskModel:
    """Write the model with its metrics, and load it."""
    metrics = training_metrics(run, trainer)
    metrics |= {
        "examples": len(run.config.train),
        "stages": stages,
        **run.final_metrics(),
        **graph_metrics(run.config.graph, run.batches.examples),
    }
    save_run(run, trainer, run.model, f"{base_name(name)}-{run.config.task}", metrics)
    return cast(TaskModel, load(run.config.out, verify=False))
