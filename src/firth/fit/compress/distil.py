"""distil: a smaller network that is trained to do what a teacher does, on text or for a task."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

import numpy as np
import numpy.typing as npt
import torch

from firth.artifact.tensors import map_tensors, write_tensors
from firth.errors import RecipeError
from firth.files import digest_bytes
from firth.fit.checkpoints import training_place
from firth.fit.compress.method import RUN, Compressed, CompressionJob, Method
from firth.fit.compress.student import make_student, smaller_recipe
from firth.fit.compress.teacher import TEACHER, Distillation, DistillationHead, OutputScores, TaskScores
from firth.fit.examples import read_all
from firth.fit.linear_part import add_linear_part
from firth.fit.resolve_task import FinetuneConfig
from firth.fit.run import TrainingRun
from firth.fit.task_run import FinetuneRun, open_run, open_trainer
from firth.fit.trainer import torch_settings
from firth.nets.model import NetModel
from firth.nets.network import Network
from firth.nets.recipe import NetRecipe
from firth.objectives.heads.head import ObjectiveHead
from firth.progress import note, progress
from firth.recipes.nets import with_size
from firth.recipes.table import find_recipe
from firth.tasks.sequences import InputSequence
from firth.tasks.task import Task, TaskModel

_TASKS = ("classify", "pair", "choice", "tag")
_CACHE = "teacher.safetensors"
_LOSSES = ("soft", "temperature", "hidden", "hidden_loss", "attention", "relations", "relation_heads")


@dataclass(frozen=True, kw_only=True)
class DistilOptions:
    """The options of distil."""

    layers: int = 0
    """Layers of the student; 0: half of the teacher's, unless another field makes it smaller."""
    width: int = 0
    """Width of the student; 0: the teacher's."""
    recipe: str = ""
    """A recipe of the student, such as lstm; empty: the teacher's."""
    size: Literal["", "tiny", "mini", "small", "base"] = ""
    """The size of that recipe."""
    epochs: int = 0
    """Epochs of training for a task; 0: by the number of examples."""
    lr: float = 0.0
    """Peak learning rate; 0: by the size of the network."""
    soft: float = 1.0
    """Weight of soft labels; the labels themselves have the weight 1."""
    temperature: float = 2.0
    hidden: float = 0.0
    """Weight of the hidden states of all layers, the embedding included."""
    hidden_loss: Literal["mse", "cosine"] = "mse"
    attention: float = 0.0
    """Weight of the attention scores of all layers (TinyBERT)."""
    relations: float = 0.0
    """Weight of the relations of queries, of keys and of values in the last layer (MiniLM v2)."""
    relation_heads: int = 0
    """Heads that vectors are split into for relations; 0: as many as the teacher has."""

    @property
    def objective(self) -> Distillation:
        """The losses."""
        return Distillation(**{name: getattr(self, name) for name in _LOSSES})

    def __post_init__(self) -> None:
        Distillation(**{name: getattr(self, name) for name in _LOSSES})  # checks them
        for name in ("layers", "width", "epochs", "lr"):
            if getattr(self, name) < 0:
                raise RecipeError(f"{name}={getattr(self, name)} must be 0 or more.")


class Distil(Method):
    """A smaller student of a network."""

    name = "distil"
    options: ClassVar[type] = DistilOptions

    def refusal(self, job: CompressionJob) -> str:
        model = job.model
        if isinstance(model, TaskModel):
            if model.task not in _TASKS:
                return f"distil is for the tasks {', '.join(_TASKS)}, not for {model.task}: choose --method prune."
            if model.recipe.decoder is not None:
                return "a model that writes its labels cannot be distilled: choose --method quantise."
            if job.train is None or job.dev is None:
                return "the student of a fine-tuned model learns from labelled examples: give --train and --dev."
            return ""
        if not isinstance(model, NetModel):
            return f"a {type(model).__name__} is no network, so it has no student: choose --method quantise."
        if model.recipe.decoder is not None or model.recipe.directions != 1 or not model.recipe.objectives:
            return "distil is for encoders and language models of one direction: choose --method quantise."
        if job.corpus is None:
            return "the student of a pre-trained network reads text: give --corpus."
        return ""

    def run(self, job: CompressionJob, options: DistilOptions) -> Compressed:
        base: NetModel = job.model.base if isinstance(job.model, TaskModel) else job.model
        student, copied = make_student(base, student_recipe(base.recipe, options), job.seed)
        notes = [_describe(base.recipe, student.recipe, copied)]
        distil = distil_task if isinstance(job.model, TaskModel) else distil_text
        model, spent = distil(job, options, student)
        return Compressed(model=model, notes=notes, spent=spent, metrics={})


