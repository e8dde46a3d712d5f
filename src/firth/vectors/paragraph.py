"""Paragraph vectors (Le and Mikolov 2014): a vector for every document, which helps to predict its words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from firth.vectors import _paragraph_kernels as kernels
from firth.vectors._step_kernels import random_start
from firth.vectors._word2vec_kernels import draw_pool
from firth.vectors.bag import document_bounds
from firth.vectors.loop import LANES, Plan, Touch
from firth.vectors.recipe import ParagraphRecipe
from firth.vectors.sampling import alias_table, keep_thresholds, noise_shares
from firth.vectors.tables import Table, random_table, zeros
from firth.vectors.text import FIRST_WORD

_BLOCK = 5000
_POOL = 4096
_CHUNK = 8
_DRAWS = 1
_DOCS0 = True
_TEMPER = 0.1


def settle(recipe: ParagraphRecipe, words: int) -> ParagraphRecipe:
    if recipe.negatives == "auto":
        recipe = replace(recipe, negatives=5)
    if recipe.learning_rate == "auto":
        recipe = replace(recipe, learning_rate=0.025)
    return recipe


@dataclass
class Pieces:
    words: npt.NDArray[np.int32]
    begins: npt.NDArray[np.int64]
    reach: npt.NDArray[np.int32]
    targets: npt.NDArray[np.int32]
    owners: npt.NDArray[np.int32]
    shares: npt.NDArray[np.float32]


class Steps:
    """How pieces of text are planned and learnt from: in training, and when a new text is given a vector."""

    def __init__(self, recipe: ParagraphRecipe, counts: npt.NDArray[np.int64]) -> None:
        assert isinstance(recipe.negatives, int)
        self.recipe = recipe
        self.bag = recipe.architecture == "dbow"
        self.chunk = _CHUNK if self.bag else 1
        self.draws = _DRAWS if self.bag else recipe.negatives
        self.weight = np.float32(recipe.negatives / self.draws)
        self.keep = keep_thresholds(counts, recipe.subsample)

    def plan(self, ids, bounds, states, pool, owners, shares) -> Pieces:
        words, reach = np.empty(ids.size, dtype=np.int32), np.empty(ids.size, dtype=np.int32)
        begins = np.empty(bounds.size, dtype=np.int64)
        recipe = self.recipe
        shrink = recipe.combine == "mean"
        count = kernels.choose_words(ids, bounds, self.keep, recipe.window, shrink, states, words, begins, reach)
        targets = np.empty(count * (1 + self.draws), dtype=np.int32)
        kernels.list_targets(words, begins, self.chunk, self.draws, pool, states, targets)
        return Pieces(words[:count], begins, reach, targets, owners, shares)

    def learn(self, p: Pieces, tables: Sequence[Table], rate: float, frozen: bool) -> float:
        recipe, documents, outputs = self.recipe, tables[0], tables[1]
        stride, width, step = outputs.stride, outputs.width, np.float32(rate)
        if self.bag:
            return kernels.learn_bags(
                p.begins,
                self.chunk,
                self.draws,
                self.weight,
                p.owners,
                p.shares,
                p.targets,
                documents.flat,
                outputs.flat,
                stride,
                width,
                step,
                frozen,
            )
        return kernels.learn_windows(
            recipe.window,
            p.words,
            p.begins,
            p.reach,
            self.draws,
            p.owners,
            p.shares,
            p.targets,
            documents.flat,
            tables[2].flat,
            outputs.flat,
            documents.dimension,
            stride,
            width,
            step,
            recipe.combine == "concat",
            frozen,
        )


class ParagraphBlocks:
    def __init__(self, recipe, text, seed):
        self.recipe, self.text, self.seed = recipe, text, seed
        self.steps = Steps(recipe, text.counts)
        self.bounds = document_bounds(text)
        self.cuts, self.pieces = replace(text, sentences=self.bounds.astype(np.uint64)).cut(_BLOCK, _BLOCK)
        parts = np.maximum(-(-np.diff(self.bounds) // _BLOCK), 1)
        self.owners = np.repeat(np.arange(parts.size, dtype=np.int32), parts)
        most = LANES if recipe.mode == "exact" else 1
        self.shares = np.repeat((1 / np.minimum(parts, most)).astype(np.float32), parts)
        self.blocks = len(self.cuts) - 1
        self.words = len(text.ids)
        self.alias = alias_table(noise_shares(text.counts, recipe.noise))
        self.tables = self._tables()

    def _tables(self):
        recipe, size = self.recipe, len(self.text.words)
        d = recipe.dimension
        lanes = LANES if recipe.mode == "exact" else 0
        longest = int(np.diff(self.pieces[self.cuts]).max())
        n = len(self.bounds) - 1
        sp = lanes * int(np.diff(self.cuts).max())
        docs = zeros(n, d, sp) if _DOCS0 else random_table(n, d, self.seed + 1, 0, sp)
        spare = lanes * min(size, longest + _POOL)
        if recipe.architecture == "dbow":
            return docs, random_table(size, d, self.seed, FIRST_WORD, spare) if _DOCS0 else zeros(size, d, spare)
        wide = d if recipe.combine == "mean" else (2 * recipe.window + 1) * d
        return docs, zeros(size, wide, spare), random_table(size, d, self.seed, FIRST_WORD, lanes * min(size, longest))

    @property
    def work(self):
        return 6.0 * self.recipe.dimension

    def plan(self, epoch, block):
        begin, end = self.cuts[block], self.cuts[block + 1]
        bounds = self.pieces[begin : end + 1]
        ids = np.asarray(self.text.ids[bounds[0] : bounds[-1]], dtype=np.uint32)
        start = np.uint64(random_start(self.seed, epoch, block))
        states = np.empty(end - begin, dtype=np.uint64)
        kernels.place_states(start, begin, states)
        pool = np.empty(_POOL, dtype=np.int32)
        draw_pool(self.alias, pool, start)
        p = self.steps.plan(ids, bounds, states, pool, self.owners[begin:end].copy(), self.shares[begin:end])
        t = (Touch(0, p.owners), Touch(1, p.targets))
        if not self.steps.bag:
            t += (Touch(2, p.words),)
        return Plan(t, p)

    def learn(self, plan, rate):
        p = plan.content
        out = self.tables[1]
        if _TEMPER and self.recipe.mode == "exact" and p.targets.size:
            base = int(p.targets.min())
            pull = np.bincount(p.targets - base) * (rate * float(self.steps.weight))
            rows = np.flatnonzero(pull > _TEMPER)
            pull = pull[rows]
            rows += base
            m = out.flat.reshape(-1, out.stride)
            before = m[rows]
            sh = ((1 - np.exp(-4 * pull)) / (4 * (1 - np.exp(-pull)))).astype(np.float32)[:, None]
        r = float(self.steps.learn(p, self.tables, rate, False)), int(p.begins[-1])
        if _TEMPER and self.recipe.mode == "exact" and p.targets.size:
            m[rows] = before + sh * (m[rows] - before)
        return r


def infer_ids(steps, tables, alias, seed, ids, bounds, epochs):
    pool = np.empty(1 << 17, dtype=np.int32)
    draw_pool(alias, pool, np.uint64(random_start(seed, 0, 0)))
    n = len(bounds) - 1
    docs = zeros(n, tables[0].dimension)
    states = np.empty(n, dtype=np.uint64)
    owners = np.arange(n, dtype=np.int32)
    shares = np.ones(n, dtype=np.float32)
    rate = steps.recipe.learning_rate
    for e in range(epochs):
        kernels.text_states(np.uint64(random_start(seed, e, 0)), ids, bounds, states)
        p = steps.plan(ids, bounds, states, pool, owners, shares)
        steps.learn(p, (docs, *tables[1:]), rate * max(1 - e / epochs, 1e-4), True)
    return docs.matrix()
