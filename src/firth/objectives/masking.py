"""Masking: which tokens are masked, and how."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import Literal, cast, get_args

from firth.errors import RecipeError

_GO_ON = 0.8  # that a span has one more word (Joshi et al. 2020)
Policy = Literal["token", "word", "ngram", "span", "basic", "phrase", "entity"]
POLICIES: tuple[str, ...] = get_args(Policy)
COLUMNS = {"phrase": "phrases", "entity": "entities"}
"""The column that tells the units of a policy."""
_SMALL_RUN_RATE = 0.3  # of short runs (Wettig et al. 2023)
_VARIANTS = {"dynamic": 0, "static": 1, "duplicated": 10}  # ten, as in BERT's data (Devlin et al. 2019)


@dataclass(frozen=True, kw_only=True)
class Masking:
    """Which tokens are masked, and how."""

    policy: Policy = "token"
    rate: float = 0.15
    mask: float = 0.8
    """Fraction of the chosen tokens that is replaced by the mask."""
    random: float = 0.1
    """Fraction of the chosen tokens that is replaced by a random token. The rest is kept."""
    mode: Literal["dynamic", "static", "duplicated"] = "dynamic"
    """New masks in every epoch, always the same, or ten different ones in turn."""
    max_length: int = 3
    """Maximal words of an n-gram or span (SpanBERT: 10)."""
    stages: tuple[str, ...] = ()
    """The policies of equal parts of the training, one after another (ERNIE); empty: always `policy`."""

    def __post_init__(self) -> None:
        if not 1 <= self.max_length <= 100:
            raise RecipeError(f"masking.max_length={self.max_length} must be from 1 to 100.")
        if unknown := [one for one in self.stages if one not in POLICIES]:
            raise RecipeError(f"masking.stages has {unknown[0]!r:.80}: its policies are {', '.join(POLICIES)}.")
        if not 0 < self.rate < 1:
            raise RecipeError(f"masking.rate={self.rate} must be above 0 and below 1, such as 0.15.")
        if not 0 <= self.mask <= 1 or not 0 <= self.random <= 1 or self.mask + self.random > 1:
            raise RecipeError("masking.mask and masking.random must be from 0 to 1, and at most 1 together.")

    def span_lengths(self) -> list[float]:
        """The stated probabilities of spans of 1, 2, ... words.

        >>> [round(one, 3) for one in Masking(policy="ngram").span_lengths()]
        [0.545, 0.273, 0.182]
        """
        if self.policy not in ("ngram", "span"):
            return [1.0]
        lengths = range(1, self.max_length + 1)
        weights = [1 / n if self.policy == "ngram" else _GO_ON ** (n - 1) for n in lengths]
        return [weight / sum(weights) for weight in weights]

    def small_run_defaults(self) -> dict[str, tuple[float, str]]:
        """Settings of an objective with these masks that suit short runs better: field -> value and reason."""
        if self.rate >= _SMALL_RUN_RATE:
            return {}
        return {"masking.rate": (_SMALL_RUN_RATE, f"{_SMALL_RUN_RATE:.0%} of the tokens masked")}

    def published_noise(self) -> dict[str, float]:
        """The numbers of `firth noise` that are stated for these masks."""
        lengths = self.span_lengths()
        found = {
            "chosen": self.rate,
            "masked": self.mask,
            "random": self.random,
            "kept": 1 - self.mask - self.random,
            "first": self.rate,
            "last": self.rate,
            "mean span": sum(number * share for number, share in enumerate(lengths, 1)),
        }
        if self.policy not in ("token", "basic", "entity"):  # an entity of a gazetteer may end within a word
            found["whole words"] = 1.0
        if self.policy in COLUMNS:
            found[f"whole {COLUMNS[self.policy]}"] = 1.0
            del found["mean span"]  # that of the units of the text
            return found
        return found | {f"spans of {number}": share for number, share in enumerate(lengths, 1)}

    @property
    def requires(self) -> tuple[str, ...]:
        """The columns of the token store that tell its units."""
        return tuple(COLUMNS[one] for one in self.stages or (self.policy,) if one in COLUMNS)

    @property
    def bounds(self) -> tuple[float, ...]:
        """The fractions of the training at which the policy changes."""
        return tuple(number / len(self.stages) for number in range(1, len(self.stages)))

    def at(self, progress: float) -> Masking:
        """The masks after a fraction of the training, with a single policy.

        >>> masking = Masking(stages=("basic", "phrase", "entity"))
        >>> [masking.at(progress).policy for progress in (0.0, 0.34, 0.99, 1.0)]
        ['basic', 'phrase', 'entity', 'entity']
        """
        if not self.stages:
            return self
        policy = cast(Policy, self.stages[bisect_right(self.bounds, progress)])
        return replace(self, policy=policy, stages=())

    @property
    def variants(self) -> int:
        """How many different masks a text has in turn; 0: new ones in every epoch."""
        return _VARIANTS[self.mode]
