"""Numba kernels of the maximum-entropy model: trigger pairs, normalisers and expectations.

The score of a word is exp of the sum of the weights of its active features, so p(w|h) = score(w) / Z(h), where Z(h) is
the sum of all scores. Every feature multiplies one score by its factor, exp(weight). For each history the kernels start
from the unigram scores, multiply those with an active feature, update Z by the differences, and afterwards restore the
scores: no step iterates over the vocabulary.

`index`, `active` and `groups` are `FeatureIndex`, `ActiveFeatures` and `HistoryGroups` of `maxent_features` as plain
tuples: a compiled kernel in the cache must not depend on a class that may be gone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

_TINY = 1e-6  # a normaliser below this fraction of its value before the update is summed again


@njit(cache=True, nogil=True)
def next_occurrences(ids: Any, latest: Any, following: Any) -> Any:
    """Fills `following` with the next position of each id; the end of the stream if there is none."""
    latest[:] = ids.size
    for position in range(ids.size - 1, -1, -1):
        following[position] = latest[ids[position]]
        latest[ids[position]] = position


@njit(cache=True, nogil=True)
def count_reach(ids: Any, following: Any, ends: Any, window: Any, reach: Any) -> Any:
    """Adds to `reach[a]` the number of positions in whose window, which ends with the document, the word a occurs."""
    for position in range(ids.size):
        reach[ids[position]] += min(position + window, ends[position] - 1, following[position]) - position


@njit(cache=True, nogil=True)
def count_cooccurrences(
    positions: Any, ids: Any, window_start: Any, allowed: Any, seen: Any, together: Any, met: Any
) -> Any:
    """Adds to `together` the positions with each allowed word in the window; returns the number of words in `met`."""
    count = 0
    for position in positions:
        for near in range(position - 1, window_start[position] - 1, -1):
            other = ids[near]
            if allowed[other] and seen[other] != position:
                seen[other] = position
                if together[other] == 0:
                    met[count] = other
                    count += 1
                together[other] += 1
    return count


@njit(cache=True, nogil=True)
def mutual_information(both: Any, first: Any, second: Any, total: Any) -> Any:
    """Average mutual information (nats) of two events, from their joint, single and total counts."""
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
def mutual_informations(met: Any, together: Any, reach: Any, second: Any, total: Any, out: Any) -> Any:
    """Fills `out` with the mutual information of each word in `met` and a word with `second` occurrences."""
    for number in range(met.size):
        word = met[number]
        out[number] = mutual_information(together[word], reach[word], second, total)


@njit(cache=True, nogil=True)
def _triggered(
    position: Any, window_start: Any, event_count: Any, events: Any, next_event: Any, event_context: Any, first: Any,
    found: Any,
) -> Any:  # fmt: skip
    """Writes the trigger features active at a position to `found`, latest trigger first; returns their number."""
    count = 0
    low = window_start[position]
    number = event_count[position] - 1
    while number >= 0 and events[number] >= low:
        if next_event[number] >= position:  # otherwise the word occurs again before this position
            context = event_context[number]
            for feature in range(first[context], first[context + 1]):
                found[count] = feature
                count += 1
        number -= 1
    return count


@njit(cache=True, nogil=True)
def _resum_if_cancelled(total: Any, before: Any, scores: Any) -> Any:
    """The normaliser, summed again where its updates have cancelled too many digits."""
    return total if total > _TINY * before else scores.sum()


@njit(cache=True, nogil=True)
def _multiply(context: Any, first: Any, words: Any, factors: Any, scores: Any, total: Any) -> Any:
    """Multiplies the scores of a context's features by their factors; returns the updated normaliser."""
    for feature in range(first[context], first[context + 1]):
        word = words[feature]
        old = scores[word]
        scores[word] = old * factors[feature]
        total += scores[word] - old
    return total


@njit(cache=True, nogil=True)
def _restore(context: Any, first: Any, words: Any, unigrams: Any, scores: Any) -> Any:
    for feature in range(first[context], first[context + 1]):
        scores[words[feature]] = unigrams[words[feature]]


@njit(cache=True, nogil=True)
def score_positions(
    begin: Any, end: Any, ids: Any, active: Any, index: Any, factors: Any, unigrams: Any, total: Any, out: Any,
    distribution: Any,
) -> Any:  # fmt: skip
    """Fills `out[begin:end]`; and `distribution`, unless it is empty, with all words at the last position."""
    before, pairs, beyond, window_start, event_count, events, next_event, event_context = active
    first, words = index
    scores = unigrams.copy()
    triggered = np.empty(first[2 * unigrams.size], np.int64)
    for position in range(begin, end):
        found = _multiply(before[position], first, words, factors, scores, total)
        found = _multiply(pairs[position], first, words, factors, scores, found)
        found = _multiply(beyond[position], first, words, factors, scores, found)
        count = _triggered(position, window_start, event_count, events, next_event, event_context, first, triggered)
        for number in range(count):
            word = words[triggered[number]]
            old = scores[word]
            scores[word] = old * factors[triggered[number]]
            found += scores[word] - old
        found = _resum_if_cancelled(found, total, scores)
        out[position] = np.log(scores[ids[position]]) - np.log(found)
        if position + 1 == end:
            for word in range(distribution.size):
                distribution[word] = np.log(scores[word]) - np.log(found)
        _restore(before[position], first, words, unigrams, scores)
        _restore(pairs[position], first, words, unigrams, scores)
        _restore(beyond[position], first, words, unigrams, scores)
        for number in range(count):
            scores[words[triggered[number]]] = unigrams[words[triggered[number]]]


