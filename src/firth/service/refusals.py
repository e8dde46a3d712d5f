"""Refusal: a request that is not answered, with its status and one sentence."""

from __future__ import annotations

from typing import Any

from firth.errors import FirthError
from firth.json_output import to_json
from firth.wording import in_python, printable

_TYPES = {
    400: "bad_request",
    401: "wrong_key",
    404: "not_found",
    405: "wrong_method",
    408: "too_slow",
    413: "too_large",
    422: "not_understood",
    429: "too_busy",
    500: "internal",
    503: "not_ready",
}
RETRY_SECONDS = 1
"""What `Retry-After` says with 429 and 503."""


class Refusal(Exception):  # noqa: N818 - an answer, not a fault of the program
    """A request that is not answered."""

    def __init__(self, status: int, message: str, *, param: str | None = None, kind: str | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.param = status, message, param
        self.kind = kind or _TYPES[status]

    def body(self) -> dict[str, Any]:
        """The JSON of the answer."""
        message = printable(self.message)
        return {"error": {"status": self.status, "type": self.kind, "message": message, "param": self.param}}

    def data(self) -> bytes:
        """The bytes of the answer."""
        return to_json(self.body()).encode()

    def headers(self) -> dict[str, str]:
        """Further headers of the answer."""
        if self.status == 401:
            return {"www-authenticate": "Bearer"}
        return {"retry-after": str(RETRY_SECONDS)} if self.status in (429, 503) else {}


def refusal_of(error: BaseException) -> Refusal:
    """The refusal for whatever a model raised."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, FirthError):
        return Refusal(422, in_python(error.message))
    if isinstance(error, MemoryError):
        return Refusal(413, "there is not enough memory for this request: send less text.")
    if type(error).__name__ == "PanicException":  # of a library written in Rust
        return Refusal(422, "the tokenizer of the model failed on this text: send another one.")
    return Refusal(500, f"the server failed ({type(error).__name__}): its log says where.")
