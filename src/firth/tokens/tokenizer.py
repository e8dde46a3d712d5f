"""Tokenizer: text to ids and back, keeping word bounds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import tokenizers

from firth.errors import TokenizerError
from firth.files import digest_bytes
from firth.text.segment import HAN, HAN_RANGES, WORD_BREAK, make_segmenter, word_finder
from firth.tokens.recipe import TokenizerRecipe

PAD, UNK, BOS, EOS, MASK = range(5)
"""Ids of the special tokens, the same in every tokenizer."""


class Tokens(NamedTuple):
    """What a text becomes: ids, whether each token begins a word, and where it stands in the text."""

    ids: list[int]
    starts: list[bool]
    offsets: list[tuple[int, int]]


class Tokenizer:
    """Text <-> ids. The ids are those that the `tokenizers` library gives for the same `tokenizer.json`.

    >>> from firth.text.corpus import read_corpus
    >>> from firth.tokens.train import train_tokenizer
    >>> corpus = read_corpus([["the cat sat", "the dog ran"]])
    >>> tokenizer = train_tokenizer(TokenizerRecipe(model="words"), corpus)
    >>> tokenizer.tokenize("the dog sat")
    ['the', 'dog', 'sat']
    >>> tokenizer.decode(tokenizer.encode("the dog sat").ids)
    'the dog sat'
    """

    def __init__(
        self,
        data: bytes,
        recipe: TokenizerRecipe,
        dictionary: Path | None = None,
        *,
        vocabulary: list[str] | None = None,
    ) -> None:
        """`data` is a `tokenizer.json` that was made for `recipe`.

        Whoever has just made it says so by giving the `vocabulary` too; then it is read when it is first needed.
        """
        self.data = data
        self.recipe = recipe
        self.dictionary = dictionary
        self.segmenter = make_segmenter(recipe.segmenter, dictionary)
        if vocabulary is not None:
            self.vocabulary = vocabulary
            return
        found = tuple(self.backend.id_to_token(place) for place in range(5))
        if found != recipe.specials:
            raise TokenizerError(
                f"tokenizer.json begins with the tokens {found}, not {recipe.specials}: it was not made by Firth "
                f"for a {recipe.model} recipe; train one with firth train {recipe.model}."
            )

    @cached_property
    def backend(self) -> tokenizers.Tokenizer:
        """The tokenizer of the `tokenizers` library."""
        try:
            return tokenizers.Tokenizer.from_str(self.data.decode())
        except Exception as error:  # the library raises plain Exception for whatever is wrong in the file
            raise TokenizerError(f"tokenizer.json cannot be read: {error}; make it again with firth train.") from None

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all that decides the ids and word bounds."""
        words = self.dictionary.read_bytes() if self.dictionary else b""
        return digest_bytes(self.data + self.recipe.segmenter.encode() + words)

    @property
    def tokenizer(self) -> Tokenizer:
        """Itself, so that every loaded artifact has a `tokenizer`."""
        return self

    def __len__(self) -> int:
        return len(self.vocabulary) if "backend" not in self.__dict__ else int(self.backend.get_vocab_size())

    @cached_property
    def vocabulary(self) -> list[str]:
        """All tokens in the order of their ids."""
        return [str(self.backend.id_to_token(place)) for place in range(len(self))]

    def id(self, token: str) -> int:
        """The id of a token, or that of the unknown token."""
        found = self.backend.token_to_id(token)
        return UNK if found is None else int(found)

    def encode(self, text: str) -> Tokens:
        """The tokens of a text, without special ones around it."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[Tokens]:
        """The tokens of each text; offsets are places in `spaced(text)`."""
        spaced = [self.spaced(text) for text in texts]
        found = self.backend.encode_batch(spaced, add_special_tokens=False)
        marked = [self.segmenter.mark(text) for text in spaced]
        return [
            Tokens(one.ids, token_starts(one.offsets, word_starts(mark)), one.offsets)
            for one, mark in zip(found, marked, strict=True)
        ]

    def tokenize(self, text: str) -> list[str]:
        """The tokens of a text as strings."""
        return list(self.backend.encode(self.spaced(text), add_special_tokens=False).tokens)

    def spaced(self, text: str) -> str:
        """The text as `tokenizer.json` expects it: for `words`, with spaces between the words of Chinese."""
        if self.recipe.model != "words":
            return text
        return self.segmenter.mark(text).replace(WORD_BREAK, " ")

    def decode(self, ids: Sequence[int]) -> str:
        """The text that the ids stand for; special tokens are left out.

        byte-bpe restores any text, bpe, pieces and chars every text of known characters; words and wordpiece lose the
        spaces around punctuation marks, which are put back by rule.
        """
        text = str(self.backend.decode(list(ids), skip_special_tokens=True))
        return join_words(text) if self.recipe.model in ("words", "wordpiece") else text


def word_starts(marked: str) -> list[int]:
    """Where words begin, as places in the text without its word breaks; the space before a word belongs to it.

    >>> word_starts("don't stop, 3.50")
    [0, 5, 10, 11]
    """
    starts, breaks, seen = [0], 0, 0
    for match in word_finder().finditer(marked):
        breaks += marked.count(WORD_BREAK, seen, match.end())
        seen = match.end()
        starts.append(seen - breaks)
    return starts[:-1]


def token_starts(offsets: Sequence[tuple[int, int]], words: Sequence[int]) -> list[bool]:
    """Whether each token begins a word: the first one does, others when the next word begins in them."""
    flags, word = [], 0
    for place, (_, end) in enumerate(offsets):
        first = word
        while word < len(words) and words[word] < max(end, 1):  # a token may stand for a space before the text
            word += 1
        flags.append(word > first or place == 0)
    return flags


_WIDE = HAN_RANGES + "\u3000-\u303f\uff00-\uffef\u2018-\u201d\u2026\u2014"
_AROUND_WIDE = re.compile(rf"(?<=[{_WIDE}]) (?=[{_WIDE}])")
_BEFORE = re.compile(r" (?=[,.;:!?%)\]}’”]|'(?:s|t|re|ve|ll|d|m)\b|n't\b)")
_AFTER = re.compile(r"(?<=[(\[{$“‘]) ")


def join_words(text: str) -> str:
    """Words separated by spaces as a person would write them.

    >>> join_words("He said ( twice ) : no , it is n't . 我们 喜欢 语言 。")
    "He said (twice): no, it isn't. 我们喜欢语言。"
    """
    text = _AFTER.sub("", _BEFORE.sub("", text))
    return _AROUND_WIDE.sub("", text) if HAN.search(text) else text
