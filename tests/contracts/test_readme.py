"""The commands and the Python of both READMEs run as they stand; every page they name exists."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fork_server import write_client

ROOT = Path(__file__).resolve().parents[2]
READMES = ("README.md", "README.zh.md")


def blocks(readme: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / readme).read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a `firth` that runs commands without starting Python anew for each."""
    folder = tmp_path_factory.mktemp("bin")
    write_client(folder / "firth", folder / "socket")
    command = [sys.executable, ROOT / "tests" / "fork_server.py", folder / "socket"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        yield folder
        server.kill()


@pytest.mark.parametrize("readme", READMES)
def test_the_commands_run(readme: str, tmp_path: Path, pydoc_cache: Path, commands: Path) -> None:
    script = "\n".join(block for block in blocks(readme, "sh") if "make " not in block)
    assert sum(line.startswith("firth ") for line in script.splitlines()) >= 10
    run_script(["bash", "-euo", "pipefail", "-c", script], tmp_path, pydoc_cache, commands)
    assert (tmp_path / "scores.jsonl").read_text().count("\n") == 2


@pytest.mark.parametrize("readme", READMES)
def test_the_python_runs(readme: str, tmp_path: Path, pydoc_cache: Path) -> None:
    (code,) = blocks(readme, "python")
    run_script([sys.executable, "-c", code], tmp_path, pydoc_cache)


@pytest.mark.parametrize("readme", READMES)
def test_both_set_up_commands_are_named(readme: str) -> None:
    text = (ROOT / readme).read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text()
    for target in ("demo", "test"):
        assert f"make {target}" in text
        assert f"\n{target}:" in makefile


@pytest.mark.parametrize(
    "page", [*READMES, "CONTRIBUTING.md", *(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md"))]
)
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        assert (ROOT / page).parent.joinpath(target).exists(), f"{page} links to {target}"


def run_script(command: list[str], folder: Path, cache: Path, *first: Path) -> None:
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([*map(str, first), str(Path(sys.executable).parent), os.environ["PATH"]]),
        "FIRTH_CACHE": str(cache),
    }
    run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
