"""Mixtures: several models of different texts, each with the weight that suits the text at hand.

    p(w | h) = sum over k of l_k p_k(w | h)

The weights are those that make held-out text likeliest. They can also follow the text (the topic is found at run time):

    l_k(t) = (strength * l_k + n_k(t)) / (strength + sum of n(t))
    n_k(t + 1) = keep * n_k(t) + (the share of the word at t that part k explains)

which is EM for the weights of the text so far, one step a word, with the held-out weights as a prior (Kneser and
Steinbiss, 1993; Iyer and Ostendorf, 1996).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from firth.counts import _adaptive_kernels as kernels
from firth.counts.em import arrays_of, em_weights, going_on_stream, prefixed, resets, saved_weights
from firth.counts.recipe import NgramRecipe
from firth.errors import ArtifactError, RecipeError
from firth.progress import note
from firth.text.layout import Layout
from firth.tokens.language import LanguageModel, Stream
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.store import TokenStore
from firth.tokens.tokenizer import MASK, Tokenizer

STRENGTHS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
KEEPS = (1.0, 0.998, 0.995, 0.99, 0.98, 0.95, 0.9, 0.8, 0.6)
"""The prior strengths and rates of forgetting that are tried on held-out text."""
WINDOW = 50
"""Sentences: longer documents are cut for clustering, because the topic may change and a corpus may be one document."""
_SAMPLE = 20_000  # documents from which topics are found; the others are only sorted into them
_BLOCK = 1 << 22  # tokens whose documents are sorted at a time
_DIMENSIONS = 50
_OPEN = 0.3  # shared equally by all parts before a text begins: a topic rare in held-out text is not out of reach
_NEVER = -700.0  # the log-probability that an impossible token is charged with when settings are compared

Mask = npt.NDArray[np.bool_]
TrainPart = Callable[[Mask], LanguageModel]
"""Makes a model of the sentences of a store for which the mask is true."""


@dataclass(frozen=True, kw_only=True)
class MixtureRecipe:
    """N-gram models of parts of the text, mixed.

    >>> MixtureRecipe(topics=0)
    Traceback (most recent call last):
    ...
    firth.errors.RecipeError: topics=0 must be from 1 to 1000: 8 is usual.
    """

    base: NgramRecipe = field(default_factory=NgramRecipe)
    """What each part is."""
    parts: Literal["auto", "inputs", "topics"] = "auto"
    """One part for each input file, or for each topic that the documents fall into; auto takes topics for one input."""
    topics: int = 8
    """Into how many topics documents are sorted."""
    general: bool = True
    """Whether one more part is a model of all text."""
    adapt: bool = True
    """Whether the weights follow the text; they stay those of the held-out text otherwise."""
    strength: float | Literal["auto"] = "auto"
    """How many words of the text weigh as much as the held-out text; auto finds it there."""
    keep: float | Literal["auto"] = "auto"
    """How much a word of the text still counts one word later: 1 never forgets; auto finds it on held-out text."""

    def __post_init__(self) -> None:
        if self.parts not in ("auto", "inputs", "topics"):
            raise RecipeError(f"parts={self.parts!r} must be auto, inputs or topics.")
        if not 1 <= self.topics <= 1000:
            raise RecipeError(f"topics={self.topics} must be from 1 to 1000: 8 is usual.")
        if self.strength != "auto" and not (_is_number(self.strength) and 0 < self.strength < np.inf):
            raise RecipeError(f"strength={self.strength} must be above 0, or auto: 10 is usual.")
        if self.keep != "auto" and not (_is_number(self.keep) and 0 <= self.keep <= 1):
            raise RecipeError(f"keep={self.keep} must be from 0 to 1, or auto: 0.99 is usual.")

    @property
    def kind(self) -> str:
        """What an artifact made by this recipe is."""
        return "counts"

    @property
    def tokenizer(self) -> TokenizerRecipe:
        """That of every part."""
        return self.base.tokenizer

    def with_tokenizer(self, tokenizer: TokenizerRecipe) -> MixtureRecipe:
        """The same with another tokenizer."""
        return replace(self, base=self.base.with_tokenizer(tokenizer))

    def restore(self, arrays: Mapping[str, Any], tokenizer: Tokenizer, layout: Layout) -> MixtureModel:
        """The model of a saved artifact's arrays."""
        if "auto" in (self.strength, self.keep):
            raise ArtifactError("the recipe does not say how the weights follow the text: train the model again.")
        weights = saved_weights(arrays, "weights", (None,))
        parts = [self.base.restore(arrays_of(f"part{k}", arrays), tokenizer, layout) for k in range(weights.size)]
        return MixtureModel(self, parts, weights)


