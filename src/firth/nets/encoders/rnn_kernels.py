"""Recurrent cells over whole sequences: one loop forwards and one backwards, with hand-written gradients.

Time first: T steps, B batch size, C cells, W state width. The contributions of the inputs are one matrix product over
all steps, so that only the product with the previous state is left in the loop; so are the gradients of the weights.
`resets` (T, B) is true where a sequence of a packed row begins, and there the state is zero.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from firth.nets.encoders import _gru_kernels, _lstm_kernels


def simple(inputs: Tensor, recurrent: Tensor, first: Tensor, resets: Tensor | None = None) -> Tensor:
    """h[t] = tanh(inputs[t] + U h[t - 1]), (T, B, W) (Elman 1990)."""
    return cast(Tensor, _Simple.apply(inputs, recurrent, first, resets))  # type: ignore[no-untyped-call]


def lstm(
    inputs: Tensor,
    recurrent: Tensor,
    project: Tensor | None,
    first: tuple[Tensor, Tensor],
    resets: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The states (T, B, W) of long short-term memory, and the cells (B, C) after the last step.

    i, f, g, o = inputs[t] + U h[t - 1], concatenated; c[t] = sigmoid(f) c[t - 1] + sigmoid(i) tanh(g) and
    h[t] = P (sigmoid(o) tanh(c[t])), without P if there is no projection (Hochreiter and Schmidhuber 1997; Sak et al.
    2014). No gradient flows to the first state and through the last cells.
    """
    return cast(tuple[Tensor, Tensor], _Lstm.apply(inputs, recurrent, project, *first, resets))  # type: ignore[no-untyped-call]


def gru(inputs: Tensor, recurrent: Tensor, first: Tensor, resets: Tensor | None = None) -> Tensor:
    """The states (T, B, W) of gated recurrent units (Cho et al. 2014).

    r, z, n = inputs[t] and a, b, c = U h[t - 1], concatenated; h[t] = (1 - y) tanh(n + sigmoid(r + a) c) + y h[t - 1]
    with y = sigmoid(z + b). No gradient flows to the first state.
    """
    return cast(Tensor, _Gru.apply(inputs, recurrent, first, resets))  # type: ignore[no-untyped-call]


class _Simple(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, inputs: Tensor, recurrent: Tensor, first: Tensor, resets: Tensor | None) -> Tensor:
        factors = _reset_factors(resets, inputs)
        states = inputs.new_empty(inputs.shape)
        before = first
        for step, state in enumerate(states):
            before = _reset(before, factors[step])
            torch.addmm(inputs[step], before, recurrent.t(), out=state).tanh_()
            before = state
        ctx.save_for_backward(recurrent, states, first)
        ctx.factors = factors
        return states

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
        recurrent, states, first = ctx.saved_tensors
        d_inputs = 1 - states * states  # d tanh
        d_state: Tensor | None = None  # from the next step
        for step in range(len(states) - 1, -1, -1):
            d_inputs[step] *= gradient[step] if d_state is None else gradient[step] + d_state
            d_state = _reset(d_inputs[step] @ recurrent, ctx.factors[step])
        return d_inputs, _weight_gradient(d_inputs, _previous_states(states, first, ctx.factors)), None, None


