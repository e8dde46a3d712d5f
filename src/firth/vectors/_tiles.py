"""Numba intrinsics for small matrix products between rows of two arrays, in SIMD vectors of eight floats.

The compiler cannot vectorise this itself, because it does not know that the rows do not overlap. A tile of p x q rows
loads each number once for all its products: that makes shared negative samples fast.
"""

from __future__ import annotations

from itertools import product
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

WIDTH = 8  # SIMD width: rows are padded to a multiple of it
_FLOAT = ir.FloatType()
_VECTOR = ir.VectorType(_FLOAT, WIDTH)
_FAST = ("fast",)


def _dots(context: Any, A: Any, a: Any, B: Any, b: Any, S: Any, s: Any, stride: Any, n: Any) -> Any:  # noqa: N803
    """S[s + i * stride + j] = row i of A times row j of B, for the rows that begin at the offsets a and b."""
    p, q = len(a), len(b)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        rows, columns = _rows(context, builder, signature.args, arguments, p, q)
        sums = [[cgutils.alloca_once(builder, _VECTOR) for _ in range(q)] for _ in range(p)]  # type: ignore[no-untyped-call]
        for i, j in product(range(p), range(q)):
            builder.store(ir.Constant(_VECTOR, [0.0] * WIDTH), sums[i][j])
        with _loop_simd(builder, arguments[-1]) as (offset, _):
            xs = [_load(builder, builder.gep(row, [offset])) for row in rows]
            ys = [_load(builder, builder.gep(column, [offset])) for column in columns]
            for i, j in product(range(p), range(q)):
                builder.store(_multiply_add(builder, builder.load(sums[i][j]), xs[i], ys[j]), sums[i][j])
        for i, j in product(range(p), range(q)):
            target = _cell(context, builder, signature.args[4], arguments, i, j)
            builder.store(_sum(builder, builder.load(sums[i][j])), target)
        return context.get_dummy_value()

    return _signature(A, B, S, p, q), generate


def _update(context: Any, A: Any, a: Any, B: Any, b: Any, G: Any, g: Any, stride: Any, n: Any) -> Any:  # noqa: N803
    """Row i of A += G[i, j] * row j of B and row j of B += G[i, j] * row i of A, all from the old values."""
    p, q = len(a), len(b)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        rows, columns = _rows(context, builder, signature.args, arguments, p, q)
        cells = [[_cell(context, builder, signature.args[4], arguments, i, j) for j in range(q)] for i in range(p)]
        weights = [[_splat(builder, builder.load(cell)) for cell in row] for row in cells]
        with _loop_simd(builder, arguments[-1]) as (offset, _):
            x_pointers = [builder.gep(row, [offset]) for row in rows]
            y_pointers = [builder.gep(column, [offset]) for column in columns]
            xs = [_load(builder, x) for x in x_pointers]
            ys = [_load(builder, y) for y in y_pointers]
            for i in range(p):
                total = xs[i]
                for j in range(q):
                    total = _multiply_add(builder, total, weights[i][j], ys[j])
                _store(builder, total, x_pointers[i])
            for j in range(q):
                total = ys[j]
                for i in range(p):
                    total = _multiply_add(builder, total, weights[i][j], xs[i])
                _store(builder, total, y_pointers[j])
        return context.get_dummy_value()

    return _signature(A, B, G, p, q), generate


def _signature(A: Any, B: Any, S: Any, p: int, q: int) -> Any:  # noqa: N803
    offsets: Any = types.UniTuple
    return types.void(A, offsets(types.intp, p), B, offsets(types.intp, q), S, types.intp, types.intp, types.intp)


def _rows(context: Any, builder: Any, kinds: Any, arguments: Any, p: int, q: int) -> tuple[list[Any], list[Any]]:
    """Pointers to the first number of each row."""
    found = []
    for array, count in ((0, p), (2, q)):
        data = context.make_array(kinds[array])(context, builder, arguments[array]).data
        offsets = cgutils.unpack_tuple(builder, arguments[array + 1], count)  # type: ignore[no-untyped-call]
        found.append([builder.gep(data, [offset]) for offset in offsets])
    return found[0], found[1]


def _cell(context: Any, builder: Any, kind: Any, arguments: Any, i: int, j: int) -> Any:
    """The pointer to row i and column j of the small matrix."""
    data = context.make_array(kind)(context, builder, arguments[4]).data
    first, stride = arguments[5], arguments[6]
    row = builder.add(first, builder.mul(stride, ir.Constant(stride.type, i)))
    return builder.gep(data, [builder.add(row, ir.Constant(stride.type, j))])


def _loop_simd(builder: Any, count: Any) -> Any:
    kind = count.type
    return cgutils.for_range_slice(builder, ir.Constant(kind, 0), count, ir.Constant(kind, WIDTH), kind)


def _load(builder: Any, pointer: Any) -> Any:
    value = builder.load(builder.bitcast(pointer, _VECTOR.as_pointer()))
    value.align = 4
    return value


def _store(builder: Any, value: Any, pointer: Any) -> None:
    builder.store(value, builder.bitcast(pointer, _VECTOR.as_pointer())).align = 4


def _multiply_add(builder: Any, total: Any, one: Any, two: Any) -> Any:
    return builder.fadd(total, builder.fmul(one, two, flags=_FAST), flags=_FAST)


def _splat(builder: Any, number: Any) -> Any:
    empty = ir.Constant(_VECTOR, ir.Undefined)
    first = builder.insert_element(empty, number, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(first, empty, ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), [0] * WIDTH))


def _sum(builder: Any, vector: Any) -> Any:
    kind = ir.FunctionType(_FLOAT, [_FLOAT, _VECTOR])
    reduce = cgutils.get_or_insert_function(builder.module, kind, f"llvm.vector.reduce.fadd.v{WIDTH}f32")  # type: ignore[no-untyped-call]
    return builder.call(reduce, [ir.Constant(_FLOAT, 0.0), vector], fastmath=_FAST)


dots: Any = intrinsic(_dots)
update: Any = intrinsic(_update)
