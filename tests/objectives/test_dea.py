"""The denoising entity auto-encoder: its noise, its loss by hand, and its gradient by finite differences."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from firth.nets.batch import Batch
from firth.nets.entities import ENTITIES
from firth.nets.network import Network, build_network
from firth.objectives.heads.build import make_heads
from firth.objectives.heads.dea import EntityDenoisingHead
from tests.nets.test_fusion import COUNT, LENGTH, VOCABULARY, small_recipe, some_links


def made() -> tuple[Network, EntityDenoisingHead]:
    recipe = small_recipe()
    network = build_network(recipe, VOCABULARY, seed=1).double()
    assert network.entities is not None
    network.entities.vectors[1:] = torch.from_numpy(np.random.default_rng(2).normal(size=(COUNT, 6)))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        head = make_heads(recipe, network)["dea"].double()
    assert isinstance(head, EntityDenoisingHead)
    for parameter in [*network.parameters(), *head.parameters()]:
        parameter.data.mul_(6)
    return network, head


def corrupted(head: EntityDenoisingHead, links: torch.Tensor, seed: int = 0) -> Batch:
    ids = torch.from_numpy(np.random.default_rng(3).integers(5, 40, tuple(links.shape)))
    batch = Batch(ids, torch.ones_like(ids, dtype=torch.bool), columns={"links": links})
    batch.row_seeds = torch.arange(len(ids))
    head.corrupt(batch, np.random.default_rng(seed))
    return batch


def test_the_loss_is_a_hand_sum() -> None:
    network, head = made()
    batch = corrupted(head, some_links())
    assert network.entities is not None
    positions = head.positions(batch)
    assert positions.tolist() == [2, 7, 14]
    states = network(batch, positions)
    loss = head.loss(network, states, batch, None)
    expected, candidates = 0.0, [1, 3, 5]
    weight, bias = head.transform.weight.detach().numpy(), head.transform.bias.detach().numpy()
    for state, target in zip(states.last_hidden_state.detach().numpy(), [3, 5, 1], strict=True):
        hidden = np.array([0.5 * one * (1 + math.erf(one / math.sqrt(2))) for one in weight @ state + bias])
        scaled = (hidden - hidden.mean()) / math.sqrt(hidden.var() + 1e-12)
        scaled = scaled * head.norm.weight.detach().numpy() + head.norm.bias.detach().numpy()
        scores = {one: float(network.entities.vectors[one].numpy() @ scaled) for one in candidates}
        expected += math.log(sum(math.exp(one) for one in scores.values())) - scores[target]
    assert loss.count == head.count(batch) == 3
    assert float(loss.total.detach()) == pytest.approx(expected, rel=1e-9)


def test_gradients_are_those_of_finite_differences() -> None:
    network, head = made()
    batch = corrupted(head, some_links())
    batch.side_ids[ENTITIES] = some_links()  # all are kept, so that their layers matter

    def loss() -> torch.Tensor:
        return head.loss(network, network(batch, head.positions(batch)), batch, None).total

    loss().backward()  # type: ignore[no-untyped-call]
    generator, checked = torch.Generator().manual_seed(4), 0
    for key, parameter in [*network.named_parameters(), *head.named_parameters()]:
        if parameter.grad is None:
            assert key.startswith("output."), key
            continue
        direction = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        sides = []
        for step in (1e-6, -1e-6):
            parameter.data.add_(direction, alpha=step)
            with torch.no_grad():
                sides.append(float(loss()))
            parameter.data.sub_(direction, alpha=step)
        slope = float((parameter.grad * direction).sum())
        assert (sides[0] - sides[1]) / 2e-6 == pytest.approx(slope, rel=1e-4, abs=1e-5), key
        checked += 1
    assert checked > 40


def test_noise_has_the_published_rates_and_is_a_function_of_the_seed() -> None:
    _, head = made()
    links = torch.from_numpy(np.random.default_rng(5).integers(1, 50, (400, LENGTH)))
    batch = corrupted(head, links)
    given, true = batch.side_ids[ENTITIES], links
    shares = {name: count / of for name, (count, of) in head.shares(batch).items()}
    for name, rate in head.objective.published_noise().items():
        assert shares[name] == pytest.approx(rate, abs=4 * math.sqrt(rate * (1 - rate) / true.numel()))
    assert set(given[given > 0].tolist()) <= set(true.flatten().tolist())
    assert torch.equal(corrupted(head, links).side_ids[ENTITIES], given)
    assert not torch.equal(corrupted(head, links, seed=1).side_ids[ENTITIES], given)
    assert torch.equal(batch.labels["dea.targets"], true.flatten())


def test_the_only_entity_of_a_batch_is_not_replaced() -> None:
    _, head = made()
    batch = corrupted(head, torch.full((200, LENGTH), 4))
    assert set(batch.side_ids[ENTITIES].flatten().tolist()) == {0, 4}


def test_a_batch_without_entities_has_no_prediction() -> None:
    network, head = made()
    batch = corrupted(head, torch.zeros(2, LENGTH, dtype=torch.int64))
    assert head.count(batch) == 0
    assert not batch.side_ids[ENTITIES].any()
    assert float(head.loss(network, network(batch), batch, None).total.detach()) == 0
