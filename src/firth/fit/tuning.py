"""What fine-tuning adds to the loop that all nets share: batches of examples, and which layers learn how fast."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from torch import Tensor, nn

from firth.fit.batches import Cursor
from firth.fit.loop import BACKWARD, Learner
from firth.fit.optimisers import parameter_groups
from firth.nets.batch import Batch, Loss
from firth.nets.network import Network
from firth.nets.noise import Noise
from firth.objectives.objective import Objective
from firth.tasks.recipe import TaskRecipe
from firth.tasks.rows import Numbers, Row, pack
from firth.tasks.task import Task
from firth.tokens.language import FIRST_WORD

_TOGETHER = 8_192  # tokens at most, about, that are in memory together: the gradients of parts are added up
_ORDER = 0x7A5C  # what tells the order of examples from other random numbers


class TaskBatches:
    """The examples of a task, so many a step, in another order in each pass; packed, to have little padding."""

    def __init__(self, readings: Sequence[Sequence[Row]], recipe: TaskRecipe, seed: int) -> None:
        self.readings = [rows for rows in readings if rows]
        self.recipe, self.seed = recipe, seed
        self.sizes = np.array([sum(row.ids.size for row in rows) for rows in self.readings])
        self.split = 0
        self._order = lru_cache(maxsize=2)(self._shuffle)
        self.tokens = sum(int((row.ids >= FIRST_WORD).sum()) for rows in self.readings for row in rows)

    def _shuffle(self, epoch: int) -> Numbers:
        rng = np.random.Generator(np.random.SFC64([self.seed, epoch, _ORDER]))
        return rng.permutation(len(self.readings))

    def step(self, cursor: Cursor, length: int | None = None) -> tuple[list[Batch], Cursor]:
        """The examples of a step in `learning.accumulate` parts or more, and where the next begins."""
        learning = self.recipe.learning
        chosen = self._order(cursor.epoch)[cursor.row : cursor.row + learning.batch]
        needed = -(-int(self.sizes[chosen].sum()) // _TOGETHER)
        parts = np.array_split(chosen, min(max(learning.accumulate, needed), chosen.size))
        batches = [pack([row for one in part for row in self.readings[one]], FIRST_WORD) for part in parts]
        after = Cursor(cursor.epoch, cursor.row + learning.batch)
        return batches, after if after.row < len(self.readings) else Cursor(cursor.epoch + 1, 0)


class TaskLearner(Learner):
    """A network that learns a task, wholly or in part.

    full            everything learns
    frozen          the head alone
    features        the head alone, which has an encoder of its own and may mix all layers
    discriminative  everything, lower layers at lower rates: eta_l = eta_top * decay^(top - l) (Howard and Ruder 2018)
    gradual         the head, and in each pass one layer more from the top (same)
    """

    def __init__(self, network: Network, task: Task, recipe: TaskRecipe, more: dict[str, Objective]) -> None:
        super().__init__(network, {task.name: task, **more})
        self.recipe, self.task = recipe, task
        self.depths = depths(network)
        self.top = max(self.depths.values(), default=0)
        self.still = recipe.strategy in ("frozen", "features")
        if self.still:
            network.requires_grad_(False)

    def losses(self, batch: Batch, noise: Noise | None) -> dict[str, Loss]:
        """The loss of the task, and that of the language model beside it; a network that is still has no dropout."""
        places = None if len(self.heads) > 1 else self.task.places(batch)
        states = self.network(batch, places, None if self.still else noise)
        found = {}
        for name, one in self.objectives.items():
            loss = one.loss(self.network, states, batch, noise)
            weight = 1.0 if one is self.task else self.recipe.auxiliary
            found[name] = loss if weight == 1.0 else Loss(weight * loss.total, loss.count)
        return found

    def flops(self, batch: Batch) -> float:
        """Floating-point operations of a step; what would predict tokens does nothing unless it is asked."""
        network = super().flops(batch)
        if not self.task.writes and len(self.heads) == 1:
            places = self.task.places(batch)
            network -= BACKWARD * (batch.ids.numel() if places is None else len(places)) * self.network.output.work()
        return (network / BACKWARD if self.still else network) + BACKWARD * self.task.flops(batch)

    def come(self, share: float) -> Iterable[Tensor]:
        """gradual: layers thaw one after the other, the last one when the second half of the passes begins."""
        if self.recipe.strategy == "gradual":
            lowest = thawed(share, self.top, self.recipe.learning.epochs)
            for name, parameter in self.network.named_parameters():
                parameter.requires_grad_(self.depths[name] >= lowest)
        return ()

    def groups(self) -> list[dict[str, Any]]:
        """The parameters for the optimiser, with what the rate of each is multiplied by."""
        decay = self.recipe.learning.decay
        found = parameter_groups(self.heads.parameters(), decay)
        if self.still:
            return found
        by_depth: dict[int, list[Tensor]] = {}
        for name, parameter in self.network.named_parameters():
            by_depth.setdefault(self.depths[name], []).append(parameter)
        slower = self.recipe.layer_decay if self.recipe.strategy in ("discriminative", "gradual") else 1.0
        for depth, parameters in sorted(by_depth.items()):
            found += parameter_groups(parameters, decay, slower ** (self.top + 1 - depth))
        return [group for group in found if group["params"]]


def depths(network: nn.Module) -> dict[str, int]:
    """How high above the words each parameter of a network stands: 0 for what enters, then layer by layer."""
    found = {}
    for name, _ in network.named_parameters():
        parts = name.split(".")
        below = parts[0] == "embedding"
        found[name] = 0 if below else int(parts[parts.index("layers") + 1]) + 1 if "layers" in parts else -1
    top = max(found.values(), default=0)
    return {name: top if depth < 0 else depth for name, depth in found.items()}


def thawed(share: float, top: int, epochs: int) -> int:
    """The lowest depth that learns when so much is done: one more in each pass, and all from the last pass on.

    >>> [thawed(share, 4, 5) for share in (0.0, 0.19, 0.2, 0.5, 0.99)]
    [5, 5, 4, 3, 1]
    """
    return max(0, top + 1 - int(share * max(epochs, 1) + 1e-9))
