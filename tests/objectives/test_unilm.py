"""Unified language modelling: ways of reading, masks, the loss by hand, and gradients where they are allowed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from firth.errors import RecipeError
from firth.fit.loop import TrainingModule
from firth.nets.batch import Batch
from firth.nets.network import Network, Vocabulary, build_network
from firth.nets.recipe import NetRecipe
from firth.objectives.heads.build import make_heads
from firth.objectives.heads.unilm import UnifiedLMHead
from firth.objectives.sequences import Sequences
from firth.recipes.nets import resize
from firth.recipes.unified import unilm
from firth.recipes.values import override
from firth.tokens.tokenizer import BOS, EOS, MASK

TOKENS, LENGTH = 30, 12
VOCABULARY = Vocabulary([f"w{number}" for number in range(TOKENS)], np.arange(TOKENS, 0, -1))


def small(layers: int = 1) -> NetRecipe:
    recipe = resize(unilm(), "tiny")
    return replace(
        recipe,
        embedding=replace(recipe.embedding, width=8, dropout=0.0),
        encoder=replace(
            recipe.encoder, layers=layers, width=8, ffn_width=12, heads=2, dropout=0.0, attention_dropout=0.0
        ),
        sequence=replace(recipe.sequence, length=LENGTH),
    )


def made(recipe: NetRecipe) -> tuple[Network, UnifiedLMHead]:
    network = build_network(recipe, VOCABULARY, seed=2).double().eval()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.3)
    head = make_heads(recipe, network)["unilm"].double()
    assert isinstance(head, UnifiedLMHead)
    return network, head


def pairs(rows: int, ways: list[int]) -> Batch:
    """Rows `[CLS] five tokens [SEP] four tokens [SEP]`, each read in the next of some ways."""
    ids = torch.from_numpy(np.random.default_rng(1).integers(5, TOKENS, (rows, LENGTH)))
    ids[:, 0], ids[:, 6], ids[:, 11] = BOS, EOS, EOS
    batch = Batch(ids, torch.ones_like(ids, dtype=torch.bool))
    batch.segment_ids = (torch.arange(LENGTH) > 6).long().expand_as(ids)
    batch.row_seeds = torch.arange(rows)
    drawn = torch.tensor([ways[row % len(ways)] for row in range(rows)])
    batch.labels = {"unilm.ways": drawn, "unilm.labels": torch.where(drawn == 0, torch.arange(rows) % 2, -1)}
    return batch


def allowed(way: int) -> torch.Tensor:
    """(query, key): what each of the four ways lets a token see, stated directly."""
    query, key = torch.arange(LENGTH)[:, None], torch.arange(LENGTH)[None]
    is_source = torch.arange(LENGTH) <= 6
    everything = torch.ones(LENGTH, LENGTH, dtype=torch.bool)
    both = is_source[None] & everything
    seq2seq = both | (~is_source[:, None] & ~is_source[None] & (key <= query))
    return [everything, key <= query, key >= query, seq2seq][way]


@pytest.mark.parametrize("way", range(4))
def test_gradients_follow_the_way_of_reading(way: int) -> None:
    network, head = made(small())
    batch = pairs(2, [way])
    head.corrupt(batch, np.random.default_rng(0))
    read: list[torch.Tensor] = []
    network.embedding.register_forward_hook(lambda module, given, made: read.append(made.requires_grad_()) or None)
    states = network(batch).last_hidden_state.view(2, LENGTH, -1)
    for position in range(LENGTH):
        one = states[0, position] @ torch.arange(8, dtype=torch.float64)
        (gradient,) = torch.autograd.grad(one, read[0], retain_graph=True)
        assert torch.equal(gradient.abs().sum(-1)[0] > 0, allowed(way)[position]), position
        assert not gradient[1].any()


def test_segments_tell_the_way() -> None:
    _, head = made(small())
    batch = pairs(4, [0, 1, 2, 3])
    head.corrupt(batch, np.random.default_rng(0))
    assert batch.segment_ids is not None
    assert [row.unique().tolist() for row in batch.segment_ids] == [[0, 1], [2], [3], [4, 5]]


def test_masks() -> None:
    """15 %, of which 80 % are masked; the last separator only where the network is to stop."""
    _, head = made(small())
    batch = pairs(8000, [0, 1, 2, 3])
    before = batch.ids.clone()
    head.corrupt(batch, np.random.default_rng(0))
    positions = batch.labels["unilm.positions"]
    assert torch.equal(before.flatten()[positions], batch.labels["unilm.targets"])
    chosen = torch.zeros_like(batch.ids, dtype=torch.bool)
    chosen.view(-1)[positions] = True
    for way in range(4):
        rate = chosen[way::4].double().mean(0)
        assert rate[0] == rate[6] == 0
        assert float(rate[11]) == pytest.approx(0.15 if way in (1, 3) else 0, abs=0.02)
        assert rate[1:6].tolist() == pytest.approx([0.15] * 5, abs=0.03)
    assert float((batch.ids.flatten()[positions] == MASK).double().mean()) == pytest.approx(0.8, abs=0.02)


def test_the_mixture_and_which_pairs_are_exchanged() -> None:
    """A third, two sixths and a third; only pairs that are read from both sides are wrong, one half of them."""
    _, head = made(small())
    starts = np.arange(0, 60_000, 10)[:, None] + np.array([0, 5])
    sequences = Sequences(starts, starts + 5, 10, np.arange(0, 60_001, 100), {})
    made_pairs = head.pair(sequences, np.random.default_rng(0))
    ways, labels = made_pairs.labels["unilm.ways"], made_pairs.labels["unilm.labels"]
    assert (np.bincount(ways) / len(ways)).tolist() == pytest.approx([1 / 3, 1 / 6, 1 / 6, 1 / 3], abs=0.001)
    assert (labels[ways != 0] == -1).all()
    assert float((labels[ways == 0] == 1).mean()) == pytest.approx(0.5, abs=0.03)
    moved = (made_pairs.starts != starts).any(1)
    assert np.array_equal(moved, labels == 1)


def test_loss_by_hand() -> None:
    """Six tokens, of which the second and the fifth are masked, read from left to right: two softmaxes by hand."""
    network, head = made(small())
    batch = Batch(torch.tensor([[2, MASK, 9, 3, MASK, 3]]), torch.ones(1, 6, dtype=torch.bool))
    batch.attention_order, batch.segment_ids = torch.arange(6)[None], torch.full((1, 6), 2)
    positions, targets = torch.tensor([1, 4]), torch.tensor([8, 7])
    batch.labels = {"unilm.ways": torch.tensor([1]), "unilm.labels": torch.tensor([-1])}
    batch.labels |= {"unilm.positions": positions, "unilm.targets": targets, "unilm.groups": torch.arange(2)}
    losses = TrainingModule(network, {"unilm": head}).losses(batch, None)
    embedding, layer = network.embedding, network.encoders[0].layers[0]  # type: ignore[union-attr]
    with torch.no_grad():
        summed = embedding.table[batch.ids[0]] + embedding.positions.weight[:6] + embedding.segments.weight[2]  # type: ignore[union-attr]
        x = embedding.norm(summed)  # type: ignore[misc]
        q, k, v = layer.attention.qkv(x).view(6, 3, 2, 4).permute(1, 2, 0, 3)
        expected = 0.0
        for position, target in zip(positions.tolist(), targets.tolist(), strict=True):
            heads = [(q[h, position] @ k[h, : position + 1].T / 2).softmax(0) @ v[h, : position + 1] for h in range(2)]
            y = layer.norm1(x[position] + layer.attention.out(torch.cat(heads)))
            y = layer.norm2(y + layer.feedforward(y))
            expected -= float(network.output.logits(y[None]).log_softmax(-1)[0, target])
    assert float(losses["unilm"].total.detach()) == pytest.approx(expected, abs=1e-9)
    assert losses["unilm"].count == 2
    assert losses["nsp"].count == 0


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["objectives=unilm+nsp"], ["unilm", "nsp"]),
        (["embedding.segments=2"], ["embedding.segments"]),
        (["unilm.mixture.seq2seq=0.9"], ["unilm.mixture"]),
        (["sequence.format=stream"], ["unilm", "sequence.format"]),
        (["unilm.masking.policy=word"], ["unilm.masking.policy"]),
    ],
)
def test_contradictions_are_refused(settings: list[str], words: list[str]) -> None:
    with pytest.raises(RecipeError) as error:
        override(unilm(), settings)
    for word in words:
        assert word in str(error.value)
