"""Learning rate schedules: functions of the training progress only.

Progress may be in any unit: steps, tokens or FLOPs.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from firth.nets.recipe import NetRecipe

_RATIO = 32  # of the highest and lowest rate of the slanted triangle (Howard and Ruder 2018)
_DECAY_FRACTION = 0.2  # of stable-decay
_MIN_WARMUP = 0.01  # of inverse-sqrt, which has no maximum without warm-up

_RATES = {"window": 4e-3, "bilinear": 1e-2, "cnn": 4e-3, "rnn": 3e-3} | dict.fromkeys(("gru", "lstm", "bilstm"), 5e-3)
"""For width 64."""
_DEEP = 12  # layers from which a post-norm Transformer gets half the rate
_LAMB = 4.0  # factor of LAMB's rate: its steps are relative to the norm of the parameters


def auto_lr(recipe: NetRecipe) -> float:
    """The default peak learning rate of a network; wider ones get lower rates.

    >>> from firth.recipes.nets import bert, lstm, resize
    >>> [auto_lr(resize(bert(), size)) for size in ("tiny", "mini", "small")], auto_lr(resize(lstm(), "tiny"))
    ([0.002, 0.001, 0.0005], 0.005)
    """
    if recipe.learning.optimiser == "sgd":
        return 1.0
    if recipe.learning.optimiser == "adagrad":
        return 0.05
    kind = recipe.encoder.kind
    if kind == "none":
        return 0.05
    if kind != "transformer":
        return _RATES[kind] * math.sqrt(64 / max(recipe.encoder.width, 64))
    rate = 0.256 / max(recipe.encoder.width, 128)
    if recipe.encoder.norm == "post" and recipe.encoder.layers >= _DEEP:
        rate /= 2
    return _LAMB * rate if recipe.learning.optimiser == "lamb" else rate


def lr_factor(schedule: str, done: float, planned: float, warmup: float) -> float:
    """The fraction of the peak learning rate after `done` of `planned`.

    `warmup` is the fraction of training in which the rate rises.

    >>> [round(lr_factor("linear", step, 10, 0.2), 3) for step in (0, 1, 2, 6, 10)]
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    progress = min(max(done / planned, 0.0), 1.0)
    return SCHEDULES[schedule](progress, warmup)


def _linear(progress: float, warmup: float) -> float:
    """Linear warm-up and decay to zero (Devlin et al. 2019)."""
    return progress / warmup if progress < warmup else (1 - progress) / (1 - warmup)


def _inverse_sqrt(progress: float, warmup: float) -> float:
    """min(s^-0.5, s w^-1.5) of step s with w warm-up steps, times w^0.5 (Vaswani et al. 2017, equation 3)."""
    rise = max(warmup, _MIN_WARMUP)
    return progress / rise if progress < rise else math.sqrt(rise / progress)


def _slanted(progress: float, warmup: float) -> float:
    """(1 + p (ratio - 1)) / ratio with linear p (Howard and Ruder 2018, equation 3)."""
    return (1 + _linear(progress, warmup) * (_RATIO - 1)) / _RATIO


def _cosine(progress: float, warmup: float) -> float:
    """Linear warm-up and cosine decay (Loshchilov and Hutter 2017)."""
    if progress < warmup:
        return progress / warmup
    return (1 + math.cos(math.pi * (progress - warmup) / (1 - warmup))) / 2


def _stable_decay(progress: float, warmup: float) -> float:
    """Warm-up, constant, and linear decay in the last fifth (Hu et al. 2024)."""
    return min(_constant(progress, warmup), (1 - progress) / _DECAY_FRACTION)


def _constant(progress: float, warmup: float) -> float:
    """Linear warm-up, then constant."""
    return progress / warmup if progress < warmup else 1.0


SCHEDULES: dict[str, Callable[[float, float], float]] = {
    "linear": _linear,
    "inverse-sqrt": _inverse_sqrt,
    "slanted": _slanted,
    "cosine": _cosine,
    "stable-decay": _stable_decay,
    "constant": _constant,
}
