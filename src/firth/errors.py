"""The exceptions of Firth.

FirthError                 exit code 1; the message is one sentence that names the remedy
├── CorpusError            the text cannot be used: missing, empty, wrong field, a line too long
│   └── EncodingError      the bytes are not text in their encoding: binary, mixed, ambiguous
├── TokenizerError         a tokenizer cannot be trained, loaded or extended
├── StoreError             a token store is damaged
├── WorkerError            a worker process died or failed
├── RecipeError            an invalid combination of fields, or one that does not fit the data
│   └── ArgumentError      exit code 2; an unknown name or field, or a value of the wrong type
├── BudgetError            exit code 2; a budget that cannot be read, or that the model cannot have
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

from firth.wording import printable, worded


class FirthError(Exception):
    r"""Base of all errors of Firth; the message is one sentence for the user.

    It is written with the options of the command line and shown to Python callers with the names of arguments. What it
    quotes of a file is cut, and control characters are escaped, since terminals obey them.

    >>> error = FirthError("choose another folder with -o, or continue with --resume.")
    >>> str(error)
    'choose another folder with out, or continue with resume=True.'
    >>> str(FirthError("the name \x1b[2J is not a name."))
    'the name \\x1b[2J is not a name.'
    """

    @property
    def message(self) -> str:
        """The message as it was written, with the options of the command line."""
        return super().__str__()

    def __str__(self) -> str:
        return printable(worded(self.message))


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
    """An invalid combination of fields, or one that does not fit the data."""


class ArgumentError(RecipeError):
    """An unknown name or field, or a value of the wrong type: wrong whatever the data."""


class BudgetError(FirthError):
    """A budget cannot be read, or the model cannot have it."""


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
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EPIPE):
            raise
        raise ArtifactError(f"{what} cannot be read ({_one_line(error)}): {remedy}.") from error


def _one_line(error: BaseException) -> str:
    """The type and the message of an exception, printable and short."""
    words = "".join(one if one.isprintable() else " " for one in f"{type(error).__name__}: {error}").split()
    text = " ".join(words).rstrip(":.")
    return text if len(text) <= 200 else f"{text[:200]}..."
