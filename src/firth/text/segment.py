"""Words: where they begin and end, in spaced and in unspaced writing.

A segmenter marks the breaks between words that no space shows. Everything else follows from the marked text: the words
of a sentence, the groups of tokens that whole-word masking keeps together, the spaces a word-level tokenizer needs.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from firth.errors import CorpusError, near_miss

WORD_BREAK = "\0"
"""Stands between two words with no space between them. Text never holds it: readers refuse NUL characters."""

HAN_RANGES = (
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0002a6df\U0002a700-\U0002b73f\U0002b740-\U0002b81f\U0002b820-\U0002ceaf\U0002f800-\U0002fa1f"
)
"""The characters BERT calls Chinese, each of which it sets apart as a token of its own."""

HAN = re.compile(f"[{HAN_RANGES}]")

WORD_PATTERN = r"\d+(?:[.,]\d+)+|[\w{marks}]+(?:['’.\-][\w{marks}]+)*|[^\w\s{marks}]"
"""A number with its points, a word with inner apostrophes and hyphens, or one other character."""

# A break is kept only beside a Chinese character: dictionaries cut `café` and `カタカナ` where no word ends. Beside a
# space there is no need of it.
_SPURIOUS = re.compile(  # the break comes first, so that only breaks are looked at
    rf"{WORD_BREAK}(?:(?<![{HAN_RANGES}]{WORD_BREAK})(?![{HAN_RANGES}])|(?=\s)|(?<=\s{WORD_BREAK}))"
)


class Segmenter(Protocol):
    """Marks word breaks in unspaced writing; leaves the rest of the text as it is."""

    name: str

    def mark(self, text: str) -> str:
        """`text` with `WORD_BREAK` between words that no space separates."""
        ...


class SpaceSegmenter:
    """For text whose words are separated by spaces already, in any language."""

    name = "space"

    def mark(self, text: str) -> str:
        return text


class JiebaSegmenter:
    """Chinese words by dictionary and hidden Markov model: `rjieba` (fast) or `jieba` (the original).

    >>> JiebaSegmenter("rjieba").mark("我们喜欢自然语言").split(WORD_BREAK)
    ['我们', '喜欢', '自然语言']
    """

    def __init__(self, name: str = "rjieba", dictionary: Path | None = None) -> None:
        self.name = name
        self._cut = _rjieba_cutter(dictionary) if name == "rjieba" else _jieba_cutter(dictionary)

    def mark(self, text: str) -> str:
        if not _may_hold_han(text):
            return text
        lines = text.split("\n")
        chinese = [place for place, line in enumerate(lines) if _may_hold_han(line)]
        # All such lines at once, because a call has its price; a line end is a word of its own.
        words = self._cut("\n".join(lines[place] for place in chinese))
        marked = _SPURIOUS.sub("", WORD_BREAK.join(words)).split("\n")
        for place, line in zip(chinese, marked, strict=True):
            lines[place] = line
        return "\n".join(lines)


# First bytes of the UTF-8 of Chinese characters, and of some others. Bytes are searched many times faster.
_HAN_BYTES = re.compile(rb"[\xe3-\xe9\xef\xf0]")


def _may_hold_han(text: str) -> bool:
    return not text.isascii() and _HAN_BYTES.search(text.encode()) is not None


SEGMENTERS = ("rjieba", "jieba", "space")


def make_segmenter(name: str = "rjieba", dictionary: Path | None = None) -> Segmenter:
    """The segmenter of that name; `dictionary` is a file of user words, `word [frequency] [tag]` a line."""
    if name == "space":
        return SpaceSegmenter()
    if name not in SEGMENTERS:
        raise CorpusError(f"there is no segmenter {name!r}: {near_miss(name, SEGMENTERS)}")
    return JiebaSegmenter(name, dictionary)


def words_of(marked: str) -> list[str]:
    """The words of a text that a segmenter has marked; punctuation marks are words of their own.

    >>> words_of("Mr. O'Neil paid $3.50, twice.")
    ['Mr', '.', "O'Neil", 'paid', '$', '3.50', ',', 'twice', '.']
    """
    return word_finder().findall(marked)


@cache
def word_finder() -> re.Pattern[str]:
    """Finds the words of marked text, one match each."""
    # Python's \w leaves out combining marks, without which Hindi or decomposed accents fall to pieces.
    return re.compile(WORD_PATTERN.replace("[^", f"[^{WORD_BREAK}").format(marks=_combining_marks()))


def _combining_marks() -> str:
    """All combining marks of the basic plane as the inside of a character class."""
    codes = [code for code in range(0x300, 0x10000) if unicodedata.category(chr(code)) in ("Mn", "Mc")]
    ranges: list[list[int]] = []
    for code in codes:
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return "".join(f"\\u{first:04x}-\\u{last:04x}" for first, last in ranges)


def _cut_by_rjieba(text: str) -> Any:
    import rjieba  # its dictionary takes 30 MB: English text need not have it

    return rjieba.cut(text)


def _rjieba_cutter(dictionary: Path | None) -> Any:
    if dictionary is None:
        return _cut_by_rjieba
    import rjieba

    cutter = rjieba.Jieba()
    for word, frequency, tag in _read_dictionary(dictionary):
        cutter.add_word(word, frequency, tag)
        if not cutter.has_word(word):
            raise CorpusError(f"rjieba cannot take the word {word!r} of {dictionary}: set segmenter=jieba.")
    return cutter.cut


def _jieba_cutter(dictionary: Path | None) -> Any:
    import logging
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # jieba 0.42 still imports pkg_resources and uses old escapes
        import jieba

    jieba.setLogLevel(logging.WARNING)
    cutter = jieba.Tokenizer()
    if dictionary is not None:
        for word, frequency, tag in _read_dictionary(dictionary):
            cutter.add_word(word, frequency, tag)
    return cutter.lcut


def _read_dictionary(path: Path) -> list[tuple[str, int | None, str | None]]:
    """The user words of a file: word, frequency, tag; the last two may be missing."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except FileNotFoundError:
        raise CorpusError(f"there is no dictionary {path}: name a file with one word a line.") from None
    except (UnicodeDecodeError, OSError) as error:
        raise CorpusError(f"cannot read the dictionary {path}: {error}; save it as UTF-8 text.") from None
    entries: list[tuple[str, int | None, str | None]] = []
    for number, line in enumerate(lines, start=1):
        parts = line.split()
        if not parts:
            continue
        frequency = parts[1] if len(parts) > 1 else None
        if len(parts) > 3 or (frequency is not None and not frequency.isdecimal()):
            raise CorpusError(f"{path}, line {number}: expected `word [frequency] [tag]`, found {line.strip()!r}.")
        entries.append((parts[0], int(frequency) if frequency else None, parts[2] if len(parts) > 2 else None))
    if not entries:
        raise CorpusError(f"the dictionary {path} holds no words: put one word on each line.")
    return entries
