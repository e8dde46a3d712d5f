"""Numba kernels of the maximum-entropy model: trigger pairs, normalisers and expectations.

The share of a word is exp of the sum of the weights of its active features, so p(w|h) = share(w) / Z(h), where Z(h) is
the sum of all shares. Every feature multiplies one share by its factor, exp(weight). A history therefore begins from
the shares of the words by themselves, changes those of the words that some active feature is about, corrects Z by what
they changed, and afterwards puts them back: no step takes as long as the vocabulary.

`rows`, `places` and `groups` are the fields of `Rows`, `Places` and `Groups` in `maxent_features`, as plain tuples: a
compiled kernel in the cache must not depend on a class that may be gone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

_TINY = 1e-6  # a normaliser that falls below this part of what it was corrected from is summed afresh


@njit(cache=True, nogil=True)
def follow(ids: Any, latest: Any, following: Any) -> Any:
    """Fills `following` with the place where each id comes again; the end of the stream if it does not."""
    latest[:] = ids.size
    for place in range(ids.size - 1, -1, -1):
        following[place] = latest[ids[place]]
        latest[ids[place]] = place


@njit(cache=True, nogil=True)
def count_reach(ids: Any, following: Any, ends: Any, window: Any, reach: Any) -> Any:
    """Adds to `reach[a]` the number of places from which the word a is within the window.

    An occurrence is within the window of the next places up to the end of its text, or to where the word comes again:
    from there on it is the later occurrence that counts.
    """
    for place in range(ids.size):
        reach[ids[place]] += min(place + window, ends[place] - 1, following[place]) - place


@njit(cache=True, nogil=True)
def count_near(places: Any, ids: Any, lows: Any, allowed: Any, seen: Any, together: Any, met: Any) -> Any:
    """Counts in `together` at how many of the `places` each allowed word is within the window; returns how many `met`.

    `together` must be zero before; `seen` is scratch that no place has been written to.
    """
    count = 0
    for place in places:
        for near in range(place - 1, lows[place] - 1, -1):
            other = ids[near]
            if allowed[other] and seen[other] != place:
                seen[other] = place
                if together[other] == 0:
                    met[count] = other
                    count += 1
                together[other] += 1
    return count


@njit(cache=True, nogil=True)
def information(both: Any, first: Any, second: Any, total: Any) -> Any:
    """Average mutual information (nats) of two events, from how often both, each, and anything happens."""
    value = 0.0
    for here in (False, True):
        one = first if here else total - first
        for there in (False, True):
            two = second if there else total - second
            cell = both if there else first - both
            if not here:
                cell = second - both if there else total - first - second + both
            if cell > 0:
                value += cell * np.log(float(cell) * total / (float(one) * two))
    return value / total


@njit(cache=True, nogil=True)
def inform(met: Any, together: Any, reach: Any, second: Any, total: Any, out: Any) -> Any:
    """Fills `out` with the information that each word met gives on a word that occurs `second` times."""
    for number in range(met.size):
        word = met[number]
        out[number] = information(together[word], reach[word], second, total)


@njit(cache=True, nogil=True)
def _recent(place: Any, lows: Any, upto: Any, events: Any, again: Any, effects: Any, first: Any, acting: Any) -> Any:
    """Writes the features of the triggers that act at `place`, the latest first, each word once; returns how many."""
    count = 0
    low = lows[place]
    number = upto[place] - 1
    while number >= 0 and events[number] >= low:
        if again[number] >= place:  # else the word comes again before this place
            row = effects[number]
            for feature in range(first[row], first[row + 1]):
                acting[count] = feature
                count += 1
        number -= 1
    return count


@njit(cache=True, nogil=True)
def _checked(total: Any, before: Any, shares: Any) -> Any:
    """The normaliser, summed afresh where its corrections have cancelled too many digits."""
    return total if total > _TINY * before else shares.sum()


@njit(cache=True, nogil=True)
def _multiply(row: Any, first: Any, words: Any, factors: Any, shares: Any, total: Any) -> Any:
    """Gives every word of a row its factor; returns the corrected normaliser."""
    for feature in range(first[row], first[row + 1]):
        word = words[feature]
        old = shares[word]
        shares[word] = old * factors[feature]
        total += shares[word] - old
    return total


@njit(cache=True, nogil=True)
def _put_back(row: Any, first: Any, words: Any, plain: Any, shares: Any) -> Any:
    for feature in range(first[row], first[row + 1]):
        shares[words[feature]] = plain[words[feature]]


@njit(cache=True, nogil=True)
def log_places(
    begin: Any, end: Any, ids: Any, places: Any, rows: Any, factors: Any, plain: Any, total: Any, out: Any, whole: Any
) -> Any:
    """Fills `out[begin:end]` with the log-probabilities of the ids there.

    `whole` is filled with those of all words at the last place, or is empty.
    """
    before, pairs, beyond, lows, upto, events, again, effects = places
    first, words = rows
    shares = plain.copy()
    acting = np.empty(first[2 * plain.size], np.int64)
    for place in range(begin, end):
        found = _multiply(before[place], first, words, factors, shares, total)
        found = _multiply(pairs[place], first, words, factors, shares, found)
        found = _multiply(beyond[place], first, words, factors, shares, found)
        count = _recent(place, lows, upto, events, again, effects, first, acting)
        for number in range(count):
            word = words[acting[number]]
            old = shares[word]
            shares[word] = old * factors[acting[number]]
            found += shares[word] - old
        found = _checked(found, total, shares)
        out[place] = np.log(shares[ids[place]]) - np.log(found)
        if place + 1 == end:
            for word in range(whole.size):
                whole[word] = np.log(shares[word]) - np.log(found)
        _put_back(before[place], first, words, plain, shares)
        _put_back(pairs[place], first, words, plain, shares)
        _put_back(beyond[place], first, words, plain, shares)
        for number in range(count):
            shares[words[acting[number]]] = plain[words[acting[number]]]


@njit(cache=True, nogil=True)
def _change(row: Any, first: Any, words: Any, factors: Any, shares: Any, total: Any, old: Any, size: Any) -> Any:
    """As `_multiply`, and pushes the shares before onto the stack `old`; returns its new size too."""
    for feature in range(first[row], first[row + 1]):
        word = words[feature]
        old[size] = shares[word]
        shares[word] = old[size] * factors[feature]
        total += shares[word] - old[size]
        size += 1
    return total, size


@njit(cache=True, nogil=True)
def _note(row: Any, first: Any, words: Any, drift: Any, began: Any, size: Any) -> Any:
    """Pushes the drift of a row's words onto the stack `began`."""
    for feature in range(first[row], first[row + 1]):
        began[size] = drift[words[feature]]
        size += 1


