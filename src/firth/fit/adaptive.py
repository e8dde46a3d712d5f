"""Training of cache, mixture, class and maximum-entropy models."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from firth.artifact.formats.brown import is_paths_file, read_paths
from firth.artifact.models import load
from firth.counts.cache import train_cache
from firth.counts.classes import class_ids_of, train_classes
from firth.counts.counting import count_selected, count_text, join_sentences
from firth.counts.maxent import MaxentModel, train_maxent
from firth.counts.mixture import train_mixture
from firth.counts.recipe import CacheRecipe, ClassRecipe, MaxentRecipe, MixtureRecipe, NgramRecipe
from firth.counts.train import train_ngram, train_unknown_word_model
from firth.errors import BudgetError, RecipeError
from firth.fit.run import TrainingResult, TrainingRun
from firth.lm.language_model import LanguageModel, TokenStream, UnknownWordModel
from firth.progress import note
from firth.tokens.build import open_store
from firth.tokens.store import TokenStore
from firth.tokens.tokenizer import BOS, EOS, FIRST_WORD, Tokenizer
from firth.vectors.brown import BrownModel

_HELD_OUT = 20  # one sentence in this many is held out, at the end of the text, where no --valid is given

Mask = npt.NDArray[np.bool_]


def train_adaptive(
    recipe: CacheRecipe | MixtureRecipe | ClassRecipe | MaxentRecipe, run: TrainingRun
) -> TrainingResult:
    """The model of the whole corpus, with its estimated parameters among the metrics."""
    if run.budget is not None:
        raise BudgetError("this model reads all its text: leave --budget out and give less text instead.")
    tokenizer, store = run.open_tokens(recipe.tokenizer)
    recipe = recipe.with_tokenizer(tokenizer.recipe)
    valid = run.open_valid(tokenizer)
    trainer = _AdaptiveTrainer(run, tokenizer, store, None if valid is None else token_stream(valid))
    match recipe:
        case CacheRecipe():
            model, parameters = trainer.cache(recipe)
        case MixtureRecipe():
            model, parameters = trainer.mixture(recipe)
        case ClassRecipe():
            model, parameters = trainer.classes(recipe)
        case MaxentRecipe():
            model, parameters = trainer.maxent(recipe)
    return TrainingResult(model, store, run.spent(store.info.tokens), {"parameters": parameters})


@dataclass(frozen=True)
class _AdaptiveTrainer:
    """Trains on a corpus; each method returns a model and its estimated parameters."""

    run: TrainingRun
    tokenizer: Tokenizer
    store: TokenStore
    heldout: TokenStream | None

    def cache(self, recipe: CacheRecipe) -> tuple[LanguageModel, dict[str, Any]]:
        """The base model of all the text, with a cache weight fitted to text that the base was not trained on."""
        base = self._ngrams(recipe.base)
        if self.heldout is not None:
            model = train_cache(recipe, base, base, self.heldout)
        elif (included := _training_sentences(self.store)).all():
            # A single sentence: nothing to fit a weight to, so the cache gets a small one.
            decay = 0.006 if isinstance(recipe.decay, str) else recipe.decay
            model = train_cache(replace(recipe, weight=recipe.weight or 0.1, decay=decay), base, base, None)
        else:
            smaller_base = self._ngrams(recipe.base, included)
            model = train_cache(recipe, smaller_base, base, token_stream(self.store, ~included))
        return model, model.parameters

    def mixture(self, recipe: MixtureRecipe) -> tuple[LanguageModel, dict[str, Any]]:
        """Models of parts of the text, with weights fitted to held-out text."""
        included, heldout = self._everything(), self.heldout
        if heldout is None:
            included = _training_sentences(self.store)
            heldout = token_stream(self.store, ~included if not included.all() else included)
        inputs, seed = self._inputs(), self.run.seed
        train_component = partial(self._ngrams, recipe.base)
        model = train_mixture(recipe, train_component, self.store, heldout, seed, inputs=inputs, use=included)
        return model, model.parameters

    def classes(self, recipe: ClassRecipe) -> tuple[LanguageModel, dict[str, Any]]:
        """An n-gram model over word classes."""
        run = self.run

        def train_class_ngrams(classes: TokenStream, names: Tokenizer) -> LanguageModel:
            text = np.insert(classes.ids, classes.bounds[:-1], BOS).astype(np.uint32)
            trie = count_text(text, len(names), recipe.base.order, run.threads)
            return train_ngram(recipe.base, trie, names, run.corpus.layout, seed=run.seed, threads=run.threads)

        classes = brown_classes(recipe.classes, self.tokenizer) if recipe.classes is not None else None
        others = (self.tokenizer, run.corpus.layout, self._unknown_words(), classes)
        model = train_classes(recipe, train_class_ngrams, token_stream(self.store), *others)
        return model, model.parameters

    def maxent(self, recipe: MaxentRecipe) -> tuple[LanguageModel, dict[str, Any]]:
        """The maximum-entropy model of all the text."""
        stream, vocabulary = token_stream(self.store), self.tokenizer.vocabulary
        weights, report = train_maxent(recipe, stream, self.heldout, len(vocabulary), self.run.threads)
        recipe = replace(recipe, prior=report["prior"])
        report["triggers"] = [[vocabulary[a], vocabulary[b], bits] for a, b, bits in report.get("triggers", [])]
        report["tried"] = {str(prior): perplexity for prior, perplexity in report["tried"].items()}
        layout, unknown_words = self.run.corpus.layout, self._unknown_words()
        return MaxentModel(recipe, self.tokenizer, layout, weights, unknown_words), report

    def _everything(self) -> Mask:
        return np.ones(self.store.info.sentences, dtype=np.bool_)

    def _unknown_words(self) -> UnknownWordModel:
        unigrams = count_selected(self.store, len(self.tokenizer), 1, self._everything())
        return train_unknown_word_model(self.tokenizer, unigrams)

    def _ngrams(self, recipe: NgramRecipe, mask: Mask | None = None) -> LanguageModel:
        """The n-gram model of the sentences of a mask, or of all."""
        mask = self._everything() if mask is None else mask
        trie, run = count_selected(self.store, len(self.tokenizer), recipe.order, mask), self.run
        return train_ngram(recipe, trie, self.tokenizer, run.corpus.layout, seed=run.seed, threads=run.threads)

    def _inputs(self) -> npt.NDArray[np.int64] | None:
        """The index of the input that each sentence came from, where there are several inputs."""
        corpus = self.run.corpus
        if len(corpus.inputs) < 2:
            return None
        parts = [replace(corpus, inputs=(one,), chosen_layout=corpus.layout) for one in corpus.inputs]
        sizes = [open_store(part, self.tokenizer, self.run.threads).info.sentences for part in parts]
        return np.repeat(np.arange(len(parts)), sizes)


def _training_sentences(store: TokenStore) -> Mask:
    """The sentences to train on where no held-out text is given: all but the last documents or sentences."""
    sentences = store.info.sentences
    wanted = sentences - sentences // _HELD_OUT
    documents = np.asarray(store.documents)
    cut = int(documents[np.searchsorted(documents, wanted, side="right") - 1])
    if cut < sentences // 2:  # one long document at the end
        cut = wanted
    if cut == sentences and sentences > 1:
        cut = sentences - 1
    note(f"no --valid was given: weights are fitted to the last {sentences - cut:,} of {sentences:,} sentences")
    return np.asarray(np.arange(sentences) < cut)


def token_stream(store: TokenStore, mask: Mask | None = None) -> TokenStream:
    """The sentences of a mask, or all of a store; `starts_document` is set at the first sentence of each document."""
    chosen = np.arange(store.info.sentences) if mask is None else np.flatnonzero(mask)
    text = join_sentences(store, chosen)
    ids = text[text != BOS]
    bounds = np.concatenate([[0], np.flatnonzero(ids == EOS) + 1])
    document = np.searchsorted(np.asarray(store.documents), chosen, side="right")
    starts_document = np.ones(chosen.size, dtype=np.bool_)
    starts_document[1:] = document[1:] != document[:-1]
    return TokenStream(ids, bounds.astype(np.int64), starts_document)


def brown_classes(source: str, tokenizer: Tokenizer) -> npt.NDArray[np.uint32] | None:
    """The class of every word, from a folder or file of Brown clusters; None if it is neither.

    Words are looked up after the clusters' own tokenizer, so that `The` has the class of `the` where that lowercases.
    """
    path = Path(source)
    if path.is_file() and is_paths_file(path):
        return class_ids_of({word: bits for bits, word, _ in read_paths(path)}, tokenizer, source)
    if not path.is_dir():
        return None
    model = load(path)
    if not isinstance(model, BrownModel):
        raise RecipeError(f"{source} holds no classes of words: give a folder of the recipe brown.")
    words = tokenizer.vocabulary[FIRST_WORD:]
    found = {}
    for word, tokens in zip(words, model.tokenizer.encode_batch(words), strict=True):
        if len(tokens.ids) == 1 and model.clusters[tokens.ids[0]] >= 0:
            found[word] = model.bits[model.clusters[tokens.ids[0]]]
    return class_ids_of(found, tokenizer, source)
