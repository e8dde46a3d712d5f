"""The last part of the demo: what was pre-trained is fine-tuned on the built-in labelled tasks."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from firth.artifact.folder import artifact_info
from firth.fit.finetune import finetune
from firth.tasks.builtin import PARTS, builtin_examples
from firth.tasks.examples import texts_of


@dataclass(frozen=True)
class Tuning:
    """One thing that the demo fine-tunes."""

    task: str
    model: str
    """The folder of what was trained before."""
    random: bool = False
    """The same network with new parameters: what was pre-training worth?"""
    settings: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.model}-{self.task}" + "-random" * self.random


ABOUT = {
    "classify": "Which package is a text from?",
    "pair": "Does a summary belong to a text?",
    "tag": "Which words are names of parameters?",
}
PASSES = {"classify": 4, "pair": 3, "tag": 5}
"""Over the examples: as many as there is time for."""
TUNINGS = tuple(
    Tuning(task, model, random, (f"learning.epochs={PASSES[task]}", "learning.batch=16"))
    for task in ABOUT
    for model, random in (("skipgram", False), ("bert-wordpiece", True), ("bert-wordpiece", False))
)
EXAMPLES = (1500, 400)
"""To learn from, and to measure on, at most."""
LONGEST = 300
"""Characters of an example: short ones are learnt faster."""


def fine_tune(out: Path, threads: int | None, tell: Callable[[str], None]) -> list[dict[str, Any]]:
    """Fine-tunes and measures; a row for each."""
    rows = []
    examples: dict[str, list[list[Any]]] = {}
    for one in TUNINGS:
        if one.task not in examples:
            examples[one.task] = [_short(one.task, part)[:most] for part, most in zip(PARTS, EXAMPLES, strict=True)]
        train, dev = examples[one.task]
        rows.append(_row(one, train, dev, out, threads))
        tell(f"{one.name:<28} {rows[-1]['metric']} {rows[-1]['value']:.3f}  ({rows[-1]['seconds']:.0f} s)")
    return rows


def _short(task: str, part: str) -> list[Any]:
    return [one for one in builtin_examples(task, part) if sum(map(len, texts_of(one))) <= LONGEST]


def _row(one: Tuning, train: list[Any], dev: list[Any], out: Path, threads: int | None) -> dict[str, Any]:
    started = time.monotonic()
    known = {label for example in train for label in (getattr(example, "labels", None) or ())}
    dev = [example for example in dev if known.issuperset(getattr(example, "labels", None) or ())]
    finetune(
        out / "models" / one.model,
        one.task,
        train=train,
        dev=dev,
        out=out / "models" / one.name,
        random=one.random,
        settings=one.settings,
        threads=threads,
    )
    found = artifact_info(out / "models" / one.name)["metrics"]["dev"]
    metric = found["main"]
    return {
        "task": one.task,
        "about": ABOUT[one.task],
        "model": one.model,
        "random": one.random,
        "metric": metric,
        "value": found[metric],
        "interval": found[f"{metric}_interval"],
        "baseline": found["baseline"][metric],
        "examples": len(train),
        "seconds": time.monotonic() - started,
    }