@njit(cache=True, nogil=True)
def _multiply_and_push(
    context: Any, first: Any, words: Any, factors: Any, scores: Any, total: Any, drift: Any, old: Any, old_drift: Any,
    size: Any,
) -> Any:  # fmt: skip
    """As `_multiply`, and pushes the previous scores and the drift onto stacks; also returns their new size."""
    for feature in range(first[context], first[context + 1]):
        word = words[feature]
        old[size], old_drift[size] = scores[word], drift[word]
        scores[word] = old[size] * factors[feature]
        total += scores[word] - old[size]
        size += 1
    return total, size


@njit(cache=True, nogil=True)
def _add_expected(
    context: Any, first: Any, words: Any, scores: Any, weight: Any, drift: Any, old_drift: Any, size: Any, out: Any
) -> Any:
    """Adds the expected counts of a context's features: the probabilities at this level and the drift from below."""
    for feature in range(first[context], first[context + 1]):
        word = words[feature]
        out[feature] += scores[word] * weight + (drift[word] - old_drift[size])
        size += 1


@njit(cache=True, nogil=True)
def _pop_scores(context: Any, first: Any, words: Any, scores: Any, weight: Any, drift: Any, old: Any, size: Any) -> Any:
    """Pops the previous scores of a context's words; the difference of their probabilities is added to the drift."""
    for feature in range(first[context + 1] - 1, first[context] - 1, -1):
        word = words[feature]
        size -= 1
        drift[word] += (scores[word] - old[size]) * weight
        scores[word] = old[size]
    return size


@njit(cache=True, nogil=True)
def _with_triggers(
    some: Any, active: Any, first: Any, words: Any, factors: Any, scores: Any, total: Any, drift: Any, old: Any,
    triggered: Any, out: Any,
) -> Any:  # fmt: skip
    """The sums of log Z(h) and 1 / Z(h) over positions with the same two words before; adds the expected triggers."""
    _, _, _, window_start, event_count, events, next_event, event_context = active
    logs, weight = 0.0, 0.0
    for position in some:
        count = _triggered(position, window_start, event_count, events, next_event, event_context, first, triggered)
        found = total
        for number in range(count):
            word = words[triggered[number]]
            old[number] = scores[word]
            scores[word] = old[number] * factors[triggered[number]]
            found += scores[word] - old[number]
        found = _resum_if_cancelled(found, total, scores)
        inverse = 1 / found
        for number in range(count):
            out[triggered[number]] += scores[words[triggered[number]]] * inverse
        for number in range(count - 1, -1, -1):
            word = words[triggered[number]]
            drift[word] += (scores[word] - old[number]) * inverse
            scores[word] = old[number]
        logs += np.log(found)
        weight += inverse
    return logs, weight


@njit(cache=True, nogil=True)
def expectations(
    begin: Any, end: Any, groups: Any, active: Any, index: Any, factors: Any, unigrams: Any, total: Any, single: Any,
    shared: Any, own: Any,
) -> Any:  # fmt: skip
    """Adds the expected count of each feature in the groups `begin` to `end`; returns their sum of log Z(h).

    Histories are nested: by the last word, by the last two words, and one by one if there are triggers. The scores of a
    level are computed once for all levels below it and multiplied by the sum of their 1 / Z(h). `drift` is the
    difference in the expected count of a word due to changed scores in the levels below.

    `single` is for unigrams, `shared` for distance and trigger features, and `own` for n-grams, which belong to one
    group only, so that all threads can add to one array.
    """
    order, pair_bounds, word_bounds, group_contexts = groups
    _, pair_contexts, beyond_contexts, _, _, events, _, _ = active
    first, words = index
    scores, drift = unigrams.copy(), np.zeros(unigrams.size)
    outer, inner, inmost = np.empty(unigrams.size), np.empty(2 * unigrams.size), np.empty(shared.size)
    outer_drift, inner_drift = np.empty(unigrams.size), np.empty(2 * unigrams.size)
    triggered = np.empty(shared.size, np.int64)
    outer_old, inner_old = (drift, outer, outer_drift), (drift, inner, inner_drift)
    logs, weight = 0.0, 0.0
    for group in range(begin, end):
        last = group_contexts[group]
        word_total, _ = _multiply_and_push(last, first, words, factors, scores, total, *outer_old, 0)
        word_total = _resum_if_cancelled(word_total, total, scores)
        word_weight = 0.0
        for pair in range(word_bounds[group], word_bounds[group + 1]):
            some = order[pair_bounds[pair] : pair_bounds[pair + 1]]
            both, beyond = pair_contexts[some[0]], beyond_contexts[some[0]]
            pair_total, half = _multiply_and_push(both, first, words, factors, scores, word_total, *inner_old, 0)
            pair_total, size = _multiply_and_push(beyond, first, words, factors, scores, pair_total, *inner_old, half)
            pair_total = _resum_if_cancelled(pair_total, word_total, scores)
            if events.size:
                pair_logs, pair_weight = _with_triggers(
                    some, active, first, words, factors, scores, pair_total, drift, inmost, triggered, shared
                )
            else:
                pair_logs, pair_weight = some.size * np.log(pair_total), some.size / pair_total
            _add_expected(both, first, words, scores, pair_weight, drift, inner_drift, 0, own)
            _add_expected(beyond, first, words, scores, pair_weight, drift, inner_drift, half, shared)
            size = _pop_scores(beyond, first, words, scores, pair_weight, drift, inner, size)
            _pop_scores(both, first, words, scores, pair_weight, drift, inner, size)
            logs += pair_logs
            word_weight += pair_weight
        _add_expected(last, first, words, scores, word_weight, drift, outer_drift, 0, own)
        _pop_scores(last, first, words, scores, word_weight, drift, outer, first[last + 1] - first[last])
        weight += word_weight
    for word in range(unigrams.size):
        single[word] += unigrams[word] * weight + drift[word]
    return logs
