"""The commands and the Python of both READMEs run as they stand and print what is shown; links lead somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fork_server import write_client
from tools.outputs import console_commands, fills_match, matches, run_page

ROOT = Path(__file__).resolve().parents[2]
READMES = ("README.md", "README.zh.md")
FIRST_STEPS = {"docs/getting-started.md": "README.md", "docs/zh/getting-started.md": "README.zh.md"}
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")


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
def test_the_commands_run_and_print_what_is_shown(
    readme: str, tmp_path: Path, pydoc_cache: Path, commands: Path
) -> None:
    """The first screen with its outputs, then the tour, which uses its models."""
    text = (ROOT / readme).read_text(encoding="utf-8")
    assert len(console_commands(text)) == 6
    ran = run_page(text, tmp_path, environment_for(pydoc_cache, commands))
    assert ran == text, f"run: python tools/outputs.py {readme}"
    script = "\n".join(block for block in blocks(readme, "sh") if "make " not in block)
    assert sum(line.startswith("firth ") for line in script.splitlines()) >= 10
    run_script(["bash", "-euo", "pipefail", "-c", script], tmp_path, pydoc_cache, commands)
    assert (tmp_path / "scores.jsonl").read_text().count("\n") == 2


def test_a_shown_output_that_differs_is_found(tmp_path: Path) -> None:
    page = "```console\n$ echo 1.5 s\n... s\n$ echo two\none\n```\n"
    assert run_page(page, tmp_path, os.environ) == "```console\n$ echo 1.5 s\n... s\n$ echo two\ntwo\n```\n"
    assert not matches("... s\n", "1.5 s\nmore\n")
    with pytest.raises(RuntimeError, match="false failed"):
        run_page("```console\n$ false\n```\n", tmp_path, os.environ)


FILLED = "0.0655  baker             the baker repairs.\n0.0580  hunter            the hunter repairs.\n"


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        (FILLED, True),
        (FILLED.replace("0.0655", "0.0795").replace("0.0580", "0.0795"), True),  # as on another processor
        ("".join(reversed(FILLED.splitlines(keepends=True))), True),  # of nearly equal probability
        (FILLED.replace("hunter", "sailor"), True),
        (FILLED.replace("hunter", "sailor").replace("baker", "lamp"), False),
        (FILLED.replace("0.0655", "0.4655"), False),
        (FILLED.replace("0.0580", "0.4580").replace("hunter", "of"), False),
        (FILLED.splitlines()[0], False),
        ("", False),
        ("nan  baker\nnan  hunter\n", False),
    ],
)
def test_candidates_of_masks_are_compared_with_tolerance(printed: str, expected: bool, tmp_path: Path) -> None:
    """Networks trained on other processors differ by more than a hundredth, but another answer is found."""
    assert fills_match(FILLED, printed) == expected
    (tmp_path / "firth").write_text(f"#!/bin/sh\ncat <<END\n{printed}END\n" if printed else "#!/bin/sh\n")
    (tmp_path / "firth").chmod(0o755)
    page = f"```console\n$ firth fill bert x\n{FILLED}```\n"
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    if not printed or printed.endswith("\n"):
        assert (run_page(page, tmp_path, environment) == page) == expected


@pytest.mark.parametrize("page", FIRST_STEPS)
def test_the_commands_of_the_first_steps_are_those_of_the_readme(page: str) -> None:
    """So they run, too, and print what is shown."""
    readme, steps = ((ROOT / name).read_text(encoding="utf-8") for name in (FIRST_STEPS[page], page))
    shown = console_commands(readme)
    assert console_commands(steps)
    assert [pair for pair in console_commands(steps) if pair not in shown] == []
    lines = {line for block in blocks(FIRST_STEPS[page], "sh") for line in block.splitlines()}
    assert {line for block in blocks(page, "sh") for line in block.splitlines()} <= lines


@pytest.mark.parametrize("readme", READMES)
def test_the_speeds_are_those_of_the_benchmarks(readme: str) -> None:
    """Firth's number and the ratio of each row are in one row of the benchmarks, the other tool's in another."""
    text = (ROOT / readme).read_text(encoding="utf-8")
    rows = re.findall(r"^\|[^|]*\|[^|]*\|([^|]*)\|([^|]*)\| ([\d.]+) \|$", text, re.MULTILINE)
    assert len(rows) >= 8
    measured = [set(NUMBER.findall(line)) for line in (ROOT / "docs/benchmarks.md").read_text("utf-8").splitlines()]
    for peer, ours, ratio in rows:
        assert any({*NUMBER.findall(ours), ratio} <= line for line in measured), f"{ours}: {ratio}"
        assert any(set(NUMBER.findall(peer)) <= line for line in measured), peer
    sentence = text.split("\n\n")[2]
    claimed = set(re.findall(r"\d+\.\d", sentence))
    assert claimed
    assert claimed <= {f"{float(ratio):.1f}" for *_, ratio in rows}


@pytest.mark.parametrize("readme", READMES)
def test_the_first_screen_comes_first(readme: str) -> None:
    """A sentence with a number, the installation, six commands, the picture, the table."""
    text = (ROOT / readme).read_text(encoding="utf-8")
    number = re.search(r"\d\.\d", text)
    assert number is not None
    parts = [number.start(), *map(text.index, ("pip install", "```console", "report.png", "| KenLM |", "\n## "))]
    assert parts == sorted(parts)
    picture = ROOT / "docs" / "images" / "report.png"
    assert 20_000 < picture.stat().st_size < 400_000


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
    "page", [*READMES, "CONTRIBUTING.md", *(p.relative_to(ROOT).as_posix() for p in (ROOT / "docs").rglob("*.md"))]
)
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        assert (ROOT / page).parent.joinpath(target).exists(), f"{page} links to {target}"


def environment_for(cache: Path, *first: Path) -> dict[str, str]:
    """An environment in which the commands of `first` and of this Python are found."""
    path = os.pathsep.join([*map(str, first), str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**os.environ, "PATH": path, "FIRTH_CACHE": str(cache)}


def run_script(command: list[str], folder: Path, cache: Path, *first: Path) -> None:
    environment = environment_for(cache, *first)
    run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
