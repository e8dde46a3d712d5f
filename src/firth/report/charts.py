"""The parts of a report: bars, shares, tokens, tables and numbers, as SVG or HTML to be put inside a page.

Colours are CSS variables with a fallback, so that a drawing follows the light or dark page around it and can
also stand alone. All text comes out escaped.
"""

from __future__ import annotations

import html
import io
import math
import re
import unicodedata
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

COLOURS = ("#2f6db3", "#2a8f6d", "#cf6a2c", "#8a5cb8", "#b8476b", "#7b7f3a")
"""The fallbacks of the CSS variables --c0 to --c5."""
_FAMILIES = ("counts", "vectors", "nets")  # these keep their colour in every report
_INK, _MUTED, _RULE = "#333333", "#777777", "#cccccc"
_VARIABLES = {
    **{colour: f"var(--c{i}, {colour})" for i, colour in enumerate(COLOURS)},
    _INK: "currentColor",
    _MUTED: f"var(--muted, {_MUTED})",
    _RULE: f"var(--rule, {_RULE})",
}
_WIDE, _NARROW = 860, 380  # units of a drawing for a desk and for a phone; one is shown as about one pixel
_SIZE = 13  # of text
_UNFIT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")  # XML or UTF-8 has no place for them
_VISIBLE = str.maketrans({" ": "␣", "\n": "⏎", "\t": "⇥"})


@dataclass(frozen=True)
class Bar:
    """One row of a bar chart; `colour` counts from 0."""

    name: str
    value: float
    colour: int = 0


def escape(value: Any) -> str:
    """The text of `value` as HTML or XML, without the characters that neither may hold.

    >>> escape("a < b\\0")
    'a &lt; b�'
    """
    return html.escape(_UNFIT.sub("\ufffd", str(value)))


def show_number(value: Any, digits: int = 0) -> str:
    """A number for people to read.

    >>> show_number(12345), show_number(2.5, 3), show_number(float("inf")), show_number(float("nan"))
    ('12,345', '2.500', '∞', '–')
    """
    if not isinstance(value, int | float) or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    return f"{value:.2e}" if abs(value) >= 1e12 else f"{value:,.{digits}f}".replace("-", "−")


def show_share(share: Any) -> str:
    """A share of a whole in per cent, as HTML.

    >>> show_share(0.5) == "50.0\\u00a0%"
    True
    """
    if not isinstance(share, int | float):
        return "–"
    shown = "0" if share == 0 else "&lt;0.1" if 0 < share < 0.001 else show_number(share * 100, 1)
    return f"{shown}\u00a0%"


def show_size(size: Any) -> str:
    """A number of bytes.

    >>> show_size(512), show_size(7_912_345)
    ('512 B', '7.9 MB')
    """
    units = ("B", "kB", "MB", "GB", "TB")
    if not isinstance(size, int | float) or not math.isfinite(size):
        return show_number(size)
    power = min(int(math.log10(max(size, 1)) // 3), len(units) - 1)
    return f"{show_number(size / 1000**power, 1 if power else 0)} {units[power]}"


def show_time(seconds: Any) -> str:
    """A stretch of time.

    >>> show_time(0.25), show_time(75), show_time(7500)
    ('0.2 s', '1 min 15 s', '2 h 5 min')
    """
    if not isinstance(seconds, int | float) or not math.isfinite(seconds):
        return show_number(seconds)
    if seconds < 59.95:
        return f"{show_number(seconds, 1)} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def rank(value: Any) -> tuple[bool, float]:
    """A key that sorts the smallest number first and what is not a number last."""
    known = isinstance(value, int | float) and not math.isnan(value)
    return (False, value) if known else (True, 0.0)


def colour_families(families: Iterable[str]) -> dict[str, int]:
    """The colour of each family, the same in every report for those that Firth has.

    >>> colour_families(["nets", "counts", "other"])
    {'counts': 0, 'nets': 2, 'other': 3}
    """
    found = set(families)
    colours = {family: i for i, family in enumerate(_FAMILIES) if family in found}
    strangers = sorted(found.difference(_FAMILIES))
    free = len(COLOURS) - len(_FAMILIES)
    return colours | {family: len(_FAMILIES) + i % free for i, family in enumerate(strangers)}


def bar_figure(bars: Iterable[Bar], line: float | None = None, line_label: str = "") -> str:
    """Horizontal bars, the shortest first, as a wide and a narrow SVG of which the page shows one.

    With `line`, a dashed line stands there and each value tells its distance from it.
    """
    ordered = sorted(bars, key=lambda bar: (rank(bar.value), bar.name))
    drawn = (
        f'<div class="{name}">{draw_bars(ordered, width, line, line_label)}</div>'
        for name, width in (("wide", _WIDE), ("narrow", _NARROW))
    )
    return f'<figure class="chart">{"".join(drawn)}</figure>'


def draw_bars(bars: Sequence[Bar], width: int, line: float | None = None, line_label: str = "") -> str:
    """An SVG element `width` units wide: names at the left of the bars, or above them where it is narrow."""
    import matplotlib
    from matplotlib.figure import Figure

    if line is not None and not math.isfinite(line):
        line = None
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "firth", "text.parse_math": False}):
        layout = _Layout.of(bars, width, line)
        figure = Figure(figsize=(width / 72, layout.height / 72))
        axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(layout.height, 0))
        axes.set_axis_off()
        _draw_scale(axes, layout)
        for row, bar in enumerate(bars):
            _draw_bar(axes, layout, row, bar, line)
        if line is not None:
            _draw_line(axes, layout, line, line_label)
        svg = _save(figure)
    told = "; ".join(f"{bar.name} {show_number(bar.value, 3)}" for bar in bars)
    return svg.replace("<svg ", f'<svg role="img" aria-label="{escape(told)}" ', 1)


