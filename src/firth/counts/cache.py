"""Cache models: a word that was said is likelier to be said again (Kuhn and De Mori, 1990).

    p(w | h) = l_0 p_base(w | h) + l_1 p_1(w) + l_2 p_2(w | h) + l_3 p_3(w | h)

p_n is the share of w among the entries of the cache that have the same n - 1 words before them. The weights depend on
the longest history that the cache knows, on how often it does, and on how full it is; an empty cache leaves p_base as
it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from firth.counts import _adaptive_kernels as kernels
from firth.counts.em import arrays_of, em_weights, going_on_stream, prefixed, resets, saved_array, saved_weights
from firth.counts.ngram import NgramModel
from firth.counts.recipe import NgramRecipe
from firth.errors import ArtifactError, RecipeError
from firth.text.layout import Layout
from firth.tokens.language import FIRST_WORD, LanguageModel, Stream
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.tokenizer import BOS, EOS, MASK, PAD, UNK, Tokenizer

DECAYS = (0.001, 0.002, 0.003, 0.004, 0.006, 0.008, 0.012, 0.016, 0.024, 0.032)
"""The rates that are tried on held-out text."""
_NEGLIGIBLE = 500.0  # an entry that counts exp(-500) times as much as the newest is forgotten
_IMAGINED = 200.0  # tokens that hold the weights of a bucket to those of all with a history of that length
_HALF = 50.0  # a cache with so many entries is believed half as much as a full one, before held-out text is looked at
_NEVER = -700.0  # the log-probability that an impossible token is charged with when rates are compared
_CAUTIOUS = 0.1  # the weight of a cache of which held-out text says nothing


@dataclass(frozen=True, kw_only=True)
class CacheRecipe:
    """An n-gram model and a cache of what was said last.

    >>> CacheRecipe(size=0)
    Traceback (most recent call last):
    ...
    firth.errors.RecipeError: size=0 must be from 1 to 100000 words: 1000 is usual.
    """

    base: NgramRecipe = field(default_factory=NgramRecipe)
    """The model of the language at large."""
    size: int = 1000
    """The cache holds the last so many words that entered it."""
    decay: float | Literal["auto"] | None = "auto"
    """A word counts exp(-decay) times as much as the next; auto finds the rate on held-out text, none means never."""
    order: int = 3
    """1 recalls words, 2 also pairs and 3 also triples of words."""
    enter: Literal["all", "content", "rare"] = "all"
    """Which words enter: all; those that are neither punctuation nor the most common; or only rare ones."""
    common: float = 0.4
    """`content` only: the most frequent words that make up this share of the training text do not enter."""
    rare: int = 500
    """`rare` only: words that occur more often in the training text do not enter."""
    end: bool = True
    """Whether the end of the sentence enters, where all words do."""
    unknown: bool = True
    """Whether `<unk>` enters."""
    weight: float | None = None
    """The weight of the whole cache; none means that EM finds it on held-out text."""

    def __post_init__(self) -> None:
        if not 1 <= self.size <= 100_000:
            raise RecipeError(f"size={self.size} must be from 1 to 100000 words: 1000 is usual.")
        if not (self.decay is None or self.decay == "auto" or _between(self.decay, 0, 10)):
            raise RecipeError(f"decay={self.decay} must be from 0 to 10, auto or none: 0.006 is usual.")
        if self.order not in (1, 2, 3):
            raise RecipeError(f"order={self.order} must be 1, 2 or 3: a cache holds too little for longer n-grams.")
        if self.enter not in ("all", "content", "rare"):
            raise RecipeError(f"enter={self.enter!r} must be all, content or rare.")
        if not _between(self.common, 0, 1):
            raise RecipeError(f"common={self.common} must be a share from 0 to 1.")
        if self.rare < 1:
            raise RecipeError(f"rare={self.rare} would let no word enter: set it to 1 or more.")
        if not (self.weight is None or (_between(self.weight, 0, 1) and self.weight < 1)):
            raise RecipeError(f"weight={self.weight} must be from 0 to below 1, or none to find it on held-out text.")

    @property
    def kind(self) -> str:
        """What an artifact made by this recipe is."""
        return "counts"

    @property
    def tokenizer(self) -> TokenizerRecipe:
        """That of the base."""
        return self.base.tokenizer

    def with_tokenizer(self, tokenizer: TokenizerRecipe) -> CacheRecipe:
        """The same with another tokenizer."""
        return replace(self, base=self.base.with_tokenizer(tokenizer))

    def restore(self, arrays: Mapping[str, Any], tokenizer: Tokenizer, layout: Layout) -> CacheModel:
        """The model of a saved artifact's arrays."""
        if self.decay == "auto":
            raise ArtifactError("the recipe does not say how fast the cache decays: train the model again.")
        rows = buckets(self.size)
        enters = saved_array(arrays, "enters", np.bool_, (len(tokenizer),))
        weights = saved_weights(arrays, "weights", (self.order, rows, rows, self.order + 1))
        base = self.base.restore(arrays_of("base", arrays), tokenizer, layout)
        return CacheModel(self, base, enters, weights)


