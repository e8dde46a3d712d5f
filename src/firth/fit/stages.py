"""Stages of further pre-training before fine-tuning, on the text of a domain and of the examples."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from firth.artifact.folder import artifact_info
from firth.errors import AbilityError
from firth.fit.adapt import adapt
from firth.fit.run import Text
from firth.progress import note
from firth.tasks.examples import Example, texts_of


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
    settings: Sequence[str] = (),
) -> tuple[Path, list[dict[str, Any]]]:
    """The model to fine-tune, and the budget and losses of each stage.

    The stages train on the text of a domain and on the unlabelled text of examples (Gururangan et al. 2020); they
    validate on the text of the dev examples. `settings` are changes of the network's recipe for them.
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
            adapt(model, text, out=folder, resume=resume and folder.exists(), settings=settings, **options)
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
