"""Texts that repeat an earlier one, exactly (by fingerprint) or nearly (by MinHash), in one pass.

Nearly means that the sets of *shingles* of two texts, runs of 5 words or of 8 Chinese characters, have a
Jaccard similarity of at least 0.8. A signature tells, for each of 128 random orders, which shingle comes
first: two texts agree in a place with a probability equal to their similarity (Broder, 1997). Texts that
agree in one of 16 bands of 8 places are compared in full, so with 16 others at most, however many are held.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from firth.text import _kernels

Keys = NDArray[np.uint64]

PLACES = 128
BANDS = 16
_SLICE = 1 << 20  # characters hashed at once: only the windows across the cuts of a longer text are lost
_CHANCE = 1 / 256  # a place keeps one byte, so this is how often unequal ones agree

_random = np.random.default_rng(1957)
_FACTORS = _random.integers(0, 1 << 31, PLACES, dtype=np.uint32) * np.uint32(2) + np.uint32(1)
_OFFSETS = _random.integers(0, 1 << 32, PLACES, dtype=np.uint32)


def fingerprint(text: str) -> int:
    """A 64-bit digest of `text` that does not see how it is spaced.

    >>> fingerprint("to be  or\\nnot to be ") == fingerprint("to be or not to be")
    True
    """
    folded = " ".join(text.split()).encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(folded, digest_size=8).digest(), "little")


def fingerprints(texts: Iterable[str]) -> Keys:
    """The fingerprint of each text."""
    return np.fromiter(map(fingerprint, texts), np.uint64)


def word_hashes(text: str) -> Keys:
    """A hash for each word of a text whose words are spaced.

    >>> first, second, third = word_hashes("the cat the")
    >>> bool(first == third), bool(first == second)
    (True, False)
    """
    return np.concatenate([_kernels.hash_units(codes, False)[0] for codes in _slices(text)])


def ngram_hashes(text: str) -> Keys:
    """A hash for each run of 8 words, or of 16 Chinese characters, within one line of `text`.

    In mixed text a word counts as much as two characters.

    >>> len(ngram_hashes("one two three four five six seven eight nine\\nten"))
    2
    """
    return _windows(text, word_weight=2, character_weight=1, weight=16, across=False)


def sign(text: str) -> Keys:
    """The MinHash signature of `text`: 128 places of one byte each, as 16 bands of 64 bits."""
    signer = Signer()
    signer.update(text)
    return signer.signature()


class Signer:
    """Signs a text that comes in pieces; shingles do not cross from one piece to the next."""

    def __init__(self) -> None:
        self._minima = np.full(PLACES, 0xFFFFFFFF, np.uint32)

    def update(self, text: str) -> None:
        """Takes in the next piece."""
        shingles = _windows(text, word_weight=8, character_weight=5, weight=40, across=True)
        _kernels.lower_minima(self._minima, shingles, _FACTORS, _OFFSETS)

    def signature(self) -> Keys:
        """The signature of all pieces so far."""
        # The least of many values is small: multiplying brings all of it into the byte that is kept.
        return ((self._minima * np.uint32(0x9E3779B1)) >> np.uint32(24)).astype(np.uint8).view(np.uint64)


class DocumentMarks(NamedTuple):
    """By what a document is recognised, exactly and nearly, and the number of its sentences."""

    key: Keys  # one
    signature: Keys
    sentences: int


class DocumentSigner:
    """Marks a document that comes in pieces. Its key follows from those of its sentences."""

    def __init__(self) -> None:
        self._digest = blake2b(digest_size=8)
        self._signer = Signer()
        self._sentences = 0

    def update(self, sentences: Sequence[str], keys: Keys) -> None:
        """Takes in the next sentences, with their fingerprints."""
        self._digest.update(keys.tobytes())
        self._signer.update("\n".join(sentences))
        self._sentences += len(sentences)

    def marks(self) -> DocumentMarks:
        """The marks of all sentences so far."""
        key = np.frombuffer(self._digest.digest(), np.uint64)
        return DocumentMarks(key, self._signer.signature(), self._sentences)


def estimate_jaccard(a: Keys, b: Keys) -> float:
    """The Jaccard similarity of two texts by their signatures, with a standard error of 0.044 or less.

    >>> estimate_jaccard(sign("a b c d e f"), sign("a b c d e f"))
    1.0
    """
    agreement = int(_kernels.count_equal_bytes(a, b)) / PLACES
    return max(0.0, (agreement - _CHANCE) / (1 - _CHANCE))


class HashSet64:
    """A set of 64-bit keys that takes 12 to 24 bytes for each (36 for a moment while it grows).

    It holds `limit` keys at most: later ones are still looked up, but no longer held, and `full` says so.

    >>> seen = HashSet64()
    >>> seen.add_many(fingerprints(["a", "b", "a"])).tolist()
    [True, True, False]
    >>> seen.contains_many(fingerprints(["b", "c"])).tolist(), len(seen)
    ([True, False], 2)
    """

    def __init__(self, limit: int = 10_000_000) -> None:
        self._limit = limit
        self._count = 0
        self._slots = np.zeros(1024 + 1, np.uint64)

    def __len__(self) -> int:
        return self._count

    @property
    def full(self) -> bool:
        """Whether the limit was reached, so that keys may have been left out."""
        return self._count >= self._limit

    def add_many(self, keys: Keys) -> NDArray[np.bool_]:
        """Which of the keys were not yet in the set, which now holds them."""
        self._grow(min(self._limit, self._count + len(keys)))
        fresh: NDArray[np.bool_]
        fresh, room = _kernels.insert_keys(self._slots, keys, self._limit - self._count)
        self._count = self._limit - room
        return fresh

    def contains_many(self, keys: Keys) -> NDArray[np.bool_]:
        """Which of the keys are in the set."""
        found: NDArray[np.bool_] = _kernels.find_keys(self._slots, keys)
        return found

    def _grow(self, count: int) -> None:
        size = _table_size(len(self._slots) - 1, count)
        if size > len(self._slots) - 1:
            slots = np.zeros(size + 1, np.uint64)
            _kernels.move_keys(self._slots, slots)
            self._slots = slots


class SoughtKeys:
    """Keys that are looked for in a stream of others; they may repeat, and take some 40 bytes each at most.

    >>> sought = SoughtKeys(fingerprints(["a", "b", "b"]))
    >>> sought.look_in(fingerprints(["x", "b", "y"]))
    >>> sought.found().tolist()
    [False, True, True]
    """

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._wanted = HashSet64(limit=max(1, len(keys)))
        self._wanted.add_many(keys)
        self._found = HashSet64(limit=max(1, len(keys)))

    def look_in(self, keys: Keys) -> None:
        """Takes note of those among `keys` that are sought."""
        self._found.add_many(keys[self._wanted.contains_many(keys)])

    def found(self) -> NDArray[np.bool_]:
        """Which of the sought keys have come so far."""
        return self._found.contains_many(self._keys)


class NearDuplicates:
    """Finds, for each text added, an earlier one that it nearly repeats.

    A text takes 224 to 320 bytes whatever its length. `capacity` of them are held at most, 260 MB by default:
    later ones are still compared with those, but no longer held, and `full` says so.

    >>> seen = NearDuplicates()
    >>> seen.add("the cat sat on the mat and looked at the dog that looked at the cat all day long")
    >>> seen.add("the cat sat on the mat and looked at the dog that looked at the cat all day")
    0
    >>> seen.add("a quite different text about nothing in particular")
    """

    def __init__(self, threshold: float = 0.8, capacity: int = 1_000_000) -> None:
        self._least = int(np.ceil((threshold * (1 - _CHANCE) + _CHANCE) * PLACES))
        self._capacity = capacity
        self._count = 0
        # Never written, so never given memory by the system, before they are needed.
        self._signatures = np.empty((capacity, BANDS), np.uint64)
        self._bands = np.zeros((BANDS, 1024), np.int32)  # 1 + number of the text, 0 where free

    def __len__(self) -> int:
        return self._count

    @property
    def full(self) -> bool:
        """Whether the capacity was reached, so that texts may have been left out."""
        return self._count >= self._capacity

    def add(self, text: str) -> int | None:
        """The number of the earlier text (0 for the first added) that `text` nearly repeats, or None."""
        return self.add_signature(sign(text))

    def add_signature(self, signature: Keys) -> int | None:
        """As `add`, for a text that was signed already."""
        found = self.find(signature)
        if not self.full:
            self._hold(signature)
        return found

    def find(self, signature: Keys) -> int | None:
        """The number of the held text that nearly equals the one with this signature, or None."""
        found = int(_kernels.find_signature(self._bands, self._signatures, signature, self._least))
        return None if found < 0 else found

    def _hold(self, signature: Keys) -> None:
        self._signatures[self._count] = signature
        self._count += 1
        size = _table_size(self._bands.shape[1], self._count)
        first = self._count - 1
        if size > self._bands.shape[1]:
            self._bands, first = np.zeros((BANDS, size), np.int32), 0
        _kernels.hold_signatures(self._bands, self._signatures, first, self._count)


def _table_size(size: int, count: int) -> int:
    """`size` doubled until `count` entries fill no more than two thirds of it."""
    while count * 3 > size * 2:
        size *= 2
    return size


def _slices(text: str) -> Iterator[NDArray[np.uint32]]:
    for start in range(0, max(1, len(text)), _SLICE):
        piece = text[start : start + _SLICE]
        yield np.frombuffer(piece.encode("utf-32-le", "surrogatepass"), np.uint32)


def _windows(text: str, word_weight: int, character_weight: int, weight: int, across: bool) -> Keys:
    weights = word_weight, character_weight, weight
    return np.concatenate([_kernels.hash_windows(codes, *weights, across) for codes in _slices(text)])
