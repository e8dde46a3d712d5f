"""Numba kernels that look up n-grams, backing off to shorter histories, and find or sample the next word.

Names: state = the node of the longest known history; depth = its length.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from firth.prefetch import prefetch

ROOT = np.uint32(0xFFFFFFFF)
LANES = 16  # the number of sentences scored in parallel
_MAX_REJECTED = 1_000_000  # words in a row: many more than probabilities that sum to one ever need
_START, _OPEN, _FIND, _EMIT, _DONE = range(5)
BACK_OFF, UNIFORM, CHURCH_GALE = range(3)
"""The probability of a word not seen after the history: that of a shorter history; the same for all such words; or one
that depends on the frequencies of history and word (Church and Gale)."""


@njit(cache=True, nogil=True, inline="always")
def _find_between(words: Any, low: Any, high: Any, word: Any) -> Any:
    """The index of the word among sorted children, or -1, by galloping search: frequent words come first."""
    end = high
    step = 8
    high = low + step
    while high < end and words[high] < word:
        low = high + 1
        step *= 4
        high = low + step
    high = min(high, end)
    while low < high:
        middle = (low + high) >> 1
        if words[middle] < word:
            low = middle + 1
        else:
            high = middle
    return low if low < end and words[low] == word else -1


@njit(cache=True, nogil=True, inline="always")
def find_child(words: Any, first: Any, state: Any, word: Any) -> Any:
    """The child of `state` whose last word is `word`, or ROOT."""
    child = _find_between(words, np.int64(first[state]), np.int64(first[np.int64(state) + 1]), word)
    return np.uint32(child) if child >= 0 else ROOT


@njit(cache=True, nogil=True, inline="always")
def value(logp: Any, codebooks: Any, levels: Any, node: Any) -> Any:
    """The log-probability of a node, decoded by the codebook of its level if quantised."""
    if codebooks.size == 0:
        return np.float64(logp[node])
    level = 0
    while np.int64(node) >= levels[level + 1]:
        level += 1
    return codebooks[level, np.int64(logp[node])]


@njit(cache=True, nogil=True)
def unseen(
    bow: Any, mode: Any, uniform: Any, history_scores: Any, word_scores: Any, bucket_logp: Any, state: Any, word: Any
) -> Any:
    """The log-probability of a word not seen after `state` in a model that does not back off to shorter histories."""
    if mode == UNIFORM:
        return bow[state] + uniform[word]
    bucket = np.int64(math.floor(history_scores[state] + word_scores[word]))
    return bow[state] + bucket_logp[min(max(bucket, 0), bucket_logp.size - 1)] + uniform[word]


@njit(cache=True, nogil=True)
def score_backing_off(
    ids: Any, bounds: Any, begin: Any, end: Any, bos: Any, levels: Any, words: Any, first: Any, links: Any, logp: Any,
    bow: Any, codebooks: Any, out: Any,
) -> Any:  # fmt: skip
    """Writes the log-probability of every id of the sentences from `begin` to `end`."""
    contexts = bow.size
    for sentence in range(begin, end):
        state = np.uint32(bos) if contexts else ROOT
        for position in range(bounds[sentence], bounds[sentence + 1]):
            word = ids[position]
            total = 0.0
            node = ROOT
            while state != ROOT:
                node = find_child(words, first, state, word)
                if node != ROOT:
                    break
                total += bow[state]
                state = links[state]
            if node == ROOT:
                node = np.uint32(word)
            out[position] = total + value(logp, codebooks, levels, node)
            state = node
            while state != ROOT and np.int64(state) >= contexts:
                state = links[state]


@njit(cache=True, nogil=True)
def score_interleaved(
    ids: Any, bounds: Any, begin: Any, end: Any, bos: Any, levels: Any, words: Any, first: Any, links: Any, logp: Any,
    bow: Any, codebooks: Any, out: Any,
) -> Any:  # fmt: skip
    """The same as `score_backing_off` for many sentences, `LANES` of them at a time.

    A cache miss takes as long as a hundred instructions. So each lane prefetches what it needs next and yields to the
    others; by its next turn the data has arrived.
    """
    contexts = np.int64(bow.size)
    state, node = np.empty(LANES, dtype=np.int64), np.empty(LANES, dtype=np.int64)
    position, last = np.zeros(LANES, dtype=np.int64), np.zeros(LANES, dtype=np.int64)
    low, high = np.empty(LANES, dtype=np.int64), np.empty(LANES, dtype=np.int64)
    stage, total = np.full(LANES, _START), np.zeros(LANES)
    next_sentence, busy = begin, LANES
    while busy:
        for lane in range(LANES):
            if stage[lane] == _FIND:
                child = _find_between(words, low[lane], high[lane], ids[position[lane]])
                if child >= 0:
                    node[lane] = child
                    _prefetch_node(child, contexts, links, logp, first)
                    stage[lane] = _EMIT
                    continue
                total[lane] += bow[state[lane]]
                after = links[state[lane]]
                if after == ROOT:
                    node[lane] = ids[position[lane]]
                    _prefetch_node(node[lane], contexts, links, logp, first)
                    stage[lane] = _EMIT
                    continue
                state[lane] = after
                prefetch(first, state[lane])
                stage[lane] = _OPEN
            elif stage[lane] == _OPEN:
                at = state[lane]
                low[lane], high[lane] = first[at], first[at + 1]
                prefetch(words, low[lane])
                prefetch(bow, at)
                prefetch(links, at)
                stage[lane] = _FIND
            elif stage[lane] == _EMIT:
                out[position[lane]] = total[lane] + value(logp, codebooks, levels, node[lane])
                total[lane] = 0.0
                position[lane] += 1
                at = node[lane]
                while at >= contexts:
                    at = np.int64(links[at])
                state[lane] = at
                prefetch(first, at)
                stage[lane] = _OPEN if position[lane] < last[lane] else _START
            elif stage[lane] == _START:
                if next_sentence == end:
                    stage[lane] = _DONE
                    busy -= 1
                    continue
                position[lane], last[lane] = bounds[next_sentence], bounds[next_sentence + 1]
                next_sentence += 1
                state[lane] = bos
                stage[lane] = _OPEN


@njit(cache=True, nogil=True, inline="always")
def _prefetch_node(node: Any, contexts: Any, links: Any, logp: Any, first: Any) -> Any:
    prefetch(logp, node)
    if node >= contexts:
        prefetch(links, node)


@njit(cache=True, nogil=True)
def score_uniform(
    ids: Any, bounds: Any, begin: Any, end: Any, bos: Any, levels: Any, words: Any, first: Any, links: Any, logp: Any,
    bow: Any, codebooks: Any, mode: Any, uniform: Any, history_scores: Any, word_scores: Any, bucket_logp: Any,
    out: Any,
) -> Any:  # fmt: skip
    """The same for models without back-off to shorter histories: uniform after unseen histories."""
    contexts = bow.size
    longest = levels.size - 2
    for sentence in range(begin, end):
        state, depth = (np.uint32(bos), 1) if contexts else (ROOT, 0)
        for position in range(bounds[sentence], bounds[sentence + 1]):
            word = ids[position]
            known = depth == min(longest, position - bounds[sentence] + 1)
            at, found = state, ROOT
            while at != ROOT:
                found = find_child(words, first, at, word)
                if found != ROOT:
                    break
                at = links[at]
                depth -= 1
            node = np.uint32(word) if found == ROOT else found
            if not known:
                out[position] = uniform[word]
            elif at == state:
                out[position] = value(logp, codebooks, levels, node)
            else:
                out[position] = unseen(bow, mode, uniform, history_scores, word_scores, bucket_logp, state, word)
            state, depth = node, depth + 1
            while state != ROOT and np.int64(state) >= contexts:
                state = links[state]
                depth -= 1


@njit(cache=True, nogil=True)
def state_after(history: Any, contexts: Any, words: Any, first: Any, links: Any) -> Any:
    """The node of the longest known suffix of the history, and its length."""
    state, depth = ROOT, 0
    for word in history:
        node = ROOT
        while state != ROOT:
            node = find_child(words, first, state, word)
            if node != ROOT:
                break
            state = links[state]
            depth -= 1
        state, depth = (np.uint32(word) if node == ROOT else node), depth + 1
        while state != ROOT and np.int64(state) >= contexts:
            state = links[state]
            depth -= 1
    return state, depth


@njit(cache=True, nogil=True)
def next_backing_off(
    state: Any, levels: Any, words: Any, first: Any, links: Any, logp: Any, bow: Any, codebooks: Any, out: Any
) -> Any:
    """Writes the log-probability of every word after `state`: unigrams first, overwritten by longer n-grams."""
    chain = np.empty(levels.size, dtype=np.uint32)
    weights = np.zeros(levels.size + 1)
    length = 0
    while state != ROOT:
        chain[length] = state
        weights[length + 1] = weights[length] + bow[state]
        state = links[state]
        length += 1
    for word in range(out.size):
        out[word] = weights[length] + value(logp, codebooks, levels, word)
    for position in range(length - 1, -1, -1):
        at = np.int64(chain[position])
        for child in range(first[at], first[at + 1]):
            out[words[child]] = weights[position] + value(logp, codebooks, levels, child)


@njit(cache=True, nogil=True)
def next_uniform(
    state: Any, known: Any, levels: Any, words: Any, first: Any, logp: Any, bow: Any, codebooks: Any, mode: Any,
    uniform: Any, history_scores: Any, word_scores: Any, bucket_logp: Any, out: Any,
) -> Any:  # fmt: skip
    """The same for models without back-off to shorter histories."""
    for word in range(out.size):
        if not known:
            out[word] = uniform[word]
        elif state == ROOT:
            out[word] = value(logp, codebooks, levels, word)
        else:
            out[word] = unseen(bow, mode, uniform, history_scores, word_scores, bucket_logp, state, word)
    if known and state != ROOT:
        for child in range(first[np.int64(state)], first[np.int64(state) + 1]):
            out[words[child]] = value(logp, codebooks, levels, child)


@njit(cache=True, nogil=True, inline="always")
def _insert(best: Any, scores: Any, found: Any, word: Any, score: Any) -> Any:
    """Inserts the word into the sorted `best` if its score is high enough; ties are broken by the smaller id."""
    if found == best.size and (score < scores[found - 1] or (score == scores[found - 1] and word > best[found - 1])):
        return found
    index = found if found < best.size else found - 1
    while index > 0 and (scores[index - 1] < score or (scores[index - 1] == score and best[index - 1] > word)):
        scores[index], best[index] = scores[index - 1], best[index - 1]
        index -= 1
    scores[index], best[index] = score, word
    return min(found + 1, best.size)


@njit(cache=True, nogil=True)
def top_backing_off(
    state: Any, levels: Any, words: Any, first: Any, links: Any, logp: Any, bow: Any, codebooks: Any, frequent: Any,
    seen: Any, stamp: Any, best: Any, scores: Any,
) -> Any:  # fmt: skip
    """Writes the likeliest words after `state` to `best`, longest history first; returns their number.

    `frequent` holds all words, likeliest unigram first, so that the search can stop early. `seen[w] == stamp` for words
    already scored after a longer history.
    """
    found = 0
    total = 0.0
    while state != ROOT:
        at = np.int64(state)
        for child in range(first[at], first[at + 1]):
            word = words[child]
            if seen[word] != stamp:
                seen[word] = stamp
                found = _insert(best, scores, found, word, total + value(logp, codebooks, levels, child))
        total += bow[at]
        state = links[at]
    for word in frequent:
        score = total + value(logp, codebooks, levels, word)
        if score == -np.inf or (found == best.size and score < scores[found - 1]):
            break
        if seen[word] != stamp:
            found = _insert(best, scores, found, word, score)
    return found


@njit(cache=True, nogil=True, inline="always")
def _uniform(rng_state: Any) -> Any:
    """The next number in [0, 1) of the generator with state `rng_state[0]` (splitmix64, Steele et al. 2014)."""
    rng_state[0] += np.uint64(0x9E3779B97F4A7C15)
    mixed = rng_state[0]
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.float64((mixed ^ (mixed >> np.uint64(31))) >> np.uint64(11)) / 9007199254740992.0


@njit(cache=True, nogil=True)
def _sample_child(state: Any, levels: Any, first: Any, logp: Any, bow: Any, codebooks: Any, target: Any) -> Any:
    """The child of `state` at which the cumulative probability exceeds `target`; ROOT if it never does."""
    total, last = 0.0, ROOT
    for child in range(first[np.int64(state)], first[np.int64(state) + 1]):
        p = math.exp(value(logp, codebooks, levels, child))
        total += p
        if p > 0.0:
            last = np.uint32(child)
        if target < total:
            return last
    # Without probability mass for other words, a sum just below one is a rounding error.
    return last if bow[state] == -np.inf or total > 1.0 - 1e-12 else ROOT


@njit(cache=True, nogil=True)
def sample_sentence(
    state: Any, eos: Any, levels: Any, words: Any, first: Any, links: Any, logp: Any, bow: Any, codebooks: Any,
    sums: Any, rng_state: Any, out: Any,
) -> Any:  # fmt: skip
    """Samples words into `out` until the end of the sentence; returns their number.

    A word seen after the longest history is sampled with its probability; otherwise the word is sampled after the
    shorter history, rejecting words seen after the longer one. `sums` are the cumulative unigram probabilities.
    Returns -1 if words are rejected for ever, because the probabilities do not sum to one.
    """
    chain = np.empty(levels.size, dtype=np.uint32)
    for size in range(out.size):
        depth, rejected = 0, 0
        while True:
            target = _uniform(rng_state)
            if state == ROOT:
                node = np.uint32(min(np.searchsorted(sums, target * sums[-1], side="right"), sums.size - 1))
                word = node
            else:
                node = _sample_child(state, levels, first, logp, bow, codebooks, target)
                if node == ROOT:
                    chain[depth] = state
                    depth += 1
                    state = links[state]
                    continue
                word = words[node]
            is_rejected = False
            for index in range(depth - 1, -1, -1):
                if find_child(words, first, chain[index], word) != ROOT:
                    if index + 1 < depth:
                        state = chain[index + 1]
                    depth = index + 1
                    is_rejected = True
                    break
            if not is_rejected:
                break
            rejected += 1
            if rejected > _MAX_REJECTED:
                return -1
        if word == eos:
            return size
        out[size] = word
        state = node
        while state != ROOT and np.int64(state) >= bow.size:
            state = links[state]
    return out.size
