"""The notebooks run from top to bottom and print what is stored in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.notebooks import Notebook, read_notebook, run_notebook
from tools.outputs import matches

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


def test_the_three_notebooks_are_there() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["chinese", "compare", "quickstart"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_prints_what_it_shows(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    stored = read_notebook(path)
    shown, printed = outputs(stored), outputs(run_notebook(stored))
    assert sum(map(bool, shown)) >= 4
    for one, other in zip(shown, printed, strict=True):
        assert len(one) == len(other)
        assert all(map(matches, one, other)), f"{other}; run: python tools/notebooks.py examples/{path.name}"


def test_an_error_in_a_cell_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        run_notebook(notebook("x = 0", "1 / x"))


def test_what_a_cell_prints_and_its_last_value_are_its_outputs() -> None:
    ran = run_notebook(notebook("x = 2", "print('two')\nx * 3", "x = x\nx;None"))
    assert outputs(ran) == [[], ["two\n", "6"], []]


def notebook(*sources: str) -> Notebook:
    return {"cells": [{"cell_type": "code", "source": [source]} for source in sources]}


def outputs(notebook: Notebook) -> list[list[str]]:
    """The texts of the outputs of each code cell."""
    return [
        ["".join(one["text"] if "text" in one else one["data"]["text/plain"]) for one in cell.get("outputs", ())]
        for cell in notebook["cells"]
        if cell["cell_type"] == "code"
    ]
