"""UniLM's four ways of reading beside BertModel of transformers with a mask of (batch, 1, query, key)."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

from firth.nets.network import Network
from tests.objectives.test_unilm import LENGTH, TOKENS, allowed, made, pairs, small

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import transformers


EMBEDDINGS = {
    "embedding.tokens.weight": "embeddings.word_embeddings.weight",
    "embedding.positions.weight": "embeddings.position_embeddings.weight",
    "embedding.segments.weight": "embeddings.token_type_embeddings.weight",
    "embedding.norm.weight": "embeddings.LayerNorm.weight",
    "embedding.norm.bias": "embeddings.LayerNorm.bias",
}


def mapped(network: Network) -> list[tuple[str, str, slice]]:
    """(our name, their name, rows of ours)."""
    width, every = network.recipe.width, slice(None)
    found = []
    for name, _ in network.named_parameters():
        if name in EMBEDDINGS:
            found.append((name, EMBEDDINGS[name], every))
        elif name.startswith("encoders.0.layers."):
            number, _, rest = name.removeprefix("encoders.0.layers.").partition(".")
            part, _, kind = rest.rpartition(".")
            base = f"encoder.layer.{number}"
            if part == "attention.qkv":
                for third, letter in enumerate(("query", "key", "value")):
                    rows = slice(third * width, (third + 1) * width)
                    found.append((name, f"{base}.attention.self.{letter}.{kind}", rows))
            else:
                where = {
                    "attention.out": "attention.output.dense",
                    "norm1": "attention.output.LayerNorm",
                    "feedforward.inner": "intermediate.dense",
                    "feedforward.outer": "output.dense",
                    "norm2": "output.LayerNorm",
                }[part]
                found.append((name, f"{base}.{where}.{kind}", every))
    return found


@pytest.mark.parametrize("way", range(4))
def test_states_and_gradients(way: int) -> None:
    network, head = made(small(layers=3))
    encoder = network.recipe.encoder
    config = transformers.BertConfig(
        vocab_size=TOKENS,
        hidden_size=encoder.width,
        num_hidden_layers=encoder.layers,
        num_attention_heads=encoder.heads,
        intermediate_size=encoder.ffn_width,
        max_position_embeddings=LENGTH,
        type_vocab_size=6,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        layer_norm_eps=encoder.eps,
        attn_implementation="eager",
    )
    model = transformers.BertModel(config, add_pooling_layer=False).double().eval()
    ours, theirs = dict(network.named_parameters()), dict(model.named_parameters())
    names = mapped(network)
    assert {their for _, their, _ in names} == set(theirs)
    with torch.no_grad():
        for mine, their, rows in names:
            theirs[their].copy_(ours[mine][rows])
    batch = pairs(3, [way])
    head.corrupt(batch, np.random.default_rng(0))
    mask = torch.zeros(3, 1, LENGTH, LENGTH, dtype=torch.float64).masked_fill(~allowed(way), -torch.inf)
    found = model(batch.ids, attention_mask=mask, token_type_ids=batch.segment_ids).last_hidden_state
    states = network(batch).last_hidden_state.view_as(found)
    torch.testing.assert_close(states, found, rtol=0, atol=1e-9)
    weights = torch.randn(found.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    (states * weights).sum().backward()
    (found * weights).sum().backward()
    for mine, their, rows in names:
        gradient, other = ours[mine].grad, theirs[their].grad
        assert gradient is not None, mine
        assert other is not None, their
        torch.testing.assert_close(gradient[rows], other, rtol=0, atol=1e-9, msg=their)
