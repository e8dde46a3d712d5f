"""Labels of single tokens that the text tells: settings of capitalisation and of tokens in other segments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from firth.nets.objective import Objective
from firth.nets.recipe import NetRecipe

if TYPE_CHECKING:
    from firth.nets.network import Network, Vocabulary
    from firth.objectives.heads.head import ObjectiveHead


@dataclass(frozen=True, kw_only=True)
class Capitalisation(Objective):
    """Whether each word begins with a capital letter, which lower-cased tokens do not show (Sun et al. 2020)."""

    name: ClassVar[str] = "capitals"
    needs_output: ClassVar[bool] = False
    column: ClassVar[str] = "capitals"
    material: ClassVar[str] = "capital letters"

    @property
    def requires(self) -> tuple[str, ...]:
        return (self.column,)

    def lacks(self, store: Any) -> str:
        return "" if self.column in store.columns and store.columns[self.column].any() else self.material

    def build(self, recipe: NetRecipe, vocabulary: Vocabulary, network: Network) -> ObjectiveHead:
        from firth.objectives.heads.token_labels import TokenLabelHead

        return TokenLabelHead(self, recipe, vocabulary, self.column)


@dataclass(frozen=True, kw_only=True)
class TokenDocument(Capitalisation):
    """Whether each token occurs in another sentence of its document, too (Sun et al. 2020)."""

    name: ClassVar[str] = "elsewhere"
    column: ClassVar[str] = "repeats"
    material: ClassVar[str] = "tokens that occur in two sentences of a document"
