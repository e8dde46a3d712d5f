"""The recipes of count models: n-grams, models that are made of n-gram models, and maximum entropy.

Nothing here needs a library, so that a wrong name or field is answered at once.
"""

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
_MAX_PSEUDO = 1e12  # pseudo-count of a word, beyond which sums over a vocabulary may overflow

_OPTIONS: dict[str, tuple[tuple[str, ...], float, str]] = {
    "delta": (("additive",), _MAX_PSEUDO, "must be above 0, for unseen words, and below 1e12"),
    "discount": (("absolute", "kneser-ney"), 1, "must be between 0 and 1"),
    "weight": (("jelinek-mercer", "stupid"), 1, "must be between 0 and 1"),
    "prior": (("bayes",), _MAX_PSEUDO, "must be above 0 and below 1e12"),
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
        for name, most in (("katz_cutoff", 1000), ("sweeps", 100_000)):
            if not 1 <= getattr(self, name) <= most:
                raise RecipeError(f"{name}={getattr(self, name)} must be from 1 to {most}.")
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


@dataclass(frozen=True, kw_only=True)
class CacheRecipe(WrapperRecipe):
    """An n-gram model with a cache of recent words.

    >>> CacheRecipe(size=0)
    Traceback (most recent call last):
    ...
    firth.errors.RecipeError: size=0 must be from 1 to 100000 words: 1000 is usual.
    """

    size: int = 1000  # the maximum number of entries
    decay: float | Literal["auto"] | None = "auto"
    """An entry weighs exp(-decay) times the next one; auto fits the rate on held-out text, none disables decay."""
    order: int = 3  # the cache holds words (1), also bigrams (2), also trigrams (3)
    cached_words: Literal["all", "content", "rare"] = "all"
    """The words that enter: all; neither punctuation nor the most frequent ones; or only rare ones."""
    stopword_fraction: float = 0.4
    """`content`: the most frequent words, which make up this fraction of the training text, do not enter."""
    max_count: int = 500  # `rare`: words with a higher training count do not enter
    cache_eos: bool = True  # whether `</s>` enters, with `all`
    cache_unk: bool = True  # whether `<unk>` enters
    weight: float | None = None  # of the whole cache; none fits it by EM on held-out text

    def __post_init__(self) -> None:
        if self.cached_words not in ("all", "content", "rare"):
            raise RecipeError(f"cached_words={self.cached_words!r} must be all, content or rare.")
        has_decay = self.decay is None or self.decay == "auto" or is_between(self.decay, 0, 10)
        has_weight = self.weight is None or (is_between(self.weight, 0, 1) and self.weight < 1)
        check_fields(
            self,
            size=(1 <= self.size <= 100_000, "must be from 1 to 100000 words: 1000 is usual"),
            decay=(has_decay, "must be from 0 to 10, auto or none: 0.006 is usual"),
            order=(self.order in (1, 2, 3), "must be 1, 2 or 3: a cache holds too little for longer n-grams"),
            stopword_fraction=(is_between(self.stopword_fraction, 0, 1), "must be a fraction from 0 to 1"),
            max_count=(self.max_count >= 1, "would let no word enter: set it to 1 or more"),
            weight=(has_weight, "must be from 0 to below 1, or none to fit it on held-out text"),
        )


@dataclass(frozen=True, kw_only=True)
class MixtureRecipe(WrapperRecipe):
    """A mixture of n-gram models of parts of the text.

    >>> MixtureRecipe(topics=0)
    Traceback (most recent call last):
    ...
    firth.errors.RecipeError: topics=0 must be from 1 to 1000: 8 is usual.
    """

    components: Literal["auto", "inputs", "topics"] = "auto"
    """One component per input file or per topic; auto chooses topics for a single input."""
    topics: int = 8  # the number of document clusters
    general: bool = True  # whether to add a component trained on all text
    adapt: bool = True  # whether the weights adapt to the text being read
    prior_strength: float | Literal["auto"] = "auto"
    """The number of words that the held-out weights count for; auto fits it on held-out text."""
    decay_factor: float | Literal["auto"] = "auto"
    """The weight of a word one word later: 1 never forgets; auto fits it on held-out text."""

    def __post_init__(self) -> None:
        if self.components not in ("auto", "inputs", "topics"):
            raise RecipeError(f"components={self.components!r} must be auto, inputs or topics.")
        check_fields(
            self,
            topics=(1 <= self.topics <= 1000, "must be from 1 to 1000: 8 is usual"),
            prior_strength=(is_auto_or_positive(self.prior_strength), "must be above 0, or auto: 10 is usual"),
            decay_factor=(
                self.decay_factor == "auto" or is_between(self.decay_factor, 0, 1),
                "must be from 0 to 1, or auto: 0.99 is usual",
            ),
        )


@dataclass(frozen=True, kw_only=True)
class ClassRecipe(WrapperRecipe):
    """An n-gram model over word classes; `base` is the recipe of the class model and of the tokenizer.

    >>> ClassRecipe(max_classes=2)
    Traceback (most recent call last):
    ...
    firth.errors.RecipeError: max_classes=2 is too few classes to tell words apart: set it to 10 or more.
    """

    classes: str | None = None
    """The source of the classes: a file with a word and its class on each line, or Brown clusters (the folder that
    `firth train brown` wrote, or a file of paths); none derives classes from the spelling."""
    max_classes: int = 1000  # the maximum number of classes derived from the spelling
    delta: float | Literal["auto"] = "auto"
    """The pseudo-count of each word in its class; auto fits it by leaving one out."""

    def __post_init__(self) -> None:
        check_fields(
            self,
            max_classes=(self.max_classes >= 10, "is too few classes to tell words apart: set it to 10 or more"),
            delta=(is_auto_or_positive(self.delta), "would give unseen words no probability: set it above 0"),
        )
        if self.classes is not None and not self.classes.strip():
            raise RecipeError("classes names no file: give the path of one, or none for classes by spelling.")


@dataclass(frozen=True, kw_only=True)
class MaxentRecipe(CountRecipe):
    """A maximum-entropy model.

    >>> MaxentRecipe(order=4)
    Traceback (most recent call last):
    ...
    firth.errors.RecipeError: order=4 must be 1, 2 or 3: for longer n-grams take an n-gram model.
    """

    order: int = 3  # the length of the longest n-gram features
    distance_bigrams: bool = True  # features for the last word but one and the next word
    triggers: int = 10_000  # trigger pairs, those with the highest mutual information; 0 for none
    window: int = 200  # the reach of a trigger within a document, in tokens with `</s>`
    exclude_bigrams: bool = True  # whether trigger pairs exclude the bigrams of the text
    min_count: int = 1  # the minimum count of n-gram and distance-2 bigram features
    prior: float | None = None  # the variance of the Gaussian prior; none fits it on held-out text
    iterations: int = 40  # the maximum number of evaluations of the likelihood

    def __post_init__(self) -> None:
        has_prior = self.prior is None or 0 < self.prior < float("inf")
        check_fields(
            self,
            order=(self.order in (1, 2, 3), "must be 1, 2 or 3: for longer n-grams take an n-gram model"),
            triggers=(0 <= self.triggers <= 10_000_000, "must be 0 for none, or some thousands of pairs"),
            window=(1 <= self.window <= 10_000, "must be from 1 to 10000 tokens: 200 is usual"),
            min_count=(self.min_count >= 1, "must be 1 or more"),
            prior=(has_prior, "must be above 0, or none to fit it on held-out text: 2 is usual"),
            iterations=(self.iterations >= 1, "would leave all weights at 0: set it to 1 or more"),
        )
