"""The card of a compressed model, and its artifact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from firth.artifact.models import save
from firth.files import draft_folder
from firth.fit.compress.card import measure_both
from firth.fit.compress.method import Compressed, CompressionJob
from firth.fit.compress.quality import EvaluationSet, Side


def measure(
    job: CompressionJob, made: Compressed, sets: Sequence[EvaluationSet], word_order: bool = False
) -> dict[str, Any]:
    """The card of a compressed model, which is saved in a temporary folder for its size and memory."""
    before, after = Side(job.model, job.pooling), Side(made.model, job.pooling)
    with draft_folder(job.out.parent) as draft:
        small = draft / "model"
        _save(small, job, made, {}, {"seconds": 0.0})
        return measure_both(before, after, [job.artifact.folder, small], sets, word_order)


def write(
    job: CompressionJob,
    made: Compressed,
    card: Mapping[str, Any],
    method: str,
    options: Mapping[str, Any],
    seconds: float,
    files: Mapping[str, bytes] | None = None,
) -> None:
    """Save a compressed model with its card, its lineage and further files."""
    manifest = job.artifact.manifest
    earlier = manifest.metrics.get("compression", {}).get("lineage", [])
    origin = {"name": manifest.name, "kind": manifest.kind, "digest": job.digest, "mb": card["before"]["mb"]}
    compression = {"method": method, "options": dict(options), "notes": list(made.notes), **card}
    compression["lineage"] = [*earlier, {**origin, "method": method}]
    _save(job.out, job, made, {"compression": compression}, {"seconds": seconds, **made.spent}, files)


def _save(
    folder: Path,
    job: CompressionJob,
    made: Compressed,
    metrics: Mapping[str, Any],
    spent: Mapping[str, float],
    files: Mapping[str, bytes] | None = None,
) -> None:
    manifest = job.artifact.manifest
    kept = {"sentences": manifest.metrics["sentences"]} if "sentences" in manifest.metrics else {}
    save(
        folder,
        made.model,
        name=made.name or manifest.name,
        recipe=made.model.recipe,
        budget={"asked": job.budget.text if job.budget else None, "spent": dict(spent)},
        corpus=manifest.corpus if made.corpus is None else made.corpus,
        seed=job.seed,
        metrics={**kept, **made.metrics, **metrics},
        files={**made.files, **(files or {})},
    )
