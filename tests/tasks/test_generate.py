"""Writing: what beam search finds among all texts there are."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from firth.errors import RecipeError
from firth.fit.backbones import writer
from firth.nets.batch import Batch
from firth.nets.network import Vocabulary
from firth.nets.recipe import EncoderRecipe
from firth.nets.visibility import source_of
from firth.recipes.nets import albert, bert, gpt, gpt2, roberta
from firth.tasks.decode import Decode, looking
from firth.tasks.examples import GenerateExample
from firth.tasks.frame import Frame
from firth.tasks.generate import Generate, Hypothesis, Writing, masked_row
from firth.tasks.recipe import TaskRecipe
from firth.tasks.rows import Row, pack
from firth.tasks.task import make_task
from firth.tokens.language import FIRST_WORD
from firth.tokens.tokenizer import BOS, EOS, MASK
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


def written(beams: int, sources: int, once: int = 0, longest: int = LONGEST) -> list[Hypothesis]:
    vocabulary = Vocabulary([str(number) for number in range(8)], np.ones(8, dtype=np.int64))
    task = Table(TaskRecipe(task="generate", beams=beams, longest=longest, once=once), vocabulary)
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


@pytest.mark.parametrize("once", [1, 2, 3])
def test_no_run_of_tokens_stands_in_a_text_twice(once: int) -> None:
    def twice(text: tuple[int, ...]) -> bool:
        runs = [text[at : at + once] for at in range(len(text) - once + 1)]
        return len(set(runs)) < len(runs)

    found = written(beams=3, sources=60, once=once, longest=12)
    free = written(beams=3, sources=60, longest=12)
    assert not any(twice(one.tokens) for one in found)
    assert any(twice(one.tokens) for one in free), "the rule should have had something to do"
    for number, one in enumerate(found):
        assert one.score == pytest.approx(score(number, one.tokens), abs=1e-9)


SOURCES = ["the lazy dog", "a quick brown fox jumps", "dog", "the quick dog", "jumps over"]
NETS: dict[str, Any] = {"gpt": gpt, "gpt2": gpt2, "bert": bert, "roberta": roberta, "albert": albert}
DECODERS: dict[str, Any] = {"decoder": bert, "causal decoder": gpt}


def small_writer(name: str) -> tuple[Any, Generate, Frame]:
    """A network that is not taught anything, and what makes it write; decoders have two of them."""
    if name == "lstm":
        recipe = replace(small(gpt()), encoder=EncoderRecipe(kind="lstm", layers=2, width=16, norm="none"))
        recipe = replace(recipe, embedding=replace(recipe.embedding, positions="none"))
    else:
        recipe = small(NETS.get(name, bert)())
    model = model_of(recipe) if name in DECODERS else writer(model_of(recipe))
    task = TaskRecipe(task="generate", network=model.recipe, beams=3, longest=6)
    if name in DECODERS:
        task = replace(task, decoder=looking(model_of(small(DECODERS[name]()), seed=2).recipe, model.recipe.width))
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
def read_anew(
    network: Any, task: Generate, source: str, tokens: Sequence[int], frame: Frame, *, learning: bool = False
) -> float:
    """The logarithm of the probability of a text, for each token of which all before it is read anew in a row.

    In `learning`, tokens that are never written have a share of the probability, too.
    """
    (ids,) = frame.encode([source])
    decoder = task.decoder if isinstance(task, Decode) else None
    writes = decoder or network
    asks = [MASK] if "mlm" in writes.recipe.names else []
    total = 0.0
    for number, token in enumerate(tokens):
        given = [*tokens[:number], *asks]
        if decoder is not None:
            batch = pack([Row(frame.row(ids).ids, frame.row(ids).segments)], FIRST_WORD)
            read = source_of(network(batch).last[None], torch.ones(1, batch.ids.shape[1], dtype=torch.bool))
            row = torch.tensor([[BOS if asks else EOS, *given]])
            times = torch.arange(row.shape[1])[None]
            states = decoder(Batch(row, row >= FIRST_WORD, times=times), None, None, read).last
        else:
            framed = frame.row(ids, np.empty(0, dtype=np.int64))
            begin = framed.begins[1]
            row = torch.tensor([[*framed.ids[:begin], *given]])
            times = torch.tensor([[0] * (begin - 1) + list(range(1, row.shape[1] - begin + 2))])
            if asks:  # the delimiter belongs to the source
                times = torch.tensor([[0] * begin + list(range(1, row.shape[1] - begin + 1))])
            segments = (torch.arange(row.shape[1])[None] >= begin).long() * frame.marks.second
            states = network(Batch(row, row >= FIRST_WORD, times=times, segments=segments)).last
        output = writes.output
        logs = output.logits(states).log_softmax(-1) if learning else output.log_probabilities(states)
        total += float(logs[-1, token])
    return total


@torch.no_grad()
def learnt(network: Any, task: Generate, source: str, tokens: Sequence[int], frame: Frame) -> float:
    """The same as it is learnt: all tokens at once, beside another example."""
    (ids,), (other,) = frame.encode([source]), frame.encode([SOURCES[1]])
    row = task._pair if isinstance(task, Decode) else task.row
    losses = []
    for rows in ([row(ids, np.array(tokens[:-1], dtype=np.int64), frame)], []):
        batch = pack([*rows, row(other, ids, frame), row(ids, other, frame)], FIRST_WORD)
        losses.append(float(task.loss(network, network(batch, task.places(batch)), batch, None).total))
    return losses[1] - losses[0]


@pytest.mark.parametrize("name", [*NETS, "lstm", "decoder", "causal decoder"])
def test_what_is_written_token_by_token_is_what_is_learnt(name: str) -> None:
    network, task, frame = small_writer(name)
    answers = task.solve(network, [GenerateExample(one) for one in SOURCES], frame)
    for source, answer in zip(SOURCES, answers, strict=True):
        (ids,) = frame.encode([source])
        (found,) = task.write(network, [ids], frame)
        assert found.score == pytest.approx(answer["logprob"], abs=1e-9)
        assert found.score == pytest.approx(read_anew(network, task, source, found.tokens, frame), abs=1e-9)
        told = (*found.tokens[: task.longest - 1], EOS)
        assert learnt(network, task, source, told, frame) == pytest.approx(
            read_anew(network, task, source, told, frame, learning=True), abs=1e-9
        )


@pytest.mark.parametrize("name", ["gpt", "bert", "lstm", "decoder", "causal decoder"])
def test_bits_of_the_right_texts(name: str) -> None:
    """Those of all tokens and the end; targets that are too long to be written do not count."""
    network, task, frame = small_writer(name)
    pairs = [GenerateExample(SOURCES[0], "dog"), GenerateExample(SOURCES[1], "the fox"), GenerateExample("fox", "dog")]
    nats = 0.0
    for one in pairs:
        (ids,) = frame.encode([one.target or ""])
        nats -= read_anew(network, task, one.source, [*ids.tolist(), EOS], frame)
    found = task.surprise(network, [*pairs, GenerateExample("dog", "the quick brown dog " * 9)], frame)
    assert found["bits_per_byte"] == pytest.approx(nats / math.log(2) / len("dogthe foxdog"), abs=1e-9)
    low, high = found["bits_per_byte_interval"]
    assert low <= found["bits_per_byte"] <= high
    assert frame.cut == 0
    assert task.surprise(network, [GenerateExample("dog", "the quick brown dog " * 9)], frame) == {}


def test_a_masked_network_writes_as_it_has_learnt_to_read() -> None:
    """In one layer the mask of the last token finds what it would find in a row of BERT's own."""
    recipe = small(bert())
    model = model_of(replace(recipe, encoder=replace(recipe.encoder, layers=1)))
    network, frame = model.network.double(), Frame(model.recipe, model.tokenizer)
    (source,), (target,) = frame.encode(["the lazy dog"]), frame.encode(["a quick brown fox"])
    ids, segments, (_, begin), _ = frame.row(source, target)
    assert ids.tolist() == [BOS, *source, EOS, *target, EOS]
    assert segments is not None
    assert segments.tolist() == [0] * begin + [1] * (target.size + 1)
    row = masked_row(ids, segments, begin)
    found = network(pack([row], FIRST_WORD), torch.tensor([row.ids.size - 1])).last
    plain = Batch(torch.tensor([[*ids[:-1], MASK]]), torch.ones(1, ids.size), segments=torch.from_numpy(segments)[None])
    assert torch.allclose(found, network(plain, torch.tensor([ids.size - 1])).last, atol=1e-12)


def test_a_source_that_is_too_long_is_counted() -> None:
    network, task, frame = small_writer("bert")
    task.solve(network, [GenerateExample("the lazy dog " * 20), GenerateExample("dog")], frame)
    assert frame.cut == 1


def test_what_cannot_be_searched_with_is_refused() -> None:
    for wrong in ({"beams": 0}, {"longest": 0}, {"once": -1}):
        with pytest.raises(RecipeError, match=f"{next(iter(wrong))}=.* must be from"):
            TaskRecipe(task="generate", **wrong)  # type: ignore[arg-type]
