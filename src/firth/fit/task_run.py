"""FinetuneRun: a task model in training; the trainer of one task or of several."""

from __future__ import annotations

import dataclasses
import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

import torch

from firth.artifact.models import save
from firth.errors import CorpusError
from firth.files import digest_bytes
from firth.fit.backbones import with_recipe
from firth.fit.checkpoints import CheckpointFolder
from firth.fit.facts import count_facts, note_facts, with_facts
from firth.fit.linear_part import add_linear_part
from firth.fit.loop import BatchSource
from firth.fit.optimisers import make_optimiser
from firth.fit.preflight import describe, make_plan
from firth.fit.resolve import is_unset
from firth.fit.resolve_task import FinetuneConfig, known_labels, resolve_task, with_known_labels
from firth.fit.task_training import TaskBatches, TaskTrainingModule
from firth.fit.trainer import NetTrainer, note_threads
from firth.nets.model import NetModel
from firth.nets.network import build_network
from firth.objectives.clm import CausalLM
from firth.objectives.heads.build import make_heads
from firth.progress import note
from firth.recipes.values import recipe_to_json
from firth.records import MetricsFile, record_files
from firth.tasks.examples import Example, TagExample, texts_of
from firth.tasks.generate import EncoderDecoderTask, with_cross_attention
from firth.tasks.recipe import TaskRecipe
from firth.tasks.registry import make_task
from firth.tasks.sequences import SequenceBuilder
from firth.tasks.tag import find_words_per_token
from firth.tasks.task import Task, TaskModel, class_weights
from firth.tokens.coverage import note_poor_coverage
from firth.training import TrainingPlan

_MAX_VALIDATIONS = 20


class TaskRun(Protocol):
    """A run that fine-tunes a network for one task or several."""

    @property
    def config(self) -> FinetuneConfig:
        """Its options."""

    @property
    def recipe(self) -> Any:
        """A recipe with `network`, `learning`, `strategy` and `layer_decay`."""

    @property
    def base(self) -> NetModel:
        """The network."""

    @property
    def batches(self) -> BatchSource:
        """The training examples."""

    @property
    def tasks(self) -> Mapping[str, Task]:
        """The heads by the names of their parameters."""

    @property
    def lm_weight(self) -> float:
        """The weight of the language model's loss."""

    def evaluate(self) -> dict[str, Any]:
        """Metrics on the dev examples; `valid_loss` is minimised."""

    def identity(self) -> dict[str, Any]:
        """What a resumed run must have in common."""


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

    @property
    def tasks(self) -> dict[str, Task]:
        """The head, named after the kind of task."""
        return {self.task.name: self.task}

    @property
    def lm_weight(self) -> float:
        """The weight of the language model's loss."""
        return self.recipe.lm_weight

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

    def final_metrics(self) -> dict[str, Any]:
        """Metrics with intervals on the dev examples, and on the test examples if there are any.

        A linear part is added first, if it helps.
        """
        linear = add_linear_part(replace(self.config, dev=self.dev), self.model)
        self.recipe = self.model.recipe
        found = linear | {"dev": self.measure(self.dev, calibrate=True)}
        if self.config.test is not None:
            found["test"] = self.measure(with_known_labels(self.config.test, class_labels(self.recipe), skip_bad=True))
        return found

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
    has_graph = config.graph is not None
    recipe = resolve_task(
        config.task,
        base.recipe,
        config.train,
        config.strategy,
        config.settings,
        decoder,
        config.all_examples,
        has_graph,
    )
    recipe, graph = with_facts(replace(recipe, columns=tuple(config.columns)), config.graph, config.seed)
    if config.task == "tag" and is_unset(config.settings, "words_per_token"):
        builder = SequenceBuilder(recipe.network, base.tokenizer)
        recipe = replace(
            recipe, words_per_token=find_words_per_token(cast(Sequence[TagExample], config.train), builder)
        )
    base = with_recipe(base, recipe.network)
    dev = with_known_labels(config.dev, class_labels(recipe), skip_bad)
    if config.random:
        base.network = build_network(base.recipe, base.network.vocabulary, config.seed)
    task = _new_task(config, recipe, base)
    model = TaskModel(recipe, base, task, graph)
    sequences = task.sequences(config.train, model.builder)
    if graph is not None:
        note_facts(count_facts(sequences), len(sequences))
    truncated = sum(any(one.truncated for one in each) for each in sequences)
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


