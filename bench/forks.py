"""`firth` commands run by forks of this process, which has imported everything, so that one starts in milliseconds.

A fork can be killed at a moment of time, or just before a certain change of a file: an audit hook counts the changes,
so that the few moments between the operations of a writer are tried as often as the long ones of computing.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_CHANGES = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.chmod", "os.truncate"}
_WRITES = os.O_WRONLY | os.O_RDWR
_PATIENCE = 120.0  # seconds after which a command counts as hanging
_POLL = 0.001


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit code, or minus the signal, what it said, and its number of file changes."""

    code: int
    error: str
    seconds: float
    changes: int


def prepare() -> None:
    """Import everything that commands use; raises `SystemExit` if a thread is running, because forks would hang."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    import numba  # noqa: F401
    import scipy.sparse.linalg  # noqa: F401
    import sklearn.linear_model  # noqa: F401
    import tokenizers  # noqa: F401
    import torch

    import firth.api
    import firth.cli.main
    import firth.fit.adapt
    import firth.fit.finetune
    import firth.fit.nets
    import firth.fit.search  # noqa: F401

    torch.set_num_threads(1)
    require_one_thread()


def require_one_thread() -> None:
    """Raise `SystemExit` if another thread is running, after those that are ending had time to end."""
    end = time.monotonic() + 1
    while len(os.listdir("/proc/self/task")) > 1:
        if time.monotonic() > end:
            raise SystemExit("a thread is running: forks of this process would hang.")
        time.sleep(_POLL)


class Fork:
    """A command that runs in a fork of this process.

    `change` is the number of the change of a file below `folder` before which it is to be killed.
    """

    def __init__(
        self, arguments: Sequence[str], folder: Path, *, change: int | None = None, file_limit: int | None = None
    ) -> None:
        self._log = folder / f"log{time.monotonic_ns()}"
        self._counter = self._log.with_suffix(".changes")
        self._started = time.monotonic()
        self.pid = os.fork()
        if self.pid == 0:
            _exit_with(lambda: self._run(arguments, folder, change, file_limit))

    def _run(self, arguments: Sequence[str], folder: Path, change: int | None, file_limit: int | None) -> None:
        log = os.open(self._log, os.O_WRONLY | os.O_CREAT, 0o600)
        os.dup2(os.open(os.devnull, os.O_RDWR), 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.chdir(folder)
        count = _count_changes(str(folder), change)
        if file_limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_limit, file_limit))
        sys.argv = ["firth", *arguments]
        from firth.cli.main import main

        try:
            main()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            if file_limit is None:
                done = count()
                self._counter.write_text(str(done))

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def wait(self, seconds: float | None = None) -> Ended:
        """How the command ended; after `seconds` it is killed."""
        end = self._started + (_PATIENCE if seconds is None else seconds)
        while True:
            found, status, _ = os.wait4(self.pid, os.WNOHANG)
            if found:
                break
            if time.monotonic() >= end:
                self.kill()
                _, status, _ = os.wait4(self.pid, 0)
                break
            time.sleep(_POLL)
        took = time.monotonic() - self._started
        error = self._log.read_text(errors="replace") if self._log.exists() else ""
        changes = int(self._counter.read_text() or 0) if self._counter.exists() else 0
        self._log.unlink(missing_ok=True)
        self._counter.unlink(missing_ok=True)
        code = os.waitstatus_to_exitcode(status)
        if seconds is None and code == -signal.SIGKILL and took >= _PATIENCE:
            error += "\nhangs"
        return Ended(code, error, took, changes)


def run(arguments: Sequence[str], folder: Path) -> Ended:
    """The end of a command that must succeed; raises `SystemExit` with what it said if it fails."""
    ended = Fork(arguments, folder).wait()
    if ended.code:
        raise SystemExit(f"firth {' '.join(arguments)}: exit code {ended.code}\n{ended.error}")
    return ended


def _count_changes(folder: str, fatal: int | None) -> Callable[[], int]:
    """Counts the changes of files below a folder from now on, and kills this process before the fatal one."""
    count = 0

    def hook(event: str, details: tuple[Any, ...]) -> None:
        nonlocal count
        if event == "open":
            if not isinstance(details[2], int) or not details[2] & _WRITES:
                return
        elif event not in _CHANGES:
            return
        # Relative names are those that rmtree gives beside the handle of their folder.
        path = os.fspath(details[0]) if isinstance(details[0], str | os.PathLike) else ""
        if path.startswith("/") and not path.startswith(folder):
            return
        count += 1
        if count == fatal:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    return lambda: count


def _exit_with(function: Callable[[], None]) -> None:
    """Run the function and leave this process with the exit code of the command; never returns."""
    code: object = 1
    try:
        function()
        code = 0
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 0 if code is None else 1)
