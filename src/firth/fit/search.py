"""Several fine-tunings side by side: the small grid that the BERT paper recommends, and several seeds.

Each run is an artifact of its own, `DIR.runs/N`, until the best one becomes the result: so a search that was
interrupted goes on where it was. The result tells of all of them.
"""

from __future__ import annotations

import itertools
import math
import shutil
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from firth.artifact.folder import Artifact, open_artifact
from firth.artifact.models import load, save
from firth.errors import OutputError, RecipeError
from firth.files import require_free
from firth.fit.curves import CURVE, METRICS
from firth.fit.finetune import finetune
from firth.fit.linear import is_plain
from firth.fit.tuning_settle import HEAD_RATE, tuning_rate
from firth.nets.recipe import NetRecipe
from firth.progress import note
from firth.recipes.values import recipe_from_json

_RATES = (1.0, 0.6, 0.4)  # times the default: 5e-5, 3e-5 and 2e-5 for a network of 768 (Devlin et al. 2019)
_BATCHES = (16, 32)
_EPOCHS = (2, 3, 4)
_STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)  # 97.5% of the t distribution, 1 to 9


class Trial(NamedTuple):
    """A run and what it reached on the dev examples."""

    settings: tuple[str, ...]
    seed: int
    folder: Path
    metric: str
    value: float


def grid(rate: float) -> list[tuple[str, ...]]:
    """Eighteen settings around a rate.

    >>> len(grid(5e-5)), grid(5e-5)[0]
    (18, ('learning.rate=5e-05', 'learning.batch=16', 'learning.epochs=2'))
    """
    return [
        (f"learning.rate={rate * factor:.3g}", f"learning.batch={batch}", f"learning.epochs={epochs}")
        for factor, batch, epochs in itertools.product(_RATES, _BATCHES, _EPOCHS)
    ]


def finetune_all(
    model: str | Path,
    task: str,
    *,
    out: str | Path,
    search: bool = False,
    seeds: int = 1,
    seed: int = 0,
    settings: Sequence[str] = (),
    resume: bool = False,
    **options: Any,
) -> Any:
    """The best of all fine-tunings that were asked for, as the artifact `out`: see `finetune`.

    The settings with the best mean over seeds win, and of their runs the best one.
    """
    folder = Path(out)
    if resume and (folder / "manifest.json").exists():
        note(f"{folder} is finished already.")
        return load(folder)
    require_free(folder)
    if runs_of(folder).exists() and not resume:
        raise OutputError(f"{runs_of(folder)} holds unfinished runs: go on with --resume, or choose another -o.")
    if search and is_plain(open_artifact(Path(model))):
        raise RecipeError("a linear baseline has no rates to search: leave --search out.")
    choices = grid(usual_rate(open_artifact(Path(model)))) if search else [()]
    trials: list[Trial] = []
    for number, (more, one) in enumerate(itertools.product(choices, range(seed, seed + seeds))):
        place = runs_of(folder) / str(number)
        note(f"run {number + 1} of {len(choices) * seeds}: {', '.join((*more, f'seed {one}'))}")
        finetune(model, task, out=place, settings=[*settings, *more], seed=one, resume=place.exists(), **options)
        found = open_artifact(place).manifest.metrics["dev"]
        metric = found["main"]
        trials.append(Trial(more, one, place, metric, found[metric]))
    table = [summary([one for one in trials if one.settings == more]) for more in choices]
    best = max(range(len(choices)), key=lambda place: (table[place]["mean"], -place))
    chosen = max((one for one in trials if one.settings == choices[best]), key=lambda one: (one.value, -one.seed))
    _adopt(open_artifact(chosen.folder), folder, table)
    shutil.rmtree(runs_of(folder), ignore_errors=True)
    return load(folder, verify=False)


def usual_rate(artifact: Artifact) -> float:
    """The rate around which to search, by what is fine-tuned."""
    recipe = recipe_from_json(artifact.manifest.recipe)
    return tuning_rate(recipe, "full") if isinstance(recipe, NetRecipe) else HEAD_RATE


def summary(trials: Sequence[Trial]) -> dict[str, Any]:
    """What some settings reached: the mean over seeds and, if there are several, its 95% interval."""
    values = [one.value for one in trials]
    told: dict[str, Any] = {
        "settings": list(trials[0].settings),
        "seeds": [one.seed for one in trials],
        "metric": trials[0].metric,
        "values": values,
        "mean": statistics.fmean(values),
    }
    if len(values) > 1:
        half = student(len(values)) * statistics.stdev(values) / math.sqrt(len(values))
        told["interval"] = [told["mean"] - half, told["mean"] + half]
    return told


def student(count: int) -> float:
    """How many standard errors of a mean of so many values 95% of the means lie within.

    >>> student(2), student(100)
    (12.706, 1.96)
    """
    return _STUDENT[count - 2] if count - 2 < len(_STUDENT) else 1.96


def runs_of(out: Path) -> Path:
    """Where the runs of a result are."""
    return out.with_name(f"{out.name}.runs")


def _adopt(best: Artifact, out: Path, table: list[dict[str, Any]]) -> None:
    """Writes the best run as the result."""
    told = best.manifest
    save(
        out,
        load(best.folder),
        name=told.name,
        recipe=recipe_from_json(told.recipe),
        budget=told.budget,
        corpus=told.corpus,
        seed=told.seed,
        metrics={**told.metrics, "runs": table},
        files={name: best.read(name) for name in (METRICS, CURVE) if name in told.files},
    )
