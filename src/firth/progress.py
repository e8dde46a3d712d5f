"""Progress on standard error: rate and time left, only for work over two seconds and only on a terminal."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

_PATIENCE = 2.0  # seconds of silence before a bar appears


class Advance(Protocol):
    """Is told how much more is done, what there is to remark about it, and how much there is in all if that changed."""

    def __call__(self, amount: float, remark: str = "", total: float | None = None) -> None: ...


@contextmanager
def progress(what: str, total: float | None = None, unit: str = "B") -> Iterator[Advance]:
    """A function that is told how much more is done; it draws a bar when the work takes long.

    >>> with progress("counting", total=3, unit="words") as advance:
    ...     for _ in range(3):
    ...         advance(1)
    """
    if not sys.stderr.isatty():
        yield lambda amount, remark="", total=None: None
        return
    bar = _Bar(what, total, unit)
    try:
        yield bar.advance
    finally:
        bar.close()


class _Bar:
    """Counts quietly at first; after `_PATIENCE` seconds hands over to rich."""

    def __init__(self, what: str, total: float | None, unit: str) -> None:
        self.what, self.total, self.unit = what, total, unit
        self.done = 0.0
        self.started = time.monotonic()
        self.shown: tuple[Any, Any] | None = None

    def advance(self, amount: float, remark: str = "", total: float | None = None) -> None:
        self.done += amount
        self.total = total or self.total
        if self.shown is None and time.monotonic() - self.started > _PATIENCE:
            self.shown = self._show()
        if self.shown is not None:
            bar, task = self.shown
            rate = _short(self.done / max(time.monotonic() - self.started, 1e-9))
            bar.update(task, total=self.total, completed=self.done, rate=f"{rate}{self.unit}/s {remark}".rstrip())

    def _show(self) -> tuple[Any, Any]:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        bar.start()
        return bar, bar.add_task(self.what, total=self.total, rate="")

    def close(self) -> None:
        if self.shown is not None:
            self.shown[0].stop()


@contextmanager
def patience() -> Iterator[Callable[[], bool]]:
    """Puts off interrupts (Ctrl-C, SIGTERM): a function that says whether one came, so that work can be saved first.

    >>> with patience() as interrupted:
    ...     interrupted()
    False
    """
    asked: list[int] = []
    if threading.current_thread() is not threading.main_thread():  # signals are none of its business
        yield lambda: False
        return
    signals = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(one, lambda number, frame: asked.append(number)) for one in signals]
    try:
        yield lambda: bool(asked)
    finally:
        for one, handler in zip(signals, before, strict=True):
            signal.signal(one, handler)


def _short(number: float) -> str:
    for factor, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= factor:
            return f"{number / factor:.1f} {letter}"
    return f"{number:.0f} "


def note(message: str) -> None:
    """Prints a remark for the person at the terminal, on standard error."""
    print(message, file=sys.stderr, flush=True)
