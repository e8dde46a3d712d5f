"""Numba kernels of adaptive models: EM for mixture weights, the cache, and weights updated word by word.

A node of the cache is an n-gram of the text, numbered by first occurrence: 0 is the empty one, `1 + w` the word w, then
the bigrams and trigrams. The history of an entry is a node as well: `ends[g]` is the weight of the entries with n-gram
g, and `follows[g]` that of the entries with history g.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

_LARGE = math.exp(100.0)  # the weight of a new entry at which all are rescaled


@njit(cache=True, nogil=True)
def em_step(parts: Any, weights: Any, expected: Any) -> Any:
    """Fills `expected` with the tokens of each component; returns the log-likelihood and the impossible tokens."""
    expected[:] = 0.0
    total = 0.0
    left_out = 0
    for token in range(parts.shape[1]):
        mixed = 0.0
        for part in range(parts.shape[0]):
            mixed += weights[part] * parts[part, token]
        if mixed == 0.0:
            left_out += 1
            continue
        for part in range(parts.shape[0]):
            expected[part] += weights[part] * parts[part, token] / mixed
        total += math.log(mixed)
    return total, left_out


@njit(cache=True, nogil=True)
def number_pairs(left: Any, right: Any, first: Any, slots: Any, keys: Any, out: Any) -> Any:
    """Numbers the pairs by first occurrence from `first` on, by open addressing; returns the next free number."""
    mask = np.uint64(slots.size - 1)
    used = 0
    for position in range(left.size):
        key = (np.uint64(left[position]) << np.uint64(32)) | np.uint64(right[position])
        slot = key * np.uint64(0x9E3779B97F4A7C15)
        slot = (slot ^ (slot >> np.uint64(32))) & mask
        while slots[slot] != 0 and keys[slots[slot] - 1] != key:
            slot = (slot + np.uint64(1)) & mask
        if slots[slot] == 0:
            keys[used] = key
            used += 1
            slots[slot] = used
        out[position] = first + slots[slot] - 1
    return first + used


@njit(cache=True, nogil=True)
def _rescale(
    oldest: Any, newest: Any, positions: Any, entry_weights: Any, nodes: Any, histories: Any, ends: Any, follows: Any,
    factor: Any,
) -> Any:  # fmt: skip
    """Multiplies the weights of all entries by `factor` and recomputes the sums."""
    size = positions.size
    for order in range(nodes.shape[0]):
        for entry in range(oldest, newest):
            position = positions[entry % size]
            ends[nodes[order, position]] = 0.0
            follows[histories[order, position]] = 0.0
    for entry in range(oldest, newest):
        slot = entry % size
        entry_weights[slot] *= factor
        for order in range(nodes.shape[0]):
            ends[nodes[order, positions[slot]]] += entry_weights[slot]
            follows[histories[order, positions[slot]]] += entry_weights[slot]


@njit(cache=True, nogil=True)
def _remove_entry(
    slot: Any, positions: Any, entry_weights: Any, nodes: Any, histories: Any, ends: Any, follows: Any, times: Any
) -> Any:
    """Removes one entry from the cache; sums without entries become exactly 0."""
    position = positions[slot]
    for order in range(nodes.shape[0]):
        node, history = nodes[order, position], histories[order, position]
        ends[node] -= entry_weights[slot]
        follows[history] -= entry_weights[slot]
        times[0, node] -= 1
        times[1, history] -= 1
        if times[0, node] == 0:
            ends[node] = 0.0
        if times[1, history] == 0:
            follows[history] = 0.0


@njit(cache=True, nogil=True)
def match_cache(
    nodes: Any, histories: Any, cacheable: Any, resets: Any, size: Any, decay: Any, count: Any, frequencies: Any,
    entries: Any,
) -> Any:  # fmt: skip
    """Looks up every token in a cache of the last `size` entries.

    `nodes[n, t]` is the n-gram that ends at token t, `histories[n, t]` its history; `count` is the number of nodes.
    `cacheable` is true for tokens that enter the cache, `resets` for tokens before which it is emptied. Writes
    `frequencies[n, t]`, the relative frequency of the token among the entries with its history, and `entries[n, t]`,
    their number. An entry weighs exp(decay) times the one before it: the weight of new entries grows.
    """
    orders = nodes.shape[0]
    positions = np.zeros(size, dtype=np.int64)
    entry_weights = np.zeros(size)
    ends, follows = np.zeros(count), np.zeros(count)
    times = np.zeros((2, count), dtype=np.int32)
    growth = math.exp(decay)
    oldest, newest, weight = 0, 0, 1.0
    for token in range(nodes.shape[1]):
        if resets[token]:
            for entry in range(oldest, newest):
                _remove_entry(entry % size, positions, entry_weights, nodes, histories, ends, follows, times)
            oldest, newest, weight = 0, 0, 1.0
        for order in range(orders):
            history = histories[order, token]
            entries[order, token] = times[1, history]
            frequencies[order, token] = ends[nodes[order, token]] / follows[history] if times[1, history] else 0.0
        if not cacheable[token]:
            continue
        if newest - oldest == size:
            _remove_entry(oldest % size, positions, entry_weights, nodes, histories, ends, follows, times)
            oldest += 1
        if weight > _LARGE:
            _rescale(oldest, newest, positions, entry_weights, nodes, histories, ends, follows, 1.0 / weight)
            weight = 1.0
        positions[newest % size] = token
        entry_weights[newest % size] = weight
        newest += 1
        for order in range(orders):
            ends[nodes[order, token]] += weight
            follows[histories[order, token]] += weight
            times[0, nodes[order, token]] += 1
            times[1, histories[order, token]] += 1
        weight *= growth


@njit(cache=True, nogil=True)
def mix_cache(logs: Any, frequencies: Any, entries: Any, weights: Any, out: Any) -> Any:
    """The log-probabilities of base and cache interpolated; those of the base where the cache is empty.

    `weights[n, b, f]` are the weights of (base, order 1, order 2, ...) for tokens whose longest history in the cache
    has n words, where b is the bucket of the number of its entries and f that of the size of the cache.
    """
    buckets = weights.shape[1]
    for token in range(logs.size):
        known = 0
        while known < entries.shape[0] and entries[known, token] > 0:
            known += 1
        if known == 0:
            out[token] = logs[token]
            continue
        row = weights[known - 1, bucket_of(entries[known - 1, token], buckets), bucket_of(entries[0, token], buckets)]
        mixed = row[0] * math.exp(logs[token])
        for order in range(known):
            mixed += row[order + 1] * frequencies[order, token]
        out[token] = math.log(mixed) if mixed > 0 else -np.inf


@njit(cache=True, nogil=True)
def bucket_of(times: Any, buckets: Any) -> Any:
    """The integer part of log2 of a count above 0, at most `buckets - 1`."""
    bucket = 0
    while times > 1 and bucket < buckets - 1:
        times >>= 1
        bucket += 1
    return bucket


@njit(cache=True, nogil=True)
def mix_adaptively(parts: Any, resets: Any, prior: Any, strength: Any, decay: Any, counts: Any, out: Any) -> Any:
    """The log-probabilities with adaptive weights (see `mixture`); `counts` becomes the state after the last token."""
    count = parts.shape[0]
    for token in range(parts.shape[1]):
        if resets[token]:
            counts[:] = 0.0
        whole = strength
        for part in range(count):
            whole += counts[part]
        mixed = 0.0
        for part in range(count):
            mixed += (strength * prior[part] + counts[part]) * parts[part, token]
        out[token] = math.log(mixed / whole) if mixed > 0 else -np.inf
        if mixed > 0:
            for part in range(count):
                posterior = (strength * prior[part] + counts[part]) * parts[part, token] / mixed
                counts[part] = decay * counts[part] + posterior
