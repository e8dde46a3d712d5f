"""Learning curves as plain SVG: the loss of several runs over the tokens that they have read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from firth.report.charts import COLOURS, escape, show_number

_SIZE = 13  # of text
_LETTER = 7.2  # how wide a letter is at most, on average
_LEFT, _TOP, _BOTTOM = 44, 10, 40
_FORMS = (("wide", 860, 340), ("narrow", 380, 300))


class Curve(NamedTuple):
    """How the loss of a run fell."""

    name: str
    points: Sequence[tuple[float, float]]
    """Tokens read and the loss there."""


class _Scale(NamedTuple):
    """From numbers to places."""

    low: float
    high: float
    begin: float
    end: float

    def __call__(self, value: float) -> float:
        return self.begin + (self.end - self.begin) * (value - self.low) / (self.high - self.low)


def curve_figure(curves: Sequence[Curve]) -> str:
    """All curves in one drawing, wide and narrow, of which the page shows one; nothing if there are none.

    >>> curve_figure([])
    ''
    """
    kept = [Curve(curve.name, _finite(curve.points)) for curve in curves]
    kept = [curve for curve in kept if len(curve.points) > 1]
    if not kept:
        return ""
    drawn = "".join(f'<div class="{form}">{_draw(kept, width, height)}</div>' for form, width, height in _FORMS)
    return f'<figure class="chart">{drawn}</figure>'


def _finite(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    return [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y) and x > 0]


def _draw(curves: Sequence[Curve], width: int, height: int) -> str:
    xs = [x for curve in curves for x, _ in curve.points]
    ys = [y for curve in curves for _, y in curve.points]
    room = 16 + _LETTER * max(len(_label(curve)) for curve in curves)
    across = _Scale(math.log(min(xs)), math.log(max(xs)) + 1e-9, _LEFT, width - room)
    down = _Scale(min(ys), max(ys) + 1e-9, height - _BOTTOM, _TOP)
    parts = [*_rules(across, down, height), *_lines(curves, across, down)]
    told = "; ".join(f"{curve.name} ends at {show_number(curve.points[-1][1], 3)}" for curve in curves)
    return f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(told)}">{"".join(parts)}</svg>'


def _rules(across: _Scale, down: _Scale, height: int) -> list[str]:
    """The grid, with what its lines stand for."""
    parts = []
    for value in _steps(down.low, down.high, 5):
        y = down(value)
        parts.append(f'<line x1="{_LEFT}" x2="{across.end:.1f}" y1="{y:.1f}" y2="{y:.1f}" stroke="var(--rule, #ccc)"/>')
        parts.append(_text(_LEFT - 8, y + 4, f"{value:g}", "end", "var(--muted, #777)"))
    first = math.ceil(across.low / math.log(10) - 1e-9)
    for power in range(first, math.floor(across.high / math.log(10) + 1e-9) + 1):
        x = across(power * math.log(10))
        parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{height - _BOTTOM}" stroke="var(--rule, #ccc)"/>'
        )
        parts.append(_text(x, height - _BOTTOM + 18, _short(10**power), "middle", "var(--muted, #777)"))
    middle = (_LEFT + across.end) / 2
    parts.append(_text(middle, height - 4, "tokens read", "middle", "var(--muted, #777)"))
    return parts


def _lines(curves: Sequence[Curve], across: _Scale, down: _Scale) -> list[str]:
    """Each curve with its name at its end; names keep off each other."""
    parts = []
    last = -math.inf
    for number, curve in sorted(enumerate(curves), key=lambda pair: down(pair[1].points[-1][1])):
        colour = f"var(--c{number % len(COLOURS)}, {COLOURS[number % len(COLOURS)]})"
        places = [(across(math.log(x)), down(y)) for x, y in curve.points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        last = max(places[-1][1] + 4, last + _SIZE + 2)
        parts.append(_text(across.end + 8, last, _label(curve), "start", colour))
    return parts


def _label(curve: Curve) -> str:
    return f"{curve.name} {show_number(curve.points[-1][1], 2)}"


def _steps(low: float, high: float, most: int) -> list[float]:
    """Round numbers between two others.

    >>> _steps(1.2, 6.9, 5)
    [2.0, 4.0, 6.0]
    """
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough)) if rough > 0 else 1.0
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    return [round(step * count, 10) for count in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _short(value: float) -> str:
    """A power of ten in few letters.

    >>> _short(10_000), _short(1_000_000)
    ('10k', '1M')
    """
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= unit:
            return f"{value / unit:g}{name}"
    return f"{value:g}"


def _text(x: float, y: float, text: str, anchor: str, colour: str) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {place} font-size="{_SIZE}" fill="{colour}">{escape(text)}</text>'
