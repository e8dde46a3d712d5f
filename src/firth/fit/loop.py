"""The training loop of all networks.

Randomness in a step is a function of the seed and the step number, and batches are a function of their position in the
text, so a resumed run gives the same bits as an uninterrupted one.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import repeat
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer

from firth.cores import in_order
from firth.errors import TrainingError
from firth.fit.batches import Cursor
from firth.fit.memory_bank import MemoryBank
from firth.fit.staged import StagedSource
from firth.nets.batch import Batch, Loss
from firth.nets.dropout import DropoutRng
from firth.nets.model import own_tensors
from firth.nets.network import HiddenStates, Network, Vocabulary, build_network
from firth.nets.recipe import NetRecipe
from firth.objectives.heads.build import make_heads, union_positions
from firth.objectives.heads.head import ObjectiveHead
from firth.training import TrainingPlan, TrainingState, copy_arrays

PREFETCH = 3
"""Steps whose batches are built ahead."""
BACKWARD = 3
"""FLOPs of forward and backward together relative to forward alone."""
_SHORT = 4  # divisor of the sequence length in the short phase
T = TypeVar("T")


class TrainingModule(nn.Module):
    """A network with the heads of its training objectives; the layers of a head are `heads.NAME.*`."""

    def __init__(self, network: Network, heads: Mapping[str, ObjectiveHead]) -> None:
        super().__init__()
        self.network = network
        self.heads = nn.ModuleDict(heads)
        self.progress = 0.0
        """The fraction of the training that is done."""
        self.network_passes = BACKWARD
        """FLOPs of the network's passes relative to its forward pass."""
        self.memory = MemoryBank(network.recipe.memory.length)
        """The memories of the streams of text, if the network has one."""

    @property
    def objectives(self) -> list[ObjectiveHead]:
        """The heads of all objectives."""
        return [head for head in self.heads.values() if isinstance(head, ObjectiveHead)]

    def active(self, batch: Batch) -> list[ObjectiveHead]:
        """The heads of the objectives that a batch is for, and that are trained now."""
        given = batch.objectives
        named = (one for one in self.objectives if given is None or one.name in given)
        return [one for one in named if any(one.weights(self.progress).values())]

    def weights(self) -> dict[str, float]:
        """The factor of each mean loss."""
        return {name: weight for one in self.objectives for name, weight in one.weights(self.progress).items()}

    def counts(self, batch: Batch) -> dict[str, int]:
        """The number of predictions of each loss on a batch."""
        return {name: count for one in self.active(batch) for name, count in one.counts(batch).items()}

    def losses(self, batch: Batch, rng: DropoutRng | None) -> dict[str, Loss]:
        """The losses on a batch by name; in evaluation mode without an RNG for dropout."""
        active = self.active(batch)
        for head in active:
            batch = head.rewrite(batch, self.network, rng)
        positions = self.needed_positions(active, batch)
        if not active or (positions is not None and not len(positions)):
            return {name: Loss(torch.zeros(()), 0) for name in self.counts(batch)}
        states = self._hidden_states(batch, positions, rng)
        return {name: loss for one in active for name, loss in one.losses(self.network, states, batch, rng).items()}

    def _hidden_states(self, batch: Batch, positions: Tensor | None, rng: DropoutRng | None) -> HiddenStates:
        """The hidden states of a batch after the memory of the rows before, which is replaced."""
        if not self.memory.length or batch.offsets is None:
            return self.network(batch, positions, rng)  # type: ignore[no-any-return]
        before = self.memory.recall(batch.offsets)
        states: HiddenStates = self.network(batch, positions, rng, memory=before)
        self.memory.remember(batch.offsets, states.layers[: self.network.recipe.encoder.layers])
        return states

    @contextmanager
    def empty_memory(self) -> Iterator[None]:
        """A memory of its own, empty at first, for batches that are not those of the training."""
        kept, self.memory = self.memory, MemoryBank(self.memory.length)
        try:
            yield
        finally:
            self.memory = kept

    def on_progress(self, fraction: float) -> Iterable[Tensor]:
        """Called with the training progress; the parameters that were reinitialised, whose optimiser state is void."""
        self.progress = fraction
        return self.network.output.parameters() if self.network.output.update_structure(fraction) else ()

    def needed_positions(self, heads: Sequence[ObjectiveHead], batch: Batch) -> Tensor | None:
        """The positions of a batch whose last hidden states some objectives need; None: all."""
        return union_positions([head.positions(batch) for head in heads])

    def flops(self, batch: Batch) -> float:
        """Floating-point operations of a forward and backward pass over a batch."""
        begun = [one for one in self.objectives if one.begin <= batch.progress]
        named = [one for one in begun if batch.objectives is None or one.name in batch.objectives]
        positions, tokens = self.needed_positions(named, batch), batch.ids.numel()
        predicted = 1.0 if positions is None else len(positions) / tokens
        outputs = sum(one.output_count(batch) for one in named) / tokens
        source = 0 if batch.source is None else batch.source.shape[1]
        network = tokens * self.network.flops(batch.shape[1], predicted, source, outputs)
        return self.network_passes * network + BACKWARD * sum(one.flops(self.network, batch) for one in named)

    def expected_flops(self) -> float:
        """Floating-point operations of forward and backward per token of text, in batches without padding."""
        recipe, together = self.network.recipe, dict[str, list[ObjectiveHead]]()
        for one in self.objectives:
            key = one.name if one.objective.groups_sentences else f"all of {one.objective.source}"
            together.setdefault(key, []).append(one)
        lengths = {recipe.sequence.length: 1 - recipe.learning.short_phase}
        if recipe.learning.short_phase:
            lengths[short_length(recipe)] = recipe.learning.short_phase
        return sum(
            share * max(self._expected_flops(heads, length) for heads in together.values())
            for length, share in lengths.items()
        )

    def _expected_flops(self, heads: Sequence[ObjectiveHead], length: int) -> float:
        """The same for the objectives of one kind of batches."""
        recipe, network = self.network.recipe, self.network
        if sides := next((one.objective.sides for one in heads if one.objective.sides is not None), None):
            source, target = (max(1, round(side * length)) for side in sides)
            return BACKWARD * sides[1] * network.flops(target, 1.0, source, 1.0)
        counts = {one: one.expected_counts(length) for one in heads}
        predicted = min(1.0, sum(one.expected_positions(length) for one in heads))
        outputs = sum(counts[one][one.name] for one in heads if one.objective.needs_output)
        position = network.flops(length, predicted, length, outputs)
        position += sum(one.flops_per_token(network, length, counts[one]) for one in heads)
        positions = max(one.objective.copies for one in heads) / (1 if recipe.decoder is None else 2)
        return BACKWARD * position * positions

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """All parameters and buffers, each once, sharing their memory; and what is remembered of the text."""
        return {name: tensor.detach().numpy() for name, tensor in own_tensors(self).items()} | self.memory.arrays()

    def head_tensors(self) -> dict[str, Tensor]:
        """The tensors of the heads that an artifact keeps, `heads.NAME.*`, without those shared with the network."""
        kept = {f"heads.{one.name}.{name}" for one in self.objectives for name in one.saved_tensors()}
        return {name: tensor.detach() for name, tensor in own_tensors(self).items() if name in kept}

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Load what `arrays` returned."""
        self.memory.restore({})
        copy_arrays(arrays, self.arrays())
        self.memory.restore(arrays)


def short_length(recipe: NetRecipe) -> int:
    """The length of sequences in the short phase."""
    return max(recipe.sequence.length // _SHORT, 4)


def make_training_module(
    recipe: NetRecipe, vocabulary: Vocabulary, seed: int, vectors: npt.NDArray[np.float32] | None = None
) -> TrainingModule:
    """A new network with its objectives; the initial parameters depend on the seed and on initial embeddings."""
    network = build_network(recipe, vocabulary, seed, embedding_init=vectors)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed + 1)
        return TrainingModule(network, make_heads(recipe, network))


class BatchSource(Protocol):
    """A source of batches."""

    @property
    def tokens(self) -> int:
        """Tokens of an epoch."""

    @property
    def split(self) -> int:
        """Sentences or examples longer than the maximum sequence length."""

    def step(self, cursor: Cursor, length: int | None = None) -> tuple[list[Batch], Cursor]:
        """The batches of the step at a cursor, and the cursor of the next step."""


class StepBatches(NamedTuple):
    """The batches of a step."""

    parts: Sequence[Batch]
    cursor: Cursor
    """The position of the next step."""
    tokens: int
    flops: float


def step_batches(
    batches: BatchSource, module: TrainingModule, recipe: NetRecipe, plan: TrainingPlan, state: TrainingState
) -> Iterator[StepBatches]:
    """The batches of each step from a state on, without end."""
    cursor, done = Cursor(state.epoch, state.row), plan.amount(state)
    while True:
        short = done < plan.short
        source = batches.at(done / plan.total) if isinstance(batches, StagedSource) else batches
        parts, cursor = source.step(cursor, short_length(recipe) if short else None)
        made = StepBatches(parts, cursor, sum(part.tokens for part in parts), sum(map(module.flops, parts)))
        done += plan.amount(made)
        yield made


def prefetch(items: Iterator[T], depth: int) -> Generator[T]:
    """The items of an endless iterator, `depth` of them computed ahead by another thread.

    >>> import itertools
    >>> [number for number, _ in zip(prefetch(itertools.count(), 2), range(3))]
    [0, 1, 2]
    """
    return in_order(lambda _: next(items), repeat(None), 1, depth)


def optimizer_step(
    module: TrainingModule, optimiser: Optimizer, parts: Sequence[Batch], clip: float, lr: float, seed: int, step: int
) -> tuple[dict[str, tuple[float, int]], float]:
    """Update the parameters once; the losses and the gradient norm. Nothing changes if one of them is infinite."""
    optimiser.zero_grad(set_to_none=True)
    losses = backward(module, parts, seed, step)
    norm = float(clip_grad_norm_(module.parameters(), clip or math.inf))
    if not (math.isfinite(norm) and all(math.isfinite(total) for total, _ in losses.values())):
        raise TrainingError(f"the loss or its gradient is infinite in step {step + 1}")
    for group in optimiser.param_groups:
        group["lr"] = lr * group.get("scale", 1.0)
    optimiser.step()
    return losses, norm


def backward(module: TrainingModule, parts: Sequence[Batch], seed: int, step: int) -> dict[str, tuple[float, int]]:
    """Accumulate the gradients of the mean losses over all parts; the sum and count of each loss."""
    counts, weights = _total_counts(module, parts), module.weights()
    sums = dict.fromkeys(counts, 0.0)
    for number, part in enumerate(parts):
        losses = module.losses(part, DropoutRng(seed, step, number))
        if not losses:
            continue
        means = [weights[name] * (loss.total / max(counts[name], 1)) for name, loss in losses.items()]
        loss_sum = torch.stack(means).sum()
        if loss_sum.requires_grad:
            loss_sum.backward()  # type: ignore[no-untyped-call]
        for name, loss in losses.items():
            sums[name] += float(loss.total.detach())
    return {name: (sums[name], counts[name]) for name in counts}


def measure_losses(module: TrainingModule, parts: Sequence[Batch]) -> dict[str, float]:
    """The mean loss of each objective on given batches, in evaluation mode."""
    sums: dict[str, list[float]] = {}
    with torch.no_grad(), module.empty_memory():
        for part in parts:
            for name, loss in module.losses(part, None).items():
                sums.setdefault(name, []).append(float(loss.total))
    counts = _total_counts(module, parts)
    return {name: float(np.sum(totals)) / counts[name] for name, totals in sums.items() if counts[name]}


def _total_counts(module: TrainingModule, parts: Sequence[Batch]) -> dict[str, int]:
    """The number of predictions of each loss on all batches."""
    counts: dict[str, int] = {}
    for part in parts:
        for name, count in module.counts(part).items():
            counts[name] = counts.get(name, 0) + count
    return counts


def weighted_sum(losses: Mapping[str, float], weights: Mapping[str, float]) -> float:
    """The loss that is minimised, from the mean losses.

    >>> weighted_sum({"mlm": 2.0, "nsp": 0.5}, {"mlm": 1.0, "nsp": 2.0})
    3.0
    """
    return sum(weights[name] * loss for name, loss in losses.items())
