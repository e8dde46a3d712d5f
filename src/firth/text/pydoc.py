"""The prose of the docstrings of this Python installation. Source files are parsed, never imported."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import inspect
import json
import os
import platform
import re
import sysconfig
import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from firth.errors import OutputError
from firth.files import cache_folder, digest_bytes, digest_file, write_file
from firth.progress import note
from firth.text.layout import RawDocument

PACKAGES = (  # all are installed with Firth
    *("click", "huggingface_hub", "jinja2", "joblib", "matplotlib", "networkx", "numpy", "pyarrow", "rich", "scipy"),
    *("sklearn", "torch", "typer"),
)
STANDARD = "python"  # the package name of the standard library
MIN_LENGTH = 80  # characters of prose of a document

_DISTRIBUTIONS = {"sklearn": "scikit-learn"}  # where the name differs from the package's
_SKIPPED_FOLDERS = {
    *("test", "tests", "testing", "site-packages", "dist-packages", "idlelib", "lib2to3", "distutils", "externals"),
    *("ao", "distributed", "fx", "onnx"),  # internals of PyTorch: slow to parse, little prose
}


@dataclass(frozen=True, slots=True)
class PydocEntry:
    """The prose of one docstring with its origin, which gives the labels of the tasks made from this corpus."""

    package: str
    module: str
    name: str  # empty for a module's own docstring
    summary: str
    body: str  # one paragraph per line
    parameters: tuple[tuple[str, str], ...]

    @property
    def text(self) -> str:
        described = (f"{name}: {description}" for name, description in self.parameters)
        return "\n".join(line for line in (self.summary, self.body, *described) if line)


def pydoc_documents() -> Iterator[RawDocument]:
    """One document for each docstring with enough prose, in a fixed order."""
    for entry in pydoc_entries():
        yield RawDocument(entry.text, f"{entry.module}:{entry.name}".rstrip(":"))


def pydoc_entries() -> Iterator[PydocEntry]:
    """The prose of each docstring, without duplicates; extracted once, then read from the cache folder."""
    cached = cache_folder() / "pydoc" / f"{_installation()[:32]}.jsonl"
    try:
        digest, _, lines = cached.read_bytes().partition(b"\n")
    except OSError:
        digest, lines = b"", b""
    if digest != _seal(cached, lines):
        if cached.exists():
            note(f"the cache is damaged: {cached} has changed since it was written; it is made again")
        lines = b"".join(json.dumps(asdict(entry)).encode() + b"\n" for entry in _extract())
        with suppress(OutputError, OSError):  # without a cache the same text is extracted again next time
            write_file(cached, _seal(cached, lines) + b"\n" + lines)
    for line in lines.splitlines():
        fields = json.loads(line)
        yield PydocEntry(**fields | {"parameters": tuple(map(tuple, fields["parameters"]))})


def _seal(cached: Path, lines: bytes) -> bytes:
    """The digest of the text and the name of its file."""
    return digest_bytes(cached.name.encode() + lines).encode()


def _installation() -> str:
    """A digest of everything that the extracted text depends on: versions, folders and the code that extracts it."""
    versions = [(package, str(root), _version(distribution)) for package, root, distribution in _roots()]
    code = digest_file(Path(__file__))
    return digest_bytes(json.dumps([platform.python_version(), versions, code]).encode())


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:  # copied into place rather than installed
        return ""


def _roots() -> Iterator[tuple[str, Path, str]]:  # package, folder and distribution
    yield STANDARD, Path(sysconfig.get_path("stdlib")), "python"
    for package in PACKAGES:
        spec = importlib.util.find_spec(package)  # finds a top-level package without importing it
        if spec and spec.origin:
            yield package, Path(spec.origin).parent, _DISTRIBUTIONS.get(package, package)


def _extract() -> Iterator[PydocEntry]:
    seen: set[str] = set()
    for package, root, _ in _roots():
        for path in _source_files(root):
            parts = path.relative_to(root if package == STANDARD else root.parent).with_suffix("").parts
            module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            for entry in _file_entries(path, package, module):
                if entry.summary and len(entry.text) >= MIN_LENGTH and entry.text not in seen:
                    seen.add(entry.text)
                    yield entry


def _source_files(root: Path) -> Iterator[Path]:
    for folder, below, files in os.walk(root):
        visible = (name for name in below if name[0] != "_" or name == "_core")  # most of NumPy is in `_core`
        below[:] = sorted(set(visible) - _SKIPPED_FOLDERS)
        yield from (Path(folder, name) for name in sorted(files) if name.endswith(".py"))


def _file_entries(path: Path, package: str, module: str) -> Iterator[PydocEntry]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in other packages
            tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, OSError):  # a template or a broken file of another package
        return
    for name, doc in _named_docstrings(tree, ""):
        if len(doc) < MIN_LENGTH:
            continue
        prose = read_docstring(doc)
        yield PydocEntry(package, module, name, prose.summary, "\n".join(prose.paragraphs), prose.parameters)


def _named_docstrings(node: ast.AST, name: str) -> Iterator[tuple[str, str]]:
    definitions = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    if isinstance(node, definitions) and (doc := ast.get_docstring(node, clean=False)):
        yield name, doc
    for child in (*getattr(node, "body", ()), *getattr(node, "orelse", ())):
        if isinstance(child, definitions[1:]):
            if not isinstance(node, definitions[2:]):  # nested functions are private
                yield from _named_docstrings(child, f"{name}.{child.name}".lstrip("."))
        elif isinstance(child, ast.If | ast.Try):
            yield from _named_docstrings(child, name)


_ADMONITIONS = frozenset(("note", "warning", "tip", "important", "caution", "attention", "hint", "danger"))
_PARAMETERS = frozenset(
    ("parameters", "other parameters", "attributes", "args", "arguments", "keyword args", "keyword arguments")
)
_RESULTS = frozenset(("returns", "yields", "receives", "raises", "warns"))
_NOT_PROSE = frozenset(("references", "see also", "methods", "shape", "citations", "routine listings", "todo"))
_GOOGLE_ONLY = frozenset(("examples", "example", "note", "notes", "warning", "warnings", "return", "yield"))
_HEADINGS = _PARAMETERS | _RESULTS | _NOT_PROSE | _GOOGLE_ONLY

_DIRECTIVE = re.compile(r"\s*\.\.(?:$|\s+(?:([\w-]+)::\s*(.*))?)")
_UNDERLINE = re.compile(r"\s*([=~^\"*#+-])\1{2,}\s*$")
_BORDER = re.compile(r"\s*(?:\+[-=+]{2,}|[=-]{2,}(?:\s+[=-]{2,})+)\s*$")
_BULLET = re.compile(r"\s*(?:[-*+•]|\(?(?:\d+|[a-z])[.)])\s+")
_FIELD = re.compile(r"\s*:(\w+)(?:\s+[^:`]*?([*\w]+))?\s*:\s+(?=\S)")
_NUMPY_NAMES = re.compile(r"\s*([*\\]*\w[\w.]*(?:, ?[*\\]*\w[\w.]*)*)\s*(?::.*)?$")
_GOOGLE_NAMES = re.compile(r"\s*([*`\\]*\w[\w.]*`*(?:, ?[*\\]*\w+)*)\s*(?:\([^:]*\))?\s*:\s+(.*)$")
_FUNCTION_WORD = re.compile(
    r"(?i)\b(?:a|an|the|of|to|in|is|are|be|for|and|or|if|by|with|that|this|it|as|on|from"
    r"|not|which|when|all|at|can|has|will)\b"
)
_CODE = re.compile(r"%\(|\{\{|%s|^(?:import|from \S+ import|def|class|@\w+|\$|#) ?\b| -> |[\w)\]] = .* = |==|\)\)|</")
_MARKUP = re.compile(r"[`*|\\]|\]_")
_INLINE = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r":[\w:+-]+:`~(?:[^`<]*\.)?([^`<.]+)`", r"\1"),  # :func:`~package.module.name`
        (r"(?::[\w:+-]+:)?`([^`<]+?)\s*<[^`]*>`_{0,2}", r"\1"),  # :role:`text <target>`, `text <address>`_
        (r"(?::[\w:+-]+:)`[!~]?([^`]*)`", r"\1"),
        (r"``+([^`]+)``+", r"\1"),
        (r"`[!~]?([^`]+)`_{0,2}", r"\1"),
        (r"(\[[\w#*. -]+\])_", r"\1"),  # citations
        (r"(?<![\w*])\*\*(\w[^*]*)\*\*(?![\w*])", r"\1"),
        (r"(?<![\w*])\*(\w[^*]*)\*(?![\w*])", r"\1"),
        (r"(?<!\w)\|([^|\s][^|]*)\|", r"\1"),  # substitutions
        (r"\\([*_`| ])", r"\1"),
    )
)


@dataclass(frozen=True, slots=True)
class Prose:
    summary: str
    paragraphs: tuple[str, ...]
    parameters: tuple[tuple[str, str], ...]


def read_docstring(doc: str) -> Prose:
    """The prose of a docstring in the convention of NumPy, Google or reST, without code, tables and markup.

    >>> read_docstring('''Add two numbers.
    ...
    ...     Args:
    ...         x (int): The first of the ``numbers``.
    ...
    ...     >>> add(1, 2)
    ...     3
    ...     ''')
    Prose(summary='Add two numbers.', paragraphs=(), parameters=(('x', 'The first of the numbers.'),))
    """
    paragraphs: list[str] = []
    parameters: list[tuple[str, str]] = []
    for section in _sections(list(_without_code(inspect.cleandoc(doc).expandtabs().splitlines()))):
        if section.title in _PARAMETERS:
            parameters.extend(_parameter_descriptions(section))
        elif section.title in _RESULTS and section.underlined:
            base = min((_indent(line) for line in section.lines if line.strip()), default=0)
            paragraphs.extend(_prose([line if _indent(line) > base else "" for line in section.lines]))
        elif section.title not in _NOT_PROSE:
            _split_fields(section.lines, paragraphs, parameters)
    return Prose(next(iter(paragraphs), ""), tuple(paragraphs[1:]), tuple(parameters))


@dataclass(frozen=True, slots=True)
class _Section:
    title: str
    underlined: bool
    lines: list[str]


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _without_code(lines: list[str]) -> Iterator[str]:
    """The lines without doctests, code, tables and directives; dropped runs become a blank line."""
    literal: int | None = None  # lines indented deeper than this are code
    until_blank = fenced = False
    for line in lines:
        bare = line.strip()
        if bare.startswith("```"):
            fenced = not fenced
        if fenced or bare.startswith("```"):
            continue
        if literal is not None and (not bare or _indent(line) > literal):
            continue
        literal = None
        until_blank = bool(bare) and (until_blank or bare.startswith((">>>", "In [")) or bool(_BORDER.match(line)))
        directive = _DIRECTIVE.match(line)
        if until_blank or bare.startswith("|"):
            yield ""
        elif directive:
            kept = directive[1] in _ADMONITIONS
            literal = None if kept else _indent(line)
            yield from ("", " " * (_indent(line) + 3) + directive[2]) if kept else ("",)
        elif bare.endswith("::"):
            literal = _indent(line)
            yield from (line.rstrip()[:-1], "")
        else:
            yield line


def _sections(lines: list[str]) -> Iterator[_Section]:
    section = _Section("", True, [])
    underlines = [bool(_UNDERLINE.match(line)) for line in lines]
    for line, is_underline, underlined in zip(lines, underlines, (*underlines, False)[1:], strict=True):
        title = line.strip().rstrip(":").lower()
        underlined = underlined and bool(title)
        google = not underlined and line.rstrip().endswith(":") and title in _HEADINGS and _indent(line) == 0
        if underlined or google:
            yield section
            section = _Section(title, underlined, [])
        elif not section.underlined and line.strip() and _indent(line) == 0:
            yield section
            section = _Section("", True, [line])
        elif not is_underline:
            section.lines.append(line)
    yield section


def _split_fields(lines: list[str], paragraphs: list[str], parameters: list[tuple[str, str]]) -> None:
    """Add the paragraphs of a plain section to prose or, if they are reST fields of parameters, to these."""
    for paragraph in _unwrap(lines):
        field = _FIELD.match(paragraph)
        text = _plain(paragraph[field.end() :] if field else paragraph)
        if not is_prose(text) or (field and field[1] in ("type", "rtype")):
            continue
        if field and field[1] in ("param", "parameter", "arg", "keyword", "ivar") and field[2]:
            parameters.append((field[2].lstrip("*"), text))
        else:
            paragraphs.append(text)


def _parameter_descriptions(section: _Section) -> Iterator[tuple[str, str]]:
    filled = [line for line in section.lines if line.strip()]
    base = min(map(_indent, filled), default=0)
    names: str | None = None
    description: list[str] = []
    for line in [*section.lines, " " * base + "end"]:
        if line.strip() and _indent(line) == base:
            if names and (text := " ".join(_prose(description))):
                yield _plain(names).lstrip("*"), text
            match = (_NUMPY_NAMES if section.underlined else _GOOGLE_NAMES).match(line)
            names = match[1] if match else None
            description = [] if section.underlined or not match else [" " * (base + 4) + match[2]]
        else:
            description.append(line)


def _prose(lines: list[str]) -> Iterator[str]:
    return filter(is_prose, map(_plain, _unwrap(lines)))


def _unwrap(lines: list[str]) -> Iterator[str]:
    """Paragraphs and list items, each on one line."""
    held: list[str] = []
    indent = 0
    listed = False
    for line in [*lines, ""]:
        starts = bool(_BULLET.match(line) or _FIELD.match(line))
        # Lines of a list item are indented deeper. Elsewhere a change of indentation starts a paragraph.
        breaks = _indent(line) <= indent if listed else _indent(line) != indent
        if held and (not line.strip() or starts or breaks):
            yield " ".join(held)
            held = []
        if not held:
            indent, listed = _indent(line), starts
        if line.strip():
            held.append(_BULLET.sub("", line, count=1).strip() if starts and not held else line.strip())


def _plain(text: str) -> str:
    if _MARKUP.search(text):
        for pattern, replacement in _INLINE:
            text = pattern.sub(replacement, text)
    return " ".join(text.split())


def is_prose(text: str) -> bool:
    """Whether a line reads as English rather than as code, a formula or a heading.

    >>> is_prose("Return the sum of x and y."), is_prose("y = f(x) + g(x) = 3")
    (True, False)
    """
    words = re.findall(r"[A-Za-z]+", text)
    if len(words) < 3 or not text.isprintable() or _CODE.search(text):
        return False
    letters = sum(map(len, words)) + text.count(" ")
    sentence = bool(_FUNCTION_WORD.search(text)) or text.endswith((".", "!", "?"))
    return sentence and letters >= 0.82 * len(text)
