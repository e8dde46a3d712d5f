"""What all verbs share: exit codes, JSON on standard output, notes on standard error."""

from __future__ import annotations

import errno
import functools
import json
import math
import signal
import sys
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Annotated, Any, NoReturn, ParamSpec, TypeVar

import typer

from firth.errors import FirthError

P = ParamSpec("P")
R = TypeVar("R")

JsonFlag = Annotated[bool, typer.Option("--json", help="One JSON object on standard output and nothing else.")]
FieldOption = Annotated[str, typer.Option("--field", help="JSONL and Parquet: which field holds the text.")]
EncodingOption = Annotated[str | None, typer.Option("--encoding", help="Read files in this encoding.")]
LayoutOption = Annotated[
    str, typer.Option("--layout", help="lines (a sentence a line), prose (a paragraph a line), wrapped, or auto.")
]
ThreadsOption = Annotated[int | None, typer.Option("--threads", min=1, help="Processes to use; all cores if left out.")]


def verb(function: Callable[P, R]) -> Callable[P, R]:
    """A verb with the exit codes of the contract: 1 for a `FirthError`, 130 when interrupted."""

    @functools.wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        signal.signal(signal.SIGTERM, _interrupt)
        try:
            return function(*args, **kwargs)
        except FirthError as error:
            fail(str(error), 1)
        except KeyboardInterrupt:
            fail("interrupted: nothing half-written was left behind.", 130)
        except MemoryError:
            fail("there is not enough memory: run with fewer --threads or on less text.", 1)
        except BrokenPipeError:
            sys.stderr.close()  # whoever read our output has gone
            raise typer.Exit(0) from None
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            fail(f"the disk is full ({error.filename or 'while writing'}): free some space and run again.", 1)

    return guarded


def fail(message: str, code: int) -> NoReturn:
    """Ends the program with one sentence on standard error."""
    print(f"firth: {message}", file=sys.stderr)
    raise typer.Exit(code)


def show(as_json: bool, data: Mapping[str, Any], text: Callable[[], None]) -> None:
    """Prints `data` as one JSON object, or calls `text` to print it for people."""
    if as_json:
        print(to_json(data))
    else:
        text()


def to_json(data: Any) -> str:
    """One line of JSON; infinities, which it has no name for, as numbers that every reader takes for infinite.

    >>> to_json({"logprob": -math.inf, "tokens": 3})
    '{"logprob": -1e999, "tokens": 3}'
    """
    text = json.dumps(_mark_infinities(data), ensure_ascii=False)
    return text.replace('"\\u0000+"', "1e999").replace('"\\u0000-"', "-1e999")


def _mark_infinities(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "\0+" if value > 0 else "\0-"
    if isinstance(value, Mapping):
        return {key: _mark_infinities(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_mark_infinities(item) for item in value]
    return value


def print_fields(fields: Mapping[str, Any]) -> None:
    """Names and values in two columns."""
    width = max(map(len, fields), default=0)
    for name, value in fields.items():
        print(f"{name:<{width}}  {format_value(value)}")


def print_metrics(metrics: Mapping[str, Any], before: str = "") -> None:
    """Each metric that has an interval, with that and what a trivial baseline reaches."""
    for name, value in metrics.items():
        if f"{name}_interval" in metrics:
            low, high = map(format_value, metrics[f"{name}_interval"])
            base = metrics.get("baseline", {}).get(name)
            beside = "" if base is None else f"  (baseline {format_value(base)})"
            print(f"{before}{name}: {format_value(value)}  [{low} to {high}]{beside}")


def format_value(value: Any) -> str:
    """A value as people read it.

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