def student_recipe(teacher: NetRecipe, options: DistilOptions) -> NetRecipe:
    """The recipe of the student: smaller than the teacher's, or another one with its objectives."""
    if options.recipe:
        found = find_recipe(options.recipe)
        if not isinstance(found, NetRecipe):
            raise RecipeError(f"recipe={options.recipe} is no network: give one such as bert or lstm.")
        found = with_size(found, options.recipe, options.size or "tiny")
        changes: dict[str, Any] = {"sequence": teacher.sequence, "learning": teacher.learning}
        found = replace(found, objectives=teacher.objectives, visibility=teacher.visibility, **changes)
        return smaller_recipe(found, options.layers, options.width) if options.layers or options.width else found
    layers = options.layers
    if not (layers or options.width):
        layers = max(1, teacher.encoder.layers // 2)
    return smaller_recipe(teacher, layers, options.width)


def distil_text(job: CompressionJob, options: DistilOptions, student: NetModel) -> tuple[Any, dict[str, float]]:
    """A student that is pre-trained on text with its own objectives and those of distillation."""
    from firth.fit.nets import train_net

    teacher: NetModel = job.model
    made: list[DistillationHead] = []

    def auxiliary(network: Network, heads: Sequence[ObjectiveHead]) -> ObjectiveHead:
        scores = OutputScores(teacher.network, heads)
        made.append(DistillationHead(options.objective, network, teacher.network, scores))
        return made[-1]

    assert job.corpus is not None
    recipe = student.recipe
    if options.lr:
        recipe = replace(recipe, learning=replace(recipe.learning, lr=options.lr))
    if options.epochs:
        recipe = replace(recipe, learning=replace(recipe.learning, epochs=options.epochs))
    run = TrainingRun(
        corpus=job.corpus,
        valid=None,
        tokenizer=teacher.tokenizer,
        budget=job.budget,
        seed=job.seed,
        threads=job.threads,
        out=job.work / RUN,
        resume=job.resume,
        settings=["learning.epochs"] if options.epochs else [],
        start=_identity(job, options),
        auxiliary=auxiliary,
    )
    with training_place(job.work / RUN, run.resume):
        result = train_net(recipe, run, student)
    for head in made:
        head.remove_hooks()
    return result.model, {name: float(value) for name, value in result.spent.items() if name != "seconds"}


def distil_task(job: CompressionJob, options: DistilOptions, student: NetModel) -> tuple[Any, dict[str, float]]:
    """A student that is fine-tuned with the labels of the examples and the scores of the teacher for them."""
    teacher: TaskModel = job.model
    made: list[DistillationHead] = []

    def auxiliary(network: Network, tasks: Mapping[str, Task]) -> ObjectiveHead:
        scores = TaskScores(tasks[teacher.task])
        soft: Literal["kl", "mse"] = "mse" if teacher.recipe.form in ("number", "multi") else "kl"
        made.append(DistillationHead(options.objective, network, teacher.base.network, scores, soft))
        return made[-1]

    settings = [f"learning.epochs={options.epochs}"] if options.epochs else []
    settings += [f"learning.lr={options.lr}"] if options.lr else []
    config = FinetuneConfig(
        task=cast(Any, teacher.task),
        train=read_all(cast(Any, teacher.task), cast(Any, job.train), columns=job.columns),
        dev=read_all(cast(Any, teacher.task), cast(Any, job.dev), columns=job.columns),
        out=job.work / RUN,
        settings=settings,
        columns=teacher.columns or job.columns,
        budget=job.budget,
        seed=job.seed,
        threads=job.threads,
        resume=job.resume,
        start=_identity(job, options),
        earlier=[teacher.head],
        auxiliary=auxiliary,
    )
    with training_place(job.work / RUN, config.resume), torch_settings(job.threads):
        run = open_run(config, student)
        if run.recipe.labels != teacher.recipe.labels:
            raise RecipeError("the examples have other labels than the teacher: give those that it was fine-tuned on.")
        if options.soft:
            run.batches.examples = with_scores(run.batches.examples, teacher_scores(teacher, run, job.work / _CACHE))
        trainer = open_trainer(run)
        trainer.train()
        spent = {"tokens": float(trainer.state.tokens), "flops": float(trainer.state.flops)}
        for head in made:
            head.remove_hooks()
        run.base.network.eval()
        run.task.eval()
        if teacher.head.linear is not None:
            add_linear_part(replace(config, dev=run.dev), run.model)
        return run.model, spent


def teacher_scores(teacher: TaskModel, run: FinetuneRun, cache: Path) -> list[npt.NDArray[np.float32]]:
    """The scores of the teacher for each training example, flattened; computed once and kept in a file."""
    built = run.batches.examples
    key = digest_bytes(b"".join(one.ids.tobytes() for sequences in built for one in sequences))
    key = digest_bytes((key + run.config.start).encode())
    if cache.exists():
        arrays = map_tensors(cache)
        if bytes(arrays["key"]).decode() == key:
            note("the scores of the teacher are read from the run before")
            return np.split(np.array(arrays["scores"]), np.cumsum(arrays["sizes"])[:-1])
    found: list[npt.NDArray[np.float32]] = [np.zeros(0, dtype=np.float32)] * len(built)
    with progress("teacher", len(built), "examples") as advance, torch.inference_mode():
        for bucket, batch, states in teacher.head.encode(teacher.base.network, built):
            scores = iter(teacher.head.split(teacher.head.scores(states, batch, None), batch))
            for index in bucket:
                own = islice(scores, teacher.head.outputs_per_example(len(built[index])))
                found[index] = np.concatenate([np.ravel(one) for one in own]).astype(np.float32)
            advance(len(bucket))
    sizes = np.array([one.size for one in found], dtype=np.int64)
    arrays = {"scores": np.concatenate(found), "sizes": sizes, "key": np.frombuffer(key.encode(), dtype=np.uint8)}
    cache.parent.mkdir(parents=True, exist_ok=True)
    draft = cache.with_suffix(".tmp")
    write_tensors(draft, arrays)
    draft.replace(cache)
    return found


def with_scores(
    examples: Sequence[Sequence[InputSequence]], scores: Sequence[npt.NDArray[np.float32]]
) -> list[Sequence[InputSequence]]:
    """The sequences of examples with the teacher's scores as labels of the first sequence of each."""
    found: list[Sequence[InputSequence]] = []
    for sequences, own in zip(examples, scores, strict=True):
        labels: Any = {**sequences[0].labels, TEACHER: own}
        found.append([replace(sequences[0], labels=labels), *sequences[1:]])
    return found


def _identity(job: CompressionJob, options: DistilOptions) -> str:
    """What a resumed run must have in common beside the recipe and the examples."""
    return f"{job.digest} {json.dumps(asdict(options), sort_keys=True)}"


def _describe(teacher: NetRecipe, student: NetRecipe, copied: Sequence[int]) -> str:
    layers = f", copied from the layers {', '.join(str(one + 1) for one in copied)}" if copied else ""
    return (
        f"the student has {student.encoder.layers} of {teacher.encoder.layers} layers{layers}, of width "
        f"{student.width} instead of {teacher.width}"
    )
