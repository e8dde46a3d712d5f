"""Budgets: every form the documentation names, and what is refused."""

from __future__ import annotations

import pytest

from firth.errors import BudgetError
from firth.fit.run import Budget


@pytest.mark.parametrize(
    ("text", "unit", "amount"),
    [
        ("20s", "seconds", 20),
        ("10min", "seconds", 600),
        ("3h", "seconds", 10800),
        ("1.5h", "seconds", 5400),
        ("300ktok", "tokens", 300_000),
        ("20Mtok", "tokens", 20_000_000),
        ("500 tok", "tokens", 500),
        ("1e15flop", "flops", 1e15),
        ("2.5e+3flop", "flops", 2500),
    ],
)
def test_budgets_are_parsed(text: str, unit: str, amount: float) -> None:
    budget = Budget.parse(text)
    assert getattr(budget, unit) == amount
    others = {"seconds", "tokens", "flops"} - {unit}
    assert all(getattr(budget, other) is None for other in others)


@pytest.mark.parametrize("text", ["", "10", "min", "-3h", "10 parsecs", "0s", "1e400tokk", "nan s"])
def test_it_refuses(text: str) -> None:
    with pytest.raises(BudgetError):
        Budget.parse(text)
