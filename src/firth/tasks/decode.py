"""generate with a decoder: one network reads the source, another writes and looks at what the first has made of it.

Both begin with what they have learnt from text, each from its own; only the attention from one to the other is new
(Vaswani et al. 2017; Ramachandran et al. 2017; Rothe et al. 2020).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, cast

import numpy as np
import torch
import torch.nn.functional as f
from torch import Tensor, nn

from firth.nets.batch import Batch
from firth.nets.model import own_tensors
from firth.nets.network import Network, States, Vocabulary
from firth.nets.noise import Noise
from firth.nets.recipe import NetRecipe
from firth.nets.scoring import longest
from firth.nets.visibility import Source, source_of
from firth.tasks.examples import Example, GenerateExample
from firth.tasks.frame import Frame
from firth.tasks.generate import Asking, Generate, NetWriting, Writing, finds_masks
from firth.tasks.head import spread
from firth.tasks.recipe import TaskRecipe
from firth.tasks.rows import GROUPS, PLACES, Numbers, Row, pack
from firth.tasks.task import LABELS
from firth.tokens.language import FIRST_WORD
from firth.tokens.tokenizer import BOS, EOS, MASK

_LENGTHS = "lengths"  # the mark with the number of tokens of each target, its end included


class Decode(Generate):
    """-log p(target | states of the source), by a decoder of its own."""

    writes: ClassVar[bool] = False

    def __init__(self, recipe: TaskRecipe, vocabulary: Vocabulary) -> None:
        nn.Module.__init__(self)
        assert recipe.decoder is not None
        self.recipe = recipe
        self.decoder = Network(recipe.decoder, vocabulary)

    def begin_with(self, network: Network) -> None:
        """Takes over what a network has learnt by itself; how it looks at a source is still to be learnt."""
        own = own_tensors(self.decoder)
        with torch.no_grad():
            for name, tensor in own_tensors(network).items():
                own[name].copy_(tensor)

    def rows(self, examples: Sequence[Example], frame: Frame) -> list[list[Row]]:
        pairs = cast(Sequence[GenerateExample], examples)
        sources = frame.encode([one.source for one in pairs])
        targets = frame.encode([one.target or "" for one in pairs])
        return [[self._pair(source, target, frame)] for source, target in zip(sources, targets, strict=True)]

    def _pair(self, source: Numbers, target: Numbers, frame: Frame) -> Row:
        """The source as the first network reads it; the target is kept in the marks, ready to be learnt."""
        frame.cut += source.size <= frame.room(1) and target.size > self.longest
        row = self._source(source, frame)
        labels = np.append(target[: self.longest], EOS)
        return Row(row.ids, row.segments, None, {**row.marks, LABELS: labels, _LENGTHS: np.array([labels.size])})

    def _source(self, source: Numbers, frame: Frame) -> Row:
        framed = frame.row(source)
        return Row(framed.ids, framed.segments, None, {PLACES: np.arange(framed.ids.size)})

    @property
    def longest(self) -> int:
        """As asked for, as far as the decoder has places; its first one is for what stands before a text."""
        asked, places = super().longest, longest(self.decoder.recipe)
        return asked if places is None else min(asked, places - 1)

    def asking(self, network: Network, states: States, batch: Batch, noise: Noise | None = None) -> Asking:
        labels, lengths = batch.marks[LABELS], batch.marks[_LENGTHS]
        owners = torch.arange(len(lengths)).repeat_interleave(lengths)
        targets, held = spread(labels, owners, len(lengths))
        entered = torch.full_like(targets, self.opening)  # then each token is told the one before
        entered[:, 1:] = targets[:, :-1]
        asking = f.pad(held, (held.shape[1], 0)) if finds_masks(self.decoder.recipe) else held
        found = self.decoder(self._batch(entered), _places(asking), noise, source_states(states, batch))
        return Asking(found.last, entered.flatten()[_places(held)], owners)

    @property
    def opening(self) -> int:
        """What stands before a text."""
        return BOS if finds_masks(self.decoder.recipe) else EOS

    def _batch(self, entered: Tensor) -> Batch:
        """What the decoder reads: texts behind their opening, then a mask in the place of each token to be found."""
        if not finds_masks(self.decoder.recipe):
            return Batch(ids=entered, starts=entered >= FIRST_WORD)
        rows, length = entered.shape
        ids = f.pad(entered, (0, length), value=MASK)
        order = torch.arange(length)
        return Batch(
            ids=ids,
            starts=ids >= FIRST_WORD,
            positions=torch.cat([order, order + 1]).expand(rows, -1),
            times=torch.cat([2 * order, 2 * order + 1])[None],
            unseen=torch.arange(2 * length)[None] >= length,
        )

    def room(self, frame: Frame) -> int:
        return frame.room(1)

    def writer(self, network: Network) -> Network:
        return self.decoder

    def begin(self, network: Network, sources: Sequence[Numbers], frame: Frame) -> Writing:
        batch = pack([self._source(one, frame) for one in sources], FIRST_WORD)
        read = source_states(network(batch, self.places(batch)), batch)
        return NetWriting(self.decoder, torch.full((len(sources), 1), self.opening), source=read)

    def flops(self, batch: Batch) -> float:
        """Those of the decoder without its look at the source."""
        lengths = batch.marks[_LENGTHS]
        asked = 1 + finds_masks(self.decoder.recipe)
        return float(lengths.sum()) * asked * self.decoder.work(int(lengths.max()))


def looking(recipe: NetRecipe, width: int) -> NetRecipe:
    """The recipe of a network that looks at states of that width, too."""
    return replace(recipe, encoder=replace(recipe.encoder, source=width))


def source_states(states: States, batch: Batch) -> Source:
    """What was made of each source, those of different length side by side."""
    groups = batch.marks[GROUPS]
    return source_of(*spread(states.at(batch.marks[PLACES]), groups, int(groups.max()) + 1))


def _places(held: Tensor) -> Tensor:
    """Numbers of the places that are held, row after row."""
    return held.flatten().nonzero()[:, 0]
