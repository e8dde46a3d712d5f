"""Fixtures that every test may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

# The same examples in every run; no deadline, because kernels compile on first use.
settings.register_profile("firth", deadline=None, derandomize=True)
settings.load_profile("firth")


def pytest_configure() -> None:
    """Workers of pytest-xdist take a core each, so that their threads do not get in each other's way."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    if worker and hasattr(os, "sched_setaffinity"):
        allowed = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {allowed[int(worker.removeprefix("gw")) % len(allowed)]})


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real public data that lies beside the repository on a development machine."""
    folder = Path(__file__).resolve().parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("the real public data (../shared/data) is not on this machine")
    return folder


@pytest.fixture(scope="session")
def pydoc_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder in which `builtin:pydoc` has been extracted once for all tests that read it."""
    return tmp_path_factory.mktemp("pydoc-cache")


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test gets a cache folder of its own, so none can find what another left."""
    monkeypatch.setenv("FIRTH_CACHE", str(tmp_path_factory.mktemp("cache")))
