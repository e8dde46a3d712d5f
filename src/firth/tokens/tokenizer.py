"""Tokenizer: text to ids and back, keeping word bounds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers

from firth.arguments import ChecksArguments
from firth.errors import TokenizerError
from firth.files import digest_bytes
from firth.summaries import Summarised
from firth.text.segment import HAN, HAN_RANGES, WORD_BREAK, WORD_PATTERN, make_segmenter, word_regex
from firth.tokens.loading import load_backend
from firth.tokens.recipe import TokenizerRecipe

PAD, UNK, BOS, EOS, MASK = range(5)  # ids of the special tokens, the same in every tokenizer
FIRST_WORD = MASK + 1


class Tokens(NamedTuple):
    """Ids, whether each token starts a word, and character offsets in the text."""

    ids: list[int]
    word_starts: list[bool]
    offsets: list[tuple[int, int]]


class Tokenizer(Summarised, ChecksArguments):
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
        """`data` is a `tokenizer.json` made for `recipe`; if `vocabulary` is given, it is parsed only when needed."""
        self.data = data
        self.recipe = recipe
        self.dictionary = dictionary
        self.segmenter = make_segmenter(recipe.segmenter, dictionary)
        if vocabulary is not None:
            self.vocabulary = vocabulary
            return
        found = tuple(self.backend.id_to_token(index) for index in range(FIRST_WORD))
        if found != recipe.specials:
            raise TokenizerError(
                f"tokenizer.json begins with the tokens {found}, not {recipe.specials}: it was not made by Firth "
                f"for a {recipe.model} recipe; train one with firth train {recipe.model}."
            )

    @cached_property
    def backend(self) -> tokenizers.Tokenizer:
        return load_backend(self.data)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of everything that determines the ids and word bounds."""
        words = self.dictionary.read_bytes() if self.dictionary else b""
        return digest_bytes(self.data + self.recipe.segmenter.encode() + words)

    @property
    def tokenizer(self) -> Tokenizer:
        """Itself, so that every loaded artifact has a `tokenizer`."""
        return self

    def summary(self) -> dict[str, Any]:
        """The kind of tokens, their number and how text is normalised."""
        facts = {"model": self.recipe.model, "vocabulary": len(self), "normalise": self.recipe.normalise}
        return facts | ({"lowercase": "yes"} if self.recipe.lowercase else {})

    def __len__(self) -> int:
        return len(self.vocabulary) if "backend" not in self.__dict__ else int(self.backend.get_vocab_size())

    @cached_property
    def vocabulary(self) -> list[str]:
        return [str(self.backend.id_to_token(index)) for index in range(len(self))]

    def id(self, token: str) -> int:
        """The id of a token, or that of the unknown token."""
        found = self.backend.token_to_id(token)
        return UNK if found is None else int(found)

    def encode(self, text: str) -> Tokens:
        """The tokens of a text, without added special tokens."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[Tokens]:
        """The tokens of each text; offsets refer to `presegment(text)`."""
        texts = [self.presegment(text) for text in texts]
        found = self.backend.encode_batch(texts, add_special_tokens=False)
        marked = [self.segmenter.mark(text) for text in texts]
        return [
            Tokens(one.ids, flag_word_starts(one.offsets, find_word_starts(mark)), one.offsets)
            for one, mark in zip(found, marked, strict=True)
        ]

    def tokenize(self, text: str) -> list[str]:
        return list(self.backend.encode(self.presegment(text), add_special_tokens=False).tokens)

    def presegment(self, text: str) -> str:
        """The text as `tokenizer.json` expects it: for `words`, with spaces between Chinese words."""
        if self.recipe.model != "words":
            return text
        return self.segmenter.mark(text).replace(WORD_BREAK, " ")

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the ids, without special tokens; the spacing of `words` and `wordpiece` is restored by rule."""
        text = str(self.backend.decode(list(ids), skip_special_tokens=True))
        return join_words(text) if self.recipe.model in ("words", "wordpiece") else text


def find_word_starts(marked: str) -> list[int]:
    """The start of each word in the text without its word breaks; the space before a word belongs to it.

    >>> find_word_starts("don't stop, 3.50")
    [0, 5, 10, 11]
    """
    starts, breaks, seen = [0], 0, 0
    for match in word_regex().finditer(marked):
        breaks += marked.count(WORD_BREAK, seen, match.end())
        seen = match.end()
        starts.append(seen - breaks)
    return starts[:-1]


def flag_word_starts(offsets: Sequence[tuple[int, int]], words: Sequence[int]) -> list[bool]:
    """Whether each token starts a word: the first does, others if the next word starts within them."""
    flags, word = [], 0
    for index, (_, end) in enumerate(offsets):
        first = word
        while word < len(words) and words[word] < max(end, 1):  # a token may represent a space before the text
            word += 1
        flags.append(word > first or index == 0)
    return flags


_WIDE = HAN_RANGES + "\u3000-\u303f\uff00-\uffef\u2018-\u201d\u2026\u2014"
_AROUND_WIDE = re.compile(rf"(?<=[{_WIDE}]) (?=[{_WIDE}])")
_BEFORE = re.compile(r" (?=[,.;:!?%)\]}’”]|'(?:s|t|re|ve|ll|d|m)\b|n't\b)")
_AFTER = re.compile(r"(?<=[(\[{$“‘]) ")


