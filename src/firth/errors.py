"""Everything Firth raises on purpose.

FirthError                 exit code 1; the message is one sentence that names the remedy
├── CorpusError            the text cannot be used: missing, empty, wrong field, a line too long
│   └── EncodingError      the bytes are not the text they claim to be: binary, mixed, undecided
├── TokenizerError         a tokenizer cannot be trained, loaded or extended
├── StoreError             a token store is damaged
├── WorkerError            a worker process died or failed
├── RecipeError            an unknown recipe or field, a value of the wrong type, an impossible product
├── BudgetError            a budget that cannot be read or is too small
├── TrainingError          training went astray: numbers without bound
├── ArtifactError          a folder is not a whole artifact
├── AbilityError           the model cannot do what was asked of it
└── OutputError            the result cannot be written: folder taken, not writable, disk full
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class FirthError(Exception):
    """Base of all errors that Firth raises on purpose; the message is one sentence for the user."""


class CorpusError(FirthError):
    """The text cannot be used."""


class EncodingError(CorpusError):
    """The bytes are not text, or not in the encoding they were read with."""


class TokenizerError(FirthError):
    """A tokenizer cannot be trained, loaded or extended."""


class StoreError(FirthError):
    """A token store is damaged."""


class WorkerError(FirthError):
    """A worker process died or failed."""


class RecipeError(FirthError):
    """An unknown recipe or field, a value of the wrong type, or an impossible product."""


class BudgetError(FirthError):
    """A budget cannot be read or is too small."""


class TrainingError(FirthError):
    """Training went astray."""


class ArtifactError(FirthError):
    """A folder is not a whole artifact."""


class AbilityError(FirthError):
    """The model cannot do what was asked of it."""


class OutputError(FirthError):
    """The result cannot be written."""


def near_miss(name: str, known: Iterable[str]) -> str:
    """A clause for an error about a wrong name: the nearest known one, or all of them.

    >>> near_miss("wordpeice", ["words", "wordpiece"])
    "did you mean 'wordpiece'?"
    >>> near_miss("x", ["words", "chars"])
    'choose from chars, words'
    """
    choices = sorted(known)
    close = difflib.get_close_matches(name, choices, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else "choose from " + ", ".join(choices)
