"""TokenizerRecipe: the configuration of a tokenizer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from firth.errors import RecipeError

TokenModel = Literal["words", "chars", "bpe", "byte-bpe", "wordpiece", "pieces"]
MIN_VOCABULARY = 10
MAX_COUNT = 2**31 - 1
"""The largest vocabulary and minimal count, for kernels count in machine numbers."""


@dataclass(frozen=True, kw_only=True)
class TokenizerRecipe:
    """How text is tokenised.

    >>> TokenizerRecipe(model="words", vocab_size=3)
    Traceback (most recent call last):
    ...
    firth.errors.RecipeError: vocab_size=3 leaves no room beside the 5 special tokens: set it to 10 or more.
    """

    model: TokenModel
    """The unit: a word, a character, or a subword found by one of four algorithms."""
    vocab_size: int | None = None
    """Maximum number of tokens, special ones included; none means all that reach min_count."""
    min_count: int = 1
    """Words, characters and pairs that occur less often are dropped."""
    coverage: float = 0.9995
    """Subwords only: the fraction of the text that the characters in the vocabulary must cover."""
    split: Literal["auto", "space", "punctuation"] = "auto"
    """`words` only: split at spaces, or also at punctuation; auto decides from the text."""
    normalise: Literal["none", "nfc", "nfkc"] = "nfc"
    """Unicode normalisation, applied first."""
    lowercase: bool = False
    """Convert to lower case."""
    segmenter: Literal["rjieba", "jieba", "space"] = "rjieba"
    """Word segmenter for Chinese text; space means that words are separated already."""
    sentinels: int = 0
    """Further special tokens after the vocabulary, `<extra_id_0>` last, which stand for spans of text (T5)."""
    dictionary: str | None = None
    """A file of user words for the segmenter, one `word [frequency] [tag]` per line."""

    def __post_init__(self) -> None:
        if self.vocab_size is not None and self.vocab_size < MIN_VOCABULARY:
            raise RecipeError(
                f"vocab_size={self.vocab_size} leaves no room beside the 5 special tokens: "
                f"set it to {MIN_VOCABULARY} or more."
            )
        if self.vocab_size is not None and self.vocab_size > MAX_COUNT:
            raise RecipeError(f"vocab_size={self.vocab_size} must be at most {MAX_COUNT}.")
        if self.vocab_size is None and self.model not in ("words", "chars"):
            raise RecipeError(f"{self.model} needs a vocab_size: set it to 16000, say.")
        if self.model == "byte-bpe" and self.vocab_size is not None and self.vocab_size < 261:
            raise RecipeError("byte-bpe needs a vocab_size of at least 261: 256 bytes and 5 special tokens.")
        if not 0 <= self.sentinels <= 10_000:
            raise RecipeError(f"sentinels={self.sentinels} must be from 0 to 10000.")
        if not 0 < self.coverage <= 1:
            raise RecipeError(f"coverage={self.coverage} must be above 0 and at most 1.")
        if not 1 <= self.min_count <= MAX_COUNT:
            raise RecipeError(f"min_count={self.min_count} must be from 1 to {MAX_COUNT}.")
        if self.dictionary and self.segmenter == "space":
            raise RecipeError("segmenter=space uses no dictionary: set segmenter=rjieba or leave it out.")

    @property
    def kind(self) -> str:
        return "tokenizer"

    @property
    def dictionary_path(self) -> Path | None:
        return Path(self.dictionary) if self.dictionary else None

    @property
    def separable(self) -> bool:
        """Whether splitting beside a Chinese character never changes the tokens on either side."""
        return self.model in ("words", "chars", "wordpiece")

    @property
    def specials(self) -> tuple[str, str, str, str, str]:
        """The special tokens: padding, unknown, beginning, end, mask; their ids are 0 to 4."""
        if self.model == "wordpiece":
            return ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
        return ("<pad>", "<unk>", "<s>", "</s>", "<mask>")

    @property
    def sentinel_tokens(self) -> tuple[str, ...]:
        """The tokens after the vocabulary, in the order of their ids: the last is the first of a text."""
        return tuple(f"<extra_id_{number}>" for number in reversed(range(self.sentinels)))
