"""What words are near each other: neighbours, analogies, the odd one out, for every model that knows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from firth.abilities import HasVectors
from firth.errors import AbilityError


def find_similar(
    model: Any,
    words: Sequence[str],
    minus: Sequence[str] = (),
    *,
    count: int = 10,
    context: str | None = None,
    method: str = "add",
) -> list[tuple[str, float]]:
    """The words nearest to a word, or to several together and far from those of `minus`, with their scores."""
    found = require_vectors(model)
    if len(words) == 1 and not minus:
        return found.similar(words[0], count, context=context)
    if context is not None:
        raise AbilityError("a context tells the sense of one word: give one word, or leave the context out.")
    if method not in ("add", "mul"):
        raise AbilityError(f"there is no method {method!r} for analogies: choose add or mul.")
    pairs: list[tuple[str, float]] = _ability(model, "analogy", "analogies")(words, minus, count, method=method)
    return pairs


def nearest_occurrences(
    model: Any,
    word: str,
    context: str,
    sentences: Iterable[str] = (),
    count: int = 10,
    layer: str | int = "last",
) -> list[dict[str, Any]]:
    """The words of sentences, or of the context itself, nearest to a word as it is meant in a context.

    Each is a dictionary of `word`, `score` and `context`, the sentence that the word is from.
    """
    if not hasattr(model, "layers"):
        raise AbilityError(
            f"a {type(model).__name__} does not read a word in its context: use a network, such as elmo or bert."
        )
    from firth.nets.contexts import nearest_occurrences as nearest

    return [one._asdict() for one in nearest(model, word, context, sentences, count, layer)]


def odd_one_out(model: Any, words: Sequence[str]) -> str:
    """The word that does not belong with the others."""
    require_vectors(model)
    odd: str = _ability(model, "odd_one_out", "an odd one out")(words)
    return odd


def require_vectors(model: Any) -> HasVectors:
    """The model, if it knows which words are near each other; `AbilityError` otherwise."""
    if not isinstance(model, HasVectors):
        raise AbilityError(
            f"a {type(model).__name__} has no word vectors: use a model of vectors, such as skipgram or glove."
        )
    return model


def _ability(model: Any, name: str, what: str) -> Any:
    if not hasattr(model, name):
        raise AbilityError(
            f"a {type(model).__name__} has no {what.removeprefix('an ')}: use dense vectors, such as skipgram or glove."
        )
    return getattr(model, name)
