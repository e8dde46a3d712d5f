"""Training a tokenizer on a corpus."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from json.encoder import encode_basestring
from pathlib import Path
from typing import Any

from tokenizers import models, pre_tokenizers

from firth.errors import TokenizerError
from firth.text.corpus import Corpus
from firth.text.segment import make_segmenter
from firth.tokens.counting import count_chunks
from firth.tokens.merges import learn_merges
from firth.tokens.pieces import learn_pieces
from firth.tokens.pipeline import WordCutter, add_specials, make_backend
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.tokenizer import UNK, Tokenizer

_SAMPLE = 2000  # sentences that decide whether words end at punctuation


def train_tokenizer(recipe: TokenizerRecipe, corpus: Corpus, threads: int | None = None) -> Tokenizer:
    """A tokenizer whose vocabulary comes from `corpus`; the same text gives the same bytes, whatever the machine."""
    recipe = settle_recipe(recipe, corpus)
    return learn_tokenizer(recipe, count_chunks(corpus, recipe, dictionary_of(recipe), threads))


def settle_recipe(recipe: TokenizerRecipe, corpus: Corpus) -> TokenizerRecipe:
    """The recipe with what it leaves to the text filled in; what is wrong in it is told before any work."""
    make_segmenter(recipe.segmenter, dictionary_of(recipe))
    if recipe.model == "words" and recipe.split == "auto":
        return replace(recipe, split="space" if words_stand_apart(corpus.sentences()) else "punctuation")
    return recipe


def dictionary_of(recipe: TokenizerRecipe) -> Path | None:
    """The file of user words that the recipe names."""
    return Path(recipe.dictionary) if recipe.dictionary else None


def learn_tokenizer(recipe: TokenizerRecipe, chunks: Mapping[str, int]) -> Tokenizer:
    """A tokenizer with a vocabulary learnt from the chunks of a text and their counts."""
    return tokenizer_from_words(recipe, count_words(recipe, chunks))


def tokenizer_from_words(
    recipe: TokenizerRecipe, words: Mapping[str, int], dictionary: Path | None = None
) -> Tokenizer:
    """The tokenizer that a recipe makes of words and how often they occur; `dictionary` stands for the recipe's own."""
    dictionary = dictionary or dictionary_of(recipe)
    if recipe.model in ("words", "chars"):
        vocabulary = [*recipe.specials, *most_frequent(words, recipe)]
        data = _word_level_json(recipe, vocabulary)
        return Tokenizer(data.encode(), recipe, dictionary, vocabulary=vocabulary)
    data = _to_json(_learn(recipe, words), recipe)
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


def count_words(recipe: TokenizerRecipe, chunks: Mapping[str, int]) -> dict[str, int]:
    """How often each word occurs: each of the runs of characters that no token may reach beyond."""
    cutter = WordCutter(recipe)
    counts = {chunk: count for chunk, count in chunks.items() if cutter.is_plain(chunk)}
    for chunk in [chunk for chunk in chunks if chunk not in counts]:
        for word in cutter.words(chunk):
            counts[word] = counts.get(word, 0) + chunks[chunk]
    return counts


def most_frequent(counts: Mapping[str, int], recipe: TokenizerRecipe) -> list[str]:
    """The words to keep: frequent ones first, equal ones in the order of their characters."""
    groups: defaultdict[int, list[str]] = defaultdict(list)
    for word, count in counts.items():
        groups[count].append(word)
    kept = [
        word for count in sorted(groups, reverse=True) if count >= recipe.min_count for word in sorted(groups[count])
    ]
    if not kept:
        raise TokenizerError(
            f"no {recipe.model} occur at least {recipe.min_count} times: lower min_count or give more text."
        )
    return kept if recipe.vocab_size is None else kept[: recipe.vocab_size - len(recipe.specials)]


def _learn(recipe: TokenizerRecipe, words: Mapping[str, int]) -> Any:
    """The model of the `tokenizers` library with a vocabulary learnt from the words and their counts."""
    unknown = recipe.specials[1]
    assert recipe.vocab_size is not None  # the recipe sees to it
    room = recipe.vocab_size - len(recipe.specials)
    if recipe.model != "byte-bpe":  # a byte is never rare
        words = without_rare_characters(words, recipe.coverage)
    if recipe.model == "pieces":
        pieces = learn_pieces(words, room)
        return models.Unigram([(token, 0.0) for token in recipe.specials] + pieces, unk_id=UNK)
    if recipe.model == "wordpiece":
        tokens, _ = learn_merges(words, room, prefix="##", least=recipe.min_count)
        return models.WordPiece(
            _vocabulary([*recipe.specials, *tokens]), unk_token=unknown, max_input_chars_per_word=100
        )
    if recipe.model == "byte-bpe":
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        tokens, merges = learn_merges(words, room, alphabet=alphabet, least=recipe.min_count)
        return models.BPE(_vocabulary([*recipe.specials, *tokens]), merges)
    tokens, merges = learn_merges(words, room, least=recipe.min_count)
    return models.BPE(_vocabulary([*recipe.specials, *tokens]), merges, unk_token=unknown)


def _to_json(model: Any, recipe: TokenizerRecipe) -> str:
    """The `tokenizer.json` around a model."""
    backend = make_backend(model, recipe)
    add_specials(backend, recipe)
    return json.dumps(json.loads(backend.to_str()), ensure_ascii=False, indent=1) + "\n"


def _word_level_json(recipe: TokenizerRecipe, vocabulary: list[str]) -> str:
    """The `tokenizer.json` of a word-level model, as `_to_json` makes it, without the way through the library."""
    specials = list(recipe.specials)
    data = _to_json(models.WordLevel(_vocabulary(specials), unk_token=specials[1]), recipe)
    begin, _, end = data.partition(json_lines(specials))
    return begin + json_lines(vocabulary) + end


def json_lines(vocabulary: list[str]) -> str:
    """The tokens and their ids as they stand in a `tokenizer.json`.

    >>> json_lines(["a", '"'])
    '   "a": 0,\\n   "\\\\"": 1'
    """
    return ",\n".join([f"   {encode_basestring(token)}: {place}" for place, token in enumerate(vocabulary)])


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


def _vocabulary(tokens: list[str]) -> dict[str, int]:
    return {token: place for place, token in enumerate(tokens)}
