"""Fine-tuning in the training loop: batches of examples, and the learning rates of layers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from torch import Tensor

from firth.fit.batches import Cursor
from firth.fit.layer_rates import depths as depths
from firth.fit.layer_rates import groups_by_depth
from firth.fit.loop import TrainingModule
from firth.fit.optimisers import parameter_groups
from firth.nets.batch import Batch, Loss
from firth.nets.dropout import DropoutRng
from firth.nets.network import Network
from firth.objectives.heads.head import ObjectiveHead
from firth.tasks.recipe import GRADUAL, LAYERED, Mixing, TaskRecipe
from firth.tasks.sequences import InputSequence, Ints, count_text_tokens, pack
from firth.tasks.task import Task
from firth.tokens.tokenizer import FIRST_WORD

_MAX_TOKENS = 8_192  # approximate size of a micro-batch; gradients are accumulated
_MIXTURE = 0x31D4  # seed of the order of tasks
_ORDER = 0x7A5C  # seed of the order of examples, distinct from those of other random numbers


class TaskBatches:
    """Batches of examples, shuffled in each epoch and packed with little padding."""

    def __init__(
        self, examples: Sequence[Sequence[InputSequence]], recipe: TaskRecipe, seed: int, truncated: int = 0
    ) -> None:
        self.examples = [sequences for sequences in examples if sequences]
        self.recipe, self.seed = recipe, seed
        self.sizes = np.array([sum(one.ids.size for one in sequences) for sequences in self.examples])
        self.split = truncated
        self._order = lru_cache(maxsize=2)(self._shuffle)
        self.tokens = sum(count_text_tokens(one.ids) for sequences in self.examples for one in sequences)

    @property
    def has_known_words(self) -> bool:
        """Whether any token of the examples is in the vocabulary."""
        return any((one.ids >= FIRST_WORD).any() for sequences in self.examples for one in sequences)

    @property
    def steps(self) -> int:
        """Steps of an epoch."""
        return -(-len(self.examples) // self.recipe.learning.batch)

    def _shuffle(self, epoch: int) -> Ints:
        rng = np.random.Generator(np.random.SFC64([self.seed, epoch, _ORDER]))
        return rng.permutation(len(self.examples))

    def step(self, cursor: Cursor, length: int | None = None) -> tuple[list[Batch], Cursor]:
        """At least `learning.grad_accumulation` batches at a cursor, and the cursor of the next step."""
        learning = self.recipe.learning
        chosen = self._order(cursor.epoch)[cursor.row : cursor.row + learning.batch]
        needed = -(-int(self.sizes[chosen].sum()) // _MAX_TOKENS)
        parts = np.array_split(chosen, min(max(learning.grad_accumulation, needed), chosen.size))
        batches = [pack([one for index in part for one in self.examples[index]], FIRST_WORD) for part in parts]
        after = Cursor(cursor.epoch, cursor.row + learning.batch)
        return batches, after if after.row < len(self.examples) else Cursor(cursor.epoch + 1, 0)


class TaskMixture:
    """Batches of several tasks, of one task each, in a new order in each epoch.

    The order of tasks is a function of (seed, epoch). With the mixing `size` an epoch has every batch of every task
    once (Liu et al. 2019, algorithm 1). With `sqrt` or `equal` it has as many batches in all, divided by the square
    root of the numbers of batches or equally; a task goes on where it stopped in the epoch before, and begins anew
    after its last batch.
    """

    def __init__(
        self, tasks: Sequence[TaskBatches], objectives: Sequence[frozenset[str]], mixing: Mixing, seed: int
    ) -> None:
        """objectives: for each task the losses that its batches are for."""
        self.tasks, self.objectives, self.seed = tasks, objectives, seed
        self.sizes = [one.steps for one in tasks]
        self.shares = mixing_shares(self.sizes, mixing)
        fractions = (share / size for share, size in zip(self.shares, self.sizes, strict=True))
        self.tokens = round(sum(one.tokens * part for one, part in zip(tasks, fractions, strict=True)))
        self.split = sum(one.split for one in tasks)
        self._order = lru_cache(maxsize=2)(self._shuffle)

    def _shuffle(self, epoch: int) -> tuple[Ints, Ints]:
        """The task of each step of an epoch, and which of the task's batches in this epoch it is."""
        rng = np.random.Generator(np.random.SFC64([self.seed, epoch, _MIXTURE]))
        order = rng.permutation(np.repeat(np.arange(len(self.shares)), self.shares))
        number = np.empty_like(order)
        for task, share in enumerate(self.shares):
            number[order == task] = np.arange(share)
        return order, number

    def step(self, cursor: Cursor, length: int | None = None) -> tuple[list[Batch], Cursor]:
        """The batches of the step at a cursor, whose row counts the steps of an epoch, and the next cursor."""
        order, number = self._order(cursor.epoch)
        task = int(order[cursor.row])
        epoch, row = divmod(cursor.epoch * self.shares[task] + int(number[cursor.row]), self.sizes[task])
        own = self.tasks[task]
        batches, _ = own.step(Cursor(epoch, row * own.recipe.learning.batch))
        for batch in batches:
            batch.objectives = self.objectives[task]
        after = Cursor(cursor.epoch, cursor.row + 1)
        return batches, after if after.row < order.size else Cursor(cursor.epoch + 1, 0)


