"""Numba kernels of GloVe: cells into tiles, and steps of gradient descent through tiles.

A row of `words` is [vector, bias, 1, padding, squares of their gradients], one of `contexts` [vector, 1, bias, padding,
squares]: so the product of two rows is the whole prediction, and one loop without a remainder updates all of it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from firth.prefetch import prefetch

_AHEAD = 4  # cells whose rows are asked for before they are needed
_CLIP = np.float32(100.0)  # no error counts more, so that one step cannot go to infinity
_ONE = np.float32(1.0)
_FAST = {"reassoc", "contract", "arcp", "afn", "nsz"}  # all that leaves NaN and infinity what they are


@njit(cache=True, nogil=True)
def count_tiles(starts: Any, columns: Any, ids: Any, group_of: Any, sizes: Any) -> None:
    """Adds up in `sizes` how many cells of the rows `ids` have their column in each group."""
    for row in ids:
        for cell in range(starts[row], starts[row + 1]):
            sizes[group_of[columns[cell]]] += 1


@njit(cache=True, nogil=True)
def fill_tiles(
    starts: Any, columns: Any, weights: Any, ids: Any, group_of: Any, slot_of: Any, ends: Any, cells: Any, logs: Any
) -> None:
    """Writes the cells of the rows `ids`, which are a group, to the tiles of their columns.

    Each cell is two numbers: cells[2 i] holds the slots of row and column, logs[2 i + 1] the logarithm of the weight.
    `ends[g]` must be where the tile of column group g begins; when done it is where it ends.
    """
    for row in ids:
        slot = np.uint32(slot_of[row]) << np.uint32(16)
        for cell in range(starts[row], starts[row + 1]):
            column = columns[cell]
            place = 2 * ends[group_of[column]]
            ends[group_of[column]] += 1
            cells[place] = slot | np.uint32(slot_of[column])
            logs[place + 1] = math.log(weights[cell])


@njit(cache=True, nogil=True)
def shuffle_cells(cells: Any, first: Any, last: Any, key: Any) -> None:
    """Puts the cells from `first` to `last` into a random order that only `key` decides (Fisher and Yates)."""
    state = key
    for cell in range(last - 1, first, -1):
        state += np.uint64(0x9E3779B97F4A7C15)  # the generator is SplitMix64
        mixed = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
        other = first + np.int64(mixed % np.uint64(cell - first + 1))
        for part in range(2):
            held = cells[2 * cell + part]
            cells[2 * cell + part] = cells[2 * other + part]
            cells[2 * other + part] = held


@njit(cache=True, nogil=True, fastmath=_FAST, error_model="numpy")
def step(word: Any, word_squares: Any, context: Any, context_squares: Any, log: Any, weight: Any, rate: Any) -> Any:
    """One step of AdaGrad for one cell; returns its weighted squared error before the step (equation 8)."""
    product = np.float32(0.0)
    for k in range(word.size):
        product += word[k] * context[k]
    error = product - log
    slope = rate * min(max(weight * error, -_CLIP), _CLIP)
    for k in range(word.size):
        x = word[k]
        y = context[k]
        for_x = slope * y
        for_y = slope * x
        squares_x = word_squares[k]
        squares_y = context_squares[k]
        word[k] = x - for_x / math.sqrt(squares_x)
        context[k] = y - for_y / math.sqrt(squares_y)
        word_squares[k] = squares_x + for_x * for_x
        context_squares[k] = squares_y + for_y * for_y
    return weight * error * error


@njit(cache=True, nogil=True, fastmath=_FAST, error_model="numpy")
def train_tiles(
    words: Any, contexts: Any, cells: Any, logs: Any, starts: Any, tiles: Any, begins: Any, groups: Any, slots: Any,
    dimension: Any, rate: Any, log_most: Any, alpha: Any, losses: Any,
) -> None:  # fmt: skip
    """Goes through the cells of some tiles, each from the cell on where `begins` says, and adds up their losses.

    `words` and `contexts` are rows one after the other; tile t has the rows of group t // groups of the one and the
    columns of group t % groups of the other, `slots` of them each.
    """
    stride = words.size // (groups * slots)
    width = stride // 2
    for tile in tiles:
        first_word = (tile // groups) * slots
        first_context = (tile % groups) * slots
        total = 0.0
        for first, last in ((begins[tile], starts[tile + 1]), (starts[tile], begins[tile])):
            for cell in range(first, last):
                ahead = 2 * min(cell + _AHEAD, last - 1)
                i = (first_word + np.int64(cells[ahead] >> np.uint32(16))) * stride
                j = (first_context + np.int64(cells[ahead] & np.uint32(0xFFFF))) * stride
                for k in range(0, stride, 16):  # a line of the cache at a time
                    prefetch(words, i + k)
                    prefetch(contexts, j + k)
                i = (first_word + np.int64(cells[2 * cell] >> np.uint32(16))) * stride
                j = (first_context + np.int64(cells[2 * cell] & np.uint32(0xFFFF))) * stride
                log = logs[2 * cell + 1]
                weight = min(_ONE, math.exp(alpha * (log - log_most)))
                total += step(
                    words[i : i + width],
                    words[i + width : i + stride],
                    contexts[j : j + width],
                    contexts[j + width : j + stride],
                    log,
                    weight,
                    rate,
                )
                words[i + dimension + 1] = _ONE
                contexts[j + dimension] = _ONE
        losses[tile] = total
