"""Detection of the encoding of a file from its first bytes; doubtful files are refused.

Each encoding in which a sample decodes is scored by the resulting text. The weights are rough log-likelihood ratios of
characters in real text against wrongly decoded text; their sum is the evidence. A short sample has little evidence and
is refused rather than decoded wrongly.
"""

from __future__ import annotations

import codecs
import math
import re
import unicodedata
from collections import Counter
from functools import cache
from typing import NoReturn

from firth.errors import EncodingError, near_miss

_ALIASES = {
    "utf-8": "utf8 utf8sig u8 ascii usascii",
    "utf-16": "utf16 u16",
    "utf-16-le": "utf16le",
    "utf-16-be": "utf16be",
    "gb18030": "gb18030 gbk gb2312 cp936 ms936 windows936 euccn",
    "big5": "big5 big5tw cp950 ms950 windows950",
    "latin-1": "latin1 l1 iso88591 88591",
}
ENCODINGS = tuple(_ALIASES)
_BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
    b"\x84\x31\x95\x33": "gb18030",
}

# The most frequent Han characters: about 60 % of running text, 3 % of wrongly decoded text.
_SIMPLIFIED = (
    "的一是了不人有我在这个年为大中国和到上来会好要时就以么生看多他出作得都你后学地也天于自能对说可们本发"
    "家还子下成没过很小心日事现行去经想书女开最主分文里部月用之而电那实方然者真点业面动理新什前长工道其同"
    "情着公与种起全高但力男所民己样如感进法无重间当意太明名些定市美被因第体觉机只西加关次影比特从读等外三"
    "区知两内度性啊并老合物东活政做化又完位水别十代平给世员场建果此话常结表正制总车手通北入问让气斯更产把"
    "今爱儿相记已及回教将由写路题利期展安该二喜南任应品系少再每社解直受海设军欢才史身使头候打目提原界尔几"
)
_TRADITIONAL = (
    "的年國一在為是中人大有於和了時以地個後學成會不日上他之月與部主發民行軍出斯公到多西家生方其政來區這用"
    "作而法由被分世最對南及自東市名位也北同要戰第爾代文並本美長立動經物可海開下高建利因亞教期新所前此現過"
    "特內等種業德加重間當機度得體進事使理都子外三能工平電但馬面化道次共克定入稱力里通統將任全我你她它說們"
    "看想好很就沒什麼那只去做知問見給讓把又再樣覺點真愛聽著頭裡裏嗎吧呢話今已還從起如情意感無女男老兩小路"
    "合天車產總王者員二原相十水場性表關式數界制明口比設常科或基始量然心該金正安運目格保則些語選受系實影少"
)
_UTF16 = ("utf-16-le", "utf-16-be")
_OTHERS = ("gb18030", "big5", "latin-1", *_UTF16)
_ALL_FREQUENT = frozenset(_SIMPLIFIED + _TRADITIONAL + "，")
_FREQUENT_CHARACTERS = dict.fromkeys(_OTHERS, _ALL_FREQUENT) | {"big5": frozenset(_TRADITIONAL + "，")}

# The non-ASCII letters of Latin-1 languages. A text in one of them uses few others; a text in Latin-2 or Latin-5
# (Hungarian, Turkish) decoded as Latin-1 matches none.
_ALPHABETS = tuple(
    frozenset(letters + letters.upper())
    for letters in (
        "äöüßé",  # German
        "àâæçèéêëîïôùûüÿ",  # French
        "àáçèéíïñòóúü",  # Spanish, Catalan
        "àáâãçéêíóôõúü",  # Portuguese
        "àèéìíîòóùú",  # Italian
        "äåæéöøü",  # Danish, Finnish, Norwegian, Swedish
        "áæéíðóöúýþ",  # Icelandic
        "äõöü",  # Estonian
        "èéêëïöü",  # Dutch
    )
)
_WORD = re.compile(r"[0-9A-Za-z\xa1-\xff]+")
_QUOTED_WORD = re.compile(r"[«»¿¡]?([A-ZÀ-ÖØ-Þ]?[a-zß-öø-ÿ]+|[A-ZÀ-ÖØ-Þ]+)[«»®ªº°]?")
_QUANTITY = re.compile(r"[0-9]+[°µ²³¼½¾ªº±×·]+[0-9A-Za-z]*")
_HIGH_RUN = re.compile(r"\b[À-ÿ]{2}|[À-Þ][À-ÿ]|[À-ÿ]{3}")
_HIGH_LETTER = re.compile("[À-ÖØ-öø-ÿ]")
_ASCII_LETTER = re.compile("[A-Za-z]")
_C1_CONTROL = re.compile("[\x80-\x9f]")
# Short valid UTF-8: one alphabet of two-byte characters, or characters of three bytes or more.
_LIKELY_UTF8 = re.compile(
    "[\x00-\xff\u0100-\u017f]*|[\x00-\xbf\u0386-\u03ce]*|[\x00-\xbf\u0400-\u045f]*|[\x00-\xbf\u05d0-\u05ea]*|"
    "[\x00-\xbf\u0600-\u06ff]*|(?s:.*[\u0800-\U0010ffff].*)"
)
_SQUEEZED = re.compile(r"(?<![^\x00-\x7f])(?:(?<=[a-z])[^\x00-\x7f]|[^\x00-\x7f](?=[a-z]))(?![^\x00-\x7f])")
# First bytes of Han characters in UTF-8 -> 1, continuation bytes -> 2, others -> 0.
_UTF8_ROLES = bytes(1 if 0xE4 <= byte <= 0xE9 else 2 if 0x80 <= byte <= 0xBF else 0 for byte in range(256))
_TEXT_BYTES = bytes(set(range(256)) - set(range(0x20)) - {0x7F}) + b"\a\b\t\n\v\f\r\x1b"

