"""Training a tokenizer on a corpus."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokenizers import models, pre_tokenizers

from firth.errors import TokenizerError
from firth.text.corpus import Corpus
from firth.text.segment import WORD_BREAK, make_segmenter
from firth.tokens.counting import count_chunks
from firth.tokens.encoder import PLAIN_WORD
from firth.tokens.merges import learn_merges
from firth.tokens.pieces import learn_pieces
from firth.tokens.pipeline import add_specials, make_backend
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.tokenizer import UNK, Tokenizer

_SAMPLE = 2000  # sentences that decide whether words end at punctuation


def train_tokenizer(recipe: TokenizerRecipe, corpus: Corpus, threads: int | None = None) -> Tokenizer:
    """A tokenizer whose vocabulary comes from `corpus`; the same text gives the same bytes, whatever the machine."""
    dictionary = Path(recipe.dictionary) if recipe.dictionary else None
    make_segmenter(recipe.segmenter, dictionary)  # a wrong dictionary is told before any work
    if recipe.model == "words" and recipe.split == "auto":
        recipe = replace(recipe, split="space" if words_stand_apart(corpus.sentences()) else "punctuation")
    words = count_words(recipe, count_chunks(corpus, recipe, dictionary, threads))
    return tokenizer_from_words(recipe, words, dictionary)


def tokenizer_from_words(
    recipe: TokenizerRecipe, words: Mapping[str, int], dictionary: Path | None = None
) -> Tokenizer:
    """The tokenizer that a recipe makes of words and how often they occur."""
    backend = make_backend(_learn(recipe, words), recipe)
    add_specials(backend, recipe)
    data = json.dumps(json.loads(backend.to_str()), ensure_ascii=False, indent=1) + "\n"
    return Tokenizer(data.encode(), recipe, dictionary)


_GLUED = re.compile(r"\w(?:[,;:!?，、；：！？。](?!\d)|\.$)")


def words_stand_apart(sentences: Iterable[str]) -> bool:
    """Whether punctuation marks are separated from words already, as in the Penn Treebank.

    >>> words_stand_apart(["no , it was n't black monday", "but while the new york stock exchange did n't fall"])
    True
    >>> words_stand_apart(["No, it wasn't Black Monday.", "But the exchange, alas, fell."])
    False
    >>> words_stand_apart(["the barns burn.", "两座木屋着火。"])
    False
    """
    glued = words = 0
    for _, sentence in zip(range(_SAMPLE), sentences, strict=False):
        glued += len(_GLUED.findall(sentence))
        words += sentence.count(" ") + 1
    return glued <= 0.005 * words


def count_words(recipe: TokenizerRecipe, chunks: Mapping[str, int]) -> Counter[str]:
    """How often each word occurs: each of the runs of characters that no token may reach beyond."""
    blank = make_backend(models.WordLevel({}, unk_token=recipe.specials[1]), recipe)
    normalise, cut = blank.normalizer.normalize_str, blank.pre_tokenizer.pre_tokenize_str
    special = re.compile("|".join(map(re.escape, recipe.specials)))
    plain = recipe.model == "words" and not recipe.lowercase
    counts: Counter[str] = Counter()
    for chunk, count in chunks.items():
        if plain and PLAIN_WORD.fullmatch(chunk):  # nothing in it can be changed or cut
            counts[chunk] += count
            continue
        for part in special.split(chunk.replace(WORD_BREAK, " ")):
            for word, _ in cut(normalise(part)):
                counts[word] += count
    return counts


def most_frequent(counts: Mapping[str, int], recipe: TokenizerRecipe) -> list[str]:
    """The words to keep: frequent ones first, equal ones in the order of their characters."""
    kept = [word for word, count in counts.items() if count >= recipe.min_count]
    if not kept:
        raise TokenizerError(
            f"no {recipe.model} occur at least {recipe.min_count} times: lower min_count or give more text."
        )
    kept.sort(key=lambda word: (-counts[word], word))
    return kept if recipe.vocab_size is None else kept[: recipe.vocab_size - len(recipe.specials)]


def _learn(recipe: TokenizerRecipe, words: Mapping[str, int]) -> Any:
    """The model of the `tokenizers` library with a vocabulary learnt from the words and their counts."""
    unknown = recipe.specials[1]
    if recipe.model in ("words", "chars"):
        return models.WordLevel(_vocabulary(recipe, most_frequent(words, recipe)), unk_token=unknown)
    assert recipe.vocab_size is not None  # the recipe sees to it
    room = recipe.vocab_size - len(recipe.specials)
    if recipe.model != "byte-bpe":  # a byte is never rare
        words = without_rare_characters(words, recipe.coverage)
    if recipe.model == "pieces":
        pieces = learn_pieces(words, room)
        return models.Unigram([(token, 0.0) for token in recipe.specials] + pieces, unk_id=UNK)
    if recipe.model == "wordpiece":
        tokens, _ = learn_merges(words, room, prefix="##", least=recipe.min_count)
        return models.WordPiece(_vocabulary(recipe, tokens), unk_token=unknown, max_input_chars_per_word=100)
    if recipe.model == "byte-bpe":
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        tokens, merges = learn_merges(words, room, alphabet=alphabet, least=recipe.min_count)
        return models.BPE(_vocabulary(recipe, tokens), merges)
    tokens, merges = learn_merges(words, room, least=recipe.min_count)
    return models.BPE(_vocabulary(recipe, tokens), merges, unk_token=unknown)


def without_rare_characters(words: Mapping[str, int], coverage: float) -> dict[str, int]:
    """The words made of characters that cover so much of the text: else thousands of strays would fill a vocabulary.

    >>> without_rare_characters({"aab": 50, "añb": 1}, 0.99)
    {'aab': 50}
    """
    counts: Counter[str] = Counter()
    for word, count in words.items():
        for character in word:
            counts[character] += count
    left = coverage * counts.total()
    rare = set()
    for character in sorted(counts, key=lambda character: (-counts[character], character)):
        if left <= 0:
            rare.add(character)
        left -= counts[character]
    return {word: count for word, count in words.items() if rare.isdisjoint(word)}


def _vocabulary(recipe: TokenizerRecipe, tokens: list[str]) -> dict[str, int]:
    return {token: place for place, token in enumerate([*recipe.specials, *tokens])}