class MixtureModel(LanguageModel):
    """Models over the same vocabulary, mixed; the first one knows how to spell unknown words."""

    remembers: ClassVar[bool] = True

    def __init__(self, recipe: MixtureRecipe, parts: Sequence[LanguageModel], weights: npt.NDArray[np.float64]) -> None:
        super().__init__(recipe, parts[0].tokenizer, parts[0].layout, parts[0].spelling)
        self.parts = list(parts)
        self.weights = weights

    @property
    def parameters(self) -> dict[str, Any]:
        """What was found on held-out text."""
        return {"weights": self.weights.tolist(), "strength": self.recipe.strength, "keep": self.recipe.keep}

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        arrays: dict[str, npt.NDArray[Any]] = {"weights": self.weights}
        for number, part in enumerate(self.parts):
            arrays |= prefixed(f"part{number}", part.arrays())
        return arrays

    def log_tokens(self, stream: Stream) -> npt.NDArray[np.float64]:
        probabilities = token_probabilities(self.parts, stream)
        if self.recipe.adapt:
            return followed(probabilities, stream, self.weights, self.recipe.strength, self.recipe.keep)[0]
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.weights @ probabilities))

    def log_next(self, history: Sequence[int]) -> npt.NDArray[np.float64]:
        mixed = sum(
            weight * np.exp(part.log_next(history))
            for weight, part in zip(self.weights_after(history).tolist(), self.parts, strict=True)
        )
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(mixed))

    def weights_after(self, history: Sequence[int]) -> npt.NDArray[np.float64]:
        """The weight of each part after a text: which topic it is about."""
        if not self.recipe.adapt or not len(history):
            return self.weights
        stream = going_on_stream(history)
        probabilities = token_probabilities(self.parts, stream)[:, :-1].copy()
        text = Stream(stream.ids[:-1], stream.bounds, stream.fresh)
        strength = float(self.recipe.strength)
        shares = followed(probabilities, text, self.weights, strength, self.recipe.keep)[1]
        return np.asarray((strength * self.weights + shares) / (strength + shares.sum()))


def token_probabilities(parts: Sequence[LanguageModel], stream: Stream) -> npt.NDArray[np.float64]:
    """(part, token): what each part gives to each token of a stream."""
    found = np.empty((len(parts), stream.ids.size))
    for row, part in zip(found, parts, strict=True):
        np.exp(part.log_tokens(stream), out=row)
    return found


