"""Exit codes of all verbs, and output as JSON or text."""

from __future__ import annotations

import errno
import functools
import json
import math
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any, NoReturn, ParamSpec, TypeVar

import typer

from firth.errors import FirthError


class Debug:
    """Whether the traceback of an error is shown: `firth --debug VERB`."""

    is_on = False


debug = Debug()
P = ParamSpec("P")
R = TypeVar("R")


def verb(function: Callable[P, R]) -> Callable[P, R]:
    """A command with exit code 1 for a `FirthError` and 130 when interrupted."""

    @functools.wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        signal.signal(signal.SIGTERM, _interrupt)
        try:
            return function(*args, **kwargs)
        except FirthError as error:
            if debug.is_on:
                traceback.print_exception(error)
            fail(str(error), 1)
        except KeyboardInterrupt:
            fail("interrupted: no incomplete output was left.", 130)
        except MemoryError:
            fail("there is not enough memory: run with fewer --threads or on less text.", 1)
        except BrokenPipeError:
            sys.stderr.close()  # the reader of our output has closed the pipe
            raise typer.Exit(0) from None
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            fail(f"the disk is full ({error.filename or 'while writing'}): free some space and run again.", 1)
        except BaseException as error:
            # The tokenizers library is written in Rust; what it raises for a damaged tokenizer is no Exception.
            if type(error).__name__ != "PanicException":
                raise
            fail("the tokenizer of the model failed on this text: check the model with firth verify.", 1)

    return guarded


def fail(message: str, code: int) -> NoReturn:
    """Exit with one sentence on standard error."""
    print(f"firth: {message}", file=sys.stderr)
    raise typer.Exit(code)


def show(as_json: bool, data: Mapping[str, Any], text: Callable[[], None]) -> None:
    """Print `data` as one JSON object, or call `text` to print it for people."""
    if as_json:
        print(to_json(data))
    else:
        text()


def to_json(data: Any) -> str:
    """One line of JSON; infinities are written as numbers that every parser reads as infinite.

    >>> to_json({"logprob": -math.inf, "tokens": 3})
    '{"logprob": -1e999, "tokens": 3}'
    """
    text = json.dumps(_replace_infinities(data), ensure_ascii=False)
    return text.replace('"\\u0000+"', "1e999").replace('"\\u0000-"', "-1e999")


def _replace_infinities(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "\0+" if value > 0 else "\0-"
    if isinstance(value, Mapping):
        return {key: _replace_infinities(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_replace_infinities(item) for item in value]
    return value


def print_fields(fields: Mapping[str, Any]) -> None:
    """Print names and values in two columns."""
    width = max(map(len, fields), default=0)
    for name, value in fields.items():
        print(f"{name:<{width}}  {format_value(value)}")


def print_metrics(metrics: Mapping[str, Any], prefix: str = "") -> None:
    """Print each metric with its confidence interval and the value of a trivial baseline."""
    for name, value in metrics.items():
        if f"{name}_interval" in metrics:
            low, high = map(format_value, metrics[f"{name}_interval"])
            baseline = metrics.get("baseline", {}).get(name)
            suffix = "" if baseline is None else f"  (baseline {format_value(baseline)})"
            print(f"{prefix}{name}: {format_value(value)}  [{low} to {high}]{suffix}")


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
