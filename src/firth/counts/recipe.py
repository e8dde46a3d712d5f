"""The recipes of n-gram models and of models that wrap one."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, ClassVar, Literal, Self, get_args

from firth.errors import RecipeError
from firth.tokens.recipe import TokenizerRecipe

Smoothing = Literal[
    "mle", "additive", "good-turing", "katz", "jelinek-mercer", "witten-bell", "absolute", "kneser-ney",
    "modified-kneser-ney", "church-gale", "bayes", "pitman-yor", "stupid", "imported",
]  # fmt: skip
SMOOTHINGS: tuple[str, ...] = get_args(Smoothing)[:-1]  # the methods that can be trained
WITH_BACKOFF = ("witten-bell", "absolute", "kneser-ney", "modified-kneser-ney")
"""Methods with an interpolated and a back-off variant."""

_MAX_ORDER = 8
_INFINITE = float("inf")

_OPTIONS: dict[str, tuple[tuple[str, ...], float, str]] = {
    "delta": (("additive",), _INFINITE, "would give unseen words no probability: set it above 0"),
    "discount": (("absolute", "kneser-ney"), 1, "must be between 0 and 1"),
    "weight": (("jelinek-mercer", "stupid"), 1, "must be between 0 and 1"),
    "prior": (("bayes",), _INFINITE, "must be above 0"),
}
"""The methods of each smoothing parameter, its upper bound and what is wrong with a value outside 0 to the bound."""


def is_between(value: object, low: float, high: float) -> bool:
    """Whether a value is a number from `low` to `high`."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and low <= value <= high


def is_auto_or_positive(value: object) -> bool:
    """Whether a value is `auto` or a finite number above 0."""
    return value == "auto" or (is_between(value, 0, _INFINITE) and value not in (0, _INFINITE))


def check_fields(recipe: object, **checks: tuple[bool, str]) -> None:
    """Raises a RecipeError for the first field whose check (is valid, what is wrong otherwise) fails."""
    for name, (is_valid, reason) in checks.items():
        if not is_valid:
            raise RecipeError(f"{name}={getattr(recipe, name)} {reason}.")


@dataclass(frozen=True, kw_only=True)
class CountRecipe:
    """The recipe of a count model with its own tokenizer."""

    kind: ClassVar[str] = "counts"
    tokenizer: TokenizerRecipe = field(default_factory=lambda: TokenizerRecipe(model="words"))

    def with_tokenizer(self, tokenizer: TokenizerRecipe) -> Self:
        """The same recipe with another tokenizer."""
        return replace(self, tokenizer=tokenizer)


@dataclass(frozen=True, kw_only=True)
class NgramRecipe(CountRecipe):
    """An n-gram model: p(w | history) from counts.

    >>> NgramRecipe(order=9)
    Traceback (most recent call last):
    ...
    firth.errors.RecipeError: order=9 is out of range: set it to 1 to 8.
    """

    order: int = 5  # the length of the longest n-grams
    smoothing: Smoothing = "modified-kneser-ney"
    interpolate: bool = True
    """Interpolate with the lower order for all words, or back off to it for unseen words only."""
    vocabulary: Literal["open", "closed"] = "open"  # whether unseen words get probability mass, as `<unk>`
    delta: float | None = None  # additive: the pseudo-count (1 is Laplace's); none estimates it
    discount: float | None = None
    """absolute, kneser-ney: the discount of every count; none estimates one for each n-gram length."""
    discounts: str | None = None  # modified-kneser-ney: of counts of 1, 2 and more, as D1,D2,D3
    weight: float | None = None  # jelinek-mercer: of the longer history; stupid: of back-off (0.4)
    prior: float | None = None  # bayes: the strength of the lower-order prior, in words
    katz_cutoff: int = 5  # katz: larger counts are not discounted
    uniform_backoff: bool = False  # good-turing: back off to the uniform distribution
    sweeps: int = 30  # pitman-yor: Gibbs sweeps, of which the first third is burn-in
    min_counts: str = "1"
    """The minimum count of an n-gram, by length: 1,1,2 drops trigrams and longer n-grams that occur once."""
    prune: float = 0.0
    """Drop n-grams whose removal raises the perplexity by less than this fraction (Stolcke 1998); 1e-8 is mild."""
    precision: Literal["auto", "float64", "float32", "8bit"] = "auto"
    """The type of log-probabilities; auto is float32 for more than eight million n-grams."""

    def __post_init__(self) -> None:
        check_fields(
            self,
            order=(1 <= self.order <= _MAX_ORDER, f"is out of range: set it to 1 to {_MAX_ORDER}"),
            prune=(0 <= self.prune < 1, "must be 0 or a small fraction such as 1e-8"),
        )
        if self.smoothing == "church-gale" and self.order != 2:
            raise RecipeError(f"church-gale is for pairs of words: set order=2, not {self.order}.")
        if not self.interpolate and self.smoothing not in WITH_BACKOFF:
            raise RecipeError(
                f"interpolate=false is for {', '.join(WITH_BACKOFF)}, not for {self.smoothing}: leave it out."
            )
        for name, (methods, highest, reason) in _OPTIONS.items():
            self._check_method(name, methods)
            value = getattr(self, name)
            check_fields(self, **{name: (value is None or 0 < value < highest, reason)})
        self._check_method("discounts", ("modified-kneser-ney",))
        if self.katz_cutoff < 1 or self.sweeps < 1:
            raise RecipeError("katz_cutoff and sweeps must be 1 or more.")
        if self.discounts is not None:
            values = _numbers(self.discounts, "discounts", float)
            if len(values) != 3 or not all(0 < value <= j for j, value in enumerate(values, 1)):
                raise RecipeError(
                    f"discounts={self.discounts!r} must be D1,D2,D3 such as 0.5,1,1.5, each at most 1, 2, 3."
                )
        minimums = self.min_counts_by_order()
        if any(a > b for a, b in pairwise(minimums)) or minimums[0] < 1:
            raise RecipeError(f"min_counts={self.min_counts!r} must be 1 or more and not fall with the length.")

    def _check_method(self, name: str, methods: tuple[str, ...]) -> None:
        if getattr(self, name) is not None and self.smoothing not in methods:
            raise RecipeError(f"{name} belongs to {' and '.join(methods)}, not to {self.smoothing}: leave it out.")

    def min_counts_by_order(self) -> list[int]:
        """The minimum count of each n-gram length; the last one given holds for all longer n-grams."""
        given = _numbers(self.min_counts, "min_counts", int)
        return [given[min(n, len(given) - 1)] for n in range(self.order)]


def _numbers(text: str, name: str, kind: type) -> list[Any]:
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        raise RecipeError(f"{name}={text!r} must be numbers with commas between them, such as 1,1,2.") from None


@dataclass(frozen=True, kw_only=True)
class WrapperRecipe:
    """The recipe of a model made of n-gram models."""

    kind: ClassVar[str] = "counts"
    base: NgramRecipe = field(default_factory=NgramRecipe)  # the recipe of the n-gram models

    @property
    def tokenizer(self) -> TokenizerRecipe:
        return self.base.tokenizer

    def with_tokenizer(self, tokenizer: TokenizerRecipe) -> Self:
        return replace(self, base=self.base.with_tokenizer(tokenizer))
