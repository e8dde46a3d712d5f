"""A card that is measured in a moment: one short round of timing, and no processes for memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from firth.fit.compress import card, speed


@pytest.fixture(autouse=True)
def quick_card() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(speed, "_ROUNDS", 1)
        patch.setattr(speed, "_SECONDS", 0.005)
        patch.setattr(speed, "_LATENCIES", 3)
        patch.setattr(card, "peak_memory", lambda *_: None)
        yield
