"""Model formats of other programs: export and import."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from firth.errors import AbilityError, near_miss, reading
from firth.files import require_free

FORMATS = ("arpa", "brown", "fasttext", "glove", "huggingface", "onnx", "sentence-transformers", "word2vec")


FOLDERS = ("huggingface", "onnx", "sentence-transformers")
"""Formats that are folders."""


def export_model(
    model: Any, format: str, path: Path, *, pooling: str | None = None, unit: bool = False
) -> dict[str, Any]:
    """Write a loaded model to `path` in a format of another program; returns a report.

    `pooling` and `unit` are those of texts, for sentence-transformers.

    >>> export_model(None, "arpas", Path("model.arpa"))
    Traceback (most recent call last):
    ...
    firth.errors.AbilityError: there is no format 'arpas': did you mean 'arpa'?
    """
    export, _ = _find(format)
    options: dict[str, Any] = {} if pooling is None else {"pooling": pooling}
    options |= {"unit": True} if unit else {}
    if options and format != "sentence-transformers":
        raise AbilityError(f"--pooling and --unit are for sentence-transformers, not for {format}: leave them out.")
    report = export(model, path, **options)
    return {"format": format, "path": str(path), "bytes": path.stat().st_size} | report


def import_model(format: str, path: Path, out: Path, task: str | None = None) -> dict[str, Any]:
    """Make the artifact `out` of a file in a format of another program; returns a report.

    `task` is the task of a fine-tuned Hugging Face model whose class serves several.
    """
    _, make_artifact = _find(format)
    if task is not None and format != "huggingface":
        raise AbilityError(f"--task is for models of huggingface, not of {format}: leave it out.")
    require_free(out)
    options = {} if task is None else {"task": task}
    with reading(path, "check that it is complete and of this format"):
        return {"format": format, "folder": str(out)} | make_artifact(path, out, **options)


def _find(name: str) -> tuple[Callable[..., dict[str, Any]], Callable[..., dict[str, Any]]]:
    """The functions that export and import a format, imported when it is used: they need NumPy, Numba or PyTorch."""
    match name:
        case "arpa":
            from firth.artifact.formats.arpa import export_arpa, import_arpa

            return export_arpa, import_arpa
        case "brown":
            from firth.artifact.formats.brown import export_brown, import_brown

            return export_brown, import_brown
        case "fasttext":
            from firth.artifact.formats.fasttext import export_fasttext, import_fasttext

            return export_fasttext, import_fasttext
        case "huggingface":
            from firth.artifact.formats.huggingface import export_huggingface, import_huggingface

            return export_huggingface, import_huggingface
        case "onnx":
            from firth.artifact.formats.onnx import export_onnx, import_onnx

            return export_onnx, import_onnx
        case "sentence-transformers":
            from firth.artifact.formats.sentence_transformers import (
                export_sentence_transformers,
                import_sentence_transformers,
            )

            return export_sentence_transformers, import_sentence_transformers
        case "glove" | "word2vec":
            from firth.artifact.formats import vectors

            if name == "glove":
                return vectors.export_glove, vectors.import_glove
            return vectors.export_word2vec, vectors.import_word2vec
    raise AbilityError(f"there is no format {name!r}: {near_miss(name, FORMATS)}")
