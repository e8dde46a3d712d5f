"""AnyModel: the type of trained and loaded models for type checkers and editors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from firth.abilities import Embeds, Explains, Fills, Generates, HasDenseVectors, HasLayers, PredictsNext, Scores
from firth.tokens.tokenizer import Tokenizer


class AnyModel(
    Scores, PredictsNext, Generates, Explains, Fills, HasDenseVectors, Embeds, HasLayers, Protocol
):  # fmt: skip
    """A model with every ability: which it has depends on its recipe, which is not known before it is loaded.

    `repr(model)` lists its methods. To narrow the type, test for a protocol of `firth.abilities`: after
    `isinstance(model, Fills)` it has `fill`.
    """

    recipe: Any

    @property
    def tokenizer(self) -> Tokenizer: ...

    def predict(self, items: Iterable[Any], /, *options: int) -> list[Any]:
        """Labels with probabilities, or the predictions of a fine-tuned model."""

    def summary(self) -> dict[str, Any]:
        """The recipe, the vocabulary and the methods of the model."""

    def arrays(self) -> dict[str, Any]:
        """The arrays that an artifact saves."""

    def __len__(self) -> int: ...

    def __contains__(self, word: object) -> bool: ...

    def __getitem__(self, words: Any) -> Any: ...
