"""Whether spaces stand between the words of a sentence."""

from __future__ import annotations

import re
from collections.abc import Sequence

from firth.text.segment import HAN_RANGES

# Chinese characters, kana and Thai letters: writing without spaces.
_UNSPACED = f"{HAN_RANGES}\u3041-\u30ff\u31f0-\u31ff\u0e00-\u0e7f"
_LETTER = re.compile(f"[{_UNSPACED}]")
_SPACED_WORD = re.compile(rf"[^\W\d_{_UNSPACED}]+")


def is_spaced(words: Sequence[str], otherwise: bool = True) -> bool:
    """Whether words are of writing with spaces: most letters that could stand alone are not; `otherwise` if none is.

    >>> is_spaced(["the", "cat"]), is_spaced(["我", "穿", "T", "恤"]), is_spaced(["1", "9"], otherwise=False)
    (True, False, False)
    >>> is_spaced(["W", "B", "C"], otherwise=False), is_spaced(["W", "B", "C", "高"])
    (False, False)
    """
    text = " ".join(words)
    unspaced = 0 if text.isascii() else len(_LETTER.findall(text))
    single = len(words) > 2 and len(text) == 2 * len(words) - 1  # each character a word, so that letters tell nothing
    spaced = 0 if single else len(_SPACED_WORD.findall(text))
    return otherwise if not (unspaced or spaced) else spaced >= unspaced
