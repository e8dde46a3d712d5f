"""Summaries: how models, tokenizers, token stores and corpora print, in consoles and in notebooks."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any

_RECIPE_FIELDS = (
    "task", "smoothing", "order", "architecture", "matrix", "weighting", "dimension", "window", "names",
    "encoder.kind", "encoder.layers", "encoder.width", "network.encoder.kind", "network.encoder.layers",
    "network.encoder.width", "base.smoothing", "base.order", "base.dimension", "source",
)  # fmt: skip
_RENAMED = {"names": "objectives", "encoder.kind": "encoder", "network.encoder.kind": "encoder"}
_LONGEST = 60  # characters of a value
_METHODS = (
    "score", "generate", "next", "explain", "fill", "similar", "vector", "analogy", "embed", "layers", "predict",
)  # fmt: skip


class Summarised:
    """A base class of objects that print as a line, and in notebooks as a table, of what `summary` returns.

    >>> class Corpora(Summarised):
    ...     def summary(self) -> dict[str, Any]:
    ...         return {"files": 1200, "layout": "lines"}
    >>> Corpora()
    <Corpora: files 1,200, layout lines>
    """

    def summary(self) -> dict[str, Any]:
        """What this is, by name, the most important first."""
        return {}

    def __repr__(self) -> str:
        facts = ", ".join(f"{name} {format_fact(value)}" for name, value in self.summary().items())
        return f"<{type(self).__name__}: {facts}>" if facts else f"<{type(self).__name__}>"

    def _repr_html_(self) -> str:
        return html_table(type(self).__name__, self.summary())


class SummarisedModel(Summarised):
    """A base class of models: their summary names the recipe, the vocabulary and the abilities."""

    def summary(self) -> dict[str, Any]:
        """The main fields of the recipe, the number of tokens or labels, and the methods that the model has."""
        found = recipe_facts(getattr(self, "recipe", None))
        if (labels := getattr(self, "labels", None)) is not None:
            found["labels"] = len(labels)
        if (tokenizer := getattr(self, "tokenizer", None)) is not None:
            found |= {"tokenizer": tokenizer.recipe.model, "vocabulary": len(tokenizer)}
        methods = [name for name in _METHODS if hasattr(type(self), name)]
        return found | ({"methods": ", ".join(methods)} if methods else {})


def recipe_facts(recipe: Any) -> dict[str, Any]:
    """The fields of a recipe that tell most about a model, by the last part of their names."""
    found = {}
    for field in _RECIPE_FIELDS:
        value = recipe
        for part in field.split("."):
            value = getattr(value, part, None)
        name = _RENAMED.get(field) or field.rpartition(".")[2]
        if value is not None and name not in found:
            found[name] = "+".join(value) if isinstance(value, tuple) else value
    return found


def format_fact(value: Any) -> str:
    """A value for people: digits in groups of three, long texts cut.

    >>> format_fact(1234567), format_fact(0.123456)
    ('1,234,567', '0.1235')
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def html_table(title: str, facts: Mapping[str, Any]) -> str:
    """Names and values as a table for notebooks.

    >>> html_table("Score", {"tokens": 3})
    '<table><caption><b>Score</b></caption><tr><th>tokens</th><td>3</td></tr></table>'
    """
    rows = "".join(
        f"<tr><th>{html.escape(name)}</th><td>{html.escape(format_fact(value))}</td></tr>"
        for name, value in facts.items()
    )
    return f"<table><caption><b>{html.escape(title)}</b></caption>{rows}</table>"
