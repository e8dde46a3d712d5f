"""Numba kernels of Brown clustering: the loss of every merge, kept up to date exactly.

With n(a, b) how often class b follows class a, l(a) and r(a) its sums over a row and a column, N the sum of all and
f(n) = n log n, the average mutual information I of neighbouring classes is

    N I = sum f(n(a, b)) - sum f(l(a)) - sum f(r(b)) + N log N

so that with h(x, y) = f(x + y) - f(x) - f(y), merging a and b loses

    N loss(a, b) = h(l(a), l(b)) + h(r(a), r(b)) - own(a, b)
                   - sum over the other classes c of [h(n(a,c), n(b,c)) + h(n(c,a), n(c,b))]
    own(a, b) = f(n(a,a) + n(a,b) + n(b,a) + n(b,b)) - f(n(a,a)) - f(n(a,b)) - f(n(b,a)) - f(n(b,b))

h is 0 where x or y is: rare words have few neighbours and change few losses. All terms are integers (f is rounded to
a fixed number of binary places), so the order of additions does not matter and nothing drifts.

Slots hold the classes. The last slot holds all words that have had no turn yet; it is never merged.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

NONE = np.iinfo(np.int64).max
"""The loss of a merge that cannot be."""


class Classes(NamedTuple):
    """The state of the clustering, all int64."""

    after: Any
    """after[a, b] = n(a, b)."""
    before: Any
    """Its transpose: before[b, a] = n(a, b)."""
    left: Any
    right: Any
    loss: Any
    """N loss(a, b), symmetric; `NONE` on the diagonal and for slots that hold no class."""
    live: Any
    """Whether a slot holds a class that can be merged."""
    table: Any
    """f(n) of small n."""
    scale: Any
    """A power of two: f is rounded to multiples of 1 / scale."""


@njit(cache=True, nogil=True)
def f(n: Any, table: Any, scale: Any) -> Any:
    """n log n as an integer."""
    if n < table.size:
        return table[n]
    return np.int64(np.rint(n * np.log(np.float64(n)) * scale))


@njit(cache=True, nogil=True)
def h(x: Any, y: Any, table: Any, scale: Any) -> Any:
    """What f gains by adding up first."""
    if x == 0 or y == 0:
        return np.int64(0)
    return f(x + y, table, scale) - f(x, table, scale) - f(y, table, scale)


@njit(cache=True, nogil=True)
def _split_context(state: Any, whole: Any, part: Any, sign: Any, one: Any, two: Any) -> Any:
    """Changes the losses of all pairs but those with `one` and `two`, for a neighbour that becomes two.

    It was met `whole[a]` times beside each class a, of which `part[a]` are the second one's now. With sign -1 two
    neighbours become one.
    """
    table, scale, live, loss = state.table, state.scale, state.live, state.loss
    met = np.empty(live.size, dtype=np.int64)
    size = 0
    for a in range(live.size):
        if live[a] and whole[a] != 0 and a != one and a != two:
            met[size] = a
            size += 1
    for a in met[:size]:
        w, p = whole[a], part[a]
        if p == 0:
            continue
        f_whole, f_rest, f_part = f(w, table, scale), f(w - p, table, scale), f(p, table, scale)
        for b in met[:size]:
            v, q = whole[b], part[b]
            if b == a or (q != 0 and b < a):  # two classes that both have a part are met once
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
    """What f gains where two classes that are merged stand beside themselves and each other."""
    apart = f(aa, table, scale) + f(ab, table, scale) + f(ba, table, scale) + f(bb, table, scale)
    return f(aa + ab + ba + bb, table, scale) - apart


@njit(cache=True, nogil=True)
def _share(state: Any, fresh: Any, c: Any, others: Any, old: Any, new: Any) -> Any:
    """Changes the losses `fresh` of one class with every other, where it is met `new` times beside c instead of `old`.

    `others[a]` is how often each class a stands on that side of c.
    """
    table, scale, live = state.table, state.scale, state.live
    if new == old:
        return
    for a in range(live.size):
        if others[a] != 0 and a != c and live[a]:
            fresh[a] += h(old, others[a], table, scale) - h(new, others[a], table, scale)


@njit(cache=True, nogil=True)
def add_word(state: Any, slot: Any, row: Any, column: Any, itself: Any) -> Any:
    """Puts a word into an empty slot, out of the last one, where those wait that have had no turn.

    `row[c]` is how often class c follows the word, `column[c]` how often it goes before it, `itself` the word both.
    """
    after, before, left, right, loss, live, table, scale = state
    rest = live.size - 1
    _split_context(state, before[rest], column, np.int64(1), np.int64(-1), np.int64(-1))
    _split_context(state, after[rest], row, np.int64(1), np.int64(-1), np.int64(-1))
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
    fresh = np.zeros(live.size, dtype=np.int64)
    for c in range(live.size):
        if c != slot:
            _share(state, fresh, c, before[c], np.int64(0), row[c])
            _share(state, fresh, c, after[c], np.int64(0), column[c])
    for a in range(live.size):
        if live[a]:
            fresh[a] += h(left[a], left[slot], table, scale) + h(right[a], right[slot], table, scale)
            fresh[a] -= own(after[a, a], after[a, slot], after[slot, a], itself, table, scale)
            loss[a, slot] = loss[slot, a] = fresh[a]
    live[slot] = True


@njit(cache=True, nogil=True)
def best_merge(loss: Any) -> Any:
    """The two classes whose merge loses least, the lowest slots where several lose the same."""
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
    """The losses of merging every other class with the union of two: those of the first, changed by the second."""
    after, before, left, right, loss, live, table, scale = state
    fresh = loss[many].copy()
    for c in range(live.size):
        if c != many and c != few:
            _share(state, fresh, c, before[c], after[many, c], after[many, c] + after[few, c])
            _share(state, fresh, c, after[c], before[many, c], before[many, c] + before[few, c])
    both = after[many, many] + after[many, few] + after[few, many] + after[few, few]
    for b in range(live.size):
        if live[b] and b != many and b != few:
            bb, mb, bm = after[b, b], after[many, b], after[b, many]
            fresh[b] += own(after[many, many], mb, bm, bb, table, scale)
            fresh[b] -= own(both, mb + after[few, b], bm + after[b, few], bb, table, scale)
            fresh[b] += h(after[many, few], after[b, few], table, scale)  # the second one is no neighbour any more
            fresh[b] += h(before[many, few], before[b, few], table, scale)
            fresh[b] += h(left[many] + left[few], left[b], table, scale) - h(left[many], left[b], table, scale)
            fresh[b] += h(right[many] + right[few], right[b], table, scale) - h(right[many], right[b], table, scale)
    return fresh


@njit(cache=True, nogil=True)
def merge(state: Any, kept: Any, gone: Any) -> Any:
    """Makes one class of two, in the slot of the first."""
    after, before, left, right, loss, live, _, _ = state
    surplus = 0
    for c in range(live.size):
        surplus += (after[kept, c] > 0) + (before[kept, c] > 0) - (after[gone, c] > 0) - (before[gone, c] > 0)
    many, few = (kept, gone) if surplus >= 0 else (gone, kept)  # neighbours: the fewer the cheaper
    fresh = _merged_losses(state, many, few)
    _split_context(state, before[many] + before[few], before[few], np.int64(-1), many, few)
    _split_context(state, after[many] + after[few], after[few], np.int64(-1), many, few)
    live[gone] = False
    left[kept], left[gone] = left[kept] + left[gone], 0
    right[kept], right[gone] = right[kept] + right[gone], 0
    for c in range(live.size):
        after[kept, c], after[gone, c] = after[kept, c] + after[gone, c], 0
        before[kept, c], before[gone, c] = before[kept, c] + before[gone, c], 0
        loss[gone, c] = loss[c, gone] = NONE
        if live[c] and c != kept:
            loss[kept, c] = loss[c, kept] = fresh[c]
    for c in range(live.size):
        after[c, kept], after[c, gone] = after[c, kept] + after[c, gone], 0
        before[c, kept], before[c, gone] = before[c, kept] + before[c, gone], 0


class Members(NamedTuple):
    """Which words each slot holds, as chains: all int64."""

    place: Any
    """The slot of each word."""
    following: Any
    """The next word of the same slot, or -1."""
    first: Any
    last: Any
    sizes: Any


@njit(cache=True, nogil=True)
def _move(members: Any, kept: Any, gone: Any) -> Any:
    """Puts the words of one slot behind those of another."""
    place, following, first, last, sizes = members
    word = first[gone]
    while word >= 0:
        place[word] = kept
        word = following[word]
    following[last[kept]] = first[gone]
    last[kept] = last[gone]
    sizes[kept] += sizes[gone]
    sizes[gone] = 0


@njit(cache=True, nogil=True)
def merge_best(state: Any, members: Any) -> Any:
    """Merges the two classes that lose least by it, into the slot of the one with more words; returns (kept, gone)."""
    kept, gone = best_merge(state.loss)
    if members.sizes[gone] > members.sizes[kept]:
        kept, gone = gone, kept
    merge(state, kept, gone)
    _move(members, kept, gone)
    return kept, gone


@njit(cache=True, nogil=True)
def _gather(word: Any, begins: Any, others: Any, counts: Any, place: Any, row: Any) -> Any:
    """Adds up the neighbours of a word by their slots; returns how often it is its own neighbour."""
    row[:] = 0
    itself = np.int64(0)
    for i in range(begins[word], begins[word + 1]):
        if others[i] == word:
            itself = counts[i]
        else:
            row[place[others[i]]] += counts[i]
    return itself


@njit(cache=True, nogil=True)
def take_turns(state: Any, members: Any, words: Any, followers: Any, leaders: Any, free: Any) -> Any:
    """Gives each of the words its turn: a slot of its own, and then a merge if no slot is left; returns the free slot.

    `followers` and `leaders` are (begins, others, counts) of the neighbours of each word.
    """
    slots = state.live.size - 1
    row = np.zeros(slots + 1, dtype=np.int64)
    column = np.zeros(slots + 1, dtype=np.int64)
    for word in words:
        itself = _gather(word, followers[0], followers[1], followers[2], members.place, row)
        _gather(word, leaders[0], leaders[1], leaders[2], members.place, column)
        add_word(state, free, row, column, itself)
        members.place[word] = free
        members.first[free] = members.last[free] = word
        members.sizes[free] = 1
        if free + 1 < slots and not state.live[free + 1]:
            free += 1
        else:
            _, free = merge_best(state, members)
    return free
