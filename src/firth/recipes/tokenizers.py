"""Recipes of tokenizers."""

from __future__ import annotations

from dataclasses import replace

from firth.tokens.recipe import TokenizerRecipe


def words() -> TokenizerRecipe:
    """Words, separated by spaces, punctuation or the Chinese segmenter."""
    return TokenizerRecipe(model="words")


def chars() -> TokenizerRecipe:
    """Single characters, spaces included."""
    return TokenizerRecipe(model="chars")


def wordpiece() -> TokenizerRecipe:
    """Subwords by longest match; each Chinese character is a token (BERT)."""
    return TokenizerRecipe(model="wordpiece", vocab_size=16_000, min_count=2)


def bpe() -> TokenizerRecipe:
    """Subwords made by merging the most frequent pair of symbols repeatedly."""
    return TokenizerRecipe(model="bpe", vocab_size=16_000, min_count=2)


def pieces() -> TokenizerRecipe:
    """Subwords of the most probable segmentation under a unigram model (SentencePiece)."""
    return replace(bpe(), model="pieces", min_count=1)


def byte_bpe() -> TokenizerRecipe:
    """BPE over bytes: nothing is unknown, and decoding restores every text (GPT-2)."""
    return replace(bpe(), model="byte-bpe")
