"""Progress bars, notes and safe text on a terminal; deferred interrupts.

Bars appear on standard error, only on a terminal and for work that takes over two seconds.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

from firth.wording import printable, worded

_DELAY = 2.0  # seconds before a bar appears

_quiet: ContextVar[bool] = ContextVar("quiet", default=False)
_noted: set[str] | None = None  # the notes of this command, each of which is printed once


class Advance(Protocol):
    """Called with the amount of work done since the last call, a remark, and the total if that changed."""

    def __call__(self, amount: float, remark: str = "", total: float | None = None) -> None: ...


@contextmanager
def progress(what: str, total: float | None = None, unit: str = "B") -> Iterator[Advance]:
    """A function to call with each amount of work done; it draws a bar if the work takes long.

    >>> with progress("counting", total=3, unit="words") as advance:
    ...     for _ in range(3):
    ...         advance(1)
    """
    if _quiet.get() or not sys.stderr.isatty():
        yield lambda amount, remark="", total=None: None
        return
    bar = _Bar(what, total, unit)
    try:
        yield bar.advance
    finally:
        bar.close()


class _Bar:
    """A bar of rich, shown after `_DELAY` seconds."""

    def __init__(self, what: str, total: float | None, unit: str) -> None:
        self.what, self.total, self.unit = what, total, unit
        self.done = 0.0
        self.started = time.monotonic()
        self.shown: tuple[Any, Any] | None = None

    def advance(self, amount: float, remark: str = "", total: float | None = None) -> None:
        self.done += amount
        self.total = total or self.total
        if self.shown is None and time.monotonic() - self.started > _DELAY:
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
def deferred_interrupts() -> Iterator[Callable[[], bool]]:
    """Defer Ctrl-C and SIGTERM: a function that returns whether one occurred, so that work can be saved first.

    >>> with deferred_interrupts() as interrupted:
    ...     interrupted()
    False
    """
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():  # only the main thread handles signals
        yield lambda: False
        return
    signals = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(one, lambda number, frame: received.append(number)) for one in signals]
    try:
        yield lambda: bool(received)
    finally:
        for one, handler in zip(signals, before, strict=True):
            signal.signal(one, handler)


def _short(number: float) -> str:
    for factor, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= factor:
            return f"{number / factor:.1f} {prefix}"
    return f"{number:.0f} "


def note(message: str) -> None:
    """Print a message to the user on standard error."""
    if _quiet.get():
        return
    message = worded(message)
    if _noted is not None:
        if message in _noted:
            return
        _noted.add(message)
    print(printable(message), file=sys.stderr, flush=True)


@contextmanager
def quietly() -> Iterator[None]:
    """No notes and no bars inside the block, in this thread: for work that somebody else asked for.

    >>> with quietly():
    ...     note("not printed")
    """
    token = _quiet.set(True)
    try:
        yield
    finally:
        _quiet.reset(token)


@contextmanager
def notes_once() -> Iterator[None]:
    """Inside the block, the same note is printed once only."""
    global _noted
    before, _noted = _noted, set()
    try:
        yield
    finally:
        _noted = before
