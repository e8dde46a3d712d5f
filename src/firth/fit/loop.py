"""The loop that all nets share: batches, gradients, a step, and what it was like.

Whatever is random in a step is a function of the seed and the number of the step, and batches are a function of their
place in the text, so a run can be taken up at any step without a trace.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer

from firth.errors import ArtifactError, TrainingError
from firth.fit.batches import Cursor
from firth.fit.optimisers import forget
from firth.fit.schedules import rate_factor
from firth.nets.batch import Batch, Loss
from firth.nets.model import own_tensors
from firth.nets.network import Network, Vocabulary, build_network
from firth.nets.noise import Noise
from firth.nets.recipe import LearningRecipe, NetRecipe
from firth.objectives.objective import Objective, make_objectives, union

AHEAD = 3
"""Steps whose batches are made while others are learnt from."""
BACKWARD = 3
"""Forward and backward together take three times the arithmetic of forward alone."""
_SHORT = 4  # how much shorter rows are at first, if a recipe asks for that
T = TypeVar("T")


class Learner(nn.Module):
    """A network with what it is taught; the layers of an objective are `heads.NAME.*`."""

    def __init__(self, network: Network, objectives: Mapping[str, Objective]) -> None:
        super().__init__()
        self.network = network
        self.heads = nn.ModuleDict(objectives)

    @property
    def objectives(self) -> dict[str, Objective]:
        """The objectives by name."""
        return {name: head for name, head in self.heads.items() if isinstance(head, Objective)}

    def losses(self, batch: Batch, noise: Noise | None) -> dict[str, Loss]:
        """The loss of each objective on a batch; without noise as in use."""
        objectives = self.objectives
        for objective in objectives.values():
            batch = objective.rewrite(batch, self.network, noise)
        places = places_of(objectives, batch)
        if places is not None and not len(places):
            return {name: Loss(torch.zeros(()), 0) for name in objectives}
        states = self.network(batch, places, noise)
        return {name: one.loss(self.network, states, batch, noise) for name, one in objectives.items()}

    def come(self, share: float) -> Iterable[Tensor]:
        """Tells that so much of the plan is done; the parameters that were made anew, whose past is to be forgotten."""
        return self.network.output.parameters() if self.network.output.renew(share) else ()

    def flops(self, batch: Batch) -> float:
        """Floating-point operations of a forward and backward pass over a batch."""
        rows, length = batch.shape
        places = places_of(self.objectives, batch)
        predicted = 1.0 if places is None else len(places) / (rows * length)
        return BACKWARD * rows * length * self.network.work(length, predicted)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """All parameters and buffers, each once, sharing memory with them."""
        return {name: tensor.detach().numpy() for name, tensor in own_tensors(self).items()}

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Puts back what `arrays` gave."""
        for name, own in self.arrays().items():
            if name not in arrays or arrays[name].shape != own.shape or arrays[name].dtype != own.dtype:
                raise ArtifactError(f"{name} is missing or of another shape in the state to go on with: train again.")
            own[...] = arrays[name]


def places_of(objectives: Mapping[str, Objective], batch: Batch) -> Tensor | None:
    """The places of a batch whose states are needed."""
    return union([objective.places(batch) for objective in objectives.values()])


def make_learner(
    recipe: NetRecipe, vocabulary: Vocabulary, seed: int, vectors: npt.NDArray[np.float32] | None = None
) -> Learner:
    """A new network with its objectives; the first parameters depend on the seed, and on vectors to begin with."""
    network = build_network(recipe, vocabulary, seed, vectors=vectors)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed + 1)
        return Learner(network, make_objectives(recipe, vocabulary))


@dataclass
class Plan:
    """How much is to be learnt, settled before the first step."""

    unit: Literal["tokens", "flops"]
    total: float
    tokens: int
    """Expected, whatever the unit."""
    short: float = 0.0
    """How much of it is read in shorter rows."""
    seconds: float | None = None
    """A budget of time: the total is changed if the machine turns out to be slower or faster."""
    changed: int = 0
    """How often that happened."""

    def amount(self, of: State | Supply) -> float:
        """How much of something there is in the unit of the plan."""
        return of.tokens if self.unit == "tokens" else of.flops


@dataclass
class State:
    """How far a run is: all that must be known to go on, beside the parameters."""

    step: int = 0
    tokens: int = 0
    flops: float = 0.0
    epoch: int = 0
    row: int = 0
    seconds: float = 0.0
    sums: dict[str, list[float]] = field(default_factory=dict)
    """Objective -> the sum of its losses and their number since the last record."""
    records: list[dict[str, Any]] = field(default_factory=list)
    first: float | None = None
    """The loss in validation before the first step, where a model is gone on from."""
    best: float | None = None
    """The lowest loss in validation."""
    waited: int = 0
    """Validations since."""

    @property
    def cursor(self) -> Cursor:
        """Where in the text it goes on."""
        return Cursor(self.epoch, self.row)


