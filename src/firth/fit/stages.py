"""Stages: a general model goes on with the text of a domain, then with that of a task, before it is fine-tuned.

Each stage is an artifact of its own beside the folder of the result, `DIR.stages/NAME`. One that is whole is not done
again, and one that was interrupted goes on; when the result is there, they are removed.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from firth.artifact.folder import artifact_info
from firth.errors import AbilityError
from firth.fit.adapt import adapt
from firth.progress import note
from firth.tasks.examples import Example, texts_of


class Stage(NamedTuple):
    """More pre-training."""

    name: str
    """domain or task."""
    text: Any
    """What is read: a corpus, or documents."""


class Stages(NamedTuple):
    """What comes before fine-tuning."""

    stages: Sequence[Stage]
    budget: str | None
    """Of each stage."""
    dev: Sequence[Sequence[str]]
    """The texts of the examples to validate on, which show what a stage is good for before any label is seen."""

    def run(self, model: Path, out: Path, *, threads: int | None, resume: bool) -> tuple[Path, list[dict[str, Any]]]:
        """The model to fine-tune, and what each stage was."""
        told = []
        for number, stage in enumerate(self.stages, 1):
            folder = stages_of(out) / f"{number}-{stage.name}"
            if not (folder / "manifest.json").exists():
                note(f"stage {number}: {stage.name}")
                going_on = resume and folder.exists()
                valid = self.dev or None
                adapt(model, stage.text, out=folder, valid=valid, budget=self.budget, threads=threads, resume=going_on)
            told.append(describe_stage(stage.name, artifact_info(folder)))
            model = folder
        return model, told


def describe_stage(name: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """A stage's budget, its last loss, and the loss on the text of the dev examples before and after it."""
    metrics = facts["metrics"]
    return {
        "stage": name,
        "budget": facts["budget"],
        "loss": metrics.get("loss"),
        "dev_loss_before": metrics.get("valid_loss_before"),
        "dev_loss": metrics.get("valid_loss"),
    }


def task_stage(examples: Iterable[Example]) -> Stage:
    """The unlabelled text of a task's own examples (Gururangan et al. 2020)."""
    kept = documents_of(examples)
    if not kept:
        raise AbilityError("the examples hold no text to go on learning from: leave --task-text out.")
    return Stage("task", kept)


def documents_of(examples: Iterable[Example]) -> list[list[str]]:
    """The texts of examples without their labels; an example is a document."""
    return [document for example in examples if (document := texts_of(example))]


def stages_of(out: Path) -> Path:
    """Where the stages of a result are."""
    return out.with_name(f"{out.name}.stages")


def remove_stages(out: Path) -> None:
    """Takes the stages away when the result is there."""
    shutil.rmtree(stages_of(out), ignore_errors=True)
