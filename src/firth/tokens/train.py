"""Training a tokenizer on a corpus."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import models, pre_tokenizers, trainers

from firth.errors import TokenizerError
from firth.progress import progress
from firth.text.corpus import Corpus
from firth.text.segment import make_segmenter
from firth.tokens.counting import count_chunks
from firth.tokens.pipeline import add_specials, make_backend
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.tokenizer import Tokenizer

_SAMPLE = 2000  # sentences that decide whether words end at punctuation


def train_tokenizer(recipe: TokenizerRecipe, corpus: Corpus, threads: int | None = None) -> Tokenizer:
    """A tokenizer whose vocabulary comes from `corpus`."""
    dictionary = Path(recipe.dictionary) if recipe.dictionary else None
    make_segmenter(recipe.segmenter, dictionary)  # a wrong dictionary is told before any work
    if recipe.model == "words" and recipe.split == "auto":
        recipe = replace(recipe, split="space" if words_stand_apart(corpus.sentences()) else "punctuation")
    if recipe.model in ("words", "chars"):
        backend = _train_by_counting(recipe, count_chunks(corpus, recipe, dictionary, threads))
    else:
        backend = _train_pieces(recipe, corpus)
    add_specials(backend, recipe)
    data = json.dumps(json.loads(backend.to_str()), ensure_ascii=False, indent=1) + "\n"
    return Tokenizer(data.encode(), recipe, dictionary)


_GLUED = re.compile(r"\w[,;:!?](?:\s|$)")


def words_stand_apart(sentences: Iterable[str]) -> bool:
    """Whether punctuation marks are separated from words already, as in the Penn Treebank.

    >>> words_stand_apart(["no , it was n't black monday", "but while the new york stock exchange did n't fall"])
    True
    >>> words_stand_apart(["No, it wasn't Black Monday.", "But the exchange, alas, fell."])
    False
    """
    glued = words = 0
    for _, sentence in zip(range(_SAMPLE), sentences, strict=False):
        glued += len(_GLUED.findall(sentence))
        words += sentence.count(" ") + 1
    return glued <= 0.005 * words


def _train_by_counting(recipe: TokenizerRecipe, chunks: Mapping[str, int]) -> tokenizers.Tokenizer:
    """Words or characters by frequency, then alphabetically."""
    blank = make_backend(models.WordLevel({}, unk_token=recipe.specials[1]), recipe)
    counts = count_tokens(blank, chunks)
    return make_backend(_word_level(recipe, most_frequent(counts, recipe)), recipe)


def count_tokens(blank: tokenizers.Tokenizer, chunks: Mapping[str, int]) -> Counter[str]:
    """How often each word or character occurs, from the counts of chunks."""
    counts: Counter[str] = Counter()
    for chunk, count in chunks.items():
        for token, _ in blank.pre_tokenizer.pre_tokenize_str(blank.normalizer.normalize_str(chunk)):
            counts[token] += count
    return counts


def most_frequent(counts: Mapping[str, int], recipe: TokenizerRecipe) -> list[str]:
    """The tokens to keep: frequent ones first, equal ones in the order of their characters."""
    kept = [token for token, count in counts.items() if count >= recipe.min_count and token not in recipe.specials]
    if not kept:
        raise TokenizerError(
            f"no {recipe.model} occur at least {recipe.min_count} times: lower min_count or give more text."
        )
    kept.sort(key=lambda token: (-counts[token], token))
    return kept if recipe.vocab_size is None else kept[: recipe.vocab_size - len(recipe.specials)]


def _word_level(recipe: TokenizerRecipe, tokens: list[str]) -> Any:
    vocabulary = {token: place for place, token in enumerate([*recipe.specials, *tokens])}
    return models.WordLevel(vocabulary, unk_token=recipe.specials[1])


def _train_pieces(recipe: TokenizerRecipe, corpus: Corpus) -> tokenizers.Tokenizer:
    """Pieces by the trainers of the `tokenizers` library."""
    model, trainer = _piece_trainer(recipe)
    backend = make_backend(model, recipe)
    with progress(f"training {recipe.model} on sentences", unit="sentences") as advance:
        backend.train_from_iterator(_told(corpus, advance), trainer=trainer)
    if backend.get_vocab_size() <= len(recipe.specials):
        raise TokenizerError("the text holds nothing that could become a token: give more text.")
    return backend


def _piece_trainer(recipe: TokenizerRecipe) -> tuple[Any, Any]:
    unknown = recipe.specials[1]
    common: dict[str, Any] = {"special_tokens": list(recipe.specials), "show_progress": False, "vocab_size": recipe.vocab_size}
    match recipe.model:
        case "wordpiece":
            model = models.WordPiece(unk_token=unknown, max_input_chars_per_word=100)
            return model, trainers.WordPieceTrainer(min_frequency=recipe.min_count, **common)
        case "bpe":
            return models.BPE(unk_token=unknown), trainers.BpeTrainer(min_frequency=recipe.min_count, **common)
        case "byte-bpe":
            alphabet = pre_tokenizers.ByteLevel.alphabet()
            return models.BPE(), trainers.BpeTrainer(
                min_frequency=recipe.min_count, initial_alphabet=alphabet, **common
            )
        case _:
            return models.Unigram(), trainers.UnigramTrainer(unk_token=unknown, **common)


def _told(corpus: Corpus, advance: Any) -> Iterator[list[str]]:
    for document in corpus:
        advance(len(document.sentences))
        yield list(document.sentences)
