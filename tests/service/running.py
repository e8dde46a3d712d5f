"""A server in a thread of the test, or in a process of its own, and raw requests to it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from firth.service.client import Client, ServiceError
from firth.service.guard import KeyCheck
from firth.service.limits import Limits
from firth.service.registry import ModelRegistry
from firth.service.server import FirthServer, _listen
from firth.service.state import ServerState

SOURCE = Path(__file__).resolve().parents[2] / "src"


class RunningServer:
    """A server in a thread."""

    def __init__(self, folders: Sequence[Path], limits: Limits, key: str | None = None, threads: int = 2) -> None:
        self.limits, self.key = limits, key
        self.state = ServerState(ModelRegistry(folders), limits, threads)
        self.server = FirthServer(self.state, limits, KeyCheck(key.encode()) if key else None)

    def __enter__(self) -> RunningServer:
        self.socket = _listen("127.0.0.1", 0)
        self.port = self.socket.getsockname()[1]
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.socket]})
        self.thread.start()
        self.client = Client(f"http://127.0.0.1:{self.port}", key=self.key, timeout=60)
        for _ in range(120):
            if self.server.failure is not None:
                self.thread.join()
                raise self.server.failure
            try:
                self.client.wait(1)
                return self
            except ServiceError:
                continue
        raise TimeoutError

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self.server.should_exit = True
        self.thread.join()
        self.socket.close()
        assert self.server.failure is None

    def post(self, path: str, body: Any, headers: dict[str, str] | None = None) -> tuple[int, Any]:
        """The status and the JSON of an answer; bytes are sent as they are."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return request(self.port, "POST", path, data, {"content-type": "application/json"} | (headers or {}))

    def get(self, path: str, headers: dict[str, str] | None = None) -> tuple[int, Any]:
        """The status and the JSON of an answer."""
        return request(self.port, "GET", path, None, headers or {})

    def raw(self, data: bytes, seconds: float = 10.0) -> bytes:
        """What the server sends after these bytes, until it closes the connection or is silent."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=seconds) as connection:
            connection.sendall(data)
            return read_all(connection)


def read_all(connection: socket.socket) -> bytes:
    """Everything up to the end of a connection, or until nothing comes any more."""
    parts = []
    try:
        while part := connection.recv(1 << 16):
            parts.append(part)
    except (TimeoutError, ConnectionError):
        pass
    return b"".join(parts)


def request(port: int, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> tuple[int, Any]:
    """The status and the JSON, or else the text, of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        data = response.read()
        is_json = (response.headers["content-type"] or "").startswith("application/json")
        return response.status, json.loads(data) if is_json else data.decode()
    finally:
        connection.close()


class ServerProcess:
    """`firth serve` in a process of its own."""

    def __init__(self, *arguments: object) -> None:
        environment = os.environ | {"PYTHONPATH": str(SOURCE)}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "firth", "serve", *map(str, arguments), "--port", "0"],
            stderr=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip
        self.lines: list[str] = []
        assert self.process.stderr is not None
        first = self.process.stderr.readline()
        self.lines.append(first)
        self.port = int(first.split("http://")[1].split(",")[0].rpartition(":")[2]) if "http://" in first else 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.lines += self.process.stderr

    def client(self, **options: Any) -> Client:
        return Client(f"http://127.0.0.1:{self.port}", **options)

    def stop(self) -> int:
        """The exit code after SIGTERM."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(60)
        self._reader.join(10)
        return code

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._reader.join(10)
        assert self.process.stderr is not None
        self.process.stderr.close()
