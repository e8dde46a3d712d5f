"""DistillationHead: trains a network to have the outputs and the states of a teacher, which is not saved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal, Protocol

import torch
from torch import Tensor, nn

from firth.errors import RecipeError
from firth.fit.compress import losses
from firth.fit.compress.student import layer_map
from firth.nets.batch import Batch, Loss
from firth.nets.dropout import DropoutRng
from firth.nets.encoders.attention import split_heads
from firth.nets.encoders.transformer import Attention, Layer
from firth.nets.linear import make_linear
from firth.nets.network import HiddenStates, Network, Vocabulary
from firth.nets.objective import Objective
from firth.nets.recipe import NetRecipe
from firth.objectives.heads.build import union_positions
from firth.objectives.heads.head import ObjectiveHead
from firth.tasks.task import Task

TEACHER = "teacher"
"""The key of labels that are scores of the teacher."""
_BACKWARD = 3  # FLOPs of forward and backward relative to forward alone, as the trainer counts them


@dataclass(frozen=True, kw_only=True)
class Distillation(Objective):
    """The weights of the losses of distillation beside the loss of the labels, which has the weight 1."""

    name: ClassVar[str] = "distil"
    needs_output: ClassVar[bool] = False

    soft: float = 1.0
    """Soft labels."""
    temperature: float = 2.0
    hidden: float = 0.0
    """Hidden states of all layers, the embedding included."""
    hidden_loss: Literal["mse", "cosine"] = "mse"
    attention: float = 0.0
    """Attention scores of all layers (TinyBERT)."""
    relations: float = 0.0
    """Relations of queries, of keys and of values in the last layer (MiniLM v2)."""
    relation_heads: int = 0
    """Heads that vectors are split into for relations; 0: as many as the teacher has."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("soft", "hidden", "attention", "relations"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise RecipeError(f"{name}={getattr(self, name)} must be 0 or more.")
        if not 0 < self.temperature <= 100:
            raise RecipeError(f"temperature={self.temperature} must be above 0, such as 2.")
        if not self.soft + self.hidden + self.attention + self.relations:
            raise RecipeError("nothing is distilled: set soft, hidden, attention or relations above 0.")

    def build(self, recipe: NetRecipe, vocabulary: Vocabulary, network: Network) -> nn.Module:
        raise RecipeError("distil needs a teacher: use firth compress --method distil.")

    @property
    def reads_states(self) -> bool:
        """Whether the teacher must read every batch, and not each example once."""
        return self.hidden + self.attention + self.relations > 0


class SoftScores(Protocol):
    """The scores of a student and of its teacher for a batch."""

    needs_states: bool
    """Whether the teacher must read the batch."""

    def __call__(
        self, network: Network, states: HiddenStates, teacher: HiddenStates | None, batch: Batch, rng: DropoutRng | None
    ) -> tuple[Tensor, Tensor]:
        """Logits (predictions, outputs) of the student, and of the teacher."""


class TaskScores:
    """Scores of a task; those of the teacher are labels of the batch."""

    needs_states = False

    def __init__(self, task: Task) -> None:
        self.task = task

    def __call__(
        self, network: Network, states: HiddenStates, teacher: HiddenStates | None, batch: Batch, rng: DropoutRng | None
    ) -> tuple[Tensor, Tensor]:
        found = self.task.scores(states, batch, rng)
        return found, batch.labels[TEACHER].view_as(found)


class OutputScores:
    """Predictions of tokens, where the other objectives of a network have some."""

    needs_states = True

    def __init__(self, teacher: Network, heads: Sequence[ObjectiveHead]) -> None:
        self.teacher = teacher
        self.heads = [one for one in heads if one.objective.needs_output]

    def __call__(
        self, network: Network, states: HiddenStates, teacher: HiddenStates | None, batch: Batch, rng: DropoutRng | None
    ) -> tuple[Tensor, Tensor]:
        assert teacher is not None
        positions = union_positions([one.positions(batch) for one in self.heads])
        if positions is None:
            positions = _text_positions(batch)
        with torch.no_grad():
            wanted = self.teacher.output.logits(teacher.at(positions))
        return network.output.logits(states.at(positions)), wanted


