"""Figures as SVG, drawn by matplotlib: files that stand alone, and elements of a page that follow its colours."""

from __future__ import annotations

import html
import io
import math
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

COLOURS = ("#2f6db3", "#2a8f6d", "#cf6a2c", "#8a5cb8", "#b8476b", "#7b7f3a")
"""The fallbacks of the CSS variables --c0 to --c5."""
INK, MUTED, RULE = "#333333", "#777777", "#cccccc"
FONT_SIZE = 13
_VARIABLES = {
    **{colour: f"var(--c{i}, {colour})" for i, colour in enumerate(COLOURS)},
    INK: "currentColor",
    MUTED: f"var(--muted, {MUTED})",
    RULE: f"var(--rule, {RULE})",
}
INVALID_CHARACTERS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]"
)  # characters that XML or UTF-8 forbids
_LEFT, _TOP, _BOTTOM = 44, 10, 40  # margins of inline learning curves


class Curve(NamedTuple):
    """The loss over the training tokens."""

    name: str
    points: Sequence[tuple[float, float]]
    """(tokens, loss) pairs."""


def escape(value: Any) -> str:
    """The text of `value` as HTML or XML, without forbidden characters.

    >>> escape("a < b\\0")
    'a &lt; b�'
    """
    return html.escape(INVALID_CHARACTERS.sub("\ufffd", str(value)))


