"""The files of the page, read once when the server starts and served from memory."""

from __future__ import annotations

import hashlib
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NamedTuple

from fastapi import FastAPI, Request, Response

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
HEADERS = {
    # Scripts, styles and requests of this origin alone. Trusted types without a policy rule out innerHTML.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",  # the browser asks whether the ETag still holds
}


class PageFile(NamedTuple):
    """A file with the headers of its answer."""

    content: bytes
    headers: dict[str, str]


def read_page() -> dict[str, PageFile]:
    """The files of the page by their paths; `/` is the page itself.

    >>> page = read_page()
    >>> page["/"].content.startswith(b"<!DOCTYPE html>"), page["/page/js/main.js"].headers["Content-Type"]
    (True, 'text/javascript; charset=utf-8')
    """
    found = _read_folder(files("firth.service") / "page", "/page/")
    found["/"] = found.pop("/page/index.html")
    return found


def _read_folder(folder: Traversable, path: str) -> dict[str, PageFile]:
    found: dict[str, PageFile] = {}
    for entry in folder.iterdir():
        if entry.is_dir():
            found |= _read_folder(entry, f"{path}{entry.name}/")
        elif kind := TYPES.get(f".{entry.name.rpartition('.')[2]}"):
            content = entry.read_bytes()
            tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
            found[path + entry.name] = PageFile(content, {**HEADERS, "Content-Type": kind, "ETag": tag})
    return found


def add_page(app: FastAPI) -> None:
    """Serve the page at `/` and its files below `/page/`: a route for each file, so that no path is ever looked up."""
    for path, file in read_page().items():
        _add_file(app, path, file)


def _add_file(app: FastAPI, path: str, file: PageFile) -> None:
    async def answer(request: Request) -> Response:
        if request.headers.get("if-none-match") == file.headers["ETag"]:
            return Response(status_code=304, headers=file.headers)
        return Response(file.content, headers=file.headers)

    app.add_route(path, answer, methods=["GET"], include_in_schema=False)  # HEAD is added by Starlette
