"""Generation against exhaustive search and step-by-step re-encoding."""

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

from firth.decoding.generate import DecoderState, Hypothesis
from firth.errors import RecipeError
from firth.fit.backbones import causal_network
from firth.nets.batch import Batch
from firth.nets.network import Vocabulary
from firth.nets.recipe import EncoderRecipe
from firth.nets.visibility import make_encoder_states
from firth.recipes.nets import albert, bert, gpt, gpt2, roberta
from firth.tasks.examples import GenerateExample
from firth.tasks.generate import EncoderDecoderTask, GenerateTask, masked_sequence, only_text, with_cross_attention
from firth.tasks.predictor import count_truncated
from firth.tasks.recipe import TaskRecipe
from firth.tasks.registry import make_task
from firth.tasks.sequences import InputSequence, SequenceBuilder, pack
from firth.tokens.tokenizer import BOS, EOS, FIRST_WORD, MASK
from tests.artifact.formats.small_transformers import model_of, small

WORDS = (FIRST_WORD, FIRST_WORD + 1, FIRST_WORD + 2)
MAX_LENGTH = 4


class Table(GenerateTask):
    """The next token depends on the source and the previous token alone."""

    def start(self, network: Any, sources: Sequence[Any], builder: Any) -> DecoderState:
        return TableState(len(sources))


class TableState:
    def __init__(self, sources: int) -> None:
        self.texts: list[tuple[int, tuple[int, ...]]] = [(number, ()) for number in range(sources)]
        self.log_probabilities = self._next()

    def append(self, rows: Tensor, tokens: Tensor) -> None:
        begun = [self.texts[row] for row in rows.tolist()]
        self.texts = [(number, (*text, token)) for (number, text), token in zip(begun, tokens.tolist(), strict=True)]
        self.log_probabilities = self._next()

    def _next(self) -> Tensor:
        return only_text(torch.stack([next_logprobs(number, tokens) for number, tokens in self.texts]))


def next_logprobs(source: int, tokens: tuple[int, ...]) -> Tensor:
    rng = np.random.default_rng([source, tokens[-1] if tokens else 0])
    return torch.from_numpy(rng.normal(size=FIRST_WORD + len(WORDS))).log_softmax(0)


def score(source: int, tokens: Sequence[int]) -> float:
    """The summed log-probabilities."""
    return sum(float(next_logprobs(source, tuple(tokens[:place]))[token]) for place, token in enumerate(tokens))


def every(source: int) -> list[Hypothesis]:
    """All finished texts."""
    texts = [(*some, EOS) for length in range(MAX_LENGTH) for some in itertools.product(WORDS, repeat=length)]
    return [Hypothesis(text, score(source, text)) for text in texts]


def generated(beams: int, sources: int, no_repeat_ngram: int = 0, max_length: int = MAX_LENGTH) -> list[Hypothesis]:
    vocabulary = Vocabulary([str(number) for number in range(8)], np.ones(8, dtype=np.int64))
    task = Table(
        TaskRecipe(task="generate", beams=beams, max_length=max_length, no_repeat_ngram=no_repeat_ngram), vocabulary
    )
    return task.generate(None, [np.zeros(1, dtype=np.int64)] * sources, None)  # type: ignore[arg-type]


def test_a_beam_that_holds_all_texts_finds_the_best() -> None:
    for source, found in enumerate(generated(beams=200, sources=20)):
        best = max(every(source), key=lambda one: one.rank(0.6))
        assert found.tokens == best.tokens
        assert found.score == pytest.approx(best.score, abs=1e-9)


def test_one_beam_takes_the_likeliest_token_each_time() -> None:
    for source, found in enumerate(generated(beams=1, sources=20)):
        tokens: tuple[int, ...] = ()
        while len(tokens) < MAX_LENGTH and EOS not in tokens:
            scores = next_logprobs(source, tokens)
            tokens = (*tokens, max((EOS, *WORDS), key=lambda token: float(scores[token])))
        assert found.tokens == tokens


def test_a_wider_beam_is_better_on_the_whole() -> None:
    narrow, wide = (sum(one.rank(0.6) for one in generated(beams, 40)) for beams in (1, 4))
    assert wide > narrow


