"""Masked networks: predictions of masked tokens from both sides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar, Literal

from firth.abilities import Score, TextPiece
from firth.nets.pseudo import PseudoNet
from firth.nets.scoring import TokenScores, max_length


class MaskedNet(PseudoNet):
    """Scores, fills and embeds; it does not generate."""

    score_kind: Literal["causal", "pseudo"] = "pseudo"
    score_meaning: ClassVar[str] = "pseudo-log-likelihood (each token given all others)"

    @property
    def token_scorer(self) -> TokenScores:
        """The scores of single tokens: see `ScoresTokens`."""
        return self._token_scores

    @property
    def max_tokens(self) -> int | None:
        """Tokens of text, special ones included, that it reads at once; None if there is no limit."""
        return max_length(self.recipe)

    def score(self, texts: Sequence[str], *, whole_words: bool = False) -> list[Score]:
        """The pseudo-log-likelihood of each text: see `pseudo_score`."""
        return self.pseudo_score(texts, whole_words=whole_words)

    def score_pieces(self, pieces: Iterable[TextPiece], *, whole_words: bool = False) -> Iterator[Score]:
        """The same for each piece; every sentence is scored by itself."""
        return self.pseudo_score_pieces(pieces, whole_words=whole_words)
