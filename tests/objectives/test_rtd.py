"""Replaced-token detection: losses by hand on a toy of six tokens, sampling, gradients, sizes."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as f

from firth.errors import RecipeError
from firth.fit.loop import TrainingModule, backward, measure_losses
from firth.nets.batch import Batch
from firth.nets.dropout import DropoutRng
from firth.nets.network import Network, build_network
from firth.nets.outputs.softmax import Softmax
from firth.nets.recipe import NetRecipe
from firth.objectives.heads.build import make_heads
from firth.objectives.heads.rtd import ReplacedTokensHead
from firth.objectives.masking import Masking
from firth.objectives.mlm import MaskedLM
from firth.objectives.rtd import Generator, ReplacedTokens
from firth.recipes.nets import bert, electra, resize, roberta
from firth.tokens.tokenizer import BOS, EOS, MASK
from tests.objectives.small_stores import small_recipe, small_vocabulary

ROW = [BOS, 10, 11, 12, 13, EOS]
CHOSEN, NUMBERS = [1, 3, 4], [0.1, 0.5, 0.999]
"""The third chosen token stays as it is in the generator's input."""


def made() -> tuple[NetRecipe, Network, ReplacedTokensHead]:
    recipe = replace(small_recipe("rtd"), output=electra().output)
    network = build_network(recipe, small_vocabulary(), 1).double()
    torch.manual_seed(0)
    head = make_heads(recipe, network)["rtd"].double()
    assert isinstance(head, ReplacedTokensHead)
    for parameter in {*network.parameters(), *head.parameters()}:
        parameter.data.add_(torch.randn_like(parameter), alpha=0.3)
    return recipe, network, head


def toy() -> Batch:
    """A sequence of six tokens, of which three are chosen."""
    ids = torch.tensor([ROW])
    batch = Batch(ids.clone(), torch.ones_like(ids, dtype=torch.bool), row_seeds=torch.tensor([1]))
    chosen = torch.tensor(CHOSEN)
    batch.labels = {
        "rtd.positions": chosen,
        "rtd.targets": ids[0, chosen],
        "rtd.numbers": torch.tensor(NUMBERS, dtype=torch.float64),
    }
    batch.ids[0, [1, 3]] = MASK
    return batch


def generator_logits(head: ReplacedTokensHead, batch: Batch) -> torch.Tensor:
    """(chosen, vocabulary), with plain operations from the hidden states on."""
    output = head.generator.output
    assert isinstance(output, Softmax)
    assert output.transform is not None
    assert output.bias is not None
    states = head.generator(batch).last_hidden_state[CHOSEN]
    dense, norm = output.transform.dense, output.transform.norm
    hidden = f.layer_norm(f.gelu(dense(states)), (len(dense.bias),), norm.weight, norm.bias, norm.eps)
    return hidden @ head.generator.embedding.table.T + output.bias


def by_hand(network: Network, head: ReplacedTokensHead, batch: Batch) -> tuple[list[int], float, float]:
    """The sampled tokens and both mean losses of the toy."""
    probabilities = generator_logits(head, batch).softmax(-1).detach()
    sampled = []
    for row, number in zip(probabilities.tolist(), NUMBERS, strict=True):
        below, token = 0.0, 0
        while below + row[token] <= number:
            below, token = below + row[token], token + 1
        sampled.append(token)
    true = [ROW[position] for position in CHOSEN]
    generator = -sum(math.log(row[token]) for row, token in zip(probabilities.tolist(), true, strict=True)) / 3
    ids = list(ROW)
    for position, token in zip(CHOSEN, sampled, strict=True):
        ids[position] = token
    states = network(replace(batch, ids=torch.tensor([ids]))).last_hidden_state.detach()
    logits = f.gelu(states @ head.dense.weight.T + head.dense.bias) @ head.classifier.weight.T + head.classifier.bias
    detector = 0.0
    for position, logit in enumerate(logits.flatten().tolist()):
        fake = ids[position] != ROW[position]
        detector += math.log1p(math.exp(-logit if fake else logit))
    return sampled, generator, detector / 6


