"""Batches of objectives with sequences of their own, mixed with those of the text, in the stages of a run.

Every step is of one kind of sequences: those of the text, or those of one objective. A kind of p of the tokens has a
share of the steps of a stage that is proportional to p^alpha.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
import torch

from firth.errors import CorpusError
from firth.fit.batches import Batches, Cursor
from firth.fit.mixture import ROUND, MixtureSource, power_weights
from firth.fit.parallel import make_batches
from firth.fit.resolve import is_unset
from firth.fit.rows import BatchRows, PackedRows, bounds_of
from firth.fit.staged import StagedSource
from firth.nets.batch import Batch
from firth.nets.embedding import TASKS
from firth.nets.recipe import NetRecipe
from firth.objectives.heads.head import ObjectiveHead
from firth.objectives.heads.layouts import LaidOutHead
from firth.objectives.sequences import Integers, Sequences, StoredText
from firth.progress import note
from firth.tokens.store import TokenStore
from firth.tokens.tokenizer import BOS

NO_EXAMPLES = np.zeros(0, dtype=np.int64)


def stored_text(store: TokenStore) -> StoredText:
    """The text of a store as objectives read it."""
    return StoredText(store.ids, store.word_starts, *bounds_of(store), store.columns)


class ObjectiveBatches(Batches):
    """Batches for some of the objectives."""

    def __init__(
        self,
        recipe: NetRecipe,
        store: TokenStore,
        objectives: Sequence[ObjectiveHead],
        seed: int,
        progress: float,
        task: int,
    ) -> None:
        super().__init__(recipe, store, objectives, seed, progress)
        self.task, self._names = task, frozenset(objective.name for objective in objectives)

    def _batch(self, rows: BatchRows, chosen: Integers, seed: int, variant: int) -> Batch:
        batch = super()._batch(rows, chosen, seed, variant)
        batch.objectives = self._names
        if self.recipe.embedding.tasks:
            batch.side_ids[TASKS] = torch.full_like(batch.ids, self.task)
        return batch


class LaidOutBatches(ObjectiveBatches):
    """Batches of the sequences of one objective, which is the first."""

    def __init__(
        self,
        recipe: NetRecipe,
        store: TokenStore,
        objectives: Sequence[ObjectiveHead],
        seed: int,
        progress: float,
        task: int,
        examples: Integers,
    ) -> None:
        super().__init__(recipe, store, objectives, seed, progress, task)
        self.examples = examples

    @property
    def layout(self) -> LaidOutHead:
        """The objective that makes the sequences."""
        head = self.objectives[0]
        assert isinstance(head, LaidOutHead)
        return head

    @cached_property
    def tokens(self) -> int:
        """Tokens of text in the first epoch."""
        sequences = self._sequences(self.seed, 0, self.recipe.sequence.length)
        return int((sequences.ends - sequences.starts).sum())

    @property
    def split(self) -> int:
        """None: long segments are cut."""
        return 0

    def _sequences(self, seed: int, variant: int, length: int) -> Sequences:
        rng = self.layout_rng(seed, variant)
        return self.layout.lay_out(self.examples, stored_text(self.store), self.layout.capacity(length), rng)

    def _build_rows(self, seed: int, variant: int, length: int) -> BatchRows:
        sequences = self._sequences(seed, variant, length)
        if not len(sequences.starts):
            raise CorpusError(
                f"the text has too few examples for {self.layout.name}: give more text, or set objectives without it."
            )
        segments = self.layout.tells_segments and self.recipe.segments > 1
        rows = PackedRows(self.store, sequences, length, BOS, False, segments)
        rows.columns = self.recipe.columns
        return rows


class ObjectiveMixture(MixtureSource):
    """A weighted mixture. A source is read at the number of the step, whichever steps were its own.

    So its position does not depend on the sources of earlier stages.
    """

    def source_at(self, cursor: Cursor) -> tuple[int, int]:
        """The number of the source of a step, and the number of the step."""
        return int(self._order(cursor.epoch)[cursor.row]), cursor.epoch * ROUND + cursor.row

    def _own_cursor(self, chosen: int, done: int) -> Cursor:
        source = self.sources[chosen]
        epoch, number = divmod(done, source.steps(0))
        return Cursor(epoch, number % source.steps(epoch) * source.rows)  # epochs may differ by a few steps


def staged_batches(
    recipe: NetRecipe, store: TokenStore, objectives: Sequence[ObjectiveHead], seed: int
) -> StagedSource:
    """The batches of a text in each stage of a recipe."""
    laid_out = [one for one in objectives if isinstance(one, LaidOutHead)]
    if not laid_out:
        return StagedSource({begin: make_batches(recipe, store, objectives, seed, begin) for begin in recipe.stages})
    known = {one.name for one in laid_out if set(one.objective.requires) <= store.columns.keys()}
    found = {one.name: one.find(stored_text(store)) if one.name in known else NO_EXAMPLES for one in laid_out}
    others = [one for one in objectives if one not in laid_out]
    of_tokens = [one for one in others if not one.objective.needs_pairs]
    sizes = dict[str, int]()
    stages = {}
    for begin in recipe.stages:
        sources: dict[str, Batches] = {"": ObjectiveBatches(recipe, store, others, seed, begin, 0)}
        for one in laid_out:
            if one.objective.weight_at(begin) and len(found[one.name]):
                heads = [one, *of_tokens]
                sources[one.name] = LaidOutBatches(recipe, store, heads, seed, begin, one.task, found[one.name])
        sizes = {name: source.tokens for name, source in sources.items() if name not in sizes} | sizes
        weights = power_weights([sizes[name] for name in sources], recipe.sampling.batches)
        stages[begin] = ObjectiveMixture(list(sources.values()), weights, seed)
    return StagedSource(stages)


def with_material(
    recipe: NetRecipe, store: TokenStore, settings: Sequence[str] = (), *, further: bool = False
) -> NetRecipe:
    """The recipe without the objectives that the text has no examples of, each with a note.

    In `further` training, the embeddings stay as they are.
    """
    lacking = {one.name: lacks for one in recipe.objectives if (lacks := one.lacks(store))}
    for name, what in lacking.items():
        note(f"the text has no, or hardly any, {what}: {name} is not trained")
    if not lacking:
        return recipe
    kept = tuple(one for one in recipe.objectives if one.name not in lacking)
    unused = sum(one.own_segments for one in recipe.objectives if one.name in lacking)
    embedding = recipe.embedding
    if unused and not further and is_unset(settings, "embedding.segments"):
        embedding = replace(embedding, segments=embedding.segments - unused)
    return replace(recipe, objectives=kept, embedding=embedding)
