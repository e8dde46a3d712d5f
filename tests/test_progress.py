"""Progress: silent without a terminal and for short work, a bar with rate and time left otherwise."""

from __future__ import annotations

import io
import sys

import pytest

from firth import progress as module
from firth.progress import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def run(monkeypatch: pytest.MonkeyPatch, screen: io.StringIO, delay: float) -> str:
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(module, "_DELAY", delay)
    monkeypatch.setenv("TERM", "xterm")
    with progress("encoding", total=4_000_000) as advance:
        for _ in range(4):
            advance(1_000_000)
    return screen.getvalue()


def test_short_work_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, Terminal(), delay=60) == ""


def test_long_work_shows_rate_and_percentage(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = run(monkeypatch, Terminal(), delay=-1)
    assert "encoding" in shown
    assert "100%" in shown
    assert "B/s" in shown


def test_files_get_no_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, io.StringIO(), delay=-1) == ""


def test_the_percentage_follows_a_changed_total(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(module, "_DELAY", -1)
    monkeypatch.setenv("TERM", "xterm")
    with progress("training", total=100) as advance:
        advance(10, total=50)
    assert "20%" in screen.getvalue()
