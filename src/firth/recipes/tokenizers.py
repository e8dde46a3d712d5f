"""Tokenizers: what the text is cut into."""

from __future__ import annotations

from dataclasses import replace

from firth.tokens.recipe import TokenizerRecipe


def words() -> TokenizerRecipe:
    """Words, as separated by spaces, punctuation or the Chinese segmenter."""
    return TokenizerRecipe(model="words")


def chars() -> TokenizerRecipe:
    """Single characters, spaces included."""
    return TokenizerRecipe(model="chars")


def wordpiece() -> TokenizerRecipe:
    """Pieces of words, longest match first; each Chinese character alone (BERT's tokens)."""
    return TokenizerRecipe(model="wordpiece", vocab_size=16_000, min_count=2)


def bpe() -> TokenizerRecipe:
    """Characters joined pair by pair, the most frequent pair first."""
    return TokenizerRecipe(model="bpe", vocab_size=16_000, min_count=2)


def pieces() -> TokenizerRecipe:
    """Pieces under a unigram model; the likeliest way of cutting wins."""
    return replace(bpe(), model="pieces", min_count=1)


def byte_bpe() -> TokenizerRecipe:
    """Pair encoding over bytes: no text is unknown, every text is restored (GPT-2's tokens)."""
    return replace(bpe(), model="byte-bpe")
