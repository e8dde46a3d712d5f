"""The client: retries, errors in one sentence, connections that were closed."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

import firth
from firth.errors import ArgumentError
from firth.service.client import Client, ServiceError


class Scripted(ThreadingHTTPServer):
    """A server that answers with given statuses, one after the other."""

    statuses: list[int]
    seen: list[tuple[str, Any, str | None]]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Scripted

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.seen.append((self.path, body, self.headers["authorization"]))
        status = self.server.statuses.pop(0)
        if not status:
            self.close_connection = True
            return
        error = {"error": {"status": status, "type": "x", "message": f"the status is {status}.", "param": None}}
        data = json.dumps({"results": [1]} if status == 200 else error).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def scripted() -> Iterator[Scripted]:
    server = Scripted(("127.0.0.1", 0), Handler)
    server.seen = []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def client_of(server: Scripted, **options: Any) -> Client:
    return Client(f"http://127.0.0.1:{server.server_address[1]}/", **options)


@pytest.mark.parametrize("statuses", [[200], [429, 200], [503, 429, 200], [0, 200]])
def test_requests_are_sent_again(statuses: list[int], scripted: Scripted) -> None:
    scripted.statuses = [*statuses]
    with client_of(scripted, key="secret") as client:
        assert client.score("kn", ["a"], tokens=True) == {"results": [1]}
    assert not scripted.statuses
    assert scripted.seen == [("/score", {"model": "kn", "texts": ["a"], "tokens": True}, "Bearer secret")] * len(
        statuses
    )


@pytest.mark.parametrize("status", [400, 401, 404, 413, 422, 500])
def test_other_errors_are_raised_at_once(status: int, scripted: Scripted) -> None:
    scripted.statuses = [status]
    with client_of(scripted) as client, pytest.raises(ServiceError, match=f"the status is {status}") as caught:
        client.score("kn", ["a"])
    assert caught.value.status == status


def test_retries_end(scripted: Scripted) -> None:
    scripted.statuses = [429] * 3
    with client_of(scripted, retries=2) as client, pytest.raises(ServiceError, match="429"):
        client.score("kn", ["a"])
    assert not scripted.statuses


def test_no_server(scripted: Scripted) -> None:
    with firth.Client("http://127.0.0.1:1", retries=1) as client:
        with pytest.raises(ServiceError, match="start it with firth serve"):
            client.score("kn", ["a"])
        with pytest.raises(ServiceError, match="was not ready within"):
            client.wait(0.2)
    for address in ("127.0.0.1:8080", "file:///etc/passwd", "http://"):
        with pytest.raises(ArgumentError, match="no address of a server"):
            Client(address)