@pytest.mark.parametrize("size", [1, 2, 3])
def test_no_ngram_is_repeated(size: int) -> None:
    def twice(text: tuple[int, ...]) -> bool:
        ngrams = [text[at : at + size] for at in range(len(text) - size + 1)]
        return len(set(ngrams)) < len(ngrams)

    found = generated(beams=3, sources=60, no_repeat_ngram=size, max_length=12)
    free = generated(beams=3, sources=60, max_length=12)
    assert not any(twice(one.tokens) for one in found)
    assert any(twice(one.tokens) for one in free), "the rule should have had something to do"
    for number, one in enumerate(found):
        assert one.score == pytest.approx(score(number, one.tokens), abs=1e-9)


SOURCES = ["the lazy dog", "a quick brown fox jumps", "dog", "the quick dog", "jumps over"]
NETS: dict[str, Any] = {"gpt": gpt, "gpt2": gpt2, "bert": bert, "roberta": roberta, "albert": albert}
DECODERS: dict[str, Any] = {"decoder": bert, "causal decoder": gpt}


def small_generator(name: str) -> tuple[Any, GenerateTask, SequenceBuilder]:
    """An untrained network and its generation task; with a decoder two networks."""
    if name == "lstm":
        recipe = replace(small(gpt()), encoder=EncoderRecipe(kind="lstm", layers=2, width=16, norm="none"))
        recipe = replace(recipe, embedding=replace(recipe.embedding, positions="none"))
    else:
        recipe = small(NETS.get(name, bert)())
    model = model_of(recipe) if name in DECODERS else causal_network(model_of(recipe))
    task = TaskRecipe(task="generate", network=model.recipe, beams=3, max_length=6)
    if name in DECODERS:
        task = replace(
            task, decoder=with_cross_attention(model_of(small(DECODERS[name]()), seed=2).recipe, model.recipe.width)
        )
    made = make_task(task, model.network.vocabulary)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter += 0.2 * torch.randn(parameter.shape, generator=generator)
    assert isinstance(made, GenerateTask)
    builder = SequenceBuilder(model.recipe, model.tokenizer)
    if name == "bert":  # as a tokenizer.json from elsewhere may ask for
        builder.special_tokens = builder.special_tokens._replace(second=1)
    return model.network.double(), made.double(), builder


@torch.no_grad()
def reencoded_score(
    network: Any,
    task: GenerateTask,
    source: str,
    tokens: Sequence[int],
    builder: SequenceBuilder,
    *,
    training: bool = False,
) -> float:
    """The log-probability of a text, whose prefix is encoded again for each token.

    In `training`, tokens that are never generated have probability, too.
    """
    (ids,) = builder.encode([source])
    decoder = task.decoder if isinstance(task, EncoderDecoderTask) else None
    writes = decoder or network
    asks = [MASK] if "mlm" in writes.recipe.names else []
    total = 0.0
    for number, token in enumerate(tokens):
        given = [*tokens[:number], *asks]
        if decoder is not None:
            batch = pack([InputSequence(builder.build(ids).ids, builder.build(ids).segment_ids)], FIRST_WORD)
            read = make_encoder_states(
                network(batch).last_hidden_state[None], torch.ones(1, batch.ids.shape[1], dtype=torch.bool)
            )
            row = torch.tensor([[BOS if asks else EOS, *given]])
            times = torch.arange(row.shape[1])[None]
            states = decoder(Batch(row, row >= FIRST_WORD, attention_order=times), None, None, read).last_hidden_state
        else:
            framed = builder.build(ids, np.empty(0, dtype=np.int64))
            begin = framed.begins[1]
            row = torch.tensor([[*framed.ids[:begin], *given]])
            times = torch.tensor([[0] * (begin - 1) + list(range(1, row.shape[1] - begin + 2))])
            if asks:  # the delimiter belongs to the source
                times = torch.tensor([[0] * begin + list(range(1, row.shape[1] - begin + 1))])
            segments = (torch.arange(row.shape[1])[None] >= begin).long() * builder.special_tokens.second
            states = network(
                Batch(row, row >= FIRST_WORD, attention_order=times, segment_ids=segments)
            ).last_hidden_state
        output = writes.output
        logs = output.logits(states).log_softmax(-1) if training else output.log_probabilities(states)
        total += float(logs[-1, token])
    return total


