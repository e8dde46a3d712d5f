"""Encodings are detected from real text, and what is doubtful is refused."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firth.errors import EncodingError
from firth.text.encoding import (
    ENCODINGS,
    canonical_encoding,
    codec_name,
    detect_encoding,
    require_same_encoding,
)

SIMPLIFIED = "今天我们来谈一谈语言模型是怎么工作的，它为什么能够理解人们说的话。"
TRADITIONAL = "今天我們來談一談語言模型是怎麼工作的，它為什麼能夠理解人們說的話。"
LATIN = {
    "de": "Die Männer über der Straße fühlen sich größer, als sie früher waren.",
    "fr": "Où êtes-vous allés hier ? Le garçon a été reçu à l'hôtel, «très bien», dit-elle à 20°C.",
    "es": "¿Dónde estás, niña? El 1º de año comió después del mediodía. ¡Qué día!",
    "pt": "Não há informação sobre a situação das nações; você é avô.",
    "it": "Perché non c'è più libertà? La città è così bella, però lunedì non verrà nessuno.",
    "sv": "Igår åt vi middag på ön och gick över bron.",
    "da": "Øen ligger på nordsiden, og børnene spiste æbler i går.",
    "fi": "Hän näki tämän pöydän päällä, ja pääkaupunki hiljeni.",
    "is": "Það er stórt og þar búa margir. Í gær fór ég út að ganga.",
    "en": "We had coffee in a small café and then left.",
}
FOREIGN = {
    "iso8859-2": "Tegnap este későn értünk haza, mert hűvös volt az idő, és a többiek őt követték. "
    "Wczoraj byłem z przyjaciółmi w kinie na południu.",
    "iso8859-9": "Dün akşam arkadaşlarımla buluştuk ve çok güzel vakit geçirdik.",
    "iso8859-13": "Vakar mēs ar draugiem bijām kino un pēc tam ēdām vakariņas.",
    "cp1251": "Россия находится в Восточной Европе и Северной Азии.",
    "koi8-r": "Россия находится в Восточной Европе и Северной Азии.",
    "cp1252": "The café’s owner said “hello” – and left.",
    "mac-roman": "Le garçon a été reçu à l'hôtel, très bien.",
    "cp850": "Le garçon a été reçu à l'hôtel, très bien.",
    "iso8859-7": "Η Ελλάδα είναι χώρα της νοτιοανατολικής Ευρώπης.",
    "euc-kr": "대한민국은 동아시아의 한반도 남부에 자리한 민주공화국이다. 우리 나라 사람들은 이 말을 쓰지 않는다.",
    "euc-jp": "日本国は、東アジアに位置し、日本列島および周辺の島々から成る民主制国家である。",
    "shift-jis": "日本国は、東アジアに位置し、日本列島および周辺の島々から成る民主制国家である。",
}


def reading(data: bytes, complete: bool = True) -> str | None:
    """What `data` would be read as, or None where it is refused."""
    try:
        encoding = detect_encoding(data, complete, "x.txt")
    except EncodingError:
        return None
    return data.decode(codec_name(encoding, data, "x.txt")).removeprefix("\ufeff")


@pytest.mark.parametrize(
    ("text", "codec", "encoding"),
    [
        ("", "utf-8", "utf-8"),
        ("plain ASCII", "utf-8", "utf-8"),
        ("café", "utf-8", "utf-8"),
        ("Rhône\n", "utf-8", "utf-8"),
        ("Привет, мир", "utf-8", "utf-8"),
        ("中文", "utf-8", "utf-8"),
        (SIMPLIFIED, "utf-8-sig", "utf-8"),
        (SIMPLIFIED, "utf-16", "utf-16"),
        ("\ufeff" + SIMPLIFIED, "utf-16-be", "utf-16"),
        ("\ufeff" + SIMPLIFIED, "gb18030", "gb18030"),
        (SIMPLIFIED, "utf-16-le", "utf-16-le"),
        (SIMPLIFIED, "utf-16-be", "utf-16-be"),
        ("One line.\nAnother.\n", "utf-16-le", "utf-16-le"),
        ("One line.\nAnother.\n", "utf-16-be", "utf-16-be"),
        (SIMPLIFIED, "gb2312", "gb18030"),
        (SIMPLIFIED[:10], "gb18030", "gb18030"),
        (TRADITIONAL, "gb18030", "gb18030"),
        (TRADITIONAL, "big5", "big5"),
        (TRADITIONAL + "裏面要10€", "cp950", "big5"),
        *((text, "latin-1", "latin-1") for text in LATIN.values()),
    ],
)
def test_text_is_detected(text: str, codec: str, encoding: str) -> None:
    assert detect_encoding(text.encode(codec), True, "x.txt") == encoding


@pytest.mark.parametrize("codec", ["utf-8", "gb18030", "cp950", "utf-16-le"])
def test_a_sample_may_end_within_a_character(codec: str) -> None:
    data = TRADITIONAL.encode(codec)
    whole = detect_encoding(data, True, "x.txt")
    assert {detect_encoding(data[:-cut], False, "x.txt") for cut in (1, 2, 3)} == {whole}


def test_a_file_may_not_end_within_a_character() -> None:
    with pytest.raises(EncodingError, match=r"x\.txt.*pass encoding"):
        detect_encoding(TRADITIONAL.encode()[:-1], True, "x.txt")


@pytest.mark.parametrize("codec", FOREIGN)
def test_other_encodings_are_refused(codec: str) -> None:
    with pytest.raises(EncodingError, match=r"cannot tell in which encoding x\.txt is: pass encoding"):
        detect_encoding(FOREIGN[codec].encode(codec), True, "x.txt")


@pytest.mark.parametrize(
    "data",
    [
        bytes(range(256)) * 8,
        b"\x7fELF\x02\x01\x01" + bytes(40),
        random.Random(1).randbytes(2000),
        b"\x01\x02\x03\x04\x05 text",
        b"some text\0more text",
    ],
)
def test_binary_data_is_refused(data: bytes) -> None:
    with pytest.raises(EncodingError, match=r"x\.bin looks like a binary file"):
        detect_encoding(data, True, "x.bin")


def test_the_offset_of_a_nul_is_named() -> None:
    with pytest.raises(EncodingError, match="byte 9 is NUL"):
        detect_encoding(b"some text\0more text", True, "x.txt")


def test_utf_32_is_refused() -> None:
    with pytest.raises(EncodingError, match=r"UTF-32.*convert it to UTF-8"):
        detect_encoding("text".encode("utf-32"), True, "x.txt")


@pytest.mark.parametrize("other", ["gb18030", "cp950"])
def test_a_mix_with_utf_8_is_refused(other: str) -> None:
    before = TRADITIONAL.encode(other)
    with pytest.raises(EncodingError, match=f"mix encodings.*byte {len(before)}.*pass encoding"):
        detect_encoding(before + TRADITIONAL.encode(), True, "x.txt")


@pytest.mark.parametrize(
    ("encoding", "later"),
    [
        ("gb18030", TRADITIONAL.encode("big5") * 200),
        ("gb18030", SIMPLIFIED.encode()),
        ("latin-1", "said “hello”".encode("cp1252")),
        ("latin-1", "сказал он, и все замолчали, но потом опять заговорили все вместе".encode("cp1251") * 3),
    ],
)
def test_a_later_block_in_another_encoding_is_refused(encoding: str, later: bytes) -> None:
    text = later.decode(encoding, "replace")
    with pytest.raises(EncodingError, match=f"x.txt seems to mix encodings .{encoding} at first"):
        require_same_encoding(encoding, later, text, "x.txt", 77)


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("gb18030", SIMPLIFIED * 200),
        ("gb18030", "张鑫淼 李焱犇 王骉骊 赵羴羚 鞠婧祎 樊祎玮 " * 200),
        ("big5", TRADITIONAL * 200),
        ("latin-1", LATIN["fr"] * 200 + "öö"),
        ("utf-8", "\x01\x02"),
    ],
)
def test_a_later_block_in_the_same_encoding_passes(encoding: str, text: str) -> None:
    require_same_encoding(encoding, text.encode(encoding), text, "x.txt", 77)


@settings(max_examples=300)
@given(st.text(alphabet=SIMPLIFIED, min_size=1, max_size=12), st.sampled_from(["gb18030", "utf-16-le", "utf-16-be"]))
def test_short_chinese_is_detected_or_refused(text: str, codec: str) -> None:
    data = text.encode(codec)
    assert data.isascii() or reading(data) in (text, None)


@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_are_named_or_refused(data: bytes, complete: bool) -> None:
    try:
        outcome = detect_encoding(data, complete, "x")
    except EncodingError as error:
        outcome = str(error)
    assert outcome in ENCODINGS or outcome.startswith(("x ", "cannot tell in which encoding x"))


@pytest.mark.parametrize(
    ("name", "encoding"),
    [
        *((name, name) for name in ENCODINGS),
        ("UTF8", "utf-8"),
        ("utf-8-sig", "utf-8"),
        ("gbk", "gb18030"),
        ("GB2312", "gb18030"),
        ("cp936", "gb18030"),
        ("Big-5", "big5"),
        ("cp950", "big5"),
        ("latin1", "latin-1"),
        ("ISO_8859-1", "latin-1"),
        ("UTF-16LE", "utf-16-le"),
    ],
)
def test_aliases(name: str, encoding: str) -> None:
    assert canonical_encoding(name) == encoding


@pytest.mark.parametrize(("name", "hint"), [("utf-9", "did you mean 'utf-8'"), ("klingon", "choose from big5")])
def test_unknown_names(name: str, hint: str) -> None:
    with pytest.raises(EncodingError, match=f"unknown encoding '{name}': {hint}"):
        canonical_encoding(name)


def test_utf_16_needs_a_byte_order_mark() -> None:
    assert codec_name("utf-16", "\ufeffa".encode("utf-16-be"), "x.txt") == "utf-16-be"
    with pytest.raises(EncodingError, match="no byte order mark: pass encoding='utf-16-le' or"):
        codec_name("utf-16", b"a\0", "x.txt")


@pytest.mark.shared
@pytest.mark.parametrize("length", [10, 20, 1000])
def test_real_lines_are_detected_or_refused(shared_data: Path, length: int) -> None:
    simplified = gzip.decompress((shared_data / "lm/wiki_zh.txt.gz").read_bytes()).decode().split("\n")
    articles = json.loads(gzip.decompress((shared_data / "qa/drcd.dev.json.gz").read_bytes()))["data"]
    traditional = [part["context"] for article in articles for part in article["paragraphs"]]
    chosen = random.Random(length)
    for lines, codecs in ((simplified, ["gb18030", "utf-16-le"]), (traditional, ["cp950", "gb18030", "utf-16-be"])):
        for codec in codecs:
            texts = [line[:length].encode(codec, "ignore").decode(codec) for line in chosen.sample(lines, 500)]
            texts = [text for text in texts if sum(char > "\x7f" for char in text) >= min(length, 100) * 0.9]
            readings = [reading(text.encode(codec)) for text in texts]
            assert len(texts) > 20
            assert [got for got, text in zip(readings, texts, strict=True) if got not in (text, None)] == []
            if length == 1000:
                assert readings.count(None) <= len(readings) / 100
