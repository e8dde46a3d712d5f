"""JSON that every parser reads and no terminal obeys."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

# JSON allows these characters in strings, but a terminal may obey some of them, and UTF-8 cannot hold the others.
_UNSAFE_IN_JSON = re.compile(r"[\x7f-\x9f\ud800-\udfff]")


def to_json(data: Any) -> str:
    """One line of JSON; infinities are written as numbers that every parser reads as infinite.

    >>> to_json({"logprob": -math.inf, "tokens": 3})
    '{"logprob": -1e999, "tokens": 3}'
    """
    text = json.dumps(_replace_infinities(data), ensure_ascii=False)
    text = _UNSAFE_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
    return text.replace('"\\u0000+"', "1e999").replace('"\\u0000-"', "-1e999")


def _replace_infinities(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "\0+" if value > 0 else "\0-"
    if isinstance(value, Mapping):
        return {key: _replace_infinities(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_replace_infinities(item) for item in value]
    return value
