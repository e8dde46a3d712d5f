"""The parts of a `tokenizer.json` for each kind of token: normaliser, cutting before the model, and decoder."""

from __future__ import annotations

from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, normalizers, pre_tokenizers

from firth.text.segment import WORD_PATTERN
from firth.tokens.recipe import TokenizerRecipe

SPACE_MARK = "▁"

# Letters, digits and other characters apart, each with the space mark before it: pieces never mix them.
_RUNS = rf"{SPACE_MARK}?(?:[\p{{L}}\p{{M}}]+|\p{{N}}+|[^\s\p{{L}}\p{{M}}\p{{N}}{SPACE_MARK}]+)|{SPACE_MARK}"


def make_backend(model: Any, recipe: TokenizerRecipe) -> tokenizers.Tokenizer:
    """A `tokenizers.Tokenizer` around `model` that cuts, folds and joins text as the recipe says."""
    backend = tokenizers.Tokenizer(model)
    backend.normalizer = normalizers.Sequence(_normalisers(recipe))
    backend.pre_tokenizer = _cutter(recipe)
    backend.decoder = _joiner(recipe)
    return backend


def add_specials(backend: tokenizers.Tokenizer, recipe: TokenizerRecipe) -> None:
    """Makes the special tokens, which the vocabulary holds at ids 0 to 4, stand apart in text."""
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in recipe.specials])


def _normalisers(recipe: TokenizerRecipe) -> list[Any]:
    chain: list[Any] = []
    if recipe.normalise != "none":
        chain.append(normalizers.NFC() if recipe.normalise == "nfc" else normalizers.NFKC())
    if recipe.model == "wordpiece":
        chain.append(
            normalizers.BertNormalizer(
                clean_text=True, handle_chinese_chars=True, strip_accents=False, lowercase=recipe.lowercase
            )
        )
    elif recipe.lowercase:
        chain.append(normalizers.Lowercase())
    if recipe.model == "chars":
        chain.append(normalizers.Replace(" ", SPACE_MARK))
    return chain


def _cutter(recipe: TokenizerRecipe) -> Any:
    match recipe.model:
        case "words" if recipe.split == "punctuation":
            return pre_tokenizers.Sequence(
                [
                    pre_tokenizers.WhitespaceSplit(),
                    pre_tokenizers.Split(Regex(WORD_PATTERN.format(marks="")), "isolated"),
                ]
            )
        case "words":
            return pre_tokenizers.WhitespaceSplit()
        case "chars":
            return pre_tokenizers.Split(Regex("(?m:.)"), "isolated")
        case "byte-bpe":
            return pre_tokenizers.ByteLevel(add_prefix_space=False)
        case "wordpiece":
            return pre_tokenizers.BertPreTokenizer()
        case "bpe" | "pieces":
            return pre_tokenizers.Sequence(
                [
                    pre_tokenizers.Metaspace(SPACE_MARK, prepend_scheme="always"),
                    pre_tokenizers.Split(Regex(_RUNS), "isolated"),
                ]
            )


def _joiner(recipe: TokenizerRecipe) -> Any:
    match recipe.model:
        case "chars":
            return decoders.Sequence([decoders.Replace(SPACE_MARK, " "), decoders.Fuse()])
        case "byte-bpe":
            return decoders.ByteLevel()
        case "wordpiece":
            return decoders.WordPiece(prefix="##", cleanup=False)
        case "bpe" | "pieces":
            return decoders.Metaspace(SPACE_MARK, prepend_scheme="always")
        case "words":
            return None
