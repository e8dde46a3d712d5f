"""Word breaks: rjieba, jieba, user dictionaries, and text that is segmented already."""

from __future__ import annotations

import marshal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firth.errors import CorpusError
from firth.text.segment import WORD_BREAK, JiebaSegmenter, make_segmenter, split_words

CASES = {
    "我们喜欢自然语言处理。": ["我们", "喜欢", "自然语言", "处理", "。"],
    "我穿T恤去公园，café很好": ["我", "穿", "T恤", "去", "公园", "，", "café", "很", "好"],
    "The cost: $3.50 (don't ask).": ["The", "cost", ":", "$", "3.50", "(", "don't", "ask", ")", "."],
    "state-of-the-art e-mail": ["state-of-the-art", "e-mail"],
    "हिन्दी भाषा": ["हिन्दी", "भाषा"],
    "カタカナ": ["カタカナ"],
    "": [],
}


@pytest.mark.parametrize("text", CASES)
@pytest.mark.parametrize("name", ["rjieba", "jieba"])
def test_words_by_hand(name: str, text: str) -> None:
    assert split_words(make_segmenter(name).mark(text)) == CASES[text]


@given(st.text(alphabet=st.characters(exclude_characters="\0", codec="utf-8")))
def test_marking_only_adds_breaks(text: str) -> None:
    for name in ("rjieba", "space"):
        assert make_segmenter(name).mark(text).replace(WORD_BREAK, "") == text


@given(st.text(alphabet="我们喜欢 abc，。\n", max_size=40))
def test_nothing_is_lost_but_white_space(text: str) -> None:
    assert "".join(split_words(make_segmenter().mark(text))) == "".join(text.split())


@pytest.mark.parametrize("name", ["rjieba", "jieba"])
def test_user_words(name: str, tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_text("西奈山正教会\n卡拉OK 100000 n\n", encoding="utf-8")
    segmenter = make_segmenter(name, path)
    assert split_words(segmenter.mark("西奈山正教会在卡拉OK")) == ["西奈山正教会", "在", "卡拉OK"]
    assert "西奈山正教会" not in split_words(make_segmenter(name).mark("西奈山正教会在"))


def test_segmented_text() -> None:
    assert split_words(make_segmenter("space").mark("我 们喜 欢")) == ["我", "们喜", "欢"]


def test_an_unknown_segmenter() -> None:
    with pytest.raises(CorpusError, match="did you mean 'rjieba'"):
        make_segmenter("rjeiba")


def test_no_file_of_the_temporary_folder_is_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By itself, jieba would load its dictionary from there by marshal."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "jieba.cache").write_bytes(marshal.dumps(({"我们喜": 10**9}, 10**9)))
    assert JiebaSegmenter("jieba").mark("我们喜欢自然语言").split(WORD_BREAK) == ["我们", "喜欢", "自然语言"]
