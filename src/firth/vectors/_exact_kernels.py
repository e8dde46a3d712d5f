"""Numba kernels of exact mode: private copies of the rows that a block uses, and the merging of their changes.

The copies are spare rows of the same table, so that training kernels need not know of them.
"""

from __future__ import annotations

from math import expm1
from typing import Any

from numba import float32, float64, njit

from firth.vectors._step_kernels import prefetch_row

_AHEAD = 8  # rows prefetched ahead
_NEGLIGIBLE = 1e-9


@njit(cache=True, nogil=True)
def map_to_copies(accesses: Any, first: Any, slots: Any, rows: Any, uses: Any) -> Any:
    """Replaces rows by spare ones, numbered from `first` in order of first use; returns their number.

    `rows` receives the original rows, `uses` how often each is used; `slots` has -1 for every row of the table, before
    and after.
    """
    count = 0
    for i in range(accesses.size):
        row = accesses[i]
        if slots[row] < 0:
            slots[row] = first + count
            rows[count] = row
            uses[count] = 0
            count += 1
        accesses[i] = slots[row]
        uses[slots[row] - first] += 1
    for i in range(count):
        slots[rows[i]] = -1
    return count


@njit(cache=True, nogil=True)
def copy_rows(table: Any, rows: Any, count: Any, stride: Any, first: Any) -> Any:
    """Copies rows to the spare ones from `first` on."""
    for i in range(count):
        _prefetch_ahead(table, rows, count, i, stride)
        source, target = rows[i] * stride, (first + i) * stride
        table[target : target + stride] = table[source : source + stride]


@njit(cache=True, nogil=True)
def count_replicas(
    rows: Any, uses: Any, count: Any, part: Any, parts: Any, replica_counts: Any, use_counts: Any
) -> Any:
    """Adds to the number of replicas and of uses of each row that belongs to this part."""
    for i in range(count):
        row = rows[i]
        if row % parts == part:
            replica_counts[row] += 1
            use_counts[row] += uses[i]


@njit(cache=True, nogil=True)
def merge_weight(replicas: Any, uses: Any, rate: Any) -> Any:
    """The weight of each replica's change of a row, from the number of replicas and the total number of uses.

    A row that each of n steps moves by the fraction r of its distance to the optimum has moved 1 - exp(-n r) of it.
    Replicas that start together all make the first part of the same way; in sequence each would have moved less:
    (1 - exp(-k z)) / (k (1 - exp(-z))) for k replicas of z = n r. That is 1 for rare rows and 1 / k for frequent ones.
    """
    z = rate * uses / replicas
    return expm1(-replicas * z) / (replicas * expm1(-z)) if z > _NEGLIGIBLE else 1.0


@njit(cache=True, nogil=True)
def merge_rows(
    table: Any, rows: Any, count: Any, stride: Any, first: Any, part: Any, parts: Any, replica_counts: Any,
    use_counts: Any, rate: Any,
) -> Any:  # fmt: skip
    """Adds the changes of one replica to the rows of this part; each part can have its own thread.

    A row that k replicas have changed from x to y1, ... yk becomes x + f (y1 - x) + ... + f (yk - x), where f is the
    merge weight. `replica_counts` and `use_counts` hold the sums over all replicas; the first one merged clears
    `replica_counts` and leaves f in `use_counts`.
    """
    for i in range(count):
        row = rows[i]
        if row % parts != part:
            continue
        _prefetch_ahead(table, rows, count, i, stride)
        source, target = (first + i) * stride, row * stride
        if replica_counts[row] == 1:
            table[target : target + stride] = table[source : source + stride]
        else:
            rest = float32(1.0)
            if replica_counts[row]:  # the first replica scales the old row for all
                several = float64(replica_counts[row])
                use_counts[row] = merge_weight(several, use_counts[row], rate)
                rest = float32(1.0 - several * use_counts[row])
            weight = float32(use_counts[row])
            old, new = table[target : target + stride], table[source : source + stride]
            for column in range(stride):
                old[column] = rest * old[column] + weight * new[column]
        replica_counts[row] = 0


@njit(cache=True, nogil=True)
def clear_counts(rows: Any, count: Any, part: Any, parts: Any, use_counts: Any) -> Any:
    """Resets the counts of this part's rows to zero."""
    for i in range(count):
        if rows[i] % parts == part:
            use_counts[rows[i]] = 0.0


@njit(cache=True, nogil=True)
def _prefetch_ahead(table: Any, rows: Any, count: Any, i: Any, stride: Any) -> Any:
    if i + _AHEAD < count:
        prefetch_row(table, rows[i + _AHEAD], stride, stride)
