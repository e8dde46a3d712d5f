"""The exceptions of Firth.

FirthError                 exit code 1; the message is one sentence that names the remedy
├── CorpusError            the text cannot be used: missing, empty, wrong field, a line too long
│   └── EncodingError      the bytes are not text in their encoding: binary, mixed, ambiguous
├── TokenizerError         a tokenizer cannot be trained, loaded or extended
├── StoreError             a token store is damaged
├── WorkerError            a worker process died or failed
├── RecipeError            an unknown recipe or field, a value of the wrong type, an invalid combination
├── BudgetError            a budget that cannot be read or is too small
├── TrainingError          training diverged: infinite losses or parameters
├── ArtifactError          a folder is not a complete artifact
├── AbilityError           the model lacks the ability
└── OutputError            the result cannot be written: folder taken, not writable, disk full
"""

from __future__ import annotations

import difflib
import errno
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class FirthError(Exception):
    """Base of all errors of Firth; the message is one sentence for the user."""


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
    """An unknown recipe or field, a value of the wrong type, or an invalid combination."""


class BudgetError(FirthError):
    """A budget cannot be read or is too small."""


class TrainingError(FirthError):
    """Training diverged."""


class ArtifactError(FirthError):
    """A folder is not a complete artifact."""


class AbilityError(FirthError):
    """The model lacks the ability."""


class OutputError(FirthError):
    """The result cannot be written."""


def near_miss(name: str, known: Iterable[str]) -> str:
    """A clause for an error about an unknown name: the closest known one, or all of them.

    >>> near_miss("wordpeice", ["words", "wordpiece"])
    "did you mean 'wordpiece'?"
    >>> near_miss("x", ["words", "chars"])
    'choose from chars, words.'
    """
    choices = sorted(known)
    close = difflib.get_close_matches(name, choices, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else f"choose from {', '.join(choices)}."


@contextmanager
def reading(what: object, remedy: str = "copy it again, or make it again") -> Iterator[None]:
    """Turn whatever an untrusted file makes its reader raise into an `ArtifactError` with that cause.

    `BaseException` is caught because libraries written in Rust raise a `PanicException` that is no `Exception`.

    >>> with reading("m.json"):
    ...     {}["vocab"]
    Traceback (most recent call last):
    ...
    firth.errors.ArtifactError: m.json cannot be read (KeyError: 'vocab'): copy it again, or make it again.
    """
    try:
        yield
    except (FirthError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except MemoryError as error:
        raise ArtifactError(f"{what} needs more memory than there is: {remedy}.") from error
    except BaseException as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EPIPE):
            raise
        raise ArtifactError(f"{what} cannot be read ({_one_line(error)}): {remedy}.") from error


def _one_line(error: BaseException) -> str:
    """The type and the message of an exception, printable and short."""
    words = "".join(one if one.isprintable() else " " for one in f"{type(error).__name__}: {error}").split()
    text = " ".join(words).rstrip(":.")
    return text if len(text) <= 200 else f"{text[:200]}..."
