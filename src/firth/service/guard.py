"""The guard before the application: keys, hosts, odd headers, sizes and times; it reads the whole body of a request."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import time
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

from firth.errors import ArgumentError
from firth.progress import note
from firth.service.refusals import Refusal
from firth.service.state import ServerState

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

_OPEN = {"/", "/health", "/ready", "/docs", "/openapi.json"}
"""Addresses that need no key, and are there before the models."""
_LOOPBACK = {"localhost", "127.0.0.1", "[::1]"}
_MIN_KEY = 16  # characters
_DRAINED = 16 << 20  # bytes of a body that is too large which are read nevertheless
_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
]


class KeyCheck:
    """A key that requests must have; only its digest is kept."""

    def __init__(self, key: bytes) -> None:
        self._digest = hashlib.sha256(key).digest()

    def accepts(self, header: bytes) -> bool:
        """Whether an Authorization header has the key, compared in a time that does not depend on where they differ."""
        scheme, _, given = header.strip().partition(b" ")
        same = hmac.compare_digest(hashlib.sha256(given.strip()).digest(), self._digest)
        return same and scheme.lower() == b"bearer"


def read_key(path: Path) -> KeyCheck:
    """The key in a file: one line of at least 16 characters."""
    try:
        key = path.read_bytes().strip()
    except OSError as error:
        raise ArgumentError(
            f"the key file {path} cannot be read ({error.strerror}): name one with --key-file."
        ) from None
    if len(key) < _MIN_KEY or len(key.split()) != 1 or not key.isascii():
        raise ArgumentError(
            f"the key file {path} has no key: write one line of at least {_MIN_KEY} ASCII characters without spaces, "
            "such as `openssl rand -hex 32` prints."
        )
    return KeyCheck(key)


class Guard:
    """An ASGI application around another one, which gets only requests that are in order."""

    def __init__(
        self, app: Application, state: ServerState, key: KeyCheck | None, paths: set[str], *, log: bool = False
    ) -> None:
        """`paths` are the addresses that are counted by name; `log` prints a line for each request."""
        self.app, self.state, self.key, self.paths, self.log = app, state, key, paths, log
        self.active = 0
        state.metrics.gauges["firth_active_requests"] = lambda: float(self.active)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            await self._request(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def _request(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun, answer = time.perf_counter(), GuardedAnswer(send, self.state.limits.sending)
        self.active += 1
        try:
            body = await self._read(scope, receive)
            await self.app(scope, _replayed(body, receive), answer.send)
        except Refusal as refusal:
            await answer.refuse(refusal)
        except SlowClientError:
            pass
        except Exception as error:
            self.state.metrics.failed(error)
            await answer.refuse(Refusal(500, f"the server failed ({type(error).__name__}): its log says where."))
        finally:
            self.active -= 1
            path = scope["path"] if scope["path"] in self.paths else "other"
            seconds = time.perf_counter() - begun
            self.state.metrics.request(path, answer.status, seconds)
            if self.log:
                note(f"{scope['method']:.7} {path} {answer.status} {1000 * seconds:.1f} ms")

    async def _read(self, scope: Scope, receive: Receive) -> bytes:
        """The body of a request that is in order; others are refused."""
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        if scope["http_version"] not in ("1.0", "1.1"):
            raise Refusal(400, "this version of HTTP is not known: use HTTP/1.1.")
        if sum(len(name) + len(value) for name, value in headers) > self.state.limits.header_bytes:
            raise Refusal(413, "the headers are too large: send fewer or shorter ones.")
        self._check_headers(headers)
        path = scope["path"]
        is_open = path in _OPEN or path.startswith("/page/")
        if self.key is not None and not is_open:
            given = [value for name, value in headers if name == b"authorization"]
            if len(given) != 1 or not self.key.accepts(given[0]):
                raise Refusal(401, "the key is missing or wrong: send the header Authorization: Bearer KEY.")
        if not is_open and path != "/metrics":
            self.state.require_ready()
        if self.active > self.state.limits.requests:
            raise Refusal(429, "the server is too busy: try again soon.")
        if scope["method"] == "POST":
            _require_json(dict(headers))
        return await self._body(dict(headers), receive)

    def _check_headers(self, headers: list[tuple[bytes, bytes]]) -> None:
        names = [name for name, _ in headers]
        if any(names.count(one) > 1 for one in (b"content-length", b"transfer-encoding", b"host", b"content-type")):
            raise Refusal(400, "a header occurs twice: send it once.")
        found = dict(headers)
        if b"content-length" in found and b"transfer-encoding" in found:
            raise Refusal(400, "content-length and transfer-encoding contradict each other: send one of them.")
        if b"content-encoding" in found:
            raise Refusal(400, "the body is compressed: send it as it is.")
        if self.key is None:  # any web page could use a name of its own for this address
            host = found.get(b"host", b"").decode("latin-1").lower()
            name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
            if name not in _LOOPBACK:
                raise Refusal(
                    400, "the host is not this machine: use 127.0.0.1 or localhost, or serve with --key-file."
                )

    async def _body(self, headers: dict[bytes, bytes], receive: Receive) -> bytes:
        most = self.state.limits.body_bytes
        too_large = Refusal(413, f"the body is too large: send at most {most:,} bytes.")
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length[:20]) > _DRAINED or (int(length) > most and b"expect" in headers):
            raise too_large
        parts, size = [], 0
        try:
            async with asyncio.timeout(self.state.limits.reading):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Refusal(408, "the client has gone.")
                    part = message.get("body", b"")
                    size += len(part)
                    if size > _DRAINED:
                        raise too_large
                    if size <= most:
                        parts.append(part)
                    if message.get("more_body", False):
                        continue
                    if size > most:  # a client that is still sending would not read the answer
                        raise too_large
                    return b"".join(parts)
        except TimeoutError:
            seconds = self.state.limits.reading
            raise Refusal(408, f"the body did not arrive within {seconds:g} seconds: send it faster.") from None


def _require_json(headers: dict[bytes, bytes]) -> None:
    """Refuse other bodies than JSON, which the pages of other sites could send without being asked."""
    kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if kind != b"application/json":
        raise Refusal(422, "a JSON object is expected: send it with the header content-type: application/json.")


class SlowClientError(Exception):
    """A client that does not read its answer."""


class GuardedAnswer:
    """The answer to a request: with the headers of every answer, and given up if it is not read."""

    def __init__(self, send: Send, seconds: float) -> None:
        self._send, self.seconds = send, seconds
        self.status = 0

    async def send(self, message: Message) -> None:
        """Send a part of the answer."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            own = {name for name, _ in message["headers"]}
            message["headers"] = [*message["headers"], *(one for one in _HEADERS if one[0] not in own)]
        try:
            async with asyncio.timeout(self.seconds):
                await self._send(message)
        except TimeoutError:
            raise SlowClientError from None

    async def refuse(self, refusal: Refusal) -> None:
        """Send the refusal, unless an answer was begun."""
        if self.status:
            return
        data = refusal.data()
        headers = {"content-type": "application/json", "content-length": str(len(data)), **refusal.headers()}
        if refusal.status in (400, 408, 413):
            headers["connection"] = "close"  # the rest of the request is not read
        written = [(name.encode(), value.encode()) for name, value in headers.items()]
        try:
            await self.send({"type": "http.response.start", "status": refusal.status, "headers": written})
            await self.send({"type": "http.response.body", "body": data})
        except SlowClientError:
            pass


def _replayed(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives a body which was read, and then waits for the client to go."""
    is_given = False

    async def replay() -> Message:
        nonlocal is_given
        if is_given:
            return await receive()
        is_given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
