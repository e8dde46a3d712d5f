"""The labels of the texts of a file."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from firth.abilities import Predicts
from firth.errors import AbilityError
from firth.progress import note
from firth.tasks.examples import TextExample
from firth.tasks.reading import read_task

_BATCH = 20_000  # texts that are looked at together
Found = list[tuple[str, float]]
"""Labels and their probabilities, likeliest first."""


def predict_file(
    model: Any, path: Path, count: int = 1, *, encoding: str | None = None, field: str = "text", labelled: bool = False
) -> Iterator[tuple[TextExample, Found]]:
    """Each text of a file, and the `count` likeliest labels that the model gives it.

    With `labelled`, the file is read as for training, and its labels are told. Otherwise any of them is left unread,
    and what is no such file is plain text, a text a line, blank ones too.
    """
    predictor = require_predicts(model)
    reading = read_task("classify", path, encoding=encoding, fields={"text": field}, labelled=labelled)
    examples = (example for example in reading if isinstance(example, TextExample))
    while batch := list(islice(examples, _BATCH)):
        yield from zip(batch, predictor.predict([example.text for example in batch], count), strict=True)
    for line in reading.notes():
        note(line)


def require_predicts(model: Any) -> Predicts:
    """The model, if it tells labels; `AbilityError` otherwise."""
    if not isinstance(model, Predicts):
        raise AbilityError(
            f"a {type(model).__name__} tells no labels: use a classifier, such as fasttext-classifier makes."
        )
    return model