def join_words(text: str) -> str:
    """The text of space-separated words with usual spacing.

    >>> join_words("He said ( twice ) : no , it is n't . 我们 喜欢 语言 。")
    "He said (twice): no, it isn't. 我们喜欢语言。"
    """
    text = _AFTER.sub("", _BEFORE.sub("", text))
    return _AROUND_WIDE.sub("", text) if HAN.search(text) else text


SPACE_MARK = "▁"
_PLAIN_HAN = "\u3400-\u4dbf\u4e00-\u9fff"

# Runs of letters, digits or other characters, each with the space mark before it: pieces never mix them.
_RUNS = rf"{SPACE_MARK}?(?:[\p{{L}}\p{{M}}]+|\p{{N}}+|[^\s\p{{L}}\p{{M}}\p{{N}}{SPACE_MARK}]+)|{SPACE_MARK}"


def make_backend(model: Any, recipe: TokenizerRecipe) -> tokenizers.Tokenizer:
    """A `tokenizers.Tokenizer` around `model` with the recipe's normaliser, pre-tokenizer and decoder."""
    backend = tokenizers.Tokenizer(model)
    backend.normalizer = normalizers.Sequence(_normalisers(recipe))
    backend.pre_tokenizer = _pre_tokenizer(recipe)
    backend.decoder = _DECODERS[recipe.model]
    return backend


def add_specials(backend: tokenizers.Tokenizer, recipe: TokenizerRecipe) -> None:
    """Register the special tokens (ids 0 to 4) so that they are recognised in text, and append the sentinels."""
    tokens = (*recipe.specials, *recipe.sentinel_tokens)
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in tokens])


class WordSplitter:
    """Splits chunks into words, the character runs that no token crosses, like the library's pre-tokenizer.

    >>> WordSplitter(TokenizerRecipe(model="words", split="punctuation")).words("don't,")
    ["don't", ',']
    """

    def __init__(self, recipe: TokenizerRecipe) -> None:
        blank = make_backend(models.WordLevel({}, unk_token=recipe.specials[1]), recipe)
        self._normalise = blank.normalizer.normalize_str
        self._pre_tokenize = blank.pre_tokenizer.pre_tokenize_str
        self._special = re.compile("|".join(map(re.escape, (*recipe.specials, *recipe.sentinel_tokens))))
        self.is_plain = plain_word(recipe).fullmatch
        # Whether a chunk equal to a word is always that word.
        self.is_identity = recipe.split == "space" and recipe.normalise != "nfkc" and not recipe.lowercase

    def words(self, chunk: str) -> list[str]:
        parts = self._special.split(chunk.replace(WORD_BREAK, " "))
        return [word for part in parts for word, _ in self._pre_tokenize(self._normalise(part))]

    def word(self, chunk: str) -> str | None:
        """The only word of a chunk, or None if it has none or several."""
        words = self._pre_tokenize(self._normalise(chunk))
        return words[0][0] if len(words) == 1 and not self._special.search(chunk) else None


def plain_word(recipe: TokenizerRecipe) -> re.Pattern[str]:
    """Matches chunks that are one word, unchanged by normalisation and without `<`, which starts special tokens."""
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
        options = {"clean_text": True, "handle_chinese_chars": True, "strip_accents": False}
        chain.append(normalizers.BertNormalizer(**options, lowercase=recipe.lowercase))
    elif recipe.lowercase:
        chain.append(normalizers.Lowercase())
    if recipe.model == "chars":
        chain.append(normalizers.Replace(" ", SPACE_MARK))
    return chain


def _pre_tokenizer(recipe: TokenizerRecipe) -> Any:
    match recipe.model:
        case "words":
            splitters: list[Any] = [pre_tokenizers.WhitespaceSplit()]
            if recipe.split == "punctuation":
                splitters.append(pre_tokenizers.Split(Regex(WORD_PATTERN.format(marks="")), "isolated"))
            return pre_tokenizers.Sequence(splitters) if len(splitters) > 1 else splitters[0]
        case "chars":
            return pre_tokenizers.Split(Regex("(?m:.)"), "isolated")
        case "byte-bpe":
            return pre_tokenizers.ByteLevel(add_prefix_space=False)
        case "wordpiece":
            return pre_tokenizers.BertPreTokenizer()
        case "bpe" | "pieces":
            metaspace = pre_tokenizers.Metaspace(SPACE_MARK, prepend_scheme="always")
            return pre_tokenizers.Sequence([metaspace, pre_tokenizers.Split(Regex(_RUNS), "isolated")])


_DECODERS: dict[str, Any] = {
    "words": None,
    "chars": decoders.Sequence([decoders.Replace(SPACE_MARK, " "), decoders.Fuse()]),
    "byte-bpe": decoders.ByteLevel(),
    "wordpiece": decoders.WordPiece(prefix="##", cleanup=False),
    **dict.fromkeys(("bpe", "pieces"), decoders.Metaspace(SPACE_MARK, prepend_scheme="always")),
}
