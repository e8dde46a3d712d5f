"""Training of the n-gram model beside a network, and the weights of both."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from firth.counts.cache import CacheModel
from firth.counts.em import em_weights
from firth.counts.mixture import token_probabilities
from firth.counts.recipe import CacheRecipe
from firth.errors import RecipeError
from firth.fit.adaptive import token_stream, train_adaptive
from firth.fit.counts import train_counts
from firth.fit.run import TrainingRun
from firth.lm.language_model import LanguageModel, TokenStream
from firth.nets.model import NetModel
from firth.nets.recipe import NetRecipe
from firth.nets.restore import Ngrams, make_model
from firth.nets.with_ngrams import NgramNet
from firth.progress import note
from firth.recipes.counts import ngram_recipe
from firth.text.corpus import Corpus
from firth.tokens.build import open_store
from firth.tokens.tokenizer import Tokenizer

_HELD_OUT = 0.02  # of the documents, where no --valid is given
_MOST = 60_000  # tokens of held-out text that the weights are fitted to
_EQUAL = np.array([0.5, 0.5])  # without held-out text


class HeldOut(NamedTuple):
    """A run on the text that is not held out, and the text to fit weights to, if there is any."""

    run: TrainingRun
    text: Corpus | None


def hold_out(run: TrainingRun) -> HeldOut:
    """The text of --valid, or a part of the corpus, which is not trained on."""
    if run.valid is not None:
        return HeldOut(run, run.valid)
    if run.corpus.part != "all":  # which cannot be divided again
        return HeldOut(run, None)
    rest, text, _ = run.corpus.parts(valid=_HELD_OUT, test=0.0)
    if next(iter(text), None) is None:
        return HeldOut(run, None)
    note(
        f"{_HELD_OUT:.0%} of the text is held out, to weigh the network and the n-gram model; --valid gives another one"
    )
    return HeldOut(replace(run, corpus=rest), text)


def kept_ngrams(start: NetModel | None, recipe: NetRecipe) -> Ngrams | None:
    """The n-gram model of a network that is trained further, unless the recipe has none any more."""
    if not isinstance(start, NgramNet) or not recipe.ngrams.order:
        return None
    if recipe.ngrams != start.recipe.ngrams:
        raise RecipeError(
            "the n-gram model of a trained model stays as it is: leave ngrams out, or set ngrams.order=0."
        )
    return Ngrams(start.ngrams, start.weights)


class TrainedNgrams(NamedTuple):
    """The n-gram model beside a network, and what it took."""

    recipe: NetRecipe
    """With the decay rate of its cache."""
    model: LanguageModel
    held_out: TokenStream | None
    seconds: float


def train_ngrams(recipe: NetRecipe, held: HeldOut, tokenizer: Tokenizer) -> TrainedNgrams:
    """The n-gram model of the text of a run, over the tokens of its network."""
    began, stream = time.monotonic(), None
    part = recipe.ngrams
    wanted = ngram_recipe(part, tokenizer.recipe)
    run = replace(held.run, tokenizer=tokenizer, valid=held.text, budget=None)
    note(f"n-gram model: {part.order}-grams of the text" + ", with a cache" * bool(part.cache))
    result = train_adaptive(wanted, run) if isinstance(wanted, CacheRecipe) else train_counts(wanted, run)
    model: LanguageModel = result.model
    if isinstance(model, CacheModel):
        part = replace(part, decay=float(model.recipe.decay or 0.0))
    if held.text is not None:
        stream = sample_documents(token_stream(open_store(held.text, tokenizer, run.threads)), _MOST)
    return TrainedNgrams(replace(recipe, ngrams=part), model, stream, time.monotonic() - began)


def sample_documents(stream: TokenStream, tokens: int) -> TokenStream:
    """Whole documents from all over a stream, with about so many tokens.

    >>> stream = TokenStream.of([[5], [6], [7], [8]], starts_document=True)
    >>> sample_documents(stream, 4).ids.tolist()
    [5, 3, 7, 3]
    """
    step = max(1, round(stream.ids.size / tokens))
    document = np.cumsum(stream.starts_document) - 1
    chosen = np.flatnonzero(document % step == 0)
    lengths = np.diff(stream.bounds)
    ids = stream.ids[np.repeat(document % step == 0, lengths)]
    bounds = np.concatenate([[0], np.cumsum(lengths[chosen])])
    return TokenStream(ids, bounds, stream.starts_document[chosen])


def weigh(network: LanguageModel, found: TrainedNgrams) -> Ngrams:
    """The n-gram model with the weights of both that maximise the likelihood of the held-out text (EM)."""
    if found.held_out is None:
        note(
            "no text is held out: the network and the n-gram model have equal weights; --valid gives one to weigh them"
        )
        return Ngrams(found.model, _EQUAL)
    weights = em_weights(token_probabilities([network, found.model], found.held_out)).weights
    note(f"weights: {weights[0]:.2f} of the network, {weights[1]:.2f} of the n-gram model")
    return Ngrams(found.model, weights)


def with_ngrams(model: NetModel, ngrams: Ngrams, recipe: NetRecipe) -> NetModel:
    """A network beside an n-gram model, as the recipe says."""
    parts = (recipe, model.network, model.tokenizer, model.layout, model.unknown_word_model, model.heads)
    return make_model(*parts, ngrams)
