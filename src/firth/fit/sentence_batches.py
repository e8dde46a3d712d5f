"""Batches of groups of sentences, such as labelled pairs: the sentences of a group are in one batch."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch

from firth.errors import CorpusError
from firth.fit.layouts import ObjectiveBatches, stored_text
from firth.fit.rows import BatchRows, PackedRows
from firth.nets.batch import Batch
from firth.nets.packing import Packed, pack_rows
from firth.nets.recipe import NetRecipe
from firth.nets.special_tokens import start_token
from firth.objectives.heads.sentences import SentenceHead
from firth.objectives.sequences import Integers, SentenceGroups, Sequences
from firth.tokens.store import TokenStore

_SPECIAL = 2  # tokens around each sentence
_WINDOW = 2048  # groups sorted by length at a time before packing
_NO_EDGES = np.zeros(0, dtype=np.int64)


class SentenceBatches(ObjectiveBatches):
    """The batches of one objective of sentence vectors. Every epoch packs the groups in another way.

    A group that does not fit into a row is left out.
    """

    def __init__(
        self, recipe: NetRecipe, store: TokenStore, head: SentenceHead, seed: int, labels: Integers | None = None
    ) -> None:
        """`labels` are those of the documents of the store, -1 for others."""
        super().__init__(recipe, store, [head], seed, 1.0, 0)
        self.head, self.found = head, head.find(stored_text(store), labels)

    @cached_property
    def groups(self) -> SentenceGroups:
        """The groups that fit into a row."""
        starts, ends, labels = self.found
        if not len(starts):
            raise CorpusError(
                f"there is no group of {self.head.members} sentences for {self.head.name}: give documents of two "
                "sentences or more, or pairs with its labels and the same premise."
            )
        fits = _lengths(self.found) <= self.recipe.sequence.length
        if not fits.any():
            longest = int(_lengths(self.found).min())
            raise CorpusError(
                f"no group of {self.head.members} sentences for {self.head.name} fits into "
                f"{self.recipe.sequence.length} tokens: set sequence.length={longest}, say."
            )
        return SentenceGroups(starts[fits], ends[fits], None if labels is None else labels[fits])

    @property
    def tokens(self) -> int:
        return int((self.groups.ends - self.groups.starts).sum())

    @property
    def split(self) -> int:
        """None: a long group is left out."""
        return 0

    @property
    def left_out(self) -> int:
        """The number of groups longer than a row."""
        return len(self.found.starts) - len(self.groups.starts)

    def remarks(self) -> list[str]:
        if not self.left_out:
            return []
        return [
            f"{self.left_out:,} of {len(self.found.starts):,} groups of {self.head.members} sentences for "
            f"{self.head.name} are longer than {self.recipe.sequence.length} tokens together and were left out"
        ]

    def metrics(self) -> dict[str, int]:
        return {"left_out_groups": self.left_out} if self.left_out else {}

    def _build_rows(self, seed: int, variant: int, length: int) -> BatchRows:
        # A shorter length, as in a first phase of training, would leave groups out.
        rng = self.layout_rng(seed, variant)
        return GroupRows(self.store, self.groups, self.head.label_key, self.recipe, rng)


class GroupRows(PackedRows):
    """Rows of packed groups, each sentence of which is a sequence `[CLS] s [SEP]`."""

    def __init__(
        self, store: TokenStore, groups: SentenceGroups, key: str, recipe: NetRecipe, rng: np.random.Generator
    ) -> None:
        """`key` is that of the labels in batches."""
        self.groups, self.key, self.members = groups, key, groups.starts.shape[1]
        length = recipe.sequence.length
        packed = pack_rows(_lengths(groups), length, rng.permutation(len(groups.starts)), _WINDOW)
        sentences = (packed.members[:, None] * self.members + np.arange(self.members)).ravel()
        packed = Packed(packed.bounds * self.members, sentences, packed.used)
        sequences = Sequences(groups.starts.reshape(-1, 1), groups.ends.reshape(-1, 1), length, _NO_EDGES, {})
        super().__init__(store, sequences, length, start_token(recipe), False, False, packed)

    def batch(self, rows: Integers) -> Batch:
        batch = super().batch(rows)
        if self.groups.labels is not None:
            bounds, members, _ = self._packed
            first = [members[bounds[row] : bounds[row + 1] : self.members] // self.members for row in rows]
            batch.labels[self.key] = torch.from_numpy(self.groups.labels[np.concatenate(first)])
        return batch


def _lengths(groups: SentenceGroups) -> Integers:
    """The length of each group with special tokens."""
    return np.asarray((groups.ends - groups.starts + _SPECIAL).sum(1))