@contextmanager
def new_figure(width: float, height: float) -> Iterator[Any]:
    """A matplotlib figure of a size in inches, under settings that make its SVG reproducible and keep text as text."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "firth", "text.parse_math": False}):
        yield Figure(figsize=(width, height))


@contextmanager
def new_canvas(width: float, height: float) -> Iterator[tuple[Any, Any]]:
    """A figure and its axes, without ticks, where a unit is a point and y grows downwards."""
    with new_figure(width / 72, height / 72) as figure:
        axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(height, 0))
        axes.set_axis_off()
        yield figure, axes


def write_text(axes: Any, x: float, y: float, text: str, **style: Any) -> None:
    """Draw text on a canvas."""
    text = " ".join(INVALID_CHARACTERS.sub("\ufffd", text).split())
    axes.text(x, y, text, **{"color": INK, "fontsize": FONT_SIZE, "va": "baseline", "clip_on": False} | style)


def inline_svg(figure: Any, label: str) -> str:
    """A figure as an SVG element with CSS variables for colours, described by `label` for screen readers."""
    buffer = io.StringIO()
    with warnings.catch_warnings():
        # Matplotlib only measures the text; glyphs that its font lacks are drawn by the browser.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(buffer, format="svg", transparent=True, metadata=metadata)
    svg = buffer.getvalue()
    svg = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    # Text is escaped, so whatever looks like a tag is one.
    svg = re.sub(r">\s+<", "><", re.sub(r"<[a-z][^>]*>", lambda tag: _clean_tag(tag[0]), svg)).strip()
    return svg.replace("<svg ", f'<svg role="img" aria-label="{escape(label)}" ', 1)


def _clean_tag(tag: str) -> str:
    """A tag with variable colours and without ids (which repeat between figures), fixed size and fonts."""
    tag = re.sub(r' (?:id|transform|version)="[^"]*"| font-family: [^;"]*;?', "", " ".join(tag.split()))
    if tag.startswith("<svg"):
        tag = re.sub(r' (?:width|height|xmlns:xlink)="[^"]*"', "", tag)
    return re.sub(r"#[0-9a-f]{6}", lambda colour: _VARIABLES[colour[0]], tag)


def loss_plot(trained: Sequence[Curve], valid: Sequence[Curve], title: str) -> bytes:
    """An SVG file of training losses and, dashed, validation losses of the same objectives over the tokens."""
    with new_figure(8, 4.5) as figure:
        axes = figure.add_subplot()
        colours = {curve.name: f"C{number}" for number, curve in enumerate(trained)}
        for curve in trained:
            axes.plot(*zip(*curve.points, strict=True), color=colours[curve.name], label=curve.name)
        for curve in valid:
            style = {"color": colours.get(curve.name, "C9"), "linestyle": "--", "marker": "."}
            axes.plot(*zip(*curve.points, strict=True), label=f"{curve.name}, validation", **style)
        axes.set(title=title, xlabel="training tokens", ylabel="loss (nats per prediction)")
        axes.grid(alpha=0.3)
        if trained or valid:
            axes.legend()
        drawn = io.BytesIO()
        figure.savefig(drawn, format="svg", metadata={"Date": None, "Creator": None})
    return drawn.getvalue()


class FrontPoint(NamedTuple):
    """A model on the front of size, speed and quality."""

    name: str
    mb: float
    texts_per_second: float
    quality: float
    is_best: bool
    """Whether no other is at least as good in all three."""


def front_plot(points: Sequence[FrontPoint], metric: str, title: str) -> bytes:
    """An SVG file of quality over size on a logarithmic axis; the area of a point grows with the speed."""
    fastest = max(point.texts_per_second for point in points)
    slowest = min(point.texts_per_second for point in points)
    with new_figure(8, 5) as figure:
        axes = figure.add_subplot()
        for point in points:
            share = math.log(point.texts_per_second / slowest) / (math.log(fastest / slowest) + 1e-9)
            colour = COLOURS[0] if point.is_best else MUTED
            axes.scatter([point.mb], [point.quality], s=40 + 400 * share, color=colour, alpha=0.7)
            label = f"{INVALID_CHARACTERS.sub(' ', point.name)}, {point.texts_per_second:,.0f}/s"
            axes.annotate(label, (point.mb, point.quality), (6, 6), textcoords="offset points", fontsize=8)
        front = sorted((point.mb, point.quality) for point in points if point.is_best)
        axes.plot(*zip(*front, strict=True), color=COLOURS[0], linewidth=1)
        axes.set(title=title, xlabel="size on disk (MB)", ylabel=metric, xscale="log")
        axes.margins(0.2)
        axes.grid(alpha=0.3)
        drawn = io.BytesIO()
        figure.savefig(drawn, format="svg", metadata={"Date": None, "Creator": None})
    return drawn.getvalue()


def learning_curves(curves: Sequence[Curve], width: int, height: int) -> str:
    """An inline SVG of the losses of several runs over the tokens, on a logarithmic axis; each line ends in its name.

    >>> learning_curves([], 380, 300)
    ''
    """
    finite = [
        Curve(name, [(x, y) for x, y in points if 0 < x < math.inf and math.isfinite(y)]) for name, points in curves
    ]
    curves = [curve for curve in finite if len(curve.points) > 1]
    if not curves:
        return ""
    from matplotlib.ticker import MaxNLocator

    xs = sorted(x for curve in curves for x, _ in curve.points)
    ys = sorted(y for curve in curves for _, y in curve.points)
    labels = [f"{curve.name} {curve.points[-1][1]:.2f}" for curve in curves]
    right, bottom = width - 16 - 0.55 * FONT_SIZE * max(map(len, labels)), height - _BOTTOM

    def to_x(tokens: float) -> float:
        return _LEFT + (right - _LEFT) * math.log(tokens / xs[0]) / (math.log(xs[-1] / xs[0]) + 1e-9)

    def to_y(loss: float) -> float:
        return bottom + (_TOP - bottom) * (loss - ys[0]) / (ys[-1] - ys[0] + 1e-9)

    with new_canvas(width, height) as (figure, axes):
        for loss in MaxNLocator(nbins=5, steps=[1, 2, 5, 10]).tick_values(ys[0], ys[-1] + 1e-9):
            if ys[0] <= loss <= ys[-1]:
                axes.plot([_LEFT, right], [to_y(loss)] * 2, color=RULE, linewidth=1, clip_on=False)
                write_text(axes, _LEFT - 8, to_y(loss) + 4, f"{loss:g}", color=MUTED, ha="right")
        for power in range(math.ceil(math.log10(xs[0]) - 1e-9), math.floor(math.log10(xs[-1]) + 1e-9) + 1):
            x = to_x(10.0**power)
            axes.plot([x, x], [_TOP, bottom], color=RULE, linewidth=1, clip_on=False)
            write_text(axes, x, bottom + 18, _short(10.0**power), color=MUTED, ha="center")
        write_text(axes, (_LEFT + right) / 2, height - 4, "training tokens", color=MUTED, ha="center")
        label_y = math.inf
        for number, curve in sorted(enumerate(curves), key=lambda pair: pair[1].points[-1][1]):  # from the bottom up
            colour = COLOURS[number % len(COLOURS)]
            points = [(to_x(x), to_y(y)) for x, y in curve.points]
            axes.plot(*zip(*points, strict=True), color=colour, linewidth=2, clip_on=False)
            label_y = min(points[-1][1] + 4, label_y - FONT_SIZE - 2)  # labels do not overlap
            write_text(axes, right + 8, label_y, labels[number], color=colour)
        summary = "; ".join(f"{curve.name} ends at {curve.points[-1][1]:.3f}" for curve in curves)
        return inline_svg(figure, summary)


def _short(value: float) -> str:
    """A power of ten with an SI suffix.

    >>> _short(10_000), _short(1_000_000)
    ('10k', '1M')
    """
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= unit:
            return f"{value / unit:g}{name}"
    return f"{value:g}"
