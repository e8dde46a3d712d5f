"""Translating and scoring with small random networks."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from firth.abilities import Generates, Scores, ScoresPairs, Translates
from firth.errors import AbilityError, RecipeError
from firth.nets.batch import Batch
from firth.nets.outputs.softmax import LabelSmoothing, cross_entropy
from firth.nets.seq2seq import Seq2SeqNet
from firth.objectives.heads.seq2seq import next_tokens
from firth.objectives.seq2seq import SequenceToSequence
from firth.recipes.nets import transformer
from firth.recipes.table import find_recipe
from firth.recipes.values import override
from firth.tokens.tokenizer import BOS, EOS
from tests.nets.small_nets import small_net
from tests.samples import CHINESE, ENGLISH

PAIRS = list(zip(ENGLISH, CHINESE, strict=True))


def model() -> Seq2SeqNet:
    found = small_net("transformer", length=40)
    assert isinstance(found, Seq2SeqNet)
    return found


def test_abilities() -> None:
    one = model()
    assert isinstance(one, Translates)
    assert isinstance(one, ScoresPairs)
    assert not isinstance(one, Scores)
    assert not isinstance(one, Generates)


def test_scores_are_sums_of_log_probabilities() -> None:
    one = model()
    for (source, target), score in zip(PAIRS, one.score_pairs(PAIRS), strict=True):
        read, ids = (one.encode([text])[0].tolist() for text in (source, target))
        logits = one.logits(torch.tensor([[EOS, *ids]]), torch.tensor([[BOS, *read, EOS]]))[0].double()
        logits[:, [0, 2, 4]] = -torch.inf  # never predicted
        logs = logits.log_softmax(-1)[torch.arange(len(ids) + 1), torch.tensor([*ids, EOS])]
        assert score.logprob == pytest.approx(float(logs.sum()), rel=1e-5)
        assert (score.tokens, score.bytes, score.sentences) == (len(ids) + 1, len(target.encode()), 1)
    alone = [next(one.score_pairs([pair])) for pair in PAIRS]
    for first, second in zip(alone, one.score_pairs(PAIRS), strict=True):
        assert first.logprob == pytest.approx(second.logprob, rel=1e-5)
    blank = list(one.score_pairs([("a", " "), PAIRS[0]]))
    assert blank[0].tokens == 0
    assert blank[1].logprob == pytest.approx(alone[0].logprob, rel=1e-5)


@pytest.mark.parametrize("beams", [1, 3])
def test_the_log_probability_of_a_translation_is_its_score(beams: int) -> None:
    one = model()
    sources = [*ENGLISH, "", CHINESE[0]]
    made = one.translate(sources, beams=beams, length=8)
    assert made[3].text == ""
    for source, found in zip(sources, made, strict=True):
        assert found.finished or found.tokens == 8
        if source:
            (again,) = one.translate([source], beams=beams, length=8)
            assert again.text == found.text, "the other sources make a difference"
            assert again.logprob == pytest.approx(found.logprob, rel=1e-4)
    assert all(found.logprob < 0 for found, source in zip(made, sources, strict=True) if source)


def test_more_beams_find_more_probable_texts() -> None:
    one = model()
    few, many = (one.translate(ENGLISH, beams=beams, length=6, length_penalty=0.0) for beams in (1, 6))
    assert sum(found.logprob for found in many) >= sum(found.logprob for found in few)


def test_decoding_that_never_ends_stops_at_the_limit() -> None:
    one = model()
    with torch.no_grad():
        one.network.embedding.table[EOS] = 0.0
        one.network.embedding.table[5:] += 3.0  # every word is more probable than the end, or less, by its state
    for found in one.translate(ENGLISH, beams=2):
        assert found.tokens <= 39
        assert found.finished == (found.tokens < 39) or found.tokens == 39
    short = one.translate(ENGLISH, beams=1, length=2)
    assert all(found.tokens <= 2 for found in short)
    with pytest.raises(RecipeError, match="length=40 must be from 1 to 39"):
        one.translate(ENGLISH, length=40)
    with pytest.raises(RecipeError, match="beams=0 must be 1 or more"):
        one.translate(ENGLISH, beams=0)


def test_embeddings_are_those_of_the_encoder() -> None:
    one = model()
    before = one.embed(ENGLISH)
    with torch.no_grad():
        for parameter in one.network.decoder.parameters():  # type: ignore[union-attr]
            parameter.zero_()
    assert np.array_equal(one.embed(ENGLISH), before)
    with pytest.raises(AbilityError, match="depend on its source"):
        one.logits(torch.tensor([[EOS]]))


def test_targets_are_the_next_tokens_and_the_end() -> None:
    """By hand: two sequences fill the first row, one and padding the second."""
    ids = torch.tensor([[EOS, 7, 8, EOS, 9], [EOS, 10, 11, 0, 0]])
    sequence_ids = torch.tensor([[0, 0, 0, 1, 1], [0, 0, 0, -1, -1]])
    found = next_tokens(Batch(ids, ids > 0, sequence_ids))
    assert found[0].tolist() == [7, 8, EOS, 9, EOS]
    assert found[1, :3].tolist() == [10, 11, EOS]
    assert next_tokens(Batch(ids[:1], ids[:1] > 0))[0].tolist() == [7, 8, EOS, 9, EOS]


@pytest.mark.parametrize("smoothed", ["all", "others"])
def test_smoothed_labels_by_hand(smoothed: str) -> None:
    """Six tokens: the loss is the cross-entropy with q, and the gradient of the scores p - q."""
    rate, tokens = 0.1, 6
    make = LabelSmoothing.over_all if smoothed == "all" else LabelSmoothing.over_others
    q = np.full(tokens, rate / tokens if smoothed == "all" else rate / (tokens - 1))
    q[2] = 1 - rate + (rate / tokens if smoothed == "all" else 0.0)
    assert q.sum() == pytest.approx(1)
    scores = np.array([0.5, -1.0, 2.0, 0.0, 0.3, 1.0])
    p = np.exp(scores) / np.exp(scores).sum()
    weight = torch.from_numpy(scores)[:, None].clone().requires_grad_()
    states = torch.ones((1, 1), dtype=torch.float64, requires_grad=True)
    loss = cross_entropy(states, weight, None, torch.tensor([2]), smoothing=make(rate, tokens))
    assert loss.item() == pytest.approx(-(q * np.log(p)).sum())
    loss.backward()
    np.testing.assert_allclose(weight.grad[:, 0], p - q, atol=1e-12)  # type: ignore[index]
    np.testing.assert_allclose(states.grad[0, 0], scores @ (p - q), atol=1e-12)  # type: ignore[index]
    assert math.isclose(make(rate, tokens).target + tokens * make(rate, tokens).every, 1.0)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("decoder.width=256", "encoder.width=512 and decoder.width=256 must be equal"),
        ("decoder.cross_width=7", "must be the encoder's width"),
        ("decoder.kind=lstm", "are Transformers"),
        ("sequence.format=sentences", "sequence.format=parallel"),
        ("output.kind=nce", "seq2seq.label_smoothing=0"),
        ("visibility=causal", "visibility=bidirectional"),
        ("seq2seq.label_smoothing=1", "from 0 to 1"),
    ],
)
def test_contradictions_name_both_parts(setting: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        override(transformer(), [setting])


def test_other_recipes_have_no_decoder() -> None:
    with pytest.raises(RecipeError, match="the recipe has none"):
        replace(find_recipe("bert"), objectives=(SequenceToSequence(),))  # type: ignore[type-var]
