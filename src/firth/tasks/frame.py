"""Frame: texts as the network behind a task has learnt to read them, cut to the length that it can read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tokenizers

from firth.nets.recipe import NetRecipe
from firth.nets.scoring import longest, one_line
from firth.tasks.rows import Numbers
from firth.tokens.encoder import Encoder
from firth.tokens.language import FIRST_WORD
from firth.tokens.tokenizer import BOS, EOS, MASK, UNK, Tokenizer

_LINE_ENDS = {
    ord(one): " " for one in "\0\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
}  # one character for another: places stay
_MOST = 512  # tokens of a row of networks that could read any number


class Marks(NamedTuple):
    """What stands around and between texts."""

    before: tuple[int, ...]
    between: tuple[int, ...]
    end: tuple[int, ...]
    second: int
    """The segment of the second text."""


NO_MARKS = Marks((), (), (), 0)


def usual_marks(recipe: NetRecipe) -> Marks:
    """Those that a network gets if nobody else has taught it others.

    Where no segments tell two texts apart, two separators stand between them (Liu et al. 2019).
    """
    if recipe.visibility == "bidirectional":
        segments = recipe.embedding.segments > 1
        return Marks((BOS,), (EOS,) if segments else (EOS, EOS), (EOS,), int(segments))
    if recipe.visibility == "causal" and recipe.encoder.kind != "none":
        return Marks((BOS,), (MASK,), (EOS,), 0)
    return Marks((EOS,), (EOS,), (EOS,), 0)


def told_marks(backend: tokenizers.Tokenizer) -> Marks | None:
    """Those of a tokenizer.json, if it has a rule for two texts."""
    if backend.post_processor is None:
        return None
    found = backend.encode("a", "b")
    first, second = ([place for place, text in enumerate(found.sequence_ids) if text == own] for own in (0, 1))
    if not first or not second:
        return None
    ids = found.ids
    return Marks(
        tuple(ids[: first[0]]),
        tuple(ids[first[-1] + 1 : second[0]]),
        tuple(ids[second[-1] + 1 :]),
        found.type_ids[second[0]],
    )


class Framed(NamedTuple):
    """One text or two in a row."""

    ids: Numbers
    segments: Numbers | None
    begins: tuple[int, int]
    """Where each text begins in the row."""
    lengths: tuple[int, int]
    """How many of its tokens are there."""


class Frame:
    """How rows are made for one network.

    Masked networks read `[CLS] a [SEP] b [SEP]` with segments, or `<s> a </s></s> b </s>` without. Causal ones read
    `start a delimiter b extract`, where start and delimiter are tokens that they have never seen (Radford et al. 2018),
    and their end of a sentence is what the answer is taken from. Others read their own ends of sentences around and
    between. A model from elsewhere that reads texts in another way has that in its tokenizer.json.
    """

    def __init__(self, recipe: NetRecipe, tokenizer: Tokenizer) -> None:
        self.recipe, self.tokenizer = recipe, tokenizer
        self.most = longest(recipe) or _MOST
        self.segments = recipe.embedding.segments > 1
        self.marks = told_marks(tokenizer.backend) or usual_marks(recipe)
        self.cut = 0
        """Texts that had to be cut so far."""
        self._encoder = Encoder(tokenizer)

    def encode(self, texts: Sequence[str]) -> list[Numbers]:
        """The ids of each text; special tokens in it are unknown words."""
        encoded = self._encoder.encode([one_line(text) for text in texts])
        ids = encoded.ids.astype(np.int64)
        ids = np.where(ids >= FIRST_WORD, ids, UNK)
        ends = np.cumsum(encoded.lengths).tolist()
        return [ids[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]

    def encode_with_offsets(self, texts: Sequence[str]) -> list[tuple[Numbers, Numbers]]:
        """The ids of each text, and where each token begins and ends in it: (tokens, 2)."""
        lines = [text.translate(_LINE_ENDS) for text in texts]
        found = []
        for line, tokens in zip(lines, self.tokenizer.encode_batch(lines), strict=True):
            ids = np.array(tokens.ids, dtype=np.int64)
            offsets = np.array(tokens.offsets, dtype=np.int64).reshape(-1, 2)
            spaced = self.tokenizer.spaced(line)
            if spaced != line:
                offsets = places_in(line, spaced)[offsets]
            found.append((np.where(ids >= FIRST_WORD, ids, UNK), trimmed(line, offsets)))
        return found

    def room(self, texts: int) -> int:
        """Tokens of text that a row with so many texts holds."""
        marks = len(self.marks.before) + len(self.marks.end) + (texts - 1) * len(self.marks.between)
        return max(1, self.most - marks)

    def row(self, first: Numbers, second: Numbers | None = None) -> Framed:
        """A row of one text or two; too long ones lose their ends, the longer one first."""
        if second is None:
            kept = min(first.size, self.room(1))
            lengths = (kept, 0)
        else:
            lengths = shorten(first.size, second.size, self.room(2))
        self.cut += lengths[0] < first.size or (second is not None and lengths[1] < second.size)
        before, between, end, kind = self.marks
        parts = [before, first[: lengths[0]], *([] if second is None else [between, second[: lengths[1]]]), end]
        ids = np.concatenate([np.asarray(part, dtype=np.int64) for part in parts])
        ids = ids if ids.size else np.array([EOS])  # an empty text without marks is still to be read
        begins = (len(before), 0 if second is None else len(before) + lengths[0] + len(between))
        segments = None
        if self.segments:
            segments = np.where((second is not None) & (np.arange(ids.size) >= begins[1]), kind, 0)
        return Framed(ids, segments, begins, lengths)


def shorten(first: int, second: int, room: int) -> tuple[int, int]:
    """How much of two texts fits: the longer one loses until both are equal, then both.

    >>> shorten(10, 3, 8), shorten(10, 10, 9), shorten(2, 3, 9)
    ((5, 3), (5, 4), (2, 3))
    """
    if first + second <= room:
        return first, second
    half = room // 2
    if second <= half:
        return room - second, second
    if first <= room - half:
        return first, room - first
    return room - half, half


def trimmed(text: str, offsets: Numbers) -> Numbers:
    """Places of tokens without the spaces at their beginnings, which some tokenizers count as theirs."""
    begins = [begin + len(text[begin:end]) - len(text[begin:end].lstrip()) for begin, end in offsets.tolist()]
    return np.column_stack([np.minimum(begins, offsets[:, 1]), offsets[:, 1]]) if begins else offsets


def places_in(text: str, spaced: str) -> Numbers:
    """For each place of a text that was given more spaces, the place in the text itself.

    >>> places_in("ab c", "a b c").tolist()
    [0, 1, 1, 2, 3, 4]
    """
    found = np.empty(len(spaced) + 1, dtype=np.int64)
    place = 0
    for number, character in enumerate(spaced):
        found[number] = place
        place += place < len(text) and text[place] == character
    found[len(spaced)] = len(text)
    return found
