"""The glossary names modules and classes that exist, with a line in English and in Chinese for each term."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and not line.startswith("| term")
]


def is_defined(dotted: str) -> bool:
    """Whether a module, package, class or function of the package has this dotted name."""
    path = ROOT / "src" / Path(*dotted.split("."))
    if path.is_dir() or path.with_suffix(".py").is_file():
        return True
    module = path.parent.with_suffix(".py")
    body = ast.parse(module.read_text(encoding="utf-8")).body if module.is_file() else []
    return any(getattr(node, "name", None) == path.name for node in body)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_term_is_explained_and_found_in_the_code(row: list[str]) -> None:
    term, chinese, meaning, explanation, code = row
    assert term
    assert meaning.endswith((".", "?", "..."))
    assert explanation.endswith("。")
    assert re.search(r"[\u4e00-\u9fff]", chinese + explanation)
    assert is_defined(code.strip("`")), code


def test_terms_are_listed_once() -> None:
    assert len({row[0] for row in ROWS}) == len(ROWS) > 80


def test_the_check_sees_a_missing_name() -> None:
    assert is_defined("firth.text.corpus.Corpus")
    assert not is_defined("firth.text.corpus.Nothing")
    assert not is_defined("firth.nowhere")
