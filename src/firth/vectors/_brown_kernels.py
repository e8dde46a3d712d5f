"""Numba kernels of Brown clustering: the loss of every merge, updated exactly.

With n(a, b) the count of class b after class a, l(a) and r(a) its sums over a row and a column, N the total and
f(n) = n log n, the average mutual information I of adjacent classes is

    N I = sum f(n(a, b)) - sum f(l(a)) - sum f(r(b)) + N log N

so that with h(x, y) = f(x + y) - f(x) - f(y), merging a and b loses

    N loss(a, b) = h(l(a), l(b)) + h(r(a), r(b)) - own(a, b)
                   - sum over the other classes c of [h(n(a,c), n(b,c)) + h(n(c,a), n(c,b))]
    own(a, b) = f(n(a,a) + n(a,b) + n(b,a) + n(b,b)) - f(n(a,a)) - f(n(a,b)) - f(n(b,a)) - f(n(b,b))

h is 0 where x or y is: rare words have few neighbours and change few losses. All terms are integers (f is rounded to a
fixed-point number), so the order of additions does not matter and errors do not accumulate.

Slots hold the classes. The last slot holds all words that are not yet processed; it is never merged.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

NONE = np.iinfo(np.int64).max  # the loss of an impossible merge


class ClusterState(NamedTuple):
    """The state of the clustering, all int64."""

    after: Any  # after[a, b] = n(a, b)
    before: Any  # its transpose: before[b, a] = n(a, b)
    left: Any
    right: Any
    loss: Any  # N loss(a, b), symmetric; `NONE` on the diagonal and for slots that hold no class
    live: Any  # whether a slot holds a mergeable class
    table: Any  # f(n) of small n
    scale: Any  # a power of two: f is rounded to multiples of 1 / scale


@njit(cache=True, nogil=True)
def f(n: Any, table: Any, scale: Any) -> Any:
    """n log n in fixed point."""
    if n < table.size:
        return table[n]
    return np.int64(np.rint(n * np.log(np.float64(n)) * scale))


@njit(cache=True, nogil=True)
def h(x: Any, y: Any, table: Any, scale: Any) -> Any:
    """f(x + y) - f(x) - f(y)."""
    if x == 0 or y == 0:
        return np.int64(0)
    return f(x + y, table, scale) - f(x, table, scale) - f(y, table, scale)


@njit(cache=True, nogil=True)
def _split_neighbour(state: Any, whole: Any, part: Any, sign: Any, one: Any, two: Any) -> Any:
    """Updates the losses of all pairs except those with `one` and `two`, for a neighbour that is split in two.

    It occurs `whole[a]` times beside each class a, of which `part[a]` now belong to the second one. With sign -1 two
    neighbours are joined.
    """
    table, scale, live, loss = state.table, state.scale, state.live, state.loss
    present = np.empty(live.size, dtype=np.int64)
    size = 0
    for a in range(live.size):
        if live[a] and whole[a] != 0 and a != one and a != two:
            present[size] = a
            size += 1
    for a in present[:size]:
        w, p = whole[a], part[a]
        if p == 0:
            continue
        f_whole, f_rest, f_part = f(w, table, scale), f(w - p, table, scale), f(p, table, scale)
        for b in present[:size]:
            v, q = whole[b], part[b]
            if b == a or (q != 0 and b < a):  # pairs where both have a part are visited once
                continue
            # h(w - p, v - q) + h(p, q) - h(w, v), where much is nothing if q is
            gain = f_whole - f(w + v, table, scale)
            if q != 0:
                gain += f(v, table, scale) + h(w - p, v - q, table, scale)
                gain += f(p + q, table, scale) - f_part - f(q, table, scale)
            elif w > p:
                gain += f(w - p + v, table, scale) - f_rest
            else:
                gain += f(v, table, scale)
            loss[a, b] -= sign * gain
            loss[b, a] = loss[a, b]


@njit(cache=True, nogil=True)
def own(aa: Any, ab: Any, ba: Any, bb: Any, table: Any, scale: Any) -> Any:
    """The term of the loss from adjacent occurrences of the two merged classes."""
    apart = f(aa, table, scale) + f(ab, table, scale) + f(ba, table, scale) + f(bb, table, scale)
    return f(aa + ab + ba + bb, table, scale) - apart


@njit(cache=True, nogil=True)
def _change_shared(state: Any, new_losses: Any, c: Any, others: Any, old: Any, new: Any) -> Any:
    """Updates the losses of a class with every other, where it occurs `new` times beside c instead of `old`.

    `others[a]` is the count of each class a on that side of c.
    """
    table, scale, live = state.table, state.scale, state.live
    if new == old:
        return
    for a in range(live.size):
        if others[a] != 0 and a != c and live[a]:
            new_losses[a] += h(old, others[a], table, scale) - h(new, others[a], table, scale)


@njit(cache=True, nogil=True)
def add_word(state: Any, slot: Any, row: Any, column: Any, itself: Any) -> Any:
    """Moves a word from the last slot, of unprocessed words, into an empty one.

    `row[c]` is the count of class c after the word, `column[c]` before it, `itself` of the word after itself.
    """
    after, before, left, right, loss, live, table, scale = state
    rest = live.size - 1
    _split_neighbour(state, before[rest], column, np.int64(1), np.int64(-1), np.int64(-1))
    _split_neighbour(state, after[rest], row, np.int64(1), np.int64(-1), np.int64(-1))
    for c in range(live.size):
        after[slot, c] = before[c, slot] = row[c]
        before[slot, c] = after[c, slot] = column[c]
        after[rest, c] -= row[c]
        before[c, rest] -= row[c]
        before[rest, c] -= column[c]
        after[c, rest] -= column[c]
    after[slot, slot] = before[slot, slot] = itself
    after[rest, rest] -= itself
    before[rest, rest] -= itself
    left[slot] = right[slot] = 0
    for c in range(live.size):
        left[slot] += after[slot, c]
        right[slot] += before[slot, c]
    left[rest] -= left[slot]
    right[rest] -= right[slot]
    new_losses = np.zeros(live.size, dtype=np.int64)
    for c in range(live.size):
        if c != slot:
            _change_shared(state, new_losses, c, before[c], np.int64(0), row[c])
            _change_shared(state, new_losses, c, after[c], np.int64(0), column[c])
    for a in range(live.size):
        if live[a]:
            new_losses[a] += h(left[a], left[slot], table, scale) + h(right[a], right[slot], table, scale)
            new_losses[a] -= own(after[a, a], after[a, slot], after[slot, a], itself, table, scale)
            loss[a, slot] = loss[slot, a] = new_losses[a]
    live[slot] = True


@njit(cache=True, nogil=True)
def best_merge(loss: Any) -> Any:
    """The two classes whose merge loses least; ties go to the lowest slots."""
    best, one, two = NONE, 0, 0
    for a in range(loss.shape[0]):
        least = NONE
        for b in range(a + 1, loss.shape[0]):
            least = min(least, loss[a, b])
        if least < best:
            best, one = least, a
    for b in range(one + 1, loss.shape[0]):
        if loss[one, b] == best:
            two = b
            break
    return one, two


@njit(cache=True, nogil=True)
def _merged_losses(state: Any, many: Any, few: Any) -> Any:
    """The losses of merging every other class with the union of two, derived from those of the first."""
    after, before, left, right, loss, live, table, scale = state
    new_losses = loss[many].copy()
    for c in range(live.size):
        if c != many and c != few:
            _change_shared(state, new_losses, c, before[c], after[many, c], after[many, c] + after[few, c])
            _change_shared(state, new_losses, c, after[c], before[many, c], before[many, c] + before[few, c])
    both = after[many, many] + after[many, few] + after[few, many] + after[few, few]
    for b in range(live.size):
        if live[b] and b != many and b != few:
            bb, mb, bm = after[b, b], after[many, b], after[b, many]
            new_losses[b] += own(after[many, many], mb, bm, bb, table, scale)
            new_losses[b] -= own(both, mb + after[few, b], bm + after[b, few], bb, table, scale)
            new_losses[b] += h(after[many, few], after[b, few], table, scale)  # the second one is no longer a neighbour
            new_losses[b] += h(before[many, few], before[b, few], table, scale)
            new_losses[b] += h(left[many] + left[few], left[b], table, scale) - h(left[many], left[b], table, scale)
            new_losses[b] += h(right[many] + right[few], right[b], table, scale)
            new_losses[b] -= h(right[many], right[b], table, scale)
    return new_losses


@njit(cache=True, nogil=True)
def merge(state: Any, kept: Any, removed: Any) -> Any:
    """Merges two classes into the slot of the first."""
    after, before, left, right, loss, live, _, _ = state
    surplus = 0
    for c in range(live.size):
        surplus += (after[kept, c] > 0) + (before[kept, c] > 0) - (after[removed, c] > 0) - (before[removed, c] > 0)
    many, few = (kept, removed) if surplus >= 0 else (removed, kept)  # fewer neighbours are cheaper
    new_losses = _merged_losses(state, many, few)
    _split_neighbour(state, before[many] + before[few], before[few], np.int64(-1), many, few)
    _split_neighbour(state, after[many] + after[few], after[few], np.int64(-1), many, few)
    live[removed] = False
    left[kept], left[removed] = left[kept] + left[removed], 0
    right[kept], right[removed] = right[kept] + right[removed], 0
    for c in range(live.size):
        after[kept, c], after[removed, c] = after[kept, c] + after[removed, c], 0
        before[kept, c], before[removed, c] = before[kept, c] + before[removed, c], 0
        loss[removed, c] = loss[c, removed] = NONE
        if live[c] and c != kept:
            loss[kept, c] = loss[c, kept] = new_losses[c]
    for c in range(live.size):
        after[c, kept], after[c, removed] = after[c, kept] + after[c, removed], 0
        before[c, kept], before[c, removed] = before[c, kept] + before[c, removed], 0


class ClusterMembers(NamedTuple):
    """The words of each slot as linked lists, all int64."""

    slot_of: Any  # the slot of each word
    next_word: Any  # the next word of the same slot, or -1
    first: Any
    last: Any
    sizes: Any


@njit(cache=True, nogil=True)
def _move(members: Any, kept: Any, removed: Any) -> Any:
    slot_of, next_word, first, last, sizes = members
    word = first[removed]
    while word >= 0:
        slot_of[word] = kept
        word = next_word[word]
    next_word[last[kept]] = first[removed]
    last[kept] = last[removed]
    sizes[kept] += sizes[removed]
    sizes[removed] = 0


@njit(cache=True, nogil=True)
def merge_best(state: Any, members: Any) -> Any:
    """Merges the two classes that lose least, into the slot with more words; returns (kept, removed)."""
    kept, removed = best_merge(state.loss)
    if members.sizes[removed] > members.sizes[kept]:
        kept, removed = removed, kept
    merge(state, kept, removed)
    _move(members, kept, removed)
    return kept, removed


@njit(cache=True, nogil=True)
def _gather(word: Any, begins: Any, others: Any, counts: Any, slot_of: Any, row: Any) -> Any:
    """Sums the neighbours of a word by slot; returns the count of the word beside itself."""
    row[:] = 0
    itself = np.int64(0)
    for i in range(begins[word], begins[word + 1]):
        if others[i] == word:
            itself = counts[i]
        else:
            row[slot_of[others[i]]] += counts[i]
    return itself


@njit(cache=True, nogil=True)
def cluster_words(state: Any, members: Any, words: Any, followers: Any, predecessors: Any, free: Any) -> Any:
    """Gives each word a slot of its own, and merges two slots if none is left; returns the free slot.

    `followers` and `predecessors` are (bounds, others, counts) of the neighbours of each word.
    """
    slots = state.live.size - 1
    row = np.zeros(slots + 1, dtype=np.int64)
    column = np.zeros(slots + 1, dtype=np.int64)
    for word in words:
        itself = _gather(word, followers[0], followers[1], followers[2], members.slot_of, row)
        _gather(word, predecessors[0], predecessors[1], predecessors[2], members.slot_of, column)
        add_word(state, free, row, column, itself)
        members.slot_of[word] = free
        members.first[free] = members.last[free] = word
        members.sizes[free] = 1
        if free + 1 < slots and not state.live[free + 1]:
            free += 1
        else:
            _, free = merge_best(state, members)
    return free
