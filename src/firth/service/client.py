"""Client: the models of a server, with retries. It needs the standard library only."""

from __future__ import annotations

import http.client
import json
import random
import time
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote, urlsplit

from firth.errors import ArgumentError, FirthError

_RETRIED = (429, 503)
_LONGEST_WAIT = 8.0  # seconds


class ServiceError(FirthError):
    """A server refused a request, or there is none."""

    def __init__(self, message: str, status: int = 0, answer: Any = None) -> None:
        super().__init__(message)
        self.status, self.answer = status, answer


class Client:
    """The endpoints of `firth serve` as methods, which return the JSON of the answers.

        client = firth.Client("http://127.0.0.1:8080")
        client.score("kn", ["a sentence"])["results"][0]["logprob"]

    Requests are sent again while the server is too busy, not ready or not there, later and later. Threads may share a
    client.
    """

    def __init__(
        self, url: str = "http://127.0.0.1:8080", *, key: str | None = None, timeout: float = 60.0, retries: int = 5
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ArgumentError(f"{url!r:.80} is no address of a server: give one such as http://127.0.0.1:8080.")
        self._parts, self.timeout, self.retries = parts, timeout, retries
        self._headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {key}"} if key else {})
        self._idle: list[http.client.HTTPConnection] = []

    def score(self, model: str, texts: Sequence[Any], **options: Any) -> dict[str, Any]:
        """The scores of texts."""
        return self._post("/score", model=model, texts=list(texts), **options)

    def next(self, model: str, history: str = "", **options: Any) -> dict[str, Any]:
        """The most probable next tokens."""
        return self._post("/next", model=model, history=history, **options)

    def fill(self, model: str, text: str, **options: Any) -> dict[str, Any]:
        """The most probable tokens for masks."""
        return self._post("/fill", model=model, text=text, **options)

    def similar(self, model: str, word: str, **options: Any) -> dict[str, Any]:
        """The nearest words."""
        return self._post("/similar", model=model, word=word, **options)

    def embed(self, model: str, texts: Sequence[str], **options: Any) -> dict[str, Any]:
        """The vectors of texts."""
        return self._post("/embed", model=model, texts=list(texts), **options)

    def predict(self, model: str, texts: Sequence[Any], **options: Any) -> dict[str, Any]:
        """The predictions for texts, or for what the task reads."""
        return self._post("/predict", model=model, texts=list(texts), **options)

    def tokenize(self, model: str, texts: Sequence[str]) -> dict[str, Any]:
        """The tokens of texts."""
        return self._post("/tokenize", model=model, texts=list(texts))

    def generate(self, model: str, prompt: str = "", **options: Any) -> dict[str, Any]:
        """Texts that continue a prompt."""
        return self._post("/generate", model=model, prompt=prompt, **options)

    def stream(self, model: str, prompt: str = "", **options: Any) -> Iterator[dict[str, Any]]:
        """`{"text": ...}` after each token, and at last the answer of `generate`."""
        body = {"model": model, "prompt": prompt, "stream": True, **options}
        connection, response = self._response("POST", "/generate", body)
        try:
            if response.status != 200:
                raise _error(response.status, response.read())
            name = ""
            for line in response:
                field, _, value = line.decode().strip().partition(": ")
                if field == "event":
                    name = value
                elif field == "data" and name == "error":
                    raise _error(0, value.encode())
                elif field == "data":
                    yield json.loads(value)
        finally:
            connection.close()

    def info(self, model: str | None = None) -> dict[str, Any]:
        """The models and the limits of the server, or the card and the manifest of one model."""
        return self._get("/info" if model is None else f"/info?model={quote(model, safe='')}")

    def models(self) -> list[str]:
        """The names of the models."""
        return [one["name"] for one in self.info()["models"]]

    def wait(self, seconds: float = 60.0) -> dict[str, Any]:
        """The names and digests of the models, as soon as the server is ready."""
        end = time.monotonic() + seconds
        while True:
            try:
                status, data = self._once("GET", "/ready", None)
            except OSError:
                status, data = 0, b""
            if status == 200:
                return dict(json.loads(data)["models"])
            if time.monotonic() > end:
                raise ServiceError(f"the server was not ready within {seconds:g} seconds: read its log.", status)
            time.sleep(0.1)

    def close(self) -> None:
        """Close all connections that are not in use; another request opens one again."""
        while self._idle:
            self._idle.pop().close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _post(self, path: str, **body: Any) -> dict[str, Any]:
        return self._answer("POST", path, body)

    def _get(self, path: str) -> dict[str, Any]:
        return self._answer("GET", path, None)

    def _answer(self, method: str, path: str, body: Any) -> dict[str, Any]:
        wait = 0.1
        for attempt in range(self.retries + 1):
            is_last = attempt == self.retries
            try:
                status, data = self._once(method, path, body)
            except OSError as error:
                if is_last:
                    where = self._parts.netloc.rpartition("@")[2]
                    raise ServiceError(
                        f"there is no answer from {where} ({error}): start it with firth serve."
                    ) from error
            else:
                if status == 200:
                    return dict(json.loads(data))
                if status not in _RETRIED or is_last:
                    raise _error(status, data)
            time.sleep(wait * random.uniform(0.5, 1.5))
            wait = min(2 * wait, _LONGEST_WAIT)
        raise AssertionError("the last attempt returns or raises")

    def _once(self, method: str, path: str, body: Any) -> tuple[int, bytes]:
        connection, response = self._response(method, path, body)
        try:
            data = response.read()
        except http.client.HTTPException as error:
            connection.close()
            raise ConnectionError(str(error)) from error
        self._idle.append(connection)  # if the server has closed it, it is opened again
        return response.status, data

    def _response(
        self, method: str, path: str, body: Any
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        """The response to a request; a connection that the server has closed meanwhile is opened again."""
        data = None if body is None else json.dumps(body).encode()
        connection = self._connection()
        for is_fresh in (connection.sock is None, True):
            try:
                connection.request(method, self._parts.path.rstrip("/") + path, data, self._headers)
                return connection, connection.getresponse()
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                if is_fresh:
                    raise error if isinstance(error, OSError) else ConnectionError(str(error)) from error
        raise AssertionError("the second attempt returns or raises")

    def _connection(self) -> http.client.HTTPConnection:
        """A connection that no other thread uses."""
        try:
            return self._idle.pop()
        except IndexError:
            kind = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
            assert self._parts.hostname is not None
            return kind(self._parts.hostname, self._parts.port, timeout=self.timeout)


def _error(status: int, data: bytes) -> ServiceError:
    try:
        answer = json.loads(data)
        found = answer["error"]
        return ServiceError(str(found["message"]), int(found["status"]), answer)
    except (ValueError, KeyError, TypeError):
        return ServiceError(f"the server answered with the status {status}: read its log.", status)
