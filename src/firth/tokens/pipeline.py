"""The parts of a `tokenizer.json` for each kind of token: normaliser, cutting before the model, and decoder."""

from __future__ import annotations

import re
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers

from firth.text.segment import WORD_BREAK, WORD_PATTERN
from firth.tokens.recipe import TokenizerRecipe

SPACE_MARK = "▁"
_PLAIN_HAN = "\u3400-\u4dbf\u4e00-\u9fff"

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


class WordCutter:
    """Cuts chunks into words: runs of characters that no token may reach beyond, as the library does before its model.

    >>> WordCutter(TokenizerRecipe(model="words", split="punctuation")).words("don't,")
    ["don't", ',']
    """

    def __init__(self, recipe: TokenizerRecipe) -> None:
        blank = make_backend(models.WordLevel({}, unk_token=recipe.specials[1]), recipe)
        self._normalise = blank.normalizer.normalize_str
        self._cut = blank.pre_tokenizer.pre_tokenize_str
        self._special = re.compile("|".join(map(re.escape, recipe.specials)))
        self.is_plain = plain_word(recipe).fullmatch
        """Whether a chunk is one word as it stands."""
        self.repeats = recipe.split == "space" and recipe.normalise != "nfkc" and not recipe.lowercase
        """Whether each word, where it is a chunk, is that word."""

    def words(self, chunk: str) -> list[str]:
        """The words of a chunk, without special tokens."""
        parts = self._special.split(chunk.replace(WORD_BREAK, " "))
        return [word for part in parts for word, _ in self._cut(self._normalise(part))]

    def word(self, chunk: str) -> str | None:
        """The word that a chunk is, if it is one and nothing else."""
        words = self._cut(self._normalise(chunk))
        return words[0][0] if len(words) == 1 and not self._special.search(chunk) else None


def plain_word(recipe: TokenizerRecipe) -> re.Pattern[str]:
    """Matches chunks that are one word as they stand.

    Where only white space separates words, that is every run of characters that normalisation leaves alone, such as
    those before the combining marks; but not of `<`, with which special tokens begin.
    """
    if recipe.model != "words":
        return re.compile(r"(?!)")
    letters = "a-z" if recipe.lowercase else "A-Za-z"
    if recipe.split == "punctuation":
        return re.compile(rf"[{letters}0-9]+|[{_PLAIN_HAN}]+")
    if not recipe.lowercase and recipe.normalise != "nfkc":
        letters += "\u00a1-\u02ff\u2010-\u2027"
    return re.compile(rf"[!-;=-@\[-`{{-~{letters}{_PLAIN_HAN}]+")


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
