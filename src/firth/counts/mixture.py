"""Linear mixtures of n-gram models of different texts or topics.

    p(w | h) = sum over k of l_k p_k(w | h)

The weights maximise the likelihood of held-out text. They can also adapt to the text being read:

    l_k(t) = (prior_strength * l_k + n_k(t)) / (prior_strength + sum of n(t))
    n_k(t + 1) = decay_factor * n_k(t) + (the posterior probability of component k for the word at t)

This is EM for the weights of the text so far, one step per word, with the held-out weights as a prior (Kneser and
Steinbiss, 1993; Iyer and Ostendorf, 1996).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, product
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from firth.counts import _adaptive_kernels as kernels
from firth.counts import em
from firth.counts.ngram import restore_ngram
from firth.counts.recipe import MixtureRecipe
from firth.counts.trie import Floats, Integers, Mask
from firth.errors import ArtifactError, RecipeError
from firth.lm.language_model import LanguageModel, TokenStream
from firth.progress import note
from firth.text.layout import Layout
from firth.tokens.store import TokenStore
from firth.tokens.tokenizer import FIRST_WORD, Tokenizer

PRIOR_STRENGTHS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
DECAY_FACTORS = (1.0, 0.998, 0.995, 0.99, 0.98, 0.95, 0.9, 0.8, 0.6)  # the settings tried on held-out text
WINDOW = 50  # sentences; longer documents are split for clustering, as their topic may change
_CLUSTERED_WINDOWS = 20_000  # clusters are fitted on at most this many windows; the others are assigned to them
_BLOCK_TOKENS = 1 << 22  # tokens assigned to clusters at a time
_SVD_DIMENSIONS = 50
_UNIFORM_WEIGHT = 0.3  # of the initial weights, so that a topic rare in held-out text can still be adapted to

TrainComponent = Callable[[Mask], LanguageModel]  # trains a model on the sentences of the mask


class MixtureModel(LanguageModel):
    """A mixture of models with the same vocabulary; the first one scores the characters of unknown words."""

    carries_context: ClassVar[bool] = True

    def __init__(self, recipe: MixtureRecipe, parts: Sequence[LanguageModel], weights: Floats) -> None:
        super().__init__(recipe, parts[0].tokenizer, parts[0].layout, parts[0].unknown_word_model)
        self.parts, self.weights = list(parts), weights

    @property
    def parameters(self) -> dict[str, Any]:
        fitted = {name: getattr(self.recipe, name) for name in ("prior_strength", "decay_factor")}
        return {"weights": self.weights.tolist()} | fitted

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        arrays: dict[str, npt.NDArray[Any]] = {"weights": self.weights}
        for number, part in enumerate(self.parts):
            arrays |= em.add_prefix(f"part{number}", part.arrays())
        return arrays

    def token_logprobs(self, stream: TokenStream) -> Floats:
        probabilities = token_probabilities(self.parts, stream)
        if self.recipe.adapt:
            settings = self.recipe.prior_strength, self.recipe.decay_factor
            return adaptive_logprobs(probabilities, stream, self.weights, *settings)[0]
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.weights @ probabilities))

    def next_logprobs(self, history: Sequence[int]) -> Floats:
        weights = self.weights_after(history).tolist()
        mixed = sum(
            weight * np.exp(part.next_logprobs(history)) for weight, part in zip(weights, self.parts, strict=True)
        )
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(mixed))

    def weights_after(self, history: Sequence[int]) -> Floats:
        """The weight of each component after a text: the topic of the text."""
        if not self.recipe.adapt or not len(history):
            return self.weights
        stream = em.history_stream(history)
        probabilities = token_probabilities(self.parts, stream)[:, :-1].copy()
        text = TokenStream(stream.ids[:-1], stream.bounds, stream.starts_document)
        strength = float(self.recipe.prior_strength)
        counts = adaptive_logprobs(probabilities, text, self.weights, strength, self.recipe.decay_factor)[1]
        return np.asarray((strength * self.weights + counts) / (strength + counts.sum()))


def token_probabilities(parts: Sequence[LanguageModel], stream: TokenStream) -> Floats:
    """(component, token): the probability of each token of a stream under each component."""
    found = np.empty((len(parts), stream.ids.size))
    for row, part in zip(found, parts, strict=True):
        np.exp(part.token_logprobs(stream), out=row)
    return found


def adaptive_logprobs(
    probabilities: Floats, stream: TokenStream, weights: Floats, prior_strength: float, decay_factor: float
) -> tuple[Floats, Floats]:
    """The log-probability of each token with adaptive weights, and the expected word count of each component."""
    out, counts = np.empty(probabilities.shape[1]), np.zeros(len(probabilities))
    settings = float(prior_strength), float(decay_factor)
    kernels.mix_adaptively(probabilities, em.document_starts(stream), weights, *settings, counts, out)
    return out, counts


def train_mixture(
    recipe: MixtureRecipe,
    train_component: TrainComponent,
    store: TokenStore,
    heldout: TokenStream,
    seed: int = 0,
    *,
    inputs: npt.NDArray[Any] | None = None,
    use: Mask | None = None,
) -> MixtureModel:
    """A mixture of models of parts of the store, with weights fitted to the held-out text.

    `inputs` gives the input of each sentence of the store. No component may be trained on the held-out text: if it is
    in the store, `use` is false for its sentences.
    """
    if not heldout.ids.size:
        raise RecipeError("a mixture needs held-out text to weigh its components: give --valid.")
    several = inputs is not None and np.unique(inputs).size > 1
    if recipe.components == "inputs" and not several:
        raise RecipeError(
            "components=inputs mixes models of several inputs: give more than one, or set components=topics."
        )
    if inputs is not None and several and recipe.components != "topics":
        recipe, labels = replace(recipe, components="inputs"), inputs
    else:
        recipe, labels = replace(recipe, components="topics"), cluster_documents(store, recipe.topics, seed)
    used = np.ones(labels.size, dtype=np.bool_) if use is None else use
    masks = [used & (labels == label) for label in np.unique(labels[used])]
    if recipe.general or len(masks) == 1:
        masks = [used, *masks] if len(masks) > 1 else [used]
    parts = [train_component(mask) for mask in masks]
    probabilities = token_probabilities(parts, heldout)
    weights = em.em_weights(probabilities).weights
    if recipe.adapt:
        weights = (1 - _UNIFORM_WEIGHT) * weights + _UNIFORM_WEIGHT / weights.size
    strength, decay = _fit_adaptation(recipe, probabilities, heldout, weights)
    return MixtureModel(replace(recipe, prior_strength=strength, decay_factor=decay), parts, weights)


def _fit_adaptation(
    recipe: MixtureRecipe, probabilities: Floats, heldout: TokenStream, weights: Floats
) -> tuple[float, float]:
    """The prior strength and decay factor with the highest likelihood of the held-out text."""
    strengths = PRIOR_STRENGTHS if recipe.prior_strength == "auto" else (recipe.prior_strength,)
    decays = DECAY_FACTORS if recipe.decay_factor == "auto" else (recipe.decay_factor,)
    if not recipe.adapt:
        return strengths[-1], decays[0]
    return max(
        product(strengths, decays),
        key=lambda pair: em.floored_likelihood(adaptive_logprobs(probabilities, heldout, weights, *pair)[0]),
    )


def cluster_documents(store: TokenStore, topics: int, seed: int) -> Integers:
    """The topic of every sentence, by clustering documents (TF-IDF, SVD, k-means); the largest topic is number 0."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    documents = np.asarray(store.documents, dtype=np.int64)
    starts = [np.arange(begin, end, WINDOW) for begin, end in pairwise(documents.tolist())]
    bounds = np.concatenate([*starts, documents[-1:]])  # the first sentence of each window, and the end
    with threadpool_limits(limits=1):  # another order of summation could move a document
        labels = _cluster(store, bounds, topics, seed)
    found = int(labels.max(initial=0)) + 1
    if found < topics:
        note(f"the text falls into {found} topics, not {topics}: it has few documents or they are much alike.")
    rank = np.argsort(np.argsort(-np.bincount(labels, minlength=found), kind="stable"))
    return np.asarray(np.repeat(rank[labels], np.diff(bounds)))


