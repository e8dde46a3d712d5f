"""The commands of docs/serving.md work, and so do the files around it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from firth.service.limits import Limits
from tests.service.running import RunningServer

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")


def commands() -> list[str]:
    found = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.S) for line in block.splitlines()]
    return [line for line in found if line.startswith("curl") and "Bearer" not in line]


def test_every_endpoint_has_a_command(server: RunningServer) -> None:
    document = server.get("/openapi.json")[1]
    for path in [*document["paths"], "/docs", "/openapi.json"]:
        assert any(f"localhost:8080{path.partition('{')[0]}" in line for line in commands()), path


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize("command", commands())
def test_commands_of_the_page(command: str, server: RunningServer) -> None:
    run = subprocess.run(
        ["bash", "-c", command.replace("localhost:8080", f"localhost:{server.port}")],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    if any(part in command for part in ("/metrics", "/docs", ":8080/ ", '"stream"')) or command.endswith(":8080/"):
        assert run.stdout
        return
    found = json.loads(run.stdout)
    error = found.get("error")
    words = "there is no vector" if "/similar" in command else "no error"  # the small models know other words
    assert error is None or words in error["message"], found


def test_the_command_with_a_key(model_folder: Path, tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    (command,) = [line for line in PAGE.splitlines() if line.startswith("curl") and "Bearer" in line]
    (tmp_path / "key").write_text("0123456789abcdef" * 2)
    with RunningServer([model_folder / "kn"], Limits(), key="0123456789abcdef" * 2) as served:
        written = command.replace("localhost:8080", f"localhost:{served.port}")
        run = subprocess.run(["bash", "-c", written], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert json.loads(run.stdout)["models"][0]["name"] == "kn"


def test_the_limits_of_the_page_are_those_of_the_server() -> None:
    limits = Limits()
    assert f"| {limits.texts}, {limits.tokens:,} |" in PAGE
    assert f"| {limits.generated:,} |" in PAGE
    assert f"| {limits.numbers:,} |" in PAGE
    assert f"| {limits.body_bytes >> 20} MiB, {limits.header_bytes >> 10} KiB |" in PAGE
    assert f"| {limits.reading:g} s each |" in PAGE


def test_the_image_runs_the_server_with_a_key() -> None:
    text = (ROOT / "Dockerfile").read_text()
    assert '"--key-file", "/run/secrets/key"' in text
    assert "USER firth" in text