@njit(cache=True, nogil=True)
def _expect(
    row: Any, first: Any, words: Any, shares: Any, weight: Any, drift: Any, began: Any, size: Any, out: Any
) -> Any:
    """Adds what a row's features expect: their words' probabilities at this level and what drifted up from below."""
    for feature in range(first[row], first[row + 1]):
        word = words[feature]
        out[feature] += shares[word] * weight + (drift[word] - began[size])
        size += 1


@njit(cache=True, nogil=True)
def _undo(row: Any, first: Any, words: Any, shares: Any, weight: Any, drift: Any, old: Any, size: Any) -> Any:
    """Pops the shares that a row had before; by how much its words' probabilities differed drifts up a level."""
    for feature in range(first[row + 1] - 1, first[row] - 1, -1):
        word = words[feature]
        size -= 1
        drift[word] += (shares[word] - old[size]) * weight
        shares[word] = old[size]
    return size


@njit(cache=True, nogil=True)
def _with_triggers(
    some: Any,
    places: Any,
    first: Any,
    words: Any,
    factors: Any,
    shares: Any,
    total: Any,
    drift: Any,
    old: Any,
    acting: Any,
    out: Any,
) -> Any:
    """The sums of log Z(h) and of 1 / Z(h) over places with the same two words before; adds what triggers expect."""
    _, _, _, lows, upto, events, again, effects = places
    logs, weight = 0.0, 0.0
    for place in some:
        count = _recent(place, lows, upto, events, again, effects, first, acting)
        found = total
        for number in range(count):
            word = words[acting[number]]
            old[number] = shares[word]
            shares[word] = old[number] * factors[acting[number]]
            found += shares[word] - old[number]
        found = _checked(found, total, shares)
        inverse = 1 / found
        for number in range(count):
            out[acting[number]] += shares[words[acting[number]]] * inverse
        for number in range(count - 1, -1, -1):
            word = words[acting[number]]
            drift[word] += (shares[word] - old[number]) * inverse
            shares[word] = old[number]
        logs += np.log(found)
        weight += inverse
    return logs, weight


