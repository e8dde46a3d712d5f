"""Writing: what beam search finds among all texts there are."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from firth.fit.backbones import writer
from firth.nets.batch import Batch
from firth.nets.network import Vocabulary
from firth.nets.recipe import EncoderRecipe
from firth.recipes.nets import albert, bert, gpt, gpt2, roberta
from firth.tasks.decode import Decode, looking, source_states
from firth.tasks.examples import GenerateExample
from firth.tasks.frame import Frame
from firth.tasks.generate import Generate, Hypothesis, Writing
from firth.tasks.recipe import TaskRecipe
from firth.tasks.rows import PLACES, Row, pack
from firth.tasks.task import make_task
from firth.tokens.language import FIRST_WORD
from firth.tokens.tokenizer import EOS
from tests.artifact.formats.small_transformers import model_of, small

WORDS = (FIRST_WORD, FIRST_WORD + 1, FIRST_WORD + 2)
LONGEST = 4


class Table(Generate):
    """What comes next depends on the source and the word before, and on nothing else."""

    def begin(self, network: Any, sources: Sequence[Any], frame: Any) -> Writing:
        return TableWriting(len(sources))


class TableWriting:
    def __init__(self, sources: int) -> None:
        self.texts: list[tuple[int, tuple[int, ...]]] = [(number, ()) for number in range(sources)]
        self.logs = self._look()

    def add(self, rows: Tensor, tokens: Tensor) -> None:
        begun = [self.texts[row] for row in rows.tolist()]
        self.texts = [(number, (*text, token)) for (number, text), token in zip(begun, tokens.tolist(), strict=True)]
        self.logs = self._look()

    def _look(self) -> Tensor:
        return torch.stack([chances(number, tokens) for number, tokens in self.texts])


def chances(source: int, tokens: tuple[int, ...]) -> Tensor:
    rng = np.random.default_rng([source, tokens[-1] if tokens else 0])
    return torch.from_numpy(rng.normal(size=FIRST_WORD + len(WORDS))).log_softmax(0)


def score(source: int, tokens: Sequence[int]) -> float:
    """The sum of the logarithms, each given what stands before it."""
    return sum(float(chances(source, tuple(tokens[:place]))[token]) for place, token in enumerate(tokens))


def every(source: int) -> list[Hypothesis]:
    """All texts that end."""
    texts = [(*some, EOS) for length in range(LONGEST) for some in itertools.product(WORDS, repeat=length)]
    return [Hypothesis(text, score(source, text)) for text in texts]


def written(beams: int, sources: int) -> list[Hypothesis]:
    vocabulary = Vocabulary([str(number) for number in range(8)], np.ones(8, dtype=np.int64))
    task = Table(TaskRecipe(task="generate", beams=beams, longest=LONGEST), vocabulary)
    return task.write(None, [np.zeros(1, dtype=np.int64)] * sources, None)  # type: ignore[arg-type]


def test_a_beam_that_holds_all_texts_finds_the_best() -> None:
    for source, found in enumerate(written(beams=200, sources=20)):
        best = max(every(source), key=lambda one: one.rank)
        assert found.tokens == best.tokens
        assert found.score == pytest.approx(best.score, abs=1e-9)


def test_one_beam_takes_the_likeliest_token_each_time() -> None:
    for source, found in enumerate(written(beams=1, sources=20)):
        tokens: tuple[int, ...] = ()
        while len(tokens) < LONGEST and EOS not in tokens:
            told = chances(source, tokens)
            tokens = (*tokens, max((EOS, *WORDS), key=lambda token: float(told[token])))
        assert found.tokens == tokens


def test_a_wider_beam_is_better_on_the_whole() -> None:
    narrow, wide = (sum(one.rank for one in written(beams, 40)) for beams in (1, 4))
    assert wide > narrow


SOURCES = ["the lazy dog", "a quick brown fox jumps", "dog", "the quick dog", "jumps over"]
NETS: dict[str, Any] = {"gpt": gpt, "gpt2": gpt2, "bert": bert, "roberta": roberta, "albert": albert}


def small_writer(name: str) -> tuple[Any, Generate, Frame]:
    """A network that is not taught anything, and what makes it write; `decoder` has two of them."""
    if name == "lstm":
        recipe = replace(small(gpt()), encoder=EncoderRecipe(kind="lstm", layers=2, width=16, norm="none"))
        recipe = replace(recipe, embedding=replace(recipe.embedding, positions="none"))
    else:
        recipe = small(NETS.get(name, bert)())
    model = model_of(recipe) if name == "decoder" else writer(model_of(recipe))
    task = TaskRecipe(task="generate", network=model.recipe, beams=3, longest=6)
    if name == "decoder":
        task = replace(task, decoder=looking(writer(model_of(small(bert()), seed=2)).recipe, model.recipe.width))
    made = make_task(task, model.network.vocabulary)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter += 0.2 * torch.randn(parameter.shape, generator=generator)
    assert isinstance(made, Generate)
    frame = Frame(model.recipe, model.tokenizer)
    if name == "bert":  # as a tokenizer.json from elsewhere may ask for
        frame.marks = frame.marks._replace(second=1)
    return model.network.double(), made.double(), frame


@torch.no_grad()
def taught(network: Any, task: Generate, source: str, tokens: Sequence[int], frame: Frame) -> float:
    """The logarithm of the probability of a text that is read at once, as it is when it is learnt, beside another."""
    pairs = [GenerateExample(source, "the dog"), GenerateExample(SOURCES[1], SOURCES[0])]
    row, other = (some[0] for some in task.rows(pairs, frame))
    if isinstance(task, Decode):
        batch = pack([row, other], FIRST_WORD)
        read = source_states(network(batch, task.places(batch)), batch)
        entered = torch.tensor([[EOS, *tokens[:-1]]] * 2)
        states = task.decoder(Batch(entered, entered >= FIRST_WORD), None, None, read).last[: len(tokens)]
        logs = task.decoder.output.log_probabilities(states)
    else:
        begin = row.marks[PLACES][0] + 1
        ids = np.append(row.ids[:begin], tokens[:-1])
        segments = (
            None if row.segments is None else np.append(row.segments[:begin], [frame.marks.second] * (len(tokens) - 1))
        )
        places = np.arange(begin - 1, ids.size)
        written = Row(ids, segments, np.maximum(np.arange(ids.size) - begin + 2, 0), {PLACES: places})
        batch = pack([written, Row(other.ids, other.segments, other.times)], FIRST_WORD)
        places = batch.marks[PLACES]
        logs = network.output.log_probabilities(network(batch, places).at(places))
    return float(logs[torch.arange(len(tokens)), torch.tensor(tokens)].sum())


@pytest.mark.parametrize("name", [*NETS, "lstm", "decoder"])
def test_what_is_written_token_by_token_is_what_would_be_learnt(name: str) -> None:
    network, task, frame = small_writer(name)
    answers = task.solve(network, [GenerateExample(one) for one in SOURCES], frame)
    for source, answer in zip(SOURCES, answers, strict=True):
        (ids,) = frame.encode([source])
        (found,) = task.write(network, [ids], frame)
        assert found.score == pytest.approx(answer["logprob"], abs=1e-9)
        assert found.score == pytest.approx(taught(network, task, source, found.tokens, frame), abs=1e-9)


def test_a_source_that_is_too_long_is_counted() -> None:
    network, task, frame = small_writer("bert")
    task.solve(network, [GenerateExample("the lazy dog " * 20), GenerateExample("dog")], frame)
    assert frame.cut == 1
