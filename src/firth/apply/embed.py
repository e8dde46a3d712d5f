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
from firth.progress import note, progress
from firth.text.corpus import stdin_source
from firth.text.readers import read_lines
from firth.text.sources import find_sources
from firth.tokens.tokenizer import BOS, Tokenizer

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
    `NetModel.embed`. Returns how many rows there are, their dimension, how many are zero because no word of the line is
    known, and how many lines were cut, if they may be.
    """
    embedder = _with_options(model, options)
    most = _most(model, options)
    rows = empty = dimension = cut = 0
    shown = nullcontext(_ignore) if getattr(model, "shows_progress", False) else progress("embedding", None, "lines")
    with new_file(out) as file, shown as advance:
        for texts in _batches(embedder, path, encoding):
            if most is not None:
                texts, longer = cut_texts(model.tokenizer, texts, most)
                cut += longer
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
    if cut:
        note(f"{cut:,} of {rows:,} lines are longer than {most} tokens and were cut.")
    told = {"out": str(out), "rows": rows, "dimension": dimension, "empty": empty}
    return told if most is None else told | {"truncated": cut}


def _most(model: Any, options: Mapping[str, str | int]) -> int | None:
    """Tokens of a text at which it is cut, two marks around it included; None if all of any text is read.

    Long texts are read in parts, each with something of its neighbours around it. That is not how vectors of sentences
    are made: those are of [CLS] and of all that fits beside it, as in sentence-transformers.
    """
    if options.get("pooling") not in ("whole", "first") or not hasattr(model, "frame") or model.frame[0] != BOS:
        return None
    from firth.nets.scoring import longest

    return longest(model.recipe)


def cut_texts(tokenizer: Tokenizer, texts: Sequence[str], most: int) -> tuple[list[str], int]:
    """The beginnings of texts that fit into so many tokens with a mark before and one after, and how many were cut."""
    found = [tokenizer.spaced(text) for text in texts]
    long = [number for number, text in enumerate(found) if len(text.encode(errors="replace")) > most - 2]
    encoded = tokenizer.backend.encode_batch([found[number] for number in long], add_special_tokens=False)
    cut = 0
    for number, tokens in zip(long, encoded, strict=True):
        ends = tokens.offsets
        last = most - 2
        if len(ends) > last:
            while last and ends[last - 1][1] > ends[last][0]:  # both are parts of one character
                last -= 1
            found[number] = found[number][: ends[last - 1][1]] if last else ""
            cut += 1
    return found, cut


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
