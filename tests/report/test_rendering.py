"""Formatting of numbers, and the macros of the templates."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest

from firth.report.rendering import _environment, format_bytes, format_duration, format_number, format_percent, render


def macro(name: str, *arguments: Any) -> str:
    return str(getattr(_environment().get_template("macros.html.j2").module, name)(*arguments))


@pytest.mark.parametrize(
    ("value", "digits", "shown"),
    [
        (None, 2, "–"),
        ("7", 2, "–"),
        (-math.inf, 2, "−∞"),
        (-1.5, 1, "−1.5"),
        (1e300, 1, "1.00e+300"),
        (1234567, 0, "1,234,567"),
    ],
)
def test_numbers(value: object, digits: int, shown: str) -> None:
    assert format_number(value, digits) == shown


def test_amounts() -> None:
    durations = [format_duration(seconds) for seconds in (59.96, 3600, None, math.nan)]
    assert durations == ["1 min 0 s", "1 h 0 min", "–", "–"]
    sizes = [format_bytes(size) for size in (0, 999, 1000, 2.5e9, None)]
    assert sizes == ["0 B", "999 B", "1.0 kB", "2.5 GB", "–"]
    percentages = [format_percent(fraction).replace("\u00a0", " ") for fraction in (0, 0.0001, 0.5, 1, None)]
    assert percentages == ["0 %", "<0.1 %", "50.0 %", "100.0 %", "–"]


def test_fractions_have_widths_and_a_legend() -> None:
    drawn = macro("fractions", [("latin", 0.75), ("<b>", 0.25)])
    assert re.findall(r"</i>([^<]+) <b>", drawn) == ["latin", "&lt;b&gt;"]
    assert re.findall(r"flex:([\d.]+)", drawn) == ["0.75000", "0.25000"]


def test_tokens_of_a_word_share_a_box() -> None:
    drawn = macro("token_boxes", [["un", "like", "ly"], ["<b>"], ["␣"]])
    words = re.findall(r"<span>(.*?)</span>", drawn)
    assert words == ["<i>un</i><i>like</i><i>ly</i>", "<i>&lt;b&gt;</i>", "<i>␣</i>"]


def test_a_table_leaves_out_empty_columns() -> None:
    drawn = macro("table", ["n", "x", "y"], [["a", "–", "1"], ["b", "–", "–"]])
    assert re.findall(r'<th scope="col">(\w)', drawn) == ["n", "y"]
    assert re.findall(r"<td>(.)</td>", drawn) == ["1", "–"]


def test_the_first_occurrence_of_a_word_is_bold() -> None:
    assert macro("highlight", "an <index> of an index", "index").strip() == "an &lt;<b>index</b>&gt; of an index"
    assert macro("highlight", "nothing", "index").strip() == "nothing"


def test_pages_hold_no_forbidden_characters() -> None:
    page = render("layout.html.j2", title="<a href='x'>\ud800\x00\n&", sections=[])
    assert "<title>&lt;a href=&#39;x&#39;&gt;��\n&amp;</title>" in page
    page.encode()
