"""Brown clusters to the `paths` files of Liang's program and back: bit string, word and count, separated by tabs."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from firth.artifact.formats.words import words_tokenizer
from firth.artifact.models import save_imported
from firth.artifact.tensors import open_plain, read_errors
from firth.errors import AbilityError, ArtifactError
from firth.files import new_file
from firth.progress import note
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.tokenizer import FIRST_WORD
from firth.vectors.brown import BrownModel
from firth.vectors.recipe import BrownRecipe

_MAX_LINE = 20_000
_MIN_CLUSTERS, _MAX_CLUSTERS = 2, 5000
_LINE = re.compile(r"([01]+)\t([^\s\0]+)\t([0-9]{1,18})")

PathLine = tuple[str, str, int]  # bit string, word and count


def export_brown(model: Any, path: Path) -> dict[str, Any]:
    """Write the clusters of a Brown model as a paths file."""
    if not isinstance(model, BrownModel):
        raise AbilityError("a paths file holds Brown clusters only: export a model trained with brown.")
    words = 0
    with new_file(path) as file:
        for bits, word, count in model.paths():
            if not _LINE.fullmatch(f"{bits}\t{word}\t{count}"):
                raise AbilityError(f"a paths file cannot hold {word!r}, which has a space: train on whole words.")
            file.write(f"{bits}\t{word}\t{count}\n".encode())
            words += 1
    return {"words": words, "clusters": len(model.bits)}


def import_brown(path: Path, out: Path) -> dict[str, Any]:
    """Make an artifact of a paths file, for space-separated text."""
    started = time.monotonic()
    model = brown_model(path)
    report = {"words": len(model.rows), "clusters": len(model.bits)}
    save_imported(out, model, path, started, report)
    return report


def brown_model(path: Path) -> BrownModel:
    """The model of a paths file, with the most frequent words first."""
    specials = TokenizerRecipe(model="words").specials
    lines = sorted(read_paths(path), key=lambda line: -line[2])
    kept = [line for line in lines if line[1] not in specials]
    if len(kept) < len(lines):
        note(f"{path} has clusters of special tokens, which are left out")
    bits = sorted({line[0] for line in kept})
    if not _MIN_CLUSTERS <= len(bits) <= _MAX_CLUSTERS:
        limits = f"{_MIN_CLUSTERS} to {_MAX_CLUSTERS}"
        raise ArtifactError(f"{path} has {len(bits):,} clusters: Firth holds {limits}, so cluster the text again.")
    numbers = {path: number for number, path in enumerate(bits)}
    tokenizer = words_tokenizer([*specials, *(word for _, word, _ in kept)])
    return BrownModel(
        BrownRecipe(tokenizer=tokenizer.recipe, clusters=len(bits)),
        tokenizer,
        "lines",
        tokenizer.vocabulary,
        np.array([0] * FIRST_WORD + [count for _, _, count in kept], dtype=np.int64),
        None,
        bits=bits,
        clusters=np.array([-1] * FIRST_WORD + [numbers[path] for path, _, _ in kept], dtype=np.int32),
    )


def read_paths(path: Path) -> list[PathLine]:
    """The lines of a paths file; an invalid line raises `ArtifactError`."""
    seen: dict[str, PathLine] = {}
    for number, text in _numbered_lines(path):
        found = _LINE.fullmatch(text)
        if not found:
            _fail(path, number, f"expected bits, a word and its count separated by tabs, found {text!r:.80}")
        bits, word, count = found.groups()
        if word in seen:
            _fail(path, number, f"{word!r:.80} is in the file twice")
        seen[word] = (bits, word, int(count))
    if not seen:
        raise ArtifactError(f"{path} is empty: give the file paths that the clustering program wrote.")
    return list(seen.values())


def is_paths_file(path: Path) -> bool:
    """Whether the first line of a file has the form of a paths file."""
    with read_errors(path), open_plain(path) as file:
        start = file.readline(_MAX_LINE)
    return _LINE.fullmatch(start.decode(errors="replace").rstrip("\r\n")) is not None


def _numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    with read_errors(path), open_plain(path) as file:
        number = 0
        while line := file.readline(_MAX_LINE + 1):
            number += 1
            if len(line) > _MAX_LINE:
                _fail(path, number, f"it is longer than {_MAX_LINE} bytes")
            try:
                yield number, line.decode().rstrip("\r\n")
            except UnicodeDecodeError:
                _fail(path, number, "it is not UTF-8")


def _fail(path: Path, number: int, reason: str) -> NoReturn:
    raise ArtifactError(f"{path}, line {number}: {reason}; write the file again.")
