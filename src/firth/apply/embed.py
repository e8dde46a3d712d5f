"""Embeddings of the lines of a file, as a NumPy file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from firth.abilities import Embeds, HasLayers
from firth.apply.score import file_lines
from firth.errors import AbilityError, CorpusError, OutputError
from firth.files import new_file
from firth.progress import note, progress
from firth.tokens.tokenizer import BOS, Tokenizer

_BATCH = 20_000  # lines embedded at a time
_BATCH_ELEMENTS = 1 << 26  # fewer lines if their vectors have more elements
_MAX_BYTES = 1 << 35  # of a file
_TINY = 1e-12

Embed = Callable[[Sequence[str]], Any]
"""Texts -> (texts, dimension), as an array or a sparse matrix."""


def embed_file(
    model: Any, path: Path, out: Path, encoding: str | None = None, *, unit: bool = False, **options: str | int
) -> dict[str, Any]:
    """Write a float32 vector for each line of a text file, including blank ones, atomically.

    With `unit` vectors are normalised. `layer` and `pooling` are for networks: see `NetModel.embed`. Returns the number
    of rows, their dimension, the number of zero vectors of lines without a known word, and that of truncated lines.
    """
    embedder = _with_options(model, options)
    limit = _max_tokens(model, options)
    rows = empty = dimension = truncated = 0
    shown = nullcontext(_ignore) if isinstance(model, HasLayers) else progress("embedding", None, "lines")
    with new_file(out) as file, shown as advance:
        for texts in _batches(embedder, path, encoding):
            part, longer = text_vectors(model, texts, unit=unit, **options)
            truncated += longer
            if not rows:
                dimension = part.shape[1]
                _write_header(file, 0, dimension)
            if part.nbytes + file.tell() > _MAX_BYTES:
                raise OutputError(
                    f"the vectors would fill more than {_MAX_BYTES >> 30} GB: use a model of fewer dimensions, "
                    "such as lsa, or embed a part of the file."
                )
            file.write(part.tobytes())
            rows += len(part)
            empty += int(np.count_nonzero(~part.any(axis=1)))
            advance(len(part))
        if not rows:
            raise CorpusError(f"there is no text in {path}: name a file with one text on each line.")
        file.seek(0)
        _write_header(file, rows, dimension)
    if truncated:
        note(f"{truncated:,} of {rows:,} lines are longer than {limit} tokens and were truncated.")
    report = {"out": str(out), "rows": rows, "dimension": dimension, "empty": empty}
    return report if limit is None else report | {"truncated": truncated}


def text_vectors(
    model: Any, texts: Sequence[str], *, unit: bool = False, **options: str | int
) -> tuple[npt.NDArray[np.float32], int]:
    """(texts, dimension): the vectors of texts, and the number of those that were truncated; see `embed_file`."""
    limit, truncated = _max_tokens(model, options), 0
    if limit is not None:
        texts, truncated = truncate_texts(model.tokenizer, texts, limit)
    rows = _dense(_with_options(model, options)(texts))
    if unit:
        rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), _TINY)
    return rows, truncated


def _max_tokens(model: Any, options: Mapping[str, str | int]) -> int | None:
    """The maximum tokens of a text, including two special tokens; None if texts are not truncated.

    Long texts are otherwise read in overlapping windows. Sentence vectors are those of [CLS] or of all tokens that fit
    beside it, as in sentence-transformers.
    """
    has_layers = isinstance(model, HasLayers)
    if not has_layers or model.start_token != BOS:
        return None
    own = model.recipe.sentence.pooling if options.get("layer", "last") == "last" else None
    if options.get("pooling", own) not in ("whole", "first"):
        return None
    from firth.nets.scoring import max_length

    return max_length(model.recipe)


def truncate_texts(tokenizer: Tokenizer, texts: Sequence[str], limit: int) -> tuple[list[str], int]:
    """Texts truncated to `limit` tokens, including two special ones, and the number of truncated texts."""
    found = [tokenizer.presegment(text) for text in texts]
    long = [number for number, text in enumerate(found) if len(text.encode(errors="replace")) > limit - 2]
    encoded = tokenizer.backend.encode_batch([found[number] for number in long], add_special_tokens=False)
    truncated = 0
    for number, tokens in zip(long, encoded, strict=True):
        ends = tokens.offsets
        last = limit - 2
        if len(ends) > last:
            while last and ends[last - 1][1] > ends[last][0]:  # both are parts of one character
                last -= 1
            found[number] = found[number][: ends[last - 1][1]] if last else ""
            truncated += 1
    return found, truncated


def _with_options(model: Any, options: Mapping[str, str | int]) -> Embed:
    """The embedding function with options applied."""
    embedder: Any = require_embeds(model)
    if options and not isinstance(model, HasLayers):
        raise AbilityError(
            f"a {type(model).__name__} has one vector for a text, no layers of hidden states: leave "
            f"--{' and --'.join(options)} out, or use a network, such as bert or elmo."
        )
    return lambda texts: embedder.embed(texts, **options)


def require_embeds(model: Any) -> Embeds:
    """The model if it embeds texts, or else `AbilityError`."""
    if not isinstance(model, Embeds):
        raise AbilityError(
            f"a {type(model).__name__} makes no vectors of texts: use a model of vectors, such as skipgram or lsa."
        )
    return model


def _batches(embed: Embed, path: Path, encoding: str | None) -> Iterator[list[str]]:
    """The lines of a file in batches whose vectors fit into memory."""
    lines = (line for _, line in file_lines(path, encoding))
    dimension = int(embed([""]).shape[1])
    while batch := list(islice(lines, max(1, min(_BATCH, _BATCH_ELEMENTS // max(dimension, 1))))):
        yield batch


def _ignore(amount: float, remark: str = "") -> None:
    """No progress bar, since the model shows its own."""


def _dense(rows: Any) -> npt.NDArray[np.float32]:
    full = rows if isinstance(rows, np.ndarray) else rows.toarray()
    return np.ascontiguousarray(full, dtype=np.float32)


def _write_header(file: Any, rows: int, dimension: int) -> None:
    """Write the header of an .npy file, padded for a larger number of rows."""
    header = {"descr": "<f4", "fortran_order": False, "shape": (rows, dimension)}
    np.lib.format.write_array_header_1_0(file, header)
