"""Hyperparameter search for fine-tuning: the grid of the BERT paper, and several seeds.

Each run is an artifact `DIR.runs/N` until the best one becomes the result, so an interrupted search can be resumed.
The result reports all of them.
"""

from __future__ import annotations

import itertools
import math
import shutil
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from firth.arguments import require_path
from firth.artifact.folder import Artifact, open_artifact
from firth.artifact.models import load, save
from firth.errors import OutputError, RecipeError
from firth.files import require_free
from firth.fit.checkpoints import clear_finished, is_finished
from firth.fit.finetune import finetune
from firth.fit.linear import has_no_states
from firth.fit.resolve_task import HEAD_LR, finetune_lr
from firth.nets.recipe import NetRecipe
from firth.progress import note
from firth.recipes.values import Settings, recipe_from_json, setting_list
from firth.records import CURVE, METRICS

_LR_FACTORS = (1.0, 0.6, 0.4)  # of the default: 5e-5, 3e-5 and 2e-5 for a network of 768 (Devlin et al. 2019)
_BATCHES = (16, 32)
_EPOCHS = (2, 3, 4)
_STUDENT = (
    12.706,
    4.303,
    3.182,
    2.776,
    2.571,
    2.447,
    2.365,
    2.306,
    2.262,
)  # 97.5% quantiles of the t distribution, 1 to 9 degrees of freedom


class Trial(NamedTuple):
    """A run and its metric on the dev examples."""

    settings: tuple[str, ...]
    seed: int
    folder: Path
    metric: str
    value: float


def grid(lr: float) -> list[tuple[str, ...]]:
    """Eighteen settings around a learning rate.

    >>> len(grid(5e-5)), grid(5e-5)[0]
    (18, ('learning.lr=5e-05', 'learning.batch=16', 'learning.epochs=2'))
    """
    return [
        (f"learning.lr={lr * factor:.3g}", f"learning.batch={batch}", f"learning.epochs={epochs}")
        for factor, batch, epochs in itertools.product(_LR_FACTORS, _BATCHES, _EPOCHS)
    ]


def finetune_all(
    model: str | Path,
    task: str,
    *,
    out: str | Path,
    search: bool = False,
    seeds: int = 1,
    seed: int = 0,
    settings: Settings = (),
    resume: bool = False,
    **options: Any,
) -> Any:
    """The best of all runs, saved in the folder `out`; see `finetune`.

    The settings with the best mean over seeds are chosen, and of their runs the best one.
    """
    folder, settings = require_path(out, "out", "the folder to write"), setting_list(settings)
    runs = folder.with_name(f"{folder.name}.runs")
    if is_finished(folder, resume):
        clear_finished(folder)
        shutil.rmtree(runs, ignore_errors=True)
        return load(folder)
    require_free(folder)
    if runs.exists() and not resume:
        raise OutputError(f"{runs} holds unfinished runs: continue with --resume, or choose another -o.")
    if search and has_no_states(open_artifact(Path(model))):
        raise RecipeError("a linear baseline has no learning rates to search: leave --search out.")
    choices: list[tuple[str, ...]] = [()]
    if search:
        recipe = recipe_from_json(open_artifact(Path(model)).manifest.recipe)
        network = getattr(recipe, "network", recipe)  # that of a fine-tuned model
        choices = grid(finetune_lr(network, "full") if isinstance(network, NetRecipe) else HEAD_LR)
    trials: list[Trial] = []
    for number, (choice, one) in enumerate(itertools.product(choices, range(seed, seed + seeds))):
        run_folder = runs / str(number)
        note(f"run {number + 1} of {len(choices) * seeds}: {', '.join((*choice, f'seed {one}'))}")
        finetune(
            model, task, out=run_folder, settings=[*settings, *choice], seed=one, resume=run_folder.exists(), **options
        )
        metrics = open_artifact(run_folder).manifest.metrics
        found = metrics.get("dev", {"main": "mean", "mean": metrics.get("mean")})  # of several tasks
        trials.append(Trial(choice, one, run_folder, found["main"], found[found["main"]]))
    table = [summary([one for one in trials if one.settings == choice]) for choice in choices]
    best = max(range(len(choices)), key=lambda row: (table[row]["mean"], -row))
    chosen = max((one for one in trials if one.settings == choices[best]), key=lambda one: (one.value, -one.seed))
    _adopt(open_artifact(chosen.folder), folder, table)
    shutil.rmtree(runs, ignore_errors=True)
    return load(folder, verify=False)


def summary(trials: Sequence[Trial]) -> dict[str, Any]:
    """The mean metric of some settings over seeds and, if there are several, its 95% interval."""
    values = [one.value for one in trials]
    report: dict[str, Any] = {
        "settings": list(trials[0].settings),
        "seeds": [one.seed for one in trials],
        "metric": trials[0].metric,
        "values": values,
        "mean": statistics.fmean(values),
    }
    if len(values) > 1:
        half = student(len(values)) * statistics.stdev(values) / math.sqrt(len(values))
        report["interval"] = [report["mean"] - half, report["mean"] + half]
    return report


def student(count: int) -> float:
    """Half the width of the 95% interval of a mean of `count` values, in standard errors.

    >>> student(2), student(100)
    (12.706, 1.96)
    """
    return _STUDENT[count - 2] if count - 2 < len(_STUDENT) else 1.96


def _adopt(best: Artifact, out: Path, table: list[dict[str, Any]]) -> None:
    """Save the best run as the result."""
    manifest = best.manifest
    save(
        out,
        load(best.folder),
        name=manifest.name,
        recipe=recipe_from_json(manifest.recipe),
        budget=manifest.budget,
        corpus=manifest.corpus,
        seed=manifest.seed,
        metrics={**manifest.metrics, "runs": table},
        files={name: best.read(name) for name in (METRICS, CURVE) if name in manifest.files},
    )
