"""The part of the report that shows fine-tuning: the same tasks over vectors, a new network and a trained one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from firth.report.charts import draw_table, escape, show_number, show_time


def draw_tasks(report: Mapping[str, Any]) -> str:
    """A table, where the report has fine-tuned models."""
    found = report.get("tasks")
    if not found:
        return ""
    told = (
        f"<p>Each model learns {show_number(found[0]['examples'])} labelled examples and is measured on others. "
        "The interval is what 95% of resamples lie between; the baseline always gives the most frequent label. "
        "A network with new parameters shows what pre-training was worth.</p>"
    )
    rows = [
        [
            escape(one["about"]),
            escape(one["model"] + (", new parameters" if one["random"] else "")),
            escape(one["metric"].replace("_", " ")),
            f"{one['value']:.3f}",
            f"{one['interval'][0]:.3f} – {one['interval'][1]:.3f}",
            f"{one['baseline']:.3f}",
            show_time(one["seconds"]),
        ]
        for one in found
    ]
    heads = ["Task", "Model", "Metric", "Value", "95% interval", "Baseline", "Time"]
    return told + draw_table(heads, rows, "numbers brief")
