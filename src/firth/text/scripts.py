"""Characters of a text by script, an estimate of its languages, and traces of wrong decoding and markup.

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

# Inclusive ranges of code points; only their letters and marks count.
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
_SUPPLEMENTARY_HAN = (0x20000, 0x3FFFF)  # two planes of rare Chinese characters

# Frequent characters with two forms, simplified then traditional.
_PAIRS = (
    "这這国國们們来來个個时時会會说說为為对對学學过過发發经經长長开開见見东東车車门門问問间間现現还還进進实實"
    "关關点點电電话話书書买買马馬万萬无無业業产產亚亞义義乐樂习習从從价價优優传傳体體兴興写寫军軍农農决決动動"
    "务務区區医醫华華单單历歷参參双雙变變号號听聽员員图圖团團场場声聲处處备備头頭导導将將层層岁歲岛島师師应應"
    "战戰报報据據数數术術权權条條极極构構标標样樣检檢欢歡气氣汉漢济濟测測热熱爱愛环環监監种種称稱线線组組结結"
    "给給统統继繼续續维維网網联聯职職节節营營补補规規视視觉覺计計认認让讓议議记記讲講许許论論设設证證评評识識"
    "试試该該语語请請读讀调調谁誰负負财財责責质質费費资資赛賽转轉轮輪较較输輸边邊达達运運连連远遠适適选選钱錢"
    "铁鐵银銀错錯际際陆陸险險随隨难難页頁项項须須领領题題风風飞飛馆館验驗"
)
_CLASSES = (*SCRIPTS, "zh-hans", "zh-hant", "control", "replacement")
_CLASS_OF_CATEGORY = {"Cc": "control", "Cs": "control", "Nd": "digit", "Z": "space"} | dict.fromkeys(
    ("P", "Sm", "Sc", "Sk"), "punctuation"
)
_SCRIPT_OF_CLASS = {"zh-hans": "han", "zh-hant": "han", "control": "other", "replacement": "other"}

# Frequent words of one of these languages that are rare in the others.
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
_MIN_FRACTION = 0.02  # a language with a smaller fraction of the stop words is taken for quotations and names

_MARKUP = re.compile(
    r"</?(?:a|b|i|u|p|br|hr|div|span|ref|nowiki|table|tbody|tr|td|th|ul|ol|li|dl|dd|dt|h[1-6]|em|strong|sup|sub"
    r"|small|font|center|img|script|style|html|head|body|blockquote|pre|code|gallery)(?:\s[^<>]*)?/?>"
    r"|&(?:amp|lt|gt|quot|apos|nbsp|[mn]dash|#\d+|#x[0-9a-f]+);",
    re.IGNORECASE,
)
# UTF-8 decoded as Latin-1 or Windows-1252; replacement characters or unset memory decoded as GBK.
_MOJIBAKE = re.compile("[ÃÂ][\x80-\xbf€‚ƒ„…†‡ˆ‰Š‹Œ‘“”•–—˜™š›œžŸ]|â€|ï»¿|ï¿½|锟斤拷|烫烫烫|屯屯屯")


def script_counts(text: str) -> dict[str, int]:
    return fold_scripts(character_counts(text))


def character_counts(text: str) -> Counter[str]:
    """Like `script_counts`, with control, replacement, simplified and traditional characters counted separately.

    >>> sorted(character_counts("这一個\\0").items())
    [('control', 1), ('han', 1), ('zh-hans', 1), ('zh-hant', 1)]
    """
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    counts = np.bincount(_class_of_code()[codes], minlength=len(_CLASSES))
    return Counter({_CLASSES[i]: int(counts[i]) for i in np.flatnonzero(counts)})


def fold_scripts(counts: Mapping[str, int]) -> dict[str, int]:
    """The counts of `character_counts` summed by script."""
    folded: Counter[str] = Counter()
    for name, count in counts.items():
        folded[_SCRIPT_OF_CLASS.get(name, name)] += count
    return {script: folded[script] for script in SCRIPTS if folded[script]}


def letter_counts(counts: Mapping[str, int]) -> dict[str, int]:
    return {script: count for script, count in fold_scripts(counts).items() if script in _LETTER_BLOCKS}


def stop_word_counts(words: Iterable[str]) -> Counter[str]:
    """The number of stop words of each language in Latin script.

    >>> stop_word_counts("le chat est sur les genoux of the queen".split())
    Counter({'fr': 3, 'en': 2})
    """
    stop_words = Counter(map(_LANGUAGE_OF.get, words))
    return Counter({language: count for language, count in stop_words.items() if language is not None})


def language_fractions(counts: Mapping[str, int], stop_words: Mapping[str, int] | None = None) -> dict[str, float]:
    """The fraction of letters by language if script or stop words identify it, else by script; largest first.

    As many Chinese characters as there are kana count as Japanese.

    >>> language_fractions(character_counts("这是一句话"))
    {'zh-hans': 1.0}
    """
    letters = letter_counts(counts)
    japanese = min(letters.get("han", 0), letters.get("kana", 0))
    mix: dict[str, float] = {}
    for script, count in letters.items():
        if script == "latin":
            mix |= _divide(count, stop_words or {}, "latin")
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
    """Whether `text` contains an HTML tag or entity.

    >>> has_markup("fish &amp; chips"), has_markup("a <b>bold</b> word"), has_markup("if a < b & c > d")
    (True, True, False)
    """
    return ("<" in text or "&" in text) and _MARKUP.search(text) is not None


def is_mojibake(text: str) -> bool:
    """Whether `text` contains traces of decoding in the wrong encoding.

    >>> is_mojibake("la cafÃ©"), is_mojibake("锟斤拷"), is_mojibake("café, SÃO PAULO")
    (True, True, False)
    """
    return not text.isascii() and _MOJIBAKE.search(text) is not None


def _divide(count: int, stop_words: Mapping[str, int], unknown: str) -> dict[str, float]:
    """`count` letters divided in proportion to the stop words of each language."""
    total = sum(stop_words.values())
    clear = {language: n for language, n in stop_words.items() if n and n >= total * _MIN_FRACTION}
    if not clear:
        return {unknown: count}
    return {language: count * n / sum(clear.values()) for language, n in clear.items()}


@cache
def _class_of_code() -> NDArray[np.uint8]:
    """The index in `_CLASSES` of every code point: 1 MB, so that counting is one look-up per character."""
    number = {name: i for i, name in enumerate(_CLASSES)}
    first_far = _SUPPLEMENTARY_HAN[0]
    categories = [unicodedata.category(chr(code)) for code in range(first_far)]
    table = np.full(0x110000, number["other"], np.uint8)
    class_of = _CLASS_OF_CATEGORY.get
    table[:first_far] = [number[class_of(name) or class_of(name[0], "other")] for name in categories]
    is_letter = np.array([category[0] in "LM" or category == "Nl" for category in categories])
    for script, blocks in _LETTER_BLOCKS.items():
        for first, last in blocks:
            block = slice(first, last + 1)
            table[block][is_letter[block]] = number[script]
    table[_SUPPLEMENTARY_HAN[0] : _SUPPLEMENTARY_HAN[1] + 1] = number["han"]
    table[[ord(character) for character in _PAIRS[0::2]]] = number["zh-hans"]
    table[[ord(character) for character in _PAIRS[1::2]]] = number["zh-hant"]
    table[[ord(character) for character in "\t\n\r"]] = number["space"]
    table[0xFEFF] = number["control"]  # a byte-order mark inside the text
    table[0xFFFD] = number["replacement"]
    return table
