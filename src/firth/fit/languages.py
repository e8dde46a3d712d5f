"""Batches of texts in several languages and of translations (Lample and Conneau 2019), mixed by p^alpha."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from firth.errors import CorpusError, RecipeError
from firth.fit._translation_kernels import END_ID, fill_translations
from firth.fit.batches import Batches
from firth.fit.mixture import MixtureSource, power_weights
from firth.fit.rows import BatchRows, BestFitRows, pair_bounds
from firth.nets.batch import Batch
from firth.nets.embedding import LANGUAGES
from firth.nets.packing import BatchArrays
from firth.nets.recipe import NetRecipe
from firth.objectives.heads.head import ObjectiveHead
from firth.objectives.sequences import Integers
from firth.progress import note
from firth.text.corpus import Corpus
from firth.text.multilingual import MultilingualCorpus
from firth.tokens.build import open_store
from firth.tokens.store import TokenStore
from firth.tokens.tokenizer import EOS, Tokenizer

assert EOS == END_ID
_SEPARATORS = 4  # special tokens of a pair


def with_languages(recipe: NetRecipe, corpus: Corpus, *, further: bool = False) -> NetRecipe:
    """The recipe with the languages of the corpus; in further training they must be among those of the recipe."""
    if not recipe.embedding.languages:
        return recipe
    if not isinstance(corpus, MultilingualCorpus):
        raise CorpusError("the language of the text is not said: write it before the file, such as en=FILE.")
    found = corpus.languages
    if recipe.languages:
        require_languages(found, recipe)
    elif len(found) < 2:
        raise CorpusError(
            f"{found[0]} is the only language of the text: name texts of two languages or more, such as en=FILE "
            "zh=FILE, or train bert."
        )
    else:
        recipe = replace(recipe, languages=found, embedding=replace(recipe.embedding, languages=len(found)))
    translated = [one for one in recipe.objectives if one.needs_translations]
    if translated and not corpus.translations:
        others = tuple(one for one in recipe.objectives if one not in translated)
        names = "+".join(one.name for one in others)
        if not further or not others:
            remedy = f", or set objectives={names}" if others else ""
            raise CorpusError(
                f"{translated[0].name} is trained on translations, and there are none: name a file of pairs whose "
                f"header has two languages{remedy}."
            )
        note(f"trained by {names} alone: there are no translations for {translated[0].name}")
        recipe = replace(recipe, objectives=others)
    return recipe


def require_languages(languages: Sequence[str], recipe: NetRecipe) -> None:
    """Raise `CorpusError` unless a network knows these languages."""
    if unknown := [one for one in languages if one not in recipe.languages]:
        raise CorpusError(
            f"the text is in {unknown[0]}, which the model does not know: it has {', '.join(recipe.languages)}."
        )


class LanguageBatches(Batches):
    """Batches of a text in one language, for some of the objectives."""

    def __init__(
        self,
        recipe: NetRecipe,
        store: TokenStore,
        objectives: Sequence[ObjectiveHead],
        seed: int,
        languages: Sequence[int],
    ) -> None:
        super().__init__(recipe, store, objectives, seed)
        self.languages = torch.tensor(languages)
        self._names = frozenset(objective.name for objective in objectives)

    def _batch(self, rows: BatchRows, chosen: Integers, seed: int, variant: int) -> Batch:
        batch = super()._batch(rows, chosen, seed, variant)
        # Rows of translations have said which side each token is of.
        sides = batch.side_ids.get(LANGUAGES, torch.zeros_like(batch.ids))
        batch.side_ids[LANGUAGES] = self.languages[sides]
        batch.objectives = self._names
        return batch


class TranslationBatches(LanguageBatches):
    """Batches of translations; a pair longer than a row is left out."""

    @property
    def split(self) -> int:
        """None: a long pair is left out, not split."""
        return 0

    @property
    def left_out(self) -> int:
        """The number of pairs longer than a row."""
        _, lengths = find_pairs(self.store)
        return int(np.count_nonzero(lengths > self.recipe.sequence.length))

    def _build_rows(self, seed: int, variant: int, length: int) -> BatchRows:
        return TranslationRows(self.store, length)


def find_pairs(store: TokenStore) -> tuple[Integers, Integers]:
    """The `pair_bounds` of a store, and the length of each pair as a sequence."""
    bounds = pair_bounds(store)
    return bounds, bounds[:, 2] - bounds[:, 0] + _SEPARATORS


class TranslationRows(BestFitRows):
    """Rows of packed pairs `EOS a EOS EOS b EOS`; the positions of b begin at 0 again."""

    def __init__(self, store: TokenStore, length: int) -> None:
        bounds, lengths = find_pairs(store)
        fits = lengths <= length
        if not fits.any():
            raise CorpusError(
                f"no pair fits into {length} tokens: set sequence.length={int(lengths.min(initial=length)) + 1}, say."
            )
        super().__init__(store, lengths[fits], length)
        self._bounds = bounds[fits]

    def batch(self, rows: Integers) -> Batch:
        """The batch of some rows; its language ids are 0 for the first side and 1 for the second."""
        bounds, members, used = self._packed
        arrays = BatchArrays(rows.size, int(used[rows].max()))
        text = fill_translations(
            self.store.ids, self.store.word_starts, self._bounds[:, :2], self._bounds[:, 1:], bounds, members, rows,
            arrays.ids, arrays.word_starts, arrays.sequence_ids, arrays.position_ids, arrays.segments,
        )  # fmt: skip
        batch = arrays.batch(rows, text)
        # Positions are given even if each row is one pair.
        batch.position_ids = torch.from_numpy(arrays.position_ids)
        batch.side_ids[LANGUAGES] = torch.from_numpy(arrays.segments)
        return batch


def language_mixture(
    recipe: NetRecipe,
    corpus: MultilingualCorpus,
    tokenizer: Tokenizer,
    heads: Sequence[ObjectiveHead],
    seed: int,
    threads: int | None,
) -> MixtureSource:
    """Steps of texts of one language, and as many of translations if an objective is trained on them.

    Among texts, and among translations, those of p of all sentences have a share proportional to p^alpha.
    """
    translating = [head for head in heads if head.objective.needs_translations]
    others = [head for head in heads if head not in translating]
    require_languages(corpus.languages, recipe)
    number = recipe.languages.index
    sources: list[LanguageBatches] = []
    weights: list[float] = []
    if others:
        texts = corpus.monolingual(with_sides=not translating)
        stores = [open_store(text.corpus, tokenizer, threads) for text in texts]
        for text, store in zip(texts, stores, strict=True):
            sources.append(LanguageBatches(recipe, store, others, seed, [number(text.languages[0])]))
        weights += power_weights([store.info.sentences for store in stores], recipe.sampling.batches)
    if translating and corpus.translations:
        stores = [open_store(text.corpus, tokenizer, threads) for text in corpus.translations]
        for text, store in zip(corpus.translations, stores, strict=True):
            pairs = TranslationBatches(recipe, store, translating, seed, [number(one) for one in text.languages])
            if pairs.left_out:
                note(
                    f"{pairs.left_out:,} pairs of {'-'.join(text.languages)} are longer than {recipe.sequence.length} "
                    "tokens and were left out"
                )
            sources.append(pairs)
        weights += power_weights([store.info.documents for store in stores], recipe.sampling.batches)
    if not sources:
        raise RecipeError("the recipe has no objective for this text: set objectives=mlm, say.")
    return MixtureSource(sources, weights, seed)
