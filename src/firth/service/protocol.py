"""The HTTP protocol: uvicorn's, which also gives up connections whose headers do not arrive, and too many of them."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from firth.service.limits import Limits
from firth.service.refusals import Refusal


class GuardedProtocol(H11Protocol):
    """A connection."""

    limits = Limits()
    _headers_task: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            self._refuse(Refusal(503, "there are too many connections: try again soon."))
            return
        self._expect_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_expecting()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        super().handle_events()
        waits = self.conn.their_state is h11.IDLE
        if not waits:
            self._stop_expecting()
        elif self.conn.trailing_data[0] and self._headers_task is None:
            self._expect_headers()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP, in the one shape of errors."""
        self._refuse(Refusal(400, "this is not a request that the server understands: send HTTP/1.1 as clients do."))

    def _refuse(self, refusal: Refusal) -> None:
        data = refusal.data()
        reason = {400: "Bad Request", 408: "Request Timeout", 503: "Service Unavailable"}[refusal.status]
        head = (
            f"HTTP/1.1 {refusal.status} {reason}\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n"
            "connection: close\r\n\r\n"
        )
        if not self.transport.is_closing():
            self.transport.write(head.encode() + data)
            self.transport.close()

    def _expect_headers(self) -> None:
        self._headers_task = self.loop.call_later(self.limits.reading, self._too_slow)

    def _stop_expecting(self) -> None:
        if self._headers_task is not None:
            self._headers_task.cancel()
            self._headers_task = None

    def _too_slow(self) -> None:
        self._headers_task = None
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            if self.conn.trailing_data[0]:
                self._refuse(Refusal(408, "the headers did not arrive in time: send them faster."))
            else:
                self.transport.close()


def protocol_with(limits: Limits) -> Any:
    """The protocol with other limits."""
    return type("LimitedProtocol", (GuardedProtocol,), {"limits": limits})
