"""Static files: the page, and the description of the API, both without any network."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.responses import Response

FOLDER = Path(__file__).parent / "page"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".json": "application/json",
    ".woff2": "font/woff2",
    ".txt": "text/plain; charset=utf-8",
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
"""The content security policy: nothing from elsewhere, no inline script or style, no HTML made of strings."""
_DOCS_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color-scheme:light dark}"
    "pre{overflow:auto;padding:.75rem;border:1px solid #8884;border-radius:.5rem}"
    "summary{cursor:pointer;padding:.4rem 0}"
    "code,pre{font:14px/1.45 ui-monospace,monospace}b{display:inline-block;min-width:3.5rem}"
)


def static_pages(app: FastAPI) -> dict[str, Callable[[], Response]]:
    """The answers to paths of static files, which are read once, so that no request leads to the disk."""
    found = {f"/page/{name}": _file(data, kind) for name, data, kind in _files(FOLDER)}
    index = FOLDER / "index.html"
    front = index.read_bytes() if index.is_file() else b'<!doctype html><title>Firth</title><a href="/docs">API</a>\n'
    found["/"] = _file(front, _TYPES[".html"])
    found["/docs"] = lambda: Response(docs_page(app.openapi()), media_type=_TYPES[".html"], headers=_docs_headers())
    return found


def _files(folder: Path) -> Iterator[tuple[str, bytes, str]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix in _TYPES and not path.is_symlink():
            yield path.relative_to(folder).as_posix(), path.read_bytes(), _TYPES[path.suffix]


def _file(data: bytes, kind: str) -> Callable[[], Response]:
    return lambda: Response(
        data, media_type=kind, headers={"content-security-policy": POLICY, "cache-control": "no-cache"}
    )


def _docs_headers() -> dict[str, str]:
    digest = base64.b64encode(hashlib.sha256(_DOCS_STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; frame-ancestors 'none'"
    return {"content-security-policy": policy}


def docs_page(document: dict[str, Any]) -> str:
    """The OpenAPI document as one HTML page without scripts."""
    parts = [
        "<!doctype html><html lang='en'><meta charset='utf-8'><meta name='viewport' content='width=device-width'>",
        f"<title>Firth API</title><style>{_DOCS_STYLE}</style><h1>{html.escape(document['info']['title'])} API</h1>",
        f"<p>{html.escape(document['info'].get('description', ''))} <a href='/openapi.json'>openapi.json</a></p>",
    ]
    for path, methods in document["paths"].items():
        for method, about in methods.items():
            parts.append(_endpoint(document, path, method.upper(), about))
    return "".join(parts) + "</html>\n"


def _endpoint(document: dict[str, Any], path: str, method: str, about: dict[str, Any]) -> str:
    title = f"<b>{method}</b> <code>{html.escape(path)}</code> {html.escape(about.get('summary', ''))}"
    body = about.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    parts = [f"<details><summary>{title}</summary>"]
    if body is not None:
        parts.append(f"<h4>Request</h4>{_schema(document, body)}")
    for status, answer in about["responses"].items():
        schema = answer.get("content", {}).get("application/json", {}).get("schema")
        shown = _schema(document, schema) if schema is not None and status == "200" else ""
        parts.append(f"<h4>{html.escape(status)} {html.escape(answer.get('description', ''))}</h4>{shown}")
    return "".join(parts) + "</details>"


def _schema(document: dict[str, Any], schema: dict[str, Any]) -> str:
    name = schema.get("$ref", "").rpartition("/")[2]
    found = document["components"]["schemas"].get(name, schema)
    return f"<pre>{html.escape(json.dumps(found, indent=1, ensure_ascii=False))}</pre>"