class DistillationHead(ObjectiveHead):
    """The weighted sum of the losses of distillation. The teacher is no part of it: it is neither trained nor saved."""

    def __init__(
        self,
        objective: Distillation,
        student: Network,
        teacher: Network,
        scores: SoftScores,
        soft: Literal["kl", "mse"] = "kl",
    ) -> None:
        """soft: how scores are compared; mse for numbers and independent labels."""
        nn.Module.__init__(self)
        self.objective, self.name, self.settings = objective, objective.name, objective
        self._teacher = (teacher.eval(),)  # in a tuple, so that it is no sub-module
        self._scores, self._soft = (scores,), soft
        self.layers = layer_map(teacher.recipe.encoder.layers, student.recipe.encoder.layers)
        widths = (student.recipe.width, teacher.recipe.width)
        self.projection = make_linear(*widths) if objective.hidden and widths[0] != widths[1] else None
        self._captures: list[Capture] = []
        self._heads = objective.relation_heads or teacher.recipe.encoder.heads
        if objective.attention or objective.relations:
            self._captures = [Capture(one) for one in (student, teacher)]
        for width in widths if objective.relations else ():
            if width % self._heads:
                raise RecipeError(
                    f"a width of {width} cannot be split into {self._heads} relation heads: set relation_heads to a "
                    "divisor of both widths."
                )

    def remove_hooks(self) -> None:
        """Stop recording the queries, keys and values of both networks."""
        for capture in self._captures:
            capture.remove()

    def positions(self, batch: Batch) -> Tensor | None:
        """All: the states of the whole batch are compared."""
        return None

    def count(self, batch: Batch) -> int:
        return max(batch.tokens, 1)

    def loss(self, network: Network, states: HiddenStates, batch: Batch, rng: DropoutRng | None) -> Loss:
        return Loss(self.mean(network, states, batch, rng) * self.count(batch), self.count(batch))

    def mean(self, network: Network, states: HiddenStates, batch: Batch, rng: DropoutRng | None) -> Tensor:
        """The weighted sum of the mean losses."""
        settings, total = self.settings, states.last_hidden_state.new_zeros(())
        teacher: HiddenStates | None = None
        if settings.reads_states or (settings.soft and self._scores[0].needs_states):
            with torch.no_grad():
                teacher = self._teacher[0](batch)
        if settings.soft:
            student, wanted = self._scores[0](network, states, teacher, batch, rng)
            total = total + settings.soft * (
                losses.matched_scores(student, wanted)
                if self._soft == "mse"
                else losses.soft_labels(student, wanted, settings.temperature)
            )
        if settings.hidden and teacher is not None:
            total = total + settings.hidden * self._hidden_loss(states, teacher, batch)
        if self._captures:
            total = total + self._attention_loss(_visible(batch))
        return total

    def _hidden_loss(self, states: HiddenStates, teacher: HiddenStates, batch: Batch) -> Tensor:
        """The mean over layers."""
        compare = losses.hidden_mse if self.settings.hidden_loss == "mse" else losses.hidden_cosine
        chosen, found = _text_positions(batch), []
        for own, number in zip(states.layers, self.layers, strict=True):
            one, other = (each.flatten(0, 1)[chosen] for each in (own, teacher.layers[number]))
            one = one if self.projection is None else self.projection(one)
            if one.shape == other.shape:  # an embedding of another width is not compared
                found.append(compare(one, other))
        return torch.stack(found).mean()

    def _attention_loss(self, visible: Tensor) -> Tensor:
        """The losses of attention scores and of relations."""
        student, teacher = (capture.parts for capture in self._captures)
        total = visible.new_zeros((), dtype=torch.float32)
        if self.settings.attention:
            pairs = [(student[number], teacher[max(wanted - 1, 0)]) for number, wanted in enumerate(self.layers[1:])]
            found = [
                losses.attention_mse(
                    losses.attention_scores(own[0], own[1]), losses.attention_scores(other[0], other[1]), visible
                )
                for own, other in pairs
            ]
            total = total + self.settings.attention * torch.stack(found).mean()
        if self.settings.relations:
            for own, other in zip(student[max(student)], teacher[max(teacher)], strict=True):
                one, two = (each.transpose(1, 2).flatten(2) for each in (own, other))
                total = total + self.settings.relations * losses.relation_kl(one, two, visible, self._heads)
        return total

    def flops_per_token(self, network: Network, length: int, counts: Mapping[str, float]) -> float:
        """Those of the teacher's forward pass, which has no backward pass."""
        needs_teacher = self.settings.reads_states or self._scores[0].needs_states
        return self._teacher[0].flops(length) / _BACKWARD if needs_teacher else 0.0

    def expected_counts(self, length: int) -> dict[str, float]:
        return {self.name: 1.0}

    def output_count(self, batch: Batch) -> int:
        return 0

    def saved_tensors(self) -> dict[str, Tensor]:
        """None: it serves training alone."""
        return {}


class Capture:
    """Records the queries, keys and values of each layer of a Transformer in its last forward pass."""

    def __init__(self, network: Network) -> None:
        self.parts: dict[int, Tensor] = {}
        """(3, B, H, L, D) of each layer."""
        encoder = network.encoders[0]
        layers = [one for one in getattr(encoder, "layers", ()) if isinstance(one, Layer)]
        attentions = [one.attention for one in layers if hasattr(one, "attention")]
        if len(attentions) != network.recipe.encoder.layers or not all(type(one) is Attention for one in attentions):
            raise RecipeError(
                "attention scores and relations are of Transformers with absolute positions and layers of their own: "
                "set attention=0 and relations=0, and distil soft labels or hidden states."
            )
        # Bound methods, so that a copy of the network, as the preflight makes, records into a copy of this.
        self._hooks = [
            one.qkv.register_forward_hook(partial(self._record, number, one.heads))
            for number, one in enumerate(attentions)
        ]

    def _record(self, number: int, heads: int, module: nn.Module, inputs: Any, output: Tensor) -> None:
        self.parts[number] = split_heads(output, heads, 3)

    def remove(self) -> None:
        """Stop recording."""
        for hook in self._hooks:
            hook.remove()


def _text_positions(batch: Batch) -> Tensor:
    """The positions of the flattened batch that are no padding."""
    if batch.sequence_ids is None:
        return torch.arange(batch.ids.numel())
    return (batch.sequence_ids.flatten() >= 0).nonzero()[:, 0]


def _visible(batch: Batch) -> Tensor:
    """(B, L, L): pairs of tokens of the same sequence."""
    if batch.sequence_ids is None:
        return torch.ones(batch.shape[0], batch.shape[1], batch.shape[1], dtype=torch.bool)
    ids = batch.sequence_ids
    return (ids[:, :, None] == ids[:, None]) & (ids >= 0)[:, None]
