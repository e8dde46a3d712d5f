"""Sampled output layers: proposals, and convergence of the estimates to the softmax."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
import torch.nn.functional as f
from torch import Tensor

from firth.nets.dropout import DropoutRng
from firth.nets.embedding import Embedding
from firth.nets.network import make_output
from firth.nets.outputs.output import NEVER_PREDICTED, frequencies, predictable
from firth.nets.outputs.sampled import Proposal, SampledSoftmax, count_bigrams, find_bigrams, stratified
from firth.nets.recipe import EmbeddingRecipe, EncoderRecipe, NetRecipe, OutputRecipe
from firth.recipes.table import find_recipe
from firth.text.corpus import read_corpus
from firth.tokens.build import open_tokens
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.tokenizer import EOS

WIDTH, SIZE = 6, 60
COUNTS = 3000 // np.arange(1, SIZE + 1)


def layer_of(
    kind: str, samples: int, far: float = 0.5, counts: np.ndarray = COUNTS, **output: object
) -> SampledSoftmax:
    recipe = NetRecipe(
        embedding=EmbeddingRecipe(width=WIDTH),
        encoder=EncoderRecipe(kind="lstm", layers=1, width=WIDTH, ffn_width=0, heads=1, norm="none"),
        output=OutputRecipe(kind=kind, samples=samples, **output),  # type: ignore[arg-type]
    )
    torch.manual_seed(0)
    layer = make_output(recipe, counts, Embedding(recipe, [str(number) for number in range(counts.size)])).double()
    assert isinstance(layer, SampledSoftmax)
    with torch.no_grad():
        layer.weight.normal_(std=far)
    return layer


def some_places(count: int = 20) -> tuple[Tensor, Tensor, Tensor]:
    rng = np.random.default_rng(1)
    states = torch.from_numpy(rng.normal(size=(count, WIDTH))).requires_grad_()
    ids = torch.from_numpy(rng.choice(SIZE, count + 1, p=frequencies(COUNTS)))
    return states, ids[1:], ids[:-1]


def gradient(layer: SampledSoftmax, positions: tuple[Tensor, Tensor, Tensor], rng: DropoutRng | None) -> np.ndarray:
    """The flattened gradient of the mean loss by states and parameters."""
    inputs = [positions[0], *layer.parameters()]
    found = torch.autograd.grad(layer.loss(*positions, rng) / len(positions[1]), inputs)
    return torch.cat([each.flatten() for each in found]).numpy()


def bias_and_deviation(
    layer: SampledSoftmax, positions: tuple[Tensor, Tensor, Tensor], draws: int
) -> tuple[float, float]:
    """The relative bias of the mean estimate of the softmax's gradient, and the relative deviation of single ones.

    What the mean of so many draws is off by chance is taken from the first.
    """
    exact = gradient(layer, positions, None)
    estimates = np.stack([gradient(layer, positions, DropoutRng(0, step)) for step in range(draws)])
    mean = estimates.mean(0)
    variance = ((estimates - mean) ** 2).sum() / (draws - 1)
    bias = np.sqrt(max(((mean - exact) ** 2).sum() - variance / draws, 0))
    size = np.linalg.norm(exact)
    return float(bias / size), float(np.sqrt(variance) / size)


# Proposals


def test_tokens_are_drawn_by_their_probabilities() -> None:
    unigram = frequencies(COUNTS)
    total, squares = np.zeros(SIZE), np.zeros(SIZE)
    for seed in range(4000):
        drawn, times = stratified(unigram, 10, np.random.default_rng(seed))
        assert times.sum() == 10
        assert (np.diff(drawn) > 0).all()
        total[drawn] += times
        squares[drawn] += times**2
    mean = total / 4000
    spread = squares / 4000 - mean**2
    assert (total[list(NEVER_PREDICTED)] == 0).all()
    np.testing.assert_allclose(mean, 10 * unigram, atol=4 * np.sqrt(10 * unigram.max() / 4000))
    independent = 10 * unigram * (1 - unigram)
    assert (spread <= independent * 1.15 + 1e-9).all()
    assert spread.sum() < 0.8 * independent.sum()  # steadier than independent draws


def test_the_last_token_is_not_overstepped() -> None:
    """Sums of probabilities end near 1."""

    class Top:
        def random(self, count: int) -> np.ndarray:
            return np.full(count, 1 - 2.0**-53)

    unigram = np.array([0.1] * 10 + [0.0])
    drawn, _ = stratified(unigram, 3, Top())  # type: ignore[arg-type]
    assert drawn.max() == 9


def test_bigrams_are_counted_across_sentence_ends() -> None:
    recipe = find_recipe("words")
    assert isinstance(recipe, TokenizerRecipe)
    tokenizer, store = open_tokens(recipe, read_corpus([["a b a b", "a b"], ["b a"]]), 1)
    found = count_bigrams(store, len(tokenizer))
    a, b = (tokenizer.vocabulary.index(word) for word in "ab")
    ids = [EOS, a, b, a, b, EOS, a, b, EOS, b, a, EOS]
    for before in range(len(tokenizer)):
        after = [second for first, second in pairwise(ids) if first == before]
        twice = {token: after.count(token) for token in after if after.count(token) > 1}
        row = slice(found.bounds[before], found.bounds[before + 1])
        expected = {token: count / sum(twice.values()) for token, count in twice.items()}
        assert dict(zip(found.tokens[row].tolist(), found.probabilities[row].tolist(), strict=True)) == pytest.approx(
            expected
        )
    assert found.tokens.size == 4  # end a, a b, b a, b end
    assert found.tokens.size == found.bounds[-1]


def test_a_text_without_pairs_has_no_bigrams() -> None:
    assert find_bigrams(np.array([EOS]), 8).tokens.size == 0
    assert find_bigrams(np.array([EOS, 5, 6]), 8).bounds.tolist() == [0] * 9


def test_a_bigram_proposal_is_the_mean_over_its_positions() -> None:
    unigram = frequencies(COUNTS)
    ids = np.random.default_rng(0).choice(SIZE, 3000, p=unigram)
    ids[::7] = NEVER_PREDICTED[1]  # as text may have it, yet never to be predicted
    proposal = Proposal(unigram, 10)
    proposal.bigrams = find_bigrams(ids, SIZE)
    previous = torch.from_numpy(np.random.default_rng(1).permutation(np.repeat(predictable(SIZE), 5)))
    groups = list(proposal.draw(len(previous), previous, np.random.default_rng(2)))
    positions = torch.cat([group.positions for group in groups if isinstance(group.positions, Tensor)])
    assert sorted(positions.tolist()) == list(range(len(previous)))
    pairs = np.zeros((SIZE, SIZE))
    np.add.at(pairs, (ids[:-1], ids[1:]), 1)
    pairs[pairs < 2] = 0
    for group in groups:
        assert isinstance(group.positions, Tensor)
        expected = np.zeros(SIZE)
        for before in previous[group.positions].tolist():
            known = pairs[before] / max(pairs[before].sum(), 1)
            known[list(NEVER_PREDICTED)] = 0
            expected += 0.5 * known + (1 - 0.5 * known.sum()) * unigram
        np.testing.assert_allclose(group.probabilities.numpy(), expected / len(group.positions))
        assert group.probabilities.sum() == pytest.approx(1)
        assert group.probabilities[list(NEVER_PREDICTED)].sum() == 0
        assert (group.probabilities[group.tokens] > 0).all()


def test_only_bigrams_need_a_text() -> None:
    tokenizer, store = open_tokens(
        TokenizerRecipe(model="words", vocab_size=None, min_count=1), read_corpus([["a b", "a b"]]), 1
    )
    counts = np.ones(len(tokenizer), dtype=np.int64)
    by_frequency, by_pair = layer_of("nce", 5, counts=counts), layer_of("nce", 5, counts=counts, proposal="bigram")
    for layer in (by_frequency, by_pair):
        layer.prepare(store)
    assert by_frequency.proposal.bigrams is None
    assert by_pair.proposal.bigrams is not None
    states, ids = torch.zeros(2, WIDTH, dtype=torch.float64), torch.tensor([5, 3])
    assert by_pair.loss(states, ids, None, DropoutRng(0, 0)) == by_frequency.loss(states, ids, None, DropoutRng(0, 0))


# Losses


@pytest.mark.parametrize("kind", ["importance", "nce"])
@pytest.mark.parametrize("bias", [True, False])
def test_without_rng_the_loss_is_the_softmax(kind: str, bias: bool) -> None:
    layer, (states, targets, previous) = layer_of(kind, 5, bias=bias), some_places()
    scores = f.linear(states, layer.weight, layer.bias)
    scores[:, list(NEVER_PREDICTED)] = -torch.inf
    torch.testing.assert_close(layer.loss(states, targets, previous), f.cross_entropy(scores, targets, reduction="sum"))


def slow_estimate(layer: SampledSoftmax, kind: str, state: Tensor, target: int, rng: DropoutRng) -> float:
    """The loss of one position by the formulas, sample by sample."""
    assert layer.bias is not None
    unigram, samples = layer.proposal.unigram, layer.proposal.samples
    drawn, times = stratified(unigram, samples, rng.generator)
    scores = (layer.weight @ state + layer.bias).detach().numpy()
    if kind == "importance":
        whole = np.exp(scores[target])
        for token, count in zip(drawn, times, strict=True):
            whole += 0 if token == target else count * np.exp(scores[token]) / unigram[token] / samples
        return float(np.log(whole) - scores[target])
    real = 1 / (1 + np.exp(-scores + np.log(samples * np.where(unigram > 0, unigram, 1))))
    total = -np.log(real[target])
    for token, count in zip(drawn, times, strict=True):
        total -= count * np.log(1 - real[token])
    return float(total)


@pytest.mark.parametrize("kind", ["importance", "nce"])
def test_the_loss_is_that_of_the_papers(kind: str) -> None:
    layer, (states, targets, _) = layer_of(kind, 30), some_places()
    expected = sum(
        slow_estimate(layer, kind, state, int(target), DropoutRng(3, 4))
        for state, target in zip(states, targets, strict=True)
    )
    assert layer.loss(states, targets, None, DropoutRng(3, 4)).item() == pytest.approx(expected)


@pytest.mark.parametrize("proposal", ["unigram", "bigram"])
def test_importance_sampling_approaches_the_softmax(proposal: str) -> None:
    """The bias of the gradient falls about like 1/k or faster, and its deviation like 1/sqrt(k) or faster."""
    positions, measured = some_places(), []
    for samples in (8, 32, 128):
        layer = layer_of("importance", samples, proposal=proposal)
        if proposal == "bigram":
            ids = np.random.default_rng(0).choice(SIZE, 5000, p=frequencies(COUNTS))
            layer.proposal.bigrams = find_bigrams(ids, SIZE)
        measured.append(bias_and_deviation(layer, positions, 500))
    biases, deviations = zip(*measured, strict=True)
    assert 0.03 < biases[0] < 0.3
    assert biases[1] < biases[0] / 2
    assert biases[2] < biases[0] / 8
    assert deviations[1] < deviations[0] / 1.8
    assert deviations[2] < deviations[1] / 1.8


def test_noise_contrast_approaches_the_softmax_of_normalised_scores() -> None:
    """Mnih and Teh (2012), eq. 12: with more samples the gradient becomes that of maximum likelihood."""
    positions, biases = some_places(), []
    for samples in (30, 300, 3000):
        layer = layer_of("nce", samples, far=0.0)  # scores are logarithms of frequencies
        biases.append(bias_and_deviation(layer, positions, 200)[0])
    assert biases[1] < biases[0] / 3
    assert biases[2] < biases[1] / 3
    assert biases[2] < 0.02


@pytest.mark.parametrize("kind", ["importance", "nce"])
def test_the_optimum_is_the_distribution(kind: str) -> None:
    """Two contexts with known probabilities of the next token, unrelated to frequencies."""
    kept = predictable(12)
    rng = np.random.default_rng(0)
    wanted = np.zeros((2, 12))
    wanted[:, kept] = rng.dirichlet(np.ones(kept.size), 2)
    layer = layer_of(kind, 40, counts=np.arange(12))
    contexts = torch.eye(WIDTH, dtype=torch.float64)[:2]
    optimiser = torch.optim.Adam(layer.parameters(), 0.05)
    steps = 300
    for step in range(steps):
        shown = np.repeat([0, 1], 200)
        targets = np.concatenate([np.repeat(np.arange(12), rng.multinomial(200, row)) for row in wanted])
        optimiser.param_groups[0]["lr"] = 0.05 * (1 - step / steps)
        optimiser.zero_grad()
        loss = layer.loss(contexts[shown], torch.from_numpy(targets), None, DropoutRng(0, step))
        (loss / 400).backward()
        optimiser.step()
    found = layer.log_probabilities(contexts).exp().detach().numpy()
    assert np.abs(found - wanted).sum(1).max() / 2 < 0.03  # total variation
    if kind == "nce":
        assert layer.logits(contexts).logsumexp(1).abs().max().item() < 0.1  # scores are nearly normalised


@pytest.mark.parametrize("kind", ["importance", "nce"])
def test_one_sample_and_more_samples_than_tokens(kind: str) -> None:
    for samples in (1, 100_000):
        positions = some_places()
        loss = layer_of(kind, samples).loss(*positions, DropoutRng(0, 0))
        loss.backward()
        assert loss.isfinite()
        assert positions[0].grad is not None
        assert positions[0].grad.isfinite().all()


def test_flops_grow_with_the_samples() -> None:
    few, many = (layer_of("importance", samples).flops() for samples in (10, 1000))
    assert 2 * WIDTH * 2 < few < 2 * WIDTH * 11
    assert few < many <= 2 * WIDTH * (SIZE + 1)
