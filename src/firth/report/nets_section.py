"""The part of the report that shows networks: how they learnt, and a word in two contexts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from firth.report.charts import draw_table, escape, show_number, show_time
from firth.report.curves import Curve, curve_figure


def draw_nets(report: Mapping[str, Any]) -> str:
    """Learning curves, facts, and nearest occurrences, where the report has them."""
    found = report.get("nets")
    if not found or not found["runs"]:
        return ""
    facts = [
        [
            escape(run["name"]),
            show_number(run["parameters"]),
            show_number(run["tokens"]),
            show_number(run["tokens"] / run["seconds"]) if run["seconds"] else "–",
            show_time(run["seconds"]),
        ]
        for run in found["runs"]
    ]
    figure = curve_figure([Curve(run["name"], [(x, y) for x, y in run["curve"]]) for run in found["runs"]])
    told = (
        "<p>Networks learn step by step. The loss is what each is taught by, in nats for each prediction: a masked "
        "model predicts hidden tokens, ELMo from both sides, the others the next token, so each curve compares with "
        "itself only.</p>"
    )
    heads = ["Recipe", "Parameters", "Tokens read", "Tokens a second", "Time"]
    return told + figure + draw_table(heads, facts, "numbers brief") + "".join(map(_contexts, found["contexts"]))


def _contexts(found: Mapping[str, Any]) -> str:
    """A word in different contexts, and the occurrences of words nearest to each."""
    rows = [
        f'<div class="row"><h3>{_marked(one["context"], found["word"])}</h3><div>{_near(one)}</div></div>'
        for one in found["rows"]
    ]
    return (
        f"<h3>“{escape(found['word'])}” in context, by {escape(found['name'])}</h3><p>A static vector is the same "
        "wherever a word stands. Here each occurrence has its own; these are the nearest in held-out text.</p>"
        + "".join(rows)
    )


def _near(row: Mapping[str, Any]) -> str:
    return "".join(
        f"<blockquote>{_marked(near['context'], near['word'])} <small>{near['score']:.2f}</small></blockquote>"
        for near in row["neighbours"]
    )


def _marked(text: str, word: str) -> str:
    """The text with the first place of the word in bold."""
    before, found, after = text.partition(word)
    return f"{escape(before)}<b>{escape(found)}</b>{escape(after)}" if found else escape(text)
