"""The archives of a release: the wheel and the sdist are complete, and what the wheel installs runs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

import firth

ROOT = Path(__file__).resolve().parents[2]
# The wheel is built from the sdist, as `python -m build` does, so a file that the sdist lacks is missed here.
BUILD = """
import os, sys, tarfile
from setuptools.build_meta import build_sdist, build_wheel
out = sys.argv[1]
with tarfile.open(os.path.join(out, build_sdist(out))) as archive:
    archive.extractall(out, filter="data")
os.chdir(next(entry.path for entry in os.scandir(out) if entry.is_dir()))
build_wheel(out)
"""
# Files of a working tree that belong to no release.
NOT_SOURCE = (".*", "__pycache__", "build", "demo-report", "results", "site", "*.egg-info", "*.nb[ic]")


class Archives(NamedTuple):
    sdist: Path
    wheel: Path


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Archives:
    """An sdist of the working tree and the wheel built from it."""
    source = tmp_path_factory.mktemp("source") / "firth"
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(*NOT_SOURCE))
    out = tmp_path_factory.mktemp("dist")
    built = subprocess.run([sys.executable, "-c", BUILD, str(out)], cwd=source, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return Archives(next(out.glob("*.tar.gz")), next(out.glob("*.whl")))


def package_files() -> set[str]:
    """The files of the package that Python or the report reads."""
    files = (path for path in (ROOT / "src" / "firth").rglob("*") if path.is_file())
    return {
        path.relative_to(ROOT / "src").as_posix()
        for path in files
        if path.suffix not in {".pyc", ".nbi", ".nbc"} and not path.name.startswith(".")
    }


def test_the_wheel_has_the_whole_package(archives: Archives) -> None:
    names = set(zipfile.ZipFile(archives.wheel).namelist())
    assert {name for name in names if ".dist-info/" not in name} == package_files()
    assert {"firth/py.typed", "firth/report/templates/report.html.j2"} <= names
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_the_sdist_has_what_a_clone_has(archives: Archives) -> None:
    with tarfile.open(archives.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"Makefile", "README.zh.md", "CITATION.cff", "mkdocs.yml", "constraints.txt", "tools/outputs.py"} <= names
    for folder in ("bench", "docs", "examples", "tests"):
        files = (path for path in (ROOT / folder).rglob("*.*") if path.is_file() and "__pycache__" not in path.parts)
        assert {path.relative_to(ROOT).as_posix() for path in files} <= names


def test_an_installed_wheel_runs(archives: Archives, tmp_path: Path) -> None:
    target = tmp_path / "installed"
    options = ["--quiet", "--disable-pip-version-check", "--no-index", "--no-deps", "--no-compile"]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, "--target", target, archives.wheel], check=True)
    environment = os.environ | {"PYTHONPATH": str(target)}
    script = (
        "import firth; print(firth.__file__); from firth.report.page import render_page;"
        "print(len(render_page({'title': 'Firth', 'runs': []})))"
    )
    command = [sys.executable, "-c", script]
    shown = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True).stdout
    where, size = shown.splitlines()
    assert Path(where).is_relative_to(target), "the package of the wheel was not the one imported"
    assert int(size) > 1000, "templates are missing"
    run = subprocess.run(
        [target / "bin" / "firth", "recipes", "wordpiece", "--json"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert "wordpiece" in run.stdout


def test_one_version_everywhere(archives: Archives) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    changes = re.findall(r"^## (\d\S*)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert {firth.__version__, project["version"], citation["version"], changes[0]} == {firth.__version__}
    assert f"firth-{firth.__version__}-py3-none-any.whl" == archives.wheel.name


def test_the_citation_is_complete() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= citation.keys(), "required by the format"
    assert citation["cff-version"] == "1.2.0"
    assert citation["license"] == "Apache-2.0"
