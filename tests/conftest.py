"""Fixtures that every test may use."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
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
    """A cache folder in which `builtin:pydoc` has been extracted, once for all workers.

    A process of its own extracts it and checks that it does not import what it reads.
    """
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "pydoc-cache"
    folder.mkdir(exist_ok=True)
    script = (
        "import sys; from firth.text.pydoc import pydoc_documents; print(sum(1 for _ in pydoc_documents()));"
        "assert not {'torch', 'scipy', 'sklearn', 'matplotlib', 'numba'} & set(sys.modules)"
    )
    with open(folder.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not any(folder.iterdir()):
            subprocess.run([sys.executable, "-c", script], env=os.environ | {"FIRTH_CACHE": str(folder)}, check=True)
    return folder


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test gets a cache folder of its own, so none can find what another left."""
    monkeypatch.setenv("FIRTH_CACHE", str(tmp_path_factory.mktemp("cache")))
