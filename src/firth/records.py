"""The records of a training run: a file of metrics, and a plot of the losses."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from firth.files import writing
from firth.plots import Curve, loss_plot

METRICS = "metrics.jsonl"
CURVE = "curve.svg"
Record = dict[str, Any]


def to_lines(records: Sequence[Record]) -> bytes:
    """The records as JSON, one a line.

    >>> to_lines([{"step": 1, "loss": 2.5}])
    b'{"step": 1, "loss": 2.5}\\n'
    """
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def record_files(records: Sequence[Record], title: str) -> dict[str, bytes]:
    """The files of an artifact that show how it was trained."""
    return {METRICS: to_lines(records), CURVE: draw_curve(records, title)}


class MetricsFile:
    """The metrics file of a run in progress, for observers; the checkpoint holds the authoritative records."""

    def __init__(self, folder: Path | None = None) -> None:
        self.path = None if folder is None else folder / METRICS
        self.begun = False

    def begin(self, records: Sequence[Record]) -> None:
        """Write the records of the first checkpoint of this process: later ones will be measured again."""
        if self.path is not None and not self.begun:
            with writing(self.path):
                self.path.write_bytes(to_lines(records))
            self.begun = True

    def append(self, record: Record) -> None:
        """Add a line in one write, once there is a checkpoint: without one, nothing of a killed run is to be left."""
        if self.path is not None and self.begun:
            with writing(self.path), open(self.path, "ab", buffering=0) as file:
                file.write(to_lines([record]))


def draw_curve(records: Sequence[Record], title: str) -> bytes:
    """An SVG plot of the training and validation loss of each objective over the tokens."""
    return loss_plot(loss_curves(records, "losses"), loss_curves(records, "valid_losses"), title)


def loss_curves(records: Sequence[Record], key: str) -> list[Curve]:
    """The loss of each objective over the tokens."""
    points: dict[str, list[tuple[float, float]]] = {}
    for record in records:
        for name, loss in (record.get(key) or {}).items():
            points.setdefault(name, []).append((record["tokens"], loss))
    return [Curve(*item) for item in points.items()]