def _cluster(store: TokenStore, bounds: Integers, topics: int, seed: int) -> Integers:
    from sklearn.cluster import KMeans
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfTransformer
    from sklearn.preprocessing import normalize

    windows = bounds.size - 1
    sample = np.arange(windows)
    if windows > _CLUSTERED_WINDOWS:
        sample = np.sort(np.random.default_rng(seed).choice(windows, _CLUSTERED_WINDOWS, replace=False))
    vocab_size = int(store.ids.max(initial=FIRST_WORD - 1)) + 1
    counts = _count_words(store, bounds, sample, vocab_size)
    words = _topic_words(counts)
    if topics == 1 or min(sample.size, words.size) < 3:
        return np.zeros(windows, dtype=np.int64)
    tfidf = TfidfTransformer(sublinear_tf=True).fit(counts[:, words])
    svd = TruncatedSVD(min(_SVD_DIMENSIONS, sample.size - 1, words.size - 1), random_state=seed)
    points = normalize(svd.fit_transform(tfidf.transform(counts[:, words])))
    distinct = np.unique(points.round(6), axis=0)
    means = KMeans(min(topics, len(distinct)), n_init=4, random_state=seed).fit(points)
    if sample.size == windows:
        return np.asarray(means.labels_, dtype=np.int64)
    block_of = np.asarray(store.sentences)[bounds].astype(np.int64) // _BLOCK_TOKENS
    labels = []
    for block in np.split(np.arange(windows), np.flatnonzero(np.diff(block_of[:-1])) + 1):
        counts = _count_words(store, bounds, block, vocab_size)[:, words]
        labels.append(means.predict(normalize(svd.transform(tfidf.transform(counts)))))
    return np.concatenate(labels).astype(np.int64)


