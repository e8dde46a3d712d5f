"""UniLM in use: exact scores from left to right, cached generation, masks from both sides."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from firth.abilities import Embeds, Fills, Generates, Scores
from firth.nets.scoring import make_batch
from firth.nets.unified import UnifiedNet
from firth.tokens.tokenizer import BOS, EOS, MASK, PAD
from tests.nets.small_nets import TEXTS, small_net


@pytest.fixture(scope="module")
def model() -> UnifiedNet:
    made = small_net("unilm", length=24)
    assert isinstance(made, UnifiedNet)
    made.network.double()
    return made


def next_logprobs(model: UnifiedNet, before: list[int]) -> np.ndarray:
    """As in pre-training: a mask after `[CLS] before`, in segment 2, with each token seeing those before it."""
    batch = make_batch(torch.tensor([[BOS, *before, MASK]]))
    batch.attention_order = torch.arange(len(before) + 2)[None]
    batch.segment_ids = torch.full_like(batch.ids, 2)
    with torch.no_grad():
        state = model.network(batch, torch.tensor([len(before) + 1])).last_hidden_state
        return np.asarray(model.network.output.log_probabilities(state)[0].numpy())


def test_scores_are_those_of_masks_appended_one_by_one(model: UnifiedNet) -> None:
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


def test_generation_with_a_cache_is_that_without(model: UnifiedNet) -> None:
    ids = model.history("The dog")
    (text,) = model.generate("The dog", length=8, temperature=0)
    for _ in range(8):
        logs = next_logprobs(model, list(ids))
        logs[[PAD, BOS, MASK]] = -np.inf
        ids = [*ids, int(logs.argmax())]
        if ids[-1] == EOS:
            break
    assert text == model.tokenizer.decode(ids)


def test_long_texts_use_windows_within_the_positions(model: UnifiedNet) -> None:
    long = " ".join(TEXTS[:2] * 6)
    assert np.isfinite(model.score([long])[0].logprob)
    assert len(model.generate(long, length=30, temperature=0)) == 1


def test_masks_are_filled_from_both_sides(model: UnifiedNet) -> None:
    words = TEXTS[0].split()
    one, other = (model.fill(" ".join(["[MASK]", *rest]))[0] for rest in (words[1:], [*words[1:-1], words[1]]))
    assert [each.probability for each in one] != [each.probability for each in other]
    for ability in (Scores, Generates, Fills, Embeds):
        assert isinstance(model, ability)
    assert model.embed(TEXTS[:2]).shape == (2, 16)
