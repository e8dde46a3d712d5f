"""Hooks of the documentation site.

Pages made from notebooks and from files of the root, the list of public names in the reference, and Chinese labels in
docs/zh.
"""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
ROOT_PAGES = ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
PUBLIC_NAMES = "<!-- public names of firth -->"
NOTEBOOK_LINK = re.compile(r"\]\(\.\./((?:\.\./)*)examples/(\w+)\.ipynb")


def on_files(files: Any, config: Any) -> Any:
    """Add the notebooks and pages of the root to the pages of docs/."""
    from mkdocs.structure.files import File

    for notebook in sorted((ROOT / "examples").glob("*.ipynb")):
        files.append(File.generated(config, f"examples/{notebook.stem}.md", content=notebook_page(notebook)))
    for name in ROOT_PAGES:
        text = (ROOT / name).read_text(encoding="utf-8").replace("](docs/", "](")
        files.append(File.generated(config, name.lower(), content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """List what `import firth` offers where the reference asks for it; link to the pages of notebooks."""
    markdown = NOTEBOOK_LINK.sub(r"](\1examples/\2.md", markdown)
    return markdown.replace(PUBLIC_NAMES, "\n\n".join(map(reference_entry, public_names())))


def public_names() -> list[tuple[str, str]]:
    """The public names of the package, each with the dotted name of its definition."""
    tree = ast.parse((ROOT / "src" / "firth" / "__init__.py").read_text(encoding="utf-8"))
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("firth."):
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name) and node.value.id in names:
            for target in node.targets:
                names[ast.unparse(target)] = names.pop(node.value.id)
    return sorted(names.items())


def reference_entry(name: tuple[str, str]) -> str:
    """The directive of mkdocstrings for a public name."""
    public, defined = name
    return f"::: {defined}\n    options:\n      heading: firth.{public}\n      toc_label: {public}"


def on_page_context(context: Any, page: Any, config: Any, nav: Any) -> Any:
    """Set the language of the page, which determines its labels, fonts and hyphenation."""
    config.theme["language"] = "zh" if page.file.src_uri.startswith("zh/") else "en"
    return context


def notebook_page(path: Path) -> str:
    """A notebook as Markdown: its text, its code, and the outputs below."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        parts += [f"```text\n{text}\n```" for text in map(output_text, cell.get("outputs", ())) if text]
    parts.append(f"This page is the notebook `examples/{path.name}` of the repository.")
    return "\n\n".join(parts) + "\n"


def output_text(output: dict[str, Any]) -> str:
    """The text of one output of a cell."""
    lines = output["text"] if output["output_type"] == "stream" else output["data"]["text/plain"]
    return "".join(lines).rstrip("\n")
