"""The commands and the Python of both READMEs run as they stand; every page they name exists."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
READMES = ("README.md", "README.zh.md")


def blocks(readme: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / readme).read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("readme", READMES)
def test_the_commands_run(readme: str, tmp_path: Path, pydoc_cache: Path) -> None:
    script = "\n".join(block for block in blocks(readme, "sh") if "make " not in block)
    commands = [line for line in script.splitlines() if line.startswith("firth ")]
    assert len(commands) >= 10
    run_script(["bash", "-euo", "pipefail", "-c", script], tmp_path, pydoc_cache)
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


def run_script(command: list[str], folder: Path, cache: Path) -> None:
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "FIRTH_CACHE": str(cache),
    }
    run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
