"""GPT-BERT and UniLM in use: exact scores from left to right, cached generation, masks from both sides."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from firth.abilities import Embeds, Fills, Generates, Scores
from firth.nets.hybrid import HybridNet
from firth.nets.scoring import make_batch
from firth.nets.unified import UnifiedNet
from firth.report.minimal_pairs import evaluate_pairs
from firth.tokens.tokenizer import BOS, EOS, FIRST_WORD, MASK, PAD
from tests.nets.small_nets import TEXTS, small_net

Net = HybridNet | UnifiedNet


@pytest.fixture(scope="module", params=["gpt-bert", "unilm"])
def model(request: pytest.FixtureRequest) -> Net:
    made = small_net(request.param, length=24)
    assert isinstance(made, HybridNet | UnifiedNet)
    made.network.double()
    return made


def next_logprobs(model: Net, before: list[int]) -> np.ndarray:
    """As in pre-training, with each token seeing those before it.

    GPT-BERT predicts from the last state of `[CLS] before`, UniLM from a mask after it, in segment 2.
    """
    ids = [BOS, *before, *([MASK] if isinstance(model, UnifiedNet) else [])]
    batch = make_batch(torch.tensor([ids]))
    batch.attention_order = torch.arange(len(ids))[None]
    if isinstance(model, UnifiedNet):
        batch.segment_ids = torch.full_like(batch.ids, 2)
    with torch.no_grad():
        state = model.network(batch, torch.tensor([len(ids) - 1])).last_hidden_state
        return np.asarray(model.network.output.log_probabilities(state)[0].numpy())


def test_scores_are_those_of_the_chain_rule(model: Net) -> None:
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


def test_generation_with_a_cache_is_that_without(model: Net) -> None:
    ids = model.history("The dog")
    (text,) = model.generate("The dog", length=8, temperature=0)
    for _ in range(8):
        logs = next_logprobs(model, list(ids))
        logs[[PAD, BOS, MASK]] = -np.inf
        ids = [*ids, int(logs.argmax())]
        if ids[-1] == EOS:
            break
    assert text == model.tokenizer.decode(ids)


def test_long_texts_use_windows_within_the_positions(model: Net) -> None:
    long = " ".join(TEXTS[:2] * 6)
    assert np.isfinite(model.score([long])[0].logprob)
    assert len(model.generate(long, length=30, temperature=0)) == 1


def test_masks_are_filled_from_both_sides(model: Net) -> None:
    words = TEXTS[0].split()
    one, other = (model.fill(" ".join(["[MASK]", *rest]))[0] for rest in (words[1:], [*words[1:-1], words[1]]))
    assert [each.probability for each in one] != [each.probability for each in other]


def test_pseudo_scores_mask_each_token(model: Net) -> None:
    ids = model.encode([TEXTS[0]])[0].tolist()
    expected = 0.0
    for position, token in enumerate(ids):
        row = [BOS, *ids[:position], MASK, *ids[position + 1 :], EOS]
        at = position + (0 if isinstance(model, HybridNet) else 1)  # GPT-BERT predicts one position early
        with torch.no_grad():
            state = model.network(make_batch(torch.tensor([row])), torch.tensor([at])).last_hidden_state
            expected += float(model.network.output.log_probabilities(state)[0, token])
    (score,) = model.pseudo_score([TEXTS[0]])
    assert score.logprob == pytest.approx(expected, abs=1e-5)
    assert (score.tokens, score.silent) == (len(ids), 1)


def test_minimal_pairs_are_compared_by_both_readings(model: Net, tmp_path: Path) -> None:
    pairs = [(one, other) for one in TEXTS for other in TEXTS if one != other]
    lines = [json.dumps({"good": good, "bad": bad}) for good, bad in pairs]
    (tmp_path / "pairs.jsonl").write_text("\n".join(lines), encoding="utf-8")
    report = evaluate_pairs(model, [tmp_path / "pairs.jsonl"])
    assert report["score"] == "log-probability + pseudo-log-likelihood"
    values = {text: model.score([text])[0].logprob + model.pseudo_score([text])[0].logprob for text in TEXTS}
    spelling = {text: 2 * model.score([text])[0].spelling for text in TEXTS}
    wins = [values[good] + spelling[good] > values[bad] + spelling[bad] for good, bad in pairs]
    assert report["accuracy"] == pytest.approx(np.mean(wins))


def test_abilities(model: Net) -> None:
    for ability in (Scores, Generates, Fills, Embeds):
        assert isinstance(model, ability)
    assert model.embed(TEXTS[:2]).shape == (2, 16)


@pytest.mark.parametrize("model", ["gpt-bert"], indirect=True)
def test_masks_are_filled_one_position_before_them(model: HybridNet) -> None:
    words = TEXTS[0].split()
    text = " ".join([words[0], "[MASK]", *words[2:]])
    (found,), (ids,) = model.fill(text, top=3), model.masked_ids([text])
    mask = ids.index(MASK) + 1
    with torch.no_grad():
        states = model.network(make_batch(torch.tensor([[BOS, *ids, EOS]])), torch.tensor([mask - 1]))
        expected = model.network.output.logits(states.last_hidden_state).softmax(-1)[0, FIRST_WORD:]
    assert [one.probability for one in found] == pytest.approx(expected.topk(3).values.tolist(), abs=1e-6)
    assert len(model.fill(f"[MASK] [MASK] {words[2]}", top=3)[0]) == 3
