"""Recurrent cells over a whole row: one loop forwards and one backwards, with gradients written by hand.

Everything is time first: T steps, R rows, C numbers of a cell, W of a state. What the inputs add to each step comes
from one product over all steps, so that only the product with the state before is left in the loop; in the same way
the gradients of the weights are one product over all steps. A row may hold several parts: `begins` (T, R) is true where
one begins, and there the state is zero again.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from firth.nets.encoders import _cells_kernels


def simple(added: Tensor, recurrent: Tensor, first: Tensor, begins: Tensor | None = None) -> Tensor:
    """h[t] = tanh(added[t] + U h[t - 1]), (T, R, W) (Elman 1990)."""
    return cast(Tensor, _Simple.apply(added, recurrent, first, begins))  # type: ignore[no-untyped-call]


def lstm(
    added: Tensor,
    recurrent: Tensor,
    project: Tensor | None,
    first: tuple[Tensor, Tensor],
    begins: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The states (T, R, W) of long short-term memory, and the cells (R, C) after the last step.

    i, f, g, o = added[t] + U h[t - 1], side by side; c[t] = sigmoid(f) c[t - 1] + sigmoid(i) tanh(g) and
    h[t] = P (sigmoid(o) tanh(c[t])); without P that is the state itself (Hochreiter and Schmidhuber 1997; Sak et al.
    2014). No gradient goes to the first state and through the last cells.
    """
    return cast(tuple[Tensor, Tensor], _Lstm.apply(added, recurrent, project, *first, begins))  # type: ignore[no-untyped-call]


class _Simple(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, added: Tensor, recurrent: Tensor, first: Tensor, begins: Tensor | None) -> Tensor:
        kept = _kept(begins, added)
        states = added.new_empty(added.shape)
        before = first
        for step, state in enumerate(states):
            before = _keep(before, kept[step])
            torch.addmm(added[step], before, recurrent.t(), out=state).tanh_()
            before = state
        ctx.save_for_backward(recurrent, states, first)
        ctx.kept = kept
        return states

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
        recurrent, states, first = ctx.saved_tensors
        inner = 1 - states * states  # d tanh
        flows: Tensor | None = None  # into the state of the step, from the step after
        for step in range(len(states) - 1, -1, -1):
            inner[step] *= gradient[step] if flows is None else gradient[step] + flows
            flows = _keep(inner[step] @ recurrent, ctx.kept[step])
        return inner, _weight_gradient(inner, _before(states, first, ctx.kept)), None, None


class _Lstm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, added: Tensor, recurrent: Tensor, project: Tensor | None, h: Tensor, c: Tensor, begins: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        steps, rows, four = added.shape
        open_gates = _open_gates if _plain(added) else open_gates_slowly
        kept = _kept(begins, added)
        gates, cells = added.new_empty(added.shape), added.new_empty(steps, rows, four // 4)
        states = added.new_empty(steps, rows, recurrent.shape[1])
        out = cells.new_empty(cells.shape[1:])
        first = (h, c)
        for step in range(steps):
            h, c = _keep(h, kept[step]), _keep(c, kept[step])
            torch.addmm(added[step], h, recurrent.t(), out=gates[step])
            open_gates(gates[step], c, cells[step], states[step] if project is None else out)
            if project is not None:
                torch.mm(out, project.t(), out=states[step])
            h, c = states[step], cells[step]
        ctx.save_for_backward(recurrent, project, gates, cells, states, *first)
        ctx.kept = kept
        ctx.mark_non_differentiable(last := cells[-1].clone())
        return states, last

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        recurrent, project, gates, cells, states, first_h, first_c = ctx.saved_tensors
        close_gates = _close_gates if _plain(gates) else close_gates_slowly
        inner = torch.empty_like(gates)
        into = gradient.clone(memory_format=torch.contiguous_format)  # becomes the whole gradient of each state
        cell = torch.zeros_like(cells[0])
        for step in range(len(gates) - 1, -1, -1):
            kept, before = ctx.kept[step], cells[step - 1] if step else first_c
            out = into[step] if project is None else into[step] @ project
            close_gates(gates[step], _keep(before, kept), cells[step], out, cell, inner[step])
            cell = _keep(cell, kept)
            if step and kept is None:
                into[step - 1].addmm_(inner[step], recurrent)
            elif step:
                into[step - 1].addcmul_(inner[step] @ recurrent, kept)
        d_project = None
        if project is not None:
            d_project = _weight_gradient(into, gates[:, :, -cells.shape[2] :] * cells.tanh())
        return inner, _weight_gradient(inner, _before(states, first_h, ctx.kept)), d_project, None, None, None


def open_gates_slowly(gates: Tensor, before: Tensor, cells: Tensor, out: Tensor) -> None:
    """`_cells_kernels.forward` for any kind of number and device."""
    i, f, g, o = gates.chunk(4, 1)
    for gate in (i, f, o):
        gate.sigmoid_()
    torch.mul(f, before, out=cells).addcmul_(i, g.tanh_())
    torch.mul(o, cells.tanh(), out=out)


def close_gates_slowly(gates: Tensor, before: Tensor, cells: Tensor, out: Tensor, cell: Tensor, inner: Tensor) -> None:
    """`_cells_kernels.backward` for any kind of number and device."""
    i, f, g, o = gates.chunk(4, 1)
    bent = cells.tanh()
    cell += out * o * (1 - bent * bent)
    slopes = [cell * g * i * (1 - i), cell * before * f * (1 - f), cell * i * (1 - g * g), out * bent * o * (1 - o)]
    torch.cat(slopes, 1, out=inner)
    cell *= f


def _open_gates(*tensors: Tensor) -> None:
    _cells_kernels.forward(*(one.numpy() for one in tensors))


def _close_gates(*tensors: Tensor) -> None:
    _cells_kernels.backward(*(one.numpy() for one in tensors))


def _plain(tensor: Tensor) -> bool:
    """Whether kernels can read it."""
    return tensor.dtype == torch.float32 and tensor.device.type == "cpu"


def _kept(begins: Tensor | None, like: Tensor) -> list[Tensor | None]:
    """For each step a factor (R, 1) of the state before it, 0 in rows where a part begins; None where none does."""
    if begins is None:
        return [None] * len(like)
    factors = (~begins).to(like.dtype)[..., None]
    return [factor if begun else None for factor, begun in zip(factors, begins.any(1).tolist(), strict=True)]


def _keep(values: Tensor, factor: Tensor | None) -> Tensor:
    return values if factor is None else values * factor


def _before(states: Tensor, first: Tensor, kept: list[Tensor | None]) -> Tensor:
    """The state that each step began with."""
    before = torch.cat([first[None], states[:-1]])
    for step, factor in enumerate(kept):
        if factor is not None:
            before[step] *= factor
    return before


def _weight_gradient(outputs: Tensor, inputs: Tensor) -> Tensor:
    """The sum over steps and rows of the outer products."""
    return outputs.flatten(0, 1).t() @ inputs.flatten(0, 1)
