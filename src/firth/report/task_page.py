"""The error analysis of a fine-tuned model as one HTML page that needs nothing but itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from firth.report.charts import draw_facts, draw_table, escape, name_language, show_number, show_share
from firth.report.shell import draw_page

Report = Mapping[str, Any]
_RIGHT, _WRONG = "42,143,109", "207,106,44"  # green and orange, as in other reports
_OPEN = 20  # labels that are seen at once; the others are folded
_NAME = 24  # letters of a label that head a row or a column
_STYLE = """
.confusion { min-width: 0; }
.confusion :is(th, td) { padding: .35rem .55rem; text-align: right; white-space: nowrap; }
.confusion thead th { border: 0; }
.confusion.upright thead th:not(:first-child) { writing-mode: vertical-rl; transform: rotate(180deg);
  padding: .55rem .35rem; text-align: left; vertical-align: middle; }
.confusion tbody tr { border: 0; }
.confusion td { border: 1px solid var(--paper); min-width: 2.6rem; }
.confusion td.none { color: var(--muted); }
.meter { display: block; height: .6rem; width: 16rem; background: var(--rest); }
.meter i { display: block; height: 100%; }
.answer { display: flex; gap: .2rem 1.5rem; margin: 0 0 .3rem; }
.answer div { max-width: 50%; overflow-wrap: anywhere; }
.answer dt { display: inline; margin-right: .5em; }
.answer dd { display: inline; font-weight: 600; }
:is(h1, .subtitle, .facts dd) { overflow-wrap: anywhere; }
.row h3 small { display: block; margin: 0; overflow-wrap: anywhere; }
@media (max-width: 44rem) { .answer { display: block; } .meter { width: 7rem; } }
"""


def render_task_page(report: Report) -> str:
    """The whole page as HTML; the same report gives the same bytes."""
    sections = [
        ("numbers", "In numbers", _draw_metrics(report["metrics"])),
        ("confusion", "What is taken for what", _draw_confusion(report)),
        ("labels", "Label by label", _draw_labels(report["labels"])),
        ("errors", "Where it errs", _draw_errors(report)),
        ("length", "By length", _draw_parts(report, "by_length")),
        ("rare", "By rare words", _draw_parts(report, "by_rare")),
        ("origin", "What was measured", _draw_origin(report)),
    ]
    title = f"The errors of {report['model']}"
    header = (
        f"<h1>{escape(title)}</h1>"
        f'<p class="subtitle">{escape(report["task"])} on {escape(report["file"])}</p>'
        f'<p class="lede">{" ".join(_tell(report))}</p>'
    )
    return draw_page(title, header, sections, _STYLE)


def _tell(report: Report) -> Iterator[str]:
    """What was found, in plain words."""
    metrics = report["metrics"]
    main, baseline = metrics["main"], metrics["baseline"]
    yield f"The model was given {show_number(metrics['examples'])} examples whose answers are known."
    yield f"Its {_spoken(main)} is <b>{show_number(metrics[main], 3)}</b> ({_interval(metrics[f'{main}_interval'])});"
    yield f"that of a baseline that does not look ({escape(baseline['kind'])}) is {show_number(baseline[main], 3)}."
    if report["truncated"]:
        yield f"{show_number(report['truncated'])} texts were longer than it can read, and were cut or read in parts."


def _spoken(metric: str) -> str:
    return escape(metric.replace("_", " "))


def _interval(bounds: Sequence[float] | None) -> str:
    return " to ".join(show_number(one, 3) for one in bounds) if bounds else "–"


def _draw_metrics(metrics: Report) -> str:
    names = [name for name in metrics if f"{name}_interval" in metrics]
    names.sort(key=lambda name: name != metrics["main"])
    rows = [
        [
            f"<b>{_spoken(name)}</b>" if name == metrics["main"] else _spoken(name),
            show_number(metrics[name], 3),
            _interval(metrics[f"{name}_interval"]),
            show_number(metrics["baseline"].get(name), 3),
        ]
        for name in names
    ]
    heads = ["Metric", "Value", "95% interval", f"Baseline: {escape(metrics['baseline']['kind'])}"]
    told = "<p>More is better. The interval is what 95% of resamples of the examples lie between.</p>"
    parts = [told, draw_table(heads, rows, "numbers brief")]
    answerable = (("has_answer", "with an answer"), ("no_answer", "without"))
    split = [
        [f"Questions {name}"]
        + [show_number(metrics[key][one], digits) for one, digits in (("f1", 3), ("exact_match", 3), ("examples", 0))]
        for key, name in answerable
        if key in metrics
    ]
    if split:
        parts.append(draw_table(["", "f1", "exact match", "Examples"], split, "numbers brief"))
    return "".join(parts)


def _draw_confusion(report: Report) -> str:
    """A table whose cells are the darker the larger their share of the row; what is right is green."""
    found = report["confusion"]
    if not found:
        return ""
    counts, others = found["counts"], found["others"]
    labels = [*found["labels"], *[f"{others} others"] * bool(others)]
    upright = " upright" if len(labels) > 8 or sum(len(_short(label)) for label in labels) > 60 else ""
    head = "".join(f'<th scope="col" title="{escape(label)}">{escape(_short(label))}</th>' for label in labels)
    body = "".join(
        f'<tr><th scope="row" title="{escape(label)}">{escape(_short(label))}</th>'
        + "".join(_cell(count, sum(row), place == number) for number, count in enumerate(row))
        + "</tr>"
        for place, (label, row) in enumerate(zip(labels, counts, strict=True))
    )
    rest = f" The {len(found['labels'])} most frequent labels are shown, and all others together." * bool(others)
    return (
        "<p>Rows are what is right, columns what the model said; the most frequent come first. The stronger the "
        f"colour, the larger the share of the row; what is right is green.{rest}</p>"
        f'<div class="scroll" tabindex="0"><table class="confusion{upright}">'
        f"<thead><tr><th>right ╲ said</th>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _cell(count: int, whole: int, right: bool) -> str:
    if not count:
        return '<td class="none">·</td>'
    share = count / whole
    colour = f"rgba({_RIGHT if right else _WRONG},{0.08 + 0.62 * share:.2f})"
    return f'<td style="background:{colour}" title="{show_share(share)}">{show_number(count)}</td>'


def _short(label: str) -> str:
    return label if len(label) <= _NAME else f"{label[: _NAME - 1]}…"


def _draw_labels(table: Report | None) -> str:
    if not table:
        return ""
    ordered = sorted(table["by_label"].items(), key=lambda item: (-item[1]["support"], str(item[0])))
    heads = ["Label", "Right", "Said", "Precision", "Recall", "F1"]
    rows = [
        [escape(label), show_number(one["support"]), show_number(one["predicted"])]
        + [show_number(one[name], 3) for name in ("precision", "recall", "f1")]
        for label, one in ordered
    ]
    told = (
        "<p>Precision: of the times that the model said the label, the share that was right. Recall: of the times that "
        "the label was right, the share that the model found. F1 is their harmonic mean.</p>"
    )
    first, rest = rows[:_OPEN], rows[_OPEN:]
    folded = f"<details><summary>{len(rest)} more</summary>{draw_table(heads, rest, 'numbers brief')}</details>"
    return told + draw_table(heads, first, "numbers brief") + folded * bool(rest)


def _draw_errors(report: Report) -> str:
    errors = report["errors"]
    if not errors:
        return "<p>All answers are right.</p>"
    asked = f"{show_number(report['wrong'])} of {show_number(report['metrics']['examples'])} answers"
    if report["score"]["best"] == 0:
        told = "<p>These answers are furthest from the right number.</p>"
    elif "probability" in errors[0]:
        told = f"<p>Wrong: {asked}. First come those that the model was surest of.</p>"
    else:
        told = f"<p>Not wholly right: {asked}. First come those with the worst {escape(report['score']['name'])}.</p>"
    return told + "".join(_draw_error(error) for error in errors)


def _draw_error(error: Report) -> str:
    first = show_share(error["probability"]) if "probability" in error else show_number(error["score"], 3)
    sides = "".join(
        f"<div><dt>{name}</dt><dd{name_language(told)}>{escape(told) or '<small>nothing</small>'}</dd></div>"
        for name, told in (("Right", error["gold"]), ("Said", error["predicted"]))
    )
    text = f"<blockquote{name_language(error['text'])}>{escape(error['text'].strip())}</blockquote>"
    return (
        f'<div class="row"><h3>{first}<small>{escape(error["where"])}</small></h3>'
        f'<div>{text}<dl class="answer">{sides}</dl></div></div>'
    )


def _draw_parts(report: Report, key: str) -> str:
    """A table with a bar for each group of examples."""
    score, parts = report["score"], report[key]
    top = score["best"] or max(part["score"] for part in parts) or 1.0
    rows = [
        [
            _span_of(part, key),
            show_number(part["examples"]),
            show_number(part["score"], 3),
            f'<span class="meter"><i class="c0" style="width:{100 * part["score"] / top:.1f}%"></i></span>',
        ]
        for part in parts
    ]
    what = {
        "by_length": "Length in the model's tokens.",
        "by_rare": "Share of the words that the model's tokenizer cuts into several pieces or does not know; Chinese "
        "words count if there are characters in them that it does not know.",
    }
    order = "less is better" if score["best"] == 0 else "more is better"
    told = (
        f"<p>{what[key]} The number is the mean {escape(score['name'])}: {order}; of all examples it is "
        f"{show_number(score['mean'], 3)}. Where there are few examples, it says little.</p>"
    )
    heads = ["Tokens" if key == "by_length" else "Rare words", "Examples", "Mean", ""]
    return told + draw_table(heads, rows, "numbers brief")


def _span_of(part: Report, key: str) -> str:
    """A group in words; rare words are counted in per cent, rounded up."""
    low, below = part["from"], part["below"]
    if key == "by_length":
        return f"{low} or more" if below is None else f"{low} to {below - 1}"
    if below is None:
        return f"more than {low - 1}\u00a0%"
    return "none" if low == 0 else f"up to {below - 1}\u00a0%"


def _draw_origin(report: Report) -> str:
    facts = [
        ("Model", escape(report["model"])),
        ("Examples", escape(report["file"])),
        ("Their SHA-256", f"<code>{escape(report['digest'][:16])}</code>" if report["digest"] else "–"),
        ("Seed of the intervals", show_number(report["seed"])),
        ("Firth", escape(report["version"])),
    ]
    return draw_facts(facts)
