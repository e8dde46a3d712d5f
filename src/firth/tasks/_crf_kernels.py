"""Numba kernels of linear-chain CRFs: decoding, and training of the linear tagger.

The emissions of the linear tagger are sums of feature weights.

    score(tags) = T[begin, y_1] + sum of emission(t, y_t) + sum of T[y_t, y_t+1] + T[y_n, end],  T: transitions

Sentence s has the words `bounds[s]` to `bounds[s + 1]`. `features` (words, templates) are indices into `weights`, -1
for none. Rows of `transitions` are previous tags, columns next tags; the last row is the beginning, the last column the
end.
"""
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

UNLIKELY = -100.0
"""Score of a forbidden transition in marginals: keeps the partition above 0 if every path is forbidden."""
_TINY = 1e-300


def decode(emissions: npt.NDArray[Any], transitions: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """The best labels for emissions (length, labels), and the marginal probability of each.

    Ties are broken by the lowest last label, then the lowest last but one, and so on.

    >>> decode(np.array([[0.0, 2.0], [1.0, 0.0]]), np.zeros((3, 3)))[0].tolist()
    [1, 0]
    """
    scores = np.ascontiguousarray(emissions, dtype=np.float64)
    best = viterbi(scores, transitions)
    exponentials = np.exp(np.maximum(transitions, UNLIKELY))
    return best, marginals(scores, exponentials, np.zeros_like(exponentials))[np.arange(best.size), best]


@njit(cache=True, nogil=True)
def emit(features: Any, weights: Any) -> Any:
    """(words, tags): the emission scores."""
    words, labels = features.shape[0], weights.shape[1]
    scores = np.zeros((words, labels))
    for position in range(words):
        for column in range(features.shape[1]):
            feature = features[position, column]
            if feature >= 0:
                for label in range(labels):
                    scores[position, label] += weights[feature, label]
    return scores


@njit(cache=True, nogil=True)
def marginals(emissions: Any, exponentials: Any, expected: Any) -> Any:
    """(words, tags): marginal probabilities by the scaled forward-backward algorithm.

    `exponentials` are those of the transitions; the expected counts of transitions are added to `expected`.
    """
    words, labels = emissions.shape
    scaled, scales, ahead = np.empty((words, labels)), np.empty(words), np.empty(labels)
    forward, backward = np.zeros((words, labels)), np.zeros((words, labels))
    for position in range(words):
        if position:
            for before in range(labels):
                for label in range(labels):
                    forward[position, label] += forward[position - 1, before] * exponentials[before, label]
        else:
            forward[position] = exponentials[labels, :labels]
        highest = emissions[position].max()
        total = _TINY
        for label in range(labels):
            scaled[position, label] = np.exp(emissions[position, label] - highest)
            forward[position, label] *= scaled[position, label]
            total += forward[position, label]
        scales[position] = total
        for label in range(labels):
            forward[position, label] /= total
    final = _TINY
    for label in range(labels):
        final += forward[-1, label] * exponentials[label, labels]
    for label in range(labels):
        backward[-1, label] = exponentials[label, labels] / final
    for position in range(words - 1, 0, -1):
        for label in range(labels):
            ahead[label] = scaled[position, label] * backward[position, label] / scales[position]
        for before in range(labels):
            total = 0.0
            for label in range(labels):
                expected[before, label] += forward[position - 1, before] * exponentials[before, label] * ahead[label]
                total += exponentials[before, label] * ahead[label]
            backward[position - 1, before] = total
    probabilities = forward * backward
    for label in range(labels):
        expected[labels, label] += probabilities[0, label]
        expected[label, labels] += probabilities[-1, label]
    return probabilities


@njit(cache=True, nogil=True)
def adagrad_epoch(
    order: Any, bounds: Any, features: Any, tags: Any, decay: Any, lr: Any, weights: Any, squares: Any,
    transitions: Any, transition_squares: Any, forbidden: Any, transition_decay: Any,
) -> Any:  # fmt: skip
    """One epoch of AdaGrad (Duchi et al. 2011) over the sentences in `order`.

    `squares` sums the squared gradients of each weight. `decay` is the L2 penalty of a feature divided by its count:
    it is applied at each occurrence.
    """
    labels = weights.shape[1]
    expected = np.zeros(transitions.shape)
    for sentence in order:
        begin, end = bounds[sentence], bounds[sentence + 1]
        expected[:] = 0.0
        gradients = marginals(emit(features[begin:end], weights), np.exp(transitions + forbidden), expected)
        before = labels
        for position in range(begin, end):
            gradients[position - begin, tags[position]] -= 1.0
            expected[before, tags[position]] -= 1.0
            before = tags[position]
        expected[before, labels] -= 1.0
        for position in range(begin, end):
            for column in range(features.shape[1]):
                feature = features[position, column]
                if feature < 0:
                    continue
                for label in range(labels):
                    gradient = gradients[position - begin, label] + decay[feature] * weights[feature, label]
                    squares[feature, label] += gradient * gradient
                    weights[feature, label] -= lr * gradient / np.sqrt(squares[feature, label])
        for previous in range(labels + 1):
            for next_tag in range(labels + 1):
                gradient = expected[previous, next_tag] + transition_decay * transitions[previous, next_tag]
                transition_squares[previous, next_tag] += gradient * gradient
                transitions[previous, next_tag] -= lr * gradient / np.sqrt(transition_squares[previous, next_tag])


@njit(cache=True, nogil=True)
def viterbi(emissions: Any, transitions: Any) -> Any:
    """The best tags of a sentence; ties are broken by the lowest last tag."""
    words, labels = emissions.shape
    backpointers = np.zeros((words, labels), dtype=np.int64)
    best = transitions[labels, :labels] + emissions[0]
    for position in range(1, words):
        extended = np.empty(labels)
        for label in range(labels):
            before = np.argmax(best + transitions[:labels, label])
            backpointers[position, label] = before
            extended[label] = best[before] + transitions[before, label] + emissions[position, label]
        best = extended
    path = np.empty(words, dtype=np.int64)
    path[-1] = np.argmax(best + transitions[:labels, labels])
    for position in range(words - 1, 0, -1):
        path[position - 1] = backpointers[position, path[position]]
    return path


@njit(cache=True, nogil=True)
def log_partitions(emissions: Any, start: Any, between: Any, end: Any, lengths: Any) -> Any:
    """The log partition function of each padded sequence, and its derivatives.

    Those of the emissions are the marginal probabilities (batch, length, labels); those of the transitions the expected
    counts (batch, labels), (batch, labels, labels), (batch, labels).
    """
    batch, longest, labels = emissions.shape
    totals, chances = np.zeros(batch), np.zeros(emissions.shape)
    starts, steps, ends = np.zeros((batch, labels)), np.zeros((batch, labels, labels)), np.zeros((batch, labels))
    exponentials = np.exp(np.maximum(between, UNLIKELY))
    forward, backward = np.empty((longest, labels)), np.empty((longest, labels))
    for row in range(batch):
        length = lengths[row]
        if length == 0:
            continue
        forward[0] = start + emissions[row, 0]
        for position in range(1, length):
            highest = forward[position - 1].max()
            sums = np.exp(forward[position - 1] - highest) @ exponentials
            forward[position] = highest + np.log(sums) + emissions[row, position]
        final = forward[length - 1] + end
        totals[row] = total = final.max() + np.log(np.exp(final - final.max()).sum())
        backward[length - 1] = end
        for position in range(length - 1, 0, -1):
            ahead = emissions[row, position] + backward[position]
            highest = ahead.max()
            backward[position - 1] = highest + np.log(exponentials @ np.exp(ahead - highest))
            before = np.exp(forward[position - 1] + highest - total)
            after = np.exp(ahead - highest)
            for label in range(labels):
                for other in range(labels):
                    steps[row, label, other] += before[label] * exponentials[label, other] * after[other]
        chances[row, :length] = np.exp(forward[:length] + backward[:length] - total)
        starts[row], ends[row] = chances[row, 0], chances[row, length - 1]
    return totals, chances, starts, steps, ends