@dataclass(frozen=True)
class _Layout:
    """Where things stand, in units of the drawing; y grows downwards."""

    width: int
    stacked: bool
    left: float
    right: float
    top: float
    row: float
    rows: int
    ticks: tuple[float, ...]

    @classmethod
    def of(cls, bars: Sequence[Bar], width: int, line: float | None) -> _Layout:
        from matplotlib.ticker import MaxNLocator

        finite = [bar.value for bar in bars if math.isfinite(bar.value)] + ([line] if line is not None else [])
        most = max([*finite, 0.0]) or 1.0
        stacked = width < 500
        names = max((_text_width(bar.name) for bar in bars), default=0.0)
        ticks = MaxNLocator(nbins=4 if stacked else 8, steps=[1, 2, 5, 10]).tick_values(0, most)
        return cls(
            width=width,
            stacked=stacked,
            left=0 if stacked else min(names + 16, 0.4 * width),
            right=width - (58 if line is None else 112),
            top=6 if line is None else 30,
            row=42 if stacked else 30 if len(bars) <= 12 else 25,
            rows=len(bars),
            ticks=(*(float(tick) for tick in ticks if tick < most), most),
        )

    @property
    def bottom(self) -> float:
        return self.top + self.rows * self.row + 4

    @property
    def height(self) -> float:
        return self.bottom + 22

    def x(self, value: float) -> float:
        return self.left + (self.right - self.left) * value / self.ticks[-1]


def _draw_scale(axes: Any, layout: _Layout) -> None:
    for tick in layout.ticks[:-1]:  # the last is the longest bar, which carries its own number
        x = layout.x(tick)
        axes.plot([x, x], [layout.top - 2, layout.bottom], color=_RULE, linewidth=1, zorder=0, clip_on=False)
        place = "left" if x < 4 else "center"
        _write(axes, x, layout.bottom + 16, f"{tick:g}", color=_MUTED, ha=place, fontsize=_SIZE - 1.5)


def _draw_bar(axes: Any, layout: _Layout, row: int, bar: Bar, line: float | None) -> None:
    top = layout.top + row * layout.row
    thick = 14 if layout.stacked else 0.6 * layout.row
    middle = top + (31 if layout.stacked else layout.row / 2)
    endless = bar.value == math.inf
    end = layout.right if endless else layout.x(bar.value) if math.isfinite(bar.value) else layout.left
    colour = COLOURS[bar.colour % len(COLOURS)]
    # A bar without end is drawn pale: its length says nothing.
    style = {"color": colour, "alpha": 0.3 if endless else None, "clip_on": False}
    axes.barh(middle, end - layout.left, thick, layout.left, **style)
    if layout.stacked:
        _write(axes, 0, top + 18, _fit(bar.name, layout.width))
    else:
        _write(axes, layout.left - 12, middle + _SIZE * 0.36, _fit(bar.name, layout.left - 16), ha="right")
    value = show_number(bar.value, 3)
    if line is not None and math.isfinite(bar.value):
        value += f"  ({'+' if bar.value >= line else ''}{show_number(bar.value - line, 3)})"
    weight = 700 if row == 0 and layout.rows > 1 else 400
    _write(axes, end + 7, middle + _SIZE * 0.36, value, fontweight=weight)


def _draw_line(axes: Any, layout: _Layout, line: float, label: str) -> None:
    x = layout.x(line)
    style = {"color": _INK, "linewidth": 1.5, "linestyle": (0, (5, 3)), "zorder": 3, "clip_on": False}
    axes.plot([x, x], [layout.top - 6, layout.bottom], **style)
    place = "right" if x > layout.width / 2 else "left"
    _write(axes, x, 14, _fit(f"{label} {show_number(line, 3)}", layout.width), ha=place)


