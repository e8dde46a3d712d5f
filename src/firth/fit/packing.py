"""From a text to sequences that are read together, and from sequences to rows without holes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from firth.fit._packing_kernels import (
    best_fit,
    count_longer,
    cut_documents,
    cut_pairs,
    cut_sentences,
    cut_text,
    members_of,
    pair_sentences,
)
from firth.nets.recipe import Format
from firth.objectives.sequences import Integers, Sequences
from firth.tokens.store import TokenStore

PAIRS: tuple[Format, ...] = ("segment-pair", "sentence-pair")
_WINDOW = 1 << 16  # sequences that are sorted by length before they are packed
_NOWHERE = np.zeros(0, dtype=np.int64)


class Bounds(NamedTuple):
    """Where sentences and documents of a store begin, as numbers that can be subtracted; still on the disk."""

    sentences: Integers
    documents: Integers


def bounds_of(store: TokenStore) -> Bounds:
    """The bounds of a store."""
    return Bounds(store.sentences.view(np.int64), store.documents.view(np.int64))


def room_for(form: Format, length: int, copies: int = 1) -> int:
    """Tokens of text that a sequence may have in rows of a length: special tokens stand before it and after segments.

    >>> room_for("full-sentences", 128), room_for("segment-pair", 128), room_for("sentences", 128, copies=2)
    (126, 125, 62)
    """
    segments = 2 if form in PAIRS else 1
    return (length - 1 - segments * copies) // copies


def cut_sequences(store: TokenStore, form: Format, room: int, key: int) -> Sequences:
    """The text of a store as sequences of at most `room` tokens, in order; every token is in one of them.

    What is random (of pairs of segments alone: where they are parted and which are short) depends on `key` alone.
    """
    sentences, documents = bounds_of(store)
    edges = sentences[documents] if form in PAIRS else _NOWHERE
    if form == "sentences" and count_longer(sentences, room) == 0:
        return Sequences(sentences[:-1, None], sentences[1:, None], room, edges, {})
    if form == "sentences":
        cuts = cut_sentences(sentences, store.starts, room)
    elif form == "full-sentences":
        cuts = cut_text(sentences, documents, store.starts, room)
    elif form == "doc-sentences":
        cuts = cut_documents(sentences, documents, store.starts, room)
    elif form == "segment-pair":
        cuts = cut_pairs(sentences, documents, store.starts, room, key)
    else:
        pieces = cut_sentences(sentences, store.starts, room // 2)
        cuts = pair_sentences(pieces, sentences, documents, store.starts)
    return Sequences(cuts[:, :-1], cuts[:, 1:], room, edges, {})


class Packed(NamedTuple):
    """Which sequences each row holds."""

    bounds: Integers
    """Row r holds `members[bounds[r]:bounds[r + 1]]`."""
    members: Integers
    used: Integers
    """Places of each row that are not padding."""


def pack(lengths: Integers, capacity: int) -> Packed:
    """Sequences of these lengths in rows of a capacity: long ones first, each to the fullest row that has room for it.

    They are sorted by length not as a whole but some thousands at a time, so that what is near in the text stays near.

    >>> packed = pack(np.array([6, 7, 4, 1, 2]), 10)
    >>> packed.used.tolist(), [packed.members[a:b].tolist() for a, b in zip(packed.bounds, packed.bounds[1:])]
    ([10, 10], [[1, 3, 4], [0, 2]])
    """
    if lengths.max() > capacity:
        raise ValueError(f"a sequence of {lengths.max()} places does not fit into rows of {capacity}")
    begins = range(0, lengths.size, _WINDOW)
    order = [begin + np.argsort(-lengths[begin : begin + _WINDOW], kind="stable") for begin in begins]
    rows, used = best_fit(lengths, np.concatenate(order), capacity)
    bounds, members = members_of(rows, used.size)
    return Packed(bounds, members, used)
