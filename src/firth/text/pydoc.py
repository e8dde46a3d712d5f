"""The prose of the documentation strings of this Python installation: technical English on every machine.

Source files are parsed, never imported.
"""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import json
import os
import platform
import sysconfig
import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from firth.errors import OutputError
from firth.files import cache_folder, digest_bytes, digest_file, write_file
from firth.text import docstrings
from firth.text.document import RawDocument

# Import name and distribution name; all are installed with Firth.
PACKAGES = (
    ("click", "click"),
    ("huggingface_hub", "huggingface_hub"),
    ("jinja2", "Jinja2"),
    ("joblib", "joblib"),
    ("matplotlib", "matplotlib"),
    ("networkx", "networkx"),
    ("numpy", "numpy"),
    ("pyarrow", "pyarrow"),
    ("rich", "rich"),
    ("scipy", "scipy"),
    ("sklearn", "scikit-learn"),
    ("torch", "torch"),
    ("typer", "typer"),
)
STANDARD = "python"  # the package name of the standard library
SHORTEST = 80  # characters of prose; less is hardly a document

_SKIPPED_FOLDERS = frozenset(
    (
        *(
            "test",
            "tests",
            "testing",
            "site-packages",
            "dist-packages",
            "idlelib",
            "lib2to3",
            "distutils",
            "externals",
        ),
        *("ao", "distributed", "fx", "onnx"),  # PyTorch's inner workings: slow to parse, little prose
    )
)


@dataclass(frozen=True, slots=True)
class Entry:
    """What one documentation string says, and whose it is; the labels of the tasks made from this corpus.

    `name` is empty for a module's own documentation; `body` holds one paragraph a line.
    """

    package: str
    module: str
    name: str
    summary: str
    body: str
    parameters: tuple[tuple[str, str], ...]

    @property
    def text(self) -> str:
        """All its prose, one paragraph or described parameter a line."""
        described = (f"{name}: {description}" for name, description in self.parameters)
        return "\n".join(line for line in (self.summary, self.body, *described) if line)


def pydoc_documents() -> Iterator[RawDocument]:
    """One document for each documentation string with enough prose, in an order that does not change."""
    for entry in pydoc_entries():
        yield RawDocument(entry.text, f"{entry.module}:{entry.name}".rstrip(":"))


def pydoc_entries() -> Iterator[Entry]:
    """What each documentation string says, without repeats; extracted once, then read from the cache folder."""
    cached = cache_folder() / "pydoc" / f"{_installation()[:32]}.jsonl"
    lines = _read_cached(cached)
    if lines is None:
        lines = b"".join(json.dumps(asdict(entry)).encode() + b"\n" for entry in _extract())
        with suppress(OutputError, OSError):  # without a cache the same text is extracted again next time
            write_file(cached, digest_bytes(lines).encode() + b"\n" + lines)
    for line in lines.splitlines():
        fields = json.loads(line)
        yield Entry(**fields | {"parameters": tuple(map(tuple, fields["parameters"]))})


def _read_cached(path: Path) -> bytes | None:
    """The cached lines, or nothing if they are missing or not what was written."""
    try:
        digest, _, lines = path.read_bytes().partition(b"\n")
    except OSError:
        return None
    return lines if digest.decode("latin-1") == digest_bytes(lines) else None


def _installation() -> str:
    """A digest of all that the extracted text depends on: versions, places, and the code that extracts it."""
    versions = [(package, str(root), _version(distribution)) for package, root, distribution in _roots()]
    code = [digest_file(Path(str(module))) for module in (__file__, docstrings.__file__)]
    return digest_bytes(json.dumps([platform.python_version(), versions, code]).encode())


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:  # copied into place rather than installed
        return ""


def _roots() -> Iterator[tuple[str, Path, str]]:
    """Package, folder and distribution of everything to be read that is installed."""
    yield STANDARD, Path(sysconfig.get_path("stdlib")), "python"
    for package, distribution in PACKAGES:
        spec = importlib.util.find_spec(package)  # finds a top-level package without importing it
        if spec and spec.origin:
            yield package, Path(spec.origin).parent, distribution


def _extract() -> Iterator[Entry]:
    seen: set[str] = set()
    for package, root, _ in _roots():
        for path in _source_files(root):
            parts = path.relative_to(root if package == STANDARD else root.parent).with_suffix("").parts
            module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            for entry in _file_entries(path, package, module):
                if entry.summary and len(entry.text) >= SHORTEST and entry.text not in seen:
                    seen.add(entry.text)
                    yield entry


def _source_files(root: Path) -> Iterator[Path]:
    """The Python files below a folder in sorted order, tests and private folders left out."""
    for folder, below, files in os.walk(root):
        below[:] = sorted(
            # NumPy keeps most of its documentation in `_core`.
            name
            for name in below
            if name not in _SKIPPED_FOLDERS and (name[0] != "_" or name == "_core")
        )
        yield from (Path(folder, name) for name in sorted(files) if name.endswith(".py"))


def _file_entries(path: Path, package: str, module: str) -> Iterator[Entry]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # other people's invalid escapes
            tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, OSError):  # a template or a broken file of another's package
        return
    for name, doc in _named_docstrings(tree, ""):
        if len(doc) < SHORTEST:
            continue
        prose = docstrings.read_docstring(doc)
        yield Entry(package, module, name, prose.summary, "\n".join(prose.paragraphs), prose.parameters)


def _named_docstrings(node: ast.AST, name: str) -> Iterator[tuple[str, str]]:
    """Qualified names and documentation strings of a module, its classes, functions and methods."""
    definitions = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    if isinstance(node, definitions) and (doc := ast.get_docstring(node, clean=False)):
        yield name, doc
    for child in (*getattr(node, "body", ()), *getattr(node, "orelse", ())):
        if isinstance(child, definitions[1:]):
            if not isinstance(node, definitions[2:]):  # what is defined within a function is its own affair
                yield from _named_docstrings(child, f"{name}.{child.name}".lstrip("."))
        elif isinstance(child, ast.If | ast.Try):
            yield from _named_docstrings(child, name)
