"""Growing a vocabulary with a domain's tokens; the ids of the old tokens stay as they are."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from firth.errors import TokenizerError
from firth.text.corpus import Corpus
from firth.tokens.counting import count_chunks
from firth.tokens.merges import learn_merges, more_merges
from firth.tokens.pieces import learn_pieces
from firth.tokens.tokenizer import Tokenizer
from firth.tokens.train import count_words, most_frequent


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
    words = count_words(recipe, count_chunks(corpus, recipe, tokenizer.dictionary, threads))
    if recipe.model in ("bpe", "byte-bpe"):
        added = _add_merges(content["model"], tokenizer, words, vocab_size)
    elif recipe.model in ("words", "chars"):
        fresh = most_frequent(words, replace(recipe, vocab_size=None))
        added = _append(content["model"]["vocab"], fresh, room)
    elif recipe.model == "wordpiece":
        fresh, _ = learn_merges(words, vocab_size - len(recipe.specials), prefix="##", least=recipe.min_count)
        added = _append(content["model"]["vocab"], fresh, room)
    else:
        added = _append_scored(content["model"]["vocab"], learn_pieces(words, vocab_size), room)
    if added == 0:
        raise TokenizerError("the text holds no token that the vocabulary lacks: there is nothing to add.")
    return Tokenizer(json.dumps(content, ensure_ascii=False, indent=1).encode(), recipe, tokenizer.dictionary)


def _append(vocabulary: dict[str, int], tokens: Iterable[str], room: int) -> int:
    """Gives the next ids to tokens that the vocabulary lacks; returns how many there were."""
    before = len(vocabulary)
    for token in tokens:
        if len(vocabulary) - before == room:
            break
        vocabulary.setdefault(token, len(vocabulary))
    return len(vocabulary) - before


def _append_scored(vocabulary: list[list[Any]], learnt: list[tuple[str, float]], room: int) -> int:
    """Adds pieces with their log-probabilities, shifted to the scale of the pieces known to both."""
    known = dict(map(tuple, vocabulary))
    shared = [(known[piece], score) for piece, score in learnt if piece in known and known[piece] < 0]
    shift = sum(old - new for old, new in shared) / len(shared) if shared else 0.0
    fresh = [[piece, round(min(score + shift, 0.0), 6)] for piece, score in learnt if piece not in known][:room]
    vocabulary.extend(fresh)
    return len(fresh)


def _add_merges(model: dict[str, Any], tokenizer: Tokenizer, words: Mapping[str, int], size: int) -> int:
    """Goes on with the pair encoding where it had stopped."""
    specials = list(tokenizer.recipe.specials)
    before = len(model["vocab"])
    tokens, merges = more_merges(
        words,
        tokenizer.vocabulary[len(specials) :],
        [(left, right) for left, right in model["merges"]],
        size - len(specials),
        least=tokenizer.recipe.min_count,
        new_characters=tokenizer.recipe.model == "bpe",
    )
    model["vocab"] = {token: place for place, token in enumerate([*specials, *tokens])}
    model["merges"] = [list(pair) for pair in merges]
    return len(model["vocab"]) - before
