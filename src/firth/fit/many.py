"""Fine-tuning of one network for several tasks in one run (MT-DNN, Liu et al. 2019)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from firth.artifact.folder import open_artifact
from firth.artifact.models import load
from firth.errors import AbilityError
from firth.fit.backbones import backbone, earlier_tasks
from firth.fit.checkpoints import training_place
from firth.fit.examples import read_all
from firth.fit.linear import has_no_states
from firth.fit.resolve import is_unset
from firth.fit.resolve_task import FinetuneConfig, default_epochs
from firth.fit.run import Budget, Text
from firth.fit.stages import remove_stages, run_stages
from firth.fit.task_run import FinetuneRun, open_run, open_trainer, save_run, training_metrics
from firth.fit.task_training import TaskMixture
from firth.fit.trainer import NetTrainer, torch_settings
from firth.fit.ulmfit import require_single
from firth.nets.model import NetModel
from firth.objectives.clm import CausalLM
from firth.tasks.examples import Example
from firth.tasks.many import ManyModel
from firth.tasks.recipe import MANY, ManyRecipe, Mixing, NamedTask, base_name
from firth.tasks.task import Task
from firth.tasks.task_file import TaskEntry, TaskFile, read_tasks

_EPOCHS = 5  # at least (Liu et al. 2019)


@dataclass
class ManyRun:
    """Several tasks, each with its examples, over one network."""

    runs: Mapping[str, FinetuneRun]
    weights: Mapping[str, float]
    mixing: Mixing
    batches: TaskMixture

    @property
    def config(self) -> FinetuneConfig:
        """The options of the run; what is used of them is the same for all tasks."""
        return next(iter(self.runs.values())).config

    @property
    def base(self) -> NetModel:
        """The network that all tasks share."""
        return next(iter(self.runs.values())).base

    @property
    def recipe(self) -> ManyRecipe:
        """The recipe with those of all tasks."""
        first = next(iter(self.runs.values())).recipe
        return ManyRecipe(
            network=first.network,
            tasks=tuple(
                NamedTask(name=name, recipe=run.recipe, weight=self.weights[name]) for name, run in self.runs.items()
            ),
            mixing=self.mixing,
            strategy=first.strategy,
            layer_decay=first.layer_decay,
            learning=first.learning,
        )

    @property
    def tasks(self) -> dict[str, Task]:
        """The heads by names that are not those of other parts of a module."""
        return {f"task-{name}": run.task for name, run in self.runs.items()}

    @property
    def lm_weight(self) -> float:
        """The weight of the language model's loss, the same for all tasks that have it."""
        return max(run.lm_weight for run in self.runs.values())

    def evaluate(self) -> dict[str, Any]:
        """Metrics of each task on its dev examples; one minus the mean of the main ones is minimised."""
        found = {name: run.evaluate() for name, run in self.runs.items()}
        losses = [one["valid_loss"] for one in found.values()]
        return {"valid_loss": sum(losses) / len(losses), "valid_tasks": found}

    def identity(self) -> dict[str, Any]:
        """What a resumed run must have in common."""
        tasks = {name: run.identity() for name, run in self.runs.items()}
        return {"tasks": tasks, "weights": dict(self.weights), "mixing": self.mixing}

    def final_metrics(self) -> dict[str, Any]:
        """The mean of the main metrics, and the metrics of each task with their intervals."""
        tasks = {}
        for (name, run), share in zip(self.runs.items(), self.batches.shares, strict=True):
            sizes = {"examples": len(run.config.train), "cut": run.batches.split, "batches": share}
            tasks[name] = {"task": run.recipe.task, **sizes, **run.final_metrics()}
        mains = [one["dev"][one["dev"]["main"]] for one in tasks.values()]
        return {"mean": sum(mains) / len(mains), "tasks": tasks}


