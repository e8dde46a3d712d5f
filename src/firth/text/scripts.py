"""What a text is written in: its characters by script, a guess at the languages, and traces of accidents.

>>> script_counts("Firth 弗斯!")
{'han': 2, 'latin': 5, 'punctuation': 1, 'space': 1}
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache

import numpy as np
from numpy.typing import NDArray

SCRIPTS = (
    *("han", "latin", "cyrillic", "greek", "kana", "hangul", "arabic", "hebrew", "devanagari", "thai"),
    *("digit", "punctuation", "space", "other"),
)

# Blocks of code points, both ends included; only the letters and marks in them are meant.
_LETTER_BLOCKS = {
    "han": ((0x2E80, 0x2FDF), (0x3005, 0x3029), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF)),
    "latin": (
        *((0x41, 0x5A), (0x61, 0x7A), (0xAA, 0xAA), (0xBA, 0xBA), (0xC0, 0x2AF), (0x1E00, 0x1EFF)),
        *((0x2C60, 0x2C7F), (0xA720, 0xA7FF), (0xAB30, 0xAB6F), (0xFB00, 0xFB06)),
        *((0xFF21, 0xFF3A), (0xFF41, 0xFF5A)),
    ),
    "cyrillic": ((0x400, 0x52F), (0x1C80, 0x1C8F), (0x2DE0, 0x2DFF), (0xA640, 0xA69F)),
    "greek": ((0x370, 0x3FF), (0x1F00, 0x1FFF)),
    "kana": ((0x3041, 0x30FF), (0x31F0, 0x31FF), (0xFF66, 0xFF9F)),
    "hangul": ((0x1100, 0x11FF), (0x3131, 0x318E), (0xA960, 0xA97F), (0xAC00, 0xD7FF)),
    "arabic": ((0x600, 0x6FF), (0x750, 0x77F), (0x870, 0x8FF), (0xFB50, 0xFDFF), (0xFE70, 0xFEFC)),
    "hebrew": ((0x591, 0x5F4), (0xFB1D, 0xFB4F)),
    "devanagari": ((0x900, 0x97F), (0xA8E0, 0xA8FF)),
    "thai": ((0xE00, 0xE7F),),
}
_FAR_HAN = (0x20000, 0x3FFFF)  # the two planes that hold nothing but rare Chinese characters

# Frequent characters whose two forms differ, simplified then traditional.
_PAIRS = (
    "这這国國们們来來个個时時会會说說为為对對学學过過发發经經长長开開见見东東车車门門问問间間现現还還进進实實"
    "关關点點电電话話书書买買马馬万萬无無业業产產亚亞义義乐樂习習从從价價优優传傳体體兴興写寫军軍农農决決动動"
    "务務区區医醫华華单單历歷参參双雙变變号號听聽员員图圖团團场場声聲处處备備头頭导導将將层層岁歲岛島师師应應"
    "战戰报報据據数數术術权權条條极極构構标標样樣检檢欢歡气氣汉漢济濟测測热熱爱愛环環监監种種称稱线線组組结結"
    "给給统統继繼续續维維网網联聯职職节節营營补補规規视視觉覺计計认認让讓议議记記讲講许許论論设設证證评評识識"
    "试試该該语語请請读讀调調谁誰负負财財责責质質费費资資赛賽转轉轮輪较較输輸边邊达達运運连連远遠适適选選钱錢"
    "铁鐵银銀错錯际際陆陸险險随隨难難页頁项項须須领領题題风風飞飛馆館验驗"
)
_FINE = (*SCRIPTS, "zh-hans", "zh-hant", "control", "replacement")
_FOLDED = {"zh-hans": "han", "zh-hant": "han", "control": "other", "replacement": "other"}

# Small words that one of these languages uses all the time and the others never or hardly ever.
_STOP_WORDS = {
    "en": "the and of with that from which have this are by",
    "fr": "les des est dans une sur avec pour qui du",
    "de": "der und das nicht mit ist von dem den auf",
    "es": "el los las del por y con su como más",
    "it": "il di che della gli nel sono anche dei più",
    "pt": "não uma dos os em ao pelo são também seu",
    "nl": "het een van niet zijn voor naar ook werd deze",
}
_LANGUAGE_OF = {word: language for language, words in _STOP_WORDS.items() for word in words.split()}
_TRACE = 0.02  # a language with a smaller share of the signs of its script is taken for quotations and names

_MARKUP = re.compile(
    r"</?(?:a|b|i|u|p|br|hr|div|span|ref|nowiki|table|tbody|tr|td|th|ul|ol|li|dl|dd|dt|h[1-6]|em|strong|sup|sub"
    r"|small|font|center|img|script|style|html|head|body|blockquote|pre|code|gallery)(?:\s[^<>]*)?/?>"
    r"|&(?:amp|lt|gt|quot|apos|nbsp|[mn]dash|#\d+|#x[0-9a-f]+);",
    re.IGNORECASE,
)
# UTF-8 read as Latin-1 or Windows-1252; a replacement character read as GBK; unset memory read as GBK.
_GARBLED = re.compile("[ÃÂ][\x80-\xbf€‚ƒ„…†‡ˆ‰Š‹Œ‘“”•–—˜™š›œžŸ]|â€|ï»¿|ï¿½|锟斤拷|烫烫烫|屯屯屯")


def script_counts(text: str) -> dict[str, int]:
    """The number of characters of each script in `text`, without those it has none of."""
    return fold_scripts(character_counts(text))


def character_counts(text: str) -> Counter[str]:
    """As `script_counts`, but control and replacement characters and those of one Chinese script stand apart.

    >>> sorted(character_counts("这一個\\0").items())
    [('control', 1), ('han', 1), ('zh-hans', 1), ('zh-hant', 1)]
    """
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    counts = np.bincount(_class_of_code()[codes], minlength=len(_FINE))
    return Counter({_FINE[i]: int(counts[i]) for i in np.flatnonzero(counts)})


def fold_scripts(counts: Mapping[str, int]) -> dict[str, int]:
    """The counts by script that `character_counts` has taken apart."""
    folded: Counter[str] = Counter()
    for name, count in counts.items():
        folded[_FOLDED.get(name, name)] += count
    return {script: folded[script] for script in SCRIPTS if folded[script]}


def letter_counts(counts: Mapping[str, int]) -> dict[str, int]:
    """The counts of the scripts that consist of letters."""
    return {script: count for script, count in fold_scripts(counts).items() if script in _LETTER_BLOCKS}


def language_signs(words: Iterable[str]) -> Counter[str]:
    """How many words tell a language that is written in Latin letters.

    >>> language_signs("le chat est sur les genoux of the queen".split())
    Counter({'fr': 3, 'en': 2})
    """
    signs = Counter(map(_LANGUAGE_OF.get, words))
    return Counter({language: count for language, count in signs.items() if language is not None})


def language_mix(counts: Mapping[str, int], signs: Mapping[str, int] | None = None) -> dict[str, float]:
    """The share of letters by language where script or signs tell it, else by script; largest first.

    `counts` comes from `character_counts`, `signs` from `language_signs`. As many Chinese characters as there
    are kana are taken for Japanese.

    >>> language_mix(character_counts("这是一句话"))
    {'zh-hans': 1.0}
    """
    letters = letter_counts(counts)
    japanese = min(letters.get("han", 0), letters.get("kana", 0))
    mix: dict[str, float] = {}
    for script, count in letters.items():
        if script == "latin":
            mix |= _divide(count, signs or {}, "latin")
        elif script == "han":
            chinese = {name: counts.get(name, 0) for name in ("zh-hans", "zh-hant")}
            mix |= _divide(count - japanese, chinese, "han")
        elif script == "kana":
            mix["ja"] = count + japanese
        else:
            mix[script] = count
    total = sum(letters.values())
    largest_first = sorted(mix.items(), key=lambda item: -item[1])
    return {name: count / total for name, count in largest_first if count}


def has_markup(text: str) -> bool:
    """Whether an HTML tag or entity stands in `text`.

    >>> has_markup("fish &amp; chips"), has_markup("a <b>bold</b> word"), has_markup("if a < b & c > d")
    (True, True, False)
    """
    return ("<" in text or "&" in text) and _MARKUP.search(text) is not None


def is_garbled(text: str) -> bool:
    """Whether `text` holds what appears when text is read in the wrong encoding.

    >>> is_garbled("la cafÃ©"), is_garbled("锟斤拷"), is_garbled("café, SÃO PAULO")
    (True, True, False)
    """
    return not text.isascii() and _GARBLED.search(text) is not None


def _divide(count: int, signs: Mapping[str, int], unknown: str) -> dict[str, float]:
    """`count` letters divided in proportion to the signs of each language."""
    total = sum(signs.values())
    clear = {language: n for language, n in signs.items() if n and n >= total * _TRACE}
    if not clear:
        return {unknown: count}
    return {language: count * n / sum(clear.values()) for language, n in clear.items()}


@cache
def _class_of_code() -> NDArray[np.uint8]:
    """The place in `_FINE` of every code point: a megabyte, so that counting is one look-up a character."""
    number = {name: i for i, name in enumerate(_FINE)}
    near = _FAR_HAN[0]
    categories = [unicodedata.category(chr(code)) for code in range(near)]
    table = np.full(0x110000, number["other"], np.uint8)
    table[:near] = [number[_class_of_category(category)] for category in categories]
    is_letter = np.array([category[0] in "LM" or category == "Nl" for category in categories])
    for script, blocks in _LETTER_BLOCKS.items():
        for first, last in blocks:
            block = slice(first, last + 1)
            table[block][is_letter[block]] = number[script]
    table[_FAR_HAN[0] : _FAR_HAN[1] + 1] = number["han"]
    table[[ord(character) for character in _PAIRS[0::2]]] = number["zh-hans"]
    table[[ord(character) for character in _PAIRS[1::2]]] = number["zh-hant"]
    table[[ord(character) for character in "\t\n\r"]] = number["space"]
    table[0xFEFF] = number["control"]  # a byte-order mark inside the text
    table[0xFFFD] = number["replacement"]
    return table


def _class_of_category(category: str) -> str:
    if category in ("Cc", "Cs"):
        return "control"
    if category == "Nd":
        return "digit"
    if category[0] == "P" or category in ("Sm", "Sc", "Sk"):
        return "punctuation"
    return "space" if category[0] == "Z" else "other"
