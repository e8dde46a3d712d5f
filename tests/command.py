"""Running the command line inside the test process."""

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
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON object on standard output; anything else there is an error."""
        return json.loads(self.out)


def firth(*arguments: object, stdin: bytes | None = None) -> Outcome:
    """What `firth ARGUMENTS` prints and its exit code."""
    out, err = io.StringIO(), io.StringIO()
    old = sys.stdin
    if stdin is not None:
        sys.stdin = io.TextIOWrapper(io.BytesIO(stdin))
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            app([str(argument) for argument in arguments])
        code = 0
    except SystemExit as exit:
        code = exit.code if isinstance(exit.code, int) else 0
    finally:
        sys.stdin = old
    return Outcome(code, out.getvalue(), err.getvalue())
