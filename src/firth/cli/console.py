"""Exit codes of all verbs, and output as JSON or text."""

from __future__ import annotations

import errno
import functools
import inspect
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, ParamSpec, TextIO, TypeVar, cast

import typer

from firth.errors import ArgumentError, BudgetError, FirthError
from firth.json_output import to_json as to_json
from firth.progress import notes_once
from firth.wording import command_line, escape_controls, printable


class Debug:
    """Whether the traceback of an error is shown: `firth --debug VERB`."""

    is_on = False


debug = Debug()
P = ParamSpec("P")
R = TypeVar("R")

INTERVAL = "[low to high]: 95% confidence interval"


def verb(function: Callable[P, R]) -> Callable[P, R]:
    """A command with exit code 1 for a `FirthError`, 2 for a wrong argument and 130 when interrupted.

    Nothing that it prints can control the terminal, whatever an artifact contains.
    """

    @functools.wraps(function)
    @command_line()
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        signal.signal(signal.SIGTERM, _interrupt)
        try:
            with redirect_stdout(cast(TextIO, _EscapedStream(sys.stdout))), notes_once():
                return function(*args, **kwargs)
        except FirthError as error:
            if debug.is_on:
                traceback.print_exception(error)
            fail(str(error), 2 if isinstance(error, ArgumentError | BudgetError) else 1)
        except KeyboardInterrupt:
            fail(_describe_interrupt(inspect.signature(function).bind(*args, **kwargs).arguments), 130)
        except MemoryError:
            fail("there is not enough memory: run with fewer --threads or on less text.", 1)
        except BrokenPipeError:
            sys.stderr.close()  # the reader of our output has closed the pipe
            raise typer.Exit(0) from None
        except OSError as error:
            place = error.filename or "while writing"
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                fail(f"the disk is full ({place}): free some space and run again.", 1)
            if error.errno == errno.EFBIG:
                fail(f"a file may not be that large ({place}): raise the limit (ulimit -f) and run again.", 1)
            raise
        except BaseException as error:
            # The tokenizers library is written in Rust; what it raises for a damaged tokenizer is no Exception.
            if type(error).__name__ != "PanicException":
                raise
            fail("the tokenizer of the model failed on this text: check the model with firth verify.", 1)

    return guarded


@contextmanager
def checking_arguments() -> Iterator[None]:
    """Checks of arguments, before anything is loaded: any `FirthError` in the block has exit code 2."""
    try:
        yield
    except FirthError as error:
        fail(str(error), 2)


def fail(message: str, code: int) -> NoReturn:
    """Exit with one sentence on standard error."""
    print(f"firth: {printable(' '.join(message.splitlines()))}", file=sys.stderr)
    raise typer.Exit(code)


def _describe_interrupt(arguments: Mapping[str, Any]) -> str:
    """What an interrupted command with these arguments has left."""
    from firth.fit.checkpoints import is_resumable

    out = arguments.get("out")
    if "resume" in arguments and isinstance(out, Path) and is_resumable(out):
        return "interrupted: state saved; continue with the same command and --resume."
    return "interrupted: no incomplete output was left."


class _EscapedStream:
    """A stream for text whose control characters, other than newlines and tabs, are escaped."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(escape_controls(text))

    def writelines(self, lines: Iterable[str]) -> None:
        self._stream.writelines(map(escape_controls, lines))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def show(as_json: bool, data: Mapping[str, Any], text: Callable[[], None]) -> None:
    """Print `data` as one JSON object, or call `text` to print it for people."""
    if as_json:
        print(to_json(data))
    else:
        text()


def print_fields(fields: Mapping[str, Any]) -> None:
    """Print names and values in two columns."""
    width = max(map(len, fields), default=0)
    for name, value in fields.items():
        print(f"{name:<{width}}  {format_value(value)}")


def print_metrics(metrics: Mapping[str, Any], prefix: str = "") -> None:
    """Print each metric with its confidence interval and the value of a trivial baseline."""
    for name, value in metrics.items():
        if interval := format_interval(metrics, name):
            baseline = metrics.get("baseline", {}).get(name)
            suffix = "" if baseline is None else f"  (baseline {format_value(baseline)})"
            print(f"{prefix}{name}: {format_value(value)}{interval}{suffix}")


def format_interval(metrics: Mapping[str, Any], name: str) -> str:
    """The confidence interval of a metric as text, or nothing if it has none.

    >>> format_interval({"accuracy": 0.5, "accuracy_interval": [0.25, 0.75]}, "accuracy")
    '  [0.25 to 0.75]'
    """
    interval = metrics.get(f"{name}_interval")
    if not isinstance(interval, list | tuple) or len(interval) != 2:
        return ""
    return "  [{} to {}]".format(*map(format_value, interval))


def format_value(value: Any) -> str:
    """A value as text for people.

    >>> format_value(1234567), format_value(0.123456)
    ('1,234,567', '0.1235')
    """
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1000 else f"{value:,.1f}"
    return str(value)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