def mixing_shares(sizes: Sequence[int], mixing: Mixing) -> list[int]:
    """The number of batches of each task in an epoch.

    >>> [mixing_shares([90, 10], mixing) for mixing in ("size", "sqrt", "equal")]
    [[90, 10], [75, 25], [50, 50]]
    """
    power = {"size": 1.0, "sqrt": 0.5, "equal": 0.0}[mixing]
    weights = [size**power for size in sizes]
    return [max(1, round(sum(sizes) * weight / sum(weights))) for weight in weights]


class TaskTrainingModule(TrainingModule):
    """A network with its tasks, of which each batch is for one; the strategy decides which parameters are trained.

    full            all of them
    frozen          the head only
    features        the head only, which has an encoder of its own and may mix all layers
    discriminative  all, lower layers with lower rates: eta_l = eta_top * decay^(top - l) (Howard and Ruder 2018)
    gradual         the head, and in each epoch one more layer from the top (same)
    ulmfit          as gradual, after further pre-training (same)
    """

    def __init__(
        self, network: Network, tasks: Mapping[str, Task], recipe: Any, auxiliary: Mapping[str, ObjectiveHead]
    ) -> None:
        """tasks: by the names of their parameters. recipe: with `learning`, `strategy` and `layer_decay`."""
        super().__init__(network, {**tasks, **auxiliary})
        self.recipe = recipe
        self.depths = depths(network)
        self.top = max(self.depths.values(), default=0)
        self.is_frozen = recipe.strategy in ("frozen", "features")
        if self.is_frozen:
            network.requires_grad_(False)
            self.network_passes = 1

    def losses(self, batch: Batch, rng: DropoutRng | None) -> dict[str, Loss]:
        """The losses of a task and of an auxiliary language model; a frozen network has no dropout."""
        heads = self.active(batch)
        for head in heads:
            batch = head.rewrite(batch, self.network, rng)
        states = self.network(batch, self.needed_positions(heads, batch), None if self.is_frozen else rng)
        return {one.name: one.loss(self.network, states, batch, rng) for one in heads}

    def needed_positions(self, heads: Sequence[ObjectiveHead], batch: Batch) -> Tensor | None:
        """Those of a task; all with an auxiliary language model."""
        return None if len(heads) > 1 else heads[0].positions(batch)

    def on_progress(self, fraction: float) -> Iterable[Tensor]:
        """gradual, ulmfit: unfreeze one more layer in each epoch."""
        if self.recipe.strategy in GRADUAL:
            lowest = lowest_trainable_depth(fraction, self.top, self.recipe.learning.epochs)
            for name, parameter in self.network.named_parameters():
                parameter.requires_grad_(self.depths[name] >= lowest)
        return ()

    def groups(self) -> list[dict[str, Any]]:
        """Parameter groups for the optimiser, with a factor of the learning rate."""
        decay = self.recipe.learning.weight_decay
        found = parameter_groups(self.heads.parameters(), decay)
        if self.is_frozen:
            return found
        slower = self.recipe.layer_decay if self.recipe.strategy in LAYERED else 1.0
        named = [(self.depths[name], parameter) for name, parameter in self.network.named_parameters()]
        found += groups_by_depth(named, self.top + 1, slower, decay)
        return [group for group in found if group["params"]]


def lowest_trainable_depth(fraction: float, top: int, epochs: int) -> int:
    """The lowest depth that is trained after a fraction of the run: one more in each epoch.

    >>> [lowest_trainable_depth(fraction, 4, 5) for fraction in (0.0, 0.19, 0.2, 0.5, 0.99)]
    [5, 5, 4, 3, 1]
    """
    return max(0, top + 1 - int(fraction * max(epochs, 1) + 1e-9))
