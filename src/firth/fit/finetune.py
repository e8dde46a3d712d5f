"""Fine-tuning: a model, a task and labelled examples become a model that does the task."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch

from firth.artifact.folder import Artifact, open_artifact
from firth.artifact.models import load, save
from firth.errors import CorpusError, RecipeError, near_miss
from firth.files import digest_bytes
from firth.fit.backbones import backbone, decoder_of, rebuilt, writer
from firth.fit.checkpoints import Checkpoints, require_place
from firth.fit.curves import CURVE, METRICS, MetricsFile, draw_curve, to_lines
from firth.fit.linear import LinearTuning, is_plain, require_linear, tune_linear
from firth.fit.loop import Plan, State
from firth.fit.optimisers import make_optimiser
from firth.fit.preflight import describe, make_plan
from firth.fit.session import Session, machine
from firth.fit.settle import is_free
from firth.fit.stages import Stage, Stages, documents_of, remove_stages, task_stage
from firth.fit.train import Text
from firth.fit.tuning import TaskBatches, TaskLearner
from firth.fit.tuning_settle import known_labels, labels_of, settle_task
from firth.nets.model import NetModel
from firth.nets.network import build_network
from firth.objectives.objective import make_objectives
from firth.progress import note
from firth.recipes.values import recipe_to_json
from firth.tasks.builtin import builtin_examples
from firth.tasks.decode import Decode, looking
from firth.tasks.examples import Example, TagExample
from firth.tasks.frame import Frame
from firth.tasks.model import TaskModel
from firth.tasks.reading import parse_fields, read_items, read_task
from firth.tasks.recipe import TASKS, Strategy, TaskName, TaskRecipe
from firth.tasks.schemes import scheme_of
from firth.tasks.solver import Solver
from firth.tasks.tag import words_inside
from firth.tasks.task import Task, class_weights, make_task

Examples = str | Path | Iterable[Any]
_VALIDATIONS = 20  # at most: one in each pass, or in several
_TOGETHER = (
    "tags that mark where something begins and ends are chosen one by one, as Hugging Face does: --set head.crf=true "
    "chooses those of a sentence together and mostly finds more, above all with a small network"
)


@dataclass(frozen=True)
class Tuning:
    """What a fine-tuning is given."""

    task: TaskName
    train: list[Example]
    dev: list[Example]
    out: Path
    strategy: Strategy | None = None
    settings: Sequence[str] = ()
    fields: Sequence[str] = ()
    seed: int = 0
    threads: int | None = None
    resume: bool = False
    random: bool = False
    """Begin with new parameters instead of the model's: what was pre-training worth?"""
    start: str = ""
    """The digest of the model's weights, and of the decoder's if there is one."""
    decoder: NetModel | None = None
    """What writes, if that is not the model itself."""


def finetune(
    model: str | Path,
    task: str,
    *,
    train: Examples,
    dev: Examples,
    test: Examples | None = None,
    out: str | Path,
    strategy: str | None = None,
    settings: Sequence[str] = (),
    seed: int = 0,
    threads: int | None = None,
    resume: bool = False,
    random: bool = False,
    skip_bad: bool = False,
    fields: Sequence[str] = (),
    domain: Text | None = None,
    task_text: bool = False,
    budget: str | None = None,
    decoder: str | Path | None = None,
) -> Solver:
    """The model after it has learnt a task from labelled examples, saved in the folder `out`.

    `train`, `dev` and `test` are files, or lists of examples as Python has them. The parameters that were best on `dev`
    are kept. Before that the model goes on with the text of a `domain`, and with `task_text` with that of the examples
    themselves, each for as long as `budget` says. A model that has neither states nor vectors, such as an n-gram model
    or a tokenizer, gets a linear baseline on its tokens instead. To generate, the model reads and writes by itself, or
    a `decoder`, another model with the same tokens, writes and looks at what the model has made of the source.
    """
    if task not in TASKS:
        raise RecipeError(f"there is no task {task!r}: {near_miss(task, TASKS)}")
    folder = Path(out)
    if resume and (folder / "manifest.json").exists():
        note(f"{folder} is finished already.")
        return cast(Solver, load(folder))
    require_place(folder, resume)
    name = task
    read = partial(read_all, name, skip_bad=skip_bad, fields=fields)
    given = open_artifact(Path(model))
    if is_plain(given):
        options = {"--strategy": strategy, "--random": random, "--domain": domain, "--task-text": task_text}
        require_linear(given, task, options | {"--budget": budget, "--decoder": decoder})
        parts = (read(train), read(dev), None if test is None else read(test))
        others: dict[str, Any] = {"out": folder, "settings": settings, "fields": fields, "seed": seed}
        return tune_linear(_linear(name, *parts, skip_bad, **others), given)
    learnt = read(train)
    stages = [*([Stage("domain", domain)] if domain is not None else []), *([task_stage(learnt)] if task_text else [])]
    held_out = read(dev)
    start, told = Stages(stages, budget, documents_of(held_out)).run(
        Path(model), folder, threads=threads, resume=resume
    )
    artifact = open_artifact(start)
    base, digest = backbone(load(start)), artifact.manifest.files["model.safetensors"].sha256
    other = None
    if decoder is not None:
        other = decoder_of(backbone(load(decoder)), base)
        digest += f" {open_artifact(Path(decoder)).manifest.files['model.safetensors'].sha256}"
    elif task == "generate":
        base = writer(base)
    tuning = Tuning(
        task=name,
        train=learnt,
        dev=held_out,
        out=folder,
        strategy=cast(Strategy | None, strategy),
        settings=settings,
        fields=fields,
        seed=seed,
        threads=threads,
        resume=resume,
        random=random,
        start=digest,
        decoder=other,
    )
    unseen = None if test is None else read(test)
    with machine(threads):
        tuned = Tuned(tuning, base, skip_bad)
        tuned.session.learn()
        done = _save(tuned, artifact, unseen, told)
    remove_stages(folder)
    return done


