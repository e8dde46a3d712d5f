"""Exact duplicates (by fingerprint) and near duplicates (by MinHash) of earlier texts, in one pass.

Near duplicates have a Jaccard similarity of at least 0.8 between their sets of *shingles*, runs of 5 words or of 8
Chinese characters. A signature has the minimal shingle under each of 128 random hash functions: two texts agree in each
with a probability equal to their similarity (Broder, 1997). Signatures that agree in one of 16 bands of 8 values are
compared in full, so with at most 16 others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from firth.text import _kernels

Keys = NDArray[np.uint64]

NUM_HASHES = 128
BANDS = 16
_SLICE = 1 << 20  # characters hashed at once; windows across slices are lost
_RANDOM_AGREEMENT = 1 / 256  # unequal minima agree this often, as one byte of each is kept

_random = np.random.default_rng(1957)
_FACTORS = _random.integers(0, 1 << 31, NUM_HASHES, dtype=np.uint32) * np.uint32(2) + np.uint32(1)
_OFFSETS = _random.integers(0, 1 << 32, NUM_HASHES, dtype=np.uint32)


def fingerprint(text: str) -> int:
    """A 64-bit digest of `text` that ignores differences of white space.

    >>> fingerprint("to be  or\\nnot to be ") == fingerprint("to be or not to be")
    True
    """
    folded = " ".join(text.split()).encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(folded, digest_size=8).digest(), "little")


def fingerprints(texts: Iterable[str]) -> Keys:
    return np.fromiter(map(fingerprint, texts), np.uint64)


def word_hashes(text: str) -> Keys:
    """A hash for each space-separated word.

    >>> first, second, third = word_hashes("the cat the")
    >>> bool(first == third), bool(first == second)
    (True, False)
    """
    return np.concatenate([_kernels.hash_units(codes, False)[0] for codes in _slices(text)])


def ngram_hashes(text: str) -> Keys:
    """A hash for each run of 8 words, or of 16 Chinese characters (a word counts as two), within one line of `text`.

    >>> len(ngram_hashes("one two three four five six seven eight nine\\nten"))
    2
    """
    return _windows(text, word_weight=2, character_weight=1, weight=16, across=False)


def minhash(text: str) -> Keys:
    """The MinHash signature of `text`: 128 values of one byte each, as 16 bands of 64 bits."""
    hasher = DocumentHasher()
    hasher.update([text], np.empty(0, np.uint64))
    return hasher.signature()


class DocumentHasher:
    """Computes the exact key and the MinHash signature of a document given in pieces; shingles do not cross pieces."""

    def __init__(self) -> None:
        self.sentences = 0
        self._digest = blake2b(digest_size=8)
        self._minima = np.full(NUM_HASHES, 0xFFFFFFFF, np.uint32)

    def update(self, sentences: Sequence[str], keys: Keys) -> None:
        """Add the next sentences with their fingerprints."""
        self.sentences += len(sentences)
        self._digest.update(keys.tobytes())
        shingles = _windows("\n".join(sentences), word_weight=8, character_weight=5, weight=40, across=True)
        _kernels.lower_minima(self._minima, shingles, _FACTORS, _OFFSETS)

    def key(self) -> Keys:
        """A digest of the sentences' fingerprints: (1,)."""
        return np.frombuffer(self._digest.digest(), np.uint64)

    def signature(self) -> Keys:
        # Minima of many values are small: multiplying spreads them over the byte that is kept.
        return ((self._minima * np.uint32(0x9E3779B1)) >> np.uint32(24)).astype(np.uint8).view(np.uint64)


class HashSet64:
    """A set of at most `limit` 64-bit keys, 12 to 24 bytes per key (36 while it grows); further keys are not added.

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
        return self._count >= self._limit

    def add_many(self, keys: Keys) -> NDArray[np.bool_]:
        """Add keys; returns which of them were new."""
        size = _table_size(len(self._slots) - 1, min(self._limit, self._count + len(keys)))
        if size > len(self._slots) - 1:
            slots = np.zeros(size + 1, np.uint64)
            _kernels.move_keys(self._slots, slots)
            self._slots = slots
        is_new: NDArray[np.bool_]
        is_new, capacity = _kernels.insert_keys(self._slots, keys, self._limit - self._count)
        self._count = self._limit - capacity
        return is_new

    def contains_many(self, keys: Keys) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = _kernels.find_keys(self._slots, keys)
        return found


class KeyMatcher:
    """Keys, possibly repeated, to search for in a stream of others; at most about 40 bytes per key.

    >>> matcher = KeyMatcher(fingerprints(["a", "b", "b"]))
    >>> matcher.search(fingerprints(["x", "b", "y"]))
    >>> matcher.found().tolist()
    [False, True, True]
    """

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._wanted = HashSet64(limit=max(1, len(keys)))
        self._wanted.add_many(keys)
        self._found = HashSet64(limit=max(1, len(keys)))

    def search(self, keys: Keys) -> None:
        self._found.add_many(keys[self._wanted.contains_many(keys)])

    def found(self) -> NDArray[np.bool_]:
        return self._found.contains_many(self._keys)


class NearDuplicateIndex:
    """Finds an earlier near duplicate of each text among the first `capacity` texts, of 224 to 320 bytes each.

    >>> seen = NearDuplicateIndex()
    >>> seen.add("the cat sat on the mat and looked at the dog that looked at the cat all day long")
    >>> seen.add("the cat sat on the mat and looked at the dog that looked at the cat all day")
    0
    >>> seen.add("a quite different text about nothing in particular")
    """

    def __init__(self, threshold: float = 0.8, capacity: int = 1_000_000) -> None:
        self._min_agreement = int(np.ceil((threshold * (1 - _RANDOM_AGREEMENT) + _RANDOM_AGREEMENT) * NUM_HASHES))
        self._capacity = capacity
        self._count = 0
        # The system allocates pages only when they are written.
        self._signatures = np.empty((capacity, BANDS), np.uint64)
        self._bands = np.zeros((BANDS, 1024), np.int32)  # 1 + index of the text, 0 if free

    def __len__(self) -> int:
        return self._count

    @property
    def full(self) -> bool:
        return self._count >= self._capacity

    def add(self, text: str) -> int | None:
        return self.add_signature(minhash(text))

    def add_signature(self, signature: Keys) -> int | None:
        found = self.find(signature)
        if self.full:
            return found
        first = self._count
        self._signatures[first] = signature
        self._count += 1
        size = _table_size(self._bands.shape[1], self._count)
        if size > self._bands.shape[1]:
            self._bands, first = np.zeros((BANDS, size), np.int32), 0
        _kernels.store_signatures(self._bands, self._signatures, first, self._count)
        return found

    def find(self, signature: Keys) -> int | None:
        """The index of a stored near duplicate of the text with this signature, or None."""
        found = int(_kernels.find_signature(self._bands, self._signatures, signature, self._min_agreement))
        return None if found < 0 else found


def _table_size(size: int, count: int) -> int:
    """`size` doubled until `count` entries fill at most two thirds of it."""
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
