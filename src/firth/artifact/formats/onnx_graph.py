"""OnnxGraph: an ONNX graph under construction. Weights: the tensors of all graphs of a folder, in one file.

The graphs are built operator by operator from the modules of a network. Nothing is traced, so that no axis is fixed by
an example, and the `onnx` package is all that is needed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from types import ModuleType
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
from torch import Tensor

from firth.errors import AbilityError

OPSET = 17
"""The version of ONNX's operators, of 2022: every runtime since then has them."""
IR_VERSION = 8
WEIGHTS = "weights.bin"
_INLINE = 1024  # bytes up to which a tensor is stored in the graph itself
_ALIGNMENT = 64
Operand = "Value | float | int | npt.NDArray[Any]"


def require_onnx() -> ModuleType:
    """The `onnx` package; `AbilityError` if it is not installed."""
    try:
        import onnx
    except ImportError:
        raise AbilityError('the onnx format needs the onnx package: pip install "firth[onnx]".') from None
    return onnx


class Weights:
    """A file of tensors, to which graphs refer; those of equal content are stored once."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._found: dict[str, tuple[int, int]] = {}

    def __contains__(self, array: npt.NDArray[Any]) -> bool:
        return _digest(array) in self._found

    def add(self, array: npt.NDArray[Any]) -> tuple[int, int]:
        """The offset and the number of bytes of an array in the file."""
        key = _digest(array)
        if key not in self._found:
            self._file.write(b"\0" * (-self._file.tell() % _ALIGNMENT))
            data = array.tobytes()
            self._found[key] = (self._file.tell(), len(data))
            self._file.write(data)
        return self._found[key]


def _digest(array: npt.NDArray[Any]) -> str:
    return f"{array.dtype}{array.shape}{hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()}"


class Value:
    """A tensor of a graph. Python floats are constants of the type float32, integers of the type int64."""

    def __init__(self, graph: OnnxGraph, name: str) -> None:
        self.graph, self.name = graph, name

    def __add__(self, other: Any) -> Value:
        return self.graph.op("Add", self, other)

    def __sub__(self, other: Any) -> Value:
        return self.graph.op("Sub", self, other)

    def __mul__(self, other: Any) -> Value:
        return self.graph.op("Mul", self, other)

    def __truediv__(self, other: Any) -> Value:
        return self.graph.op("Div", self, other)

    def __matmul__(self, other: Any) -> Value:
        return self.graph.op("MatMul", self, other)

    def __and__(self, other: Any) -> Value:
        return self.graph.op("And", self, other)

    def __or__(self, other: Any) -> Value:
        return self.graph.op("Or", self, other)

    def __invert__(self) -> Value:
        return self.graph.op("Not", self)

    def __lt__(self, other: Any) -> Value:
        return self.graph.op("Less", self, other)

    def __le__(self, other: Any) -> Value:
        return self.graph.op("LessOrEqual", self, other)

    def __ge__(self, other: Any) -> Value:
        return self.graph.op("GreaterOrEqual", self, other)

    def equals(self, other: Any) -> Value:
        """Whether entries are equal."""
        return self.graph.op("Equal", self, other)

    def unsqueeze(self, *axes: int) -> Value:
        """With new axes of length 1."""
        return self.graph.op("Unsqueeze", self, np.array(axes))

    def squeeze(self, *axes: int) -> Value:
        """Without axes of length 1."""
        return self.graph.op("Squeeze", self, np.array(axes))

    def reshape(self, *shape: int) -> Value:
        """Another shape; 0 keeps an axis, and -1 is what is left."""
        return self.graph.op("Reshape", self, np.array(shape))

    def transpose(self, *order: int) -> Value:
        """The axes in another order."""
        return self.graph.op("Transpose", self, perm=list(order))

    def slice(self, begin: Any, end: Any, axis: int) -> Value:
        """A part of an axis; `begin` and `end` are numbers or values of shape (1,)."""
        bounds = [one if isinstance(one, Value) else np.array([one]) for one in (begin, end)]
        return self.graph.op("Slice", self, *bounds, np.array([axis]))

    def gather(self, indices: Any, axis: int = 0) -> Value:
        """The entries at some indices of an axis."""
        return self.graph.op("Gather", self, indices, axis=axis)

    def sum(self, axis: int, keep: bool = False) -> Value:
        """The sum over an axis."""
        return self.graph.op("ReduceSum", self, np.array([axis]), keepdims=int(keep))

    def size(self, axis: int) -> Value:
        """(1,): the length of an axis."""
        return self.graph.op("Shape", self, start=axis, end=axis + 1)

    def cast(self, kind: str) -> Value:
        """Another type: FLOAT, INT32, INT64 or BOOL."""
        return self.graph.op("Cast", self, to=getattr(self.graph.onnx.TensorProto, kind))


class OnnxGraph:
    """An ONNX graph that is built node by node."""

    def __init__(self, weights: Weights, outer: OnnxGraph | None = None) -> None:
        """`outer` is the graph that this one is the body of a loop of; its values may be used."""
        self.onnx = require_onnx()
        self.weights, self.outer = weights, outer
        self.nodes: list[Any] = []
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []
        self._initializers: dict[str, Any] = {}
        self._constants: dict[str, str] = {}
        self._count = 0

    def new_name(self, kind: str) -> str:
        """A name that no other value has."""
        if self.outer is not None:
            return self.outer.new_name(kind)
        self._count += 1
        return f"{kind}_{self._count}"

    def input(self, name: str, kind: str, axes: Sequence[str | int] | None) -> Value:
        """A new input of that element type; axes with a name are of any length."""
        made = self.onnx.helper.make_tensor_value_info(name, getattr(self.onnx.TensorProto, kind), axes)
        self.inputs.append(made)
        return Value(self, name)

    def output(self, value: Value, name: str, axes: Sequence[str | int] | None, kind: str = "FLOAT") -> None:
        """Make a value an output of that name."""
        self.nodes.append(self.onnx.helper.make_node("Identity", [value.name], [name]))
        element = getattr(self.onnx.TensorProto, kind)
        self.outputs.append(self.onnx.helper.make_tensor_value_info(name, element, axes))

    def op(self, kind: str, *operands: Any, **attributes: Any) -> Value:
        """The result of an operator."""
        return self.ops(kind, 1, *operands, **attributes)[0]

    def ops(self, kind: str, count: int, *operands: Any, **attributes: Any) -> list[Value]:
        """The results of an operator that has several; an operand of None is left out."""
        names = ["" if one is None else self.value(one).name for one in operands]
        made = [self.new_name(kind) for _ in range(count)]
        self.nodes.append(self.onnx.helper.make_node(kind, names, made, **attributes))
        return [Value(self, name) for name in made]

    def value(self, operand: Any) -> Value:
        """The operand itself, or the constant that a number, an array or a tensor is."""
        if isinstance(operand, Value):
            return operand
        if isinstance(operand, Tensor):
            operand = operand.detach().numpy()
        if isinstance(operand, bool | int | float):
            kind = np.bool_ if isinstance(operand, bool) else np.int64 if isinstance(operand, int) else np.float32
            operand = np.array(operand, dtype=kind)
        return self._constant(np.asarray(operand, order="C"))

    def matrix(self, weight: Tensor) -> Value:
        """(inputs, outputs) of a linear layer's weight (outputs, inputs), which is stored once if it is a table."""
        array = weight.detach().numpy()
        return self.value(array).transpose(1, 0) if array in self.weights else self.value(array.T)

    def concat(self, values: Sequence[Any], axis: int) -> Value:
        """The concatenation along an axis."""
        return self.op("Concat", *values, axis=axis) if len(values) > 1 else self.value(values[0])

    def range(self, size: Value, begin: Value | int = 0) -> Value:
        """(size,): the integers from `begin` on; the size has the shape (1,)."""
        first = self.value(begin)
        return self.op("Range", first, first + size.squeeze(0), 1)

    def where(self, condition: Value, one: Any, other: Any) -> Value:
        """Entries of one where a condition holds, of the other elsewhere."""
        return self.op("Where", condition, one, other)

    def body(self) -> OnnxGraph:
        """A new graph for the body of a loop in this one."""
        return OnnxGraph(self.weights, self)

    def made(self, name: str) -> Any:
        """The graph as a protocol buffer."""
        found = list(self._initializers.values())
        return self.onnx.helper.make_graph(self.nodes, name, self.inputs, self.outputs, initializer=found)

    def model(self, name: str) -> Any:
        """The model of this graph, after a check."""
        opset = self.onnx.helper.make_opsetid("", OPSET)
        made = self.onnx.helper.make_model(
            self.made(name), producer_name="firth", opset_imports=[opset], ir_version=IR_VERSION
        )
        return made

    def _constant(self, array: npt.NDArray[Any]) -> Value:
        if self.outer is not None:
            return self.outer._constant(array)
        key = _digest(array)
        if key not in self._constants:
            name = self.new_name("constant")
            self._constants[key] = name
            self._initializers[name] = self._tensor(name, array)
        return Value(self, self._constants[key])

    def _tensor(self, name: str, array: npt.NDArray[Any]) -> Any:
        if array.nbytes <= _INLINE:
            return self.onnx.numpy_helper.from_array(array, name)
        made = self.onnx.TensorProto(
            name=name, dims=array.shape, data_type=self.onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
        )
        made.data_location = self.onnx.TensorProto.EXTERNAL
        offset, length = self.weights.add(array)
        for key, entry in {"location": WEIGHTS, "offset": offset, "length": length}.items():
            made.external_data.add(key=key, value=str(entry))
        return made
