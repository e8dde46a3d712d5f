"""Evaluation of texts generated from sources: BLEU, chrF and ROUGE-L with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from firth.apply.pairs import translate_lines
from firth.metrics.measure import measure
from firth.text.parallel import read_parallel


def evaluate_translation(
    model: Any, files: Sequence[Path], pair: str | None = None, *, beams: int = 4, seed: int = 0
) -> dict[str, Any]:
    """The metrics of the texts generated from the sources of parallel files, beside those of copying the sources."""
    pairs = list(read_parallel(*files, pair=pair).pairs())
    sources, gold = [one.source for one in pairs], [one.target for one in pairs]
    made = [line.made for line in translate_lines(model, sources, beams=beams)]
    report = measure("generate", gold, [one.text for one in made], sources=sources, seed=seed)
    unfinished = sum(not one.finished for one in made)
    return {"task": "translation", **report, "pairs": len(pairs), "beams": beams, "unfinished": unfinished}
