"""Documentation strings as prose: what was said in English, without code, tables and markup.

The three conventions in use are read: NumPy's underlined sections, Google's "Args:", and reST's ":param x:".
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass

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
    r"\b(?:a|an|the|of|to|in|is|are|be|for|and|or|if|by|with|that|this|it|as|on|from"
    r"|not|which|when|all|at|can|has|will)\b",
    re.IGNORECASE,
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
    """What a documentation string says: its summary, further paragraphs, and its parameters, described."""

    summary: str
    paragraphs: tuple[str, ...]
    parameters: tuple[tuple[str, str], ...]


def read_docstring(doc: str) -> Prose:
    """The prose of a documentation string; the summary is empty if there is none.

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
            parameters.extend(_described(section))
        elif section.title in _RESULTS and section.underlined:
            paragraphs.extend(_prose(_deeper_lines(section.lines)))
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
    """The lines that are not doctests, code, tables or directives; dropped runs become a blank line."""
    literal: int | None = None  # the indentation above which all is code
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
    """Sorts the paragraphs of a plain section into prose and reST fields that describe a parameter."""
    for paragraph in _unwrap(lines):
        field = _FIELD.match(paragraph)
        text = _plain(paragraph[field.end() :] if field else paragraph)
        if not is_prose(text) or (field and field[1] in ("type", "rtype")):
            continue
        if field and field[1] in ("param", "parameter", "arg", "keyword", "ivar") and field[2]:
            parameters.append((field[2].lstrip("*"), text))
        else:
            paragraphs.append(text)


def _described(section: _Section) -> Iterator[tuple[str, str]]:
    """The parameters of a section with their descriptions."""
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


def _deeper_lines(lines: list[str]) -> list[str]:
    base = min((_indent(line) for line in lines if line.strip()), default=0)
    return [line if _indent(line) > base else "" for line in lines]


def _prose(lines: list[str]) -> Iterator[str]:
    return filter(is_prose, map(_plain, _unwrap(lines)))


def _unwrap(lines: list[str]) -> Iterator[str]:
    """Paragraphs and list items, each on one line."""
    held: list[str] = []
    indent = 0
    listed = False
    for line in [*lines, ""]:
        starts = bool(_BULLET.match(line) or _FIELD.match(line))
        # A list item hangs: what follows it lies deeper. Elsewhere a change of depth is another paragraph.
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