def _linear(
    task: TaskName,
    train: list[Example],
    dev: list[Example],
    test: list[Example] | None,
    skip_bad: bool,
    **others: Any,
) -> LinearTuning:
    """What a linear baseline is given, with no labels that the training examples do not have."""
    labels, _ = labels_of(task, train)
    kept = None if test is None else _with_known_labels(test, labels, skip_bad=True)
    parts: dict[str, Any] = {"train": train, "dev": _with_known_labels(dev, labels, skip_bad), "test": kept}
    return LinearTuning(task=task, **parts, **others)


def read_all(task: TaskName, given: Examples, *, skip_bad: bool = False, fields: Sequence[str] = ()) -> list[Example]:
    """All examples of a file or a list, or built-in ones; tells what was left out."""
    if isinstance(given, str | Path) and str(given).startswith("builtin:"):
        return builtin_examples(task, str(given))
    if isinstance(given, str | Path):
        reading = read_task(task, given, skip_bad=skip_bad, fields=parse_fields(fields))
    else:
        reading = read_items(task, given, skip_bad=skip_bad)
    found = list(reading)
    for line in reading.notes():
        note(line)
    if not found:
        raise CorpusError(f"there is no example in {given}: give labelled ones.")
    return found


def _inside(recipe: TaskRecipe, tuning: Tuning, base: NetModel) -> int:
    """How many words of a token are told apart, which the tokens of the examples decide."""
    if tuning.task != "tag" or not is_free(tuning.settings, "inside"):
        return recipe.inside
    return words_inside(cast(Sequence[TagExample], tuning.train), Frame(recipe.network, base.tokenizer))