class CacheModel(LanguageModel):
    """A base model whose words become likelier when they are said."""

    remembers: ClassVar[bool] = True

    def __init__(
        self,
        recipe: CacheRecipe,
        base: LanguageModel,
        enters: npt.NDArray[np.bool_],
        weights: npt.NDArray[np.float64],
    ) -> None:
        """`enters` says for each word whether it enters; `weights` is as in the kernel `mix_cache`."""
        super().__init__(recipe, base.tokenizer, base.layout, base.spelling)
        self.base = base
        self.enters = enters
        self.weights = weights

    @property
    def parameters(self) -> dict[str, Any]:
        """What was found on held-out text: the rate, and the weights of a full cache by the longest history known."""
        best = {str(n): self.weights[n - 1, -1, -1, : n + 1].tolist() for n in range(1, self.recipe.order + 1)}
        return {"decay": self.recipe.decay, "weights": best}

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        return prefixed("base", self.base.arrays()) | {"enters": self.enters, "weights": self.weights}

    def log_tokens(self, stream: Stream) -> npt.NDArray[np.float64]:
        logs = self.base.log_tokens(stream)
        found = recall(self.recipe, self.enters, stream)
        return mix(logs, found, self.weights)

    def log_next(self, history: Sequence[int]) -> npt.NDArray[np.float64]:
        base = self.base.log_next(history)
        parts, met = self._recall_all(history, base.size)
        known = int(np.count_nonzero(met))  # a cache that knows a history knows its end
        if not known:
            return base
        often, full = (kernels.bucket_of(count, self.weights.shape[1]) for count in (met[known - 1], met[0]))
        row = self.weights[known - 1, often, full]
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(row[0] * np.exp(base) + row[1 : known + 1] @ parts[:known]))

    def _recall_all(self, history: Sequence[int], words: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
        """(order, word): what the cache says of every word after `history`; and entries with each history."""
        stream = going_on_stream(history)
        _, histories, _ = number_ngrams(stream, self.recipe.order, words)
        said = np.flatnonzero(self.enters[stream.ids[:-1]])[-window(self.recipe) :]
        weights = np.exp(-(self.recipe.decay or 0.0) * np.arange(said.size)[::-1])
        same = histories[:, said] == histories[:, -1:]
        parts = np.zeros((self.recipe.order, words))
        for order in range(self.recipe.order):
            found = said[same[order]]
            if found.size:
                heard = np.bincount(stream.ids[found], weights=weights[same[order]], minlength=words)
                parts[order] = heard / heard.sum()
        return parts, same.sum(axis=1)


class Recalled(NamedTuple):
    """What a cache says of the tokens of a stream."""

    parts: npt.NDArray[np.float64]
    """(order, token): the share of the token among the entries that have its history."""
    met: npt.NDArray[np.int32]
    """(order, token): the number of these entries."""


def recall(recipe: CacheRecipe, enters: npt.NDArray[np.bool_], stream: Stream) -> Recalled:
    """What the cache of a recipe, with a rate that is known, says of every token of a stream."""
    nodes, histories, count = number_ngrams(stream, recipe.order, enters.size)
    found = Recalled(np.empty(nodes.shape), np.empty(nodes.shape, dtype=np.int32))
    decay = float(recipe.decay or 0.0)
    kernels.recall(nodes, histories, enters[stream.ids], resets(stream), window(recipe), decay, count, *found)
    return found


def mix(logs: npt.NDArray[np.float64], found: Recalled, weights: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The log-probabilities of base and cache together."""
    out = np.empty(logs.size)
    kernels.mix_cache(logs, *found, weights, out)
    return out


def number_ngrams(stream: Stream, order: int, words: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], int]:
    """(order, token): the n-gram that ends at each token, and its history, as numbers; and how many numbers there are.

    Equal n-grams have equal numbers, and the history of a triple is the number of the pair before.
    """
    ids = stream.ids
    nodes, histories = np.empty((order, ids.size), dtype=np.int32), np.zeros((order, ids.size), dtype=np.int32)
    nodes[0] = ids
    nodes[0] += 1
    count = words + 2
    starts = stream.bounds[:-1]
    for n, before in zip(range(1, order), (BOS + 1, words + 1), strict=False):
        histories[n, 1:] = nodes[n - 1, :-1]
        histories[n, starts] = before
        slots = np.zeros(1 << max(4, (2 * ids.size).bit_length()), dtype=np.int32)
        keys = np.empty(ids.size, dtype=np.uint64)
        count = int(kernels.number_pairs(histories[n], ids, count, slots, keys, nodes[n]))
    return nodes, histories, count


def buckets(size: int) -> int:
    """How many buckets there are for counts of entries: 1, 2-3, 4-7, ..., and the last for a full cache."""
    return size.bit_length()


def window(recipe: CacheRecipe) -> int:
    """How many entries the cache holds: old ones are forgotten when they count next to nothing."""
    if not isinstance(recipe.decay, (int, float)) or recipe.decay * recipe.size <= _NEGLIGIBLE:
        return recipe.size
    return int(_NEGLIGIBLE / recipe.decay)


def train_cache(
    recipe: CacheRecipe,
    base_for_weights: LanguageModel,
    base: LanguageModel,
    heldout: Stream | None,
    counts: npt.NDArray[Any] | None = None,
) -> CacheModel:
    """The cache model around `base`, with weights and rate that suit the held-out text.

    `base_for_weights` has not seen the held-out text; it may be the base itself. `counts` says how often each word
    occurs in the training text, on which it may depend whether it enters; an n-gram model knows it.
    """
    if counts is None and isinstance(base, NgramModel):
        counts = base.trie.counts[: base.trie.vocabulary]
    enters = entering(recipe, base.tokenizer, counts)
    if heldout is None or not heldout.ids.size:
        if recipe.weight is None or recipe.decay == "auto":
            raise RecipeError("a cache needs held-out text: give --valid, or set weight=0.1 and decay=0.006.")
        return CacheModel(recipe, base, enters, _fixed_weights(recipe))
    logs = base_for_weights.log_tokens(heldout)
    best, likelihood, weights = recipe, -np.inf, _fixed_weights(recipe)
    for decay in DECAYS if recipe.decay == "auto" else (recipe.decay,):
        tried = replace(recipe, decay=decay)
        found = recall(tried, enters, heldout)
        fitted = _fit(tried, logs, found)
        reached = float(np.maximum(mix(logs, found, fitted), _NEVER).sum())
        if reached > likelihood:
            best, likelihood, weights = tried, reached, fitted
    return CacheModel(best, base, enters, weights)


def entering(
    recipe: CacheRecipe, tokenizer: Tokenizer, counts: npt.NDArray[Any] | None = None
) -> npt.NDArray[np.bool_]:
    """Which words of the vocabulary enter the cache."""
    enters = np.ones(len(tokenizer), dtype=np.bool_)
    if recipe.enter != "all":
        if counts is None:
            raise RecipeError(f"enter={recipe.enter} needs the counts of the training text: set enter=all.")
        words = np.array(counts, dtype=np.int64)
        words[:FIRST_WORD] = 0
        enters = words <= recipe.rare if recipe.enter == "rare" else _content(words, recipe.common, tokenizer)
    enters[[PAD, BOS, MASK]] = False
    enters[EOS] = recipe.end and recipe.enter == "all"
    enters[UNK] = recipe.unknown
    return enters


def _content(counts: npt.NDArray[np.int64], common: float, tokenizer: Tokenizer) -> npt.NDArray[np.bool_]:
    """Words with a letter or digit, but for the most frequent ones, which make up the share `common` of the text."""
    order = np.argsort(-counts, kind="stable")
    before = np.cumsum(counts[order]) - counts[order]
    enters = np.array([any(letter.isalnum() for letter in word) for word in tokenizer.vocabulary])
    enters[order[before < common * counts.sum()]] = False
    return enters


def _fit(recipe: CacheRecipe, logs: npt.NDArray[np.float64], found: Recalled) -> npt.NDArray[np.float64]:
    """The weights of every bucket that make the text likeliest, held to those of all tokens with as long a history."""
    weights = _fixed_weights(recipe)
    parts = np.vstack([np.exp(logs), found.parts])
    lengths = np.count_nonzero(found.met, axis=0)
    for known in range(1, recipe.order + 1):
        here = np.flatnonzero(lengths == known)
        seen = parts[: known + 1, here]
        often, full = (np.frexp(found.met[n, here])[1] - 1 for n in (known - 1, 0))  # whole parts of log2
        level = _blend(recipe, seen, weights[known - 1, -1, -1], 1.0)
        weights[known - 1] = _by_fullness(recipe, level)
        for b, f in np.unique(np.stack([often, full]), axis=1).T.tolist():
            row = weights[known - 1, b, f]
            weights[known - 1, b, f] = _blend(recipe, seen[:, (often == b) & (full == f)], row, _IMAGINED)
    return weights


def _blend(
    recipe: CacheRecipe, parts: npt.NDArray[np.float64], prior: npt.NDArray[np.float64], strength: float
) -> npt.NDArray[np.float64]:
    """A row of weights by EM; a fixed weight of the cache is only shared out among its orders."""
    row = np.zeros(recipe.order + 1)
    if recipe.weight is None:
        row[: len(parts)] = em_weights(parts, prior=strength * prior[: len(parts)]).weights
        return row
    mixed = (1 - recipe.weight) * parts[0] + recipe.weight * parts[1:]
    inside = prior[1 : len(parts)]
    shares = em_weights(mixed, prior=strength * inside / inside.sum()).weights if recipe.weight else inside
    row[0], row[1 : len(parts)] = 1 - recipe.weight, recipe.weight * shares
    return row


def _fixed_weights(recipe: CacheRecipe) -> npt.NDArray[np.float64]:
    """Weights before any text was looked at: a small one for the cache, shared equally by its orders."""
    cache = _CAUTIOUS if recipe.weight is None else recipe.weight
    rows = np.zeros((recipe.order, recipe.order + 1))
    for known in range(1, recipe.order + 1):
        rows[known - 1, : known + 1] = [1 - cache, *[cache / known] * known]
    return np.stack([_by_fullness(recipe, row) for row in rows])


def _by_fullness(recipe: CacheRecipe, row: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The weights of a full cache in every bucket, less of them where it holds little, unless the recipe fixes them."""
    count = buckets(recipe.size)
    entries = 1.5 * 2.0 ** np.arange(count)
    trust = entries / (entries + _HALF) if recipe.weight is None else np.ones(count)
    rows = trust[:, None] * row
    rows[:, 0] = 1 - rows[:, 1:].sum(axis=1)
    return np.tile(rows, (count, 1, 1))


def _between(value: float, low: float, high: float) -> bool:
    return isinstance(value, (int, float)) and low <= value <= high
