"""Explain: which history decided the probability of each token, and what backing off to it cost."""

from __future__ import annotations

from typing import Any

import numpy as np

from firth.counts._query_kernels import BACK_OFF, ROOT, find_child
from firth.counts.ngram import NgramModel
from firth.tokens.language import going_on


def explain_ids(model: NgramModel, words: list[int]) -> list[dict[str, Any]]:
    """For each word of a sentence: its probability, the n-gram that gave it, and the weights on the way there.

    `order` is the length of that n-gram; 0 where a model that never backs off has not seen the history or the word.
    `backoffs` are the weights (natural logarithms) of the longer histories that had not seen the word.
    """
    vocabulary = model.tokenizer.vocabulary
    trie = model.trie
    rows = []
    for place, word in enumerate(words):
        before = going_on(words[:place])
        state, depth = model.state(before)
        logprob = float(model.log_next(words[:place])[word])
        backoffs: list[float] = []
        while state != ROOT and find_child(trie.words, trie.first, state, np.uint32(word)) == ROOT:
            backoffs.append(float(model.bow[state]))
            state = trie.links[state]
            depth = _length(model, state)
        flat = model.mode != BACK_OFF and (bool(backoffs) or depth < min(trie.order - 1, len(before)))
        history = [] if flat or depth == 0 else before[-depth:]
        rows.append(
            {
                "token": vocabulary[word],
                "logprob": logprob,
                "order": 0 if flat else depth + 1,
                "history": [vocabulary[number] for number in history],
                "backoffs": backoffs,
            }
        )
    return rows


def _length(model: NgramModel, state: Any) -> int:
    """The number of words of a node."""
    return 0 if state == ROOT else int(np.searchsorted(model.trie.levels, int(state), side="right"))
