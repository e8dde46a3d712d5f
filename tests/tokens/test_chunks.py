"""The table of chunks against a dictionary in plain Python."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from firth.tokens import _kernels
from firth.tokens.encoder import ChunkTable, byte_kinds
from tests.samples import small_recipe

LINES = st.lists(st.text(alphabet="ab \0é中", max_size=12), max_size=8)


def plain_look_up(known: dict[str, int], lines: list[str], whole: list[bool]) -> list[int]:
    """Reference of the kernel without split-off punctuation: chunks by regular expression, numbers by dictionary."""
    out = []
    for line, one in zip(lines, whole, strict=True):
        chunks = [line] if one and line else re.findall(r" *[^ \0]+| +", line)
        out += [known.setdefault(chunk, len(known)) for chunk in chunks]
        out.append(-1)
    return out


@given(st.lists(LINES, max_size=4), st.randoms())
def test_it_numbers_chunks_as_a_dictionary_does(blocks: list[list[str]], random) -> None:  # type: ignore[no-untyped-def]
    table, known = ChunkTable(), {}
    for lines in blocks:
        whole = [random.random() < 0.3 for _ in lines]
        data = "".join(line + "\n" for line in lines).encode()
        found = table.look_up(data, np.array([*whole, False]))
        assert found.tolist() == plain_look_up(known, lines, whole)
    assert table.texts() == list(known)


def test_it_grows_past_its_first_size() -> None:
    table, words = ChunkTable(), [f"word{number}" for number in range(50_000)]
    data = ("\n".join(words) + "\n").encode()
    first = table.look_up(data)
    assert len(table) == len(words)
    assert np.array_equal(table.look_up(data), first)
    assert table.texts(49_998) == ["word49998", "word49999"]


def test_chunks_with_equal_hashes_are_distinguished() -> None:
    """An entry that is made to look like `two-and-two` by its hash and its slot is not taken for it."""
    table = ChunkTable()
    table.look_up(b"one-and-one\n")
    value = _kernels._hash(np.frombuffer(b"two-and-two", dtype=np.uint8), 0, 11)
    table._hashes[0] = value
    table._slots[int(value) & (table._slots.size - 1)] = (int(value) >> 32 << 32) + 1
    assert table.look_up(b"two-and-two\n").tolist() == [1, -1]
    assert table.texts() == ["one-and-one", "two-and-two"]


def test_no_two_short_chunks_have_one_hash() -> None:
    """Up to eight bytes every step of the hash can be undone, which spares a look at the bytes."""
    inverse = pow(int(_kernels._GOLDEN), -1, 2**64)
    for text in (b"a", b"ab", b"eight-by", "é中".encode()):
        value = int(_kernels._hash(np.frombuffer(text, dtype=np.uint8), 0, len(text)))
        value ^= value >> 32
        assert (value * inverse % 2**64).to_bytes(8, "little").rstrip(b"\0") == text


def test_clear_forgets() -> None:
    table = ChunkTable()
    table.look_up(b"a b\n")
    table.clear()
    assert len(table) == 0
    assert table.look_up(b"b\n").tolist() == [0, -1]


@pytest.mark.parametrize(
    ("kind", "line", "chunks"),
    [
        ("wordpiece", "(Don't stop!), e-mail 3.14.", ["(", "Don't", "stop", "!", ")", ",", "e-mail", "3.14", "."]),
        ("wordpiece", "a_b x=1 “hi”, é.", ["a_b", "x", "=", "1", "“hi”,", "é."]),
        ("byte-bpe", "(Don't stop!), it's.", ["(", "Don't", " stop", "!),", " it's", "."]),
        ("bpe", "(stop!)", ["(stop!)"]),
    ],
)
def test_punctuation_is_cut_off_where_tokens_allow(kind: str, line: str, chunks: list[str]) -> None:
    table = ChunkTable(byte_kinds(small_recipe(kind)))
    table.look_up((line + "\n").encode())
    assert table.texts() == chunks
