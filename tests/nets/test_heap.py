"""Memory that is freed is kept where the C library can do so, and nothing fails where it cannot."""

from __future__ import annotations

import ctypes
import platform
import subprocess
import sys

import pytest

from firth.nets.heap import keep_memory


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library keeps memory as it likes")
def test_the_c_library_takes_the_setting() -> None:
    code = "from firth.nets.heap import keep_memory; print(keep_memory())"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "True"


def test_libraries_without_the_setting_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    assert keep_memory() is False
