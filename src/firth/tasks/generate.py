"""generate: a text is written for another by one network that sees the whole source and what it has written.

The source is known at once and the target token by token (prefix visibility, Dong et al. 2019): times, not another
network. So whatever predicts tokens can learn it, BERT too. `decode.py` has the same with two networks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn

from firth.nets.batch import Batch, Loss
from firth.nets.network import Network, States, Vocabulary
from firth.nets.noise import Noise
from firth.tasks.examples import Example, GenerateExample
from firth.tasks.frame import Frame
from firth.tasks.metrics import measure
from firth.tasks.recipe import TaskRecipe
from firth.tasks.rows import PLACES, Numbers, Row, pack
from firth.tasks.solver import Answer
from firth.tasks.task import LABELS, Floats, Task
from firth.tokens.language import FIRST_WORD
from firth.tokens.tokenizer import EOS, UNK, Tokenizer

Follow = Callable[[Sequence[tuple[int, tuple[int, ...]]]], Tensor]
"""Log-probabilities (texts, tokens) of the next token of texts, given as the number of their source and their tokens so
far; those that are asked for at a time are equally long."""
_TOGETHER = 32  # sources whose targets are written side by side
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

    def row(self, source: Numbers, target: Numbers, frame: Frame, whole: bool = True) -> Row:
        """A source and its target, or what there is of it; both are cut so that there is room for them."""
        longest = self.longest
        room = max(1, frame.room(2) - longest)
        if whole:
            frame.cut += source.size > room or target.size > longest
        framed = frame.row(source[:room], target[:longest])
        ids = framed.ids if whole else framed.ids[:-1]
        begin = framed.begins[1]
        times = np.maximum(np.arange(ids.size) - begin + 2, 0)  # all of the source at once, then the delimiter
        segments = None if framed.segments is None else framed.segments[: ids.size]
        places = np.arange(begin - 1, ids.size - 1) if whole else np.array([ids.size - 1])
        marks = {PLACES: places, LABELS: ids[begin:]} if whole else {PLACES: places}
        return Row(ids, segments, times, marks)

    def take_over(self, heads: Mapping[str, Tensor]) -> None:
        """There is no layer of its own."""

    def places(self, batch: Batch) -> Tensor | None:
        return batch.marks[PLACES].sort().values

    def loss(self, network: Network, states: States, batch: Batch, noise: Noise | None) -> Loss:
        places = batch.marks[PLACES]
        previous = batch.ids.flatten()[places]
        total = network.output.loss(states.at(places), batch.marks[LABELS], previous, noise)
        return Loss(total, self.count(batch))

    def follow(self, network: Network, sources: Sequence[Numbers], frame: Frame) -> Follow:
        """What tells how texts for these sources may go on."""

        def ask(begun: Sequence[tuple[int, tuple[int, ...]]]) -> Tensor:
            texts = [(sources[number], np.array(tokens, dtype=np.int64)) for number, tokens in begun]
            batch = pack([self.row(*one, frame, whole=False) for one in texts], FIRST_WORD)
            places = batch.marks[PLACES]
            states = network(batch, places.sort().values)
            return network.output.log_probabilities(states.at(places))

        return ask

    def solve(self, network: Network, examples: Sequence[Example], frame: Frame) -> list[Answer]:
        pairs = cast(Sequence[GenerateExample], examples)
        sources = frame.encode([one.source for one in pairs])
        answers: list[Answer] = [{} for _ in pairs]
        order = np.argsort([source.size for source in sources], kind="stable").tolist()
        for begin in range(0, len(order), _TOGETHER):
            group = order[begin : begin + _TOGETHER]
            found = self.write(network, [sources[number] for number in group], frame)
            for number, best in zip(group, found, strict=True):
                text = written(frame.tokenizer, best.tokens)
                answers[number] = {"text": text, "logprob": best.score}
        return answers

    @torch.inference_mode()
    def write(self, network: Network, sources: Sequence[Numbers], frame: Frame) -> list[Hypothesis]:
        """The best target of each source, by beam search."""
        beams = self.recipe.beams
        ask = self.follow(network, sources, frame)
        open_: list[list[Hypothesis]] = [[Hypothesis((), 0.0)] for _ in sources]
        done: list[list[Hypothesis]] = [[] for _ in sources]
        for _ in range(self.longest):
            asked = [(number, one) for number, some in enumerate(open_) for one in some]
            if not asked:
                break
            logs = only_words(ask([(number, one.tokens) for number, one in asked]))
            grown: list[list[Hypothesis]] = [[] for _ in sources]
            best, tokens = logs.topk(min(beams + 1, logs.shape[1]))
            for (number, one), scores, ids in zip(asked, best.tolist(), tokens.tolist(), strict=True):
                grown[number] += [Hypothesis((*one.tokens, t), one.score + s) for s, t in zip(scores, ids, strict=True)]
            for number, some in enumerate(grown):
                some.sort(key=lambda one: -one.score)
                done[number] += [one for one in some[:beams] if one.tokens[-1] == EOS]
                kept = [one for one in some if one.tokens[-1] != EOS][:beams]
                enough = len(done[number]) >= beams
                open_[number] = [] if enough else kept
        return [max(ended or going, key=lambda one: one.rank) for ended, going in zip(done, open_, strict=True)]

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


def only_words(logs: Tensor) -> Tensor:
    """The same with no probability for what is neither a word of a text nor its end."""
    allowed = torch.arange(logs.shape[1]) >= FIRST_WORD
    allowed[EOS] = True
    return logs.masked_fill(~allowed, -torch.inf)


def written(tokenizer: Tokenizer, tokens: Sequence[int]) -> str:
    """Tokens as text, without the end and without unknown words."""
    return tokenizer.decode([token for token in tokens if token not in (EOS, UNK)])