@njit(cache=True, nogil=True)
def expectations(
    begin: Any,
    end: Any,
    groups: Any,
    places: Any,
    rows: Any,
    factors: Any,
    plain: Any,
    total: Any,
    single: Any,
    shared: Any,
    own: Any,
) -> Any:
    """Adds how often each feature is expected in the groups `begin` to `end`; returns their sum of log Z(h).

    Histories are nested: by the last word, by the last two, and one by one if there are triggers. The shares of a
    level are worked out once for all below it, where the sum of 1 / Z(h) says what they come to. `drift` is by how
    much words are expected more often than that, because levels below changed their shares.

    `single` is for the words by themselves, `shared` for distance and trigger features, and `own` for n-grams: no
    other group has the same, so that all threads can add to one array.
    """
    order, pair_places, word_pairs, group_rows = groups
    _, both_rows, beyond_rows, _, _, events, _, _ = places
    first, words = rows
    shares, drift = plain.copy(), np.zeros(plain.size)
    outer, inner, inmost = np.empty(plain.size), np.empty(2 * plain.size), np.empty(shared.size)
    outer_began, inner_began = np.empty(plain.size), np.empty(2 * plain.size)
    acting = np.empty(shared.size, np.int64)
    logs, weight = 0.0, 0.0
    for group in range(begin, end):
        last = group_rows[group]
        of_word, _ = _change(last, first, words, factors, shares, total, outer, 0)
        of_word = _checked(of_word, total, shares)
        _note(last, first, words, drift, outer_began, 0)
        word_weight = 0.0
        for pair in range(word_pairs[group], word_pairs[group + 1]):
            some = order[pair_places[pair] : pair_places[pair + 1]]
            both, beyond = both_rows[some[0]], beyond_rows[some[0]]
            of_pair, size = _change(both, first, words, factors, shares, of_word, inner, 0)
            half = size
            of_pair, size = _change(beyond, first, words, factors, shares, of_pair, inner, size)
            of_pair = _checked(of_pair, of_word, shares)
            _note(both, first, words, drift, inner_began, 0)
            _note(beyond, first, words, drift, inner_began, half)
            if events.size:
                pair_logs, pair_weight = _with_triggers(
                    some, places, first, words, factors, shares, of_pair, drift, inmost, acting, shared
                )
            else:
                pair_logs, pair_weight = some.size * np.log(of_pair), some.size / of_pair
            _expect(both, first, words, shares, pair_weight, drift, inner_began, 0, own)
            _expect(beyond, first, words, shares, pair_weight, drift, inner_began, half, shared)
            size = _undo(beyond, first, words, shares, pair_weight, drift, inner, size)
            _undo(both, first, words, shares, pair_weight, drift, inner, size)
            logs += pair_logs
            word_weight += pair_weight
        _expect(last, first, words, shares, word_weight, drift, outer_began, 0, own)
        _undo(last, first, words, shares, word_weight, drift, outer, first[last + 1] - first[last])
        weight += word_weight
    for word in range(plain.size):
        single[word] += plain[word] * weight + drift[word]
    return logs
