"""Messages in the words of the command line or of Python, safe to print.

A message is written once, with the options and verbs of the command line, which are easy to recognise: "leave
--task-text out", "make it with firth train". The command line shows it as it is, and Python callers read the names of
arguments and functions instead: `task_text`, `firth.train`. Commands of other programs are written in backticks and
stay as they are, and so do those of Firth that have no function.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

_SWITCHES = {
    "allow-slower",
    "force",
    "random",
    "resume",
    "search",
    "skip-bad",
    "task-text",
    "unit",
    "whole-words",
}  # without a value
_RENAMED = {"set": "settings"}
_FUNCTIONS = {
    "check": "check_corpus",
    "export": "export",
    "import": "import_",
    **{
        name: name
        for name in (
            "adapt", "compress", "embed", "evaluate", "fill", "finetune", "generate", "info", "mix", "noise", "predict",
            "score", "similar", "train", "verify",
        )
    },
}  # fmt: skip

_VALUE = r"[^\s,;]*[^\s,;.:?]"
_ABSENT = re.compile(r"\b(?:leave|without|no) (?:-o\b|--)[^.:;,]*")  # of which only the names are of interest
_SETTINGS = re.compile(rf"--set [\w.]+={_VALUE}(?: --set [\w.]+={_VALUE})*")
_SETTING = re.compile(rf"--set ([\w.]+)=({_VALUE})")
_COLUMN = re.compile(r"--field (\w+=\w+)")
_OPTION = re.compile(rf"(?<![\w'\"-])--([a-z][a-z-]*)(?:=({_VALUE})| (\d+)\b)?")
_KEPT = re.compile(r"(`[^`]*`|\bfirth (?:cache|compare|demo|diff|recipes|serve)\b(?: --[a-z-]+)*)")
_OUT = re.compile(r"(?<![\w'\"-])-o(?: ([A-Z]+)\b)?(?![\w-])")
_IMPORT = re.compile(r"\bfirth import (\w+)(?: (.+?) -o DIR)?")
_FINETUNE = re.compile(r"\bfirth finetune MODEL (\w+)( --tasks FILE\.toml)?")
_TRAIN = re.compile(r"\bfirth train (\w[\w-]*)(?=[.,;:]|$)")
_VERB = re.compile(rf"\bfirth ({'|'.join(_FUNCTIONS)})\b(?: -o\b)?")

_MAX_MESSAGE = 1800  # characters
# Half a surrogate pair, from a file name that is not UTF-8, cannot be printed at all.
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")

_on_command_line = False


@contextmanager
def command_line() -> Iterator[None]:
    """A block in which messages keep the words of the command line."""
    global _on_command_line
    before, _on_command_line = _on_command_line, True
    try:
        yield
    finally:
        _on_command_line = before


def worded(message: str) -> str:
    """The message for the user: unchanged on the command line, otherwise in Python's words."""
    return message if _on_command_line else in_python(message)


def in_python(message: str) -> str:
    """A message of the command line in Python's words.

    >>> in_python("leave --budget and --resume out, or choose another -o.")
    'leave budget and resume out, or choose another out.'
    >>> in_python("continue with --resume --set learning.lr=0.005, say.")
    "continue with resume=True settings={'learning.lr': 0.005}, say."
    >>> in_python("a.arpa is a model: bring it in with firth import arpa a.arpa -o DIR.")
    "a.arpa is a model: bring it in with firth.import_('arpa', 'a.arpa', out=DIR)."
    """
    parts = _KEPT.split(message)  # every second part is kept
    return "".join(part if number % 2 else _reword(part) for number, part in enumerate(parts))


def _reword(message: str) -> str:
    if "firth " in message:
        message = _IMPORT.sub(_import_call, message)
        message = _FINETUNE.sub(
            lambda found: f"firth.finetune(MODEL, {found[1]!r}, {'tasks=FILE' if found[2] else '...'})", message
        )
        message = _TRAIN.sub(r"firth.train('\1', ...)", message)
        message = _VERB.sub(lambda found: f"firth.{_FUNCTIONS[found[1]]}", message)
    if "-" not in message:
        return message
    message = _ABSENT.sub(lambda found: _OUT.sub("out", _OPTION.sub(_name, found[0])), message)
    message = _SETTINGS.sub(_settings, message)
    message = _COLUMN.sub(r"columns=['\1']", message)
    message = _OPTION.sub(_argument, message)
    return _OUT.sub(lambda found: f"out={found[1]}" if found[1] else "out", message)


def _import_call(found: re.Match[str]) -> str:
    arguments = "..." if found[2] is None else f"{found[2]!r}, out=DIR"
    return f"firth.import_({found[1]!r}, {arguments})"


def _settings(found: re.Match[str]) -> str:
    pairs = _SETTING.findall(found[0])
    return "settings={" + ", ".join(f"{name!r}: {_literal(value)}" for name, value in pairs) + "}"


def _name(found: re.Match[str]) -> str:
    return _RENAMED.get(found[1], found[1].replace("-", "_"))


def _argument(found: re.Match[str]) -> str:
    value = "true" if found[1] in _SWITCHES else found[2] or found[3]
    return _name(found) + (f"={_literal(value)}" if value else "")


def _literal(text: str) -> str:
    """The value of an option as Python would write it; capitals stand for a value of the reader's choice.

    >>> [_literal(text) for text in ("true", "none", "0.5", "full", "N")]
    ['True', 'None', '0.5', "'full'", 'N']
    """
    if text in ("true", "false", "none"):
        return text.capitalize()
    return text if re.fullmatch(r"-?\d+(\.\d+)?(e-?\d+)?|[A-Z]+", text) else repr(text)


def escape_controls(text: str) -> str:
    r"""The text with control characters other than newlines and tabs escaped, so that a terminal does not obey them.

    >>> escape_controls("bert\x1b[2J\tof 2018")
    'bert\\x1b[2J\tof 2018'
    """
    return _UNPRINTABLE.sub(lambda match: ascii(match[0])[1:-1], text)


def printable(message: str) -> str:
    """A message with control characters escaped; of a long one, the middle is left out.

    >>> printable("there is no recipe " + "x" * 100_000 + ": choose another one.")[-30:]
    'xxxxxxxxx: choose another one.'
    """
    if len(message) > _MAX_MESSAGE:
        half = _MAX_MESSAGE // 2
        message = f"{message[:half]} ... {message[-half:]}"
    return escape_controls(message)
