"""Run the command line inside the test process."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from dataclasses import dataclass
from typing import Any

from firth.cli.main import app


@dataclass(frozen=True)
class Outcome:
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON object on standard output; anything else there is an error."""
        return json.loads(self.out)


def firth(*arguments: object, stdin: bytes | None = None) -> Outcome:
    """Run `firth ARGUMENTS`."""
    out, err = io.StringIO(), io.StringIO()
    old_stdin = sys.stdin
    if stdin is not None:
        sys.stdin = io.TextIOWrapper(io.BytesIO(stdin))
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            app([str(argument) for argument in arguments])
        code = 0
    except SystemExit as exit:
        code = exit.code if isinstance(exit.code, int) else 0
    finally:
        sys.stdin = old_stdin
    return Outcome(code, out.getvalue(), err.getvalue())


def assert_refused(outcome: Outcome, *parts: object, code: int = 1) -> None:
    """Standard output is empty, and standard error is one sentence (or the usage) with all these parts."""
    assert outcome.code == code, outcome.out + outcome.err
    assert outcome.out == ""
    assert "Traceback" not in outcome.err
    if code == 1 or not outcome.err.startswith("Usage"):
        assert outcome.err.startswith("firth: ")
        assert outcome.err.endswith((".\n", "?\n"))
        assert outcome.err.count("\n") == 1, "more than one sentence"
    for part in parts:
        assert str(part).lower() in outcome.err.lower()
