"""The report as one HTML page that needs nothing but itself: no script, no font, no picture from elsewhere.

Every section is a function from the report to HTML and is left out where the report has nothing for it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from firth.report import charts
from firth.report.charts import Bar, draw_facts, draw_table, escape, rank, show_number, show_share, show_size
from firth.report.nets_section import draw_nets
from firth.report.shell import draw_page
from firth.report.tasks_section import draw_tasks
from firth.report.vectors_section import draw_vectors

Report = Mapping[str, Any]
_OPEN_SAMPLES = 8  # runs whose samples are seen at once; those of the others are folded


def render_page(report: Report) -> str:
    """The whole page as HTML; the same report gives the same bytes.

    >>> page = render_page({"title": "Tea & biscuits"})
    >>> "<h1>Tea &amp; biscuits</h1>" in page, "<section" in page
    (True, False)
    """
    report = {**report, "runs": _best_first(report.get("runs", ()))}
    sections = ((name, title, draw(report)) for name, (title, draw) in _SECTIONS.items())
    return draw_page(report["title"], _draw_header(report), sections)


def _draw_header(report: Report) -> str:
    parts = [f"<h1>{escape(report['title'])}</h1>"]
    if "subtitle" in report:
        parts.append(f'<p class="subtitle">{escape(report["subtitle"])}</p>')
    if told := " ".join(_tell(report)):
        parts.append(f'<p class="lede">{told}</p>')
    if "command" in report:
        parts.append(f'<pre class="command"><code>{escape(report["command"])}</code></pre>')
    return "".join(parts)


def _tell(report: Report) -> Iterator[str]:
    """What was done, in plain words."""
    if corpus := report.get("corpus"):
        size = [f"{show_number(corpus[key])} {key}" for key in ("words", "documents") if key in corpus]
        held = f": {' in '.join(size)}" if size else ""
        yield f"The text is <b>{escape(corpus.get('name', 'unnamed'))}</b>{held}."
    if runs := _scored(report):
        one = len(runs) == 1
        yield f"On one part of the text, {'one model was' if one else f'{len(runs)}&nbsp;models were'} trained; then"
        yield f"{'it' if one else 'each'} read another part, never seen before, and was asked how many bits it needs"
        yield "for every byte. A model that knows nothing needs 8; the better it foresees the text, the fewer."
        best = runs[0]["bits_per_byte"]
        if math.isfinite(best):
            yield f"{'This one' if one else 'The best'}, <b>{escape(runs[0]['name'])}</b>, needs"
            yield f"<b>{show_number(best, 3)}</b>: it would store that text in {show_share(best / 8)} of its space."
    if "seconds" in report:
        yield f"Everything took {charts.show_time(report['seconds'])}."


def _best_first(runs: Iterable[Report]) -> list[Report]:
    return sorted(runs, key=lambda run: (rank(run.get("bits_per_byte")), run["name"]))


def _scored(report: Report) -> list[Report]:
    return [run for run in report["runs"] if run.get("bits_per_byte") is not None]


def _colours(report: Report) -> dict[str, int]:
    return charts.colour_families(run["family"] for run in report["runs"] if "family" in run)


def _draw_bits(report: Report) -> str:
    colours = _colours(report)
    bars = [Bar(run["name"], run["bits_per_byte"], colours.get(run.get("family", ""), 0)) for run in _scored(report)]
    if not bars:
        return ""
    legend = "".join(f'<li><i class="dot c{i}"></i>{escape(family)}</li>' for family, i in colours.items())
    return (
        "<p>Bits per byte of held-out text. <b>Shorter is better.</b> This is the number that compares models "
        "whatever their tokens are, because all of them must account for the same bytes. (Words and WordPiece do not "
        "record the spaces beside punctuation marks and so pay nothing for them.)</p>"
        f'<ul class="legend">{legend}</ul>{charts.bar_figure(bars)}'
    )


class _Column(NamedTuple):
    """A column of numbers; where lower is better, the lowest is marked if all runs agree on the keys `given`."""

    key: str
    title: str
    note: str
    digits: int = 0
    lower: bool = False
    given: tuple[str, ...] = ()

    def show(self, value: Any) -> str:
        return show_size(value) if self.key == "size" else show_number(value, self.digits)

    def best(self, runs: Sequence[Report]) -> Any:
        """The value to mark, or None where there is no choice or the numbers cannot be compared."""
        comparable = all(len({run.get(key) for run in runs}) == 1 for key in self.given)
        values = sorted((run.get(self.key) for run in runs), key=rank)
        return values[0] if self.lower and comparable and values[0] != values[-1] else None


_COLUMNS = (
    _Column("bits_per_byte", "Bits / byte", "What all models are compared by. Unknown words are charged for their "
            "spelling, so that none gains by not knowing.", 3, True),
    _Column("perplexity", "Perplexity", "Among how many equally likely tokens the model wavers. Compare it only "
            "between models with the same tokens.", 1, True, ("tokenizer", "vocabulary")),
    _Column("word_perplexity", "Word perplexity", "The same for each word, whatever the tokens. Unknown words come "
            "cheap here: compare it only where as many are unknown.", 1, True, ("oov",)),
    _Column("oov", "Unknown", "Words of the held-out text that the model does not know.", 0, True),
    _Column("vocabulary", "Vocabulary", "Different tokens."),
    _Column("tokens", "Tokens", "Predictions made on the held-out text."),
    _Column("size", "On disk", "Size of the saved model.", 0, True),
)  # fmt: skip


def _draw_runs(report: Report) -> str:
    runs = report["runs"]
    columns = [column for column in _COLUMNS if any(column.key in run for run in runs)]
    best = {column: column.best(runs) for column in columns}
    rows = []
    for run in runs:
        row = [escape(run["name"])]
        for column in columns:
            value = run.get(column.key)
            shown = column.show(value)
            row.append(f"<b>{shown}</b>" if value is not None and value == best[column] else shown)
        rows.append(row)
    heads = ["Run", *(column.title + "&nbsp;↓" * column.lower for column in columns)]
    sizes = {run.get("bytes") for run in runs}
    read = f" All read the same {show_size(*sizes)} of held-out text." if len(sizes) == 1 and None not in sizes else ""
    told = f"<p>Best first. Where ↓ stands, lower is better; the best is bold if the runs can be compared.{read}</p>"
    notes = draw_facts(((column.title, column.note) for column in columns), "notes")
    return told + draw_table(heads, rows, "numbers") + notes if runs else ""


def _draw_oracle(report: Report) -> str:
    oracle = report.get("oracle")
    if not oracle:
        return ""
    entropy = oracle["entropy_per_byte"]
    runs = _best_first(oracle.get("runs", ()))
    told = (
        f"<p>The texts of <b>{escape(oracle.get('corpus', 'this corpus'))}</b> are drawn from a grammar, so what a "
        f"perfect model would score is known exactly: <b>{show_number(entropy, 3)}</b> bits per byte."
    )
    if runs and math.isfinite(gap := runs[0]["bits_per_byte"] - entropy):
        side = "above" if gap >= 0 else "below"
        told += f" Nearest is <b>{escape(runs[0]['name'])}</b>, <b>{show_number(abs(gap), 3)}</b> bits {side} it."
    families = {run["name"]: run["family"] for run in [*report["runs"], *runs] if "family" in run}
    colours = charts.colour_families(families.values())
    bars = [Bar(run["name"], run["bits_per_byte"], colours.get(families.get(run["name"], ""), 0)) for run in runs]
    figure = charts.bar_figure(bars, entropy, "perfect model") if bars else ""
    note = f'<p class="aside">{escape(oracle["note"])}</p>' if oracle.get("note") else ""
    return f"{told}</p>{figure}{note}"


def _draw_samples(report: Report) -> str:
    colours = _colours(report)
    rows = []
    for run in report["runs"]:
        quotes = charts.draw_quotes(run.get("samples", ()))
        dot = f'<i class="dot c{colours.get(run.get("family"), 0)}"></i>'
        if quotes:
            rows.append(f'<div class="row"><h3>{dot}{escape(run["name"])}</h3><div>{quotes}</div></div>')
    if not rows:
        return ""
    first, rest = "".join(rows[:_OPEN_SAMPLES]), "".join(rows[_OPEN_SAMPLES:])
    folded = f"<details><summary>{len(rows) - _OPEN_SAMPLES} more</summary>{rest}</details>" if rest else ""
    told = "<p>What each model writes when it draws token after token from its own probabilities, unedited.</p>"
    return told + first + folded


def _draw_tokenizers(report: Report) -> str:
    rows, examples = [], dict[str, list[str]]()
    for one in report.get("tokenizers", ()):
        name = escape(one["name"])
        numbers = [show_number(one.get(key), 2) for key in ("bytes_per_token", "tokens_per_word")]
        rows.append([name, show_number(one.get("vocabulary")), *numbers, show_share(one.get("unknown_share"))])
        for example in one.get("examples", ()):
            boxes = charts.draw_tokens(example["tokens"], example.get("starts", ()))
            row = f'<div class="row"><h3>{name} <small>{len(example["tokens"])}</small></h3>{boxes}</div>'
            examples.setdefault(example["text"], []).append(row)
    if not rows:
        return ""
    told = "<p>Each box below is a token; a stronger colour begins a word. The small number counts the tokens.</p>"
    shown = told * bool(examples) + "".join(
        f'<div class="example"><p{charts.name_language(text)}>{escape(text)}</p>{"".join(boxes)}</div>'
        for text, boxes in examples.items()
    )
    heads = ("Tokenizer", "Vocabulary", "Bytes per token", "Tokens per word", "Unknown tokens")
    return draw_table(heads, rows, "numbers brief") + shown


def _draw_corpus(report: Report) -> str:
    corpus = report.get("corpus")
    if not corpus:
        return ""
    parts = [f"<p><b>{escape(corpus.get('name', 'unnamed'))}</b></p>", draw_facts(_corpus_facts(corpus))]
    for key, title in (("scripts", "Scripts, by characters"), ("languages", "Languages, by letters")):
        if corpus.get(key):
            parts.append(f"<h3>{title}</h3>{charts.draw_shares(corpus[key])}")
    if lengths := corpus.get("lengths"):
        heads = {"mean": "Mean", "p5": "5&nbsp;%", "p50": "Median", "p95": "95&nbsp;%", "max": "Longest"}
        rows = [
            [
                escape(name.replace("_", " ").capitalize()),
                *(show_number(spread.get(key), int(key == "mean")) for key in heads),
            ]
            for name, spread in lengths.items()
        ]
        parts.append("<h3>Lengths</h3>" + draw_table(["", *heads.values()], rows, "numbers brief"))
    if "problems" in corpus:
        found = [(escape(one["what"].replace("-", " ")), escape(one["message"])) for one in corpus["problems"]]
        parts.append("<h3>Problems found</h3>" + (draw_facts(found, "problems") if found else "<p>None.</p>"))
    return "".join(parts)


def _corpus_facts(corpus: Report) -> Iterator[tuple[str, str]]:
    for key in ("documents", "sentences", "words", "characters"):
        if key in corpus:
            yield key.capitalize(), show_number(corpus[key])
    if "bytes" in corpus:
        yield "Size", show_size(corpus["bytes"])
    for key, title in (("duplicates", "Repeated"), ("near_duplicates", "Nearly repeated")):
        if key in corpus:
            yield title, show_share(corpus[key])
    for encoding, files in Counter(corpus.get("encodings", {}).values()).items():
        yield "Encoding", f"{escape(encoding)} <small>{files} file{'s' * (files > 1)}</small>"
    for part, documents in corpus.get("split", {}).items():
        yield f"{escape(part.capitalize())} part", f"{show_number(documents)} <small>documents</small>"


def _draw_provenance(report: Report) -> str:
    rows = [_origin(run) for run in report["runs"] if run.keys() & {"recipe", "settings", "budget", "digest"}]
    heads = ("Run", "Recipe", "Settings", "Budget", "Time spent", "Tokens read", "Digest")
    parts = [draw_table(heads, rows)] if rows else []
    for key, title in (("versions", "Versions"), ("machine", "Machine")):
        if facts := report.get(key):
            listed = "".join(f"<li>{escape(name)} <b>{escape(value)}</b></li>" for name, value in facts.items())
            parts.append(f'<h3>{title}</h3><ul class="legend">{listed}</ul>')
    return "".join(parts)


def _origin(run: Report) -> list[str]:
    """A row that says how a run can be repeated and what came of it."""
    budget = run.get("budget", {})
    spent = budget.get("spent", {})
    settings = "".join(f"<code>{escape(f'{key}={value}')}</code> " for key, value in run.get("settings", {}).items())
    digest = escape(run.get("digest", ""))
    return [
        escape(run["name"]),
        escape(run.get("recipe", "–")),
        settings or "–",
        escape(budget.get("asked") or "no limit") if budget else "–",
        charts.show_time(spent.get("seconds")),
        show_number(spent.get("tokens")),
        f'<code title="{digest}">{digest[:12]}</code>' if digest else "–",
    ]


_SECTIONS = {
    "bits": ("Bits per byte", _draw_bits),
    "runs": ("The runs in numbers", _draw_runs),
    "oracle": ("Against the optimum", _draw_oracle),
    "vectors": ("Words as vectors", draw_vectors),
    "nets": ("How networks learnt", draw_nets),
    "tasks": ("What they can be taught", draw_tasks),
    "samples": ("What they write", _draw_samples),
    "tokenizers": ("Tokenizers", _draw_tokenizers),
    "corpus": ("The corpus", _draw_corpus),
    "provenance": ("What was run", _draw_provenance),
}
