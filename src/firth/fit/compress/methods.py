"""The methods of compression by name; each is imported when it is used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from firth.errors import ArgumentError, near_miss
from firth.fit.compress.method import Method
from firth.recipes.values import override

METHODS = ("distil", "prune", "quantise", "static")
AUTO = "auto"
"""The name of the search over all of them."""


def find_method(name: str, model: Any = None) -> Method:
    """The method of that name, for a model.

    >>> find_method("statik")
    Traceback (most recent call last):
    ...
    firth.errors.ArgumentError: there is no method 'statik': did you mean 'static'?
    """
    match name:
        case "distil":
            from firth.fit.compress.distil import Distil

            return Distil()
        case "prune":
            from firth.fit.compress.prune import Prune

            return Prune()
        case "quantise":
            from firth.fit.compress.few_bits import FewBits

            return FewBits()
        case "static":
            from firth.fit.compress.static import Static

            return Static()
    raise ArgumentError(f"there is no method {name!r:.80}: {near_miss(name, (*METHODS, AUTO))}")


def method_options(method: Method, settings: Sequence[str]) -> Any:
    """The options of a method with fields set by `key=value`."""
    options: Any = method.options()
    return override(options, settings)
