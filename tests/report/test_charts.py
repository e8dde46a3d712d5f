"""The bar charts of a report, and the data that its templates draw."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firth.report.charts import (
    Bar,
    bar_figure,
    colour_families,
    draw_bars,
    group_tokens,
    largest_fractions,
)

_SVG = "{http://www.w3.org/2000/svg}"


def parse(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)  # our own drawing


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in parse(svg).iter(f"{_SVG}text")]


def lengths(svg: str, variable: str = "--c0") -> list[float]:
    """The widths of the bars of one colour, from the top of the drawing down."""
    found = []
    for path in parse(svg).iter(f"{_SVG}path"):
        if f"fill: var({variable}," in path.attrib["style"]:
            corners = [float(x) for x in re.findall(r"[ML] ([\d.]+)", path.attrib["d"])]
            found.append(max(corners) - min(corners))
    return found


@pytest.mark.parametrize("width", [860, 380])
def test_bars_are_as_long_as_their_values(width: int) -> None:
    svg = draw_bars([Bar("a", 1.0), Bar("b", 2.0), Bar("c", 4.0)], width)
    first, second, third = lengths(svg)
    assert second == pytest.approx(2 * first, rel=1e-4)
    assert third == pytest.approx(4 * first, rel=1e-4)
    assert parse(svg).attrib["viewBox"].split()[2] == str(width)


def test_a_figure_is_sorted_best_first() -> None:
    bars = [Bar("unknown", math.nan), Bar("worst", 3.0), Bar("endless", math.inf), Bar("best", 1.0), Bar("middle", 2.0)]
    for svg in re.findall("<svg.*?</svg>", bar_figure(bars), re.DOTALL):
        names = [text for text in texts(svg) if text.isalpha()]
        assert names == ["best", "middle", "worst", "endless", "unknown"]


def test_infinite_and_missing_values_are_drawn_as_symbols() -> None:
    svg = draw_bars([Bar("fine", 1.5), Bar("endless", math.inf), Bar("unknown", math.nan)], 860)
    assert {"1.500", "∞", "–"} <= set(texts(svg))
    assert not re.search(r"\b(nan|inf)\b", svg)
    only_bad = draw_bars([Bar("unknown", math.nan)], 860)
    assert "–" in texts(only_bad)


@pytest.mark.parametrize("count", [0, 1, 40])
def test_any_number_of_bars(count: int) -> None:
    svg = draw_bars([Bar(f"run {i}", 1 + i / 10) for i in range(count)], 860)
    assert sum(text.startswith("run ") for text in texts(svg)) == count
    height = float(parse(svg).attrib["viewBox"].split()[3])
    assert height >= 20 * count


def test_the_reference_line_is_at_its_value_and_differences_are_shown() -> None:
    svg = draw_bars([Bar("a", 2.0), Bar("b", 0.9)], 860, 1.0, "perfect")
    assert "perfect 1.000" in texts(svg)
    assert {"2.000 (+1.000)", "0.900 (−0.100)"} <= set(texts(svg))
    dashed = [path for path in parse(svg).iter(f"{_SVG}path") if "stroke-dasharray" in path.attrib["style"]]
    starts = [float(x) for x in re.findall(r"M ([\d.]+)", dashed[0].attrib["d"])]
    bar = next(path for path in parse(svg).iter(f"{_SVG}path") if "--c0" in path.attrib["style"])
    left, right = (extreme(float(x) for x in re.findall(r"[ML] ([\d.]+)", bar.attrib["d"])) for extreme in (min, max))
    assert starts[0] == pytest.approx((left + right) / 2, abs=0.1)


def test_a_line_that_is_not_a_number_is_left_out() -> None:
    assert "dasharray" not in draw_bars([Bar("a", 2.0)], 860, math.nan, "perfect")


def test_charts_use_the_colours_of_the_page_and_load_nothing() -> None:
    svg = draw_bars([Bar("a", 1.0, 1), Bar("b", 2.0, 2)], 860)
    assert "currentColor" in svg
    assert "var(--c1, " in svg
    assert "var(--c2, " in svg
    assert not re.search(r" id=|href|url\(|<style|font-family|<!DOCTYPE|<metadata", svg)


def test_the_same_bars_give_the_same_bytes() -> None:
    bars = [Bar("a", 1.25), Bar("语言模型", 2.5, 2)]
    assert bar_figure(bars, 1.0, "x") == bar_figure(bars, 1.0, "x")


@given(st.text(max_size=60), st.floats(width=32))
@settings(max_examples=60, deadline=None)
def test_any_name_and_value_make_well_formed_xml(name: str, value: float) -> None:
    svg = draw_bars([Bar(name, abs(value)), Bar("b", 2.0)], 380, 1.0, name)
    assert parse(svg).tag == f"{_SVG}svg"
    svg.encode("utf-8")


def test_names_are_drawn_as_they_are() -> None:
    name = 'a$b$ <script> & id="x" #2f6db3'
    svg = draw_bars([Bar(name, 1.0)], 860)
    assert name in texts(svg)
    assert "<script>" not in svg


def test_a_long_name_keeps_both_ends() -> None:
    drawn = next(text for text in texts(draw_bars([Bar("begin" + "x" * 300 + "end", 1.0)], 860)) if "…" in text)
    assert drawn.startswith("begin")
    assert drawn.endswith("end")


def test_families_keep_their_colours() -> None:
    assert colour_families(["nets"])["nets"] == colour_families(["nets", "counts", "zebra"])["nets"]
    many = colour_families(f"family {i}" for i in range(20))
    assert set(many.values()) == {3, 4, 5}


def test_fractions_are_sorted_and_the_smallest_are_summed_up() -> None:
    fractions = {f"s{i}": 0.01 for i in range(8)} | {"latin": 0.9, "bad": math.nan, "none": 0.0, "two": 0.02}
    found = largest_fractions(fractions)
    assert [name for name, _ in found] == ["latin", "two", "s0", "s1", "s2", "others"]
    assert [fraction for _, fraction in found] == pytest.approx([0.9, 0.02, 0.01, 0.01, 0.01, 0.05])


def test_tokens_are_grouped_by_word() -> None:
    found = group_tokens(["un", "like", "ly", "<b>", " "], [True, False, False, True, True])
    assert found == [["un", "like", "ly"], ["<b>"], ["␣"]]
    assert group_tokens(["a", "b"], []) == [["a"], ["b"]]
    assert group_tokens(["a", "b"], [False, False]) == [["a", "b"]]
