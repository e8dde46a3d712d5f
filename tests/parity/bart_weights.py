"""Weights of a `bart` and of a `t5` as those of their classes in the transformers library."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

from firth.nets.recipe import NetRecipe
from firth.tokens.tokenizer import BOS, EOS, PAD

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import transformers

OFFSET = 2  # rows before the first position in BART's tables


def bart(recipe: NetRecipe, tensors: dict[str, Tensor]) -> Any:
    """A `BartForConditionalGeneration` with our weights."""
    assert recipe.decoder is not None
    config = transformers.BartConfig(
        vocab_size=len(tensors["embedding.tokens.weight"]),
        d_model=recipe.encoder.width,
        encoder_layers=recipe.encoder.layers,
        decoder_layers=recipe.decoder.layers,
        encoder_attention_heads=recipe.encoder.heads,
        decoder_attention_heads=recipe.decoder.heads,
        encoder_ffn_dim=recipe.encoder.ffn_width,
        decoder_ffn_dim=recipe.decoder.ffn_width,
        max_position_embeddings=recipe.sequence.length,
        dropout=0.0,
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
        decoder_start_token_id=EOS,
        attn_implementation="eager",
    )
    made = transformers.BartForConditionalGeneration(config).to(tensors["embedding.tokens.weight"].dtype)
    found = {"model.shared.weight": tensors["embedding.tokens.weight"]}
    for ours, theirs, embedding, layers in (
        ("encoders.0", "encoder", "embedding", recipe.encoder.layers),
        ("decoder", "decoder", "decoder_embedding", recipe.decoder.layers),
    ):
        found[f"model.{theirs}.embed_tokens.weight"] = tensors["embedding.tokens.weight"]
        table = tensors[f"{embedding}.positions.weight"]
        found[f"model.{theirs}.embed_positions.weight"] = torch.cat([table.new_zeros(OFFSET, table.shape[1]), table])
        for kind in ("weight", "bias"):
            found[f"model.{theirs}.layernorm_embedding.{kind}"] = tensors[f"{embedding}.norm.{kind}"]
        for layer in range(layers):
            for name, tensor in _bart_layer(tensors, f"{ours}.layers.{layer}.", theirs == "decoder").items():
                found[f"model.{theirs}.layers.{layer}.{name}"] = tensor
    left = made.load_state_dict(found, strict=False)
    assert not left.unexpected_keys
    assert set(left.missing_keys) <= {"lm_head.weight", "final_logits_bias"}, left
    return made


def _bart_layer(tensors: dict[str, Tensor], prefix: str, is_decoder: bool) -> dict[str, Tensor]:
    names = {"attention.out": "self_attn.out_proj", "norm1": "self_attn_layer_norm", "norm2": "final_layer_norm"}
    names |= {"feedforward.inner": "fc1", "feedforward.outer": "fc2"}
    if is_decoder:
        names |= {"cross_attention.query": "encoder_attn.q_proj", "cross_attention.out": "encoder_attn.out_proj"}
        names["norm3"] = "encoder_attn_layer_norm"
    found = {}
    for kind in ("weight", "bias"):
        found |= {f"{theirs}.{kind}": tensors[f"{prefix}{ours}.{kind}"] for ours, theirs in names.items()}
        parts = tensors[f"{prefix}attention.qkv.{kind}"].chunk(3)
        found |= {f"self_attn.{n}_proj.{kind}": part for n, part in zip("qkv", parts, strict=True)}
        if is_decoder:
            parts = tensors[f"{prefix}cross_attention.keys.{kind}"].chunk(2)
            found |= {f"encoder_attn.{n}_proj.{kind}": part for n, part in zip("kv", parts, strict=True)}
    return found


def t5(recipe: NetRecipe, tensors: dict[str, Tensor]) -> Any:
    """A `T5ForConditionalGeneration` with our weights."""
    assert recipe.decoder is not None
    is_tied = recipe.output.kind == "tied"
    config = transformers.T5Config(
        vocab_size=len(tensors["embedding.tokens.weight"]),
        d_model=recipe.encoder.width,
        d_kv=recipe.encoder.width // recipe.encoder.heads,
        d_ff=recipe.encoder.ffn_width,
        num_layers=recipe.encoder.layers,
        num_decoder_layers=recipe.decoder.layers,
        num_heads=recipe.encoder.heads,
        relative_attention_num_buckets=recipe.encoder.buckets,
        relative_attention_max_distance=recipe.encoder.max_distance,
        dropout_rate=0.0,
        layer_norm_epsilon=recipe.encoder.eps,
        feed_forward_proj="gated-gelu" if recipe.encoder.gated else "relu",
        tie_word_embeddings=is_tied,
        pad_token_id=PAD,
        eos_token_id=EOS,
        decoder_start_token_id=EOS,
    )
    made = transformers.T5ForConditionalGeneration(config)
    if not is_tied:  # version 5 ties them all the same
        made.lm_head.weight = torch.nn.Parameter(tensors["output.weight"].clone())
    made = made.to(tensors["embedding.tokens.weight"].dtype)
    found = {"shared.weight": tensors["embedding.tokens.weight"]}
    for ours, theirs, layers in (
        ("encoders.0", "encoder", recipe.encoder.layers),
        ("decoder", "decoder", recipe.decoder.layers),
    ):
        found[f"{theirs}.embed_tokens.weight"] = tensors["embedding.tokens.weight"]
        found[f"{theirs}.final_layer_norm.weight"] = tensors[f"{ours}.norm.weight"]
        table = tensors[f"{ours}.layers.0.attention.table.weight"]
        found[f"{theirs}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"] = table
        for layer in range(layers):
            given = _t5_layer(tensors, f"{ours}.layers.{layer}.", theirs == "decoder", recipe.encoder.gated)
            found |= {f"{theirs}.block.{layer}.layer.{name}.weight": tensor for name, tensor in given.items()}
    left = made.load_state_dict(found, strict=False)
    assert not left.unexpected_keys
    assert set(left.missing_keys) <= {"lm_head.weight"}, left
    return made


def _t5_layer(tensors: dict[str, Tensor], prefix: str, is_decoder: bool, is_gated: bool) -> dict[str, Tensor]:
    last = 2 if is_decoder else 1
    q, k, v = tensors[f"{prefix}attention.qkv.weight"].chunk(3)
    found = {"0.SelfAttention.q": q, "0.SelfAttention.k": k, "0.SelfAttention.v": v}
    found["0.SelfAttention.o"] = tensors[f"{prefix}attention.out.weight"]
    found["0.layer_norm"] = tensors[f"{prefix}norm1.weight"]
    if is_decoder:
        k, v = tensors[f"{prefix}cross_attention.keys.weight"].chunk(2)
        found |= {"1.EncDecAttention.q": tensors[f"{prefix}cross_attention.query.weight"]}
        found |= {"1.EncDecAttention.k": k, "1.EncDecAttention.v": v}
        found["1.EncDecAttention.o"] = tensors[f"{prefix}cross_attention.out.weight"]
        found["1.layer_norm"] = tensors[f"{prefix}norm3.weight"]
    inner = tensors[f"{prefix}feedforward.inner.weight"]
    parts = dict(zip(("wi_0", "wi_1"), inner.chunk(2), strict=True)) if is_gated else {"wi": inner}
    found |= {f"{last}.DenseReluDense.{name}": part for name, part in parts.items()}
    found[f"{last}.DenseReluDense.wo"] = tensors[f"{prefix}feedforward.outer.weight"]
    found[f"{last}.layer_norm"] = tensors[f"{prefix}norm2.weight"]
    return found
