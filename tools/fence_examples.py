"""A Griffe extension for the reference: examples and diagrams in docstrings become code blocks.

A paragraph that begins with `>>>` is a doctest, one with box-drawing characters a diagram; Markdown would read the
first as a quotation and fill the lines of the second.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_PARAGRAPHS = re.compile(r"\n{2,}")


def fence_examples(text: str) -> str:
    """A docstring with fences around its examples and diagrams."""
    parts: list[str] = []
    for paragraph in _PARAGRAPHS.split(text):
        if paragraph.startswith(">>> "):
            parts.append(f"```pycon\n{paragraph}\n```")
        elif "├" in paragraph:
            parts.append(f"```text\n{paragraph}\n```")
        else:
            parts.append(paragraph)
    return "\n\n".join(parts)


class FenceExamples(griffe.Extension):
    """Applies `fence_examples` to every docstring."""

    def on_object(self, *, obj: Any, **kwargs: Any) -> None:
        if not obj.is_alias and obj.docstring is not None:
            obj.docstring.value = fence_examples(obj.docstring.value)
