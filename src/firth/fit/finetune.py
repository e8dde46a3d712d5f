"""Fine-tuning of a model for a task on labelled examples."""

from __future__ import annotations

import dataclasses
import json
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch

from firth.arguments import require_list, require_path
from firth.artifact.folder import Artifact, artifact_info, open_artifact
from firth.artifact.models import load, save
from firth.errors import AbilityError, CorpusError, RecipeError, near_miss, reading
from firth.files import digest_bytes
from firth.fit.adapt import adapt
from firth.fit.backbones import backbone, causal_network, decoder_network, require_single_network, with_recipe
from firth.fit.checkpoints import CheckpointFolder, require_place
from firth.fit.linear import has_no_states, require_linear, train_linear
from firth.fit.loop import TrainingPlan, TrainingState
from firth.fit.optimisers import make_optimiser
from firth.fit.preflight import describe, make_plan
from firth.fit.resolve import is_unset
from firth.fit.resolve_task import FinetuneConfig, known_labels, labels_of, resolve_task, with_known_labels
from firth.fit.run import Budget, Text
from firth.fit.task_training import TaskBatches, TaskTrainingModule
from firth.fit.trainer import CURVE, METRICS, MetricsFile, Trainer, draw_curve, note_threads, to_lines, torch_settings
from firth.metrics.tags import scheme_of
from firth.nets.model import NetModel
from firth.nets.network import build_network
from firth.objectives.clm import CausalLM
from firth.objectives.heads.build import make_heads
from firth.progress import note
from firth.recipes.values import Settings, recipe_to_json, setting_list
from firth.tasks.builtin import builtin_examples
from firth.tasks.examples import Example, TagExample, texts_of
from firth.tasks.generate import EncoderDecoderTask, with_cross_attention
from firth.tasks.predictor import Predictor
from firth.tasks.readers.reader import parse_columns, read_items, read_task
from firth.tasks.recipe import TASKS, Strategy, TaskName, TaskRecipe
from firth.tasks.registry import make_task
from firth.tasks.sequences import SequenceBuilder
from firth.tasks.tag import find_words_per_token
from firth.tasks.task import Task, TaskModel, class_weights
from firth.tokens.coverage import note_poor_coverage

Examples = str | Path | Iterable[Any]
_MAX_VALIDATIONS = 20
_CRF_NOTE = (
    "tags of spans are predicted independently, as Hugging Face does: --set head.crf=true decodes those of a sentence "
    "jointly and mostly finds more, above all with a small network"
)


def finetune(
    model: str | Path,
    task: str,
    *,
    train: Examples,
    dev: Examples,
    test: Examples | None = None,
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
) -> Predictor:
    """The model fine-tuned for a task on labelled examples, saved in the folder `out`.

    `train`, `dev` and `test` are files or lists of examples. The parameters that are best on `dev` are saved. Before
    that, the model is pre-trained further on the text of a `domain`, and with `task_text` on that of the training
    examples, each within `budget`; without these stages it is the budget of fine-tuning itself, instead of epochs. A
    model without hidden states or vectors, such as an n-gram model or a tokenizer, gets a linear baseline on its tokens
    instead. To generate, the model encodes and decodes by itself, or a `decoder`, another model with the same tokens,
    attends to its hidden states.
    """
    if task not in TASKS:
        raise RecipeError(f"there is no task {task!r}: {near_miss(task, TASKS)}")
    folder, model = require_path(out, "out", "the folder to write"), require_path(model, "model", "a saved model")
    settings, columns = setting_list(settings), require_list(columns, "columns")
    if resume and (folder / "manifest.json").exists():
        note(f"{folder} is finished already.")
        return cast(Predictor, load(folder))
    require_place(folder, resume)
    read = partial(read_all, task, skip_bad=skip_bad, columns=columns)
    artifact = open_artifact(model)
    shared: dict[str, Any] = {"task": task, "out": folder, "settings": settings, "columns": columns, "seed": seed}
    if has_no_states(artifact):
        options = {"--strategy": strategy, "--random": random, "--domain": domain, "--task-text": task_text}
        require_linear(artifact, task, options | {"--budget": budget, "--decoder": decoder})
    examples, dev_examples = read(train), read(dev)
    if has_no_states(artifact):
        test_examples, labels = None if test is None else read(test), labels_of(task, examples)[0]
        if test_examples is not None:
            test_examples = with_known_labels(test_examples, labels, skip_bad=True)
        dev_examples = with_known_labels(dev_examples, labels, skip_bad)
        return train_linear(FinetuneConfig(train=examples, dev=dev_examples, test=test_examples, **shared), artifact)
    own_budget = Budget.parse(budget) if budget and domain is None and not task_text else None
    task_examples = examples if task_text else None
    start, stages = run_stages(
        model, folder, domain, task_examples, dev_examples, budget, threads=threads, resume=resume
    )
    artifact = open_artifact(start)
    if task == "generate" and decoder is None:
        require_single_network(load(start))
    base, digest = backbone(load(start)), artifact.manifest.files["model.safetensors"].sha256
    decoder_model = None
    if decoder is not None:
        decoder_model = decoder_network(backbone(load(decoder)), base)
        digest += f" {open_artifact(Path(decoder)).manifest.files['model.safetensors'].sha256}"
    elif task == "generate":
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
        **shared,
    )
    with torch_settings(threads):
        run = open_run(config, base, skip_bad)
        trainer = open_trainer(run)
        trainer.train()
        result = _save(run, trainer, artifact, stages)
    remove_stages(folder)
    return result