class Source(Protocol):
    """Where batches come from."""

    @property
    def tokens(self) -> int:
        """Tokens of a pass."""

    @property
    def split(self) -> int:
        """Sentences or examples that are longer than a row."""

    def step(self, cursor: Cursor, length: int | None = None) -> tuple[list[Batch], Cursor]:
        """The batches of the step that begins at a cursor, and where the next begins."""


class Supply(NamedTuple):
    """What a step learns from."""

    parts: Sequence[Batch]
    cursor: Cursor
    """Where the next step begins."""
    tokens: int
    flops: float


class Step(NamedTuple):
    """What a step was like."""

    losses: dict[str, tuple[float, int]]
    """Objective -> the sum of its losses in nats, and the number of predictions."""
    norm: float
    """The length of the gradient before it was cut."""
    rate: float
    tokens: int

    @property
    def loss(self) -> float:
        """The sum of the mean losses of all objectives."""
        return sum(total / count for total, count in self.losses.values() if count)


def supplies(batches: Source, learner: Learner, recipe: NetRecipe, plan: Plan, state: State) -> Iterator[Supply]:
    """What each step from here on learns from, without end."""
    cursor, done = state.cursor, plan.amount(state)
    while True:
        short = done < plan.short
        parts, cursor = batches.step(cursor, max(recipe.rows.length // _SHORT, 4) if short else None)
        made = Supply(parts, cursor, sum(part.tokens for part in parts), sum(map(learner.flops, parts)))
        done += plan.amount(made)
        yield made


def ahead(items: Iterator[T], depth: int) -> Generator[T]:
    """The items of an endless iterator, `depth` of them made ahead by another thread.

    >>> import itertools
    >>> [number for number, _ in zip(ahead(itertools.count(), 2), range(3))]
    [0, 1, 2]
    """
    if depth == 0:
        yield from items
        return
    with ThreadPoolExecutor(1) as thread:
        waiting = deque(thread.submit(next, items) for _ in range(depth))
        try:
            while True:
                made = waiting.popleft().result()
                waiting.append(thread.submit(next, items))
                yield made
        finally:
            for future in waiting:
                future.cancel()


def learn(
    learner: Learner,
    optimiser: Optimizer,
    supply: Iterator[Supply],
    plan: Plan,
    state: State,
    learning: LearningRecipe,
    rate: float,
    seed: int,
) -> Iterator[Step]:
    """Learns until the plan is fulfilled; yields after each step what it was like, when `state` says how far it is."""
    for given in supply:
        done, more = plan.amount(state), plan.amount(given)
        if state.step and done + more / 2 > plan.total:  # as near to the plan as whole steps come
            return
        forget(optimiser, learner.come(done / plan.total))
        now = rate * rate_factor(learning.schedule, done + more / 2, plan.total, learning.warmup)
        losses, norm = take_step(learner, optimiser, given.parts, learning.clip, now, seed, state.step)
        state.step += 1
        state.tokens += given.tokens
        state.flops += given.flops
        state.epoch, state.row = given.cursor.epoch, given.cursor.row
        yield Step(losses, norm, now, given.tokens)


def take_step(
    learner: Learner, optimiser: Optimizer, parts: Sequence[Batch], clip: float, rate: float, seed: int, step: int
) -> tuple[dict[str, tuple[float, int]], float]:
    """One step; the losses before it and the length of the gradient. Nothing is changed if one of them is infinite."""
    optimiser.zero_grad(set_to_none=True)
    losses = find_gradients(learner, parts, seed, step)
    norm = float(clip_grad_norm_(learner.parameters(), clip or math.inf))
    if not (math.isfinite(norm) and all(math.isfinite(total) for total, _ in losses.values())):
        raise TrainingError(f"the loss or its gradient is infinite in step {step + 1}")
    for group in optimiser.param_groups:
        group["lr"] = rate * group.get("scale", 1.0)
    optimiser.step()
    return losses, norm


def find_gradients(learner: Learner, parts: Sequence[Batch], seed: int, step: int) -> dict[str, tuple[float, int]]:
    """Adds the gradients of the mean losses over all parts: the same as if they were one. Returns sums and counts."""
    counts = {name: sum(map(one.count, parts)) for name, one in learner.objectives.items()}
    sums = dict.fromkeys(counts, 0.0)
    for number, part in enumerate(parts):
        losses = learner.losses(part, Noise(seed, step, number))
        share = torch.stack([losses[name].total / max(count, 1) for name, count in counts.items()]).sum()
        if share.requires_grad:
            share.backward()  # type: ignore[no-untyped-call]
        for name, loss in losses.items():
            sums[name] += float(loss.total.detach())
    return {name: (sums[name], counts[name]) for name in counts}


def measure_losses(learner: Learner, parts: Sequence[Batch]) -> dict[str, float]:
    """The mean loss of each objective on given batches, as in use."""
    sums: dict[str, list[float]] = {}
    with torch.no_grad():
        for part in parts:
            for name, loss in learner.losses(part, None).items():
                sums.setdefault(name, []).append(float(loss.total))
    counts = {name: sum(map(one.count, parts)) for name, one in learner.objectives.items()}
    return {name: float(np.sum(totals)) / counts[name] for name, totals in sums.items() if counts[name]}
