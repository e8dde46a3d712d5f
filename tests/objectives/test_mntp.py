"""Masked next-token prediction: ways of reading, masks, the loss by hand, and gradients where they are allowed."""

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
from firth.objectives.heads.mntp import MaskedNextTokenHead
from firth.objectives.mntp import MaskedNextToken
from firth.recipes.nets import resize
from firth.recipes.unified import gpt_bert
from firth.recipes.values import override
from firth.tokens.tokenizer import BOS, EOS, MASK

TOKENS, LENGTH = 30, 12
VOCABULARY = Vocabulary([f"w{number}" for number in range(TOKENS)], np.arange(TOKENS, 0, -1))


def small() -> NetRecipe:
    recipe = resize(gpt_bert(), "tiny")
    return replace(
        recipe,
        embedding=replace(recipe.embedding, width=8, dropout=0.0),
        encoder=replace(recipe.encoder, layers=1, width=8, ffn_width=12, heads=2, dropout=0.0, attention_dropout=0.0),
        sequence=replace(recipe.sequence, length=LENGTH),
    )


def made(recipe: NetRecipe) -> tuple[Network, MaskedNextTokenHead]:
    network = build_network(recipe, VOCABULARY, seed=2).double().eval()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.3)
    head = make_heads(recipe, network)["mntp"].double()
    assert isinstance(head, MaskedNextTokenHead)
    return network, head


def rows_of_two(rows: int) -> Batch:
    """Rows of two packed sequences `[CLS] four tokens [SEP]`."""
    ids = torch.from_numpy(np.random.default_rng(1).integers(5, TOKENS, (rows, LENGTH)))
    ids[:, [0, 6]], ids[:, [5, 11]] = BOS, EOS
    batch = Batch(ids, torch.ones_like(ids, dtype=torch.bool))
    batch.sequence_ids = (torch.arange(LENGTH) > 5).long().expand(rows, -1)
    batch.position_ids = (torch.arange(LENGTH) % 6).expand(rows, -1)
    batch.row_seeds = torch.arange(rows)
    return batch


def with_causal(fraction: float) -> NetRecipe:
    return replace(small(), objectives=(MaskedNextToken(causal=fraction),))


@pytest.mark.parametrize("causal", [0.0, 1.0])
def test_gradients_follow_the_way_of_reading(causal: float) -> None:
    network, head = made(with_causal(causal))
    batch = rows_of_two(2)
    head.corrupt(batch, np.random.default_rng(0))
    read: list[torch.Tensor] = []
    network.embedding.register_forward_hook(lambda module, given, made: read.append(made.requires_grad_()) or None)
    states = network(batch).last_hidden_state.view(2, LENGTH, -1)
    for position in range(LENGTH):
        one = states[0, position] @ torch.arange(8, dtype=torch.float64)
        (gradient,) = torch.autograd.grad(one, read[0], retain_graph=True)
        seen, first = set(gradient[0].abs().sum(-1).nonzero()[:, 0].tolist()), 6 * (position // 6)
        assert seen == set(range(first, position + 1 if causal else first + 6))
        assert not gradient[1].any()


def test_every_prediction_is_of_the_next_token() -> None:
    """All tokens of causal rows but the first, and the masked ones of the others: 15 %, 80 % of them as a mask."""
    _, head = made(with_causal(0.25))
    batch = rows_of_two(16_000)
    before = batch.ids.clone()
    head.corrupt(batch, np.random.default_rng(0))
    positions = batch.labels["mntp.positions"]
    assert torch.equal(before.flatten()[positions + 1], batch.labels["mntp.targets"])
    assert torch.equal(positions, positions.unique())  # type: ignore[no-untyped-call]
    predicted = torch.zeros_like(batch.ids, dtype=torch.bool)
    predicted.view(-1)[positions] = True
    is_causal = batch.labels["mntp.causal"]
    assert float(is_causal.double().mean()) == pytest.approx(0.25, abs=0.02)
    # The end is predicted, too, and nothing after it.
    assert predicted[is_causal].double().mean(0).tolist() == [1, 1, 1, 1, 1, 0] * 2
    assert predicted[~is_causal].double().mean(0).tolist() == pytest.approx(
        [0.15] * 4 + [0, 0, *[0.15] * 4, 0, 0], abs=0.02
    )
    assert torch.equal(batch.ids[is_causal], before[is_causal])
    masked = batch.labels["mntp.masked"]
    assert float((batch.ids.flatten()[masked] == MASK).double().mean()) == pytest.approx(0.8, abs=0.02)
    assert torch.equal(head.corruption(batch).targets, before.flatten()[masked])
    shares, count = head.shares(batch)["read left to right"]
    assert (shares, count) == (float(is_causal.sum()), 16_000)


@pytest.mark.parametrize("causal", [0, 1])
def test_loss_by_hand(causal: int) -> None:
    """Six tokens, one softmax for each prediction by hand: of all tokens but the first, or of two masked ones."""
    network, head = made(small())
    batch = Batch(torch.tensor([[BOS, 8, 9, 10, 7, EOS]]), torch.ones(1, 6, dtype=torch.bool))
    batch.attention_order = torch.arange(6)[None] * causal
    targets, positions = batch.ids[0, 1:].clone(), torch.arange(5)
    if not causal:
        targets, positions = torch.tensor([8, 7]), torch.tensor([0, 3])
        batch.ids[0, positions + 1] = MASK
    batch.labels = {"mntp.causal": torch.tensor([causal > 0]), "mntp.positions": positions, "mntp.targets": targets}
    losses = TrainingModule(network, {"mntp": head}).losses(batch, None)
    embedding, layer = network.embedding, network.encoders[0].layers[0]  # type: ignore[union-attr]
    with torch.no_grad():
        x = embedding.norm(embedding.table[batch.ids[0]] + embedding.positions.weight[:6])  # type: ignore[misc, union-attr]
        q, k, v = layer.attention.qkv(x).view(6, 3, 2, 4).permute(1, 2, 0, 3)
        expected = 0.0
        for position, target in zip(positions.tolist(), targets.tolist(), strict=True):
            seen = slice(0, position + 1 if causal else 6)
            heads = [(q[h, position] @ k[h, seen].T / 2).softmax(0) @ v[h, seen] for h in range(2)]
            y = layer.norm1(x[position] + layer.attention.out(torch.cat(heads)))
            y = layer.norm2(y + layer.feedforward(y))
            expected -= float(network.output.logits(y[None]).log_softmax(-1)[0, target])
    assert float(losses["mntp"].total.detach()) == pytest.approx(expected, abs=1e-9)
    assert losses["mntp"].count == len(positions)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["mntp.causal=1.5"], ["mntp.causal"]),
        (["sequence.format=stream"], ["mntp", "sequence.format"]),
        (["sequence.format=segment-pair"], ["mntp", "sequence.format"]),
        (["visibility=causal"], ["mntp", "visibility"]),
        (["mntp.masking.policy=phrase"], ["mntp.masking.policy"]),
    ],
)
def test_contradictions_are_refused(settings: list[str], words: list[str]) -> None:
    with pytest.raises(RecipeError) as error:
        override(gpt_bert(), settings)
    for word in words:
        assert word in str(error.value)