def read_all(task: TaskName, given: Examples, *, skip_bad: bool = False, columns: Sequence[str] = ()) -> list[Example]:
    """All examples of a file or a list, or built-in ones; notes what was skipped."""
    if isinstance(given, str | Path) and str(given).startswith("builtin:"):
        return builtin_examples(task, str(given))
    if isinstance(given, str | Path):
        reader = read_task(task, given, skip_bad=skip_bad, columns=parse_columns(columns))
    else:
        reader = read_items(task, given, skip_bad=skip_bad)
    found = list(reader)
    for line in reader.notes():
        note(line)
    if not found:
        raise CorpusError(f"there is no example in {given}: give labelled ones.")
    return found


@dataclass
class FinetuneRun:
    """A task model with its training and validation examples."""

    config: FinetuneConfig
    recipe: TaskRecipe
    base: NetModel
    task: Task
    model: TaskModel
    dev: list[Example]
    batches: TaskBatches

    def evaluate(self) -> dict[str, Any]:
        """Metrics on the dev examples; the main one is the loss to be minimised."""
        found = self.measure(self.dev, samples=0, calibrate=True)
        metrics = {f"valid_{name}": value for name, value in found.items() if isinstance(value, float)}
        return {"valid_loss": 1 - found[found["main"]]} | metrics

    def measure(self, examples: Sequence[Example], *, samples: int = 1000, calibrate: bool = False) -> dict[str, Any]:
        """Metrics of the current parameters; `calibrate` fits thresholds to these examples."""
        self.base.network.eval()
        answers = list(self.model.stream(examples))
        self.base.network.train()
        if calibrate:
            answers = self.task.calibrate(examples, answers)
            self.recipe = self.model.recipe = self.task.recipe
        return self.model.measure(examples, answers, samples=samples)

    def identity(self) -> dict[str, Any]:
        """What a resumed run must have in common: recipe, examples and model."""
        digests = {
            part: digest_bytes(repr([dataclasses.astuple(one) for one in examples]).encode())
            for part, examples in (("train", self.config.train), ("dev", self.dev))
        }
        config = self.config
        identity = {"recipe": recipe_to_json(self.recipe), "seed": config.seed, "start": config.start}
        identity |= {"random": config.random, "budget": config.budget.text if config.budget else None}
        return cast(dict[str, Any], json.loads(json.dumps(identity | digests)))


def open_run(config: FinetuneConfig, base: NetModel, skip_bad: bool = False) -> FinetuneRun:
    """The task model, with new task layers, and its batches."""
    decoder = None if config.decoder is None else with_cross_attention(config.decoder.recipe, base.recipe.width)
    recipe = resolve_task(config.task, base.recipe, config.train, config.strategy, config.settings, decoder)
    recipe = replace(recipe, columns=tuple(config.columns))
    if config.task == "tag" and is_unset(config.settings, "words_per_token"):
        builder = SequenceBuilder(recipe.network, base.tokenizer)
        recipe = replace(
            recipe, words_per_token=find_words_per_token(cast(Sequence[TagExample], config.train), builder)
        )
    base = with_recipe(base, recipe.network)
    dev = with_known_labels(config.dev, recipe.labels, skip_bad)
    if config.random:
        base.network = build_network(base.recipe, base.network.vocabulary, config.seed)
    if config.task == "tag" and is_unset(config.settings, "head.crf") and scheme_of(recipe.labels) != "plain":
        note(_CRF_NOTE)
    task = _new_task(config, recipe, base)
    model = TaskModel(recipe, base, task)
    sequences = task.sequences(config.train, model.builder)
    truncated, model.builder.truncated = model.builder.truncated, 0
    if truncated:
        note(f"{truncated:,} of {len(sequences):,} examples are longer than {model.builder.max_length} tokens")
    batches = TaskBatches(sequences, recipe, config.seed, truncated)
    if not batches.has_known_words:
        raise CorpusError(
            "the model knows no word of the training examples: fine-tune one that was trained on text of their "
            "language, and segmented as they are."
        )
    note_poor_coverage(base.tokenizer, (text for example in config.train for text in texts_of(example)))
    return FinetuneRun(config, recipe, base, task, model, dev, batches)


