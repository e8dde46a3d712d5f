"""Training of knowledge graph embeddings: TransE, DistMult and RotatE."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from firth.errors import CorpusError
from firth.progress import note
from firth.training import Arrays, StepResult, Trainer, TrainingPlan, affordable
from firth.vectors import _graph_kernels as kernels
from firth.vectors.graph_model import Floats, GraphModel, TripleSet, scorer_kind, unit_count
from firth.vectors.job import VectorJob, VectorResult
from firth.vectors.recipe import GraphRecipe
from firth.vectors.text import TrainingText

Ints = npt.NDArray[np.int32]
_LOSSES = {"margin": kernels.MARGIN, "adversarial": kernels.ADVERSARIAL}
_SEGMENT = 16  # steps between two reports of the loss and possible checkpoints
_MIN_LR = 0.01  # as a fraction of the initial learning rate
_CALIBRATION = 1.0  # seconds of work that measure the throughput for a time budget, at most a tenth of it
_NAMES = 3  # of a triple


def train_graph(recipe: GraphRecipe, job: VectorJob) -> VectorResult:
    """The vectors of the entities and relations of a graph."""
    graph = read_graph(job.text)
    with ThreadPoolExecutor(job.threads) as pool:
        began = time.monotonic()
        checkpoint = None if job.checkpointer is None else job.checkpointer.load()
        trainer = GraphTrainer(
            plan=TrainingPlan("step", 1, 1),
            lr=recipe.lr,
            epoch_tokens=_NAMES * len(graph.triples),
            checkpointer=job.checkpointer,
            file=job.file,
            began=began,
            recipe=recipe,
            graph=graph,
            seed=job.seed,
            threads=job.threads,
            pool=pool,
        )
        trainer.plan = TrainingPlan.restored(checkpoint) if checkpoint else trainer.make_plan(job)
        if checkpoint is not None:
            trainer.restore(*checkpoint)
        trainer.train()
    metrics = {
        "loss": trainer.state.losses[-1],
        "entities": len(graph.entity_rows),
        "relations": len(graph.relation_rows),
        "triples": len(graph.triples),
    }
    model = trainer.model(job)
    return VectorResult(model, trainer.state.tokens, metrics, trainer.state.records)


@dataclass(frozen=True)
class Graph:
    """Distinct triples of entity, relation and entity numbers, and the tokens of these numbers."""

    triples: Ints
    entity_rows: Ints
    relation_rows: Ints

    @property
    def head_shares(self) -> Floats:
        """For each relation the probability that its head is replaced, tph / (tph + hpt) (Wang et al. 2014)."""
        relations, triples = len(self.relation_rows), self.triples
        counts = np.bincount(triples[:, 1], minlength=relations)
        heads, tails = (
            np.bincount(np.unique(triples[:, [1, side]], axis=0)[:, 0], minlength=relations) for side in (0, 2)
        )
        tails_per_head, heads_per_tail = counts / np.maximum(heads, 1), counts / np.maximum(tails, 1)
        return (tails_per_head / (tails_per_head + heads_per_tail)).astype(np.float32)


def read_graph(text: TrainingText) -> Graph:
    """The graph of a text whose documents are triples; notes repeated ones and loops, which are dropped and kept."""
    if len(text.ids) != _NAMES * (len(text.documents) - 1):
        raise CorpusError("a name of the triples is no single word: train without --tokenizer.")
    found = np.asarray(text.ids).astype(np.int64).reshape(-1, _NAMES)
    entity_rows, entities = np.unique(found[:, [0, 2]], return_inverse=True)
    relation_rows, relations = np.unique(found[:, 1], return_inverse=True)
    if len(entity_rows) < 2:
        raise CorpusError("the graph has one entity: give triples of several.")
    entities = entities.reshape(-1, 2)
    triples = np.column_stack([entities[:, 0], relations.reshape(-1), entities[:, 1]]).astype(np.int32)
    fresh = TripleSet(len(entity_rows), len(relation_rows), len(triples)).add(triples)
    if not fresh.all():
        note(f"{np.count_nonzero(~fresh):,} triples are repeated and count once")
    if loops := int(np.count_nonzero(triples[:, 0] == triples[:, 2])):
        note(f"{loops:,} triples have the same head and tail")
    return Graph(triples[fresh], entity_rows.astype(np.int32), relation_rows.astype(np.int32))


@dataclass(kw_only=True)
class GraphTrainer(Trainer):
    """Entity and relation rows during training; a step is a batch of triples."""

    unit: ClassVar[str] = "names"

    recipe: GraphRecipe
    graph: Graph
    seed: int
    threads: int
    pool: ThreadPoolExecutor

    def __post_init__(self) -> None:
        graph, recipe = self.graph, self.recipe
        rng = np.random.default_rng((self.seed, 0))
        self.kind, self.units = scorer_kind(recipe), unit_count(recipe)
        # Bordes et al. 2013, and for logistic losses Sun et al. 2019.
        width = 6 / math.sqrt(recipe.dimension) if recipe.loss == "margin" else (recipe.margin + 2) / recipe.dimension
        if recipe.scorer == "distmult":
            width = 1 / math.sqrt(recipe.dimension)
        sizes = (len(graph.entity_rows), recipe.dimension), (len(graph.relation_rows), self.units)
        self.entities, self.relations = (rng.uniform(-width, width, size).astype(np.float32) for size in sizes)
        if recipe.scorer == "rotate":
            self.relations *= np.float32(math.pi / width)
        if recipe.unit_entities:
            for table in (self.entities, self.relations):
                kernels.normalise_rows(table, np.arange(len(table)), 0, 1)
        self.squares = [np.zeros_like(table) for table in (self.entities, self.relations)]
        self.known = TripleSet(*map(len, (graph.entity_rows, graph.relation_rows, graph.triples)))
        self.known.add(graph.triples)
        self.head_shares = graph.head_shares if recipe.sides == "bernoulli" else np.full(sizes[1][0], 0.5, np.float32)
        self._order = lru_cache(maxsize=2)(self._shuffle)
        self.epoch_steps = -(-len(graph.triples) // recipe.batch)

    def make_plan(self, job: VectorJob) -> TrainingPlan:
        """The number of steps that the budget, or the recipe's epochs, allow."""
        per_step = self.epoch_tokens / self.epoch_steps
        if job.tokens is not None:
            total = job.tokens / per_step
        elif job.flops is not None:
            total = job.flops / self.flops_per_step
        elif job.seconds is not None:
            total = self._calibrate(job.seconds)
        else:
            total = self.recipe.epochs * self.epoch_steps
        total = max(1, round(total))
        return TrainingPlan("step", total, round(total * per_step), seconds=job.seconds)

    def _calibrate(self, seconds: float) -> float:
        """The steps that a time budget allows, by the speed of the first ones, which change nothing."""
        self._step(0, 0.0)  # compiles
        self.began = started = time.monotonic()
        done = 0
        while (elapsed := time.monotonic() - started) < min(_CALIBRATION, 0.1 * seconds):
            self._step(done, 0.0)
            done += 1
        return affordable(done / max(elapsed, 1e-9), seconds, elapsed)

    @property
    def flops_per_step(self) -> float:
        """Approximate floating-point operations: scores, derivatives and updates of all triples."""
        return 14.0 * self.recipe.batch * (1 + self.recipe.negatives) * self.recipe.dimension

    def steps(self) -> Generator[StepResult]:
        """Some batches at a time."""
        state = self.state
        while state.step < (planned := math.ceil(self.plan.total)):
            last = min(state.step - state.step % _SEGMENT + _SEGMENT, planned)
            last = min(last, (state.step // self.epoch_steps + 1) * self.epoch_steps)
            loss, count = 0.0, 0
            for step in range(state.step, last):
                lr = self.lr * max(1 - step / planned, _MIN_LR)
                found = self._step(step, lr)
                loss, count = loss + float(found.sum()), count + found.size
            state.flops += (last - state.step) * self.flops_per_step
            state.step = last
            state.tokens = round(state.step * self.epoch_tokens / self.epoch_steps)
            state.epoch_sums = state.epoch_sums[0] + loss, state.epoch_sums[1] + count
            if state.step % self.epoch_steps == 0:
                state.end_epoch()
            yield StepResult({self.recipe.loss: (loss, count)}, lr)
        if state.step % self.epoch_steps:
            state.end_epoch()

    def _step(self, step: int, lr: float) -> Floats:
        """Train on the batch of a step; the loss of each triple before it."""
        epoch, number = divmod(step, self.epoch_steps)
        begin = number * self.recipe.batch
        chosen = self._order(epoch)[begin : begin + self.recipe.batch]
        triples, count = self.graph.triples[chosen], self.recipe.negatives
        drawn, is_tail = np.empty((len(triples), count), np.int32), np.empty((len(triples), count), np.bool_)
        scores, slopes = np.empty((2, len(triples), count + 1), np.float32)
        losses, recipe = np.empty(len(triples), np.float32), self.recipe

        def weigh(first: int, last: int) -> None:
            kernels.draw_negatives(
                triples, first, last, self.known.slots, len(self.entities), len(self.relations), self.head_shares,
                self.seed, epoch, begin, drawn, is_tail,
            )  # fmt: skip
            kernels.weigh_triples(
                self.kind, _LOSSES[recipe.loss], recipe.margin, recipe.temperature, self.entities, self.relations,
                triples, drawn, is_tail, first, last, self.units, scores, slopes, losses,
            )  # fmt: skip

        def update(first: int, last: int) -> None:
            kernels.update_units(
                self.kind, self.entities, self.relations, self.squares[0], self.squares[1], triples, drawn, is_tail,
                first, last, self.units, scores, slopes, np.float32(lr), np.float32(recipe.decay),
            )  # fmt: skip

        self._share(weigh, len(triples))
        if lr > 0:
            self._share(update, self.units)
            if recipe.unit_entities:
                rows = np.concatenate([triples[:, [0, 2]].ravel(), drawn.ravel()])
                list(
                    self.pool.map(
                        lambda part: kernels.normalise_rows(self.entities, rows, part, self.threads),
                        range(self.threads),
                    )
                )
        return losses

    def _share(self, work: Callable[[int, int], None], size: int) -> None:
        """Divide a range among the threads."""
        cuts = np.linspace(0, size, self.threads + 1).astype(np.int64).tolist()
        list(self.pool.map(work, cuts[:-1], cuts[1:]))

    def _shuffle(self, epoch: int) -> npt.NDArray[np.int64]:
        return np.random.default_rng((self.seed, epoch + 1)).permutation(len(self.graph.triples))

    def arrays(self) -> Arrays:
        """The rows and the sums of squared gradients."""
        return {
            "entities": self.entities,
            "relations": self.relations,
            "entity_squares": self.squares[0],
            "relation_squares": self.squares[1],
        }

    def model(self, job: VectorJob) -> GraphModel:
        """The trained model."""
        graph = self.graph
        vectors = np.zeros((len(job.text.words), self.recipe.dimension), dtype=np.float32)
        vectors[graph.entity_rows] = self.entities
        model: GraphModel = job.build(
            GraphModel,
            self.recipe,
            vectors,
            relations=self.relations,
            entity_rows=graph.entity_rows,
            relation_rows=graph.relation_rows,
            triples=graph.triples,
        )
        return model
