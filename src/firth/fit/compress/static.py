"""static: the hidden states of a network as static vectors, over the user's own text and vocabulary.

A vector is the mean of the hidden states of a token in its contexts, or that of the token alone where it has too few;
then the principal components of all vectors, and a weight by frequency (Arora et al. 2017). Last, the vectors are
fitted by ridge regression to the network's own vectors of the sentences.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from firth.errors import RecipeError
from firth.fit.compress.method import Compressed, CompressionJob, Method
from firth.fit.run import store_counts
from firth.nets.contextual_vectors import EncodedText, embed_texts, encode_texts, token_states, word_states
from firth.nets.model import NetModel
from firth.progress import note, progress
from firth.text.corpus import Corpus
from firth.text.scripts import script_counts
from firth.tokens.build import open_store
from firth.tokens.encoder import TextEncoder
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.tokenizer import EOS, FIRST_WORD, Tokenizer
from firth.tokens.train import train_tokenizer
from firth.vectors.model import VectorModel
from firth.vectors.recipe import StaticRecipe
from firth.vectors.text import bounds_of, training_text

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
_BATCH = 1024  # sentences that are read at once
_ALONE = 4096  # tokens that are read alone at once
_SAMPLE = 500  # sentences by which is decided what the vocabulary is
_ROUNDS = 40  # of conjugate gradients
_TINY = 1e-12


@dataclass(frozen=True, kw_only=True)
class StaticOptions:
    """The options of static."""

    vocabulary: Literal["auto", "tokens", "words"] = "auto"
    """The network's tokens, or the words of the corpus; auto: words where the text is mostly Chinese."""
    vocab_size: int = 50_000
    """words: at most so many."""
    min_count: int = 2
    """words: those that occur less often have no vector."""
    contexts: Literal["contexts", "alone"] = "contexts"
    """A vector is the mean of contexts of the corpus, or that of the token alone."""
    min_contexts: int = 5
    """Tokens with fewer contexts have the vector of the token alone, too."""
    sentences: int = 20_000
    """Sentences of the corpus that the network reads."""
    dimension: int = 256
    weighting: Literal["none", "zipf", "sif"] = "sif"
    smoothing: float = 1e-4
    """a of the weight a / (a + p) of sif."""
    fit: bool = True
    """Fit the vectors so that the mean of a sentence is the network's vector of it."""
    ridge: float = 1.0
    """How much a vector stays as it was, in sentences."""

    def __post_init__(self) -> None:
        for name, low in (
            ("vocab_size", 10),
            ("min_count", 1),
            ("min_contexts", 1),
            ("sentences", 1),
            ("dimension", 1),
        ):
            if getattr(self, name) < low:
                raise RecipeError(f"{name}={getattr(self, name)} must be {low} or more.")
        if not self.ridge > 0:
            raise RecipeError(f"ridge={self.ridge} must be above 0, such as 1.")
        if not 0 < self.smoothing <= 1:
            raise RecipeError(f"smoothing={self.smoothing} must be above 0 and at most 1.")


class Static(Method):
    """A contextual encoder into static vectors."""

    name = "static"
    options: ClassVar[type] = StaticOptions
    only_embeds: ClassVar[bool] = True

    def refusal(self, job: CompressionJob) -> str:
        if not isinstance(job.model, NetModel) or job.model.recipe.decoder is not None:
            return (
                f"static makes vectors of the hidden states of an encoder, which a {type(job.model).__name__} has "
                "not: choose --method quantise."
            )
        if job.corpus is None:
            return "static reads the contexts of tokens in a text: give one with --corpus."
        return ""

    def run(self, job: CompressionJob, options: StaticOptions) -> Compressed:
        model, corpus = job.model, job.corpus
        assert corpus is not None
        sentences = sample_sentences(corpus, options.sentences, job.seed)
        tokenizer, kind = _vocabulary(model, corpus, sentences, options, job.threads)
        store = open_store(corpus, tokenizer, job.threads)
        counts = training_text(store, tokenizer).counts
        pooling = job.pooling or "mean"
        found = context_means(model, tokenizer, kind, sentences, options, pooling)
        vectors = principal_components(found, min(options.dimension, found.shape[1]))
        weighted = vectors.rows * token_weights(counts, options)[:, None]
        notes = [_describe(kind, found, counts, len(sentences))]
        if options.fit:
            wanted = (embed_texts(model, sentences, "last", pooling) - vectors.mean) @ vectors.directions.T
            encoder = TextEncoder(tokenizer)
            ids = encoder.encode([" ".join(one.replace("\0", " ").splitlines()) for one in sentences])
            weighted = fit_vectors(weighted, ids.ids.astype(np.int64), bounds_of(ids.lengths), wanted, options.ridge)
        notes.append("a text is the mean of the vectors of its tokens, whatever their order")
        recipe = StaticRecipe(
            tokenizer=tokenizer.recipe,
            dimension=weighted.shape[1],
            vocabulary=kind,
            contexts=options.contexts,
            weighting=options.weighting,
            smoothing=options.smoothing,
            fitted=options.fit,
        )
        small = VectorModel(recipe, tokenizer, model.layout, weighted.astype(np.float32), counts=counts)
        described = corpus.describe() | store_counts(store)
        return Compressed(
            model=small, name="static", notes=notes, corpus=described, spent={"tokens": int(counts.sum())}
        )


