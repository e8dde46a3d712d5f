"""XLNet beside the class of transformers: streams, permutations, segments, memories and reversed rows."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from firth.fit.loop import TrainingModule
from firth.nets.batch import Batch, StreamOffsets
from firth.nets.network import Network, Vocabulary, build_network
from firth.nets.recipe import NetRecipe
from firth.objectives.heads.build import make_heads
from firth.recipes.nets import resize, xlnet

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import transformers

VOCABULARY = Vocabulary([f"w{number}" for number in range(40)], np.arange(40, 0, -1))
ROWS, LENGTH, REUSED, MEMORY = 2, 12, 6, 8


def small_recipe() -> NetRecipe:
    recipe = resize(xlnet(), "tiny")
    still = {"dropout": 0.0, "attention_dropout": 0.0}
    return replace(
        recipe,
        embedding=replace(recipe.embedding, width=16, dropout=0.0),
        encoder=replace(recipe.encoder, layers=3, width=16, ffn_width=24, heads=2, **still),
        sequence=replace(recipe.sequence, length=LENGTH),
        memory=replace(recipe.memory, length=MEMORY),
    )


def build() -> Network:
    network = build_network(small_recipe(), VOCABULARY, seed=1)
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.2)
    return network.double().eval()


def their_tensors(network: Network) -> dict[str, tuple[str, Tensor, Any]]:
    """Their name -> our name, and a view of our tensor in their shape."""
    named = dict(network.named_parameters())
    encoder = network.recipe.encoder
    heads, width = encoder.heads, encoder.width
    found: dict[str, Any] = {
        "transformer.mask_emb": ("embedding.query", lambda t: t.view(1, 1, -1)),
        "transformer.word_embedding.weight": ("embedding.tokens.weight", lambda t: t),
        "lm_loss.bias": ("output.bias", lambda t: t),
    }
    for number in range(encoder.layers):
        ours, theirs = f"encoders.0.layers.{number}", f"transformer.layer.{number}"
        for part, letter in enumerate("qkv"):
            rows = slice(part * width, (part + 1) * width)
            found[f"{theirs}.rel_attn.{letter}"] = (
                f"{ours}.attention.qkv.weight",
                lambda t, rows=rows: t[rows].T.reshape(width, heads, -1),
            )
        split = lambda t: t.T.reshape(width, heads, -1)  # noqa: E731
        found[f"{theirs}.rel_attn.r"] = (f"{ours}.attention.distances.weight", split)
        found[f"{theirs}.rel_attn.o"] = (f"{ours}.attention.out.weight", lambda t: t.reshape(width, heads, -1))
        by_head = lambda t: t.reshape(heads, -1)  # noqa: E731
        found[f"{theirs}.rel_attn.r_w_bias"] = (f"{ours}.attention.biases.content", by_head)
        found[f"{theirs}.rel_attn.r_r_bias"] = (f"{ours}.attention.biases.position", by_head)
        found[f"{theirs}.rel_attn.r_s_bias"] = (f"{ours}.attention.segments.bias", by_head)
        found[f"{theirs}.rel_attn.seg_embed"] = (
            f"{ours}.attention.segments.vectors",
            lambda t: t.reshape(2, heads, -1),
        )
        for mine, other in (("norm1", "rel_attn.layer_norm"), ("norm2", "ff.layer_norm")):
            for kind in ("weight", "bias"):
                found[f"{theirs}.{other}.{kind}"] = (f"{ours}.{mine}.{kind}", lambda t: t)
        for mine, other in (("inner", "layer_1"), ("outer", "layer_2")):
            for kind in ("weight", "bias"):
                found[f"{theirs}.ff.{other}.{kind}"] = (f"{ours}.feedforward.{mine}.{kind}", lambda t: t)
    return {name: (ours, named[ours], change) for name, (ours, change) in found.items()}


def reference(network: Network, bi_data: bool = False) -> Any:
    encoder = network.recipe.encoder
    config = transformers.XLNetConfig(
        vocab_size=len(VOCABULARY),
        d_model=encoder.width,
        n_layer=encoder.layers,
        n_head=encoder.heads,
        d_inner=encoder.ffn_width,
        ff_activation="gelu",
        attn_type="bi",
        dropout=0.0,
        mem_len=MEMORY,
        reuse_len=REUSED,
        bi_data=bi_data,
        layer_norm_eps=encoder.eps,
    )
    model = transformers.XLNetLMHeadModel(config).double().eval()
    named = dict(model.named_parameters())
    mapped = their_tensors(network)
    assert set(named) - {"lm_loss.weight"} == set(mapped)
    with torch.no_grad():
        for name, (_, ours, change) in mapped.items():
            named[name].copy_(change(ours))
    encode = model.transformer.relative_positional_encoding  # which is in single precision
    model.transformer.relative_positional_encoding = lambda *given, **more: encode(*given, **more).double()
    return model


def make_batch(seed: int, step: int, bi_data: bool) -> Batch:
    """Rows of two halves, with two segments and a last token of its own in the second."""
    ids = torch.from_numpy(np.random.default_rng(seed).integers(5, 40, (ROWS, LENGTH)))
    ids[:, 8], ids[:, 10], ids[:, 11] = 3, 3, 2
    segments = torch.tensor([0] * 9 + [1] * 2 + [2]).expand_as(ids)
    function = torch.zeros_like(ids, dtype=torch.bool)
    function[:, [8, 10, 11]] = True
    batch = Batch(ids, torch.ones_like(function), segment_ids=segments, is_function=function)
    batch.row_seeds = torch.arange(ROWS) + 10 * seed
    batch.is_reversed = torch.tensor([False, True]) if bi_data else None
    begins = torch.full((ROWS,), step * REUSED)
    batch.offsets = StreamOffsets(torch.arange(ROWS), begins, torch.full((ROWS,), REUSED), torch.zeros_like(ids))
    return batch


def permutation_mask(batch: Batch) -> Tensor:
    """1 where a token does not attend to another one; tokens attend to themselves by the class's own rule."""
    order = batch.attention_order
    assert order is not None
    bases = torch.zeros(LENGTH, dtype=torch.int64)
    bases[REUSED:] = LENGTH + 1
    is_context = order == bases
    query, key = order[:, :, None], order[:, None]
    return (~((key < query) | ((key == query) & is_context[:, :, None]))).double()