def followed(
    probabilities: npt.NDArray[np.float64],
    stream: Stream,
    weights: npt.NDArray[np.float64],
    strength: float,
    keep: float,
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """The log-probability of each token with weights that follow the text, and the words each part has explained."""
    out, shares = np.empty(probabilities.shape[1]), np.zeros(len(probabilities))
    forget = resets(stream)
    kernels.follow(probabilities, forget, weights, float(strength), float(keep), shares, out)
    return out, shares


def train_mixture(
    recipe: MixtureRecipe,
    train_part: TrainPart,
    store: TokenStore,
    heldout: Stream,
    seed: int = 0,
    *,
    inputs: npt.NDArray[Any] | None = None,
    use: Mask | None = None,
) -> MixtureModel:
    """The mixture of models of parts of the store, with weights that suit the held-out text.

    `inputs` says for each sentence of the store which input it came from. No part may have seen the held-out text: if
    that is in the store, `use` is false for its sentences.
    """
    if not heldout.ids.size:
        raise RecipeError("a mixture needs held-out text to weigh its parts: give --valid.")
    recipe, labels = _label(recipe, store, inputs, seed)
    used = np.ones(labels.size, dtype=np.bool_) if use is None else use
    found = np.unique(labels[used])
    masks = [used & (labels == label) for label in found]
    if recipe.general or len(masks) == 1:
        masks = [used, *masks] if len(masks) > 1 else [used]
    parts = [train_part(mask) for mask in masks]
    probabilities = token_probabilities(parts, heldout)
    weights = em_weights(probabilities).weights
    if recipe.adapt:
        weights = (1 - _OPEN) * weights + _OPEN / weights.size
    strength, keep = _settings(recipe, probabilities, heldout, weights)
    return MixtureModel(replace(recipe, strength=strength, keep=keep), parts, weights)


def _label(
    recipe: MixtureRecipe, store: TokenStore, inputs: npt.NDArray[Any] | None, seed: int
) -> tuple[MixtureRecipe, npt.NDArray[Any]]:
    """The part that each sentence belongs to, and the recipe with what it left open filled in."""
    several = inputs is not None and np.unique(inputs).size > 1
    if recipe.parts == "inputs" and not several:
        raise RecipeError("parts=inputs mixes models of several inputs: give more than one, or set parts=topics.")
    if inputs is not None and several and recipe.parts != "topics":
        return replace(recipe, parts="inputs"), inputs
    return replace(recipe, parts="topics"), cluster_documents(store, recipe.topics, seed)


def _settings(
    recipe: MixtureRecipe,
    probabilities: npt.NDArray[np.float64],
    heldout: Stream,
    weights: npt.NDArray[np.float64],
) -> tuple[float, float]:
    """The prior strength and the rate of forgetting under which the held-out text is likeliest."""
    strengths = STRENGTHS if recipe.strength == "auto" else (recipe.strength,)
    keeps = KEEPS if recipe.keep == "auto" else (recipe.keep,)
    if not recipe.adapt:
        return strengths[-1], keeps[0]

    def likelihood(pair: tuple[float, float]) -> float:
        return float(np.maximum(followed(probabilities, heldout, weights, *pair)[0], _NEVER).sum())

    return max(((strength, keep) for strength in strengths for keep in keeps), key=likelihood)


def cluster_documents(store: TokenStore, topics: int, seed: int) -> npt.NDArray[np.int64]:
    """The topic of every sentence: documents with the same words go together (TF-IDF, SVD and k-means).

    A document of more than `WINDOW` sentences is cut. The largest topic is number 0. The same store and seed give the
    same topics.
    """
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    bounds = _pieces(store)
    with threadpool_limits(limits=1):  # sums in another order could move a document
        labels = _cluster(store, bounds, topics, seed)
    found = int(labels.max(initial=0)) + 1
    if found < topics:
        note(f"the text falls into {found} topics, not {topics}: it has few documents or they are much alike.")
    order = np.argsort(-np.bincount(labels, minlength=found), kind="stable")
    rank = np.empty(found, dtype=np.int64)
    rank[order] = np.arange(found)
    return np.asarray(np.repeat(rank[labels], np.diff(bounds)))


def _pieces(store: TokenStore) -> npt.NDArray[np.int64]:
    """The first sentence of each document, or of each window of a long one, and the end."""
    documents = np.asarray(store.documents, dtype=np.int64)
    cut = [np.arange(begin, end, WINDOW) for begin, end in pairwise(documents.tolist())]
    return np.concatenate([*cut, documents[-1:]])


def _cluster(store: TokenStore, bounds: npt.NDArray[np.int64], topics: int, seed: int) -> npt.NDArray[np.int64]:
    from sklearn.cluster import KMeans
    from sklearn.decomposition import TruncatedSVD
    from sklearn.preprocessing import normalize

    pieces = bounds.size - 1
    sample = np.arange(pieces)
    if pieces > _SAMPLE:
        sample = np.sort(np.random.default_rng(seed).choice(pieces, _SAMPLE, replace=False))
    words = int(store.ids.max(initial=MASK)) + 1
    counts = _count_words(store, bounds, sample, words)
    told = _telling_words(counts)
    if topics == 1 or min(sample.size, told.size) < 3:
        return np.zeros(pieces, dtype=np.int64)
    weights = _idf(counts[:, told])
    svd = TruncatedSVD(min(_DIMENSIONS, sample.size - 1, told.size - 1), random_state=seed)
    points = normalize(svd.fit_transform(_tfidf(counts[:, told], weights)))
    distinct = np.unique(points.round(6), axis=0)
    means = KMeans(min(topics, len(distinct)), n_init=4, random_state=seed).fit(points)
    if sample.size == pieces:
        return np.asarray(means.labels_, dtype=np.int64)
    labels = []
    for block in _blocks(store, bounds):
        counts = _count_words(store, bounds, block, words)[:, told]
        labels.append(means.predict(normalize(svd.transform(_tfidf(counts, weights)))))
    return np.concatenate(labels).astype(np.int64)


def _blocks(store: TokenStore, bounds: npt.NDArray[np.int64]) -> list[npt.NDArray[np.int64]]:
    """The numbers of the pieces, in groups of about so many tokens."""
    ends = np.asarray(store.sentences)[bounds].astype(np.int64) // _BLOCK
    return np.split(np.arange(bounds.size - 1), np.flatnonzero(np.diff(ends[:-1])) + 1)


def _count_words(store: TokenStore, bounds: npt.NDArray[np.int64], pieces: npt.NDArray[np.int64], words: int) -> Any:
    """(piece, word): how often, as a sparse matrix."""
    from scipy.sparse import coo_matrix  # type: ignore[import-untyped]

    begins, ends = (np.asarray(store.sentences[bounds[pieces + shift]], dtype=np.int64) for shift in (0, 1))
    lengths = ends - begins
    places = np.repeat(begins - np.cumsum(lengths) + lengths, lengths) + np.arange(lengths.sum())
    ids = np.asarray(store.ids[places], dtype=np.int64)
    rows = np.repeat(np.arange(pieces.size), lengths)
    return coo_matrix((np.ones(ids.size), (rows, ids)), shape=(pieces.size, words)).tocsr()


def _telling_words(counts: Any) -> npt.NDArray[np.int64]:
    """Words in at least two documents and at most half of them."""
    spread = np.bincount(counts.indices, minlength=counts.shape[1])
    spread[: MASK + 1] = 0
    return np.flatnonzero((spread >= 2) & (spread <= max(2, counts.shape[0] / 2)))


def _idf(counts: Any) -> npt.NDArray[np.float64]:
    spread = np.bincount(counts.indices, minlength=counts.shape[1])
    return np.asarray(np.log((1 + counts.shape[0]) / (1 + spread)) + 1)


def _tfidf(counts: Any, weights: npt.NDArray[np.float64]) -> Any:
    """Rows of length 1: the logarithm of how often a word occurs, times how few documents it occurs in."""
    from sklearn.preprocessing import normalize

    scaled = counts.copy()
    scaled.data = (1 + np.log(scaled.data)) * weights[scaled.indices]
    return normalize(scaled)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
