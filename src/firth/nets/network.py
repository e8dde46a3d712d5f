"""Network: embedding, encoders and output layer put together as a recipe says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from firth.nets.batch import Batch
from firth.nets.embedding import Embedding
from firth.nets.encoders.encoder import Encoder, make_encoder
from firth.nets.noise import Noise
from firth.nets.outputs.output import OutputLayer, make_output
from firth.nets.recipe import NetRecipe
from firth.nets.visibility import Source, View


class Vocabulary(NamedTuple):
    """What a network must know of its tokens."""

    tokens: Sequence[str]
    counts: npt.NDArray[np.int64]
    """How often each occurs in the text; an end of sentence for each sentence."""

    def __len__(self) -> int:
        return len(self.tokens)


class States(NamedTuple):
    """What a network makes of a batch."""

    layers: list[Tensor]
    """(rows, places, width) of every layer, the embedding first, directions side by side; without the last if places
    were asked for."""
    last: Tensor
    """(places, width): the last layer's states of the places that were asked for, or of all, row after row."""
    places: Tensor | None
    """Which places those are, in order; None for all."""

    def at(self, places: Tensor) -> Tensor:
        """The last states of some places, which must be among those that were asked for."""
        if self.places is None:
            return self.last[places]
        if torch.equal(places, self.places):
            return self.last
        return self.last[torch.searchsorted(self.places, places)]


@dataclass
class Memory:
    """What a causal network keeps of the tokens it has read, so that it can go on."""

    length: int
    tensors: list[Tensor]
    """Each with the rows first."""

    def pick(self, rows: Tensor) -> Memory:
        """The memory of some of the rows, perhaps several times: for beams."""
        if self.tensors and torch.equal(rows, torch.arange(len(self.tensors[0]), device=rows.device)):
            return self
        return Memory(self.length, [tensor.index_select(0, rows) for tensor in self.tensors])


class Network(nn.Module):
    """A recipe come true."""

    def __init__(self, recipe: NetRecipe, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.recipe = recipe
        self.vocabulary = vocabulary
        self.embedding = Embedding(recipe, vocabulary.tokens)
        self.encoders = nn.ModuleList(make_encoder(recipe) for _ in range(recipe.directions))
        self.output: OutputLayer = make_output(recipe, vocabulary.counts, self.embedding)

    @property
    def views(self) -> tuple[str, ...]:
        """What each encoder sees."""
        both = self.recipe.visibility == "forward+backward"
        return ("causal", "anticausal") if both else (self.recipe.visibility,)

    def forward(
        self, batch: Batch, places: Tensor | None = None, noise: Noise | None = None, source: Source | None = None
    ) -> States:
        """The states of a batch.

        With `places` (numbers of places, row after row, in order) the last layer's are made for those alone, which
        saves most of that layer's work. A decoder is given the `source` that each row looks at.
        """
        entered = self.embedding(batch.ids, batch.positions, batch.segments, noise=noise)
        rows, length = batch.shape
        found = []
        for name, encoder in zip(self.views, self._encoders(), strict=True):
            view = View(name, (rows, length), batch.parts, batch.times, noise, source, batch.unseen)
            found.append(encoder(entered, view, places))
        layers = [
            torch.cat(each, -1) if len(each) > 1 else each[0] for each in zip(*(f[0] for f in found), strict=True)
        ]
        last = torch.cat([f[1] for f in found], -1) if len(found) > 1 else found[0][1]
        return States(layers, last, places)

    def extend(
        self,
        ids: Tensor,
        memory: Memory | None = None,
        segments: Tensor | None = None,
        times: Tensor | None = None,
        source: Source | None = None,
        passing: int = 0,
    ) -> tuple[Tensor, Memory]:
        """(rows, new places, width): the last states of new tokens after those in the memory, and the new memory.

        New tokens with the same of `times` see one another, too. A decoder is given its `source` with the first ones.
        The last tokens may be `passing`: a Transformer forgets them again.
        """
        begun = memory or Memory(0, [])
        positions = torch.arange(begun.length, begun.length + ids.shape[1], device=ids.device)[None].expand_as(ids)
        entered = self.embedding(ids, positions, segments)
        view = View("causal", (ids.shape[0], ids.shape[1]), times=times, source=source, passing=passing)
        states, tensors = self._encoders()[0].extend(entered, begun.tensors, view)
        return states, Memory(begun.length + ids.shape[1] - passing, tensors)

    def _encoders(self) -> list[Encoder]:
        return [encoder for encoder in self.encoders if isinstance(encoder, Encoder)]

    def work(self, length: int, predicted: float = 1.0) -> float:
        """Floating-point operations of a forward pass for one token in rows of that length.

        `predicted` is the share of tokens whose last state and probability are needed.
        """
        encoders = sum(encoder.work(length, predicted) for encoder in self._encoders())
        return self.embedding.work() + encoders + predicted * self.output.work()


def build_network(
    recipe: NetRecipe,
    vocabulary: Vocabulary,
    seed: int,
    *,
    empty: bool = False,
    vectors: npt.NDArray[np.float32] | None = None,
) -> Network:
    """A new network; its first parameters depend on the seed alone. An `empty` one is to be given others.

    `vectors` has the directions in which the vectors of tokens begin, zeros for those that begin by chance.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = Network(recipe, vocabulary)
        if vectors is not None:
            network.embedding.begin_with(torch.from_numpy(vectors))
        if recipe.encoder.start == "neighbours" and not empty:
            import_module("firth.nets.neighbours").look_at_neighbours(network)
        return network
