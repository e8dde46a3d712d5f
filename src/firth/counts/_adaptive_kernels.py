"""Numba kernels of models that follow the text: EM for weights, the cache, and weights that are updated word by word.

A node of the cache is an n-gram of the text, numbered as it is met: 0 is the empty one, `1 + w` the word w, then the
pairs and triples. The history of an entry is a node as well, so two rows say everything: `ends[g]` is the weight of the
entries that are n-gram g, and `follows[g]` that of the entries whose history is g.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

_LARGE = math.exp(100.0)  # the weight of a new entry at which all are scaled down


@njit(cache=True, nogil=True)
def em_round(parts: Any, weights: Any, shares: Any) -> Any:
    """Adds up in `shares` how many tokens each part explains; returns the log-likelihood and the tokens left out.

    `parts[k, t]` is the probability that part k gives to token t; a token to which all give none is left out.
    """
    shares[:] = 0.0
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
            shares[part] += weights[part] * parts[part, token] / mixed
        total += math.log(mixed)
    return total, left_out


@njit(cache=True, nogil=True)
def number_pairs(left: Any, right: Any, first: Any, slots: Any, keys: Any, out: Any) -> Any:
    """Numbers the pairs (left[t], right[t]) from `first` on as they are met; returns the next free number.

    `slots` is an open-addressing table at most half full that holds number - first + 1, or 0; `keys` holds the pairs.
    """
    mask = np.uint64(slots.size - 1)
    used = 0
    for place in range(left.size):
        key = (np.uint64(left[place]) << np.uint64(32)) | np.uint64(right[place])
        slot = key * np.uint64(0x9E3779B97F4A7C15)
        slot = (slot ^ (slot >> np.uint64(32))) & mask
        while slots[slot] != 0 and keys[slots[slot] - 1] != key:
            slot = (slot + np.uint64(1)) & mask
        if slots[slot] == 0:
            keys[used] = key
            used += 1
            slots[slot] = used
        out[place] = first + slots[slot] - 1
    return first + used


@njit(cache=True, nogil=True)
def _scale_down(oldest: Any, newest: Any, places: Any, held: Any, nodes: Any, histories: Any, ends: Any, follows: Any,
                factor: Any) -> Any:  # fmt: skip
    """Multiplies the weights of all entries, and adds the sums up anew."""
    size = places.size
    for order in range(nodes.shape[0]):
        for entry in range(oldest, newest):
            place = places[entry % size]
            ends[nodes[order, place]] = 0.0
            follows[histories[order, place]] = 0.0
    for entry in range(oldest, newest):
        slot = entry % size
        held[slot] *= factor
        for order in range(nodes.shape[0]):
            ends[nodes[order, places[slot]]] += held[slot]
            follows[histories[order, places[slot]]] += held[slot]


@njit(cache=True, nogil=True)
def _forget(slot: Any, places: Any, held: Any, nodes: Any, histories: Any, ends: Any, follows: Any, times: Any) -> Any:
    """Takes one entry out of the cache; what nothing is left of becomes exactly 0."""
    place = places[slot]
    for order in range(nodes.shape[0]):
        node, history = nodes[order, place], histories[order, place]
        ends[node] -= held[slot]
        follows[history] -= held[slot]
        times[0, node] -= 1
        times[1, history] -= 1
        if times[0, node] == 0:
            ends[node] = 0.0
        if times[1, history] == 0:
            follows[history] = 0.0


@njit(cache=True, nogil=True)
def recall(nodes: Any, histories: Any, enters: Any, resets: Any, size: Any, decay: Any, count: Any, parts: Any,
           met: Any) -> Any:  # fmt: skip
    """What a cache of the last `size` entries says of every token.

    `nodes[n, t]` is the n-gram that ends at token t and `histories[n, t]` what stands before its last word; `count` is
    the number of nodes. `enters` says which tokens enter the cache, `resets` before which it is emptied. Writes
    `parts[n, t]`, the share of the token among the entries with its history, and `met[n, t]`, the number of these. An
    entry counts exp(decay) times the one before it; instead of all old ones, the weight of the new one is changed.
    """
    orders = nodes.shape[0]
    places = np.zeros(size, dtype=np.int64)
    held = np.zeros(size)
    ends, follows = np.zeros(count), np.zeros(count)
    times = np.zeros((2, count), dtype=np.int32)
    growth = math.exp(decay)
    oldest, newest, weight = 0, 0, 1.0
    for token in range(nodes.shape[1]):
        if resets[token]:
            for entry in range(oldest, newest):
                _forget(entry % size, places, held, nodes, histories, ends, follows, times)
            oldest, newest, weight = 0, 0, 1.0
        for order in range(orders):
            history = histories[order, token]
            met[order, token] = times[1, history]
            parts[order, token] = ends[nodes[order, token]] / follows[history] if times[1, history] else 0.0
        if not enters[token]:
            continue
        if newest - oldest == size:
            _forget(oldest % size, places, held, nodes, histories, ends, follows, times)
            oldest += 1
        if weight > _LARGE:
            _scale_down(oldest, newest, places, held, nodes, histories, ends, follows, 1.0 / weight)
            weight = 1.0
        places[newest % size] = token
        held[newest % size] = weight
        newest += 1
        for order in range(orders):
            ends[nodes[order, token]] += weight
            follows[histories[order, token]] += weight
            times[0, nodes[order, token]] += 1
            times[1, histories[order, token]] += 1
        weight *= growth


@njit(cache=True, nogil=True)
def mix_cache(logs: Any, parts: Any, met: Any, weights: Any, out: Any) -> Any:
    """The log of base and cache mixed; an empty cache leaves the base alone.

    `weights[n, b, f]` are those of (base, order 1, order 2, ...) for tokens of which the cache knows a history of n
    words and no longer one, where b is the bucket of how often it does and f that of how full it is.
    """
    buckets = weights.shape[1]
    for token in range(logs.size):
        known = 0
        while known < met.shape[0] and met[known, token] > 0:
            known += 1
        if known == 0:
            out[token] = logs[token]
            continue
        row = weights[known - 1, bucket_of(met[known - 1, token], buckets), bucket_of(met[0, token], buckets)]
        mixed = row[0] * math.exp(logs[token])
        for order in range(known):
            mixed += row[order + 1] * parts[order, token]
        out[token] = math.log(mixed) if mixed > 0 else -np.inf


@njit(cache=True, nogil=True)
def bucket_of(times: Any, buckets: Any) -> Any:
    """The whole part of log2 of a count above 0, at most `buckets - 1`."""
    bucket = 0
    while times > 1 and bucket < buckets - 1:
        times >>= 1
        bucket += 1
    return bucket


@njit(cache=True, nogil=True)
def follow(parts: Any, resets: Any, prior: Any, strength: Any, keep: Any, shares: Any, out: Any) -> Any:
    """The log of a mixture whose weights follow the text; `shares` is left as it is after the last token.

    The weight of part k is (strength * prior[k] + shares[k]) / (strength + sum of shares). After each token, the share
    of it that part k explains is added to shares[k], and all before counts `keep` times as much as it did. A token to
    which no part gives any probability says nothing about them.
    """
    count = parts.shape[0]
    for token in range(parts.shape[1]):
        if resets[token]:
            shares[:] = 0.0
        whole = strength
        for part in range(count):
            whole += shares[part]
        mixed = 0.0
        for part in range(count):
            mixed += (strength * prior[part] + shares[part]) * parts[part, token]
        out[token] = math.log(mixed / whole) if mixed > 0 else -np.inf
        if mixed > 0:
            for part in range(count):
                explained = (strength * prior[part] + shares[part]) * parts[part, token] / mixed
                shares[part] = keep * shares[part] + explained