@pytest.mark.parametrize("bi_data", [False, True], ids=["forwards", "both directions"])
def test_outputs_memories_and_gradients(bi_data: bool) -> None:
    """Three steps with a memory of the reused part alone; the gradients of the third."""
    network = build()
    recipe = network.recipe
    heads = make_heads(recipe, network)
    module, model = TrainingModule(network, heads), reference(network, bi_data)
    memories = None
    for step in range(3):
        batch = make_batch(step, step, bi_data)
        heads["plm"].corrupt(batch, np.random.default_rng(step))
        positions, targets = batch.labels["plm.positions"], batch.labels["plm.targets"]
        assert len(positions) >= 2
        mapping = torch.zeros(ROWS, LENGTH, LENGTH, dtype=torch.float64)
        counts = torch.bincount(positions // LENGTH, minlength=ROWS)
        slots = torch.cat([torch.arange(count) for count in counts.tolist()])
        mapping[positions // LENGTH, slots, positions % LENGTH] = 1
        found = model(
            batch.ids,
            mems=memories,
            perm_mask=permutation_mask(batch),
            target_mapping=mapping[:, : int(counts.max())],
            token_type_ids=batch.segment_ids,
            use_mems=True,
        )
        theirs = found.logits[positions // LENGTH, slots]
        before = module.memory.recall(batch.offsets)
        if memories is not None:
            assert before is not None
            for ours, other in zip(before.layers, memories, strict=True):
                torch.testing.assert_close(ours, other.transpose(0, 1), rtol=0, atol=1e-5)
        states = network(batch, positions, memory=before)
        torch.testing.assert_close(network.output.logits(states.last_hidden_state), theirs, rtol=0, atol=1e-5)
        losses = module.losses(batch, None)
        other_loss = torch.nn.functional.cross_entropy(theirs, targets, reduction="sum")
        torch.testing.assert_close(losses["plm"].total, other_loss, rtol=0, atol=1e-5)
        memories = found.mems
    assert memories is not None
    assert len(memories[0]) == MEMORY > REUSED
    network.zero_grad()
    model.zero_grad()
    losses["plm"].total.backward()
    other_loss.backward()
    theirs = dict(model.named_parameters())
    for name, (_, ours, change) in their_tensors(network).items():
        grad = theirs[name].grad
        assert grad is not None, name
        assert ours.grad is not None, name
        torch.testing.assert_close(change(ours.grad), grad, rtol=0, atol=1e-5, msg=name)


def test_a_bidirectional_network_without_queries() -> None:
    """As it is fine-tuned: all tokens attend to all, also of other segments."""
    network = build()
    batch = make_batch(7, 0, False)
    found = reference(network).transformer(batch.ids, token_type_ids=batch.segment_ids, use_mems=False)
    with torch.no_grad():
        ours = network(batch).last_hidden_state.view(ROWS, LENGTH, -1)
    torch.testing.assert_close(ours, found.last_hidden_state, rtol=0, atol=1e-5)
