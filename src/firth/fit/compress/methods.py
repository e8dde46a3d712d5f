"""The methods of compression by name; each is imported when it is used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from firth.errors import ArgumentError, near_miss
from firth.fit.compress.method import Method
from firth.recipes.values import override

<<<<<<< HEAD
METHODS = ("quantise", "static")
=======
METHODS = ("distil", "prune", "quantise", "static")
AUTO = "auto"
"""The name of the search over all of them."""
>>>>>>> compress


def find_method(name: str) -> Method:
    """The method of that name.

    >>> find_method("statik")
    Traceback (most recent call last):
    ...
    firth.errors.ArgumentError: there is no method 'statik': did you mean 'static'?
    """
    match name:
<<<<<<< HEAD
=======
        case "distil":
            from firth.fit.compress.distil import Distil

            return Distil()
        case "prune":
            from firth.fit.compress.prune import Prune

            return Prune()
>>>>>>> compress
        case "quantise":
            from firth.fit.compress.quantise import Quantise

            return Quantise()
        case "static":
            from firth.fit.compress.static import Static

            return Static()
    raise ArgumentError(f"there is no method {name!r:.80}: {near_miss(name, (*METHODS, AUTO))}")


def method_options(method: Method, settings: Sequence[str]) -> Any:
    """The options of a method with fields set by `key=value`."""
    options: Any = method.options()
    return override(options, settings)
