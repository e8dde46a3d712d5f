"""Characters by script, and the guess at languages."""

from __future__ import annotations

import unicodedata
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firth.text.scripts import (
    SCRIPTS,
    character_counts,
    fold_scripts,
    has_markup,
    is_mojibake,
    language_fractions,
    letter_counts,
    script_counts,
    stop_word_counts,
)


@pytest.mark.parametrize(
    ("text", "script"),
    [
        ("汉字漢字〇々𠮷㐀", "han"),
        ("abcXYZéßœĐạﬁＡ", "latin"),
        ("Привет", "cyrillic"),
        ("Ελληνικάἀ", "greek"),
        ("ひらがなカタカナーﾊﾝｶｸ", "kana"),
        ("한국어", "hangul"),
        ("العربية", "arabic"),
        ("עברית", "hebrew"),
        ("हिन्दी", "devanagari"),
        ("ภาษาไทย", "thai"),
        ("0123٣५９", "digit"),
        (".,!?、。！「」—“”$+<>=~^`|", "punctuation"),
        (" \t\n\r\u3000\u00a0", "space"),
        ("☺🙂²Ⅳ\u0301\u200b", "other"),
        ("\x00\x7f\x85\ufeff\ufffd\ud800", "other"),
    ],
)
def test_each_script(text: str, script: str) -> None:
    assert script_counts(text) == {script: len(text)}


def test_counts_of_a_mixed_text_in_the_order_of_the_table() -> None:
    counts = script_counts("Ok, 我们 2 times です!")
    assert counts == {"han": 2, "latin": 7, "kana": 2, "digit": 1, "punctuation": 2, "space": 4}
    assert list(counts) == [script for script in SCRIPTS if script in counts]
    assert script_counts("") == {}


@pytest.mark.parametrize(
    ("prefix", "script"),
    [
        ("LATIN SMALL LETTER", "latin"),
        ("LATIN CAPITAL LETTER", "latin"),
        ("CYRILLIC SMALL LETTER", "cyrillic"),
        ("GREEK CAPITAL LETTER", "greek"),
        ("CJK UNIFIED IDEOGRAPH", "han"),
        ("HIRAGANA LETTER", "kana"),
        ("KATAKANA LETTER", "kana"),
        ("HANGUL SYLLABLE", "hangul"),
        ("ARABIC LETTER", "arabic"),
        ("HEBREW LETTER", "hebrew"),
        ("DEVANAGARI LETTER", "devanagari"),
        ("THAI CHARACTER", "thai"),
    ],
)
def test_letters_agree_with_their_unicode_names(prefix: str, script: str) -> None:
    named = [chr(code) for code in range(0x10000) if unicodedata.name(chr(code), "").startswith(prefix)]
    letters = [character for character in named if unicodedata.category(character)[0] in "LM"]
    counts = script_counts("".join(letters))
    assert counts.pop(script) >= 0.9 * len(letters)  # `other` gets the phonetic alphabets
    assert set(counts) <= {"other"}


@given(st.text())
def test_every_character_is_counted_once(text: str) -> None:
    assert sum(script_counts(text).values()) == len(text)
    assert sum(character_counts(text).values()) == len(text)


@given(st.text(), st.text())
def test_counts_add_up(a: str, b: str) -> None:
    assert character_counts(a) + character_counts(b) == character_counts(a + b)


def test_control_and_replacement_characters_are_separate() -> None:
    counts = character_counts("a\x00b\x1b\t\ufeff\ufffdc\n")
    assert counts == {"latin": 3, "control": 3, "replacement": 1, "space": 2}
    assert fold_scripts(counts) == {"latin": 3, "space": 2, "other": 4}
    assert letter_counts(counts) == {"latin": 3}


def test_simplified_and_traditional_are_separate() -> None:
    assert character_counts("这個一") == {"zh-hans": 1, "zh-hant": 1, "han": 1}


def mix_of(text: str) -> dict[str, float]:
    return language_fractions(character_counts(text), stop_word_counts(text.split()))


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("the book that was written by them is with the others", "en"),
        ("les enfants sont dans une maison avec des amis pour la nuit", "fr"),
        ("der Mann und das Kind sind nicht mit dem Hund auf der Straße", "de"),
        ("el perro y los gatos del barrio viven con su familia por años", "es"),
        ("il cane della casa che vive nel giardino di fronte sono anche nostri", "it"),
        ("os livros não são dos alunos em uma escola, também ao lado", "pt"),
        ("het huis van de man is niet groot, een boom werd ook voor deze", "nl"),
        ("我们这个国家的语言学问题", "zh-hans"),
        ("我們這個國家的語言學問題", "zh-hant"),
        ("これは日本語の文章です", "ja"),
        ("이것은 한국어입니다", "hangul"),
        ("Это русский язык", "cyrillic"),
        ("Loxodonta africana", "latin"),
        ("一二三", "han"),
    ],
)
def test_language_of_a_sentence(text: str, language: str) -> None:
    assert next(iter(mix_of(text))) == language
    assert mix_of(text)[language] > 0.9


def test_mixture_is_by_share_of_letters_and_largest_first() -> None:
    mix = mix_of("the and of with " + "我们" * 7)
    assert list(mix.items()) == [("zh-hans", 14 / 26), ("en", 12 / 26)]
    assert mix_of("12 + 3") == {}


def test_a_trace_of_another_language_is_not_counted() -> None:
    counts = Counter({"latin": 1000})
    assert language_fractions(counts, {"en": 99, "de": 1}) == {"en": 1.0}
    assert language_fractions(counts, {"en": 75, "de": 25}) == {"en": 0.75, "de": 0.25}


@given(st.text(alphabet="aé国國这の한и 1.", max_size=40))
def test_shares_sum_to_one(text: str) -> None:
    mix = mix_of(text)
    assert not mix or sum(mix.values()) == pytest.approx(1)
    assert all(fraction > 0 for fraction in mix.values())


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a <br/> b", True),
        ('<a href="x">link</a>', True),
        ("</DIV>", True),
        ("R&amp;D", True),
        ("&#8217;", True),
        ("the <unk> token", False),
        ("a < b and b > c", False),
        ("AT&T; really", False),
        ("<module>", False),
    ],
)
def test_markup(text: str, found: bool) -> None:
    assert has_markup(text) == found


@pytest.mark.parametrize("text", ["naïve café", "“quoted” — fine…", "SÃO, Ângela", "l’été"])
def test_a_wrong_reading_is_garbled_and_the_right_one_is_not(text: str) -> None:
    assert not is_mojibake(text)
    assert is_mojibake(text.encode().decode("cp1252", "replace"))


@pytest.mark.parametrize("text", ["plain", "一烫一锟", "Ελλάδα", "ã et Ã", "20 Âge"])
def test_sound_text_is_not_garbled(text: str) -> None:
    assert not is_mojibake(text)


def test_classical_garbage_is_garbled() -> None:
    assert is_mojibake("锟斤拷")
    assert is_mojibake("烫烫烫烫")
    assert is_mojibake("\ufffd".encode().decode("latin-1"))
    assert is_mojibake("donâ€™t")
