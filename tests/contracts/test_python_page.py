"""The examples of docs/python.md run one after the other and print what the page shows."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "python.md"


def test_the_examples_of_the_python_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text(encoding="utf-8")
    code = re.sub(r"^```.*$", "", text, flags=re.MULTILINE)  # or a fence would count as printed
    examples = doctest.DocTestParser().get_doctest(code, {}, PAGE.name, str(PAGE), 0)
    assert len(examples.examples) > 40
    printed: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE).run(examples, out=printed.append)
    assert not printed, "".join(printed)
