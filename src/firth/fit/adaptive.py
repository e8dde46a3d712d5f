"""Training the count models that wrap others: cache, mixture and class models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from firth.artifact.formats.brown import is_paths_file, read_paths
from firth.artifact.models import load
from firth.counts.cache import CacheModel, CacheRecipe, train_cache
from firth.counts.classes import ClassModel, ClassRecipe, classes_of, train_classes
from firth.counts.counting import count_chosen, count_text, lay_out
from firth.counts.maxent import MaxentModel, MaxentRecipe, train_maxent
from firth.counts.mixture import MixtureModel, MixtureRecipe, train_mixture
from firth.counts.recipe import NgramRecipe
from firth.counts.train import learn_spelling, train_ngram
from firth.errors import RecipeError
from firth.progress import note
from firth.tokens.build import open_store
from firth.tokens.language import FIRST_WORD, LanguageModel, Stream
from firth.tokens.store import TokenStore
from firth.tokens.tokenizer import BOS, EOS, Tokenizer
from firth.vectors.brown import BrownModel

if TYPE_CHECKING:
    from firth.fit.train import Run

_HELD_OUT = 20  # one sentence in so many, at the end of the text, where no --valid is given

Mask = npt.NDArray[np.bool_]


def train_with_cache(recipe: CacheRecipe, run: Run, tokenizer: Tokenizer, store: TokenStore) -> CacheModel:
    """The base of all the text, with a cache weighed on text that another base has not seen."""
    recipe = recipe.with_tokenizer(tokenizer.recipe)
    everything = np.ones(store.facts.sentences, dtype=np.bool_)
    base = train_part(recipe.base, run, tokenizer, store, everything)
    heldout = valid_stream(run, tokenizer)
    if heldout is not None:
        return train_cache(recipe, base, base, heldout)
    kept = kept_sentences(store)
    if kept.all():  # a single sentence: nothing to weigh on, so the cache is not trusted
        return train_cache(replace(recipe, weight=recipe.weight or 0.1, decay=_number(recipe.decay)), base, base, None)
    blind = train_part(recipe.base, run, tokenizer, store, kept)
    return train_cache(recipe, blind, base, stream_of(store, ~kept))


def train_mixed(recipe: MixtureRecipe, run: Run, tokenizer: Tokenizer, store: TokenStore) -> MixtureModel:
    """Models of parts of the text, weighed on held-out text."""
    recipe = recipe.with_tokenizer(tokenizer.recipe)
    heldout = valid_stream(run, tokenizer)
    kept = np.ones(store.facts.sentences, dtype=np.bool_)
    if heldout is None:
        kept = kept_sentences(store)
        heldout = stream_of(store, ~kept if not kept.all() else kept)

    def part(mask: Mask) -> LanguageModel:
        return train_part(recipe.base, run, tokenizer, store, mask)

    return train_mixture(recipe, part, store, heldout, run.seed, inputs=inputs_of(run, tokenizer), use=kept)


def train_over_classes(recipe: ClassRecipe, run: Run, tokenizer: Tokenizer, store: TokenStore) -> ClassModel:
    """An n-gram model over classes of words."""
    recipe = recipe.with_tokenizer(tokenizer.recipe)
    stream = stream_of(store, np.ones(store.facts.sentences, dtype=np.bool_))

    def inner(classes: Stream, names: Tokenizer) -> LanguageModel:
        text = np.insert(classes.ids, classes.bounds[:-1], BOS).astype(np.uint32)
        trie = count_text(text, len(names), recipe.base.order, run.threads)
        return train_ngram(recipe.base, trie, names, run.corpus.layout, seed=run.seed, threads=run.threads)

    classes = brown_classes(recipe.classes, tokenizer) if recipe.classes is not None else None
    unigrams = count_text(lay_out(store, np.arange(store.facts.sentences)), len(tokenizer), 1)
    spelling = learn_spelling(tokenizer, unigrams)
    return train_classes(recipe, inner, stream, tokenizer, run.corpus.layout, spelling, classes)


def brown_classes(source: str, tokenizer: Tokenizer) -> npt.NDArray[np.uint32] | None:
    """The class of every word, from a folder or file of Brown clusters; None if it is neither.

    Words are looked up as the clusters' own tokenizer spells them, so that `The` is in the class of `the` where that
    has folded the letters.
    """
    path = Path(source)
    if path.is_file() and is_paths_file(path):
        return classes_of({word: bits for bits, word, _ in read_paths(path)}, tokenizer, source)
    if not path.is_dir():
        return None
    model = load(path)
    if not isinstance(model, BrownModel):
        raise RecipeError(f"{source} holds no classes of words: give a folder that firth train brown wrote.")
    words = tokenizer.vocabulary[FIRST_WORD:]
    found = {}
    for word, tokens in zip(words, model.tokenizer.encode_batch(words), strict=True):
        if len(tokens.ids) == 1 and model.clusters[tokens.ids[0]] >= 0:
            found[word] = model.bits[model.clusters[tokens.ids[0]]]
    return classes_of(found, tokenizer, source)


def train_entropy(
    recipe: MaxentRecipe, run: Run, tokenizer: Tokenizer, store: TokenStore
) -> tuple[MaxentModel, dict[str, Any]]:
    """The maximum-entropy model of all the text, and what was found on the way."""
    recipe = recipe.with_tokenizer(tokenizer.recipe)
    everything = np.ones(store.facts.sentences, dtype=np.bool_)
    heldout = valid_stream(run, tokenizer)
    weights, report = train_maxent(recipe, stream_of(store, everything), heldout, len(tokenizer), run.threads)
    recipe = replace(recipe, prior=report["prior"])
    spelling = learn_spelling(tokenizer, count_chosen(store, len(tokenizer), 1, everything))
    words = tokenizer.vocabulary
    report["triggers"] = [[words[a], words[b], bits] for a, b, bits in report.get("triggers", [])]
    report["tried"] = {str(prior): perplexity for prior, perplexity in report["tried"].items()}
    return MaxentModel(recipe, tokenizer, run.corpus.layout, weights, spelling), report


def train_part(recipe: NgramRecipe, run: Run, tokenizer: Tokenizer, store: TokenStore, mask: Mask) -> LanguageModel:
    """The n-gram model of some of the store's sentences."""
    trie = count_chosen(store, len(tokenizer), recipe.order, mask)
    return train_ngram(recipe, trie, tokenizer, run.corpus.layout, seed=run.seed, threads=run.threads)