class Tuned:
    """A fine-tuning under way."""

    def __init__(self, tuning: Tuning, base: NetModel, skip_bad: bool = False) -> None:
        self.tuning = tuning
        writes = None if tuning.decoder is None else looking(tuning.decoder.recipe, base.recipe.width)
        self.recipe = settle_task(tuning.task, base.recipe, tuning.train, tuning.strategy, tuning.settings, writes)
        self.recipe = replace(self.recipe, fields=tuple(tuning.fields), inside=_inside(self.recipe, tuning, base))
        self.base = base = rebuilt(base, self.recipe.network)
        self.dev = _with_known_labels(tuning.dev, self.recipe.labels, skip_bad)
        if tuning.random:
            base.network = build_network(base.recipe, base.network.vocabulary, tuning.seed)
        if tuning.task == "tag" and is_free(tuning.settings, "head.crf") and scheme_of(self.recipe.labels) != "plain":
            note(_TOGETHER)
        self.task = self._make_task()
        self.model = TaskModel(self.recipe, base, self.task)
        readings = self.task.rows(tuning.train, self.model.frame)
        self.cut, self.model.frame.cut = self.model.frame.cut, 0
        if self.cut:
            note(f"{self.cut:,} of {len(readings):,} examples are longer than {self.model.frame.most} tokens")
        self.batches = TaskBatches(readings, self.recipe, tuning.seed)
        self.batches.split = self.cut
        self.session = self._open()

    def _make_task(self) -> Task:
        """The task with new layers, which depend on the seed alone."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.tuning.seed + 1)
            task = make_task(self.recipe, self.base.network.vocabulary)
        if not self.tuning.random:
            task.take_over(self.base.heads)
            if self.tuning.decoder is not None:
                assert isinstance(task, Decode)
                task.begin_with(self.tuning.decoder.network)
        if self.recipe.head.balanced and self.recipe.labels:
            counts: dict[str, int] = {}
            for example in self.tuning.train:
                for label in known_labels(example):
                    counts[label] = counts.get(label, 0) + 1
            task.weights = class_weights(counts, self.recipe.labels)
        return task

    def _open(self) -> Session:
        recipe, tuning = self.recipe, self.tuning
        network = self.base.network.train()
        more = (
            make_objectives(replace(self.base.recipe, objectives="clm"), network.vocabulary) if recipe.auxiliary else {}
        )
        learner = TaskLearner(network, self.task, recipe, more)
        assert isinstance(recipe.learning.rate, float | int)
        learning = replace(recipe.network, learning=recipe.learning)
        optimiser = make_optimiser(recipe.learning, learner, 0.0, learner.groups())
        session = Session(
            recipe=learning,
            seed=tuning.seed,
            vocabulary=network.vocabulary,
            learner=learner,
            optimiser=optimiser,
            batches=self.batches,
            plan=Plan("tokens", 1.0, 1),
            state=State(),
            keeper=Checkpoints(tuning.out, self._identity(), tuning.resume),
            file=MetricsFile(tuning.out),
            threads=torch.get_num_threads(),
            began=time.monotonic(),
            examine=self.examine,
            validations=min(recipe.learning.epochs, _VALIDATIONS),
            keep_best=True,
        )
        assert session.keeper is not None
        kept = session.keeper.kept()
        if kept is not None:
            session.take_up(*kept)
        else:
            session.plan, pace = make_plan(learner, self.batches, learning, None, tuning.seed)
            note(describe(session.plan, pace, learner, self.batches.tokens))
            session.keep()
        return session

    def _identity(self) -> dict[str, Any]:
        """What a run goes on with: the same recipe, examples and model."""
        digests = {
            part: digest_bytes(repr([dataclasses.astuple(one) for one in examples]).encode())
            for part, examples in (("train", self.tuning.train), ("dev", self.dev))
        }
        identity = {"recipe": recipe_to_json(self.recipe), "seed": self.tuning.seed, "start": self.tuning.start}
        return cast(dict[str, Any], json.loads(json.dumps(identity | digests | {"random": self.tuning.random})))

    def examine(self) -> dict[str, Any]:
        """The metrics on the examples that are not learnt from; the main one decides."""
        found = self.measure(self.dev, samples=0, calibrate=True)
        told = {f"valid_{name}": value for name, value in found.items() if isinstance(value, float)}
        return {"valid_loss": 1 - found[found["main"]]} | told

    def measure(self, examples: Sequence[Example], *, samples: int = 1000, calibrate: bool = False) -> dict[str, Any]:
        """Metrics of what the model says now; with `calibrate` these examples decide what is left to be decided."""
        self.base.network.eval()
        answers = list(self.model.stream(examples))
        self.base.network.train()
        if calibrate:
            answers = self.task.calibrate(examples, answers)
            self.recipe = self.model.recipe = self.task.recipe
        return self.model.measure(examples, answers, samples=samples)


def _with_known_labels(examples: list[Example], labels: Sequence[str], skip_bad: bool) -> list[Example]:
    """The examples; those with labels that the training examples do not have raise `CorpusError`, or are left out."""
    known = set(labels)
    kept = [one for one in examples if not labels or known.issuperset(known_labels(one))]
    if len(kept) < len(examples) and not skip_bad:
        first = next(one for one in examples if not known.issuperset(known_labels(one)))
        label = next(one for one in known_labels(first) if one not in known)
        raise CorpusError(
            f"{first.origin}: the label {label!r} is not among those of the training examples "
            f"({', '.join(labels[:10])}): correct it, or leave such examples out with --skip-bad."
        )
    if 0 < len(kept) < len(examples):
        note(f"{len(examples) - len(kept):,} examples were left out, whose labels the training examples do not have.")
    if not kept:
        raise CorpusError("no example to validate on has labels that the training examples have: give others.")
    return kept


def _save(tuned: Tuned, artifact: Artifact, test: list[Example] | None, stages: list[dict[str, Any]]) -> TaskModel:
    """Writes the model with what it reached."""
    session, tuning = tuned.session, tuned.tuning
    state = session.state
    metrics = {
        "parameters": sum(one.numel() for one in session.learner.parameters()),
        "learnt": sum(one.numel() for group in session.optimiser.param_groups for one in group["params"]),
        "examples": len(tuning.train),
        "cut": tuned.cut,
        "steps": state.step,
        "stages": stages,
        "dev": tuned.measure(tuned.dev, calibrate=True),
    }
    if test is not None:
        metrics["test"] = tuned.measure(_with_known_labels(test, tuned.recipe.labels, skip_bad=True))
    curve = draw_curve(state.records, tuned.recipe.task)
    save(
        tuning.out,
        tuned.model,
        name=f"{artifact.manifest.name}-{tuning.task}",
        recipe=tuned.recipe,
        budget={"asked": None, "spent": {"seconds": session.elapsed, "tokens": state.tokens, "flops": state.flops}},
        corpus={"layout": tuned.base.layout, "examples": len(tuning.train), "model": tuning.start},
        seed=tuning.seed,
        metrics=metrics,
        files={METRICS: to_lines(state.records), CURVE: curve},
    )
    return cast(TaskModel, load(tuning.out, verify=False))
