"""Word segmentation: a segmenter inserts word breaks between words without spaces."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from firth.errors import CorpusError, near_miss

WORD_BREAK = "\0"  # between two words without a space; readers reject NUL characters, so text never contains it
HAN_RANGES = (
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0002a6df\U0002a700-\U0002b73f\U0002b740-\U0002b81f\U0002b820-\U0002ceaf\U0002f800-\U0002fa1f"
)
"""The characters that BERT treats as Chinese, each a token of its own."""

HAN = re.compile(f"[{HAN_RANGES}]")

WORD_PATTERN = r"\d+(?:[.,]\d+)+|[\w{marks}]+(?:['’.\-][\w{marks}]+)*|[^\w\s{marks}]"
"""A number with separators, a word with inner apostrophes and hyphens, or one other character."""

# A break is kept only beside a Chinese character, as dictionaries split `café` and `カタカナ` wrongly, and not beside a
# space.
_SPURIOUS = re.compile(  # starts with the break, which is fast to find
    rf"{WORD_BREAK}(?:(?<![{HAN_RANGES}]{WORD_BREAK})(?![{HAN_RANGES}])|(?=\s)|(?<=\s{WORD_BREAK}))"
)


class Segmenter:
    """For text whose words are separated by spaces; subclasses insert word breaks in other text."""

    name = "space"
    is_default = False
    """Whether it segments like `make_segmenter()`."""

    def mark(self, text: str) -> str:
        """`text` with `WORD_BREAK` between words without a space."""
        return text


class JiebaSegmenter(Segmenter):
    """Chinese segmentation by dictionary and hidden Markov model: `rjieba` (fast) or `jieba` (the original).

    >>> JiebaSegmenter("rjieba").mark("我们喜欢自然语言").split(WORD_BREAK)
    ['我们', '喜欢', '自然语言']
    """

    def __init__(self, name: str = "rjieba", dictionary: Path | None = None) -> None:
        self.name = name
        self.is_default = name == "rjieba" and dictionary is None
        self._cut = _rjieba_cutter(dictionary) if name == "rjieba" else _jieba_cutter(dictionary)

    def mark(self, text: str) -> str:
        if not _may_hold_han(text):
            return text
        lines = text.split("\n")
        chinese = [index for index, line in enumerate(lines) if _may_hold_han(line)]
        # One call for all lines, because calls are slow; a newline is a word of its own.
        words = self._cut("\n".join(lines[index] for index in chinese))
        marked = _SPURIOUS.sub("", WORD_BREAK.join(words)).split("\n")
        for index, line in zip(chinese, marked, strict=True):
            lines[index] = line
        return "\n".join(lines)


# First UTF-8 bytes of Chinese and some other characters. Searching bytes is many times faster.
_HAN_BYTES = re.compile(rb"[\xe3-\xe9\xef\xf0]")


def _may_hold_han(text: str) -> bool:
    return not text.isascii() and _HAN_BYTES.search(text.encode()) is not None


def make_segmenter(name: str = "rjieba", dictionary: Path | None = None) -> Segmenter:
    """The segmenter of that name; `dictionary` is a file of user words, one `word [frequency] [tag]` per line."""
    if name == "space":
        return Segmenter()
    if name not in ("rjieba", "jieba"):
        raise CorpusError(f"there is no segmenter {name!r}: {near_miss(name, ('rjieba', 'jieba', 'space'))}")
    return JiebaSegmenter(name, dictionary)


def split_words(marked: str) -> list[str]:
    """The words of segmented text; punctuation marks are words.

    >>> split_words("Mr. O'Neil paid $3.50, twice.")
    ['Mr', '.', "O'Neil", 'paid', '$', '3.50', ',', 'twice', '.']
    """
    return word_regex().findall(marked)


def count_words(texts: Sequence[str], segmenter: Segmenter | None = None) -> list[int]:
    """The number of words of each text, none of which may contain a newline; Chinese is segmented by default.

    >>> count_words(["Mr. O'Neil paid $3.50, twice.", "我们喜欢自然语言"])
    [9, 3]
    """
    marked = (segmenter or make_segmenter()).mark("\n".join(texts)).split("\n") if texts else []
    count = word_regex().findall
    return [1 if text.isalnum() else len(count(text)) for text in marked]


@cache
def word_regex() -> re.Pattern[str]:
    # Python's \w lacks combining marks, which are parts of words in Hindi and of decomposed accents.
    return re.compile(WORD_PATTERN.replace("[^", f"[^{WORD_BREAK}").format(marks=_combining_marks()))


def _combining_marks() -> str:
    """All combining marks of the basic plane as ranges of a character class."""
    codes = [code for code in range(0x300, 0x10000) if unicodedata.category(chr(code)) in ("Mn", "Mc")]
    firsts = [code for before, code in pairwise([0, *codes]) if before != code - 1]
    lasts = [code for code, after in pairwise([*codes, 0]) if after != code + 1]
    return "".join(f"\\u{first:04x}-\\u{last:04x}" for first, last in zip(firsts, lasts, strict=True))


def _cut_by_rjieba(text: str) -> Any:
    import rjieba  # only for Chinese text: its dictionary takes 30 MB

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

    def initialize() -> None:
        frequencies, cutter.total = _jieba_frequencies()
        cutter.FREQ, cutter.initialized = dict(frequencies), True

    # By itself, jieba would read a file of the shared temporary folder by marshal, which anyone may have written.
    cutter.initialize = initialize
    if dictionary is not None:
        for word, frequency, tag in _read_dictionary(dictionary):
            cutter.add_word(word, frequency, tag)
    return cutter.lcut


@cache
def _jieba_frequencies() -> tuple[dict[str, int], int]:
    """The frequencies of the words of jieba's own dictionary and of their prefixes, and their sum."""
    import jieba

    cutter = jieba.Tokenizer()
    frequencies, total = cutter.gen_pfdict(cutter.get_dict_file())
    return frequencies, total


def _read_dictionary(path: Path) -> list[tuple[str, int | None, str | None]]:
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
        if len(parts) > 3 or not re.fullmatch(r"\d{1,12}", frequency or "0", re.ASCII):
            raise CorpusError(f"{path}, line {number}: expected `word [frequency] [tag]`, found {line.strip()!r:.80}.")
        entries.append((parts[0], int(frequency) if frequency else None, parts[2] if len(parts) > 2 else None))
    if not entries:
        raise CorpusError(f"the dictionary {path} holds no words: put one word on each line.")
    return entries
