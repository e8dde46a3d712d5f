"""Batches of a text, with random access.

A batch is a function of the seed, the epoch and the position in it. So training can be resumed at any step at no cost,
and prefetching threads share no mutable state.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from firth.errors import CorpusError, RecipeError
from firth.fit._cutting_kernels import count_longer
from firth.fit.reuse import ContiguousPairRows, reused_tokens
from firth.fit.rows import (
    PAIRS,
    BatchRows,
    ContiguousRows,
    PackedRows,
    StreamRows,
    bounds_of,
    cut_sequences,
    stream_size,
    text_capacity,
)
from firth.memory import drop_page_cache
from firth.nets.batch import Batch
from firth.nets.combination import CONTIGUOUS
from firth.nets.network import Vocabulary
from firth.nets.recipe import NetRecipe
from firth.nets.special_tokens import start_token
from firth.objectives.heads.head import ObjectiveHead
from firth.objectives.sequences import Integers
from firth.tokens.store import TokenStore
from firth.tokens.tokenizer import EOS, Tokenizer

_MIN_LENGTH = 16  # of rows in the short phase
_CHUNK = 1 << 20  # ids counted at a time
_ORDER, _LAYOUT, _PAIR, _CORRUPT = range(4)  # purposes of random numbers


class Cursor(NamedTuple):
    """A position in training: the epoch and the next row in it."""

    epoch: int = 0
    row: int = 0


class Batches:
    """The batches of a text for a recipe. The same cursor always gives the same batches.

    >>> from firth.recipes.nets import gpt, resize
    >>> from firth.text.corpus import read_corpus
    >>> from firth.tokens.build import open_tokens
    >>> from firth.tokens.recipe import TokenizerRecipe
    >>> corpus = read_corpus([["the cat sat", "the dog ran"]])
    >>> _, store = open_tokens(TokenizerRecipe(model="words", min_count=1), corpus)
    >>> batches, after = Batches(resize(gpt(), "tiny"), store, [], seed=0).step(Cursor())
    >>> [batch.shape for batch in batches], batches[0].tokens, after
    ([(1, 9)], 6, Cursor(epoch=1, row=0))
    """

    def __init__(
        self,
        recipe: NetRecipe,
        store: TokenStore,
        objectives: Sequence[ObjectiveHead],
        seed: int,
        progress: float = 1.0,
    ) -> None:
        """`progress` is the fraction of the training at which the stage begins that the batches are for."""
        if len(store) == 0:
            raise CorpusError("there is no token in the text to train on: check it with firth check.")
        self.recipe, self.store, self.objectives, self.seed = recipe, store, tuple(objectives), seed
        self.progress = progress
        self._copies = max((objective.copies for objective in recipe.objectives), default=1)
        form, length = recipe.sequence.format, recipe.sequence.length
        reused = reused_tokens(recipe.sequence, length) if form == "contiguous-pair" else 0
        if text_capacity(form, length - reused, self._copies) < 2:
            raise RecipeError(f"sequence.length={length} leaves no space for text: set it to 128, say.")
        self._rows = lru_cache(maxsize=3)(self._build_rows)
        self._order = lru_cache(maxsize=2)(self._shuffle)

    @property
    def tokens(self) -> int:
        """Tokens of text in an epoch."""
        return len(self.store)

    @property
    def split(self) -> int:
        """The number of sentences longer than a sequence, which are split."""
        form, length = self.recipe.sequence.format, self.recipe.sequence.length
        capacity = text_capacity(form, length, self._copies)
        limit = capacity // 2 if form == "sentence-pair" else capacity
        return int(count_longer(bounds_of(self.store)[0], limit))

    @property
    def left_out(self) -> int:
        """The number of pairs that do not fit."""
        return 0

    def remarks(self) -> list[str]:
        """What the user should know about the text."""
        return []

    def metrics(self) -> dict[str, int]:
        """Counts of what is not trained on, for the manifest."""
        return {}

    @property
    def fill(self) -> float:
        """The fraction of positions in the first epoch that are not padding."""
        return self._rows(self.seed, 0, self.recipe.sequence.length).fill

    @property
    def rows(self) -> int:
        """BatchRows of a step."""
        length = self.recipe.sequence.length
        most = self.recipe.learning.batch // length
        if self.recipe.sequence.format in CONTIGUOUS:  # each of the parallel streams has a row at least
            most = min(most, stream_size(self.store) // length)
        return max(1, most)

    def steps(self, epoch: int = 0) -> int:
        """The number of steps of an epoch; it may differ a little between epochs."""
        return -(-self._rows(self.seed, self._variant(epoch), self.recipe.sequence.length).count // self.rows)

    def step(self, cursor: Cursor, length: int | None = None) -> tuple[list[Batch], Cursor]:
        """The batches of the step at a cursor, and the cursor of the next step.

        A step has `learning.batch` tokens in `learning.grad_accumulation` parts; the last of an epoch may have fewer.
        With a smaller `length` it has more, shorter rows. The cursor still counts rows of the recipe's length, so that
        an epoch has the same number of steps.
        """
        variant = self._variant(cursor.epoch)
        rows = self._rows(self.seed, variant, self.recipe.sequence.length)
        begin, end, total = cursor.row, min(cursor.row + self.rows, rows.count), rows.count
        if length is not None and length < self.recipe.sequence.length:
            rows = self._rows(self.seed, variant, min(max(length, _MIN_LENGTH), self.recipe.sequence.length))
            begin, end = (row * rows.count // total for row in (begin, end))
            end = max(end, begin + 1)
        chosen = self._order(self.seed, cursor.epoch, rows.count)[begin:end]
        parts = np.array_split(chosen, min(self.recipe.learning.grad_accumulation, chosen.size))
        batches = [self._batch(rows, part, self.seed, variant) for part in parts]
        after = Cursor(cursor.epoch, cursor.row + self.rows)
        return batches, after if after.row < total else Cursor(cursor.epoch + 1, 0)

    def fixed(self, tokens: int) -> list[Batch]:
        """Validation batches of about `tokens` tokens, or of the whole text; they do not depend on the seed."""
        rows = self._rows(0, 0, self.recipe.sequence.length)
        wanted = min(rows.count, max(1, -(-tokens * rows.count // self.tokens)))
        chosen = self._order(0, 0, rows.count)[:wanted]
        size = max(1, self.rows // self.recipe.learning.grad_accumulation)
        return [self._batch(rows, chosen[begin : begin + size], 0, 0) for begin in range(0, wanted, size)]

    def _variant(self, epoch: int) -> int:
        """The variant of layout and masking of an epoch; epochs with the same one differ in the order of rows."""
        limits = [objective.variants for objective in self.recipe.objectives if objective.variants]
        return epoch % min(limits) if limits else epoch

    def _build_rows(self, seed: int, variant: int, length: int) -> BatchRows:
        form, bidirectional = self.recipe.sequence.format, self.recipe.visibility == "bidirectional"
        key = int(self.layout_rng(seed, variant).integers(2**62))
        if form == "stream":
            return StreamRows(self.store, length, 0 if bidirectional else 1, key, self.recipe.columns)
        if form == "contiguous":
            return ContiguousRows(self.store, length, 0 if bidirectional else 1, key, self.rows)
        if form == "contiguous-pair":
            return ContiguousPairRows(self.store, self.recipe.sequence, length, key, self.rows)
        sequences = cut_sequences(self.store, form, text_capacity(form, length, self._copies), key)
        for number, objective in enumerate(self.objectives):
            sequences = objective.pair(sequences, _random(seed, variant, _PAIR, number))
        segments = form in PAIRS and self.recipe.segments > 1
        rows = PackedRows(self.store, sequences, length, start_token(self.recipe), form == "full-sentences", segments)
        rows.marks_sentences = any(objective.needs_sentences for objective in self.recipe.objectives)
        rows.columns = self.recipe.columns
        return rows

    def layout_rng(self, seed: int, variant: int) -> np.random.Generator:
        """The random numbers of the layout of an epoch."""
        return _random(seed, variant, _LAYOUT)

    def _shuffle(self, seed: int, epoch: int, count: int) -> Integers:
        if self.recipe.sequence.format in CONTIGUOUS:
            return np.arange(count)
        return _random(seed, epoch, _ORDER).permutation(count)

    def _batch(self, rows: BatchRows, chosen: Integers, seed: int, variant: int) -> Batch:
        batch = rows.batch(chosen)
        batch.tokens //= self._copies
        batch.progress = self.progress
        for number, objective in enumerate(self.objectives):
            objective.corrupt(batch, _random(seed, variant, _CORRUPT, number))
        return batch


def vocabulary_of(tokenizer: Tokenizer, store: TokenStore) -> Vocabulary:
    """The tokens of a tokenizer with their counts in a store; EOS occurs once a sentence."""
    counts = np.zeros(len(tokenizer), dtype=np.int64)
    for begin in range(0, len(store), _CHUNK):
        counts += np.bincount(store.ids[begin : begin + _CHUNK], minlength=len(tokenizer))
        drop_page_cache(store.ids)
    counts[EOS] = store.info.sentences
    return Vocabulary(tokenizer.vocabulary, counts)


def _random(seed: int, *numbers: int) -> np.random.Generator:
    return np.random.Generator(np.random.SFC64([seed, *numbers]))