@torch.no_grad()
def training_score(
    network: Any, task: GenerateTask, source: str, tokens: Sequence[int], builder: SequenceBuilder
) -> float:
    """The same as in training: all tokens at once, packed with another example."""
    (ids,), (other,) = builder.encode([source]), builder.encode([SOURCES[1]])
    losses = []
    for rows in ([task.build(ids, np.array(tokens[:-1], dtype=np.int64), builder)], []):
        batch = pack([*rows, task.build(other, ids, builder), task.build(ids, other, builder)], FIRST_WORD)
        losses.append(float(task.loss(network, network(batch, task.positions(batch)), batch, None).total))
    return losses[1] - losses[0]


@pytest.mark.parametrize("name", [*NETS, "lstm", "decoder", "causal decoder"])
def test_decoding_agrees_with_training(name: str) -> None:
    network, task, builder = small_generator(name)
    answers = task.predict(network, [GenerateExample(one) for one in SOURCES], builder)
    for source, answer in zip(SOURCES, answers, strict=True):
        (ids,) = builder.encode([source])
        (found,) = task.generate(network, [ids], builder)
        assert found.score == pytest.approx(answer["logprob"], abs=1e-9)
        assert found.score == pytest.approx(reencoded_score(network, task, source, found.tokens, builder), abs=1e-9)
        target = (*found.tokens[: task.max_length - 1], EOS)
        assert training_score(network, task, source, target, builder) == pytest.approx(
            reencoded_score(network, task, source, target, builder, training=True), abs=1e-9
        )


@pytest.mark.parametrize("name", ["gpt", "bert", "lstm", "decoder", "causal decoder"])
def test_bits_of_the_right_texts(name: str) -> None:
    """Those of all tokens and the end; too long targets do not count."""
    network, task, builder = small_generator(name)
    pairs = [GenerateExample(SOURCES[0], "dog"), GenerateExample(SOURCES[1], "the fox"), GenerateExample("fox", "dog")]
    nats = 0.0
    for one in pairs:
        (ids,) = builder.encode([one.target or ""])
        nats -= reencoded_score(network, task, one.source, [*ids.tolist(), EOS], builder)
    found = task.nll_metrics(network, [*pairs, GenerateExample("dog", "the quick brown dog " * 9)], builder)
    assert found["bits_per_byte"] == pytest.approx(nats / math.log(2) / len("dogthe foxdog"), abs=1e-9)
    low, high = found["bits_per_byte_interval"]
    assert low <= found["bits_per_byte"] <= high
    assert task.nll_metrics(network, [GenerateExample("dog", "the quick brown dog " * 9)], builder) == {}


def test_a_masked_network_decodes_as_in_pretraining() -> None:
    """In one layer the mask of the last token finds what it would find in a row of BERT's own."""
    recipe = small(bert())
    model = model_of(replace(recipe, encoder=replace(recipe.encoder, layers=1)))
    network, builder = model.network.double(), SequenceBuilder(model.recipe, model.tokenizer)
    (source,), (target,) = builder.encode(["the lazy dog"]), builder.encode(["a quick brown fox"])
    ids, segments, (_, begin), _, _ = builder.build(source, target)
    assert ids.tolist() == [BOS, *source, EOS, *target, EOS]
    assert segments is not None
    assert segments.tolist() == [0] * begin + [1] * (target.size + 1)
    row = masked_sequence(ids, segments, begin)
    found = network(pack([row], FIRST_WORD), torch.tensor([row.ids.size - 1])).last_hidden_state
    plain = Batch(
        torch.tensor([[*ids[:-1], MASK]]), torch.ones(1, ids.size), segment_ids=torch.from_numpy(segments)[None]
    )
    assert torch.allclose(found, network(plain, torch.tensor([ids.size - 1])).last_hidden_state, atol=1e-12)


def test_a_source_that_is_too_long_is_counted() -> None:
    network, task, builder = small_generator("bert")
    found = task.predict(network, [GenerateExample("the lazy dog " * 20), GenerateExample("dog")], builder)
    assert ["truncated" in one for one in found] == [True, False]
    assert count_truncated(found) == 1


def test_what_cannot_be_searched_with_is_refused() -> None:
    for wrong in ({"beams": 0}, {"max_length": 0}, {"no_repeat_ngram": -1}):
        with pytest.raises(RecipeError, match=f"{next(iter(wrong))}=.* must be from"):
            TaskRecipe(task="generate", **wrong)  # type: ignore[arg-type]
