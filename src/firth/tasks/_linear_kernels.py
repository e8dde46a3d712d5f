"""Numba kernels of the linear tagger: a conditional random field whose emissions are sums of the weights of features.

    score(tags) = steps[begin, y_1] + sum over t of emission(t, y_t) + sum over t of steps[y_t, y_t+1] + steps[y_n, end]

The words of all sentences stand one after the other; sentence s is from `bounds[s]` to before `bounds[s + 1]`. Each
word has a row of `features`, which are rows of `weights`; -1 is none. Rows of `steps` are the tags before, columns
those after; its last row is the beginning, its last column the end.
"""
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

_TINY = 1e-300


@njit(cache=True, nogil=True)
def emit(features: Any, weights: Any) -> Any:
    """The scores of all tags of words."""
    words, labels = features.shape[0], weights.shape[1]
    found = np.zeros((words, labels))
    for place in range(words):
        for column in range(features.shape[1]):
            feature = features[place, column]
            if feature >= 0:
                for label in range(labels):
                    found[place, label] += weights[feature, label]
    return found


@njit(cache=True, nogil=True)
def marginals(emissions: Any, moves: Any, shares: Any) -> Any:
    """The probability of each tag of each word of a sentence; how often each step is expected is added to `shares`.

    These are the forward and the backward algorithm, scaled at each word; `moves` are the exponentials of steps.
    """
    words, labels = emissions.shape
    raised, scales, ahead = np.empty((words, labels)), np.empty(words), np.empty(labels)
    forward, backward = np.zeros((words, labels)), np.zeros((words, labels))
    for place in range(words):
        if place:
            for before in range(labels):
                for label in range(labels):
                    forward[place, label] += forward[place - 1, before] * moves[before, label]
        else:
            forward[place] = moves[labels, :labels]
        highest = emissions[place].max()
        total = _TINY
        for label in range(labels):
            raised[place, label] = np.exp(emissions[place, label] - highest)
            forward[place, label] *= raised[place, label]
            total += forward[place, label]
        scales[place] = total
        for label in range(labels):
            forward[place, label] /= total
    whole = _TINY
    for label in range(labels):
        whole += forward[-1, label] * moves[label, labels]
    for label in range(labels):
        backward[-1, label] = moves[label, labels] / whole
    for place in range(words - 1, 0, -1):
        for label in range(labels):
            ahead[label] = raised[place, label] * backward[place, label] / scales[place]
        for before in range(labels):
            total = 0.0
            for label in range(labels):
                shares[before, label] += forward[place - 1, before] * moves[before, label] * ahead[label]
                total += moves[before, label] * ahead[label]
            backward[place - 1, before] = total
    found = forward * backward
    for label in range(labels):
        shares[labels, label] += found[0, label]
        shares[label, labels] += found[-1, label]
    return found


@njit(cache=True, nogil=True)
def learn_pass(
    order: Any, bounds: Any, features: Any, tags: Any, decay: Any, rate: Any, weights: Any, squares: Any, steps: Any,
    step_squares: Any, barred: Any, step_decay: Any,
) -> Any:  # fmt: skip
    """One pass of AdaGrad (Duchi et al. 2011) over the sentences in `order`.

    `squares` sums the squared gradients of each weight. `decay` is the share of its squared length that a weight pays
    each time its feature is seen, so that over a pass it pays all.
    """
    labels = weights.shape[1]
    shares = np.zeros(steps.shape)
    for sentence in order:
        begin, end = bounds[sentence], bounds[sentence + 1]
        shares[:] = 0.0
        gradients = marginals(emit(features[begin:end], weights), np.exp(steps + barred), shares)
        before = labels
        for place in range(begin, end):
            gradients[place - begin, tags[place]] -= 1.0
            shares[before, tags[place]] -= 1.0
            before = tags[place]
        shares[before, labels] -= 1.0
        for place in range(begin, end):
            for column in range(features.shape[1]):
                feature = features[place, column]
                if feature < 0:
                    continue
                for label in range(labels):
                    slope = gradients[place - begin, label] + decay[feature] * weights[feature, label]
                    squares[feature, label] += slope * slope
                    weights[feature, label] -= rate * slope / np.sqrt(squares[feature, label])
        for one in range(labels + 1):
            for two in range(labels + 1):
                slope = shares[one, two] + step_decay * steps[one, two]
                step_squares[one, two] += slope * slope
                steps[one, two] -= rate * slope / np.sqrt(step_squares[one, two])


@njit(cache=True, nogil=True)
def viterbi(emissions: Any, steps: Any) -> Any:
    """The best tags of a sentence; of equally good ones those with the lowest last tag."""
    words, labels = emissions.shape
    came = np.zeros((words, labels), dtype=np.int64)
    best = steps[labels, :labels] + emissions[0]
    for place in range(1, words):
        further = np.empty(labels)
        for label in range(labels):
            came[place, label] = np.argmax(best + steps[:labels, label])
            further[label] = best[came[place, label]] + steps[came[place, label], label] + emissions[place, label]
        best = further
    path = np.empty(words, dtype=np.int64)
    path[-1] = np.argmax(best + steps[:labels, labels])
    for place in range(words - 1, 0, -1):
        path[place - 1] = came[place, path[place]]
    return path
