"""GPT-BERT in use: exact scores from left to right, cached generation, masks from both sides."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from firth.abilities import Embeds, Fills, Generates, Scores
from firth.nets.hybrid import HybridNet
from firth.nets.scoring import make_batch
from firth.tokens.tokenizer import BOS, EOS, FIRST_WORD, MASK, PAD
from tests.nets.small_nets import TEXTS, small_net


@pytest.fixture(scope="module")
def model() -> HybridNet:
    made = small_net("gpt-bert", length=24)
    assert isinstance(made, HybridNet)
    made.network.double()
    return made


def next_logprobs(model: HybridNet, before: list[int]) -> np.ndarray:
    """As in pre-training: the last state of `[CLS] before`, with each token seeing those before it."""
    batch = make_batch(torch.tensor([[BOS, *before]]))
    batch.attention_order = torch.arange(len(before) + 1)[None]
    with torch.no_grad():
        state = model.network(batch, torch.tensor([len(before)])).last_hidden_state
        return np.asarray(model.network.output.log_probabilities(state)[0].numpy())


def test_scores_are_those_of_the_chain_rule(model: HybridNet) -> None:
    ids = model.encode([TEXTS[0]])[0].tolist()
    expected = 0.0
    for position, token in enumerate([*ids, EOS]):
        logs = next_logprobs(model, ids[:position])
        assert np.exp(logs).sum() == pytest.approx(1, abs=1e-6)
        assert model.next_logprobs(ids[:position]) == pytest.approx(logs, abs=1e-5)
        expected += logs[token]
    (score,) = model.score([TEXTS[0]])
    assert score.logprob == pytest.approx(expected, abs=1e-5)
    assert score.tokens == len(ids) + 1
    assert model.score_kind == "causal"


def test_generation_with_a_cache_is_that_without(model: HybridNet) -> None:
    ids = model.history("The dog")
    (text,) = model.generate("The dog", length=8, temperature=0)
    for _ in range(8):
        logs = next_logprobs(model, list(ids))
        logs[[PAD, BOS, MASK]] = -np.inf
        ids = [*ids, int(logs.argmax())]
        if ids[-1] == EOS:
            break
    assert text == model.tokenizer.decode(ids)


def test_long_texts_use_windows_within_the_positions(model: HybridNet) -> None:
    long = " ".join(TEXTS[:2] * 6)
    assert np.isfinite(model.score([long])[0].logprob)
    assert len(model.generate(long, length=30, temperature=0)) == 1


def test_masks_are_filled_one_position_before_them_from_both_sides(model: HybridNet) -> None:
    words = TEXTS[0].split()
    (found,) = model.fill(" ".join([words[0], "[MASK]", *words[2:]]), top=3)
    (ids,) = model.masked_ids([" ".join([words[0], "[MASK]", *words[2:]])])
    mask = ids.index(MASK) + 1
    with torch.no_grad():
        states = model.network(make_batch(torch.tensor([[BOS, *ids, EOS]])), torch.tensor([mask - 1]))
        expected = model.network.output.logits(states.last_hidden_state).softmax(-1)[0, FIRST_WORD:]
    assert [one.probability for one in found] == pytest.approx(expected.topk(3).values.tolist(), abs=1e-6)
    (two, _) = model.fill(f"[MASK] [MASK] {words[2]}", top=3)
    assert len(two) == 3
    for ability in (Scores, Generates, Fills, Embeds):
        assert isinstance(model, ability)
    assert model.embed(TEXTS[:2]).shape == (2, 16)
