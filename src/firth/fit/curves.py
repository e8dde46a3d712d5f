"""What a run has measured: a line of JSON for each moment, and a picture of how the loss fell."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from firth.files import writing

METRICS = "metrics.jsonl"
CURVE = "curve.svg"
Record = dict[str, Any]


def to_lines(records: Sequence[Record]) -> bytes:
    """The records as JSON, one a line.

    >>> to_lines([{"step": 1, "loss": 2.5}])
    b'{"step": 1, "loss": 2.5}\\n'
    """
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


class MetricsFile:
    """The file of a run that is going on, for whoever wants to look: what counts is kept with the checkpoint."""

    def __init__(self, folder: Path | None) -> None:
        self.path = None if folder is None else folder / METRICS

    def begin(self, records: Sequence[Record]) -> None:
        """Puts back what was known when the state was kept: what came after it will come again."""
        if self.path is not None:
            with writing(self.path):
                self.path.write_bytes(to_lines(records))

    def append(self, record: Record) -> None:
        """Adds a line, in one piece."""
        if self.path is not None:
            with writing(self.path), open(self.path, "ab", buffering=0) as file:
                file.write(to_lines([record]))


def draw_curve(records: Sequence[Record], title: str) -> bytes:
    """The loss of each objective over the tokens that were read, in training and in validation, as SVG."""
    import matplotlib
    from matplotlib.figure import Figure

    trained, valid = _lines(records, "losses"), _lines(records, "valid_losses")
    with matplotlib.rc_context({"svg.hashsalt": "firth", "svg.fonttype": "none", "text.parse_math": False}):
        figure = Figure(figsize=(8, 4.5))
        axes = figure.add_subplot()
        for number, (name, points) in enumerate(trained.items()):
            axes.plot(*zip(*points, strict=True), color=f"C{number}", label=name)
        for name, points in valid.items():
            colour = f"C{list(trained).index(name) if name in trained else 9}"
            axes.plot(*zip(*points, strict=True), color=colour, linestyle="--", marker=".", label=f"{name}, held out")
        axes.set(title=title, xlabel="tokens read", ylabel="loss (nats for each prediction)")
        axes.grid(alpha=0.3)
        if trained or valid:
            axes.legend()
        drawn = io.BytesIO()
        figure.savefig(drawn, format="svg", metadata={"Date": None, "Creator": None})
    return drawn.getvalue()


def _lines(records: Sequence[Record], key: str) -> dict[str, list[tuple[float, float]]]:
    """Objective -> tokens read and the loss there."""
    found: dict[str, list[tuple[float, float]]] = {}
    for record in records:
        losses: Mapping[str, float] = record.get(key) or {}
        for name, loss in losses.items():
            found.setdefault(name, []).append((record["tokens"], loss))
    return found
