"""The report as one self-contained HTML page: no script, font or image is loaded from anywhere.

A section is left out where the report has nothing for it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from firth.plots import Curve, learning_curves
from firth.report.charts import (
    NARROW,
    WIDE,
    Bar,
    bar_figure,
    colour_families,
    finite_first,
    group_tokens,
    largest_fractions,
)
from firth.report.map import WordMap
from firth.report.rendering import format_bytes, format_number, render

Report = Mapping[str, Any]
_OPEN_SAMPLES = 8  # runs whose samples are shown; the others are folded
_SECTIONS = {
    "learned": "What the models learned",
    "bits": "Bits per byte",
    "runs": "Results",
    "oracle": "Distance to the entropy",
    "vectors": "Word vectors",
    "nets": "Training of networks",
    "tasks": "Fine-tuning",
    "samples": "Generated text",
    "tokenizers": "Tokenizers",
    "corpus": "Corpus",
    "provenance": "Provenance",
}


def render_page(report: Report) -> str:
    """The whole page as HTML; the same report gives the same bytes.

    >>> page = render_page({"title": "Tea & biscuits"})
    >>> "<h1>Tea &amp; biscuits</h1>" in page, "<section" in page
    (True, False)
    """
    runs = _best_first(report.get("runs", ()))
    scored = [run for run in runs if run.get("bits_per_byte") is not None]
    sampled = [run for run in runs if run.get("samples")]
    recorded = [run for run in runs if run.keys() & {"recipe", "settings", "budget", "digest"}]
    colours = colour_families(run["family"] for run in runs if "family" in run)
    content = {name: report.get(name) for name in _SECTIONS} | {"bits": scored, "runs": runs, "samples": sampled}
    content |= {name: (report.get(name) or {}).get("runs") for name in ("vectors", "nets")}
    content["learned"] = learned = (report.get("oracle") or {}).get("learned")
    content["provenance"] = recorded or report.get("versions") or report.get("machine")
    corpus, sizes = report.get("corpus") or {}, {run.get("bytes") for run in runs}
    return render(
        "report.html.j2",
        report=report,
        title=report["title"],
        sections=[(name, title) for name, title in _SECTIONS.items() if content[name]],
        runs=runs,
        scored=scored,
        learned=_group_learned(learned or ()),
        best=scored[0] if scored and math.isfinite(scored[0]["bits_per_byte"]) else None,
        colours=colours,
        bits_chart=_draw_bits(scored, colours) if scored else "",
        columns=list(_fill_columns(runs)),
        text_bytes=sizes.pop() if len(sizes) == 1 else None,
        **(_compare_with_entropy(report["oracle"], runs) if content["oracle"] else {}),
        **(_describe_vectors(report["vectors"]) if content["vectors"] else {}),
        curves_chart=_draw_curves(content["nets"] or ()),
        sampled=sampled,
        open_samples=_OPEN_SAMPLES,
        token_examples=_examples_by_text(report.get("tokenizers") or ()),
        encodings=Counter(corpus.get("encodings", {}).values()),
        scripts=largest_fractions(corpus.get("scripts") or {}),
        languages=largest_fractions(corpus.get("languages") or {}),
        recorded=recorded,
    )


_ABILITIES = {"neighbours": "Nearest words", "fills": "Most probable words for the mask", "generates": "Generated"}


def _group_learned(learned: Iterable[Report]) -> list[dict[str, Any]]:
    """The models with what each was given and what it found."""
    groups: dict[tuple[str, str], dict[str, Any]] = {}
    for one in learned:
        title, name = _ABILITIES[one["ability"]], one["name"]
        group = groups.setdefault((title, name), {"title": title, "name": name, "seconds": one["seconds"], "rows": []})
        group["rows"].append((one["given"], one["found"]))
    return list(groups.values())


def _best_first(runs: Iterable[Report]) -> list[Report]:
    return sorted(runs, key=lambda run: (finite_first(run.get("bits_per_byte")), run["name"]))


def _draw_bits(runs: Iterable[Report], colours: Mapping[str, int], *line: Any) -> Markup:
    bars = [Bar(run["name"], run["bits_per_byte"], colours.get(run.get("family", ""), 0)) for run in runs]
    return bar_figure(bars, *line)


class _Column(NamedTuple):
    """A column of the table of runs."""

    key: str
    title: str
    note: str
    digits: int = 0
    is_lower_better: bool = False
    compared_by: tuple[str, ...] = ()
    """Keys whose values must be the same in all runs for this column to be comparable."""


_COLUMNS = (
    _Column("bits_per_byte", "Bits / byte", "Compares all models. The characters of unknown words are charged too, so "
            "that a small vocabulary gains nothing.", 3, True),
    _Column("perplexity", "Perplexity", "Exponential of the mean loss per token. Comparable only between models with "
            "the same vocabulary.", 1, True, ("tokenizer", "vocabulary")),
    _Column("word_perplexity", "Word perplexity", "The same per word, whatever the tokens. Comparable only with equal "
            "numbers of unknown words, which cost little here.", 1, True, ("oov",)),
    _Column("oov", "Unknown", "Out-of-vocabulary words of the held-out text.", 0, True),
    _Column("vocabulary", "Vocabulary", "Number of distinct tokens."),
    _Column("tokens", "Tokens", "Predictions made on the held-out text."),
    _Column("size", "Size", "Bytes of the saved model.", 0, True),
)  # fmt: skip


def _fill_columns(runs: Sequence[Report]) -> Iterator[dict[str, Any]]:
    """The columns that some run has a value for, with a cell for each run: its text, and whether it is the best."""
    for column in _COLUMNS:
        if not any(column.key in run for run in runs):
            continue
        values = [run.get(column.key) for run in runs]
        ordered = sorted(values, key=finite_first)
        comparable = all(len({run.get(key) for run in runs}) == 1 for key in column.compared_by)
        best = ordered[0] if column.is_lower_better and comparable and ordered[0] != ordered[-1] else None
        shown = [
            format_bytes(value) if column.key == "size" else format_number(value, column.digits) for value in values
        ]
        yield column._asdict() | {
            "cells": [(text, value is not None and value == best) for text, value in zip(shown, values, strict=True)]
        }


def _compare_with_entropy(oracle: Report, others: Sequence[Report]) -> dict[str, Any]:
    entropy, runs = oracle["entropy_per_byte"], _best_first(oracle.get("runs", ()))
    families = {run["name"]: run["family"] for run in [*others, *runs] if "family" in run}
    coloured = [{"family": families.get(run["name"], ""), **run} for run in runs]
    gap = runs[0]["bits_per_byte"] - entropy if runs else math.nan
    return {
        "oracle_best": runs[0]["name"] if runs else "",
        "oracle_gap": gap if math.isfinite(gap) else None,
        "oracle_chart": _draw_bits(coloured, colour_families(families.values()), entropy, "entropy") if runs else "",
    }


def _describe_vectors(vectors: Report) -> dict[str, Any]:
    drawn = vectors.get("map")
    return {
        "vector_words": sorted({word for run in vectors["runs"] for word in run["neighbours"]}),
        "map_chart": WordMap.from_json(drawn).figure() if drawn else "",
    }


def _draw_curves(runs: Iterable[Report]) -> Markup | str:
    curves = [Curve(run["name"], [(tokens, loss) for tokens, loss in run["curve"]]) for run in runs]
    wide, narrow = learning_curves(curves, WIDE, 340), learning_curves(curves, NARROW, 300)
    return render("figure.html.j2", wide=wide, narrow=narrow) if wide else ""


def _examples_by_text(tokenizers: Iterable[Report]) -> dict[str, list[dict[str, Any]]]:
    """For each example text, how every tokenizer splits it."""
    examples: dict[str, list[dict[str, Any]]] = {}
    for tokenizer in tokenizers:
        for example in tokenizer.get("examples", ()):
            words = group_tokens(example["tokens"], example.get("word_starts", ()))
            row = {"name": tokenizer["name"], "count": len(example["tokens"]), "words": words}
            examples.setdefault(example["text"], []).append(row)
    return examples
