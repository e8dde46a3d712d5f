"""The structure of the package: no import cycles, unique class names, the field's own terms."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"


def modules() -> dict[str, ast.Module]:
    """The syntax tree of every module of the package, by its dotted name."""
    trees = {}
    for path in sorted((SOURCE / "firth").rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        trees[name] = ast.parse(path.read_text(encoding="utf-8"))
    return trees


def imports_of(tree: ast.Module, known: set[str]) -> set[str]:
    """The modules that a module imports when it is loaded or in its functions: not those for type checkers."""
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    found = set()
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {full if (full := f"{node.module}.{alias.name}") in known else node.module for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found & known


def find_cycle(graph: dict[str, set[str]]) -> list[str]:
    """One cycle of imports, or nothing."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    trees = modules()
    assert not find_cycle({name: imports_of(tree, set(trees)) for name, tree in trees.items()})


def test_the_check_finds_a_cycle() -> None:
    known = {"firth.a", "firth.b"}
    one = imports_of(ast.parse("from firth import b\n"), known)
    two = imports_of(ast.parse("def f():\n    from firth.a import thing\n"), known)
    assert find_cycle({"firth.a": one, "firth.b": two})


def test_a_class_name_is_defined_once() -> None:
    defined = defaultdict(list)
    for name, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                defined[node.name].append(name)
    assert not {name: owners for name, owners in defined.items() if len(owners) > 1}


NOT_THE_FIELDS_TERMS = re.compile(
    r"\b(places|(?<!punctuation )(?<!combining )marks|told|come true|take_up|settle\w*|learnt|keeper)\b"
)
ORDINARY_USES = {
    "docs/writing.md": {"places"},  # a quotation
    "src/firth/text/oracle_grammars.py": {"places"},  # a class of nouns
    "src/firth/text/scripts.py": {"marks"},  # in Unicode's sense
    "src/firth/text/segment.py": {"marks"},
    "src/firth/text/sentences.py": {"marks", "told"},  # punctuation; a verb of speaking
    "src/firth/tokens/_kernels.py": {"marks"},
    "src/firth/tokens/coverage.py": {"marks"},
    "src/firth/tokens/tokenizer.py": {"marks"},
}


@pytest.mark.parametrize("pattern", ["src/**/*.py", "docs/*.md", "*.md"])
def test_the_fields_terms_are_used(pattern: str) -> None:
    found = []
    for path in sorted(ROOT.glob(pattern)):
        name = path.relative_to(ROOT).as_posix()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if set(NOT_THE_FIELDS_TERMS.findall(line)) - ORDINARY_USES.get(name, set()):
                found.append(f"{name}:{number}: {line.strip()}")
    assert not found
