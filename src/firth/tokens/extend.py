"""Growing a vocabulary with a domain's tokens; the ids of the old tokens stay as they are."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

from firth.errors import TokenizerError
from firth.text.corpus import Corpus
from firth.tokens.counting import count_chunks
from firth.tokens.tokenizer import Tokenizer
from firth.tokens.train import count_tokens, most_frequent, train_tokenizer


def extend_tokenizer(tokenizer: Tokenizer, corpus: Corpus, vocab_size: int, threads: int | None = None) -> Tokenizer:
    """The tokenizer with new tokens from `corpus`, up to `vocab_size` in all; old ids are unchanged.

    Words and characters are added by frequency. WordPiece takes the pieces of a vocabulary trained on the domain. Pair
    encodings go on merging where they had stopped. Pieces of the unigram model come with log-probabilities, shifted so
    that the pieces both models know agree on average.
    """
    room = vocab_size - len(tokenizer)
    if room <= 0:
        raise TokenizerError(
            f"the vocabulary has {len(tokenizer)} tokens already: ask for more than that with --set vocab_size=N."
        )
    content = json.loads(tokenizer.backend.to_str())
    recipe = replace(tokenizer.recipe, vocab_size=vocab_size)
    if recipe.model in ("bpe", "byte-bpe"):
        added = _add_merges(content["model"], tokenizer, _count_pretokens(tokenizer, corpus, threads), room)
    elif recipe.model in ("words", "chars"):
        fresh = most_frequent(_count_pretokens(tokenizer, corpus, threads), replace(recipe, vocab_size=None))
        added = _append(content["model"]["vocab"], fresh, room)
    else:
        learnt = train_tokenizer(recipe, corpus, threads)
        model = json.loads(learnt.backend.to_str())["model"]
        if recipe.model == "wordpiece":
            added = _append(content["model"]["vocab"], sorted(model["vocab"], key=model["vocab"].get), room)
        else:
            added = _append_scored(content["model"]["vocab"], model["vocab"], room)
    if added == 0:
        raise TokenizerError("the text holds no token that the vocabulary lacks: there is nothing to add.")
    return Tokenizer(json.dumps(content, ensure_ascii=False, indent=1).encode(), recipe, tokenizer.dictionary)


def _count_pretokens(tokenizer: Tokenizer, corpus: Corpus, threads: int | None) -> Counter[str]:
    chunks = count_chunks(corpus, tokenizer.recipe, tokenizer.dictionary, threads)
    return count_tokens(tokenizer.backend, chunks)


def _append(vocabulary: dict[str, int], tokens: Iterable[str], room: int) -> int:
    """Gives the next ids to tokens that the vocabulary lacks; returns how many there were."""
    before = len(vocabulary)
    for token in tokens:
        if len(vocabulary) - before == room:
            break
        vocabulary.setdefault(token, len(vocabulary))
    return len(vocabulary) - before


def _append_scored(vocabulary: list[list[Any]], learnt: list[list[Any]], room: int) -> int:
    """Adds pieces with their log-probabilities, shifted to the scale of the pieces known to both."""
    known = dict(map(tuple, vocabulary))
    shared = [(known[piece], score) for piece, score in learnt if piece in known and known[piece] < 0]
    shift = sum(old - new for old, new in shared) / len(shared) if shared else 0.0
    fresh = [[piece, min(score + shift, 0.0)] for piece, score in learnt if piece not in known][:room]
    vocabulary.extend(fresh)
    return len(fresh)


def _add_merges(model: dict[str, Any], tokenizer: Tokenizer, words: Mapping[str, int], room: int) -> int:
    """Goes on with the pair encoding: joins the most frequent pair of tokens again and again."""
    before = len(model["vocab"])
    if tokenizer.recipe.model == "bpe":
        characters = Counter[str]()
        for word, count in words.items():
            for character in word:
                characters[character] += count
        fresh = [c for c, _ in sorted(characters.items(), key=lambda item: (-item[1], item[0]))]
        _append(model["vocab"], fresh, room)
    pieces = {word: _pieces(tokenizer, word, model["vocab"]) for word in words}
    for left, right in _merges(pieces, words, tokenizer.recipe.min_count):
        if len(model["vocab"]) - before >= room:
            break
        model["merges"].append([left, right])
        model["vocab"].setdefault(left + right, len(model["vocab"]))
    return len(model["vocab"]) - before


def _pieces(tokenizer: Tokenizer, word: str, vocabulary: Mapping[str, int]) -> list[str]:
    """The tokens of a word under the old merges; characters that were unknown till now stand alone."""
    pieces: list[str] = []
    unknown = tokenizer.recipe.specials[1]
    for token in tokenizer.backend.model.tokenize(word):
        begin, end = token.offsets
        pieces.append(word.encode()[begin:end].decode() if token.value == unknown else token.value)
    return [piece for piece in pieces if piece in vocabulary]


def _merges(pieces: dict[str, list[str]], counts: Mapping[str, int], least: int) -> Iterable[tuple[str, str]]:
    """The most frequent pair, then the most frequent one after joining it, and so on; ties in the order of text."""
    totals: Counter[tuple[str, str]] = Counter()
    where: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for word, parts in pieces.items():
        for pair in pairwise(parts):
            totals[pair] += counts[word]
            where[pair].add(word)
    while totals:
        best = min(totals, key=lambda pair: (-totals[pair], pair))
        if totals[best] < max(least, 1):
            return
        yield best
        for word in sorted(where.pop(best)):
            parts = pieces[word]
            for pair in pairwise(parts):
                totals[pair] -= counts[word]
            parts[:] = _join(parts, best)
            for pair in pairwise(parts):
                totals[pair] += counts[word]
                where[pair].add(word)
        totals = +totals


def _join(parts: list[str], pair: tuple[str, str]) -> list[str]:
    joined: list[str] = []
    for part in parts:
        if joined and (joined[-1], part) == pair:
            joined[-1] += part
        else:
            joined.append(part)
    return joined