def _topic_words(counts: Any) -> Integers:
    """The words in at least two documents and at most half of them."""
    document_counts = np.bincount(counts.indices, minlength=counts.shape[1])
    document_counts[:FIRST_WORD] = 0
    return np.flatnonzero((document_counts >= 2) & (document_counts <= max(2, counts.shape[0] / 2)))


def _count_words(store: TokenStore, bounds: Integers, windows: Integers, vocab_size: int) -> Any:
    """(window, word): the word counts as a sparse matrix."""
    from scipy.sparse import coo_matrix  # type: ignore[import-untyped]

    begins, ends = (np.asarray(store.sentences[bounds[windows + shift]], dtype=np.int64) for shift in (0, 1))
    lengths = ends - begins
    positions = np.repeat(begins - np.cumsum(lengths) + lengths, lengths) + np.arange(lengths.sum())
    ids = np.asarray(store.ids[positions], dtype=np.int64)
    rows = np.repeat(np.arange(windows.size), lengths)
    return coo_matrix((np.ones(ids.size), (rows, ids)), shape=(windows.size, vocab_size)).tocsr()


def restore_mixture(
    recipe: MixtureRecipe, arrays: Mapping[str, Any], tokenizer: Tokenizer, layout: Layout
) -> MixtureModel:
    """The model of the arrays of a saved artifact."""
    if "auto" in (recipe.prior_strength, recipe.decay_factor):
        raise ArtifactError("the recipe does not give the adaptation of the weights: train the model again.")
    weights = em.saved_weights(arrays, "weights", (None,))
    parts = [
        restore_ngram(recipe.base, em.strip_prefix(f"part{k}", arrays), tokenizer, layout) for k in range(weights.size)
    ]
    return MixtureModel(recipe, parts, weights)