def valid_stream(run: Run, tokenizer: Tokenizer) -> Stream | None:
    """The held-out text that was given."""
    if run.valid is None:
        return None
    store = open_store(run.valid, tokenizer, run.threads)
    return stream_of(store, np.ones(store.facts.sentences, dtype=np.bool_))


def kept_sentences(store: TokenStore) -> Mask:
    """Which sentences are trained on where no held-out text is given: all but the last documents or sentences."""
    sentences = store.facts.sentences
    wanted = sentences - sentences // _HELD_OUT
    documents = np.asarray(store.documents)
    cut = int(documents[np.searchsorted(documents, wanted, side="right") - 1])
    if cut < sentences // 2:  # one long document at the end
        cut = wanted
    if cut == sentences and sentences > 1:
        cut = sentences - 1
    note(f"no --valid was given: weights are fitted to the last {sentences - cut:,} of {sentences:,} sentences")
    return np.asarray(np.arange(sentences) < cut)


def stream_of(store: TokenStore, mask: Mask) -> Stream:
    """Sentences of a store as a stream; each document is fresh."""
    chosen = np.flatnonzero(mask)
    text = lay_out(store, chosen)
    ids = text[text != BOS]
    bounds = np.concatenate([[0], np.flatnonzero(ids == EOS) + 1])
    document = np.searchsorted(np.asarray(store.documents), chosen, side="right")
    fresh = np.ones(chosen.size, dtype=np.bool_)
    fresh[1:] = document[1:] != document[:-1]
    return Stream(ids, bounds.astype(np.int64), fresh)


def inputs_of(run: Run, tokenizer: Tokenizer) -> npt.NDArray[np.int64] | None:
    """Which input each sentence of the corpus came from, where there are several."""
    corpus = run.corpus
    if len(corpus.inputs) < 2:
        return None
    parts = [replace(corpus, inputs=(one,), chosen_layout=corpus.layout) for one in corpus.inputs]
    sizes = [open_store(part, tokenizer, run.threads).facts.sentences for part in parts]
    return np.repeat(np.arange(len(parts)), sizes)


def _number(decay: float | str | None) -> float | None:
    return 0.006 if isinstance(decay, str) else decay
