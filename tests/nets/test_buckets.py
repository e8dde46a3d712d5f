"""Parts of T5: buckets of distances, root mean square normalisation, gates, initial weights."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck

from firth.errors import RecipeError
from firth.nets.batch import Batch
from firth.nets.encoders.buckets import buckets_of
from firth.nets.encoders.transformer import FeedForward, Transformer
from firth.nets.network import Vocabulary, build_network
from firth.nets.norm import RMSNorm
from firth.nets.recipe import EncoderRecipe, NetRecipe

PART = EncoderRecipe(
    layers=2, width=8, ffn_width=12, heads=2, positions="buckets", buckets=8, max_distance=20, norm="pre", rms=True,
    biases=False, dropout=0.0, attention_dropout=0.0,
)  # fmt: skip


def test_buckets_are_exact_near_and_logarithmic_far() -> None:
    """By hand for 8 buckets up to 16: causal 0..3 exact, then 4 + floor(4 log(d/4) / log(4))."""
    distances = -torch.tensor([0, 1, 3, 4, 5, 6, 8, 11, 12, 16, 99])
    assert buckets_of(distances, 8, 16, is_causal=True).tolist() == [0, 1, 3, 4, 4, 5, 6, 6, 7, 7, 7]
    assert buckets_of(torch.tensor([1, 5]), 8, 16, is_causal=True).tolist() == [0, 0], "later keys are masked"
    both = buckets_of(torch.tensor([-5, -1, 0, 1, 5]), 8, 16, is_causal=False).tolist()
    assert both == [2, 1, 0, 5, 6], "one half for each side"


def test_the_layers_share_one_table_and_distances_matter() -> None:
    recipe = replace(NetRecipe(), encoder=PART, visibility="bidirectional")
    made = Transformer(recipe)
    assert [name for name, _ in made.named_parameters() if "table" in name] == ["layers.0.attention.table.weight"]
    assert made.layers[1].attention.table is made.layers[0].attention.table  # type: ignore[union-attr]
    assert not [name for name, _ in made.named_parameters() if name.endswith("bias")]


def test_attention_depends_on_distances_alone() -> None:
    """The same text later in a row has the same states, and another order of the same tokens has others."""
    base = NetRecipe()
    recipe = replace(
        base, encoder=PART, embedding=replace(base.embedding, width=8, init="unit"), visibility="bidirectional"
    )
    network = build_network(recipe, Vocabulary([f"w{n}" for n in range(20)], np.ones(20, np.int64)), 3)
    with torch.no_grad():
        network.encoders[0].layers[0].attention.table.weight.normal_()  # type: ignore[union-attr]
    alone = torch.tensor([[7, 8, 9]])
    late = Batch(torch.tensor([[5, 6, 7, 8, 9]]), torch.ones(1, 5, dtype=torch.bool), torch.tensor([[0, 0, 1, 1, 1]]))
    with torch.no_grad():
        first = network(Batch(alone, alone > 0)).last_hidden_state
        torch.testing.assert_close(network(late).last_hidden_state[2:], first)
        turned = network(Batch(alone.flip(1), alone > 0)).last_hidden_state.flip(0)
    assert (turned - first).abs().max() > 1e-3


def test_the_root_mean_square_is_divided_by() -> None:
    norm = RMSNorm(4, eps=1e-6).double()
    states = torch.tensor([[3.0, -1.0, 1.0, -1.0]], dtype=torch.float64, requires_grad=True)  # mean square 3
    torch.testing.assert_close(norm(states), states / torch.tensor(3.000001, dtype=torch.float64).sqrt())
    with torch.no_grad():
        norm.weight.copy_(torch.tensor([1.0, 2.0, -1.0, 0.5]))
    many = torch.randn(3, 5, 4, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda x, w: torch.func.functional_call(norm, {"weight": w}, (x,)), (many, norm.weight))
    with torch.no_grad():
        inferred = norm(many)
    torch.testing.assert_close(inferred, norm(many))


def test_gates_multiply_the_activation() -> None:
    layer = FeedForward(replace(PART, gated=True, activation="relu"))
    assert layer.inner.weight.shape == (24, 8)
    x = torch.randn(5, 8)
    gate, values = x @ layer.inner.weight[:12].T, x @ layer.inner.weight[12:].T
    torch.testing.assert_close(layer(x), (gate.relu() * values) @ layer.outer.weight.T)


def test_initial_scores_have_unit_variance_without_a_scale() -> None:
    part = replace(PART, width=64, ffn_width=128, heads=4, init="fan-in", cross_width=64)
    torch.manual_seed(1)
    layer = Transformer(replace(NetRecipe(), encoder=part)).layers[0]
    expected = {
        "attention.qkv": None, "attention.out": 64**-0.5, "cross_attention.query": (64 * 16) ** -0.5,
        "cross_attention.keys": 64**-0.5, "feedforward.inner": 64**-0.5, "feedforward.outer": 128**-0.5,
    }  # fmt: skip
    for name, std in expected.items():
        weight = layer.get_submodule(name).weight
        if std is not None:
            assert float(weight.std().detach()) == pytest.approx(std, rel=0.1), name  # type: ignore[operator, union-attr]
    qkv = layer.attention.qkv.weight.detach()  # type: ignore[union-attr]
    assert float(qkv[:64].std()) == pytest.approx((64 * 16) ** -0.5, rel=0.1)  # type: ignore[index]
    assert float(qkv[64:].std()) == pytest.approx(64**-0.5, rel=0.1)  # type: ignore[index]


def test_buckets_that_cannot_be_are_refused() -> None:
    with pytest.raises(RecipeError, match=r"encoder\.max_distance=3 must be above half of encoder\.buckets=8"):
        replace(PART, max_distance=3)
    with pytest.raises(RecipeError, match="positions=buckets is of a Transformer"):
        EncoderRecipe(kind="lstm", positions="buckets")
