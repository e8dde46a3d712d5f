"""generate: a text is written for another by one network that sees the whole source and what it has written.

The source is known at once and the target token by token (prefix visibility, Dong et al. 2019): times, not another
network. A causal network tells at each token what comes next. A masked one has learnt to tell what stands at a mask,
and at any other place what stands there already, not what comes next. So it is asked by a mask that stands where the
next token will, and that no other place sees (Bao et al. 2020). `decode.py` has the same with two networks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, ClassVar, NamedTuple, Protocol, cast

import numpy as np
import torch
import torch.nn.functional as f
from torch import Tensor, nn

from firth.nets.batch import Batch, Loss
from firth.nets.network import Memory, Network, States, Vocabulary
from firth.nets.noise import Noise
from firth.nets.recipe import NetRecipe
from firth.tasks.bootstrap import Floats as Floats64
from firth.tasks.bootstrap import measured, sums_sample
from firth.tasks.examples import Example, GenerateExample
from firth.tasks.frame import Frame
from firth.tasks.metrics import measure
from firth.tasks.recipe import TaskRecipe
from firth.tasks.rows import GROUPS, PLACES, Numbers, Row, pack
from firth.tasks.solver import Answer
from firth.tasks.task import LABELS, Floats, Task, together
from firth.tokens.language import FIRST_WORD
from firth.tokens.tokenizer import EOS, MASK, UNK, Tokenizer

_TOGETHER = 32  # sources at most whose targets are written side by side
_REMEMBERED = 1 << 25  # numbers at most that are kept of all texts that are written side by side
_LENGTH_POWER = 0.6  # what the length of a text is raised to before its score is divided by it (Wu et al. 2016)


class Hypothesis(NamedTuple):
    """A text that is being written."""

    tokens: tuple[int, ...]
    score: float
    """The logarithm of its probability."""

    @property
    def rank(self) -> float:
        """What texts of different length are compared by."""
        return self.score / float(max(1, len(self.tokens)) ** _LENGTH_POWER)


class Writing(Protocol):
    """Texts that are written side by side, all equally long."""

    logs: Tensor
    """(texts, tokens): log-probabilities of what comes next."""

    def add(self, rows: Tensor, tokens: Tensor) -> None:
        """Goes on with some of the texts, perhaps several times, each with one more token."""


class NetWriting:
    """Texts of a network, which keeps what it has made of them and of their sources."""

    def __init__(self, network: Network, ids: Tensor, *, segment: int | None = None, **given: Any) -> None:
        """`ids` stand before each text; `given` is what else the network is told of them. A text has its `segment`."""
        self.network, self.segment, self.masks = network, segment, int(finds_masks(network.recipe))
        segments = None if segment is None else torch.zeros_like(ids)
        self._read(ids, None, segments, **given)

    def add(self, rows: Tensor, tokens: Tensor) -> None:
        ids = tokens[:, None]
        segments = None if self.segment is None else torch.full_like(ids, self.segment)
        self._read(ids, self.memory.pick(rows), segments)

    def _read(
        self, ids: Tensor, memory: Memory | None, segments: Tensor | None, times: Tensor | None = None, **given: Any
    ) -> None:
        """Reads on, and asks for what comes next; a mask that asks is forgotten again."""
        if self.masks:
            ids = f.pad(ids, (0, 1), value=MASK)
            segments = None if segments is None else f.pad(segments, (0, 1), value=self.segment or 0)
            times = None if times is None else f.pad(times, (0, 1), value=1)
        states, self.memory = self.network.extend(ids, memory, segments, times, passing=self.masks, **given)
        self.logs = self.network.output.log_probabilities(states[:, -1])


class Asking(NamedTuple):
    """What is asked for tokens."""

    states: Tensor
    previous: Tensor
    """The token before each of them."""
    owners: Tensor
    """The number of the target that each belongs to."""


class Generate(Task):
    """-log p(target | source), by the network's own output layer."""

    name: ClassVar[str] = "generate"
    writes: ClassVar[bool] = True

    def __init__(self, recipe: TaskRecipe, vocabulary: Vocabulary) -> None:
        nn.Module.__init__(self)
        self.recipe = recipe

    @property
    def longest(self) -> int:
        """Tokens of a target at most."""
        return int(self.recipe.longest)

    def rows(self, examples: Sequence[Example], frame: Frame) -> list[list[Row]]:
        pairs = cast(Sequence[GenerateExample], examples)
        sources = frame.encode([one.source for one in pairs])
        targets = frame.encode([one.target or "" for one in pairs])
        return [[self.row(source, target, frame)] for source, target in zip(sources, targets, strict=True)]

    def room(self, frame: Frame) -> int:
        """Tokens of a source at most."""
        return max(1, frame.room(2) - self.longest)

    def row(self, source: Numbers, target: Numbers, frame: Frame) -> Row:
        """A source and its target; both are cut so that there is room for them."""
        longest, room = self.longest, self.room(frame)
        frame.cut += source.size > room or target.size > longest
        ids, segments, (_, begin), _ = frame.row(source[:room], target[:longest])
        if finds_masks(self.recipe.network):
            return masked_row(ids, segments, begin)
        times = np.maximum(np.arange(ids.size) - begin + 2, 0)  # all of the source at once, then the delimiter
        return Row(ids, segments, times, {PLACES: np.arange(begin - 1, ids.size - 1), LABELS: ids[begin:]})

    def take_over(self, heads: Mapping[str, Tensor]) -> None:
        """There is no layer of its own."""

    def flops(self, batch: Batch) -> float:
        """Nothing stands beside the network."""
        return 0.0

    def places(self, batch: Batch) -> Tensor | None:
        return batch.marks[PLACES].sort().values

    def loss(self, network: Network, states: States, batch: Batch, noise: Noise | None) -> Loss:
        asking = self.asking(network, states, batch, noise)
        total = self.writer(network).output.loss(asking.states, batch.marks[LABELS], asking.previous, noise)
        return Loss(total, self.count(batch))

    def asking(self, network: Network, states: States, batch: Batch, noise: Noise | None = None) -> Asking:
        """What is asked for the tokens of the targets, one target after the other."""
        places = batch.marks[PLACES]
        return Asking(states.at(places), batch.ids.flatten()[places], batch.marks[GROUPS])

    def surprise(
        self, network: Network, examples: Sequence[Example], frame: Frame, seed: int = 0, samples: int = 1000
    ) -> dict[str, Any]:
        """Bits for each byte of the right targets, their ends included: the one scale of all language models."""
        nats, sizes = self.nats(network, cast(Sequence[GenerateExample], examples), frame)
        if not nats.size:
            return {}
        bits = np.column_stack([nats / math.log(2), sizes])
        sample = sums_sample(bits, lambda sums, _: {"bits_per_byte": sums[:, 0] / sums[:, 1]})
        return measured(sample, seed=seed, samples=samples)

    @torch.inference_mode()
    def nats(self, network: Network, pairs: Sequence[GenerateExample], frame: Frame) -> tuple[Floats64, Floats64]:
        """-log p(target | source) of examples whose targets are short enough to be written, and their bytes."""
        before = frame.cut
        lengths = [ids.size for ids in frame.encode([one.target or "" for one in pairs])]
        fit = [one for one, length in zip(pairs, lengths, strict=True) if one.target and length <= self.longest]
        readings, found = self.rows(fit, frame), np.zeros(len(fit))
        for group in together(readings):
            batch = pack([row for number in group for row in readings[number]], FIRST_WORD)
            asking = self.asking(network, network(batch, self.places(batch)), batch)
            logs = self.writer(network).output.log_probability(asking.states, batch.marks[LABELS])
            found[group] = -np.bincount(asking.owners.numpy(), logs.double().numpy(), minlength=len(group))
        frame.cut = before
        return found, np.array([float(len((one.target or "").encode())) for one in fit])

    def writer(self, network: Network) -> Network:
        """What writes."""
        return network

    def begin(self, network: Network, sources: Sequence[Numbers], frame: Frame) -> Writing:
        """A text without a token for each of some sources of the same length."""
        nothing = np.empty(0, dtype=np.int64)
        rows = [frame.row(source, nothing) for source in sources]
        begin = rows[0].begins[1]  # what follows the delimiter is to be written
        ids = torch.from_numpy(np.stack([row.ids[:begin] for row in rows]))
        times = torch.zeros(1, begin, dtype=torch.int64)
        times[0, -1] = not finds_masks(network.recipe)  # the delimiter asks, and sees all of the source
        return NetWriting(network, ids, times=times, segment=frame.marks.second if frame.segments else None)

    def solve(self, network: Network, examples: Sequence[Example], frame: Frame) -> list[Answer]:
        pairs = cast(Sequence[GenerateExample], examples)
        sources, room = frame.encode([one.source for one in pairs]), self.room(frame)
        frame.cut += sum(source.size > room for source in sources)
        sources = [source[:room] for source in sources]
        answers: list[Answer] = [{} for _ in pairs]
        for group in self._groups([source.size for source in sources], self.writer(network)):
            found = self.write(network, [sources[number] for number in group], frame)
            for number, best in zip(group, found, strict=True):
                text = written(frame.tokenizer, best.tokens)
                answers[number] = {"text": text, "logprob": best.score}
        return answers

    def _groups(self, sizes: Sequence[int], writer: Network) -> Iterator[list[int]]:
        """Numbers of sources of the same length, as many as memory is meant for."""
        recipe = writer.recipe.encoder
        for size, same in groupby(np.argsort(sizes, kind="stable").tolist(), key=lambda number: sizes[number]):
            each = 2 * recipe.width * max(1, recipe.layers) * self.recipe.beams * (size + self.longest)
            numbers, together = list(same), min(_TOGETHER, max(1, _REMEMBERED // each))
            yield from (numbers[begin : begin + together] for begin in range(0, len(numbers), together))

    @torch.inference_mode()
    def write(self, network: Network, sources: Sequence[Numbers], frame: Frame) -> list[Hypothesis]:
        """The best target of each source, by beam search; sources are equally long."""
        writing = self.begin(network, sources, frame)
        search = Search(len(sources), self.recipe.beams, self.recipe.once)
        for left in reversed(range(self.longest)):
            search.grow(only_words(writing.logs))
            if not search.going or not left:
                break
            writing.add(torch.tensor([row for row, _, _ in search.going]), search.last)
        return search.best

    def answer(self, example: Example, rows: Sequence[Row], scores: Sequence[Floats], frame: Frame) -> Answer:
        raise AssertionError("texts are written, not chosen")

    def measure(
        self, examples: Sequence[Example], answers: Sequence[Answer], seed: int = 0, samples: int = 1000
    ) -> dict[str, Any]:
        pairs = cast(Sequence[GenerateExample], examples)
        gold = [one.target or "" for one in pairs]
        return measure(
            "generate",
            gold,
            [one["text"] for one in answers],
            sources=[one.source for one in pairs],
            seed=seed,
            samples=samples,
        )


class Search:
    """The likeliest texts for several sources, found by going on with the `beams` likeliest of each length."""

    def __init__(self, sources: int, beams: int, once: int = 0) -> None:
        self.beams, self.once = beams, once
        self.going = [(number, number, Hypothesis((), 0.0)) for number in range(sources)]
        """Texts that go on: the row of what they were before, the number of their source, and what they are."""
        self.done: list[list[Hypothesis]] = [[] for _ in range(sources)]

    @property
    def last(self) -> Tensor:
        """The last token of each text that goes on."""
        return torch.tensor([one.tokens[-1] for _, _, one in self.going])

    @property
    def best(self) -> list[Hypothesis]:
        """The best text of each source, one that has ended if there is any."""
        going: list[list[Hypothesis]] = [[] for _ in self.done]
        for _, number, one in self.going:
            going[number].append(one)
        return [max(ended or some, key=lambda one: one.rank) for ended, some in zip(self.done, going, strict=True)]

    def grow(self, logs: Tensor) -> None:
        """Each text gets one more token by its row of log-probabilities; a source with enough ends is left alone."""
        grown: list[list[tuple[int, int, Hypothesis]]] = [[] for _ in self.done]
        for row, (_, _, one) in enumerate(self.going):
            logs[row, said_before(one.tokens, self.once)] = -torch.inf
        scores, tokens = (found.tolist() for found in logs.topk(min(self.beams + 1, logs.shape[1])))
        for row, (_, number, one) in enumerate(self.going):
            for score, token in zip(scores[row], tokens[row], strict=True):
                if score > -math.inf:
                    grown[number].append((row, number, Hypothesis((*one.tokens, token), one.score + score)))
        self.going = []
        for number, some in enumerate(grown):
            some.sort(key=lambda one: -one[2].score)
            self.done[number] += [one for _, _, one in some[: self.beams] if one.tokens[-1] == EOS]
            if len(self.done[number]) < self.beams:
                self.going += [one for one in some if one[2].tokens[-1] != EOS][: self.beams]


def said_before(tokens: Sequence[int], count: int) -> list[int]:
    """What may not come next, lest `count` tokens in a row stand in a text twice; nothing if `count` is 0.

    >>> said_before([7, 8, 9, 7, 8], 3), said_before([7, 7], 2), said_before([7, 8], 1), said_before([7, 8], 0)
    ([9], [7], [7, 8], [])
    """
    if not count:
        return []
    last = tuple(tokens[len(tokens) - count + 1 :])
    starts = range(len(tokens) - count + 1)
    return [tokens[at + count - 1] for at in starts if tuple(tokens[at : at + count - 1]) == last]


def finds_masks(recipe: NetRecipe) -> bool:
    """Whether a network has learnt to tell what stands at a mask, and not what comes after a token."""
    return recipe.encoder.kind == "transformer" and "mlm" in recipe.names


def masked_row(ids: Numbers, segments: Numbers | None, begin: int) -> Row:
    """Tokens with a target from `begin` on, and after them a mask for each token of it, which stands in its place.

    A mask sees itself and what is before its place, and nothing sees it. The end of the target is only asked for.

    >>> row = masked_row(np.array([2, 7, 3, 8, 9, 3]), None, 3)
    >>> row.ids.tolist(), row.unseen
    ([2, 7, 3, 8, 9, 4, 4, 4], 3)
    >>> row.positions.tolist(), row.times.tolist()
    ([0, 1, 2, 3, 4, 3, 4, 5], [0, 0, 0, 2, 4, 1, 3, 5])
    >>> row.marks["places"].tolist(), row.marks["labels"].tolist()
    ([5, 6, 7], [8, 9, 3])
    """
    places, labels = np.arange(begin, ids.size), ids[begin:]
    positions = np.concatenate([np.arange(ids.size - 1), places])
    times = np.concatenate([np.maximum(2 * (np.arange(ids.size - 1) - begin + 1), 0), 2 * (places - begin) + 1])
    return Row(
        ids=np.concatenate([ids[:-1], np.full_like(labels, MASK)]),
        segments=None if segments is None else segments[positions],
        times=times,
        marks={PLACES: ids.size - 1 + np.arange(labels.size), LABELS: labels},
        positions=positions,
        unseen=labels.size,
    )


def only_words(logs: Tensor) -> Tensor:
    """The same numbers, changed in place: no probability for what is neither a word of a text nor its end."""
    logs[:, [token for token in range(FIRST_WORD) if token != EOS]] = -torch.inf
    return logs


def written(tokenizer: Tokenizer, tokens: Sequence[int]) -> str:
    """Tokens as text, without the end and without unknown words."""
    return tokenizer.decode([token for token in tokens if token not in (EOS, UNK)])
