"""Schedules: the learning rate as a function of the network and of how much of the training is done, of nothing else.

What is done and what is planned may be in any unit, as long as it is the same: steps, tokens or operations.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from firth.nets.recipe import NetRecipe

_RATIO = 32  # how much smaller the lowest rate of the slanted triangle is (Howard and Ruder 2018)
_TAIL = 0.2  # share of the training in which a stable rate falls
_LEAST_WARMUP = 0.01  # of inverse-sqrt, which has no highest point without one

_RATES = {"window": 4e-3, "bilinear": 1e-2, "rnn": 3e-3, "lstm": 5e-3}  # of networks of 64 numbers
_DEEP = 12  # layers from which a Transformer with norms after its layers is taught at half the rate
_LAMB = 4.0  # how much larger LAMB's rate is than Adam's: its steps are shares of the parameters' own length


def auto_rate(recipe: NetRecipe) -> float:
    """The highest learning rate that suits a network: wider ones take smaller steps.

    >>> from firth.recipes.nets import bert, lstm, resize
    >>> [auto_rate(resize(bert(), size)) for size in ("tiny", "mini", "small")], auto_rate(resize(lstm(), "tiny"))
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


def rate_factor(schedule: str, done: float, planned: float, warmup: float) -> float:
    """The share of the highest rate that is used when so much of what is planned is done.

    `warmup` is the share of the training in which the rate rises.

    >>> [round(rate_factor("linear", step, 10, 0.2), 3) for step in (0, 1, 2, 6, 10)]
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    share = min(max(done / planned, 0.0), 1.0)
    return SCHEDULES[schedule](share, warmup)


def _linear(share: float, warmup: float) -> float:
    """Up to one, then down to nothing (Devlin et al. 2019)."""
    return share / warmup if share < warmup else (1 - share) / (1 - warmup)


def _inverse_sqrt(share: float, warmup: float) -> float:
    """min(s^-0.5, s w^-1.5) of the step s with w steps of warm-up, times w^0.5 (Vaswani et al. 2017, equation 3)."""
    rise = max(warmup, _LEAST_WARMUP)
    return share / rise if share < rise else math.sqrt(rise / share)


def _slanted(share: float, warmup: float) -> float:
    """(1 + p (ratio - 1)) / ratio, where p rises and falls in straight lines (Howard and Ruder 2018, equation 3)."""
    return (1 + _linear(share, warmup) * (_RATIO - 1)) / _RATIO


def _cosine(share: float, warmup: float) -> float:
    """Up to one, then down along half a wave (Loshchilov and Hutter 2017)."""
    if share < warmup:
        return share / warmup
    return (1 + math.cos(math.pi * (share - warmup) / (1 - warmup))) / 2


def _stable_decay(share: float, warmup: float) -> float:
    """Up to one, level, and down to nothing in the last fifth (Hu et al. 2024)."""
    return min(_constant(share, warmup), (1 - share) / _TAIL)


def _constant(share: float, warmup: float) -> float:
    """Up to one and level."""
    return share / warmup if share < warmup else 1.0


SCHEDULES: dict[str, Callable[[float, float], float]] = {
    "linear": _linear,
    "inverse-sqrt": _inverse_sqrt,
    "slanted": _slanted,
    "cosine": _cosine,
    "stable-decay": _stable_decay,
    "constant": _constant,
}
