"""Vectors of the lines of a file, as an array that NumPy reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from firth.abilities import Embeds
from firth.errors import AbilityError, CorpusError, OutputError
from firth.files import new_file
from firth.progress import progress
from firth.text.corpus import stdin_source
from firth.text.readers import read_lines
from firth.text.sources import find_sources

_LINES = 20_000  # that are embedded at once, or fewer where vectors are long
_NUMBERS = 1 << 26  # of such a batch, at most
_LARGEST = 1 << 35  # bytes of a file
_TINY = 1e-12

Embed = Callable[[Sequence[str]], Any]
"""Texts -> a row for each, in an array or a sparse matrix."""


def embed_file(
    model: Any, path: Path, out: Path, encoding: str | None = None, *, unit: bool = False, **options: str | int
) -> dict[str, Any]:
    """Writes a row of float32 for each line of a text file, blank ones too, whole or not at all.

    With `unit` each row is divided by its length. `layer` and `pooling` are for models that read texts: see
    `NetModel.embed`. Returns how many rows there are, their dimension, and how many are zero because no word of the
    line is known.
    """
    embedder = _with_options(model, options)
    rows = empty = dimension = 0
    shown = nullcontext(_ignore) if getattr(model, "shows_progress", False) else progress("embedding", None, "lines")
    with new_file(out) as file, shown as advance:
        for texts in _batches(embedder, path, encoding):
            part = _dense(embedder(texts))
            if unit:
                part /= np.maximum(np.linalg.norm(part, axis=1, keepdims=True), _TINY)
            if not rows:
                dimension = part.shape[1]
                _write_head(file, 0, dimension)
            if part.nbytes + file.tell() > _LARGEST:
                raise OutputError(
                    f"the vectors would fill more than {_LARGEST >> 30} GB: use a model of fewer dimensions, "
                    "such as lsa, or embed a part of the file."
                )
            file.write(part.tobytes())
            rows += len(part)
            empty += int(np.count_nonzero(~part.any(axis=1)))
            advance(len(part))
        if not rows:
            raise CorpusError(f"there is no text in {path}: name a file with one text on each line.")
        file.seek(0)
        _write_head(file, rows, dimension)
    return {"out": str(out), "rows": rows, "dimension": dimension, "empty": empty}


def _with_options(model: Any, options: Mapping[str, str | int]) -> Embed:
    """What makes vectors of texts as the options say."""
    embedder: Any = require_embeds(model)
    if options and not hasattr(model, "layers"):
        raise AbilityError(
            f"a {type(model).__name__} has one vector for a text, no layers of states: leave "
            f"--{' and --'.join(options)} out, or use a network, such as bert or elmo."
        )
    return lambda texts: embedder.embed(texts, **options)


def require_embeds(model: Any) -> Embeds:
    """The model, if it makes vectors of texts; `AbilityError` otherwise."""
    if not isinstance(model, Embeds):
        raise AbilityError(
            f"a {type(model).__name__} makes no vectors of texts: use a model of vectors, such as skipgram or lsa."
        )
    return model


def _batches(embed: Embed, path: Path, encoding: str | None) -> Iterator[list[str]]:
    """The lines of a file, so many at once that their vectors fit into memory."""
    sources = [stdin_source()] if str(path) == "-" else find_sources([path])
    if len(sources) != 1 or sources[0].format != "text":
        raise CorpusError(f"{path} is not a single text file: name a file with one text on each line.")
    dimension = int(embed([""]).shape[1])
    lines = (line for _, line in read_lines(sources[0], encoding=encoding))
    while batch := list(islice(lines, max(1, min(_LINES, _NUMBERS // max(dimension, 1))))):
        yield batch


def _ignore(amount: float, remark: str = "") -> None:
    """Takes no notice of how far the work has come."""


def _dense(rows: Any) -> npt.NDArray[np.float32]:
    full = rows if isinstance(rows, np.ndarray) else rows.toarray()
    return np.ascontiguousarray(full, dtype=np.float32)


def _write_head(file: Any, rows: int, dimension: int) -> None:
    """The head of an .npy file, which has room for a larger number of rows."""
    facts = {"descr": "<f4", "fortran_order": False, "shape": (rows, dimension)}
    np.lib.format.write_array_header_1_0(file, facts)
