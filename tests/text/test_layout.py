"""Which lines are sentences, which are paragraphs, and which are only lines."""

from __future__ import annotations

import gzip
import inspect
import itertools
import logging
import subprocess
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firth.text.layout import Layout, detect_layout, sentences_of

PENN = """\
 pierre <unk> N years old will join the board as a nonexecutive director nov. N
 mr. <unk> is chairman of <unk> n.v. the dutch publishing group
 rudolph <unk> N years old and former chairman of consolidated gold fields plc was named a director
 a form of asbestos once used to make kent cigarette filters has caused a high percentage of cancer deaths
 no it was n't black monday"""
SENTENCES = """\
The house stood on a hill.
Nobody had lived in it for years.
Was it empty?
“It is,” said Mr. Brown.
He had the key."""
HEADLINES = """\
Brazilian delegation returns from the funeral today
Iran close to a decision on its nuclear programme
Storm reaches the northern coast late on Monday
Parliament votes against the new budget proposal"""
WIKIPEDIA = """\
Jarred Shaw
Jarred Shaw (born 1990) is an American basketball player. He plays for Trouville. He is tall.
Professional career.
In 2015, Shaw was selected by the Warriors. He signed for Dorados in 2019. He left in 2020."""
WIKITEXT = """\
 = Robert <unk> =
 Robert <unk> is an English film , television and theatre actor . He had a role in 2000 . It was followed by another .
 In 2006 , <unk> starred in the play <unk> . He appeared on a 2006 episode of the series , Doctors ."""
GUTENBERG = """\
It was the best of times, it was the worst of times, it was the age
of wisdom, it was the age of foolishness. It was the epoch of belief,
it was the epoch of incredulity. We had everything before us, we had
nothing before us, we were all going direct to Heaven. In short, the
period was so far like the present period, that some of its noisiest
authorities insisted on its being received."""
DOCSTRING = """\
Return the value of the option that was asked for, or the default
if there is none. The default is looked up
    in the parent when the option was never set, and the parent of
    the parent after that, until there is none left to ask."""
ZH_LINES = "今天下雨。\n我没有出门。\n你在哪里？\n我在家里看书。"
ZH_TITLES = "词汇阅读是关键 今年考研阅读精析\n中国人民公安大学今年硕士研究生目录\n日本地震：金吉列关注在日学子系列报道"
ZH_PROSE = "西奈山正教会是一个自治正教会。它由修道院组成。\n历史.\n修道院本身即是教会。它建于公元六世纪。"
ZH_WRAPPED = """\
西奈山正教会是耶路撒冷希腊正教牧首区下的一个自治正教会。其实
体仅仅由位于埃及的圣凯瑟琳修道院组成。教会由西奈山及莱图大主
教领导，大主教同时也是圣加大肋纳修道院的院长，由耶路撒冷圣城
和全巴勒斯坦牧首任命。"""


@pytest.mark.parametrize(
    ("layout", "text"),
    [
        ("lines", PENN),
        ("lines", SENTENCES),
        ("lines", SENTENCES.replace(".\n", "\n").replace("?\n", "\n")),
        ("lines", HEADLINES),
        ("lines", ZH_LINES),
        ("lines", ZH_TITLES),
        ("lines", "one two three\nfour five six\nseven eight"),
        ("lines", "A single line"),
        ("lines", "A single sentence."),
        ("lines", ""),
        ("lines", " \n\n \n"),
        ("prose", "Two sentences in a line. That is prose."),
        ("prose", WIKIPEDIA),
        ("prose", WIKITEXT),
        ("prose", ZH_PROSE),
        ("wrapped", GUTENBERG),
        ("wrapped", DOCSTRING),
        ("wrapped", ZH_WRAPPED),
        ("wrapped", "Title\n\n" + GUTENBERG + "\n\n" + DOCSTRING),
    ],
)
def test_layout_is_found(layout: Layout, text: str) -> None:
    assert detect_layout([text]) == layout
    assert detect_layout(iter([text, "", text])) == layout


