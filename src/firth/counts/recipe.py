"""NgramRecipe: all that distinguishes one n-gram model from another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, get_args

from firth.errors import RecipeError
from firth.text.layout import Layout
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.tokenizer import Tokenizer

if TYPE_CHECKING:
    from firth.counts.ngram import NgramModel

Smoothing = Literal[
    "mle",
    "additive",
    "good-turing",
    "katz",
    "jelinek-mercer",
    "witten-bell",
    "absolute",
    "kneser-ney",
    "modified-kneser-ney",
    "church-gale",
    "bayes",
    "pitman-yor",
    "stupid",
    "imported",
]
SMOOTHINGS: tuple[str, ...] = get_args(Smoothing)[:-1]
"""The methods that can be trained."""

BOTH_WAYS = ("witten-bell", "absolute", "kneser-ney", "modified-kneser-ney")
"""Methods that come interpolated and as back-off."""

_MOST_ORDER = 8
_INFINITE = float("inf")

_OPTIONS: dict[str, tuple[str, ...]] = {
    "delta": ("additive",),
    "discount": ("absolute", "kneser-ney"),
    "discounts": ("modified-kneser-ney",),
    "weight": ("jelinek-mercer", "stupid"),
    "prior": ("bayes",),
}
"""Which methods each free parameter belongs to."""


@dataclass(frozen=True, kw_only=True)
class NgramRecipe:
    """p(w | the last words), from how often they occurred together.

    >>> NgramRecipe(order=9)
    Traceback (most recent call last):
    ...
    firth.errors.RecipeError: order=9 is out of reach: set it to 1 to 8.
    """

    tokenizer: TokenizerRecipe = field(default_factory=lambda: TokenizerRecipe(model="words"))
    order: int = 5
    """Words that are looked at together: the one to predict and those before it."""
    smoothing: Smoothing = "modified-kneser-ney"
    interpolate: bool = True
    """Mix with shorter histories always, or else only where the longer one has not seen the word (back-off)."""
    vocabulary: Literal["open", "closed"] = "open"
    """Whether words that were never seen get a share, as `<unk>`."""
    delta: float | None = None
    """additive: what is added to every count; none means the likeliest, 1 is Laplace's add-one."""
    discount: float | None = None
    """absolute, kneser-ney: what is taken off every count; none means estimated at each length."""
    discounts: str | None = None
    """modified-kneser-ney: what is taken off counts of 1, 2 and more, as D1,D2,D3."""
    weight: float | None = None
    """jelinek-mercer: the share of the longer history; stupid: that of the shorter (0.4)."""
    prior: float | None = None
    """bayes: how many words the shorter history counts for."""
    top: int = 5
    """katz: counts above are trusted as they are."""
    equal: bool = False
    """good-turing: share equally among unseen words instead of asking the shorter history."""
    sweeps: int = 30
    """pitman-yor: rounds of sampling; the first third is left out."""
    min_counts: str = "1"
    """The least count of an n-gram that is kept, by length: 1,1,2 drops what occurs once from trigrams on."""
    prune: float = 0.0
    """Drop n-grams that change the perplexity by less than this share (Stolcke 1998); 1e-8 is mild."""
    precision: Literal["auto", "float64", "float32", "8bit"] = "auto"
    """How logarithms of probabilities are kept; auto takes float32 for more than eight million n-grams."""

    def __post_init__(self) -> None:
        if not 1 <= self.order <= _MOST_ORDER:
            raise RecipeError(f"order={self.order} is out of reach: set it to 1 to {_MOST_ORDER}.")
        if self.smoothing == "church-gale" and self.order != 2:
            raise RecipeError(f"church-gale is for pairs of words: set order=2, not {self.order}.")
        if not self.interpolate and self.smoothing not in BOTH_WAYS:
            raise RecipeError(
                f"interpolate=false is for {', '.join(BOTH_WAYS)}, not for {self.smoothing}: leave it out."
            )
        for name, methods in _OPTIONS.items():
            if getattr(self, name) is not None and self.smoothing not in methods:
                raise RecipeError(f"{name} belongs to {' and '.join(methods)}, not to {self.smoothing}: leave it out.")
        self._check_ranges()

    def _check_ranges(self) -> None:
        if self.delta is not None and not 0 < self.delta < _INFINITE:
            raise RecipeError(f"delta={self.delta} would give unseen words no probability: set it above 0.")
        if self.discount is not None and not 0 < self.discount < 1:
            raise RecipeError(f"discount={self.discount} must be between 0 and 1.")
        if self.weight is not None and not 0 < self.weight < 1:
            raise RecipeError(f"weight={self.weight} must be between 0 and 1.")
        if self.prior is not None and not 0 < self.prior < _INFINITE:
            raise RecipeError(f"prior={self.prior} must be above 0.")
        if self.top < 1 or self.sweeps < 1:
            raise RecipeError("top and sweeps must be 1 or more.")
        if not 0 <= self.prune < 1:
            raise RecipeError(f"prune={self.prune} must be 0 or a small share such as 1e-8.")
        if self.discounts is not None:
            values = _numbers(self.discounts, "discounts", float)
            if len(values) != 3 or not all(0 < value <= j for j, value in enumerate(values, 1)):
                raise RecipeError(
                    f"discounts={self.discounts!r} must be D1,D2,D3 such as 0.5,1,1.5, each at most 1, 2, 3."
                )
        least = self.least_counts()
        if any(a > b for a, b in pairwise(least)) or least[0] < 1:
            raise RecipeError(f"min_counts={self.min_counts!r} must be 1 or more and not fall with the length.")

    @property
    def kind(self) -> str:
        """What an artifact made by this recipe is."""
        return "counts"

    def with_tokenizer(self, tokenizer: TokenizerRecipe) -> NgramRecipe:
        """The same recipe over other tokens."""
        return replace(self, tokenizer=tokenizer)

    def least_counts(self) -> list[int]:
        """The least count at each length; the last one given holds for all longer n-grams."""
        given = _numbers(self.min_counts, "min_counts", int)
        return [given[min(n, len(given) - 1)] for n in range(self.order)]

    def restore(self, arrays: Mapping[str, Any], tokenizer: Tokenizer, layout: Layout) -> NgramModel:
        """The model of a saved artifact's arrays."""
        from firth.counts.ngram import restore_ngram

        return restore_ngram(self, arrays, tokenizer, layout)


def _numbers(text: str, name: str, kind: type) -> list[Any]:
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        raise RecipeError(f"{name}={text!r} must be numbers with commas between them, such as 1,1,2.") from None
