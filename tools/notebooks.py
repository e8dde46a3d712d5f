"""Run notebooks without Jupyter and store what they print.

    python tools/notebooks.py examples/*.ipynb      runs each in a temporary folder and writes its outputs

The cells of a notebook run in one namespace, as in Jupyter; an expression at the end of a cell is shown. Standard
output and such values are stored, standard error is not.
"""

from __future__ import annotations

import ast
import code
import contextlib
import io
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

Notebook = dict[str, Any]


def run_notebook(notebook: Notebook) -> Notebook:
    """The notebook with the outputs of a run in the current folder."""
    interpreter = _Interpreter({"__name__": "__main__"})
    cells, number = [], 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            number += 1
            outputs = interpreter.run_cell("".join(cell["source"]), number)
            cell = cell | {"execution_count": number, "outputs": outputs}
        cells.append(cell)
    return notebook | {"cells": cells}


class _Interpreter(code.InteractiveInterpreter):
    """An interpreter that returns the outputs of a cell and raises its errors."""

    def run_cell(self, source: str, number: int) -> list[dict[str, Any]]:
        shown: list[Any] = []
        printed = io.StringIO()
        old_hook, sys.displayhook = sys.displayhook, shown.append
        try:
            with contextlib.redirect_stdout(printed):
                *body, last = ast.parse(source).body or [ast.Pass()]
                self.runcode(compile(ast.Module(body, []), f"cell {number}", "exec"))
                self.runcode(compile(ast.Interactive([last]), f"cell {number}", "single"))
        finally:
            sys.displayhook = old_hook
        outputs: list[dict[str, Any]] = []
        if printed.getvalue():
            outputs.append({"name": "stdout", "output_type": "stream", "text": _lines(printed.getvalue())})
        outputs += [
            {"data": {"text/plain": _lines(repr(value))}, "execution_count": number, "metadata": {},
             "output_type": "execute_result"}
            for value in shown if value is not None
        ]  # fmt: skip
        return outputs

    def showtraceback(self) -> None:
        raise  # it is called while an exception of the cell is handled


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def read_notebook(path: Path) -> Notebook:
    """The notebook of a file."""
    notebook: Notebook = json.loads(path.read_text(encoding="utf-8"))
    return notebook


def write_notebook(path: Path, notebook: Notebook) -> None:
    """Write a notebook as Jupyter does."""
    path.write_text(json.dumps(notebook, ensure_ascii=False, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def main() -> None:
    for path in map(Path, sys.argv[1:]):
        place = path.resolve()
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            write_notebook(place, run_notebook(read_notebook(place)))
        print(f"{path}: {place.stat().st_size:,} bytes", file=sys.stderr)


if __name__ == "__main__":
    os.environ.setdefault("NO_COLOR", "1")
    main()