def finetune_many(
    model: Path,
    tasks: Any,
    *,
    out: Path,
    settings: Sequence[str],
    strategy: Any,
    seed: int,
    threads: int | None,
    resume: bool,
    random: bool,
    skip_bad: bool,
    domain: Text | None,
    task_text: bool,
    budget: str | None,
) -> ManyModel:
    """The model fine-tuned for the tasks of a file, saved in the folder `out`; see `finetune`."""
    require_single(strategy)
    file, artifact = read_tasks(tasks), open_artifact(model)
    if has_no_states(artifact):
        raise AbilityError(f"{model} has no network that tasks could share: fine-tune one, such as bert.")
    examples = {one.name: _read(one, skip_bad) for one in file.tasks}
    train, dev = ([example for parts in examples.values() for example in parts[part]] for part in ("train", "dev"))
    own_budget = Budget.parse(budget) if budget and domain is None and not task_text else None
    start, stages = run_stages(
        model, out, domain, train if task_text else None, dev, budget, threads=threads, resume=resume
    )
    origin = load(model)
    shared: dict[str, Any] = {
        "out": out,
        "strategy": strategy,
        "budget": own_budget,
        "seed": seed,
        "threads": threads,
        "resume": resume,
        "random": random,
        "start": open_artifact(start).manifest.files["model.safetensors"].sha256,
        "all_examples": len(train),
    }
    if is_unset(settings, "learning.epochs") and default_epochs(len(train)) < _EPOCHS:
        settings = [*settings, f"learning.epochs={_EPOCHS}"]
    with training_place(out, resume), torch_settings(threads):
        base = backbone(origin if start == model else load(start))
        run = _open(file, examples, base, origin, settings, skip_bad, shared)
        trainer = open_trainer(run)
        trainer.train()
        result = _save(run, trainer, artifact.manifest.name, len(train), stages)
    remove_stages(out)
    return result


def _read(entry: TaskEntry, skip_bad: bool) -> dict[str, list[Example]]:
    """The examples of a task by their parts."""
    parts = {"train": entry.train, "dev": entry.dev, "test": entry.test}
    return {
        part: read_all(entry.task, given, skip_bad=skip_bad, columns=entry.columns)
        for part, given in parts.items()
        if given is not None
    }


def _open(
    file: TaskFile,
    examples: Mapping[str, Mapping[str, list[Example]]],
    base: NetModel,
    origin: Any,
    settings: Sequence[str],
    skip_bad: bool,
    shared: dict[str, Any],
) -> ManyRun:
    """The tasks with their heads over the same network."""
    runs: dict[str, FinetuneRun] = {}
    for entry in file.tasks:
        config = FinetuneConfig(
            task=entry.task,
            test=examples[entry.name].get("test"),
            train=examples[entry.name]["train"],
            dev=examples[entry.name]["dev"],
            columns=entry.columns,
            settings=[*settings, *entry.settings],
            earlier=earlier_tasks(origin, entry.name),
            **shared,
        )
        run = runs[entry.name] = open_run(config, base, skip_bad)
        base = run.base  # with dropout, say, and shared by the next task
        run.task.name, run.task.weight = entry.name, entry.weight
    names = [{name, CausalLM.name} if run.lm_weight else {name} for name, run in runs.items()]
    seed = int(shared["seed"])
    batches = TaskMixture([run.batches for run in runs.values()], [frozenset(one) for one in names], file.mixing, seed)
    return ManyRun(runs, {one.name: one.weight for one in file.tasks}, file.mixing, batches)


def _save(run: ManyRun, trainer: NetTrainer, name: str, examples: int, stages: list[dict[str, Any]]) -> ManyModel:
    """Write the model with the metrics of each task, and load it."""
    metrics = training_metrics(run, trainer) | {"examples": examples, "stages": stages, **run.final_metrics()}
    model = ManyModel(run.recipe, run.base, {one: each.model for one, each in run.runs.items()})
    save_run(run, trainer, model, f"{base_name(name)}-{MANY}", metrics)
    return cast(ManyModel, load(run.config.out, verify=False))