def class_labels(recipe: TaskRecipe) -> tuple[str, ...]:
    """The labels that examples must have; none if they have numbers, or types, of which there are always more."""
    return () if recipe.form == "number" or recipe.task == "typing" else recipe.labels


def _new_task(config: FinetuneConfig, recipe: TaskRecipe, base: NetModel) -> Task:
    """The task with new layers, which depend on the seed only, or with those of a model fine-tuned before."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed + 1)
        task = make_task(recipe, base.network.vocabulary)
    if not config.random:
        task.init_from_pretraining(base.heads)
        if config.decoder is not None:
            assert isinstance(task, EncoderDecoderTask)
            task.init_decoder(config.decoder.network)
        _take_over(task, config.earlier)
    if recipe.head.balanced and recipe.labels:
        counts = Counter(label for example in config.train for label in known_labels(example))
        task.label_weights = class_weights(counts, recipe.labels)
    return task


def _take_over(task: Task, earlier: Sequence[Task]) -> None:
    """Copy the head of an earlier fine-tuning with the same labels, or else the pooler of the only one."""
    same = [one for one in earlier if one.has_layers_of(task)]
    if len(same) == 1:
        note("the labels are those that the model was fine-tuned for: its head is trained further")
        task.load_state_dict(same[0].state_dict())
    elif len(earlier) == 1:
        task.init_from_pretraining({f"heads.{name}": one for name, one in earlier[0].state_dict().items()})


def open_trainer(run: TaskRun) -> NetTrainer:
    """A new or resumed trainer with its plan."""
    recipe, config = run.recipe, run.config
    network = run.base.network.train()
    auxiliary = {}
    if run.lm_weight:
        auxiliary = make_heads(replace(run.base.recipe, objectives=(CausalLM(weight=run.lm_weight),)), network)
    if config.auxiliary is not None:
        further = config.auxiliary(network, run.tasks)
        auxiliary[further.name] = further
    module = TaskTrainingModule(network, run.tasks, recipe, auxiliary)
    net_recipe = replace(recipe.network, learning=recipe.learning)
    checkpointer = CheckpointFolder(config.out, run.identity(), config.resume)
    checkpoint, began = checkpointer.load(), time.monotonic()
    if checkpoint is None:
        plan, throughput = make_plan(module, run.batches, net_recipe, config.budget, config.seed)
        note_threads(config.threads)
        note(describe(plan, throughput, module, run.batches.tokens))
    else:
        plan = TrainingPlan.restored(checkpoint)
    trainer = NetTrainer(
        recipe=net_recipe,
        seed=config.seed,
        vocabulary=network.vocabulary,
        module=module,
        optimiser=make_optimiser(recipe.learning, module, 0.0, module.groups()),
        batches=run.batches,
        plan=plan,
        lr=float(recipe.learning.lr),
        epoch_tokens=run.batches.tokens,
        checkpointer=checkpointer,
        file=MetricsFile(config.out),
        threads=config.threads,
        began=began,
        evaluate=run.evaluate,
        validations=min(max(round(plan.tokens / run.batches.tokens), 1), _MAX_VALIDATIONS),  # one after each epoch
        patience=recipe.learning.patience,
        restores_best=True,
    )
    if checkpoint is None:
        trainer.save()
    else:
        trainer.restore(*checkpoint)
    return trainer


def training_metrics(run: TaskRun, trainer: NetTrainer) -> dict[str, Any]:
    """The size and the cost of a finished run."""
    return {
        "parameters": sum(one.numel() for one in trainer.module.parameters()),
        "trainable_parameters": sum(one.numel() for group in trainer.optimiser.param_groups for one in group["params"]),
        "cut": run.batches.split,
        "steps": trainer.state.step,
        "threads": torch.get_num_threads(),
    }


def save_run(run: TaskRun, trainer: NetTrainer, model: Any, name: str, metrics: Mapping[str, Any]) -> None:
    """Write the model of a finished run with its metrics."""
    state, config = trainer.state, run.config
    save(
        config.out,
        model,
        name=name,
        recipe=run.recipe,
        budget={
            "asked": config.budget.text if config.budget else None,
            "spent": {"seconds": trainer.elapsed, "tokens": state.tokens, "flops": state.flops},
        },
        corpus={"layout": run.base.layout, "examples": metrics["examples"], "model": config.start},
        seed=config.seed,
        metrics=metrics,
        files=record_files(state.records, name.rpartition("-")[2]),
    )
