"""Tables: rows moved together where they lie, and random rows that come in parts."""

from __future__ import annotations

import numpy as np
import pytest

from firth.vectors.tables import random_table, table_from_matrix, zero_table


@pytest.mark.parametrize(("rows", "dimension"), [(1, 1), (5, 16), (4097, 3), (9000, 20), (0, 7)])
def test_packed_rows_are_the_same_and_take_no_new_memory(rows: int, dimension: int) -> None:
    matrix = np.random.default_rng(0).standard_normal((rows, dimension), dtype=np.float32)
    table = table_from_matrix(matrix, spare=3)
    packed = table.compact()
    assert np.array_equal(packed, matrix)
    assert packed.flags.c_contiguous
    assert not rows or np.shares_memory(packed, table.flat)


def test_random_rows_are_drawn_from_a_stream_for_each_65536() -> None:
    table, one = random_table(70_000, 3, seed=7, first=5, spare=2), np.float32(1)
    drawn = [np.random.default_rng([7, begin]).random((65_536, 3), dtype=np.float32) for begin in (0, 65_536)]
    expected = (2 * np.concatenate(drawn)[:70_000] - one) / np.float32(3)
    expected[:5] = 0
    assert np.array_equal(table.matrix(), expected)


def test_rows_begin_at_lines_of_cache() -> None:
    table = zero_table(4, 100)
    assert (table.stride, table.width) == (112, 104)
    assert table.flat.ctypes.data % 64 == 0
