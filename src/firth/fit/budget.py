"""Budgets of training: time, tokens or FLOPs.

Nothing here needs a library, so that a wrong budget is answered at once.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal

from firth.errors import BudgetError

Unit = Literal["seconds", "tokens", "flops"]

_UNITS: dict[str, tuple[float, Unit]] = {
    "s": (1, "seconds"),
    "sec": (1, "seconds"),
    "min": (60, "seconds"),
    "h": (3600, "seconds"),
    "tok": (1, "tokens"),
    "ktok": (1e3, "tokens"),
    "mtok": (1e6, "tokens"),
    "gtok": (1e9, "tokens"),
    "flop": (1, "flops"),
}
_FORM = re.compile(r"(\d+(?:\.\d+)?(?:e\+?\d+)?)\s*([a-z]+)", re.IGNORECASE)


@dataclass(frozen=True)
class Budget:
    """An amount of time, tokens or FLOPs.

    >>> Budget.parse("10min").seconds, Budget.parse("300ktok").tokens, Budget.parse("1e15flop").flops
    (600.0, 300000, 1000000000000000.0)
    """

    text: str
    amount: float
    unit: Unit

    @classmethod
    def parse(cls, text: str) -> Budget:
        """The budget that `20s`, `10min`, `3h`, `300ktok`, `20Mtok` or `1e15flop` stands for."""
        match = _FORM.fullmatch(str(text).strip())
        if match is None or match[2].lower() not in _UNITS:
            raise BudgetError(
                f"cannot read the budget {text!r:.80}: write it like 20s, 10min, 3h, 300ktok or 1e15flop."
            )
        factor, unit = _UNITS[match[2].lower()]
        amount = float(match[1]) * factor
        if amount <= 0:
            raise BudgetError(f"a budget of {text!r:.80} buys nothing: give more.")
        if amount == math.inf:
            raise BudgetError(f"a budget of {text!r:.80} is out of range: give less.")
        return cls(text.strip(), amount, unit)

    @property
    def seconds(self) -> float | None:
        return self.amount if self.unit == "seconds" else None

    @property
    def tokens(self) -> int | None:
        return int(self.amount) if self.unit == "tokens" else None

    @property
    def flops(self) -> float | None:
        return self.amount if self.unit == "flops" else None
