"""Formats of other programs: models leave in them and come in from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from firth.artifact.formats.ngrams import export_arpa, import_arpa
from firth.errors import AbilityError, near_miss
from firth.files import require_free


@dataclass(frozen=True)
class Format:
    """How a model is written to a file of another program and read from one."""

    export: Callable[[Any, Path], dict[str, Any]]
    bring_in: Callable[[Path, Path], dict[str, Any]]


FORMATS: dict[str, Format] = {"arpa": Format(export_arpa, import_arpa)}


def export_model(model: Any, format: str, path: Path) -> dict[str, Any]:
    """Writes a loaded model to `path` in a format of another program; returns what was written.

    >>> export_model(None, "arpas", Path("model.arpa"))
    Traceback (most recent call last):
    ...
    firth.errors.AbilityError: there is no format 'arpas': did you mean 'arpa'?
    """
    report = _find(format).export(model, path)
    return {"format": format, "path": str(path), "bytes": path.stat().st_size} | report


def import_model(format: str, path: Path, out: Path) -> dict[str, Any]:
    """Makes the artifact `out` of a file in a format of another program; returns what was read."""
    reader = _find(format).bring_in
    require_free(out)
    return {"format": format, "folder": str(out)} | reader(path, out)


def _find(name: str) -> Format:
    if name not in FORMATS:
        raise AbilityError(f"there is no format {name!r}: {near_miss(name, FORMATS)}")
    return FORMATS[name]
