"""auto: a search over the methods for the best model within limits of size and time, with a picture of all of them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from firth.artifact.folder import artifact_info
from firth.artifact.models import load
from firth.counts.ngram import NgramModel
from firth.errors import AbilityError, FirthError
from firth.fit.compress.card import CompressionError, options_json, refusal
from firth.fit.compress.method import Compressed, CompressionJob
from firth.fit.compress.methods import METHODS, find_method, method_options
from firth.fit.compress.quality import EvaluationSet, TaskSet
from firth.fit.compress.saving import measure, write
from firth.plots import FrontPoint, front_plot
from firth.progress import note
from firth.vectors.model import VectorModel

FRONT = "front.svg"
"""The file of the picture in the folder of the result."""


class Candidate(NamedTuple):
    """A method with its settings."""

    method: str
    settings: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join((self.method, *self.settings))


class Tried(NamedTuple):
    """A candidate, the folder of its model and its card."""

    candidate: Candidate
    folder: Path
    card: Mapping[str, Any]


def candidates(job: CompressionJob, sets: Sequence[EvaluationSet]) -> Iterator[Candidate]:
    """The candidates that fit the model and what was given, those that take little time first."""
    model = job.model
    if isinstance(model, NgramModel):
        for threshold in ("0", "1e-8", "1e-7", "1e-6"):
            yield Candidate("quantise", (f"prune={threshold}",))
        return
    if isinstance(model, VectorModel):
        yield from (Candidate("quantise"), Candidate("quantise", ("vectors=product",)))
        return
    layers = getattr(model, "base", model).recipe.encoder.layers
    yield Candidate("quantise")
    if all(one.metric in ("spearman", "agreement") and not isinstance(one, TaskSet) for one in sets):
        yield from (Candidate("static"), Candidate("static", ("dimension=128",)))
    for share in (2, 4):
        if layers // share:
            yield Candidate("distil", (f"layers={layers // share}",))
    for fraction in ("0.25", "0.5"):
        yield Candidate("prune", (f"heads={fraction}", f"units={fraction}"))


def search(
    job: CompressionJob,
    sets: Sequence[EvaluationSet],
    at_most_loss: float | None,
    max_mb: float | None,
    max_ms: float | None,
) -> None:
    """Write the candidate with the highest quality among those within the limits; of equal ones the smallest."""
    started, tried = time.monotonic(), []
    for number, candidate in enumerate(candidates(job, sets), 1):
        found = _try(replace(job, out=job.work / f"{number}-{candidate.method}"), candidate, sets)
        tried += [] if found is None else [found]
    if not tried:
        raise AbilityError(
            f"no method fits a {type(job.model).__name__} and what was given: {', '.join(METHODS)} need --corpus, or "
            "--train and --dev."
        )
    limits: dict[str, Any] = {"max_mb": max_mb, "max_ms": max_ms}
    reasons = [refusal(one.card, at_most_loss, **limits) for one in tried]
    good = [one for one, reason in zip(tried, reasons, strict=True) if not reason]
    if not good:
        closest = min(zip(tried, reasons, strict=True), key=lambda pair: pair[0].card["loss"])
        raise CompressionError(
            f"nothing is written: of {len(tried)} candidates none is within the limits; with {closest[0].candidate}, "
            f"{closest[1]}."
        )
    best = min(good, key=lambda one: (one.card["loss"], one.card["after"]["mb"]))
    picture = front_plot(front(tried), str(best.card["metric"]), f"{job.artifact.manifest.name}: compression")
    manifest = artifact_info(best.folder)
    compression = manifest["metrics"]["compression"]
    made = Compressed(
        model=load(best.folder, verify=False),
        name=manifest["name"],
        notes=[f"{best.candidate} was the best of {len(tried)} candidates within the limits", *compression["notes"]],
        corpus=manifest["corpus"],
        spent={name: value for name, value in manifest["budget"]["spent"].items() if name != "seconds"},
    )
    others = {str(one.candidate): _short(one.card) for one in tried}
    card = {**best.card, "tried": others}
    write(job, made, card, best.candidate.method, compression["options"], time.monotonic() - started, {FRONT: picture})


def _try(job: CompressionJob, candidate: Candidate, sets: Sequence[EvaluationSet]) -> Tried | None:
    """A candidate after its run, or after an earlier one that was interrupted; None if it does not fit the model."""
    if not (job.out / "manifest.json").exists():
        method = find_method(candidate.method, job.model)
        options = method_options(method, candidate.settings)
        if reason := method.refusal(job):
            note(f"{candidate}: {reason}")
            return None
        note(f"trying {candidate}")
        started = time.monotonic()
        try:
            made = method.run(job, options)
            card = measure(job, made, sets, method.only_embeds)
        except FirthError as error:
            note(f"{candidate}: {error.message}")
            return None
        write(job, made, card, method.name, options_json(options), time.monotonic() - started)
    return Tried(candidate, job.out, _card_of(job.out))


def _card_of(folder: Path) -> dict[str, Any]:
    found = artifact_info(folder)["metrics"]["compression"]
    return {name: value for name, value in found.items() if name not in ("method", "options", "notes", "lineage")}


def _short(card: Mapping[str, Any]) -> dict[str, float]:
    return {name: card["after"][name] for name in ("mb", "ms", "texts_per_second", "quality")}


def front(tried: Sequence[Tried]) -> list[FrontPoint]:
    """The original and all candidates; the best are those to which no other is at least equal in every way."""
    sides = [("original", tried[0].card["before"]), *((str(one.candidate), one.card["after"]) for one in tried)]
    sign = -1.0 if tried[0].card["metric"] == "bits_per_byte" else 1.0
    keys = [(-side["mb"], side["texts_per_second"], sign * side["quality"]) for _, side in sides]
    return [
        FrontPoint(name, side["mb"], side["texts_per_second"], side["quality"], is_best(own, keys))
        for (name, side), own in zip(sides, keys, strict=True)
    ]


def is_best(own: tuple[float, ...], keys: Sequence[tuple[float, ...]]) -> bool:
    """Whether no other key is at least as large everywhere and larger somewhere.

    >>> is_best((1, 2), [(1, 2), (2, 1)]), is_best((1, 1), [(1, 1), (1, 2)])
    (True, False)
    """
    return not any(other != own and all(a >= b for a, b in zip(other, own, strict=True)) for other in keys)
