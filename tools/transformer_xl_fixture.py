"""Record the outputs of the Transformer-XL of `transformers` 4.57.6, the last release that has it, for a parity test.

    python3 -m venv old && old/bin/pip install transformers==4.57.6 torch==2.13.0
    old/bin/python tools/transformer_xl_fixture.py tests/parity/transformer_xl.npz

Two small networks with random weights of a fixed seed read three segments, each with the memory of those before: one as
published (biases shared by all layers), one with biases for each layer, attention of every token to equally many
others and clamped distances. The file has their weights, ids, memories, log-probabilities and, for the last segment,
the gradients of the summed loss of each next token.
"""

from __future__ import annotations

import sys

import numpy as np
import torch
from transformers import TransfoXLConfig, TransfoXLLMHeadModel  # type: ignore[attr-defined]

VOCABULARY, CUTOFFS = 24, [6, 15]
SEGMENT, SEGMENTS, ROWS, MEMORY = 5, 3, 2, 7
CASES = {
    "published": {"untie_r": False, "same_length": False},
    "other": {"untie_r": True, "same_length": True, "clamp_len": 6},
}


def repair_type_as() -> None:
    """Let `type_as` take a `dtype`, as the last releases of `transformers` call it by mistake."""
    original = torch.Tensor.type_as

    def type_as(
        tensor: torch.Tensor, other: torch.Tensor | None = None, dtype: torch.dtype | None = None
    ) -> torch.Tensor:
        return tensor.to(dtype) if other is None else original(tensor, other)

    torch.Tensor.type_as = type_as  # type: ignore[assignment, method-assign]


def make_model(**settings: object) -> TransfoXLLMHeadModel:
    """A network of two layers with random weights."""
    torch.manual_seed(20190109)
    config = TransfoXLConfig(
        vocab_size=VOCABULARY,
        cutoffs=CUTOFFS,
        d_model=12,
        d_embed=12,
        n_head=2,
        d_head=6,
        d_inner=20,
        n_layer=2,
        div_val=1,
        mem_len=MEMORY,
        dropout=0.0,
        dropatt=0.0,
        **{"clamp_len": -1} | settings,
    )
    model = TransfoXLLMHeadModel(config).train()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return model


def record(name: str) -> dict[str, np.ndarray]:
    """The arrays of a case, named `CASE/...`."""
    model = make_model(**CASES[name])
    ids = torch.randint(0, VOCABULARY, (ROWS, SEGMENT * SEGMENTS + 1))
    found = {"ids": ids.numpy()}
    memories = [torch.zeros(0, ROWS, 12)] * 2  # by default `transformers` attends to zeros first; the paper does not
    for number in range(SEGMENTS):
        begin = number * SEGMENT
        model.zero_grad()
        made = model(ids[:, begin : begin + SEGMENT], mems=memories)
        memories = made.mems
        found[f"logprobs/{number}"] = made.prediction_scores.detach().numpy()
        for layer, states in enumerate(memories):  # (length, batch, width)
            found[f"memory/{number}/{layer}"] = states.transpose(0, 1).detach().numpy()
        targets = ids[:, begin + 1 : begin + SEGMENT + 1]
        (-made.prediction_scores.gather(2, targets[..., None]).sum()).backward()
    for key, parameter in model.named_parameters():
        found[f"weights/{key}"] = parameter.detach().numpy()
        found[f"gradients/{key}"] = parameter.grad.numpy()
    return {f"{name}/{key}": array for key, array in found.items()}


if __name__ == "__main__":
    repair_type_as()
    np.savez_compressed(sys.argv[1], **{key: array for name in CASES for key, array in record(name).items()})
