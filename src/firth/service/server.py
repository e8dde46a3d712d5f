"""The server: loads and tests the models, listens, reloads on SIGHUP, and finishes what it accepted on SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import signal
import socket
import threading
from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import uvicorn

from firth.cores import cores
from firth.errors import ArgumentError, FirthError, OutputError
from firth.progress import note, notes_once, quietly
from firth.service.app import make_app
from firth.service.guard import Guard, KeyCheck, read_key
from firth.service.limits import Limits
from firth.service.protocol import protocol_with
from firth.service.registry import ModelRegistry
from firth.service.state import ServerState

_BACKLOG = 2048
_OWN_FILES = 128


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine only.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def serve(
    folders: Sequence[Path],
    *,
    host: str = "127.0.0.1",
    port: int = 8080,
    key_file: Path | None = None,
    limits: Limits | None = None,
    threads: int | None = None,
    log: bool = False,
) -> None:
    """Serve models until SIGTERM or SIGINT; SIGHUP loads those again whose folders have changed."""
    limits = limits or Limits()
    if not is_loopback(host) and key_file is None:
        raise ArgumentError(f"{host} can be reached from other machines: give a key with --key-file.")
    key = None if key_file is None else read_key(key_file)
    registry = ModelRegistry(folders)
    limits = replace(limits, connections=min(limits.connections, _most_connections()))
    listening = _listen(host, port)
    with _single_threaded(), notes_once(), contextlib.closing(listening):
        state = ServerState(registry, limits, cores(threads))
        server = FirthServer(state, limits, key, log)
        server.run(sockets=[listening])
        if server.failure is not None:
            raise server.failure


def _listen(host: str, port: int) -> socket.socket:
    """A listening socket, made before the models are loaded, so that a port that is taken is found at once."""
    try:
        ((family, kind, number, _, address), *_) = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        listening = socket.socket(family, kind, number)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(_BACKLOG)
            listening.setblocking(False)
        except OSError:
            listening.close()
            raise
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise OutputError(f"cannot listen on {host}:{port} ({reason}): choose another --port or --host.") from None
    return listening


def _most_connections() -> int:
    """As many connections as this process may have, with some files for itself."""
    try:
        import resource
    except ImportError:  # only on Unix
        return 1 << 16
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 1 << 16) if most > 0 else 1 << 16, most))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(1, soft - _OWN_FILES)


@contextlib.contextmanager
def _single_threaded() -> Generator[None]:
    """Every worker computes with one thread of PyTorch, so that several of them do not wait for each other."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class FirthServer(uvicorn.Server):
    """uvicorn with the signals of `firth serve`."""

    def __init__(self, state: ServerState, limits: Limits, key: KeyCheck | None, log: bool = False) -> None:
        self.state = state
        app: Any = make_app(state)
        paths = {route.path for route in app.routes}
        config = uvicorn.Config(
            Guard(app, state, key, paths, log=log),
            http=protocol_with(limits),
            ws="none",
            lifespan="off",
            loop="asyncio",
            log_config=None,
            access_log=False,
            server_header=False,
            backlog=_BACKLOG,
            timeout_keep_alive=int(limits.idle),
            timeout_graceful_shutdown=int(limits.stopping),
            h11_max_incomplete_event_size=limits.header_bytes,
        )
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # what clients do wrong is in /metrics
        super().__init__(config)
        self.failure: FirthError | None = None
        self._loading: threading.Thread | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        address = sockets[0].getsockname() if sockets else ("", 0)
        host = f"[{address[0]}]" if ":" in address[0] else address[0]
        note(f"listening on http://{host}:{address[1]}, loading {len(self.state.registry.folders)} models")
        self._load(first=True)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        note("stopping: accepted requests are finished")
        await super().shutdown(sockets)
        await asyncio.get_running_loop().run_in_executor(None, self.state.workers.stop)
        note("stopped")

    def reload(self) -> None:
        """Load the models again whose folders have changed, while the others answer."""
        self._load(first=False)

    def _load(self, first: bool) -> None:
        if self._loading is not None and self._loading.is_alive():
            note("models are being loaded already")
            return
        self._loading = threading.Thread(target=self._load_models, args=(first,), name="firth-load", daemon=True)
        self._loading.start()

    def _load_models(self, first: bool) -> None:
        registry, metrics = self.state.registry, self.state.metrics
        try:
            with quietly():
                changed = registry.load()
        except FirthError as error:
            metrics.count("firth_loads_total", result="failed")
            if first:
                self.failure, self.should_exit = error, True
            else:
                note(f"the models stay as they were: {error}")
            return
        except Exception as error:
            metrics.failed(error)
            metrics.count("firth_loads_total", result="failed")
            if first:
                self.failure, self.should_exit = (
                    OutputError("the models cannot be loaded: check them with firth verify."),
                    True,
                )
            return
        metrics.count("firth_loads_total", result="done")
        for one in registry.all():
            if one.name in changed:
                note(f"{one.name}: {', '.join(one.abilities)} (digest {one.digest[:12]})")
        note("ready" if first else f"reloaded: {', '.join(changed) or 'nothing has changed'}")

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """SIGTERM and SIGINT stop, a second SIGINT at once; SIGHUP reloads."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        handlers: dict[int, Any] = {signal.SIGINT: self.handle_exit, signal.SIGTERM: self.handle_exit}
        if hasattr(signal, "SIGHUP"):
            handlers[signal.SIGHUP] = lambda number, frame: self.reload()
        before = {one: signal.signal(one, handler) for one, handler in handlers.items()}
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)