# The weights, in nats.
_FREQUENT = 3.0  # a frequent character
_ORDINARY = -1.0  # a common character, which wrong decoding produces too
_ORDINARY_UTF16 = 0.5  # the same in UTF-16, where wrong decoding produces fewer
_RARE = -3.0  # a rare character
_INVALID = -8.0  # a control or unassigned character
_SQUEEZED_CHARACTER = -6.0  # one non-ASCII character within a word of ASCII letters
_ACCENTED_WORD = 8.0  # a word of ASCII letters and a few accented ones
_BAD_WORD = -24.0  # symbols, capitals or only accented letters within a word
_THRESHOLD = 8.0  # for a decision: three frequent characters, or one accented word
_SHORT = 40  # bytes; more are never valid UTF-8 by accident
_STRIDE = 64

_REMEDY = f"pass --encoding with one of {', '.join(ENCODINGS)}, or convert it to UTF-8"


def canonical_encoding(name: str) -> str:
    """The name in `ENCODINGS` of an encoding or alias.

    >>> canonical_encoding("GBK"), canonical_encoding("ISO-8859-1")
    ('gb18030', 'latin-1')
    """
    key = re.sub(r"[^a-z0-9]", "", name.lower())
    for encoding, aliases in _ALIASES.items():
        if key in aliases.split():
            return encoding
    raise EncodingError(f"unknown encoding {name!r}: {near_miss(name.lower(), ENCODINGS)}")


def detect_encoding(sample: bytes, complete: bool, source: str) -> str:
    """The name in `ENCODINGS` of the encoding of `sample`, the first (if `complete`, all) bytes of the file `source`.

    >>> detect_encoding("语言模型是这样的".encode("gb18030"), True, "zh.txt")
    'gb18030'
    """
    if sample.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        raise EncodingError(f"{source} is in UTF-32, which Firth does not read: convert it to UTF-8.")
    for mark, encoding in _BYTE_ORDER_MARKS.items():
        if sample.startswith(mark):
            return encoding
    nul = sample.find(b"\0")
    if nul >= 0:
        if chosen := _choose(sample, _UTF16, complete):
            return chosen
        raise EncodingError(
            f"{source} looks like a binary file (byte {nul} is NUL): give text files, or remove the NUL bytes."
        )
    utf8 = _decode(sample, "utf-8", complete)
    if utf8 is None:
        run = _find_utf8(sample)
        if run >= 0:
            raise mixed_encodings(source, f"UTF-8 at byte {run} but not everywhere")
        return _choose(sample, _OTHERS, complete) or _refuse(sample, source)
    if _has_many_controls(sample) or _is_doubtful(sample, utf8, complete):
        return _refuse(sample, source)
    return "utf-8"


def codec_name(encoding: str, head: bytes, source: str) -> str:
    """Python's codec name for a file in `encoding` that starts with the bytes `head`."""
    if encoding != "utf-16":
        return "cp950" if encoding == "big5" else encoding  # Big5 as it is used: with € and 裏
    if head.startswith(codecs.BOM_UTF16_BE):
        return "utf-16-be"
    if head.startswith(codecs.BOM_UTF16_LE) or not head:
        return "utf-16-le"
    raise EncodingError(f"{source} has no byte order mark: pass --encoding=utf-16-le or --encoding=utf-16-be.")


def require_same_encoding(encoding: str, data: bytes, text: str, source: str, offset: int) -> None:
    """Raise `EncodingError` if a block, though decoded, is plainly not in the encoding detected at the start."""
    if encoding.startswith("utf"):
        return
    run = _find_utf8(data)
    if run >= 0:
        raise mixed_encodings(source, f"{encoding} at first, UTF-8 at byte {offset + run}")
    if encoding == "latin-1":
        wrong = bool(_C1_CONTROL.search(text)) or _latin_evidence(text) < 10 * _BAD_WORD
    else:
        some = text[::_STRIDE]  # enough to detect another encoding
        high = len(some) - len(some.encode("ascii", "ignore"))
        wrong = high >= 50 and _character_evidence(some, encoding) < high * (_RARE + _ORDINARY) / 2
    if wrong:
        raise mixed_encodings(source, f"{encoding} at first, something else after byte {offset}")


def mixed_encodings(source: str, what: str) -> EncodingError:
    return EncodingError(f"{source} seems to mix encodings ({what}): {_REMEDY}.")


