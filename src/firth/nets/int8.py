"""Weights in 8 bits, and products with them.

A matrix W (outputs, inputs) is stored as integers q from -127 to 127 and a scale s for each output: W = s q. In a
product each row of x has a scale of its own, too, so that x W' is s r times a product of integers, which is exact: a
row's result does not depend on the other rows of its batch. Where the processor has no instructions for dot products
of bytes (VNNI), sums of two products are kept in 16 bits and saturate; weights then have 7 bits, whose sums fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from firth.errors import ArtifactError
from firth.nets._int8_kernels import dequantise, quantise

LEVELS = 127
"""The largest integer of 8 bits."""
REDUCED_LEVELS = 63
"""The largest integer of 7 bits: 2 * 255 * 63 < 2**15."""
SCALE = ".scale"
"""The ending of the name of the array with the scales of an array of integers."""
_MIN_SIZE = 256 * 256  # numbers of a matrix from which on products of integers are faster
_ROWS = 256  # multiplied at a time, so that sums stay in the processor's cache
_TINY = 1e-30
Arrays = Mapping[str, npt.NDArray[Any]]


class Int8Matrix:
    """A matrix in 8 bits, with a scale for each row."""

    def __init__(self, values: Tensor, scales: Tensor) -> None:
        """`values` (rows, columns) are int8 and `scales` (rows,) float32."""
        self.values, self.scales = values, scales
        levels = exact_levels()
        self.is_fast = levels > 0 and values.numel() >= _MIN_SIZE
        """Whether products use the integers."""
        if self.is_fast:
            self._columns, self._factors = _for_products(values, scales, levels)
        self._version: int | None = None

    @classmethod
    def of(cls, weight: Tensor) -> Int8Matrix:
        """The nearest matrix to a weight (rows, columns).

        >>> found = Int8Matrix.of(torch.tensor([[127.0, -1.2], [0.0, 0.0]]))
        >>> found.values.tolist(), found.dequantise().tolist()
        ([[127, -1], [0, 0]], [[127.0, -1.0], [0.0, 0.0]])
        """
        weight = weight.detach().float()
        scales = (weight.abs().amax(1) / LEVELS).clamp(min=_TINY)
        return cls((weight / scales[:, None]).round().clamp(-LEVELS, LEVELS).to(torch.int8), scales)

    def dequantise(self) -> Tensor:
        """(rows, columns): the matrix in float32."""
        return self.values.float() * self.scales[:, None]

    def attach(self, weight: Tensor) -> None:
        """Use this matrix in products with a weight of the same numbers, until the weight is changed."""
        self._version = weight._version
        weight.int8 = self  # type: ignore[attr-defined]

    def is_current(self, weight: Tensor) -> bool:
        """Whether the weight has not been changed since, as training does."""
        return weight._version == self._version

    def product(self, x: Tensor, bias: Tensor | None, some: slice = slice(None)) -> Tensor:
        """x W' + b for x (..., columns) and some rows of W, with integers of 8 bits for the rows of x."""
        flat = x.reshape(-1, x.shape[-1]).contiguous()
        columns, scales = self._columns[:, some], self._factors[some].numpy()
        added = np.zeros(len(scales), dtype=np.float32) if bias is None else bias.detach().numpy()
        out = flat.new_empty(len(flat), len(scales))
        for begin in range(0, len(flat), _ROWS):
            rows, row_scales = quantise_rows(flat[begin : begin + _ROWS])
            sums = torch._int_mm(rows, columns)
            dequantise(sums.numpy(), scales, row_scales.numpy(), added, out[begin : begin + _ROWS].numpy())
        return out.view(*x.shape[:-1], len(scales))


def _for_products(values: Tensor, scales: Tensor, levels: int) -> tuple[Tensor, Tensor]:
    """(columns, rows) and (rows,): the integers and scales of products, reduced to the levels of this processor."""
    if levels < LEVELS:
        values = (values.float() * (levels / LEVELS)).round().to(torch.int8)
        scales = scales * (LEVELS / levels)
    return values.t(), scales


def quantise_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """int8 (rows, columns) and the scale of each row (rows,): x is about the integers times the scales.

    >>> rows, scales = quantise_rows(torch.tensor([[254.0, -2.0], [0.0, 0.0]]))
    >>> rows.tolist(), scales.tolist()[0]
    ([[127, -1], [0, 0]], 2.0)
    """
    rows, scales = torch.empty(x.shape, dtype=torch.int8), x.new_empty(len(x))
    quantise(x.detach().numpy(), rows.numpy(), scales.numpy(), np.float32(LEVELS), np.float32(_TINY))
    return rows, scales


def int8_of(weight: Tensor) -> Int8Matrix | None:
    """The matrix that is attached to a weight, if the weight still has its numbers."""
    found: Int8Matrix | None = getattr(weight, "int8", None)
    return found if found is not None and found.is_current(weight) else None


@cache
def exact_levels() -> int:
    """The largest weight with which products of integers are exact on this processor: 127, 63, or 0 if none is.

    It is measured and not read from the names of the processor's features: with the largest bytes, sums of 16 bits
    would saturate.
    """
    return next((levels for levels in (LEVELS, REDUCED_LEVELS) if is_exact(levels)), 0)


def is_exact(levels: int) -> bool:
    """Whether products of the largest bytes with weights of that size are exact, for few and for many rows."""
    try:
        cases = product((1, 17, 64), (LEVELS, -LEVELS), (levels, -levels))
        return all(_is_exact(*case) for case in cases)
    except (RuntimeError, AttributeError):  # a build of PyTorch without this product
        return False


def _is_exact(rows: int, one: int, other: int, inputs: int = 128, outputs: int = 64) -> bool:
    x = torch.full((rows, inputs), one, dtype=torch.int8)
    weight = torch.full((outputs, inputs), other, dtype=torch.int8)
    return bool((torch._int_mm(x, weight.t()) == one * other * inputs).all())


def pack_arrays(tensors: Mapping[str, Tensor]) -> dict[str, npt.NDArray[Any]]:
    """The arrays that an artifact saves: integers and scales of weights that have them, other tensors as they are."""
    found: dict[str, npt.NDArray[Any]] = {}
    for name, tensor in tensors.items():
        matrix = int8_of(tensor)
        if matrix is None:
            found[name] = tensor.detach().numpy()
        else:
            found |= {name: matrix.values.numpy(), name + SCALE: matrix.scales.numpy()}
    return found


def unpack_arrays(arrays: Arrays) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Int8Matrix]]:
    """The arrays of an artifact in float32, and the matrices of those that were saved in 8 bits."""
    matrices = {}
    for name, scales in arrays.items():
        values = arrays.get(name.removesuffix(SCALE)) if name.endswith(SCALE) else None
        if values is None or values.dtype != np.int8:
            continue
        if values.ndim != 2 or scales.dtype != np.float32 or scales.shape != values.shape[:1] or not (scales > 0).all():
            raise ArtifactError(
                f"the scales {name!r:.80} do not fit their weights: copy the folder again, or compress the model again."
            )
        parts = (torch.from_numpy(np.array(one)) for one in (values, scales))
        matrices[name.removesuffix(SCALE)] = Int8Matrix(*parts)
    if not matrices:
        return dict(arrays), {}
    plain = {name: array for name, array in arrays.items() if name.removesuffix(SCALE) not in matrices}
    return plain | {name: one.dequantise().numpy() for name, one in matrices.items()}, matrices
