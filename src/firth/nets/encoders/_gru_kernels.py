"""One step of gated recurrent units for a whole batch, in float32: one pass over the data of a step.

B batch size, W width of the state; gates are (B, 3 W): reset, update and candidate.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from firth.nets.encoders._lstm_kernels import fast_sigmoid, fast_tanh

_ONE = np.float32(1)
_FAST = {"contract", "nsz"}


@njit(cache=True, nogil=True, error_model="numpy", fastmath=_FAST)
def forward(gates: Any, hidden: Any, before: Any, states: Any) -> None:
    """Apply the activations of the gates in place, and write the new states.

    `gates` has the contributions of the inputs, `hidden` (B, 3 W) those of the states `before`.
    """
    rows, width = states.shape
    for row in range(rows):
        r, z, n = gates[row, :width], gates[row, width : 2 * width], gates[row, 2 * width :]
        u_r, u_z, u_n = hidden[row, :width], hidden[row, width : 2 * width], hidden[row, 2 * width :]
        old, new = before[row], states[row]
        for k in range(width):
            r_k, z_k = fast_sigmoid(r[k] + u_r[k]), fast_sigmoid(z[k] + u_z[k])
            n_k = fast_tanh(n[k] + r_k * u_n[k])
            r[k], z[k], n[k] = r_k, z_k, n_k
            new[k] = n_k + z_k * (old[k] - n_k)


@njit(cache=True, nogil=True, error_model="numpy", fastmath=_FAST)
def backward(gates: Any, candidate: Any, before: Any, d_states: Any, d_inputs: Any, d_hidden: Any) -> None:
    """Write the gradients of both contributions to the gates; `d_states` becomes the direct gradient of `before`.

    `candidate` (B, W) is the contribution of the states `before` to the candidate.
    """
    rows, width = before.shape
    for row in range(rows):
        r, z, n = gates[row, :width], gates[row, width : 2 * width], gates[row, 2 * width :]
        d_r, d_z, d_n = d_inputs[row, :width], d_inputs[row, width : 2 * width], d_inputs[row, 2 * width :]
        h_r, h_z, h_n = d_hidden[row, :width], d_hidden[row, width : 2 * width], d_hidden[row, 2 * width :]
        old, above, u_n = before[row], d_states[row], candidate[row]
        for k in range(width):
            total = above[k]
            of_n = total * (_ONE - z[k]) * (_ONE - n[k] * n[k])
            of_z = total * (old[k] - n[k]) * z[k] * (_ONE - z[k])
            of_r = of_n * u_n[k] * r[k] * (_ONE - r[k])
            d_r[k], d_z[k], d_n[k] = of_r, of_z, of_n
            h_r[k], h_z[k], h_n[k] = of_r, of_z, of_n * r[k]
            above[k] = total * z[k]
