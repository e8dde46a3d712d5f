"""Numba kernels of the Gibbs sampler of a hierarchical Pitman-Yor process (Teh 2006).

A restaurant is a history, with one more for the empty history; its dishes are the words that follow, so a dish is a
node of the trie. Every table serves one dish and sends one customer to the node `links[node]` of the shorter history.
`dishes[node]` and `restaurants[r]` are the pairs (customers, tables) of a dish and of a whole restaurant.

Only the sizes of the tables of a node matter, not the seat of each customer. They are stored as a short list of pairs
(size, number of tables of that size) in `pool[starts[node]:starts[node + 1]]`, terminated by a number of 0 if it is not
full. k different sizes need 1 + 2 + ... + k customers, so a node with c occurrences needs space for about sqrt(2c)
pairs, and one with a single occurrence none.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def _take_table(pool: Any, end: Any, at: Any) -> Any:
    """Removes one table of the pair at `at`; the last pair fills the gap if it was the only one."""
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
def _choose_pair(pool: Any, begin: Any, end: Any, discount: Any, weight: Any) -> Any:
    """The pair at which the cumulative sum of number x (size - discount) exceeds `weight`."""
    for at in range(begin, end):
        if pool[at, 1] == 0:
            return at - 1
        weight -= pool[at, 1] * (pool[at, 0] - discount)
        if weight < 0:
            return at
    return end - 1


@njit(cache=True, nogil=True)
def _remove(
    dish: Any, restaurant: Any, level: Any, links: Any, starts: Any, pool: Any, dishes: Any, restaurants: Any, rng: Any
) -> Any:
    """Removes one customer of the dish, chosen uniformly; an empty table removes one from the next lower level too."""
    while True:
        begin, end = np.int64(starts[dish]), np.int64(starts[dish + 1])
        customers = dishes[dish, 0]
        dishes[dish, 0] -= 1
        restaurants[restaurant, 0] -= 1
        size = 1
        if begin < end:
            at = begin
            if dishes[dish, 1] > 1:
                at = _choose_pair(pool, begin, end, 0.0, rng.random() * customers)
            size = pool[at, 0]
            _take_table(pool, end, at)
            if size > 1:
                _put_table(pool, begin, end, size - 1)
        if size > 1:
            return
        dishes[dish, 1] -= 1
        restaurants[restaurant, 1] -= 1
        level -= 1
        if level == 0:
            return
        dish = np.int64(links[dish])
        restaurant = np.int64(links[restaurant]) if level > 1 else restaurants.shape[0] - 1


@njit(cache=True, nogil=True)
def _lower_orders(
    dish: Any, restaurant: Any, level: Any, links: Any, dishes: Any, restaurants: Any, discounts: Any,
    concentrations: Any, uniform: Any, nodes: Any, histories: Any, below: Any,
) -> Any:  # fmt: skip
    """Writes, for each level up to that of the dish, its node, its restaurant and the lower-order probability."""
    for n in range(level, 0, -1):
        nodes[n], histories[n] = dish, restaurant
        dish = np.int64(links[dish])
        restaurant = np.int64(links[restaurant]) if n > 2 else restaurants.shape[0] - 1
    below[1] = uniform
    for n in range(1, level):
        customers, tables = dishes[nodes[n], 0], dishes[nodes[n], 1]
        all_customers, all_tables = restaurants[histories[n], 0], restaurants[histories[n], 1]
        d, theta = discounts[n - 1], concentrations[n - 1]
        below[n + 1] = below[n]
        if all_customers:
            own = customers - d * tables
            below[n + 1] = (own + (theta + d * all_tables) * below[n]) / (theta + all_customers)


@njit(cache=True, nogil=True)
def _add(
    dish: Any, restaurant: Any, level: Any, links: Any, starts: Any, pool: Any, dishes: Any, restaurants: Any,
    discounts: Any, concentrations: Any, uniform: Any, rng: Any, nodes: Any, histories: Any, below: Any,
) -> Any:  # fmt: skip
    """Seats one more customer of the dish given all others; a new table adds one to the next lower level too.

    An old table has weight size - d, a new one (theta + d t) p(w | shorter history).
    """
    _lower_orders(
        dish, restaurant, level, links, dishes, restaurants, discounts, concentrations, uniform, nodes, histories, below
    )
    for n in range(level, 0, -1):
        dish, restaurant = nodes[n], histories[n]
        begin, end = np.int64(starts[dish]), np.int64(starts[dish + 1])
        customers, d = dishes[dish, 0], discounts[n - 1]
        old = customers - d * dishes[dish, 1]
        new = (concentrations[n - 1] + d * restaurants[restaurant, 1]) * below[n]
        dishes[dish, 0] += 1
        restaurants[restaurant, 0] += 1
        weight = rng.random() * (old + new)
        if customers and weight < old:
            at = _choose_pair(pool, begin, end, d, weight)
            size = pool[at, 0]
            _take_table(pool, end, at)
            _put_table(pool, begin, end, size + 1)
            return
        _put_table(pool, begin, end, 1)
        dishes[dish, 1] += 1
        restaurants[restaurant, 1] += 1


@njit(cache=True, nogil=True)
def sweep_level(
    level: Any, levels: Any, first: Any, links: Any, starts: Any, pool: Any, dishes: Any, restaurants: Any,
    discounts: Any, concentrations: Any, uniform: Any, rng: Any,
) -> Any:  # fmt: skip
    """Reseats the customers of each dish of a level one by one.

    A single customer of a dish always opens a table, so reseating it would only move a customer of the next lower
    level, which has its own sweep.
    """
    nodes, histories = np.empty(level + 1, dtype=np.int64), np.empty(level + 1, dtype=np.int64)
    below = np.empty(level + 1, dtype=np.float64)
    restaurant = levels[level - 2] if level > 1 else restaurants.shape[0] - 1
    for dish in range(levels[level - 1], levels[level]):
        while level > 1 and first[restaurant + 1] <= dish:
            restaurant += 1
        if dishes[dish, 0] < 2:
            continue
        for _ in range(dishes[dish, 0]):
            _remove(dish, restaurant, level, links, starts, pool, dishes, restaurants, rng)
            _add(
                dish, restaurant, level, links, starts, pool, dishes, restaurants,
                discounts, concentrations, uniform, rng, nodes, histories, below,
            )  # fmt: skip
