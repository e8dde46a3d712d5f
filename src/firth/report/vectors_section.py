"""The part of the report that shows vectors: neighbours of some words, and a map."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from firth.report.charts import draw_table, escape, show_number
from firth.report.map import WordMap


def draw_vectors(report: Mapping[str, Any]) -> str:
    """Neighbours by model, and the map, where the report has them."""
    found = report.get("vectors")
    if not found or not found["runs"]:
        return ""
    words = sorted({word for run in found["runs"] for word in run["neighbours"]})
    facts = [
        [escape(run["name"]), show_number(run["vocabulary"]), show_number(run["dimension"]), f"{run['seconds']:.1f}"]
        for run in found["runs"]
    ]
    rows = [[f"<b>{escape(word)}</b>", *(_near(run, word) for run in found["runs"])] for word in words]
    return (
        "<p>Words as vectors: which words are nearest, by the cosine of the angle between them.</p>"
        + draw_table(["recipe", "words", "dimensions", "seconds"], facts)
        + draw_table(["word", *(escape(run["name"]) for run in found["runs"])], rows)
        + _map(found)
    )


def _near(run: Mapping[str, Any], word: str) -> str:
    near = run["neighbours"].get(word, [])
    return ", ".join(f"{escape(other)}&nbsp;<small>{score:.2f}</small>" for other, score in near) or "no vector"


def _map(found: Mapping[str, Any]) -> str:
    drawn = found.get("map")
    if not drawn:
        return ""
    figure = WordMap(drawn["words"], np.array(drawn["places"]), drawn["groups"]).figure()
    name = escape(found["runs"][0]["name"])
    return f"<p>The most frequent words by {name}: those that keep the same company lie together (t-SNE).</p>{figure}"