def test_no_text_is_lines() -> None:
    assert detect_layout([]) == "lines"


def test_lines_are_left_alone() -> None:
    assert sentences_of(" He left. She stayed. \n\n\tWho knows\u2028 \n", "lines") == [
        "He left. She stayed.",
        "Who knows",
    ]


def test_prose_is_never_joined_across_lines() -> None:
    assert sentences_of("He left. She\nstayed. 他走了。她\n没走。", "prose") == [
        "He left.",
        "She",
        "stayed.",
        "他走了。",
        "她",
        "没走。",
    ]


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("He left. She\n  stayed.", ["He left.", "She stayed."]),
        ("他走了。她没\n有走。", ["他走了。", "她没有走。"]),
        ("한국어 문장은\n띄어쓰기를 한다.", ["한국어 문장은 띄어쓰기를 한다."]),
        ("He used\n中文 only.", ["He used 中文 only."]),
        ("a well-\nknown word--\nhere - \nthere", ["a well-known word--here - there"]),
        ("A heading\n \nHe left. She\nstayed", ["A heading", "He left.", "She stayed"]),
        ("Mr.\nSmith came.\nHe left.", ["Mr. Smith came.", "He left."]),
        ("", []),
        ("\n \n", []),
    ],
)
def test_wrapped_lines_are_joined(text: str, sentences: list[str]) -> None:
    assert sentences_of(text, "wrapped") == sentences


@given(st.text(alphabet="aB.。 \n-他\u3000!\x0c\u2028\ud800"), st.sampled_from(["lines", "prose", "wrapped"]))
def test_nothing_is_lost_changed_or_empty(text: str, layout: Layout) -> None:
    sentences = sentences_of(text, layout)
    assert "".join("".join(sentences).split()) == "".join(text.split())
    assert all(sentence and sentence == sentence.strip() for sentence in sentences)
    assert detect_layout([text]) in ("lines", "prose", "wrapped")


@given(st.integers(40, 100))
def test_wrapping_is_undone_whatever_the_margin(width: int) -> None:
    text = " ".join(GUTENBERG.split())
    wrapped = textwrap.fill(text, width)
    assert detect_layout([wrapped]) == "wrapped"
    assert sentences_of(wrapped, "wrapped") == sentences_of(text, "prose")


def test_documentation_strings_are_wrapped() -> None:
    found = (inspect.getdoc(thing) for module in (logging, subprocess, threading) for thing in vars(module).values())
    assert detect_layout(text for text in found if text) == "wrapped"


def documents(shared_data: Path, name: str) -> Iterator[str]:
    with gzip.open(shared_data / "lm" / f"{name}.txt.gz", "rt", encoding="utf-8") as file:
        for blank, lines in itertools.groupby(itertools.islice(file, 2000), lambda line: not line.strip()):
            if not blank:
                yield "".join(lines).rstrip("\n")


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "layout"),
    [
        ("ptb.train", "lines"),
        ("ptb.valid", "lines"),
        ("wiki_en", "prose"),
        ("wikinews_en", "prose"),
        ("wiki_zh", "prose"),
        ("wikitext2.test", "prose"),
        ("wikitext2.valid", "prose"),
    ],
)
def test_layout_of_real_files(shared_data: Path, name: str, layout: Layout) -> None:
    texts = list(documents(shared_data, name))
    assert detect_layout(texts) == layout
    assert detect_layout(texts[:20]) == layout


@pytest.mark.shared
@pytest.mark.parametrize("name", ["wiki_en", "wikinews_en"])
def test_real_prose_once_wrapped_is_unwrapped(shared_data: Path, name: str) -> None:
    prose = [line for text in documents(shared_data, name) for line in text.split("\n") if len(line) > 200]
    wrapped = [textwrap.fill(line, 70, break_on_hyphens=False, break_long_words=False) for line in prose]
    assert detect_layout(wrapped) == "wrapped"
    for before, after in zip(prose, wrapped, strict=True):
        assert sentences_of(after, "wrapped") == sentences_of(" ".join(before.split()), "prose")