def sample_sentences(corpus: Corpus, count: int, seed: int) -> list[str]:
    """Sentences drawn from all over a text, each once (reservoir sampling)."""
    rng, seen, number = np.random.default_rng(seed), set[str](), 0
    kept: list[str] = []
    for sentence in corpus.sentences():
        if sentence in seen:
            continue
        seen.add(sentence)
        if len(kept) < count:
            kept.append(sentence)
        elif (at := int(rng.integers(0, number + 1))) < count:
            kept[at] = sentence
        number += 1
    return kept


def _vocabulary(
    model: NetModel, corpus: Corpus, sentences: Sequence[str], options: StaticOptions, threads: int | None
) -> tuple[Tokenizer, Literal["tokens", "words"]]:
    """The tokens that get vectors: the network's, or words of the text."""
    kind = options.vocabulary
    if kind == "auto":
        scripts = script_counts("\n".join(sentences[:_SAMPLE]))
        is_chinese = 2 * scripts.get("han", 0) > scripts.get("latin", 0)
        kind = "words" if is_chinese else "tokens"
        note(f"chosen: vocabulary={kind}")
    if kind == "tokens":
        return model.tokenizer, "tokens"
    recipe = TokenizerRecipe(
        model="words",
        vocab_size=options.vocab_size,
        min_count=options.min_count,
        lowercase=model.tokenizer.recipe.lowercase,
    )
    return train_tokenizer(recipe, corpus, threads), "words"


def context_means(
    model: NetModel,
    tokenizer: Tokenizer,
    kind: Literal["tokens", "words"],
    sentences: Sequence[str],
    options: StaticOptions,
    pooling: str,
) -> Floats:
    """(vocabulary, width): the mean state of each token in its contexts, and alone where it has too few.

    A token with n < `min_contexts` contexts has the mean of these and of `min_contexts` - n times its state alone.
    """
    contexts = _contexts(model, tokenizer, kind, sentences) if options.contexts == "contexts" else iter(())
    sums: Doubles | None = None
    counts = np.zeros(len(tokenizer), dtype=np.int64)
    with progress("reading contexts", len(sentences), "sentences") as advance:
        for ids, states, done in contexts:
            if sums is None:
                sums = np.zeros((len(tokenizer), states.shape[1]))
            np.add.at(sums, ids, states)
            counts += np.bincount(ids, minlength=len(tokenizer))
            advance(done)
    few = np.flatnonzero(counts[FIRST_WORD:] < options.min_contexts) + FIRST_WORD
    alone = _alone(model, tokenizer, kind, few, pooling)
    if sums is None:
        sums = np.zeros((len(tokenizer), alone.shape[1]))
    missing = options.min_contexts - counts[few]
    sums[few] += alone * missing[:, None]
    counts[few] += missing
    counts[:FIRST_WORD], sums[:FIRST_WORD] = 1, 0
    return (sums / counts[:, None]).astype(np.float32)


class _States(NamedTuple):
    ids: npt.NDArray[np.int64]
    states: Floats
    sentences: int


def _contexts(
    model: NetModel, tokenizer: Tokenizer, kind: Literal["tokens", "words"], sentences: Sequence[str]
) -> Iterator[_States]:
    """Ids and their states in sentences, some sentences at a time."""
    encoder, stream = TextEncoder(tokenizer), iter(sentences)
    while part := list(islice(stream, _BATCH)):
        if kind == "tokens":
            texts = encode_texts(model, part)
            ids = np.concatenate([one.ids[one.is_own] for one in texts])
            states = np.concatenate(token_states(model, texts, "last"))
        else:
            found = word_states(model, part, "last")
            words = [span.word for spans, _ in found for span in spans]
            encoded = encoder.encode(words)
            is_single = encoded.lengths == 1
            ids = np.full(len(words), -1, dtype=np.int64)
            ids[is_single] = encoded.ids[(np.cumsum(encoded.lengths) - 1)[is_single]]
            states = np.concatenate([one for _, one in found])
        known = ids >= FIRST_WORD
        yield _States(ids[known], states[known], len(part))