def _decode(sample: bytes, encoding: str, complete: bool) -> str | None:
    """The text of a sample, which may end within a character if incomplete; None if it is not in `encoding`."""
    decoder = codecs.getincrementaldecoder(codec_name(encoding, sample, ""))()
    try:
        return decoder.decode(sample, final=complete)
    except UnicodeDecodeError:
        return None


def _find_utf8(data: bytes) -> int:
    """The offset of four consecutive Han characters in UTF-8, which is unique to it, or -1."""
    return data.translate(_UTF8_ROLES).find(b"\1\2\2" * 4)


def _choose(sample: bytes, encodings: tuple[str, ...], complete: bool) -> str | None:
    """The encoding whose evidence, and its margin to the second, reach the threshold, or None."""
    ranked = sorted(((_evidence(sample, encoding, complete), encoding) for encoding in encodings), reverse=True)
    (most, best), (second, _) = ranked[:2]
    return best if most >= _THRESHOLD and most - second >= _THRESHOLD else None


def _is_doubtful(sample: bytes, utf8: str, complete: bool) -> bool:
    """Whether short valid UTF-8 may be Chinese in another encoding."""
    if len(sample) > _SHORT:
        return False
    wide = max(_evidence(sample, rival, complete) for rival in _UTF16)
    if utf8.isascii():
        return wide >= 2 * _FREQUENT
    chinese = max(_evidence(sample, rival, complete) for rival in ("gb18030", "big5"))
    if not _LIKELY_UTF8.fullmatch(utf8):
        return max(wide, chinese) > -math.inf
    enough = _FREQUENT if _ASCII_LETTER.search(utf8) else _ORDINARY * len(utf8)
    return chinese >= enough or wide >= _ORDINARY_UTF16 * len(sample) / 2


def _evidence(sample: bytes, encoding: str, complete: bool) -> float:
    text = _decode(sample, encoding, complete)
    if text is None:
        return -math.inf
    if encoding == "latin-1":
        return _latin_evidence(text) if _fits_latin(text) else -math.inf
    return _character_evidence(text, encoding)


def _character_evidence(text: str, encoding: str) -> float:
    """The evidence that `text` is correctly decoded from GB18030, Big5 or UTF-16."""
    total = sum(_weight(char, encoding) * count for char, count in Counter(text).items())
    if encoding not in _UTF16:  # an accented letter decoded as half of a Chinese character
        total += _SQUEEZED_CHARACTER * len(_SQUEEZED.findall(text))
    return total


def _weight(char: str, encoding: str) -> float:
    if char in _FREQUENT_CHARACTERS[encoding]:
        return _FREQUENT
    if char.isascii():
        if encoding not in _UTF16:
            return 0
        return _FREQUENT if char.isprintable() or char in "\t\r\n" else _INVALID
    if "\u3400" <= char <= "\u9fff":
        if not _is_ordinary(char):
            return _RARE
        return _ORDINARY_UTF16 if encoding in _UTF16 else _ORDINARY
    if unicodedata.category(char) in ("Cc", "Cn", "Co"):
        return _INVALID
    if encoding in _UTF16 or "\u2000" <= char <= "\u206f" or "\u3000" <= char <= "\u303f" or char >= "\uff00":
        return 0
    return _ORDINARY


@cache
def _is_ordinary(char: str) -> bool:
    """Whether a Han character is on the first level of GB2312 or Big5, like nearly all in use."""
    for codec, first, last in (("gb2312", 0xB0, 0xD7), ("big5", 0xA4, 0xC6)):
        code = char.encode(codec, "ignore")
        if code and first <= code[0] <= last:
            return True
    return False


def _latin_evidence(text: str) -> float:
    """The evidence that `text` is correctly decoded from Latin-1: accented words have the form of words."""
    total = _INVALID * len(text.encode("latin-1").translate(None, _TEXT_BYTES))
    for word, count in Counter(_WORD.findall(text)).items():
        if word.isascii() or len(word) == 1 or _QUANTITY.fullmatch(word):
            continue
        good = _QUOTED_WORD.fullmatch(word)
        if not good or _HIGH_RUN.search(good[1]):
            total += _BAD_WORD * count
        elif len(good[1]) > 2 and not good[1].isascii():
            total += _ACCENTED_WORD * count
    return total


def _fits_latin(text: str) -> bool:
    """Whether the non-ASCII letters are those of one language, or as few as in foreign names."""
    if _C1_CONTROL.search(text):
        return False
    high = Counter(_HIGH_LETTER.findall(text))
    letters = high.total()
    best = max(sum(high[char] for char in alphabet) for alphabet in _ALPHABETS)
    return best >= 0.95 * letters or letters < 0.04 * len(text)


def _has_many_controls(sample: bytes) -> bool:
    return len(sample.translate(None, _TEXT_BYTES)) > max(3, len(sample) // 50)  # 2 %


def _refuse(sample: bytes, source: str) -> NoReturn:
    if _has_many_controls(sample):
        raise EncodingError(f"{source} looks like a binary file (it is full of control characters): give text.")
    raise EncodingError(f"cannot tell in which encoding {source} is: {_REMEDY}.")
