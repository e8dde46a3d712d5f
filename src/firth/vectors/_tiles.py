"""Small matrix products between rows of two arrays, in vectors of eight numbers.

The compiler does not find this by itself, because it cannot know that the rows do not overlap. A tile of p x q rows
loads each number once for all its products: that is what makes shared negatives fast.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

WIDTH = 8
"""Numbers that are worked on at once: rows are padded to a multiple of it."""
_FLOAT = ir.FloatType()
_VECTOR = ir.VectorType(_FLOAT, WIDTH)
_FAST = ("fast",)


def _dots(p: int, q: int) -> Any:
    """S[s + i * stride + j] = row i of A times row j of B, for p and q rows that begin at the places a and b."""

    def dots(context: Any, A: Any, a: Any, B: Any, b: Any, S: Any, s: Any, stride: Any, n: Any) -> Any:  # noqa: N803
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            rows, columns = _rows(context, builder, signature.args, arguments, p, q)
            sums = [[cgutils.alloca_once(builder, _VECTOR) for _ in range(q)] for _ in range(p)]  # type: ignore[no-untyped-call]
            for i in range(p):
                for j in range(q):
                    builder.store(ir.Constant(_VECTOR, [0.0] * WIDTH), sums[i][j])
            with _every_eight(builder, arguments[-1]) as (place, _):
                xs = [_load(builder, builder.gep(row, [place])) for row in rows]
                ys = [_load(builder, builder.gep(column, [place])) for column in columns]
                for i in range(p):
                    for j in range(q):
                        builder.store(_plus(builder, builder.load(sums[i][j]), xs[i], ys[j]), sums[i][j])
            for i in range(p):
                for j in range(q):
                    target = _cell(context, builder, signature.args[4], arguments, i, j)
                    builder.store(_sum(builder, builder.load(sums[i][j])), target)
            return context.get_dummy_value()

        return _signature(A, B, S, p, q), generate

    return intrinsic(dots)


def _update(p: int, q: int) -> Any:
    """Row i of A += G[i, j] * row j of B and row j of B += G[i, j] * row i of A, all from the old values."""

    def update(context: Any, A: Any, a: Any, B: Any, b: Any, G: Any, g: Any, stride: Any, n: Any) -> Any:  # noqa: N803
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            rows, columns = _rows(context, builder, signature.args, arguments, p, q)
            cells = [[_cell(context, builder, signature.args[4], arguments, i, j) for j in range(q)] for i in range(p)]
            weights = [[_splat(builder, builder.load(cell)) for cell in row] for row in cells]
            with _every_eight(builder, arguments[-1]) as (place, _):
                x_places = [builder.gep(row, [place]) for row in rows]
                y_places = [builder.gep(column, [place]) for column in columns]
                xs = [_load(builder, x) for x in x_places]
                ys = [_load(builder, y) for y in y_places]
                for i in range(p):
                    total = xs[i]
                    for j in range(q):
                        total = _plus(builder, total, weights[i][j], ys[j])
                    _store(builder, total, x_places[i])
                for j in range(q):
                    total = ys[j]
                    for i in range(p):
                        total = _plus(builder, total, weights[i][j], xs[i])
                    _store(builder, total, y_places[j])
            return context.get_dummy_value()

        return _signature(A, B, G, p, q), generate

    return intrinsic(update)


def _signature(A: Any, B: Any, S: Any, p: int, q: int) -> Any:  # noqa: N803
    places: Any = types.UniTuple
    return types.void(A, places(types.intp, p), B, places(types.intp, q), S, types.intp, types.intp, types.intp)


def _rows(context: Any, builder: Any, kinds: Any, arguments: Any, p: int, q: int) -> tuple[list[Any], list[Any]]:
    """Pointers to the first number of each row."""
    found = []
    for array, count in ((0, p), (2, q)):
        data = context.make_array(kinds[array])(context, builder, arguments[array]).data
        places = cgutils.unpack_tuple(builder, arguments[array + 1], count)  # type: ignore[no-untyped-call]
        found.append([builder.gep(data, [place]) for place in places])
    return found[0], found[1]


def _cell(context: Any, builder: Any, kind: Any, arguments: Any, i: int, j: int) -> Any:
    """The pointer to the number in row i and column j of the small matrix."""
    data = context.make_array(kind)(context, builder, arguments[4]).data
    first, stride = arguments[5], arguments[6]
    row = builder.add(first, builder.mul(stride, ir.Constant(stride.type, i)))
    return builder.gep(data, [builder.add(row, ir.Constant(stride.type, j))])


def _every_eight(builder: Any, count: Any) -> Any:
    kind = count.type
    return cgutils.for_range_slice(builder, ir.Constant(kind, 0), count, ir.Constant(kind, WIDTH), kind)


def _load(builder: Any, pointer: Any) -> Any:
    value = builder.load(builder.bitcast(pointer, _VECTOR.as_pointer()))
    value.align = 4
    return value


def _store(builder: Any, value: Any, pointer: Any) -> None:
    builder.store(value, builder.bitcast(pointer, _VECTOR.as_pointer())).align = 4


def _plus(builder: Any, total: Any, one: Any, two: Any) -> Any:
    return builder.fadd(total, builder.fmul(one, two, flags=_FAST), flags=_FAST)


def _splat(builder: Any, number: Any) -> Any:
    """The number eight times."""
    empty = ir.Constant(_VECTOR, ir.Undefined)
    first = builder.insert_element(empty, number, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(first, empty, ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), [0] * WIDTH))


def _sum(builder: Any, vector: Any) -> Any:
    kind = ir.FunctionType(_FLOAT, [_FLOAT, _VECTOR])
    reduce = cgutils.get_or_insert_function(builder.module, kind, f"llvm.vector.reduce.fadd.v{WIDTH}f32")  # type: ignore[no-untyped-call]
    return builder.call(reduce, [ir.Constant(_FLOAT, 0.0), vector], fastmath=_FAST)


dots23, dots21, dots13, dots11 = _dots(2, 3), _dots(2, 1), _dots(1, 3), _dots(1, 1)
update23, update21, update13, update11 = _update(2, 3), _update(2, 1), _update(1, 3), _update(1, 1)
