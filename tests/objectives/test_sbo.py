"""The span boundary objective: its spans and its loss by hand, its partner, and training."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as f

from firth.errors import RecipeError
from firth.fit.loop import TrainingModule, backward
from firth.nets.batch import Batch
from firth.nets.network import Network, build_network
from firth.nets.recipe import NetRecipe
from firth.objectives.heads.build import make_heads
from firth.objectives.heads.sbo import SpanBoundaryHead
from firth.objectives.masking import Masking
from firth.objectives.mlm import MaskedLM
from firth.objectives.sbo import SpanBoundary
from firth.recipes.nets import spanbert
from firth.recipes.values import override
from firth.tokens.tokenizer import BOS, EOS, MASK, PAD
from tests.objectives.small_stores import small_recipe, small_vocabulary

ROW = [BOS, 10, 11, 12, 13, 14, 15, 16, 17, 18, EOS, BOS, 20, 21, EOS, PAD]
SEQUENCES = [0] * 11 + [1] * 4 + [-1]
CHOSEN = [1, 3, 4, 5, 7, 9, 12]
"""A span at the beginning of its sequence, two adjacent ones, one inside, two at the ends of their sequences."""
GROUPS = [0, 1, 1, 2, 3, 4, 5]
NEIGHBOURS = {3: (2, 6), 4: (2, 6), 5: (2, 6), 7: (6, 8)}
"""Predicted position -> those before and after its span."""


def made(**settings: int) -> tuple[NetRecipe, Network, SpanBoundaryHead]:
    recipe = small_recipe("mlm+sbo", policy="span", max_length=10)
    recipe = replace(recipe, objectives=(recipe.objectives[0], SpanBoundary(position_width=6, **settings)))
    network = build_network(recipe, small_vocabulary(), 1).double()
    torch.manual_seed(0)
    head = make_heads(recipe, network)["sbo"].double()
    assert isinstance(head, SpanBoundaryHead)
    for parameter in [*network.parameters(), *head.parameters()]:
        parameter.data.add_(torch.randn_like(parameter), alpha=0.3)
    return recipe, network, head


def batch_of(head: SpanBoundaryHead) -> Batch:
    """A row in which `mlm` has masked the chosen positions."""
    ids = torch.tensor([ROW])
    sequence_ids = torch.tensor([SEQUENCES])
    positions = torch.tensor([[*range(11), *range(4), 0]])
    batch = Batch(ids.clone(), ids > 0, sequence_ids, positions, row_seeds=torch.tensor([1]))
    chosen = torch.tensor(CHOSEN)
    batch.labels = {"mlm.positions": chosen, "mlm.targets": ids[0, chosen], "mlm.groups": torch.tensor(GROUPS)}
    batch.ids[0, chosen] = MASK
    head.corrupt(batch, np.random.default_rng(0))
    return batch


def test_spans_are_merged_and_those_at_the_ends_left_out() -> None:
    _, _, head = made()
    labels = batch_of(head).labels
    assert labels["sbo.targets"].tolist() == [12, 13, 14, 16]
    assert labels["sbo.offsets"].tolist() == [0, 1, 2, 0]
    assert labels["sbo.left"].tolist() == [2, 2, 2, 6]
    assert labels["sbo.right"].tolist() == [6, 6, 6, 8]
    assert head.positions(batch_of(head)).tolist() == [2, 6, 8]


def test_the_rest_of_a_long_span_is_left_out() -> None:
    _, _, head = made(max_tokens=2)
    assert batch_of(head).labels["sbo.targets"].tolist() == [12, 13, 16]


def test_the_loss_by_hand() -> None:
    """Equations 1 and 2 of the paper, with plain operations."""
    _, network, head = made()
    batch = batch_of(head)
    loss = head.loss(network, network(batch, head.positions(batch)), batch, None)
    states = network(batch).last_hidden_state
    table, expected = network.embedding.table, 0.0
    for position, (left, right) in NEIGHBOURS.items():
        offset = head.positions_in_span.weight[position - left - 1]
        hidden = torch.cat([states[left], states[right], offset])
        for layer in (head.first, head.second):
            hidden = f.gelu(layer.dense.weight @ hidden + layer.dense.bias)
            hidden = f.layer_norm(hidden, hidden.shape, layer.norm.weight, layer.norm.bias, layer.norm.eps)
        logits = table @ hidden + head.bias
        expected -= float(logits.detach().log_softmax(-1)[ROW[position]])
    assert loss.count == 4
    assert float(loss.total.detach()) == pytest.approx(expected)


def test_each_loss_is_averaged_over_its_own_count_and_the_table_is_trained_by_both() -> None:
    recipe, network, head = made()
    heads = make_heads(recipe, network) | {"sbo": head}
    module = TrainingModule(network, heads)
    batch = batch_of(head)
    sums = backward(module, [batch], 0, 0)
    assert {name: count for name, (_, count) in sums.items()} == {"mlm": 7, "sbo": 4}
    both = network.embedding.table.grad
    gradients = []
    for name, count in (("mlm", 7), ("sbo", 4)):
        network.zero_grad()
        positions = heads[name].positions(batch)
        loss = heads[name].loss(network, network(batch, positions), batch, None)
        (loss.total / count).backward()  # type: ignore[no-untyped-call]
        assert network.embedding.table.grad is not None
        gradients.append(network.embedding.table.grad.clone())
    assert both is not None
    torch.testing.assert_close(both, gradients[0] + gradients[1])


def test_spans_end_with_their_row() -> None:
    """In a stream rows end anywhere: the last token of one and the first of the next are no span."""
    _, _, head = made()
    ids = torch.arange(10, 18).view(2, 4)
    batch = Batch(ids, ids > 0)
    chosen = torch.tensor([3, 4, 6])
    batch.labels = {"mlm.positions": chosen, "mlm.targets": ids.flatten()[chosen]}
    head.corrupt(batch, np.random.default_rng(0))
    assert batch.labels["sbo.targets"].tolist() == [16]


def test_a_partner_is_needed() -> None:
    for objectives in ((SpanBoundary(),), (SpanBoundary(), MaskedLM())):
        with pytest.raises(RecipeError, match="objectives=mlm\\+sbo"):
            replace(spanbert(), objectives=objectives)
    with pytest.raises(RecipeError, match="position_width"):
        SpanBoundary(position_width=0)


def test_the_recipe_is_that_of_the_paper() -> None:
    recipe = spanbert()
    masked, boundary = recipe.objectives
    assert isinstance(masked, MaskedLM)
    assert masked.masking == Masking(policy="span", max_length=10, rate=0.15, mask=0.8, random=0.1, mode="dynamic")
    assert boundary == SpanBoundary(position_width=200, max_tokens=15, weight=1.0)
    assert not recipe.tokenizer.lowercase
    changed = override(recipe, ["sbo.weight=0.5", "sbo.max_tokens=20"])
    assert isinstance(changed, NetRecipe)
    assert changed.objective("sbo") == SpanBoundary(weight=0.5, max_tokens=20)
