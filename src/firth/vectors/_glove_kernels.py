"""Numba kernels of GloVe: cells grouped by tile, and AdaGrad steps over tiles.

A row of `words` is [vector, bias, 1, padding, squared gradients], one of `contexts` [vector, 1, bias, padding, squared
gradients]: the product of two rows is the whole prediction, and one loop without a remainder updates all of it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from firth.prefetch import prefetch
from firth.vectors._step_kernels import GOLDEN, splitmix64

_AHEAD = 4  # cells whose rows are prefetched
_CLIP = np.float32(100.0)  # of the weighted error, against divergence
_ONE = np.float32(1.0)
_FAST = {"reassoc", "contract", "arcp", "afn", "nsz"}  # all that keeps NaN and infinity


@njit(cache=True, nogil=True)
def count_tiles(starts: Any, columns: Any, ids: Any, group_of: Any, sizes: Any) -> None:
    """Adds to `sizes` the number of cells of the rows `ids` with their column in each group."""
    for row in ids:
        for cell in range(starts[row], starts[row + 1]):
            sizes[group_of[columns[cell]]] += 1


@njit(cache=True, nogil=True)
def fill_tiles(
    starts: Any, columns: Any, weights: Any, ids: Any, group_of: Any, slot_of: Any, ends: Any, cells: Any, logs: Any
) -> None:
    """Writes the cells of the rows `ids`, a group, to the tiles of their columns.

    cells[2 i] holds the slots of row and column, logs[2 i + 1] the log of the count. `ends[g]` is the start of the tile
    of column group g; afterwards its end.
    """
    for row in ids:
        slot = np.uint32(slot_of[row]) << np.uint32(16)
        for cell in range(starts[row], starts[row + 1]):
            column = columns[cell]
            offset = 2 * ends[group_of[column]]
            ends[group_of[column]] += 1
            cells[offset] = slot | np.uint32(slot_of[column])
            logs[offset + 1] = math.log(weights[cell])


@njit(cache=True, nogil=True)
def shuffle_cells(cells: Any, first: Any, last: Any, key: Any) -> None:
    """Shuffles the cells from `first` to `last` (Fisher-Yates) by a random stream that only `key` determines."""
    state = key
    for cell in range(last - 1, first, -1):
        state += GOLDEN
        other = first + np.int64(splitmix64(state) % np.uint64(cell - first + 1))
        for part in range(2):
            swapped = cells[2 * cell + part]
            cells[2 * cell + part] = cells[2 * other + part]
            cells[2 * other + part] = swapped


@njit(cache=True, nogil=True, fastmath=_FAST, error_model="numpy")
def step(word: Any, word_squares: Any, context: Any, context_squares: Any, log: Any, weight: Any, lr: Any) -> Any:
    """One AdaGrad step for one cell; returns its weighted squared error before the step (equation 8)."""
    product = np.float32(0.0)
    for k in range(word.size):
        product += word[k] * context[k]
    error = product - log
    gradient = lr * min(max(weight * error, -_CLIP), _CLIP)
    for k in range(word.size):
        x = word[k]
        y = context[k]
        step_x = gradient * y
        step_y = gradient * x
        squares_x = word_squares[k]
        squares_y = context_squares[k]
        word[k] = x - step_x / math.sqrt(squares_x)
        context[k] = y - step_y / math.sqrt(squares_y)
        word_squares[k] = squares_x + step_x * step_x
        context_squares[k] = squares_y + step_y * step_y
    return weight * error * error


@njit(cache=True, nogil=True, fastmath=_FAST, error_model="numpy")
def train_tiles(
    words: Any, contexts: Any, cells: Any, logs: Any, starts: Any, tiles: Any, begins: Any, groups: Any, slots: Any,
    dimension: Any, lr: Any, log_x_max: Any, alpha: Any, losses: Any,
) -> None:  # fmt: skip
    """Trains on the cells of some tiles, each rotated to start at `begins`, and adds up their losses.

    Tile t has the rows of word group t // groups and context group t % groups, `slots` of them each.
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
                for k in range(0, stride, 16):  # a cache line at a time
                    prefetch(words, i + k)
                    prefetch(contexts, j + k)
                i = (first_word + np.int64(cells[2 * cell] >> np.uint32(16))) * stride
                j = (first_context + np.int64(cells[2 * cell] & np.uint32(0xFFFF))) * stride
                log = logs[2 * cell + 1]
                weight = min(_ONE, math.exp(alpha * (log - log_x_max)))
                total += step(
                    words[i : i + width], words[i + width : i + stride], contexts[j : j + width],
                    contexts[j + width : j + stride], log, weight, lr,
                )  # fmt: skip
                words[i + dimension + 1] = _ONE
                contexts[j + dimension] = _ONE
        losses[tile] = total
