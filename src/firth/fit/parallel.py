"""Batches of parallel text: pairs of a source and a target, packed into corresponding rows of two batches.

A source is `[CLS] s [SEP]`, as a text that the encoder alone reads; the input of the decoder is `EOS t`, which predicts
`t EOS`. Both sides of a row have at most `sequence.length` tokens. A pair with a longer side is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from firth.errors import CorpusError
from firth.fit._pair_kernels import END_ID, fill_side
from firth.fit.batches import Batches
from firth.fit.consecutive import ConsecutiveBatches
from firth.fit.rows import BatchRows, pair_bounds
from firth.nets.batch import Batch
from firth.nets.packing import BatchArrays, pack_rows
from firth.nets.recipe import NetRecipe
from firth.objectives.heads.head import ObjectiveHead
from firth.objectives.sequences import Integers
from firth.tokens.store import TokenStore
from firth.tokens.tokenizer import BOS, EOS

assert EOS == END_ID

_WINDOW = 2048  # pairs sorted by length at a time before packing
_SOURCE_TOKENS, _TARGET_TOKENS = 2, 1  # special tokens of each side


class ParallelBatches(Batches):
    """The batches of the documents of two sentences in a store. Every epoch packs them in another way."""

    @property
    def tokens(self) -> int:
        return int((self._pairs[:, 1] - self._pairs[:, 0] + self._pairs[:, 3] - self._pairs[:, 2]).sum())

    @property
    def split(self) -> int:
        """0: a pair that is too long is left out."""
        return 0

    @property
    def left_out(self) -> int:
        """The number of pairs that are too long, or have a side without tokens."""
        return self.store.info.documents - len(self._pairs)

    def remarks(self) -> list[str]:
        if not self.left_out:
            return []
        length = self.recipe.sequence.length
        return [
            f"{self.left_out:,} of {self.store.info.documents:,} pairs are left out: a side has no token, or more than "
            f"fit into {length}"
        ]

    def metrics(self) -> dict[str, int]:
        return {"left_out_pairs": self.left_out} if self.left_out else {}

    @cached_property
    def _pairs(self) -> Integers:
        """(pairs, 4): begin and end of the source and of the target, of those that fit."""
        pairs = pair_bounds(self.store)[:, [0, 1, 1, 2]]
        length = self.recipe.sequence.length
        fits = pairs[:, 1] - pairs[:, 0] <= length - _SOURCE_TOKENS
        fits &= pairs[:, 3] - pairs[:, 2] <= length - _TARGET_TOKENS
        if not fits.any():
            raise CorpusError(
                f"there is no pair of two texts within {length} tokens: give parallel text, or set sequence.length."
            )
        return np.ascontiguousarray(pairs[fits])

    def _build_rows(self, seed: int, variant: int, length: int) -> BatchRows:
        # A shorter length, as in a first phase of training, would leave pairs out.
        return ParallelRows(self.store, self._pairs, self.recipe.sequence.length, self.layout_rng(seed, variant))


class ParallelRows:
    """Rows of packed pairs."""

    def __init__(self, store: TokenStore, pairs: Integers, length: int, rng: np.random.Generator) -> None:
        self.store, self.pairs = store, pairs
        lengths = np.stack(
            [pairs[:, 1] - pairs[:, 0] + _SOURCE_TOKENS, pairs[:, 3] - pairs[:, 2] + _TARGET_TOKENS], axis=1
        )
        self._bounds, self._members, self._used = pack_rows(lengths, length, rng.permutation(len(pairs)), _WINDOW)

    @property
    def count(self) -> int:
        return len(self._used)

    @property
    def fill(self) -> float:
        return float(self._used.sum() / (self.count * self._used.max(0).sum()))

    def batch(self, rows: Integers) -> Batch:
        source, source_tokens = self._side(rows, 0, BOS, True)
        target, target_tokens = self._side(rows, 1, EOS, False)
        batch = target.batch(rows, source_tokens + target_tokens)
        batch.source = source.batch(rows, source_tokens)
        return batch

    def _side(self, rows: Integers, side: int, opening: int, closed: bool) -> tuple[BatchArrays, int]:
        arrays = BatchArrays(rows.size, int(self._used[rows, side].max()))
        begins, ends = self.pairs[:, 2 * side], self.pairs[:, 2 * side + 1]
        text = fill_side(
            self.store.ids, self.store.word_starts, begins, ends, opening, closed, self._bounds, self._members, rows,
            arrays.ids, arrays.word_starts, arrays.sequence_ids, arrays.position_ids,
        )  # fmt: skip
        return arrays, int(text)


_KINDS: dict[str, type[Batches]] = {"consecutive": ConsecutiveBatches, "parallel": ParallelBatches}


def make_batches(
    recipe: NetRecipe, store: TokenStore, objectives: Sequence[ObjectiveHead], seed: int, progress: float = 1.0
) -> Batches:
    """The batches of a text, of its consecutive sentences, or of pairs, by the recipe's format of sequences.

    `progress` is that of `Batches`.
    """
    return _KINDS.get(recipe.sequence.format, Batches)(recipe, store, objectives, seed, progress)