def _write(axes: Any, x: float, y: float, text: str, **style: Any) -> None:
    text = " ".join(_UNFIT.sub("\ufffd", text).split())
    axes.text(x, y, text, **{"color": _INK, "fontsize": _SIZE, "va": "baseline", "clip_on": False} | style)


def _save(figure: Any) -> str:
    """The figure as an SVG element: no prologue, no date, nothing that reaches outside it."""
    buffer = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with warnings.catch_warnings():
        # Matplotlib only measures the text; glyphs that its font lacks are drawn by the browser.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    svg = buffer.getvalue()
    svg = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    # Text is escaped, so whatever looks like a tag is one.
    return re.sub(r">\s+<", "><", re.sub(r"<[a-z][^>]*>", lambda tag: _clean_tag(tag[0]), svg)).strip()


def _clean_tag(tag: str) -> str:
    """A tag without ids, which repeat between drawings, fixed size and fonts, and with variable colours."""
    tag = re.sub(r' (?:id|transform|version)="[^"]*"| font-family: [^;"]*;?', "", " ".join(tag.split()))
    if tag.startswith("<svg"):
        tag = re.sub(r' (?:width|height|xmlns:xlink)="[^"]*"', "", tag)
    return re.sub(r"#[0-9a-f]{6}", lambda colour: _VARIABLES[colour[0]], tag)


def _text_width(text: str) -> float:
    """About how wide `text` will be: Chinese characters are square, others half as wide or a little more."""
    return _SIZE * sum(1.0 if unicodedata.east_asian_width(c) in "WF" else 0.54 for c in text)


def _fit(text: str, width: float) -> str:
    """`text`, or as much of both its ends as fits."""
    kept = len(text)
    fitted = text
    while kept and _text_width(fitted) > width + 1:
        kept -= 1
        fitted = text[: kept - kept // 2] + "…" + text[len(text) - kept // 2 :]
    return fitted


def draw_shares(shares: Mapping[str, float]) -> str:
    """A thin bar divided by shares of a whole, the largest first, with what each colour stands for."""
    known = {name: share for name, share in shares.items() if share > 0}
    ordered = sorted(known.items(), key=lambda item: (-item[1], item[0]))
    if len(ordered) > len(COLOURS):
        kept = ordered[: len(COLOURS) - 1]
        ordered = [*kept, ("the rest", sum(known.values()) - sum(share for _, share in kept))]
    parts = "".join(f'<i class="c{i}" style="flex:{share:.5f}"></i>' for i, (_, share) in enumerate(ordered))
    names = "".join(
        f'<li><i class="dot c{i}"></i>{escape(name)} <b>{show_share(share)}</b></li>'
        for i, (name, share) in enumerate(ordered)
    )
    return f'<div class="shares" aria-hidden="true">{parts}</div><ul class="legend">{names}</ul>'


def draw_tokens(tokens: Sequence[str], starts: Sequence[bool]) -> str:
    """Tokens as boxes; those of one word touch, and the one that begins it is darker."""
    words: list[list[str]] = []
    for place, token in enumerate(tokens):
        if not words or place >= len(starts) or starts[place]:
            words.append([])
        words[-1].append(f"<i>{escape(token.translate(_VISIBLE))}</i>")
    return '<span class="tokens">' + " ".join(f"<span>{''.join(word)}</span>" for word in words) + "</span>"


def draw_quotes(texts: Iterable[str]) -> str:
    """Texts that somebody or something wrote, each as a quotation."""
    return "".join(f"<blockquote{name_language(text)}>{escape(text.strip()) or '…'}</blockquote>" for text in texts)


def name_language(text: str) -> str:
    """The attribute that makes a browser choose Chinese or Japanese shapes, empty for other text.

    >>> name_language("语言"), name_language("word")
    (' lang="zh"', '')
    """
    if re.search("[\u3040-\u30ff]", text):
        return ' lang="ja"'
    return ' lang="zh"' if re.search("[\u3400-\u9fff]", text) else ""


def draw_table(heads: Sequence[str], rows: Sequence[Sequence[str]], kind: str = "") -> str:
    """A table of HTML cells that scrolls sideways where the page is narrow; the first of a row names it.

    A column in which no row has anything is left out.
    """
    kept = [i for i in range(1, len(heads)) if any(row[i] != "–" for row in rows)]
    head = "".join(f'<th scope="col">{heads[i]}</th>' for i in (0, *kept))
    body = "".join(
        f'<tr><th scope="row">{row[0]}</th>' + "".join(f"<td>{row[i]}</td>" for i in kept) + "</tr>" for row in rows
    )
    return (
        f'<div class="scroll" tabindex="0"><table class="{kind}"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def draw_facts(facts: Iterable[tuple[str, str]], kind: str = "facts") -> str:
    """A list of what is called what, both as HTML."""
    return f'<dl class="{kind}">' + "".join(f"<div><dt>{k}</dt><dd>{v}</dd></div>" for k, v in facts) + "</dl>"
