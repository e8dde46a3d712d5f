"""Networks of permutation language modelling in use: probabilities, orders, cached generation, fillings."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from firth.abilities import Embeds, Fills, Generates, Scores, ScoresBackwards
from firth.errors import ArgumentError
from firth.nets.permutation import ORDERS, PermutationNet
from firth.nets.scoring import make_batch
from firth.tokens.tokenizer import BOS, EOS, FIRST_WORD, MASK, PAD
from tests.nets.small_nets import TEXTS, small_net


@pytest.fixture(scope="module")
def model() -> PermutationNet:
    made = small_net("xlnet", length=40)
    assert isinstance(made, PermutationNet)
    made.network.double()
    return made


def logprobs_of(model: PermutationNet, ids: list[int], order: list[int]) -> list[float]:
    """log p of each token but the first, each by a forward pass of its own."""
    found = []
    for position in range(1, len(ids)):
        known = [token if order[at] < order[position] else MASK for at, token in enumerate(ids)]
        batch = make_batch(torch.tensor([known]))
        batch.is_query, batch.attention_order = True, torch.tensor([order])
        with torch.no_grad():
            state = model.network(batch, torch.tensor([position])).last_hidden_state
            found.append(float(model.network.output.log_probabilities(state)[0, ids[position]]))
    return found


def test_scores_are_those_of_one_token_after_the_other(model: PermutationNet) -> None:
    text = TEXTS[0]
    ids = [EOS, *model.encode([text])[0].tolist(), EOS]
    forwards = logprobs_of(model, ids, list(range(len(ids))))
    assert model.score([text])[0].logprob == pytest.approx(sum(forwards), abs=1e-5)
    assert model.score_kind == "causal"
    history: list[int] = []
    for token, expected in zip(ids[1:], forwards, strict=True):
        logs = model.next_logprobs(history)
        assert np.exp(logs).sum() == pytest.approx(1, abs=1e-5)
        assert logs[token] == pytest.approx(expected, abs=1e-5)
        history.append(token)
    turned = ids[::-1]
    backwards = 0.0
    for position in range(1, len(turned)):
        known = torch.tensor([turned[: position + 1][::-1]])
        batch = make_batch(known)
        batch.is_query, batch.attention_order = True, torch.arange(known.shape[1]).flip(0)[None]
        with torch.no_grad():
            state = model.network(batch, torch.tensor([0])).last_hidden_state
            backwards += float(model.network.output.log_probabilities(state)[0, turned[position]])
    assert model.score_in_order([text], "right-to-left")[0].logprob == pytest.approx(backwards, abs=1e-5)
    rank = np.random.default_rng([5, 0]).permutation(len(ids) - 1) + 1
    expected_sum = sum(logprobs_of(model, ids, [0, *rank.tolist()]))
    assert model.score_in_order([text], "random", seed=5)[0].logprob == pytest.approx(expected_sum, abs=1e-5)
    assert len({round(model.score_in_order([text], "random", seed=seed)[0].logprob, 6) for seed in range(3)}) == 3


def test_probabilities_of_all_texts_of_a_length_sum_to_one_in_every_order() -> None:
    """p(x1, x2) over all pairs of tokens, for a fixed order: what makes the scores probabilities."""
    model = small_net("xlnet")
    assert isinstance(model, PermutationNet)
    tokens = len(model.words)
    pairs = torch.cartesian_prod(torch.arange(tokens), torch.arange(tokens))
    for order in ([0, 1, 2], [0, 2, 1]):
        ids = torch.cat([torch.full((len(pairs), 1), EOS), pairs], 1)
        batch = make_batch(ids)
        batch.is_query, batch.attention_order = True, torch.tensor([order])
        positions = torch.arange(ids.numel()).view(-1, 3)[:, 1:].flatten()
        with torch.no_grad():
            states = model.network(batch, positions).last_hidden_state
            logs = model.network.output.log_probability(states, pairs.flatten()).view(-1, 2)
        assert float(logs.double().sum(1).exp().sum()) == pytest.approx(1, abs=1e-4)


def test_texts_are_independent_and_windows_are_used(model: PermutationNet) -> None:
    together = [one.logprob for one in model.score(TEXTS)]
    alone = [model.score([text])[0].logprob for text in TEXTS]
    assert together == pytest.approx(alone, abs=1e-6)
    long = " ".join(TEXTS[:2] * 8)
    for order in ORDERS:
        score = model.score_in_order([long], order)[0]
        assert np.isfinite(score.logprob)
        assert score.tokens > 80
    assert model.score_in_order([""], "random")[0].logprob == 0
    with pytest.raises(ArgumentError, match="right-to-left"):
        model.score_in_order(TEXTS, "right-to-lef")  # type: ignore[arg-type]


def test_generation_with_a_cache_is_that_without(model: PermutationNet) -> None:
    history = model.history("The dog")
    (text,) = model.generate("The dog", length=12, temperature=0)
    ids = list(history)
    for _ in range(12):
        logs = model.next_logprobs(ids)
        logs[[PAD, BOS, MASK]] = -np.inf
        best = int(logs.argmax())
        ids.append(best)
        if best == EOS:
            break
    assert text == model.tokenizer.decode(ids)
    states, cache = model.decode_step(torch.tensor([[EOS, 7, 8]]))
    with torch.no_grad():
        expected = model._encode(make_batch(torch.tensor([[EOS, 7, 8]])), torch.tensor([2]))
    torch.testing.assert_close(states[:, -1], expected, rtol=0, atol=1e-9)
    states, cache = model.decode_step(torch.tensor([[9, 6]]), cache)
    assert cache.length == 5
    with torch.no_grad():
        expected = model._encode(make_batch(torch.tensor([[EOS, 7, 8, 9, 6]])), torch.tensor([4]))
    torch.testing.assert_close(states[:, -1], expected, rtol=0, atol=1e-9)


def test_masks_are_filled_last(model: PermutationNet) -> None:
    """From the other tokens alone: the predictions of one mask do not depend on the other's token."""
    words = TEXTS[0].split()
    words[1] = words[3] = "[MASK]"
    fillings = model.fill(" ".join(words), 3)
    assert len(fillings) == 2
    (ids,) = model.masked_ids([" ".join(words)])
    row = [EOS, *ids, EOS]
    first = row.index(MASK)
    order = [int(token == MASK) for token in row]
    batch = make_batch(torch.tensor([row]))
    batch.is_query, batch.attention_order = True, torch.tensor([order])
    with torch.no_grad():
        state = model.network(batch, torch.tensor([first])).last_hidden_state
        best = model.network.output.logits(state).softmax(-1)[0, FIRST_WORD:].topk(3)
    found = [one.probability for one in fillings[0]]
    assert found == pytest.approx(best.values.tolist(), abs=1e-6)


def test_abilities(model: PermutationNet) -> None:
    for ability in (Scores, ScoresBackwards, Generates, Fills, Embeds):
        assert isinstance(model, ability)
    ids = torch.tensor([[EOS, 7, 8]])
    logits = model.logits(ids)
    assert logits.shape == (1, 3, len(model.words))
    logits[..., [PAD, BOS, MASK]] = -torch.inf
    logs = logits[0, -1].log_softmax(-1).numpy()
    assert logs == pytest.approx(model.next_logprobs([7, 8]), abs=1e-5)
    vectors = model.embed(TEXTS[:3])
    assert vectors.shape == (3, 16)
    changed = torch.tensor([[EOS, 7, 9]])
    with torch.no_grad():  # in use the first state depends on the last token
        one, other = (model.network(make_batch(each)).last_hidden_state[0] for each in (ids, changed))
    assert not torch.allclose(one, other)