def _alone(
    model: NetModel, tokenizer: Tokenizer, kind: Literal["tokens", "words"], rows: npt.NDArray[Any], pooling: str
) -> Floats:
    """(rows, width): the vectors of single tokens or words."""
    parts = []
    with progress("reading tokens alone", len(rows), "tokens") as advance:
        for begin in range(0, max(len(rows), 1), _ALONE):
            some = rows[begin : begin + _ALONE].tolist()
            if kind == "words":
                parts.append(embed_texts(model, [tokenizer.vocabulary[row] for row in some], "last", pooling))
            else:
                own = np.array([False, True, False])
                texts = [EncodedText(np.array([model.start_token, row, EOS]), own) for row in some]
                states = token_states(model, texts, "last")
                parts.append(np.concatenate(states) if states else embed_texts(model, [], "last", "mean"))
            advance(len(some))
    return np.concatenate(parts)


class Components(NamedTuple):
    """Rows on the principal components of all of them."""

    rows: Floats
    mean: Floats
    directions: Floats
    """(dimension, width)."""


def principal_components(vectors: Floats, dimension: int) -> Components:
    """The vectors of words, which are centred, on their first principal components; special tokens stay zero.

    >>> rows = np.zeros((7, 2), dtype=np.float32)
    >>> rows[5:] = [[1, 1], [3, 1]]
    >>> principal_components(rows, 1).rows[5:].tolist()
    [[-1.0], [1.0]]
    """
    words = vectors[FIRST_WORD:].astype(np.float64)
    mean = words.mean(axis=0)
    _, directions = np.linalg.eigh((words - mean).T @ (words - mean))
    chosen = directions[:, ::-1][:, :dimension].T
    signs = np.sign(chosen[np.arange(len(chosen)), np.abs(chosen).argmax(axis=1)])  # the same on every machine
    chosen = chosen * signs[:, None]
    rows = np.zeros((len(vectors), len(chosen)))
    rows[FIRST_WORD:] = (words - mean) @ chosen.T
    return Components(rows.astype(np.float32), mean.astype(np.float32), chosen.astype(np.float32))


def token_weights(counts: npt.NDArray[np.int64], options: StaticOptions) -> Floats:
    """The weight of each token in a text; those that do not occur are as rare as those that occur once.

    >>> token_weights(np.array([0, 0, 0, 0, 0, 3, 1]), StaticOptions(weighting="sif", smoothing=0.25)).tolist()[5:]
    [0.25, 0.5]
    """
    if options.weighting == "none":
        return np.ones(len(counts), dtype=np.float32)
    if options.weighting == "zipf":
        order = np.argsort(-counts[FIRST_WORD:], kind="stable")
        weights = np.zeros(len(counts), dtype=np.float32)
        weights[FIRST_WORD + order] = np.log1p(np.arange(1, len(order) + 1))
        return weights
    frequencies = np.maximum(counts, 1) / max(int(counts[FIRST_WORD:].sum()), 1)
    return np.asarray(options.smoothing / (options.smoothing + frequencies), dtype=np.float32)


def fit_vectors(
    vectors: Floats,
    ids: npt.NDArray[np.int64],
    bounds: npt.NDArray[np.int64],
    wanted: npt.NDArray[Any],
    ridge: float,
) -> Floats:
    """The vectors V with the least |s A V - Y|^2 + ridge |V - V0|^2: A V are the means of sentences, Y are wanted.

    The factor s is the one with which the first means fit best. V - V0 is found by conjugate gradients, and is zero
    for tokens that no sentence has.
    """
    from scipy.sparse import csr_matrix  # type: ignore[import-untyped]

    known = ids >= FIRST_WORD
    sentence = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))[known]
    counts = np.maximum(np.bincount(sentence, minlength=len(bounds) - 1), 1)
    shape = (len(bounds) - 1, len(vectors))
    means = csr_matrix((1.0 / counts[sentence], (sentence, ids[known])), shape=shape, dtype=np.float64)
    start = vectors.astype(np.float64)
    first = means @ start
    scale = float((first * wanted).sum() / max(float((first * first).sum()), _TINY))
    matrix = means * scale
    transposed = matrix.T.tocsr()
    penalty = ridge * scale * scale * float(np.mean(1.0 / counts)) ** 2

    def normal(x: Doubles) -> Doubles:
        return np.asarray(transposed @ (matrix @ x) + penalty * x)

    change = np.zeros_like(start)
    residual = np.asarray(transposed @ (wanted - matrix @ start))
    direction, squares = residual.copy(), (residual * residual).sum(axis=0)
    for _ in range(_ROUNDS):
        moved = normal(direction)
        step = squares / np.maximum((direction * moved).sum(axis=0), _TINY)
        change += step * direction
        residual -= step * moved
        before, squares = squares, (residual * residual).sum(axis=0)
        direction = residual + squares / np.maximum(before, _TINY) * direction
    return (start + change).astype(np.float32)


def _describe(kind: str, vectors: Floats, counts: npt.NDArray[np.int64], sentences: int) -> str:
    used = int(np.count_nonzero(counts))
    return (
        f"{len(vectors):,} {kind}, of which {used:,} occur in the text; the network read {sentences:,} sentences of it"
    )
