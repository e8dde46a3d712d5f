"""Numba kernels that seat the customers of a hierarchy of Pitman-Yor restaurants (Teh 2006).

A restaurant is a history; its dishes are the words that follow, so a dish of a restaurant is a node of the trie. Every
table serves one dish and sends one customer to the restaurant of the history without its first word, to the node
`links[node]`.

Only the sizes of the tables of a node matter, not which customer sits where. They are kept as a short list of pairs
(size, number of tables of that size) in `pool[starts[node]:starts[node + 1]]`, closed by a number of 0 if it is not
full. k different sizes need 1 + 2 + ... + k customers, so a node seen c times needs room for about sqrt(2c) pairs, and
one seen once needs none: its customer sits alone.

Names: dish = node; place = number of a restaurant, which is its node, and one more for the empty history;
seen[node] = (customers, tables) of a dish; held[place] = (customers, tables) of a whole restaurant.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def _take_table(pool: Any, end: Any, at: Any) -> Any:
    """Takes one table out of the pair `at`; the last pair fills the gap if it was the only one."""
    pool[at, 1] -= 1
    if pool[at, 1]:
        return
    last = at
    while last + 1 < end and pool[last + 1, 1]:
        last += 1
    pool[at, 0], pool[at, 1] = pool[last, 0], pool[last, 1]
    pool[last, 1] = 0


@njit(cache=True, nogil=True)
def _put_table(pool: Any, begin: Any, end: Any, size: Any) -> Any:
    for at in range(begin, end):
        if pool[at, 1] == 0:
            pool[at, 0], pool[at, 1] = size, 1
            return
        if pool[at, 0] == size:
            pool[at, 1] += 1
            return


@njit(cache=True, nogil=True)
def _choose(pool: Any, begin: Any, end: Any, discount: Any, weight: Any) -> Any:
    """The pair at which the running sum of number x (size - discount) passes `weight`."""
    for at in range(begin, end):
        if pool[at, 1] == 0:
            return at - 1
        weight -= pool[at, 1] * (pool[at, 0] - discount)
        if weight < 0:
            return at
    return end - 1


@njit(cache=True, nogil=True)
def _remove(
    dish: Any, place: Any, level: Any, links: Any, starts: Any, pool: Any, seen: Any, held: Any, rng: Any
) -> Any:
    """Sends away one customer of the dish, drawn evenly; a table left empty does the same one level below."""
    while True:
        begin, end = np.int64(starts[dish]), np.int64(starts[dish + 1])
        customers = seen[dish, 0]
        seen[dish, 0] -= 1
        held[place, 0] -= 1
        size = 1
        if begin < end:
            at = begin
            if seen[dish, 1] > 1:
                at = _choose(pool, begin, end, 0.0, rng.random() * customers)
            size = pool[at, 0]
            _take_table(pool, end, at)
            if size > 1:
                _put_table(pool, begin, end, size - 1)
        if size > 1:
            return
        seen[dish, 1] -= 1
        held[place, 1] -= 1
        level -= 1
        if level == 0:
            return
        dish = np.int64(links[dish])
        place = np.int64(links[place]) if level > 1 else held.shape[0] - 1


@njit(cache=True, nogil=True)
def _look_below(
    dish: Any, place: Any, level: Any, links: Any, seen: Any, held: Any, discounts: Any, concentrations: Any,
    uniform: Any, dishes: Any, places: Any, below: Any,
) -> Any:  # fmt: skip
    """Writes, for each level up to that of the dish, where its word is served and p(word | next shorter history)."""
    for n in range(level, 0, -1):
        dishes[n], places[n] = dish, place
        dish = np.int64(links[dish])
        place = np.int64(links[place]) if n > 2 else held.shape[0] - 1
    below[1] = uniform
    for n in range(1, level):
        customers, tables = seen[dishes[n], 0], seen[dishes[n], 1]
        all_customers, all_tables = held[places[n], 0], held[places[n], 1]
        d, theta = discounts[n - 1], concentrations[n - 1]
        below[n + 1] = below[n]
        if all_customers:
            own = customers - d * tables
            below[n + 1] = (own + (theta + d * all_tables) * below[n]) / (theta + all_customers)


@njit(cache=True, nogil=True)
def _add(
    dish: Any, place: Any, level: Any, links: Any, starts: Any, pool: Any, seen: Any, held: Any,
    discounts: Any, concentrations: Any, uniform: Any, rng: Any, dishes: Any, places: Any, below: Any,
) -> Any:  # fmt: skip
    """Seats one more customer of the dish given all others; a new table does the same one level below.

    An old table has weight size - d, a new one (theta + d t) p(w | shorter history). `dishes`, `places` and `below` are
    room for one number a level.
    """
    _look_below(dish, place, level, links, seen, held, discounts, concentrations, uniform, dishes, places, below)
    for n in range(level, 0, -1):
        dish, place = dishes[n], places[n]
        begin, end = np.int64(starts[dish]), np.int64(starts[dish + 1])
        customers, d = seen[dish, 0], discounts[n - 1]
        old = customers - d * seen[dish, 1]
        new = (concentrations[n - 1] + d * held[place, 1]) * below[n]
        seen[dish, 0] += 1
        held[place, 0] += 1
        weight = rng.random() * (old + new)
        if customers and weight < old:
            at = _choose(pool, begin, end, d, weight)
            size = pool[at, 0]
            _take_table(pool, end, at)
            _put_table(pool, begin, end, size + 1)
            return
        _put_table(pool, begin, end, 1)
        seen[dish, 1] += 1
        held[place, 1] += 1


@njit(cache=True, nogil=True)
def sweep_level(
    level: Any, levels: Any, first: Any, links: Any, starts: Any, pool: Any, seen: Any, held: Any,
    discounts: Any, concentrations: Any, uniform: Any, rng: Any,
) -> Any:  # fmt: skip
    """Seats anew, one by one, as many customers of each dish of a level as it has.

    A lone customer of a dish always opens a table, so that moving it only moves a customer one level below, whose turn
    comes with that level.
    """
    dishes, places = np.empty(level + 1, dtype=np.int64), np.empty(level + 1, dtype=np.int64)
    below = np.empty(level + 1, dtype=np.float64)
    place = levels[level - 2] if level > 1 else held.shape[0] - 1
    for dish in range(levels[level - 1], levels[level]):
        while level > 1 and first[place + 1] <= dish:
            place += 1
        if seen[dish, 0] < 2:
            continue
        for _ in range(seen[dish, 0]):
            _remove(dish, place, level, links, starts, pool, seen, held, rng)
            _add(
                dish, place, level, links, starts, pool, seen, held,
                discounts, concentrations, uniform, rng, dishes, places, below,
            )  # fmt: skip