def test_losses_equal_those_by_hand() -> None:
    _, network, head = made()
    sampled, generator, detector = by_hand(network, head, toy())
    rewritten = head.rewrite(toy(), network, None)
    assert rewritten.ids[0, CHOSEN].tolist() == sampled
    assert [rewritten.ids[0, other].item() for other in (0, 2, 5)] == [ROW[other] for other in (0, 2, 5)]
    assert rewritten.labels["rtd.is_replaced"].tolist() == [
        token != old for token, old in zip(rewritten.ids[0].tolist(), ROW, strict=True)
    ]
    module = TrainingModule(network, {"rtd": head})
    losses = measure_losses(module, [toy()])
    assert losses == {"mlm": pytest.approx(generator), "rtd": pytest.approx(detector)}
    assert module.weights() == {"mlm": 1.0, "rtd": 50.0}
    assert module.counts(toy()) == {"mlm": 3, "rtd": 6}
    with torch.no_grad():
        states = network(rewritten)
        total = sum(
            weight * loss.total / loss.count
            for weight, loss in zip((1.0, 50.0), head.losses(network, states, rewritten, None).values(), strict=True)
        )
    assert float(total) == pytest.approx(generator + 50 * detector)


def test_a_sample_that_is_the_true_token_is_original() -> None:
    _, network, head = made()
    batch = toy()
    cumulative = generator_logits(head, batch).softmax(-1).cumsum(-1).detach()
    true = batch.labels["rtd.targets"]
    middle = [float((cumulative[i, t - 1] + cumulative[i, t]) / 2) for i, t in enumerate(true.tolist())]
    batch.labels["rtd.numbers"] = torch.tensor(middle, dtype=torch.float64)
    rewritten = head.rewrite(batch, network, None)
    assert rewritten.ids[0].tolist() == ROW
    assert not rewritten.labels["rtd.is_replaced"].any()


def test_no_gradient_comes_through_sampling() -> None:
    """Parts of the generator alone have gradients of its own loss only; the shared table has both, added up."""
    _, network, head = made()
    module = TrainingModule(network, {"rtd": head})
    own = [p for p in head.generator.parameters() if all(p is not q for q in network.parameters())]
    assert own
    shared = network.embedding.table
    assert head.generator.embedding.table is shared
    assert head.generator.output.weight is shared

    def gradients(names: tuple[str, ...]) -> list[torch.Tensor | None]:
        module.zero_grad()
        losses = module.losses(toy(), None)
        weights = module.weights()
        sum(weights[name] * losses[name].total / losses[name].count for name in names).backward()  # type: ignore[union-attr]
        return [None if p.grad is None else p.grad.clone() for p in (*own, shared)]

    detector, generator, both = gradients(("rtd",)), gradients(("mlm",)), gradients(("mlm", "rtd"))
    assert all(one is None for one in detector[:-1])
    assert all(one is not None and bool(one.abs().max() > 0) for one in generator[:-1])
    for one, two in zip(generator[:-1], both[:-1], strict=True):
        assert one is not None
        assert two is not None
        torch.testing.assert_close(one, two)
    assert detector[-1] is not None
    assert generator[-1] is not None
    assert both[-1] is not None
    torch.testing.assert_close(both[-1], detector[-1] + generator[-1])
    module.zero_grad()
    assert backward(module, [toy()], 0, 0).keys() == {"mlm", "rtd"}


def test_samples_have_the_distribution_of_the_generator() -> None:
    _, _, head = made()
    output = head.generator.output
    assert isinstance(output, Softmax)
    states = torch.randn(1, head.generator.recipe.width, dtype=torch.float64).expand(20_000, -1)
    numbers = torch.from_numpy(np.random.default_rng(0).random(20_000))
    targets = torch.full((20_000,), 7)
    with torch.no_grad():
        total, sampled = output.loss_and_samples(states, targets, numbers)
        expected = output.logits(states[:1]).softmax(-1)[0]
        assert float(total) == pytest.approx(float(output.loss(states, targets)))
    found = torch.bincount(sampled, minlength=40) / 20_000
    assert (found - expected).abs().max() < 0.012
    edges = output.loss_and_samples(states[:2].detach(), targets[:2], torch.tensor([0.0, 1.0 - 2**-53]))[1]
    assert edges.tolist() == [0, 39]


