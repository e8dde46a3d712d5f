"""Transformer-XL has the outputs, memories and gradients of `transformers` 4.57.6.

`tools/transformer_xl_fixture.py` recorded them: later releases do not have this model.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from firth.nets.batch import Batch
from firth.nets.network import Network, Vocabulary, build_network
from firth.nets.recipe import (
    EmbeddingRecipe,
    EncoderRecipe,
    MemoryRecipe,
    NetRecipe,
    OutputRecipe,
    SequenceRecipe,
)
from firth.nets.visibility import SegmentMemory
from firth.objectives.clm import CausalLM

RECORDED = Path(__file__).with_name("transformer_xl.npz")
SEGMENT, MEMORY, TOLERANCE = 5, 7, 1e-5
COUNTS = [*range(199, 193, -1), *range(24, 15, -1), *[7] * 9]
"""Of tokens from frequent to rare: clusters of 6, 9 and 9."""
LAYERS = {
    "dec_attn.qkv_net.weight": "attention.qkv.weight",
    "dec_attn.o_net.weight": "attention.out.weight",
    "dec_attn.r_net.weight": "attention.distances.weight",
    "dec_attn.layer_norm.weight": "norm1.weight",
    "dec_attn.layer_norm.bias": "norm1.bias",
    "dec_attn.r_w_bias": "attention.biases.content",
    "dec_attn.r_r_bias": "attention.biases.position",
    "pos_ff.CoreNet.0.weight": "feedforward.inner.weight",
    "pos_ff.CoreNet.0.bias": "feedforward.inner.bias",
    "pos_ff.CoreNet.3.weight": "feedforward.outer.weight",
    "pos_ff.CoreNet.3.bias": "feedforward.outer.bias",
    "pos_ff.layer_norm.weight": "norm2.weight",
    "pos_ff.layer_norm.bias": "norm2.bias",
}
OTHERS = {
    "transformer.r_w_bias": "encoders.0.layers.0.attention.biases.content",
    "transformer.r_r_bias": "encoders.0.layers.0.attention.biases.position",
    "crit.cluster_weight": "output.tail_weight",
    "crit.cluster_bias": "output.tail_bias",
    "crit.out_layers.0.bias": "output.bias",
}
TOKENS = "transformer.word_emb.emb_layers.0.weight"
CASES = pytest.mark.parametrize("case", ["published", "other"])


def recorded(case: str) -> dict[str, npt.NDArray[Any]]:
    with np.load(RECORDED, allow_pickle=False) as arrays:
        return {key.removeprefix(f"{case}/"): arrays[key] for key in arrays if key.startswith(f"{case}/")}


def our_name(name: str) -> str:
    if name in OTHERS:
        return OTHERS[name]
    _, _, number, rest = name.split(".", 3)
    return f"encoders.0.layers.{number}.{LAYERS[rest]}"


def build(case: str, arrays: dict[str, npt.NDArray[Any]]) -> tuple[Network, npt.NDArray[np.int64]]:
    """The network with the recorded weights, and our id of each of their tokens."""
    other = case == "other"
    recipe = NetRecipe(
        embedding=EmbeddingRecipe(width=12, scaled=True),
        encoder=EncoderRecipe(
            layers=2,
            width=12,
            ffn_width=20,
            heads=2,
            positions="relative",
            tie_position_biases=not other,
            clamp_length=6 if other else 0,
            eps=1e-5,
            activation="relu",
        ),
        objectives=(CausalLM(),),
        output=OutputRecipe(kind="adaptive-tied"),
        sequence=SequenceRecipe(format="contiguous", length=SEGMENT),
        memory=MemoryRecipe(length=MEMORY, same_length=other),
    )
    ours = np.array([1, 3, *range(5, 27)])  # all but padding, [CLS] and [MASK], which are never predicted
    counts = np.zeros(27, dtype=np.int64)
    counts[ours] = COUNTS
    network = build_network(recipe, Vocabulary([f"w{number}" for number in range(27)], counts), 0)
    bounds: Any = network.output.bounds
    assert bounds.tolist() == [0, 6, 15, 24]
    parameters = dict(network.named_parameters())
    with torch.no_grad():
        for name in (name.removeprefix("weights/") for name in arrays if name.startswith("weights/")):
            given = torch.from_numpy(arrays[f"weights/{name}"])
            if name == TOKENS:
                network.embedding.table[ours] = given
            else:
                parameters[our_name(name)].copy_(given.view(parameters[our_name(name)].shape))
    return network, ours


@CASES
def test_outputs_memories_and_gradients(case: str) -> None:
    arrays = recorded(case)
    network, ours = build(case, arrays)
    ids = torch.from_numpy(ours[arrays["ids"]])
    memory = [torch.zeros(2, 0, 12)] * 2
    for number in range(3):
        network.zero_grad()
        segment = ids[:, number * SEGMENT : (number + 1) * SEGMENT]
        batch = Batch(segment, torch.ones_like(segment, dtype=torch.bool))
        visible = torch.ones(2, SEGMENT, memory[0].shape[1], dtype=torch.bool)
        states = network(batch, memory=SegmentMemory(memory, visible))
        logs = network.output.log_probabilities(states.last_hidden_state).view(2, SEGMENT, -1)
        torch.testing.assert_close(
            logs[:, :, ours], torch.from_numpy(arrays[f"logprobs/{number}"]), rtol=0, atol=TOLERANCE
        )
        made = [layer.detach() for layer in states.layers[:2]]
        memory = [torch.cat([old, new], 1)[:, -MEMORY:] for old, new in zip(memory, made, strict=True)]
        for layer, kept in enumerate(memory):
            torch.testing.assert_close(
                kept, torch.from_numpy(arrays[f"memory/{number}/{layer}"]), rtol=0, atol=TOLERANCE
            )
        targets = ids[:, number * SEGMENT + 1 : (number + 1) * SEGMENT + 1]
        network.output.loss(states.last_hidden_state, targets.flatten()).backward()
    parameters = dict(network.named_parameters())
    names = [name.removeprefix("gradients/") for name in arrays if name.startswith("gradients/")]
    for name in names:
        expected = torch.from_numpy(arrays[f"gradients/{name}"])
        found = network.embedding.table.grad[ours] if name == TOKENS else parameters[our_name(name)].grad  # type: ignore[index]
        assert found is not None
        torch.testing.assert_close(found, expected.view(found.shape), rtol=1e-5, atol=TOLERANCE, msg=name)
    assert {our_name(name) for name in names if name != TOKENS} | {"embedding.tokens.weight"} == set(parameters)


@CASES
def test_cached_decoding_has_the_same_outputs(case: str) -> None:
    """Whatever the numbers of tokens of each step are."""
    arrays = recorded(case)
    network, ours = build(case, arrays)
    ids = torch.from_numpy(ours[arrays["ids"]])[:, : 3 * SEGMENT]
    expected = torch.cat([torch.from_numpy(arrays[f"logprobs/{number}"]) for number in range(3)], 1)
    for sizes in ([15], [1] * 15, [7, 1, 7], [4, 11]):
        cache, made = None, []
        with torch.inference_mode():
            for some in torch.split(ids, sizes, 1):
                states, cache = network.decode_step(some, cache)
                made.append(network.output.log_probabilities(states.flatten(0, 1)).view(2, some.shape[1], -1))
        torch.testing.assert_close(torch.cat(made, 1)[:, :, ours], expected, rtol=0, atol=TOLERANCE)
