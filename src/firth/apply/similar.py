"""Similar words, analogies and the odd one out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

from firth.abilities import HasDenseVectors, HasLayers, HasVectors
from firth.errors import AbilityError, ArgumentError, near_miss

METHODS = ("add", "mul")
"""Of analogies: 3CosAdd and 3CosMul (Levy and Goldberg 2014)."""


def find_similar(
    model: Any,
    words: Sequence[str],
    minus: Sequence[str] = (),
    *,
    count: int = 10,
    context: str | None = None,
    method: str = "add",
) -> list[tuple[str, float]]:
    """The words nearest to the sum of `words` minus those of `minus`, with their similarities."""
    require_method(method)
    found = require_vectors(model)
    if len(words) == 1 and not minus:
        return found.similar(words[0], count, context=context)
    if context is not None:
        raise AbilityError("a context selects the sense of one word: give one word, or leave the context out.")
    return require_dense_vectors(model, "analogies").analogy(words, minus, count, method=cast(Any, method))


def nearest_occurrences(
    model: Any, word: str, context: str, sentences: Iterable[str] = (), count: int = 10, layer: str | int = "last"
) -> list[dict[str, Any]]:
    """The words of sentences, or of the context itself, nearest to the contextual vector of a word.

    Each is a dictionary of `word`, `score` and `context`, its sentence.
    """
    if not isinstance(model, HasLayers):
        raise AbilityError(f"a {type(model).__name__} has no contextual vectors: use a network, such as elmo or bert.")
    from firth.nets.contextual_vectors import nearest_occurrences as nearest

    return [one._asdict() for one in nearest(cast(Any, model), word, context, sentences, count, layer)]


def odd_one_out(model: Any, words: Sequence[str]) -> str:
    """The word that does not belong with the others."""
    return require_dense_vectors(model, "odd one out").odd_one_out(words)


def require_method(method: str) -> None:
    """Raise `ArgumentError` unless there is such a method for analogies.

    >>> require_method("ad")
    Traceback (most recent call last):
    ...
    firth.errors.ArgumentError: there is no method 'ad': did you mean 'add'?
    """
    if method not in METHODS:
        raise ArgumentError(f"there is no method {method!r:.80}: {near_miss(str(method), METHODS)}")


def require_vectors(model: Any) -> HasVectors:
    """The model if it has word vectors, or else `AbilityError`."""
    if not isinstance(model, HasVectors):
        raise AbilityError(
            f"a {type(model).__name__} has no word vectors: use a model of vectors, such as skipgram or glove."
        )
    return model


def require_dense_vectors(model: Any, purpose: str) -> HasDenseVectors:
    """The model if it has dense vectors, or else `AbilityError` with the missing `purpose`."""
    require_vectors(model)
    if not isinstance(model, HasDenseVectors):
        raise AbilityError(f"a {type(model).__name__} has no {purpose}: use dense vectors, such as skipgram or glove.")
    return model