def test_the_noise_is_that_of_the_paper() -> None:
    """15 % of a row are chosen; 85 % of them masked, the rest kept, none random; noise does not depend on the batch."""
    _, _, head = made()
    ids = torch.from_numpy(np.random.default_rng(1).integers(5, 40, (200, 100)))
    batch = Batch(ids.clone(), torch.ones_like(ids, dtype=torch.bool), row_seeds=torch.arange(200))
    head.corrupt(batch, np.random.default_rng(3))
    chosen = batch.labels["rtd.positions"]
    assert len(chosen) / ids.numel() == pytest.approx(0.15, abs=0.005)
    changed, before = batch.ids.flatten()[chosen], ids.flatten()[chosen]
    assert torch.equal(batch.labels["rtd.targets"], before)
    masked = changed == MASK
    assert float(masked.double().mean()) == pytest.approx(0.85, abs=0.02)
    assert torch.equal(changed[~masked], before[~masked])
    numbers = batch.labels["rtd.numbers"]
    assert float(numbers.mean()) == pytest.approx(0.5, abs=0.02)
    assert len(numbers.unique()) == len(numbers)
    alone = Batch(ids[7:8].clone(), torch.ones_like(ids[7:8], dtype=torch.bool), row_seeds=torch.tensor([7]))
    head.corrupt(alone, np.random.default_rng(3))
    assert torch.equal(alone.labels["rtd.numbers"], numbers[chosen // 100 == 7])


def test_a_step_depends_on_its_number_alone() -> None:
    recipe, _, _ = made()
    recipe = replace(recipe, encoder=replace(recipe.encoder, dropout=0.3))
    network = build_network(recipe, small_vocabulary(), 1)
    module = TrainingModule(network, make_heads(recipe, network))
    one, two, other = (
        {name: loss.total.item() for name, loss in module.losses(toy(), DropoutRng(0, step)).items()}
        for step in (4, 4, 5)
    )
    assert one == two
    assert one["rtd"] != other["rtd"]


def test_sizes_of_the_generator() -> None:
    for size, width, heads in (("base", 256, 4), ("small", 168, 2), ("mini", 88, 1), ("tiny", 40, 1)):
        recipe = resize(electra(), size)
        second = recipe.second_networks["rtd"]
        assert (second.encoder.width, second.encoder.heads) == (width, heads)
        assert second.encoder.layers == recipe.encoder.layers
        assert second.embedding == recipe.embedding
        assert second.output.kind == "tied"
        assert second.output.transform
    quarter = ReplacedTokens(generator=Generator(width=0.25, layers=0.5)).second_network(electra())
    assert (quarter.encoder.width, quarter.encoder.ffn_width, quarter.encoder.heads) == (192, 768, 3)
    assert quarter.encoder.layers == 6


def test_impossible_combinations_are_refused() -> None:
    with pytest.raises(RecipeError, match="leave mlm out"):
        replace(bert(), objectives=(MaskedLM(), ReplacedTokens()))
    with pytest.raises(RecipeError, match=r"mlm predicts tokens, but output\.kind is none"):
        replace(electra(), objectives=(MaskedLM(),))
    with pytest.raises(RecipeError, match="above 0"):
        Generator(width=0.0)
    with pytest.raises(RecipeError, match=r"encoder\.kind=transformer"):
        replace(roberta(), encoder=replace(roberta().encoder, kind="window", context=2), objectives=(ReplacedTokens(),))
    assert electra().objective("rtd") == ReplacedTokens(masking=Masking(mask=0.85, random=0.0), weight=50.0)
