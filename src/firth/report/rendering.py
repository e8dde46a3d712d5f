"""Pages from Jinja2 templates, and the formatting of numbers in them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from jinja2 import ChainableUndefined, Environment, PackageLoader
from markupsafe import Markup

from firth.plots import INVALID_CHARACTERS

NOTHING = "–"
"""Stands for a value that is missing or not a number."""


def format_number(value: Any, digits: int = 0) -> str:
    """A number with thousands separators.

    >>> format_number(12345), format_number(2.5, 3), format_number(float("inf")), format_number(float("nan"))
    ('12,345', '2.500', '∞', '–')
    """
    if not isinstance(value, int | float) or math.isnan(value):
        return NOTHING
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    return f"{value:.2e}" if abs(value) >= 1e12 else f"{value:,.{digits}f}".replace("-", "−")


def format_percent(fraction: Any) -> str:
    """A fraction in per cent.

    >>> format_percent(0.5) == "50.0\\u00a0%"
    True
    """
    if not isinstance(fraction, int | float):
        return NOTHING
    shown = "0" if fraction == 0 else "<0.1" if 0 < fraction < 0.001 else format_number(fraction * 100, 1)
    return f"{shown}\u00a0%"


def format_bytes(size: Any) -> str:
    """A number of bytes.

    >>> format_bytes(512), format_bytes(7_912_345)
    ('512 B', '7.9 MB')
    """
    units = ("B", "kB", "MB", "GB", "TB")
    if not isinstance(size, int | float) or not math.isfinite(size):
        return format_number(size)
    power = min(int(math.log10(max(size, 1)) // 3), len(units) - 1)
    return f"{format_number(size / 1000**power, 1 if power else 0)} {units[power]}"


def format_duration(seconds: Any) -> str:
    """A number of seconds.

    >>> format_duration(0.25), format_duration(75), format_duration(7500)
    ('0.2 s', '1 min 15 s', '2 h 5 min')
    """
    if not isinstance(seconds, int | float) or not math.isfinite(seconds):
        return format_number(seconds)
    if seconds < 59.95:
        return f"{format_number(seconds, 1)} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def lang_attribute(text: str) -> Markup:
    """The HTML attribute that selects Chinese or Japanese glyphs, empty for other text.

    >>> str(lang_attribute("语言")), str(lang_attribute("word"))
    (' lang="zh"', '')
    """
    if re.search("[\u3040-\u30ff]", text):
        return Markup(' lang="ja"')
    return Markup(' lang="zh"' if re.search("[\u3400-\u9fff]", text) else "")  # nosec B704


def used_columns(rows: Sequence[Sequence[Any]]) -> list[int]:
    """The first column of a table and those in which some row has a value."""
    return [i for i in range(len(rows[0])) if i == 0 or any(row[i] != NOTHING for row in rows)] if rows else []


def shorten(label: str, most: int = 24) -> str:
    """A label cut to a maximum number of characters."""
    return label if len(label) <= most else f"{label[: most - 1]}…"


def render(template: str, **values: Any) -> Markup:
    """A template filled in; characters that XML or UTF-8 forbids are replaced."""
    filled = _environment().get_template(template).render(values)  # which escapes all values
    return Markup(INVALID_CHARACTERS.sub("\ufffd", filled))  # nosec B704


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("firth.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=ChainableUndefined,  # optional parts of a report are empty or NOTHING
        extensions=["jinja2.ext.do"],
    )
    environment.filters |= {
        "number": format_number,
        "percent": format_percent,
        "bytes": format_bytes,
        "duration": format_duration,
        "lang": lang_attribute,
        "used_columns": used_columns,
        "shorten": shorten,
    }
    environment.globals["NOTHING"] = NOTHING
    return environment
