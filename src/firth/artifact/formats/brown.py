"""Brown clusters to the `paths` files of Liang's program and back: bits, word and count on each line, tabs between."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from firth.artifact.formats.ngrams import words_tokenizer
from firth.artifact.models import save
from firth.artifact.tensors import reading
from firth.errors import AbilityError, ArtifactError
from firth.files import digest_file, new_file
from firth.progress import note
from firth.tokens.recipe import TokenizerRecipe
from firth.vectors.brown import BrownModel
from firth.vectors.recipe import BrownRecipe
from firth.vectors.text import FIRST_WORD

_LONGEST_LINE = 20_000
_FEWEST, _MOST = 2, 5000  # classes
_LINE = re.compile(r"([01]+)\t([^\s\0]+)\t([0-9]{1,18})")

Line = tuple[str, str, int]
"""Bits, word and count."""


def export_brown(model: Any, path: Path) -> dict[str, Any]:
    """Writes the classes of a Brown model as a paths file."""
    if not isinstance(model, BrownModel):
        raise AbilityError("a paths file holds Brown clusters and nothing else: export a model trained with brown.")
    words = 0
    with new_file(path) as file:
        for bits, word, count in model.paths():
            if not _LINE.fullmatch(f"{bits}\t{word}\t{count}"):
                raise AbilityError(f"a paths file cannot hold {word!r}, which has a space: train with whole words.")
            file.write(f"{bits}\t{word}\t{count}\n".encode())
            words += 1
    return {"words": words, "clusters": len(model.bits)}


def import_brown(path: Path, out: Path) -> dict[str, Any]:
    """Makes an artifact of a paths file; its words are those of text with spaces between them."""
    started = time.monotonic()
    model = model_of(path)
    report = {"words": len(model.rows), "clusters": len(model.bits)}
    save(
        out,
        model,
        name="imported",
        recipe=model.recipe,
        budget={"asked": None, "spent": {"seconds": time.monotonic() - started}},
        corpus={"layout": model.layout, "imported": path.name, "digest": digest_file(path)},
        seed=0,
        metrics=report,
    )
    return report


def model_of(path: Path) -> BrownModel:
    """The model of a paths file, with the frequent words first."""
    specials = TokenizerRecipe(model="words").specials
    lines = sorted(read_paths(path), key=lambda line: -line[2])
    kept = [line for line in lines if line[1] not in specials]
    if len(kept) < len(lines):
        note(f"{path} has classes for special tokens, which are left out")
    bits = sorted({line[0] for line in kept})
    if not _FEWEST <= len(bits) <= _MOST:
        raise ArtifactError(f"{path} has {len(bits):,} classes: Firth holds {_FEWEST} to {_MOST}.")
    numbers = {path: number for number, path in enumerate(bits)}
    tokenizer = words_tokenizer([*specials, *(word for _, word, _ in kept)])
    return BrownModel(
        BrownRecipe(tokenizer=tokenizer.recipe, clusters=len(bits)),
        tokenizer,
        "lines",
        tokenizer.vocabulary,
        np.array([0] * FIRST_WORD + [count for _, _, count in kept], dtype=np.int64),
        None,
        bits,
        np.array([-1] * FIRST_WORD + [numbers[path] for path, _, _ in kept], dtype=np.int32),
    )


def read_paths(path: Path) -> list[Line]:
    """The lines of a paths file; a wrong one raises `ArtifactError`."""
    seen: dict[str, Line] = {}
    for number, text in _lines(path):
        found = _LINE.fullmatch(text)
        if not found:
            _wrong(path, number, f"expected bits, a word and its count with tabs between, found {text!r:.80}")
        bits, word, count = found.groups()
        if word in seen:
            _wrong(path, number, f"{word!r:.80} has bits already")
        seen[word] = (bits, word, int(count))
    if not seen:
        raise ArtifactError(f"{path} is empty: give the file paths that the clustering program wrote.")
    return list(seen.values())


def is_paths_file(path: Path) -> bool:
    """Whether the first line of a file is one of a paths file."""
    with reading(path), open(path, "rb") as file:
        start = file.readline(_LONGEST_LINE)
    return _LINE.fullmatch(start.decode(errors="replace").rstrip("\r\n")) is not None


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    with reading(path), open(path, "rb") as file:
        number = 0
        while line := file.readline(_LONGEST_LINE + 1):
            number += 1
            if len(line) > _LONGEST_LINE:
                _wrong(path, number, f"it is longer than {_LONGEST_LINE} bytes")
            try:
                yield number, line.decode().rstrip("\r\n")
            except UnicodeDecodeError:
                _wrong(path, number, "it is not UTF-8")


def _wrong(path: Path, number: int, reason: str) -> NoReturn:
    raise ArtifactError(f"{path}, line {number}: {reason}; write the file again.")
