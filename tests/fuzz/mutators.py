"""Seeded mutators: small changes of files that readers must survive."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path

_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")
_EXTREME_NUMBERS = (b"-1", b"0", b"1e999", b"-1e999", b"NaN", b"null", b"1e-400", b"9" * 5000, b"[]", b"{}", b'""')
_EXTREME_SIZES = (0, 1, 127, 128, 255, 256, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**64 - 1)
_FRAGMENTS = (
    *(
        b"\0",
        b"\n",
        b"\n\n",
        b"\r",
        b"\r\n",
        b"\t",
        b" ",
        b'"',
        b"\\",
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b"{}",
        b"[]",
    ),
    *(b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"\x80", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xff"),
    *(b"\\ud800", b"\\u0000", b"null", b"true", b"NaN", b"Infinity", b"-", b"/", b"../", b"__label__", b"%s", b"\x1b["),
    *("的".encode(), "é".encode(), "\u2028".encode(), "\u3000".encode(), "\ufeff".encode(), "\U0001f600".encode()),
)


def mutate_bytes(data: bytes, rng: random.Random) -> bytes:
    """The data after one to four random changes."""
    for _ in range(1 + min(int(rng.expovariate(1.0)), 3)):
        data = rng.choice(CHANGES)(data, rng)
    return data


def mutate_path(path: Path, rng: random.Random) -> None:
    """Change a file in place, or a random file of a folder; now and then remove or empty it."""
    if path.is_dir():
        path = rng.choice(sorted(inner for inner in path.rglob("*") if inner.is_file()))
        if rng.random() < 0.02:
            path.unlink()
            return
    path.write_bytes(b"" if rng.random() < 0.002 else mutate_bytes(path.read_bytes(), rng))


def _range(data: bytes, rng: random.Random, longest: int = 64) -> tuple[int, int]:
    begin = rng.randrange(len(data) + 1)
    return begin, min(len(data), begin + rng.randint(1, longest if rng.random() < 0.9 else len(data) + 1))


def flip_bit(data: bytes, rng: random.Random) -> bytes:
    if not data:
        return data
    changed = bytearray(data)
    changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def set_byte(data: bytes, rng: random.Random) -> bytes:
    if not data:
        return data
    changed = bytearray(data)
    changed[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(changed)


def set_size(data: bytes, rng: random.Random) -> bytes:
    """Overwrite some bytes by an extreme binary integer."""
    width = rng.choice((1, 2, 4, 8))
    value = (rng.choice(_EXTREME_SIZES) & ((1 << 8 * width) - 1)).to_bytes(width, rng.choice(("little", "big")))
    begin = rng.randrange(len(data) + 1)
    return data[:begin] + value + data[begin + width :]


def set_number(data: bytes, rng: random.Random) -> bytes:
    """Replace a number in text by an extreme one."""
    found = list(_NUMBER.finditer(data[: 1 << 16]))
    if not found:
        return insert(data, rng)
    begin, end = rng.choice(found).span()
    return data[:begin] + rng.choice(_EXTREME_NUMBERS) + data[end:]


def remove(data: bytes, rng: random.Random) -> bytes:
    begin, end = _range(data, rng)
    return data[:begin] + data[end:]


def truncate(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def insert(data: bytes, rng: random.Random) -> bytes:
    begin = rng.randrange(len(data) + 1)
    put = rng.choice(_FRAGMENTS) if rng.random() < 0.7 else rng.randbytes(rng.randint(1, 16))
    return data[:begin] + put + data[begin:]


def replace(data: bytes, rng: random.Random) -> bytes:
    begin, end = _range(data, rng, 8)
    return data[:begin] + rng.choice(_FRAGMENTS) + data[end:]


def repeat(data: bytes, rng: random.Random) -> bytes:
    begin, end = _range(data, rng)
    times = 2 if rng.random() < 0.8 else rng.randint(2, 2 + (1 << 16) // max(end - begin, 1))
    return data[:begin] + times * data[begin:end] + data[end:]


def move(data: bytes, rng: random.Random) -> bytes:
    """Copy a part of the data over another part."""
    begin, end = _range(data, rng)
    at = rng.randrange(len(data) + 1)
    return data[:at] + data[begin:end] + data[at + end - begin :]


def swap_lines(data: bytes, rng: random.Random) -> bytes:
    lines = data.split(b"\n")
    one, two = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[one], lines[two] = lines[two], lines[one]
    return b"\n".join(lines)


CHANGES: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    *(flip_bit, set_byte, set_size, set_number, remove, truncate, insert, replace, repeat, move, swap_lines),
)
