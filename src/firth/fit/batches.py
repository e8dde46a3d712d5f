"""Batches: from the tokens of a text to what a step learns from, any of them at once.

Everything is a function of the seed, the pass and the place in it. So training can go on from any step at no cost, and
threads that make batches ahead share nothing that changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from firth.errors import CorpusError, RecipeError
from firth.fit._packing_kernels import count_longer
from firth.fit.packing import PAIRS, bounds_of, cut_sequences, room_for
from firth.fit.rows import PackedRows, Rows, StreamRows
from firth.nets.batch import Batch
from firth.nets.network import Vocabulary
from firth.nets.recipe import NetRecipe
from firth.objectives.objective import Objective
from firth.objectives.sequences import Integers
from firth.tokens.memory import let_go
from firth.tokens.store import TokenStore
from firth.tokens.tokenizer import BOS, EOS, Tokenizer

_VARIANTS = 10  # of masks that are duplicated (Devlin et al. 2019)
_SHORTEST = 16  # places of rows at the start of training
_CHUNK = 1 << 20  # ids that are counted at once
_ORDER, _LAYOUT, _PAIR, _CORRUPT = range(4)  # what random numbers are for


class Cursor(NamedTuple):
    """How far training has come: the pass over the text and the row of that pass to be read next."""

    epoch: int = 0
    row: int = 0


class Batches:
    """The batches of a text under a recipe. The same cursor always gives the same batches.

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

    def __init__(self, recipe: NetRecipe, store: TokenStore, objectives: Sequence[Objective], seed: int) -> None:
        if len(store) == 0:
            raise CorpusError("there is no token in the text to learn from: check it with firth check.")
        self.recipe, self.store, self.objectives, self.seed = recipe, store, tuple(objectives), seed
        self._copies = max((objective.copies for objective in objectives), default=1)
        form, length = recipe.rows.format, recipe.rows.length
        if self._copies > 1 and form == "stream":
            raise RecipeError(f"{recipe.objectives} needs sequences, not a stream: set rows.format=sentences.")
        if room_for(form, length, self._copies) < 2:
            raise RecipeError(f"rows.length={length} leaves no room for text: set it to 128, say.")
        self._rows = lru_cache(maxsize=3)(self._lay_out)
        self._order = lru_cache(maxsize=2)(self._shuffle)

    @property
    def tokens(self) -> int:
        """Tokens of text in a pass."""
        return len(self.store)

    @property
    def split(self) -> int:
        """Sentences that are longer than a row and are read in parts."""
        form, length = self.recipe.rows.format, self.recipe.rows.length
        room = room_for(form, length, self._copies)
        return int(count_longer(bounds_of(self.store).sentences, room // 2 if form == "sentence-pair" else room))

    @property
    def fill(self) -> float:
        """The share of places in the rows of the first pass that are not padding."""
        return self._rows(self.seed, 0, self.recipe.rows.length).fill

    @property
    def rows(self) -> int:
        """Rows of a step."""
        return max(1, self.recipe.learning.batch // self.recipe.rows.length)

    def steps(self, epoch: int = 0) -> int:
        """How many steps a pass has: those of other passes may differ by a few."""
        return -(-self._rows(self.seed, self._variant(epoch), self.recipe.rows.length).count // self.rows)

    def step(self, cursor: Cursor, length: int | None = None) -> tuple[list[Batch], Cursor]:
        """The batches of the step that begins at a cursor, and where the next begins.

        A step has `learning.batch` tokens in `learning.accumulate` parts; the last of a pass may have fewer. With a
        smaller `length` it has more, shorter rows. The cursor counts rows of the recipe's own length all the same: a
        pass of shorter rows is read in as many steps.
        """
        variant = self._variant(cursor.epoch)
        rows = self._rows(self.seed, variant, self.recipe.rows.length)
        begin, end, total = cursor.row, min(cursor.row + self.rows, rows.count), rows.count
        if length is not None and length < self.recipe.rows.length:
            rows = self._rows(self.seed, variant, min(max(length, _SHORTEST), self.recipe.rows.length))
            begin, end = (place * rows.count // total for place in (begin, end))
            end = max(end, begin + 1)
        chosen = self._order(self.seed, cursor.epoch, rows.count)[begin:end]
        parts = np.array_split(chosen, min(self.recipe.learning.accumulate, chosen.size))
        batches = [self._batch(rows, part, self.seed, variant) for part in parts]
        after = Cursor(cursor.epoch, cursor.row + self.rows)
        return batches, after if after.row < total else Cursor(cursor.epoch + 1, 0)

    def fixed(self, tokens: int) -> list[Batch]:
        """Batches of about so many tokens, or of the whole text: the same ones whatever the seed, to validate on."""
        rows = self._rows(0, 0, self.recipe.rows.length)
        wanted = min(rows.count, max(1, -(-tokens * rows.count // self.tokens)))
        chosen = self._order(0, 0, rows.count)[:wanted]
        size = max(1, self.rows // self.recipe.learning.accumulate)
        return [self._batch(rows, chosen[begin : begin + size], 0, 0) for begin in range(0, wanted, size)]

    def _variant(self, epoch: int) -> int:
        """Which layout and noise a pass has: passes with the same one differ in the order of their rows alone."""
        masks = self.recipe.masking.masks
        return 0 if masks == "static" else epoch % _VARIANTS if masks == "duplicated" else epoch

    def _lay_out(self, seed: int, variant: int, length: int) -> Rows:
        form, bidirectional = self.recipe.rows.format, self.recipe.visibility == "bidirectional"
        key = int(_random(seed, variant, _LAYOUT).integers(2**62))
        if form == "stream":
            return StreamRows(self.store, length, overlap=0 if bidirectional else 1, key=key)
        sequences = cut_sequences(self.store, form, room_for(form, length, self._copies), key)
        for number, objective in enumerate(self.objectives):
            sequences = objective.pair(sequences, _random(seed, variant, _PAIR, number))
        segments = form in PAIRS and self.recipe.embedding.segments > 1
        opening = BOS if bidirectional else EOS
        return PackedRows(self.store, sequences, length, opening, form == "full-sentences", segments)

    def _shuffle(self, seed: int, epoch: int, count: int) -> Integers:
        return _random(seed, epoch, _ORDER).permutation(count)

    def _batch(self, rows: Rows, chosen: Integers, seed: int, variant: int) -> Batch:
        batch = rows.batch(chosen)
        batch.tokens //= self._copies
        for number, objective in enumerate(self.objectives):
            objective.corrupt(batch, _random(seed, variant, _CORRUPT, number))
        return batch


def vocabulary_of(tokenizer: Tokenizer, store: TokenStore) -> Vocabulary:
    """The tokens of a tokenizer, and how often each occurs in a store; the end of a sentence once a sentence."""
    counts = np.zeros(len(tokenizer), dtype=np.int64)
    for begin in range(0, len(store), _CHUNK):
        counts += np.bincount(store.ids[begin : begin + _CHUNK], minlength=len(tokenizer))
        let_go(store.ids)
    counts[EOS] = store.facts.sentences
    return Vocabulary(tokenizer.vocabulary, counts)


def _random(seed: int, *numbers: int) -> np.random.Generator:
    return np.random.Generator(np.random.SFC64([seed, *numbers]))
