"""Checks of what Python callers pass: texts, words and paths."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import FunctionType
from typing import Any

from firth.errors import ArgumentError

_LONGEST = 32  # characters of a text in an error message
_MAX_LICENCE = 200  # characters


def require_path(given: Any, name: str, what: str) -> Path:
    """The path `given` as the argument `name`; anything else raises `ArgumentError`.

    >>> require_path(None, "out", "the folder to write")
    Traceback (most recent call last):
    ...
    firth.errors.ArgumentError: out must be a path, the folder to write, not None.
    """
    if not isinstance(given, str | os.PathLike) or not os.fspath(given):
        raise ArgumentError(f"{name} must be a path, {what}, not {_shown(given)}.")
    return Path(given)


def check_licence(given: str | None) -> None:
    """Raise `ArgumentError` unless a licence, if one is given, is one line of text that a model card can show.

    >>> check_licence("")
    Traceback (most recent call last):
    ...
    firth.errors.ArgumentError: licence must be one line of text such as CC-BY-4.0, not '': leave it out, or name one.
    """
    if given is None:
        return
    if not require_string(given, "licence").strip() or not given.isprintable() or len(given) > _MAX_LICENCE:
        raise ArgumentError(
            f"--licence must be one line of text such as CC-BY-4.0, not {_shown(given)}: leave it out, or name one."
        )


def require_list(given: Any, name: str) -> list[Any]:
    """The list `given` as the argument `name`; one string or path raises `ArgumentError`."""
    if isinstance(given, str | os.PathLike) or not isinstance(given, Iterable):
        raise ArgumentError(f"{name} must be a list, not {_shown(given)}: write {name}=[{_shown(given)}].")
    return list(given)


def require_string(given: Any, name: str, function: str = "") -> str:
    """The text or word `given` as an argument; anything else raises `ArgumentError`."""
    if isinstance(given, str):
        return given
    raise ArgumentError(f"{name} must be a string, not {_shown(given)}{_where(function)}.")


def require_strings(given: Any, name: str, function: str = "") -> list[str] | tuple[str, ...]:
    """The texts or words `given` as an argument: a list, or any other iterable, of strings.

    One string is refused, because it is an iterable of its characters.

    >>> require_strings("one text", "texts", "score")
    Traceback (most recent call last):
    ...
    firth.errors.ArgumentError: texts must be a list of strings, not one: write score(['one text']).
    """
    if isinstance(given, str):
        raise ArgumentError(f"{name} must be a list of strings, not one: write {function}([{_shown(given)}]).")
    if not isinstance(given, Iterable) or isinstance(given, bytes | Mapping):
        raise ArgumentError(f"{name} must be a list of strings, not {_shown(given)}{_where(function)}.")
    found = given if isinstance(given, list | tuple) else list(given)
    if not set(map(type, found)) <= {str}:  # much faster than asking each, but subclasses are strings, too
        for one in found:
            if not isinstance(one, str):
                raise ArgumentError(f"{name} must be a list of strings, but it holds {_shown(one)}{_where(function)}.")
    return found


def require_pairs(given: Any, name: str = "texts") -> list[tuple[str, str]]:
    """The pairs of two texts `given` as an argument.

    >>> require_pairs([("a dog", "ein Hund"), "a cat"])
    Traceback (most recent call last):
    ...
    firth.errors.ArgumentError: texts must be pairs of two strings, but it holds 'a cat'.
    """
    found = []
    for one in require_items(given, name):
        if not isinstance(one, list | tuple) or len(one) != 2 or not all(isinstance(text, str) for text in one):
            raise ArgumentError(f"{name} must be pairs of two strings, but it holds {_shown(one)}.")
        found.append((one[0], one[1]))
    return found


def require_items(given: Any, name: str, function: str = "") -> Iterable[Any]:
    """The examples `given` as an argument: any iterable but a string or a dictionary, which is one example."""
    if isinstance(given, str | Mapping):
        raise ArgumentError(f"{name} must be a list of examples, not one: write {function}([{_shown(given)}]).")
    if not isinstance(given, Iterable):
        raise ArgumentError(f"{name} must be a list of examples, not {_shown(given)}{_where(function)}.")
    return given


def require_documents(given: Any, name: str, function: str = "") -> Iterator[list[str] | tuple[str, ...]]:
    """The documents `given` as an argument, each a list of sentences, one after the other."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ArgumentError(f"{name} must be lists of sentences, not {_shown(given)}{_where(function)}.")
    return (require_strings(one, f"a document of {name}", "list") for one in given)


_CHECKS: dict[str, Callable[[Any, str, str], Any]] = {
    "str": require_string,
    "Sequence[str]": require_strings,
    "Iterable[Sequence[str]]": require_documents,
    "Iterable[Any]": require_items,
}


class ChecksArguments:
    """A base class of models: their public methods check the texts and words that they are called with.

    The first argument is checked if its annotation is one of `_CHECKS`, so that a method needs no check of its own: a
    single text where a list is expected would be read character by character.

    >>> class Lengths(ChecksArguments):
    ...     def lengths(self, texts: Sequence[str]) -> list[int]:
    ...         return [len(text) for text in texts]
    >>> Lengths().lengths(["a", "bc"])
    [1, 2]
    >>> Lengths().lengths("bc")
    Traceback (most recent call last):
    ...
    firth.errors.ArgumentError: texts must be a list of strings, not one: write lengths(['bc']).
    """

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        for name, method in list(vars(cls).items()):
            if isinstance(method, FunctionType) and not name.startswith("_"):
                setattr(cls, name, _checked(method))


def _checked(method: FunctionType) -> FunctionType:
    """The method with a check of its first argument after `self`, if that is a text or several."""
    code = method.__code__
    if code.co_argcount < 2:
        return method
    name, function = code.co_varnames[1], method.__name__
    check = _CHECKS.get(method.__annotations__.get(name, ""))
    if check is None:
        return method

    @functools.wraps(method)
    def checked(self: Any, *arguments: Any, **options: Any) -> Any:
        if arguments:
            return method(self, check(arguments[0], name, function), *arguments[1:], **options)
        if name in options:
            options[name] = check(options[name], name, function)
        return method(self, **options)

    return checked  # type: ignore[return-value]


def _where(function: str) -> str:
    return f" in {function}" if function else ""


def _shown(given: Any) -> str:
    """A value as an error message shows it: a long text is cut, and of other objects the type is named.

    >>> _shown(1), _shown("a" * 50)
    ('1', "'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa...'")
    """
    if isinstance(given, str):
        return repr(given if len(given) <= _LONGEST else given[:_LONGEST] + "...")
    return repr(given) if given is None or isinstance(given, bool | int | float) else f"a {type(given).__name__}"
