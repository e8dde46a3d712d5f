"""Limits of the server: sizes, numbers and times beyond which a request is refused."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Limits:
    """What a request may take; the defaults suit a machine of a few cores."""

    body_bytes: int = 2 << 20
    """Bytes of the body of a request."""
    texts: int = 256
    """Texts of a request."""
    tokens: int = 1 << 16
    """Tokens of all texts of a request."""
    numbers: int = 1 << 22
    """Numbers in an answer: texts times the dimension of their vectors."""
    generated: int = 2048
    """Tokens that a request may ask for: texts times their length times beams."""
    batch_tokens: int = 2048
    """Tokens that are read at once, at least one text."""
    queued_tokens: int = 1 << 17
    """Estimated tokens of all texts that wait; a request finds the server too busy if there are more."""
    waiting: float = 1.0
    """Seconds of work, as it was measured, that may wait; a request finds the server too busy if there are more."""
    requests: int = 2048
    """Requests that are read or wait at the same time."""
    connections: int = 4096
    header_bytes: int = 1 << 14
    """Bytes of the first line and the headers of a request."""
    deadline: float = 30.0
    """Seconds after which a request is given up."""
    reading: float = 10.0
    """Seconds in which the headers, and then the body, of a request must arrive."""
    sending: float = 30.0
    """Seconds that a client may take to read a part of an answer."""
    idle: float = 15.0
    """Seconds that a connection stays open without a request."""
    stopping: float = 60.0
    """Seconds in which accepted requests are finished after SIGTERM."""

    def shown(self) -> dict[str, float]:
        """What /info tells clients."""
        names = ("body_bytes", "texts", "tokens", "numbers", "generated", "deadline")
        return {name: value for name, value in asdict(self).items() if name in names}
