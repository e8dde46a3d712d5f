"""CPU prefetch of array elements in Numba kernels, so that many cache misses overlap."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic


def _prefetch(context: Any, array: Any, index: Any) -> Any:
    """Prefetch `array[index]`; the index may be out of range, since nothing is read."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array_type = signature.args[0]
        structure = context.make_array(array_type)(context, builder, arguments[0])
        pointer = cgutils.get_item_pointer(context, builder, array_type, structure, [arguments[1]], wraparound=False)  # type: ignore[no-untyped-call]
        integer, byte = ir.IntType(32), ir.IntType(8).as_pointer()
        function = cgutils.get_or_insert_function(  # type: ignore[no-untyped-call]
            builder.module, ir.FunctionType(ir.VoidType(), [byte, integer, integer, integer]), "llvm.prefetch.p0"
        )
        builder.call(function, [builder.bitcast(pointer, byte), integer(0), integer(3), integer(1)])
        return context.get_dummy_value()

    return types.void(array, types.intp), generate


prefetch: Any = intrinsic(_prefetch)
