"""Characters of a text that tokens stand for."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from firth.tokens.tokenizer import Tokenizer

Ints = npt.NDArray[np.int64]


def token_offsets(tokenizer: Tokenizer, lines: list[str]) -> list[tuple[Ints, Ints]]:
    """The ids of lines, and the characters from which and to which each token goes, (tokens, 2)."""
    found = []
    for line, tokens in zip(lines, tokenizer.encode_batch(lines), strict=True):
        offsets = np.array(tokens.offsets, dtype=np.int64).reshape(-1, 2)
        spaced = tokenizer.presegment(line)
        if spaced != line:
            offsets = original_offsets(line, spaced)[offsets]
        found.append((np.array(tokens.ids, dtype=np.int64), without_leading_spaces(line, offsets)))
    return found


def without_leading_spaces(text: str, offsets: Ints) -> Ints:
    """Character offsets of tokens without leading spaces, which some tokenizers include."""
    begins = [begin + len(text[begin:end]) - len(text[begin:end].lstrip()) for begin, end in offsets.tolist()]
    return np.column_stack([np.minimum(begins, offsets[:, 1]), offsets[:, 1]]) if begins else offsets


def original_offsets(text: str, spaced: str) -> Ints:
    """For each character offset in a text with inserted spaces, the offset in the original.

    >>> original_offsets("ab c", "a b c").tolist()
    [0, 1, 1, 2, 3, 4]
    """
    found = np.empty(len(spaced) + 1, dtype=np.int64)
    offset = 0
    for index, character in enumerate(spaced):
        found[index] = offset
        offset += offset < len(text) and text[offset] == character
    found[len(spaced)] = len(text)
    return found
