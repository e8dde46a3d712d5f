"""Folders import only the folders above them, and light verbs import no heavy libraries."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src" / "firth"
ORDER = [
    [
        "wording",
        "errors",
        "arguments",
        "summaries",
        "cores",
        "memory",
        "plots",
        "files",
        "progress",
        "abilities",
        "prefetch",
        "cache",
        "records",
        "training",
        "json_output",
    ],
    ["text"],
    ["tokens"],
    ["decoding"],
    ["lm"],
    ["counts", "vectors", "nets"],  # these three do not import each other
    ["objectives"],
    ["metrics"],
    ["tasks"],
    ["recipes"],
    ["artifact"],
    ["fit"],
    ["apply"],
    ["report"],
    ["api"],
    ["service"],
    ["cli"],
    ["__main__"],
]
RANK = {name: rank for rank, names in enumerate(ORDER) for name in names}


def imported_folders(path: Path) -> set[str]:
    """The folders (or top-level modules) of firth that a file imports, at any depth."""
    folders = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            names = [node.module or ""]
            if node.module == "firth":
                names = [f"firth.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        folders |= {name.split(".")[1] for name in names if name.startswith("firth.")}
    return folders


def source_files() -> list[Path]:
    return [path for path in sorted(SOURCE.rglob("*.py")) if path != SOURCE / "__init__.py"]


def folder_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", source_files(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_folders_import_only_folders_above(path: Path) -> None:
    own = folder_of(path)
    for other in imported_folders(path):
        top_level = RANK[own] == 0
        allowed = other == own or (RANK[other] < RANK[own]) or (top_level and RANK[other] == 0)
        assert allowed, f"{own} must not import {other}"


def test_imports_inside_functions_are_found(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text("def f():\n    from firth.cli.main import main\n")
    assert imported_folders(wrong) == {"cli"}


HEAVY = ("torch", "numba", "pyarrow", "matplotlib", "tokenizers", "numpy", "transformers")


def modules_after(arguments: list[str]) -> set[str]:
    code = (
        "import sys\n"
        f"sys.argv = ['firth', *{arguments!r}]\n"
        "import firth; dir(firth)\n"
        "from firth.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print('\\n' + ' '.join(sys.modules), file=sys.stderr)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(run.stderr.splitlines()[-1].split())


def test_help_imports_nothing_heavy() -> None:
    assert not modules_after(["--help"]) & set(HEAVY)


@pytest.mark.parametrize("arguments", [["recipes"], ["check", "builtin:oracle"], ["diff", "bpe", "words"]])
def test_verbs_that_need_no_torch_do_not_import_it(arguments: list[str]) -> None:
    assert "torch" not in modules_after(arguments)


def test_no_file_is_too_long() -> None:
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in source_files()}
    assert not {path: length for path, length in lengths.items() if length > 400}
