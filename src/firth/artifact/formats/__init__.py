"""Formats of other programs: models leave in them and come in from them."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, cast

from firth.errors import AbilityError, near_miss
from firth.files import require_free

FORMATS = {
    "arpa": "firth.artifact.formats.ngrams",
    "brown": "firth.artifact.formats.brown",
    "fasttext": "firth.artifact.formats.fasttext",
    "glove": "firth.artifact.formats.vectors",
    "huggingface": "firth.artifact.formats.huggingface",
    "word2vec": "firth.artifact.formats.vectors",
}
"""The module that has the functions `export_FORMAT` and `import_FORMAT`."""


def export_model(model: Any, format: str, path: Path) -> dict[str, Any]:
    """Writes a loaded model to `path` in a format of another program; returns what was written.

    >>> export_model(None, "arpas", Path("model.arpa"))
    Traceback (most recent call last):
    ...
    firth.errors.AbilityError: there is no format 'arpas': did you mean 'arpa'?
    """
    report = _find("export", format)(model, path)
    return {"format": format, "path": str(path), "bytes": path.stat().st_size} | report


def import_model(format: str, path: Path, out: Path, task: str | None = None) -> dict[str, Any]:
    """Makes the artifact `out` of a file in a format of another program; returns what was read.

    `task` is what a fine-tuned model is for, where its folder does not tell.
    """
    reader = _find("import", format)
    if task is not None and format != "huggingface":
        raise AbilityError(f"--task is for models of huggingface, not of {format}: leave it out.")
    require_free(out)
    options = {} if task is None else {"task": task}
    return {"format": format, "folder": str(out)} | reader(path, out, **options)


def _find(verb: Literal["export", "import"], name: str) -> Callable[..., dict[str, Any]]:
    if name not in FORMATS:
        raise AbilityError(f"there is no format {name!r}: {near_miss(name, FORMATS)}")
    function = getattr(import_module(FORMATS[name]), f"{verb}_{name}")
    return cast(Callable[..., dict[str, Any]], function)