def _new_task(config: FinetuneConfig, recipe: TaskRecipe, base: NetModel) -> Task:
    """The task with new layers, which depend on the seed only."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed + 1)
        task = make_task(recipe, base.network.vocabulary)
    if not config.random:
        task.init_from_pretraining(base.heads)
        if config.decoder is not None:
            assert isinstance(task, EncoderDecoderTask)
            task.init_decoder(config.decoder.network)
    if recipe.head.balanced and recipe.labels:
        counts = Counter(label for example in config.train for label in known_labels(example))
        task.label_weights = class_weights(counts, recipe.labels)
    return task


def open_trainer(run: FinetuneRun) -> Trainer:
    """A new or resumed trainer with its plan."""
    recipe, config = run.recipe, run.config
    network = run.base.network.train()
    auxiliary = {}
    if recipe.lm_weight:
        auxiliary = make_heads(replace(run.base.recipe, objectives=(CausalLM(weight=recipe.lm_weight),)), network)
    module = TaskTrainingModule(network, run.task, recipe, auxiliary)
    assert isinstance(recipe.learning.lr, float | int)
    net_recipe = replace(recipe.network, learning=recipe.learning)
    checkpointer = CheckpointFolder(config.out, run.identity(), config.resume)
    checkpoint, began = checkpointer.load(), time.monotonic()
    if checkpoint is None:
        plan, throughput = make_plan(module, run.batches, net_recipe, config.budget, config.seed)
        note_threads(config.threads)
        note(describe(plan, throughput, module, run.batches.tokens))
    else:
        with reading("the checkpoint", "remove it and train again"):
            plan = TrainingPlan(**checkpoint[1]["plan"])
    trainer = Trainer(
        recipe=net_recipe,
        seed=config.seed,
        vocabulary=network.vocabulary,
        module=module,
        optimiser=make_optimiser(recipe.learning, module, 0.0, module.groups()),
        batches=run.batches,
        plan=plan,
        state=TrainingState(),
        checkpointer=checkpointer,
        file=MetricsFile(config.out),
        threads=config.threads,
        began=began,
        evaluate=run.evaluate,
        validations=min(max(round(plan.tokens / run.batches.tokens), 1), _MAX_VALIDATIONS),  # one after each epoch
        restores_best=True,
    )
    if checkpoint is None:
        trainer.save()
    else:
        trainer.restore(*checkpoint)
    return trainer


def _save(run: FinetuneRun, trainer: Trainer, artifact: Artifact, stages: list[dict[str, Any]]) -> TaskModel:
    """Write the model with its metrics, and load it."""
    state, config = trainer.state, run.config
    metrics = {
        "parameters": sum(one.numel() for one in trainer.module.parameters()),
        "trainable_parameters": sum(one.numel() for group in trainer.optimiser.param_groups for one in group["params"]),
        "examples": len(config.train),
        "cut": run.batches.split,
        "steps": state.step,
        "threads": torch.get_num_threads(),
        "stages": stages,
        "dev": run.measure(run.dev, calibrate=True),
    }
    if config.test is not None:
        metrics["test"] = run.measure(with_known_labels(config.test, run.recipe.labels, skip_bad=True))
    save(
        config.out,
        run.model,
        name=f"{artifact.manifest.name}-{config.task}",
        recipe=run.recipe,
        budget={
            "asked": config.budget.text if config.budget else None,
            "spent": {"seconds": trainer.elapsed, "tokens": state.tokens, "flops": state.flops},
        },
        corpus={"layout": run.base.layout, "examples": len(config.train), "model": config.start},
        seed=config.seed,
        metrics=metrics,
        files={METRICS: to_lines(state.records), CURVE: draw_curve(state.records, run.recipe.task)},
    )
    return cast(TaskModel, load(config.out, verify=False))


def run_stages(
    model: Path,
    out: Path,
    domain: Text | None,
    examples: Iterable[Example] | None,
    dev: list[Example],
    budget: str | None,
    *,
    threads: int | None,
    resume: bool,
) -> tuple[Path, list[dict[str, Any]]]:
    """The model to fine-tune, and the budget and losses of each stage.

    The stages train on the text of a domain and on the unlabelled text of examples (Gururangan et al. 2020); they
    validate on the text of the dev examples.
    """
    stages: list[tuple[str, Any]] = [] if domain is None else [("domain", domain)]
    if examples is not None:
        stages.append(("task", _documents(examples)))
        if not stages[-1][1]:
            raise AbilityError("the examples hold no text to train on further: leave --task-text out.")
    reports = []
    for number, (name, text) in enumerate(stages, 1):
        folder = _stages_folder(out) / f"{number}-{name}"
        if not (folder / "manifest.json").exists():
            note(f"stage {number}: {name}")
            options: dict[str, Any] = {"valid": _documents(dev) or None, "budget": budget, "threads": threads}
            adapt(model, text, out=folder, resume=resume and folder.exists(), **options)
        info = artifact_info(folder)
        reports.append(
            {
                "stage": name,
                "budget": info["budget"],
                "loss": info["metrics"].get("loss"),
                "dev_loss_before": info["metrics"].get("valid_loss_before"),
                "dev_loss": info["metrics"].get("valid_loss"),
            }
        )
        model = folder
    return model, reports


def _documents(examples: Iterable[Example]) -> list[list[str]]:
    """The texts of examples without their labels; an example is a document."""
    return [document for example in examples if (document := texts_of(example))]


def _stages_folder(out: Path) -> Path:
    return out.with_name(f"{out.name}.stages")


def remove_stages(out: Path) -> None:
    """Delete the stages of a saved result."""
    shutil.rmtree(_stages_folder(out), ignore_errors=True)
