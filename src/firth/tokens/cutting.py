"""Cutter: sentences to chunks, the parts of a text that a tokenizer treats apart.

Every tokenizer here treats the two sides of a space (and, where `separable`, of a Chinese character) apart, and most of
them punctuation too. A line for which that fails is one chunk.
"""

from __future__ import annotations

import re
import string

import numpy as np
import numpy.typing as npt

from firth.text.segment import Segmenter
from firth.tokens import _kernels
from firth.tokens._line_kernels import HOLDS_PAIR, MAY_HOLD_HAN
from firth.tokens.chunks import ChunkTable
from firth.tokens.lines import Lines
from firth.tokens.recipe import TokenizerRecipe

_JOINERS = "'.,-"  # stand inside words: don't, e-mail, 3.14, 1,000


class Cutter:
    """Cuts sentences into chunks and numbers the distinct ones.

    >>> from firth.text.segment import make_segmenter
    >>> from firth.tokens.lines import lines_of
    >>> cutter = Cutter(TokenizerRecipe(model="words", split="punctuation"), make_segmenter())
    >>> cutter.cut(lines_of(["to be, or", "not to be"])).tolist()
    [0, 1, 2, 3, -1, 4, 0, 1, -1]
    """

    def __init__(self, recipe: TokenizerRecipe, segmenter: Segmenter) -> None:
        self.table = ChunkTable(kinds_of_bytes(recipe))
        self.uncut = uncut_lines(recipe)
        self.pairs = recipe.model == "byte-bpe"
        """Whether lines must tell where they hold two characters of white space in a row."""
        self._special = re.compile(_specials(recipe).encode()) if self.uncut else None
        self._segmenter = segmenter if recipe.separable and segmenter.name != "space" else None

    def cut(self, lines: Lines) -> npt.NDArray[np.int32]:
        """The numbers of the chunks of all lines, and -1 at each line end."""
        whole = self._whole_lines(lines)
        text = lines.text
        if self._segmenter is not None:
            chinese = np.flatnonzero((lines.flags & MAY_HOLD_HAN > 0) & ~whole)
            if chinese.size:
                text = _replace(lines, chinese, _mark(lines, chinese, self._segmenter))
        return self.table.look_up(text, whole)

    def _whole_lines(self, lines: Lines) -> npt.NDArray[np.bool_]:
        """Which lines hold something that forbids cutting them."""
        whole = lines.flags & HOLDS_PAIR > 0
        if self._special is not None:
            for match in self._special.finditer(lines.text.data):
                whole[np.searchsorted(lines.bounds, match.start(), side="right") - 1] = True
        return whole


def _mark(lines: Lines, chosen: npt.NDArray[np.intp], segmenter: Segmenter) -> list[bytes]:
    """The chosen lines with word breaks where no space shows them."""
    texts = b"\n".join(map(lines.line, chosen.tolist()))
    return segmenter.mark(texts.decode()).encode().split(b"\n")


def _replace(lines: Lines, chosen: npt.NDArray[np.intp], others: list[bytes]) -> npt.NDArray[np.uint8]:
    """The text with other lines in place of the chosen ones."""
    text = lines.text.tobytes()
    parts, done = [], 0
    for begin, end, other in zip(lines.bounds[chosen].tolist(), lines.bounds[chosen + 1].tolist(), others, strict=True):
        parts += [text[done:begin], other]
        done = end - 1
    return np.frombuffer(b"".join([*parts, text[done:]]), dtype=np.uint8)


def kinds_of_bytes(recipe: TokenizerRecipe) -> npt.NDArray[np.uint8]:
    """Which ASCII bytes a chunk may end beside, without changing tokens or word bounds.

    Not where white space alone separates words, nor where every chunk would get a space mark of its own.
    """
    kinds = np.full(256, _kernels.OTHER, dtype=np.uint8)
    if recipe.model in ("words", "wordpiece"):
        kinds[_kernels.SPACE] = _kernels.WORD  # no token holds a space, so it need not be kept
    if recipe.model in ("bpe", "pieces") or (recipe.model == "words" and recipe.split == "space"):
        return kinds
    kinds[[ord(character) for character in string.ascii_letters + string.digits]] = _kernels.WORD
    alone = recipe.model != "byte-bpe"  # it keeps runs of punctuation together
    marks = [ord(character) for character in string.punctuation]
    joiners = [ord(character) for character in _JOINERS]
    kinds[marks] = _kernels.LONE_MARK if alone else _kernels.MARK
    kinds[joiners] = _kernels.LONE_JOINER if alone else _kernels.JOINER
    kinds[ord("_")] = _kernels.OTHER  # a letter to some, punctuation to others
    if recipe.model == "byte-bpe":
        kinds[ord("'")] = _kernels.OTHER  # it has rules of its own: 's, 't, 're
    return kinds


def uncut_lines(recipe: TokenizerRecipe) -> re.Pattern[str] | None:
    """What a line must not hold if it is to be cut into chunks.

    That is a special token written out, where the punctuation in it would be cut off; and for byte-level BPE, which
    groups runs of white space, any but single ones.
    """
    if kinds_of_bytes(recipe)[ord(".")] == _kernels.OTHER:
        return None
    return re.compile(_specials(recipe) + (r"|[^\S\n]{2}" if recipe.model == "byte-bpe" else ""))


def _specials(recipe: TokenizerRecipe) -> str:
    return "|".join(map(re.escape, recipe.specials))
