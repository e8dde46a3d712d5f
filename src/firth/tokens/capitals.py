"""Capital letters of words, which lower-cased tokens have lost."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from firth.tokens.tokenizer import Tokenizer, find_word_starts


def chunk_capitals(
    tokenizer: Tokenizer, chunks: Sequence[str], lengths: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint8]:
    """1 for each token of a word that begins with a capital letter; `lengths` are the tokens of each chunk.

    >>> from firth.text.corpus import read_corpus
    >>> from firth.tokens.recipe import TokenizerRecipe
    >>> from firth.tokens.train import train_tokenizer
    >>> recipe = TokenizerRecipe(model="wordpiece", vocab_size=40, lowercase=True, min_count=1)
    >>> tokenizer = train_tokenizer(recipe, read_corpus([["he met Anna"]]))
    >>> tokenizer.tokenize("Anna")
    ['anna']
    >>> chunk_capitals(tokenizer, ["he", "Anna"], np.array([1, 1])).tolist()
    [0, 1]
    """
    found = np.zeros(int(lengths.sum()), dtype=np.uint8)
    begins = (np.cumsum(lengths) - lengths).tolist()
    for number, (chunk, length) in enumerate(zip(chunks, lengths.tolist(), strict=True)):
        if chunk.islower() or chunk == chunk.lower() or not length:
            continue
        begin = begins[number]
        if length == 1:
            found[begin] = _begins_with_capital(chunk)
        else:
            found[begin : begin + length] = _token_capitals(tokenizer, chunk, length)
    return found


def _begins_with_capital(word: str) -> bool:
    return next((character.isupper() for character in word if character.isalnum()), False)


def _token_capitals(tokenizer: Tokenizer, chunk: str, length: int) -> list[bool]:
    """Whether the word of each token of a chunk begins with a capital letter."""
    offsets = tokenizer.backend.encode(chunk, add_special_tokens=False).offsets
    if len(offsets) != length:  # a line that is encoded as a whole, with its words marked
        offsets = tokenizer.encode(chunk).offsets
    marked = tokenizer.segmenter.mark(chunk)
    words = find_word_starts(marked)
    starts = [words[max(bisect_right(words, max(end - 1, 0)) - 1, 0)] if words else 0 for _, end in offsets]
    flags = {start: _begins_with_capital(chunk[start:].lstrip()[:1]) for start in set(starts)}
    return ([flags[start] for start in starts] + [False] * length)[:length]
