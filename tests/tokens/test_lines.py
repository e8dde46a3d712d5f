"""Lines: blocks of bytes give the sentences that documents do."""

from __future__ import annotations

import tempfile
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firth.text import corpus as corpus_module
from firth.text.corpus import Corpus, read_corpus
from firth.text.layout import Layout, TextBlock, sentences_of
from firth.text.segment import HAN
from firth.tokens.encoder import unsplittable_regex
from firth.tokens.lines import HAS_DOUBLE_SPACE, MAY_HOLD_HAN, Lines, carry_document_starts, lines_of, read_block
from tests.samples import small_recipe

LETTERS = "ab. AB é中。\t\n\n\n\r\u00a0\u3000\u2028\x0c\x1c\u0085\u200b\ufeff"
LAYOUTS: tuple[Layout, ...] = ("lines", "prose", "wrapped")


def sentences(lines: Lines) -> list[str]:
    return [lines.line(index).decode() for index in range(len(lines))]


def documents(corpus: Corpus) -> list[list[str]]:
    """The sentences of each document, put together from the lines of all blocks."""
    found: list[list[str]] = []
    ends_document = True
    for block in corpus.blocks():
        lines = read_block(block, corpus.layout)
        for sentence, starts_document in zip(sentences(lines), lines.starts_document, strict=True):
            if starts_document or ends_document:
                found.append([])
            ends_document = False
            found[-1].append(sentence)
        ends_document |= lines.ends_document
    return found


def expected(corpus: Corpus) -> list[list[str]]:
    found: list[list[str]] = []
    for document in corpus:
        if not document.continues:
            found.append([])
        found[-1] += document.sentences
    return found


@pytest.mark.parametrize("layout", LAYOUTS)
@settings(max_examples=60)
@given(texts=st.lists(st.text(alphabet=LETTERS, max_size=60), min_size=1, max_size=3), size=st.integers(1, 60))
def test_files_in_blocks_hold_the_same_documents(layout: str, texts: list[str], size: int) -> None:
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(corpus_module, "BLOCK", size):
        for number, text in enumerate(texts):
            Path(folder, f"{number}.txt").write_bytes(text.encode())
        Path(folder, "z.txt").write_bytes(b"end")
        corpus = read_corpus(folder, layout=layout, encoding="utf-8")
        assert documents(corpus) == expected(corpus)


@pytest.mark.parametrize("layout", LAYOUTS)
@settings(max_examples=60)
@given(
    texts=st.lists(st.lists(st.text(alphabet=LETTERS, max_size=20), max_size=5), max_size=5),
    size=st.integers(1, 60),
    piece=st.integers(5, 60),
)
def test_iterables_in_blocks_hold_the_same_documents(
    layout: str, texts: list[list[str]], size: int, piece: int
) -> None:
    with mock.patch.object(corpus_module, "BLOCK", size), mock.patch("firth.text.readers.PIECE", piece):
        corpus = read_corpus([*texts, ["end"]], layout=layout)
        assert documents(corpus) == expected(corpus)


def test_blocks_of_parts_contain_their_documents() -> None:
    for part in read_corpus([[f"text {n}", "more"] for n in range(60)]).parts(0.3, 0.3):
        assert documents(part) == expected(part)


def test_every_white_space_is_stripped_and_nothing_else() -> None:
    codes = [code for code in range(1, 0x11000) if not 0xD800 <= code < 0xE000]
    characters = [chr(code) for code in codes if chr(code) not in "\n\r"]
    texts = [c + c + "x" + c + "y" + c for c in characters]
    assert sentences(read_block(TextBlock("\n".join(texts).encode()), "lines")) == [text.strip() for text in texts]
    alone = TextBlock("\n".join(characters).encode(), packed=True)
    assert len(read_block(alone, "lines")) == sum(not c.isspace() for c in characters)


@given(st.lists(st.text(alphabet="ab <中é\t\u3000\u00a0\u2009", max_size=20), max_size=8))
def test_what_lines_hold(texts: list[str]) -> None:
    lines = lines_of(texts, double_space=True)
    assert sentences(lines) == texts
    uncut = unsplittable_regex(small_recipe("byte-bpe"))
    assert uncut is not None
    for text, flags in zip(texts, lines.flags.tolist(), strict=True):
        assert bool(flags & HAS_DOUBLE_SPACE) == bool(uncut.search(text))
        assert flags & MAY_HOLD_HAN or not HAN.search(text)
    assert not (lines_of(texts).flags & HAS_DOUBLE_SPACE).any()


def test_plain_text_is_not_copied() -> None:
    data = b"one line\nanother\n"
    assert np.shares_memory(read_block(TextBlock(data), "lines").text, np.frombuffer(data, dtype=np.uint8))
    assert not np.shares_memory(read_block(TextBlock(b" " + data), "lines").text, np.frombuffer(data, dtype=np.uint8))


def test_paragraphs_of_packed_documents() -> None:
    text = "He left. She\nstayed.\n\nIt rained."
    block = TextBlock(("\n\0\n" + text).encode(), packed=True)
    for layout in LAYOUTS:
        lines = read_block(block, layout)
        assert sentences(lines) == sentences_of(text, layout)
        assert lines.starts_document.tolist() == [True, *[False] * (len(lines) - 1)]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3))), st.booleans())
def test_no_beginning_of_a_document_is_lost(parts: list[tuple[bool, int]], ends_document: bool) -> None:
    """Reference in plain Python: a document start moves to the next part."""
    pending, flags = False, []
    for starts_document, count in parts:
        pending |= starts_document
        for _ in range(count):
            flags.append(pending)
            pending = False
    starts_document = np.array([starts_document for starts_document, _ in parts], dtype=np.bool_)
    counts = np.array([count for _, count in parts], dtype=np.int64)
    found, left = carry_document_starts(starts_document, ends_document, counts)
    assert (found.tolist(), left) == (flags, ends_document or pending)