class _Lstm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, recurrent: Tensor, project: Tensor | None, h: Tensor, c: Tensor, resets: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        steps, rows, four = inputs.shape
        gates_forward = _kernel_forward if _has_kernel(inputs) else torch_forward
        factors = _reset_factors(resets, inputs)
        gates, cells = inputs.new_empty(inputs.shape), inputs.new_empty(steps, rows, four // 4)
        states = inputs.new_empty(steps, rows, recurrent.shape[1])
        out = cells.new_empty(cells.shape[1:])
        first = (h, c)
        for step in range(steps):
            h, c = _reset(h, factors[step]), _reset(c, factors[step])
            torch.addmm(inputs[step], h, recurrent.t(), out=gates[step])
            gates_forward(gates[step], c, cells[step], states[step] if project is None else out)
            if project is not None:
                torch.mm(out, project.t(), out=states[step])
            h, c = states[step], cells[step]
        ctx.save_for_backward(recurrent, project, gates, cells, states, *first)
        ctx.factors = factors
        ctx.mark_non_differentiable(last := cells[-1].clone())
        return states, last

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        recurrent, project, gates, cells, states, first_h, first_c = ctx.saved_tensors
        gates_backward = _kernel_backward if _has_kernel(gates) else torch_backward
        d_inputs = torch.empty_like(gates)
        d_states = gradient.clone(memory_format=torch.contiguous_format)  # becomes the whole gradient of each state
        d_cells = torch.zeros_like(cells[0])
        for step in range(len(gates) - 1, -1, -1):
            factor, before = ctx.factors[step], cells[step - 1] if step else first_c
            d_out = d_states[step] if project is None else d_states[step] @ project
            gates_backward(gates[step], _reset(before, factor), cells[step], d_out, d_cells, d_inputs[step])
            d_cells = _reset(d_cells, factor)
            if step and factor is None:
                d_states[step - 1].addmm_(d_inputs[step], recurrent)
            elif step:
                d_states[step - 1].addcmul_(d_inputs[step] @ recurrent, factor)
        d_project = None
        if project is not None:
            d_project = _weight_gradient(d_states, gates[:, :, -cells.shape[2] :] * cells.tanh())
        d_recurrent = _weight_gradient(d_inputs, _previous_states(states, first_h, ctx.factors))
        return d_inputs, d_recurrent, d_project, None, None, None


class _Gru(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, inputs: Tensor, recurrent: Tensor, first: Tensor, resets: Tensor | None) -> Tensor:
        steps, rows, three = inputs.shape
        step_forward = _gru_kernel_forward if _has_kernel(inputs) else torch_gru_forward
        factors = _reset_factors(resets, inputs)
        gates = inputs.clone(memory_format=torch.contiguous_format)
        states, candidates = (inputs.new_empty(steps, rows, three // 3) for _ in range(2))
        hidden, before = gates.new_empty(rows, three), first
        for step in range(steps):
            before = _reset(before, factors[step])
            torch.mm(before, recurrent.t(), out=hidden)
            candidates[step] = hidden[:, -states.shape[2] :]
            step_forward(gates[step], hidden, before, states[step])
            before = states[step]
        ctx.save_for_backward(recurrent, gates, candidates, states, first)
        ctx.factors = factors
        return states

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
        recurrent, gates, candidates, states, first = ctx.saved_tensors
        step_backward = _gru_kernel_backward if _has_kernel(gates) else torch_gru_backward
        before = _previous_states(states, first, ctx.factors)
        d_inputs, d_hidden = torch.empty_like(gates), torch.empty_like(gates)
        d_states = gradient.clone(memory_format=torch.contiguous_format)  # becomes the whole gradient of each state
        for step in range(len(gates) - 1, -1, -1):
            step_backward(gates[step], candidates[step], before[step], d_states[step], d_inputs[step], d_hidden[step])
            if step:
                flow = torch.addmm(d_states[step], d_hidden[step], recurrent)
                d_states[step - 1] += _reset(flow, ctx.factors[step])
        return d_inputs, _weight_gradient(d_hidden, before), None, None


def torch_gru_forward(gates: Tensor, hidden: Tensor, before: Tensor, states: Tensor) -> None:
    """`_gru_kernels.forward` for any dtype and device."""
    (r, z, n), (u_r, u_z, u_n) = gates.chunk(3, 1), hidden.chunk(3, 1)
    r.add_(u_r).sigmoid_()
    z.add_(u_z).sigmoid_()
    n.addcmul_(r, u_n).tanh_()
    torch.lerp(n, before, z, out=states)


def torch_gru_backward(
    gates: Tensor, candidate: Tensor, before: Tensor, d_states: Tensor, d_inputs: Tensor, d_hidden: Tensor
) -> None:
    """`_gru_kernels.backward` for any dtype and device."""
    r, z, n = gates.chunk(3, 1)
    d_n = d_states * (1 - z) * (1 - n * n)
    d_z = d_states * (before - n) * z * (1 - z)
    d_r = d_n * candidate * r * (1 - r)
    torch.cat([d_r, d_z, d_n], 1, out=d_inputs)
    torch.cat([d_r, d_z, d_n * r], 1, out=d_hidden)
    d_states *= z


def torch_forward(gates: Tensor, before: Tensor, cells: Tensor, out: Tensor) -> None:
    """`_lstm_kernels.forward` for any dtype and device."""
    i, f, g, o = gates.chunk(4, 1)
    for gate in (i, f, o):
        gate.sigmoid_()
    torch.mul(f, before, out=cells).addcmul_(i, g.tanh_())
    torch.mul(o, cells.tanh(), out=out)


def torch_backward(
    gates: Tensor, before: Tensor, cells: Tensor, d_out: Tensor, d_cells: Tensor, d_inputs: Tensor
) -> None:
    """`_lstm_kernels.backward` for any dtype and device."""
    i, f, g, o = gates.chunk(4, 1)
    tanh = cells.tanh()
    d_cells += d_out * o * (1 - tanh * tanh)
    gradients = [
        d_cells * g * i * (1 - i),
        d_cells * before * f * (1 - f),
        d_cells * i * (1 - g * g),
        d_out * tanh * o * (1 - o),
    ]
    torch.cat(gradients, 1, out=d_inputs)
    d_cells *= f


def _kernel_forward(*tensors: Tensor) -> None:
    _lstm_kernels.forward(*(one.numpy() for one in tensors))


def _kernel_backward(*tensors: Tensor) -> None:
    _lstm_kernels.backward(*(one.numpy() for one in tensors))


def _gru_kernel_forward(*tensors: Tensor) -> None:
    _gru_kernels.forward(*(one.numpy() for one in tensors))


def _gru_kernel_backward(*tensors: Tensor) -> None:
    _gru_kernels.backward(*(one.numpy() for one in tensors))


def _has_kernel(tensor: Tensor) -> bool:
    return tensor.dtype == torch.float32 and tensor.device.type == "cpu"


def _reset_factors(resets: Tensor | None, like: Tensor) -> list[Tensor | None]:
    """For each step a factor (B, 1) of the previous state, 0 in rows where a sequence begins; None without any."""
    if resets is None:
        return [None] * len(like)
    factors = (~resets).to(like.dtype)[..., None]
    return [factor if has_reset else None for factor, has_reset in zip(factors, resets.any(1).tolist(), strict=True)]


def _reset(values: Tensor, factor: Tensor | None) -> Tensor:
    return values if factor is None else values * factor


def _previous_states(states: Tensor, first: Tensor, factors: list[Tensor | None]) -> Tensor:
    before = torch.cat([first[None], states[:-1]])
    for step, factor in enumerate(factors):
        if factor is not None:
            before[step] *= factor
    return before


def _weight_gradient(outputs: Tensor, inputs: Tensor) -> Tensor:
    """The sum of outer products over steps and rows."""
    return outputs.flatten(0, 1).t() @ inputs.flatten(0, 1)
