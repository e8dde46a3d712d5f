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
from firth.text.layout import Block, Layout, sentences_of
from firth.text.segment import HAN
from firth.tokens._line_kernels import HOLDS_PAIR, MAY_HOLD_HAN
from firth.tokens.cutting import uncut_lines
from firth.tokens.lines import Lines, keep_opens, lines_of, read_block
from tests.samples import small_recipe

LETTERS = "ab. AB é中。\t\n\n\n\r\u00a0\u3000\u2028\x0c\x1c\u0085\u200b\ufeff"
LAYOUTS: tuple[Layout, ...] = ("lines", "prose", "wrapped")


def sentences(lines: Lines) -> list[str]:
    return [lines.line(index).decode() for index in range(len(lines))]


def documents(corpus: Corpus) -> list[list[str]]:
    """The sentences of each document, put together from the lines of all blocks."""
    found: list[list[str]] = []
    parted = True
    for block in corpus.blocks():
        lines = read_block(block, corpus.layout)
        for sentence, opens in zip(sentences(lines), lines.opens, strict=True):
            if opens or parted:
                found.append([])
            parted = False
            found[-1].append(sentence)
        parted |= lines.parted
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


def test_parts_in_blocks_hold_their_documents() -> None:
    for part in read_corpus([[f"text {n}", "more"] for n in range(60)]).parts(0.3, 0.3):
        assert documents(part) == expected(part)


def test_every_white_space_is_stripped_and_nothing_else() -> None:
    codes = [code for code in range(1, 0x11000) if not 0xD800 <= code < 0xE000]
    characters = [chr(code) for code in codes if chr(code) not in "\n\r"]
    texts = [c + c + "x" + c + "y" + c for c in characters]
    assert sentences(read_block(Block("\n".join(texts).encode()), "lines")) == [text.strip() for text in texts]
    alone = Block("\n".join(characters).encode(), packed=True)
    assert len(read_block(alone, "lines")) == sum(not c.isspace() for c in characters)


@given(st.lists(st.text(alphabet="ab <中é\t\u3000\u00a0\u2009", max_size=20), max_size=8))
def test_what_lines_hold(texts: list[str]) -> None:
    lines = lines_of(texts, pairs=True)
    assert sentences(lines) == texts
    uncut = uncut_lines(small_recipe("byte-bpe"))
    assert uncut is not None
    for text, flags in zip(texts, lines.flags.tolist(), strict=True):
        assert bool(flags & HOLDS_PAIR) == bool(uncut.search(text))
        assert flags & MAY_HOLD_HAN or not HAN.search(text)
    assert not (lines_of(texts).flags & HOLDS_PAIR).any()


def test_plain_text_is_not_copied() -> None:
    data = b"one line\nanother\n"
    assert np.shares_memory(read_block(Block(data), "lines").text, np.frombuffer(data, dtype=np.uint8))
    assert not np.shares_memory(read_block(Block(b" " + data), "lines").text, np.frombuffer(data, dtype=np.uint8))


def test_paragraphs_of_packed_documents() -> None:
    text = "He left. She\nstayed.\n\nIt rained."
    block = Block(("\n\0\n" + text).encode(), packed=True)
    for layout in LAYOUTS:
        lines = read_block(block, layout)
        assert sentences(lines) == sentences_of(text, layout)
        assert lines.opens.tolist() == [True, *[False] * (len(lines) - 1)]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3))), st.booleans())
def test_no_beginning_of_a_document_is_lost(parts: list[tuple[bool, int]], parted: bool) -> None:
    """The twin in plain Python: a beginning waits for the next part that is kept."""
    pending, flags = False, []
    for opens, count in parts:
        pending |= opens
        for _ in range(count):
            flags.append(pending)
            pending = False
    opens = np.array([opens for opens, _ in parts], dtype=np.bool_)
    counts = np.array([count for _, count in parts], dtype=np.int64)
    found, left = keep_opens(opens, parted, counts)
    assert (found.tolist(), left) == (flags, parted or pending)
