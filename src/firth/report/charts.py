"""Horizontal bar charts, and the parts of a page that are computed from data: fractions and tokens by word."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from firth.plots import COLOURS, FONT_SIZE, INK, MUTED, RULE, inline_svg, new_canvas, write_text
from firth.report.rendering import format_number, render

WIDE, NARROW = 860, 380  # widths of a chart in CSS pixels, for a desktop and for a phone
_FAMILIES = ("counts", "vectors", "nets")  # these have the same colour in every report
_VISIBLE = str.maketrans({" ": "␣", "\n": "⏎", "\t": "⇥"})


@dataclass(frozen=True)
class Bar:
    """One bar of a chart; `colour` is an index into `COLOURS`."""

    name: str
    value: float
    colour: int = 0


def finite_first(value: Any) -> tuple[bool, float]:
    """A key that sorts numbers in ascending order and values that are not numbers last."""
    known = isinstance(value, int | float) and not math.isnan(value)
    return (False, value) if known else (True, 0.0)


def colour_families(families: Iterable[str]) -> dict[str, int]:
    """The colour of each recipe family; those of Firth have the same in every report.

    >>> colour_families(["nets", "counts", "other"])
    {'counts': 0, 'nets': 2, 'other': 3}
    """
    found = set(families)
    colours = {family: i for i, family in enumerate(_FAMILIES) if family in found}
    free = len(COLOURS) - len(_FAMILIES)
    others = sorted(found.difference(_FAMILIES))
    return colours | {family: len(_FAMILIES) + i % free for i, family in enumerate(others)}


def bar_figure(bars: Iterable[Bar], line: float | None = None, line_label: str = "") -> Markup:
    """Horizontal bars in ascending order, as a wide and a narrow SVG of which the page shows one.

    With `line`, a dashed reference line is drawn there, and each value is followed by its difference from it.
    """
    ordered = sorted(bars, key=lambda bar: (finite_first(bar.value), bar.name))
    wide, narrow = (draw_bars(ordered, width, line, line_label) for width in (WIDE, NARROW))
    return render("figure.html.j2", wide=wide, narrow=narrow)


def draw_bars(bars: Sequence[Bar], width: int, line: float | None = None, line_label: str = "") -> str:
    """An inline SVG of a given width: names at the left of the bars, or above them where it is narrow."""
    if line is not None and not math.isfinite(line):
        line = None
    layout = _Layout.of(bars, width, line)
    with new_canvas(width, layout.bottom + 22) as (figure, axes):
        for tick in layout.ticks[:-1]:  # the last is the longest bar, which has its own number
            x = layout.x(tick)
            axes.plot([x, x], [layout.top - 2, layout.bottom], color=RULE, linewidth=1, zorder=0, clip_on=False)
            style = {"color": MUTED, "ha": "left" if x < 4 else "center", "fontsize": FONT_SIZE - 1.5}
            write_text(axes, x, layout.bottom + 16, f"{tick:g}", **style)
        for index, bar in enumerate(bars):
            _draw_bar(axes, layout, index, bar, line)
        if line is not None:
            x = layout.x(line)
            dashes: dict[str, Any] = {"color": INK, "linewidth": 1.5, "linestyle": (0, (5, 3)), "zorder": 3}
            axes.plot([x, x], [layout.top - 6, layout.bottom], clip_on=False, **dashes)
            label = _fit(f"{line_label} {format_number(line, 3)}", width)
            write_text(axes, x, 14, label, ha="right" if x > width / 2 else "left")
        return inline_svg(figure, "; ".join(f"{bar.name} {format_number(bar.value, 3)}" for bar in bars))


@dataclass(frozen=True)
class _Layout:
    """Coordinates of a bar chart in CSS pixels; y grows downwards."""

    width: int
    is_narrow: bool
    left: float
    right: float
    top: float
    bar_height: float
    count: int
    ticks: tuple[float, ...]

    @classmethod
    def of(cls, bars: Sequence[Bar], width: int, line: float | None) -> _Layout:
        from matplotlib.ticker import MaxNLocator

        finite = [bar.value for bar in bars if math.isfinite(bar.value)] + ([line] if line is not None else [])
        most = max([*finite, 0.0]) or 1.0
        is_narrow = width < 500
        names = max((text_width(bar.name) for bar in bars), default=0.0)
        ticks = MaxNLocator(nbins=4 if is_narrow else 8, steps=[1, 2, 5, 10]).tick_values(0, most)
        return cls(
            width=width,
            is_narrow=is_narrow,
            left=0 if is_narrow else min(names + 16, 0.4 * width),
            right=width - (58 if line is None else 112),
            top=6 if line is None else 30,
            bar_height=42 if is_narrow else 30 if len(bars) <= 12 else 25,
            count=len(bars),
            ticks=(*(float(tick) for tick in ticks if tick < most), most),
        )

    @property
    def bottom(self) -> float:
        return self.top + self.count * self.bar_height + 4

    def x(self, value: float) -> float:
        return self.left + (self.right - self.left) * value / self.ticks[-1]


def _draw_bar(axes: Any, layout: _Layout, index: int, bar: Bar, line: float | None) -> None:
    top = layout.top + index * layout.bar_height
    middle = top + (31 if layout.is_narrow else layout.bar_height / 2)
    is_infinite = bar.value == math.inf
    end = layout.right if is_infinite else layout.x(bar.value) if math.isfinite(bar.value) else layout.left
    # An infinite bar is pale: its length means nothing.
    style = {"color": COLOURS[bar.colour % len(COLOURS)], "alpha": 0.3 if is_infinite else None, "clip_on": False}
    axes.barh(middle, end - layout.left, 14 if layout.is_narrow else 0.6 * layout.bar_height, layout.left, **style)
    baseline = middle + FONT_SIZE * 0.36
    if layout.is_narrow:
        write_text(axes, 0, top + 18, _fit(bar.name, layout.width))
    else:
        write_text(axes, layout.left - 12, baseline, _fit(bar.name, layout.left - 16), ha="right")
    value = format_number(bar.value, 3)
    if line is not None and math.isfinite(bar.value):
        value += f"  ({'+' if bar.value >= line else ''}{format_number(bar.value - line, 3)})"
    write_text(axes, end + 7, baseline, value, fontweight="bold" if index == 0 and layout.count > 1 else "normal")


def text_width(text: str, narrow: float = 0.54) -> float:
    """The estimated width of a text in CSS pixels; Chinese characters are square, others `narrow` times as wide."""
    return FONT_SIZE * sum(1.0 if unicodedata.east_asian_width(character) in "WF" else narrow for character in text)


def _fit(text: str, width: float) -> str:
    """The text, or as much of both its ends as fits."""
    kept = len(text)
    fitted = text
    while kept and text_width(fitted) > width + 1:
        kept -= 1
        fitted = text[: kept - kept // 2] + "…" + text[len(text) - kept // 2 :]
    return fitted


def largest_fractions(fractions: Mapping[str, float]) -> list[tuple[str, float]]:
    """Fractions of a whole in descending order, one for each colour; the smallest are summed up as "others".

    >>> largest_fractions({"latin": 0.75, "han": 0.25, "cyrillic": 0.0})
    [('latin', 0.75), ('han', 0.25)]
    """
    known = {name: fraction for name, fraction in fractions.items() if fraction > 0}
    ordered = sorted(known.items(), key=lambda item: (-item[1], item[0]))
    if len(ordered) <= len(COLOURS):
        return ordered
    kept = ordered[: len(COLOURS) - 1]
    return [*kept, ("others", sum(known.values()) - sum(fraction for _, fraction in kept))]


def group_tokens(tokens: Sequence[str], word_starts: Sequence[bool]) -> list[list[str]]:
    """The tokens of each word, white space made visible; without word starts every token is a word.

    >>> group_tokens(["un", "like", " "], [True, False, True])
    [['un', 'like'], ['␣']]
    """
    words: list[list[str]] = []
    for position, token in enumerate(tokens):
        if not words or position >= len(word_starts) or word_starts[position]:
            words.append([])
        words[-1].append(token.translate(_VISIBLE))
    return words
