"""A server in a thread and a browser, for the tests of the page."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import threading
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
)
WAIT = 60.0  # seconds: the machine may be busy
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@contextlib.contextmanager
def running_server(folders: Sequence[Path], key: bytes | None = None) -> Generator[str]:
    """The address of a server with some models, until the end of the block."""
    pytest.importorskip("fastapi", reason="the extra `serve` is not installed")
    from firth.service.guard import KeyCheck
    from firth.service.limits import Limits
    from firth.service.registry import ModelRegistry
    from firth.service.server import FirthServer
    from firth.service.state import ServerState

    limits = Limits()
    state = ServerState(ModelRegistry(folders), limits, 1)
    server = FirthServer(state, limits, None if key is None else KeyCheck(key))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            end = time.monotonic() + WAIT
            while not (server.started and state.registry.is_ready):
                assert thread.is_alive(), server.failure
                assert time.monotonic() < end, "the models are not ready"
                time.sleep(0.02)
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(WAIT)


@contextlib.contextmanager
def running_browser() -> Generator[Any]:
    """Chromium driven by Playwright; skips with a reason where one of them is not there."""
    driver = pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium on this machine (on Debian: apt-get install chromium)")
    with driver.sync_playwright() as playwright:
        environment = os.environ | {"NO_PROXY": "*"}
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS, env=environment)
        yield browser
        browser.close()


class Visit:
    """A tab of the browser on the page, which records errors and requests to other servers."""

    def __init__(self, browser: Any, address: str, **options: Any) -> None:
        self.address, self.problems = address, list[str]()
        self.context = browser.new_context(**({"locale": "en-GB"} | options))
        self.context.set_default_timeout(1000 * WAIT)
        self.page = self.context.new_page()
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("request", self._on_request)

    def _on_console(self, message: Any) -> None:
        refused = "Failed to load resource" in message.text  # an answer such as 422, which the page shows
        if message.type in ("error", "warning") and not refused:
            self.problems.append(message.text)

    def _on_request(self, request: Any) -> None:
        if urlsplit(request.url).netloc != urlsplit(self.address).netloc:
            self.problems.append(f"request to {request.url}")

    def open(self, panel: str = "surprise") -> Any:
        """The page at a panel, with what the panel shows by itself."""
        self.page.goto(f"{self.address}/#{panel}")
        self.page.wait_for_selector(f"section#{panel}")
        return self.page

    def run(self) -> None:
        """Press the button of the panel and wait for the answer."""
        self.page.click("button[type=submit]")
        self.answered()

    def answered(self) -> None:
        """Wait for the answer of the panel."""
        self.page.wait_for_selector(".results[aria-busy=false] > *")
