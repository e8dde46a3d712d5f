"""The labels of the texts of a file."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from firth.abilities import Predicts
from firth.errors import AbilityError, CorpusError
from firth.fit.labels import Example, read_examples
from firth.text.corpus import stdin_source
from firth.text.sources import find_sources

_BATCH = 20_000  # texts that are looked at together
Found = list[tuple[str, float]]
"""Labels and their probabilities, likeliest first."""


def predict_file(
    model: Any, path: Path, count: int = 1, *, encoding: str | None = None, field: str = "text"
) -> Iterator[tuple[Example, Found]]:
    """Each text of a file, with its labels if it has any, and the `count` likeliest labels that the model gives it.

    Labelled files are read as for training; any other is plain text, a text a line, blank ones too.
    """
    predictor = require_predicts(model)
    sources = [stdin_source()] if str(path) == "-" else find_sources([path])
    if len(sources) != 1:
        raise CorpusError(f"{path} is not a single file: name one file.")
    examples = read_examples(sources[0], encoding=encoding, field=field)
    empty = True
    while batch := list(islice(examples, _BATCH)):
        empty = False
        yield from zip(batch, predictor.predict([example.text for example in batch], count), strict=True)
    if empty:
        raise CorpusError(f"there is no text in {path}: name a file with one text on each line, or a labelled one.")


def require_predicts(model: Any) -> Predicts:
    """The model, if it tells labels; `AbilityError` otherwise."""
    if not isinstance(model, Predicts):
        raise AbilityError(
            f"a {type(model).__name__} tells no labels: use a classifier, such as fasttext-classifier makes."
        )
    return model
