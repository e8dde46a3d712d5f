"""Weights of a `transformer` as those of Marian in the transformers library, and back.

Marian's sinusoids are in halves, sin ... sin cos ... cos, ours interleaved as in the paper. Every part of the network
treats the dimensions of states alike, so exchanging them in all weights gives the same network.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

from firth.nets.model import own_tensors
from firth.nets.network import Network
from firth.nets.recipe import NetRecipe
from firth.tokens.tokenizer import EOS, PAD

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import transformers


def halves(width: int) -> Tensor:
    """Our dimension for each of Marian's."""
    return torch.cat([torch.arange(0, width, 2), torch.arange(1, width, 2)])


def to_marian(recipe: NetRecipe, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Marian's names and tensors for ours."""
    order = halves(recipe.encoder.width)
    found = {"model.shared.weight": tensors["embedding.tokens.weight"][:, order]}
    assert recipe.decoder is not None
    for ours, theirs, part in (
        ("encoders.0", "encoder", recipe.encoder),
        ("decoder", "decoder", recipe.decoder),
    ):
        found[f"model.{theirs}.embed_tokens.weight"] = found["model.shared.weight"]
        for layer in range(part.layers):
            given = {
                name.removeprefix(f"{ours}.layers.{layer}."): tensor
                for name, tensor in tensors.items()
                if name.startswith(f"{ours}.layers.{layer}.")
            }
            for name, tensor in _layer(given, order).items():
                found[f"model.{theirs}.layers.{layer}.{name}"] = tensor
    return found


def _layer(given: dict[str, Tensor], order: Tensor) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for kind in ("weight", "bias"):

        def read(tensor: Tensor, kind: str = kind) -> Tensor:
            """Reads states: its columns are exchanged."""
            return tensor[:, order] if kind == "weight" else tensor

        parts = [*given[f"attention.qkv.{kind}"].chunk(3)]
        found |= {f"self_attn.{n}_proj.{kind}": read(part) for n, part in zip("qkv", parts, strict=True)}
        found[f"self_attn.out_proj.{kind}"] = given[f"attention.out.{kind}"][order]
        found[f"self_attn_layer_norm.{kind}"] = given[f"norm1.{kind}"][order]
        found[f"fc1.{kind}"] = read(given[f"feedforward.inner.{kind}"])
        found[f"fc2.{kind}"] = given[f"feedforward.outer.{kind}"][order]
        found[f"final_layer_norm.{kind}"] = given[f"norm2.{kind}"][order]
        if f"cross_attention.query.{kind}" in given:
            key, value = given[f"cross_attention.keys.{kind}"].chunk(2)
            found[f"encoder_attn.q_proj.{kind}"] = read(given[f"cross_attention.query.{kind}"])
            found[f"encoder_attn.k_proj.{kind}"], found[f"encoder_attn.v_proj.{kind}"] = read(key), read(value)
            found[f"encoder_attn.out_proj.{kind}"] = given[f"cross_attention.out.{kind}"][order]
            found[f"encoder_attn_layer_norm.{kind}"] = given[f"norm3.{kind}"][order]
    return found


def from_marian(recipe: NetRecipe, theirs: dict[str, Tensor], like: dict[str, Tensor]) -> dict[str, Tensor]:
    """Our names and tensors for Marian's: the inverse of `to_marian`, which only moves numbers."""
    places = {name: torch.arange(tensor.numel()).view_as(tensor) for name, tensor in like.items()}
    offset, offsets = 0, {}
    for name in places:
        offsets[name], offset = offset, offset + places[name].numel()
    moved = to_marian(recipe, {name: place + offsets[name] for name, place in places.items()})
    flat = torch.empty(offset, dtype=next(iter(theirs.values())).dtype)
    for name, where in moved.items():
        flat[where.flatten()] = theirs[name].detach().flatten()
    return {name: flat[offsets[name] : offsets[name] + t.numel()].view_as(t).clone() for name, t in like.items()}


def marian(network: Network, **config: Any) -> Any:
    """MarianMTModel with the weights of a network of double or single precision."""
    recipe = network.recipe
    assert recipe.decoder is not None
    sizes = {
        f"{side}_{name}": value
        for side, part in (("encoder", recipe.encoder), ("decoder", recipe.decoder))
        for name, value in (("layers", part.layers), ("attention_heads", part.heads), ("ffn_dim", part.ffn_width))
    }
    made = transformers.MarianMTModel(
        transformers.MarianConfig(
            vocab_size=len(network.vocabulary),
            d_model=recipe.encoder.width,
            activation_function=recipe.encoder.activation,
            scale_embedding=True,
            max_position_embeddings=recipe.sequence.length,
            pad_token_id=PAD,
            eos_token_id=EOS,
            bos_token_id=EOS,
            decoder_start_token_id=EOS,
            forced_eos_token_id=None,
            **{"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0},
            **sizes,
            **config,
        )
    )
    dtype = next(network.parameters()).dtype
    tensors = to_marian(recipe, {name: tensor.detach() for name, tensor in own_tensors(network).items()})
    missing, unexpected = made.to(dtype).load_state_dict(tensors, strict=False)
    assert not unexpected, unexpected
    assert all(name.split(".")[0] in ("lm_head", "final_logits_bias") or "embed_positions" in name for name in missing)
    made.tie_weights()
    for module in made.modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.eps = recipe.encoder.eps  # which Marian's configuration does not have
    return made.eval()
