"""Marian, the class of transformers that is nearest to the Transformer of Vaswani et al. (2017).

Its sinusoids are in halves, sin ... sin cos ... cos, ours interleaved as in the paper. Every part of the network treats
the dimensions of states alike, so the same network has them in another order in all weights. Its layer normalisation
always adds 1e-5 to variances.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from firth.artifact.formats.huggingface_family import ACTIVATIONS, TOKENS, Config, ModelType, Tensors
from firth.errors import ArtifactError
from firth.nets.embedding import sinusoids
from firth.nets.recipe import EncoderRecipe, NetRecipe, OutputRecipe
from firth.recipes.nets import transformer
from firth.tokens.special_tokens import NO_SPECIAL_TOKENS, PairFormat, SpecialTokens
from firth.tokens.tokenizer import BOS, EOS, MASK, PAD, UNK, Tokenizer

_EPS = 1e-5  # of torch.nn.LayerNorm, which is not in their configuration
_BIAS = "final_logits_bias"
_BEAMS = 4
_LENGTH_PENALTY = 0.42  # n^0.42 grows as ((5 + n) / 6)^0.6, the measure of `firth generate`, does at 12 tokens
_POSITIONS = tuple(f"model.{side}.embed_positions.weight" for side in ("encoder", "decoder"))
_ROUNDING = 1e-3  # of stored sinusoids, which may have been float16
_LAYER = {
    "attention.qkv": "self_attn.q_proj|k_proj|v_proj",
    "attention.out": "self_attn.out_proj",
    "norm1": "self_attn_layer_norm",
    "feedforward.inner": "fc1",
    "feedforward.outer": "fc2",
    "norm2": "final_layer_norm",
}
_CROSS = {
    "cross_attention.query": "encoder_attn.q_proj",
    "cross_attention.keys": "encoder_attn.k_proj|v_proj",
    "cross_attention.out": "encoder_attn.out_proj",
    "norm3": "encoder_attn_layer_norm",
}
_READERS = ("tokens", "qkv", "query", "keys", "inner")  # whose columns are dimensions of states
_WRITERS = ("out", "outer", "norm1", "norm2", "norm3")  # whose rows are
_SHARED = ("width", "activation", "dropout", "attention_dropout")  # settings that encoder and decoder have in common


class Marian(ModelType):
    """An encoder and a decoder with sinusoidal positions and one table of tokens."""

    name = "marian"
    architecture = "MarianMTModel"
    fields: ClassVar = {
        "encoder.width": ("d_model", 1024),
        "encoder.layers": ("encoder_layers", 12),
        "encoder.heads": ("encoder_attention_heads", 16),
        "encoder.ffn_width": ("encoder_ffn_dim", 4096),
        "encoder.activation": ("activation_function", "gelu"),
        "encoder.dropout": ("dropout", 0.1),
        "encoder.attention_dropout": ("attention_dropout", 0.0),
        "decoder.layers": ("decoder_layers", 12),
        "decoder.heads": ("decoder_attention_heads", 16),
        "decoder.ffn_width": ("decoder_ffn_dim", 4096),
        "sequence.length": ("max_position_embeddings", 1024),
    }
    activations = ACTIVATIONS
    required: ClassVar = {
        "is_decoder": False,
        "tie_word_embeddings": True,
        "share_encoder_decoder_embeddings": True,
        "static_position_embeddings": True,
        "normalize_before": False,
        "normalize_embedding": False,
        "add_final_layer_norm": False,
        "pruned_heads": {},
    }
    pipelines: ClassVar = {"MarianMTModel": "translation"}
    prefix, head_prefixes = "model.", ("lm_head.", _BIAS)
    names: ClassVar = {
        "embedding.tokens": "model.shared",
        **{f"encoders.0.layers.*.{ours}": f"model.encoder.layers.*.{theirs}" for ours, theirs in _LAYER.items()},
        **{
            f"decoder.layers.*.{ours}": f"model.decoder.layers.*.{theirs}" for ours, theirs in (_LAYER | _CROSS).items()
        },
        "output.weight": "lm_head.weight",
        "output.bias": _BIAS,
    }
    required_specials = (EOS,)
    prefers_cls = False
    missing_template = NO_SPECIAL_TOKENS

    def published(self) -> NetRecipe:
        """The recipe of the paper with Marian's constant."""
        base = transformer()
        return replace(base, encoder=replace(base.encoder, eps=_EPS), decoder=replace(base.encoder, eps=_EPS))

    def claims(self, recipe: NetRecipe) -> bool:
        return recipe.decoder is not None

    def unsupported(self, recipe: NetRecipe) -> dict[str, bool]:
        embedding, output = recipe.embedding, recipe.output
        found = {
            f"visibility={recipe.visibility}": recipe.visibility != "bidirectional",
            f"embedding.positions={embedding.positions}": embedding.positions != "sinusoidal",
            f"embedding.characters={embedding.characters}": embedding.characters,
            f"embedding.segments={embedding.segments}": embedding.segments > 0,
            f"embedding.languages={embedding.languages}": embedding.languages > 0,
            f"embedding.norm={embedding.norm}": embedding.norm,
            f"embedding.width={embedding.width}": embedding.width != recipe.encoder.width or embedding.width % 2 > 0,
            f"output.kind={output.kind}": output.kind != "tied",
            f"output.transform={output.transform}": output.transform,
        }
        for side, part in (("encoder", recipe.encoder), ("decoder", recipe.decoder or recipe.encoder)):
            found |= {f"{side}.{name}": is_lacking for name, is_lacking in _unsupported(part).items()}
        if recipe.decoder is not None:
            activation = recipe.decoder.activation
            found[f"decoder.activation={activation}"] = activation != recipe.encoder.activation
        return found

    def remarks(self, recipe: NetRecipe) -> list[str]:
        eps = {part.eps for part in (recipe.encoder, recipe.decoder) if part is not None} - {_EPS}
        if not eps:
            return []
        return [
            f"Marian adds {_EPS:g} to variances where the model adds {min(eps):g}, so that logits differ a little "
            f"(about 1e-5 of them): for equal ones train with --set encoder.eps={_EPS:g} --set decoder.eps={_EPS:g}"
        ]

    def further_config(self, recipe: NetRecipe) -> Config:
        return {
            "is_encoder_decoder": True,
            "scale_embedding": True,
            "share_encoder_decoder_embeddings": True,
            "activation_dropout": 0.0,
            "decoder_start_token_id": EOS,
            "forced_eos_token_id": None,
        }

    def token_config(self, tokenizer: Tokenizer, kept: Sequence[int]) -> Config:
        return {"decoder_start_token_id": PairFormat.of(tokenizer).start}

    def further_files(self, recipe: NetRecipe, config: Config) -> dict[str, Config]:
        """The settings of `generate`: those of `firth generate`, as far as it has them."""
        return {
            "generation_config.json": {
                "num_beams": _BEAMS,
                "early_stopping": True,
                "length_penalty": _LENGTH_PENALTY,
                "max_length": recipe.sequence.length,
                "suppress_tokens": [PAD, UNK, BOS, MASK],
                **{key: config[key] for key in config if key.endswith("_token_id") and config[key] is not None},
            }
        }

    # Import

    def check_config(self, config: Config) -> None:
        super().check_config(config)
        if config.get("scale_embedding", False) is not True:
            raise ArtifactError(
                "config.json has scale_embedding=False, without which tied token vectors have another scale than "
                "Firth's: train the model with scale_embedding=True."
            )
        tokens = config.get("vocab_size")
        if config.get("decoder_vocab_size") not in (None, tokens):
            raise ArtifactError("config.json has another vocabulary for the decoder: Firth reads models with one only.")

    def recipe_values(self, config: Config) -> dict[str, Any]:
        values = super().recipe_values(config)
        return values | {f"decoder.{name}": values[f"encoder.{name}"] for name in _SHARED}

    def read_output(self, base: NetRecipe, config: Config, given: Mapping[str, Tensor]) -> OutputRecipe:
        bias = given.get(_BIAS)
        return replace(base.output, kind="tied", bias=base.output.bias or (bias is not None and bool(bias.any())))

    def drop_static(self, config: Config, given: Tensors) -> None:
        for name in _POSITIONS:
            table = given.pop(name, None)
            if table is not None and not _is_sinusoidal(table):
                raise ArtifactError(f"{name} holds no sinusoids in halves: Firth reads no other positions of Marian.")

    def import_template(self, found: SpecialTokens | None, config: Config, is_task: bool) -> SpecialTokens | None:
        """Their template for the source, and the token that the decoder starts with before the target."""
        before, _, end, *_ = found or NO_SPECIAL_TOKENS
        start, tokens = config.get("decoder_start_token_id"), config.get("vocab_size")
        if type(start) is not int or type(tokens) is not int or not 0 <= start < tokens:
            raise ArtifactError(f"config.json has decoder_start_token_id={start!r:.80}: it must be the id of a token.")
        return SpecialTokens(before, (*end, start), end, 0)

    def check_tokens(self, config: Config, order: Sequence[int]) -> None:
        end = config.get("eos_token_id", 0)
        if order[EOS] != end:
            raise ArtifactError(
                f"config.json has eos_token_id={end!r:.80}, but the tokenizer's is {order[EOS]}: set eos_token in "
                "tokenizer_config.json."
            )

    # Tensors

    def reshape(self, name: str, tensor: Tensor, offset: int) -> Tensor:
        if name == "output.bias":
            return tensor[None]
        dimension = _state_dimension(name)
        return tensor if dimension is None else _permute(tensor, dimension, _halves(tensor.shape[dimension]))

    def restore_shape(self, name: str, tensor: Tensor, offset: int) -> Tensor:
        if name == "output.bias":
            return tensor[0]
        dimension = _state_dimension(name)
        return tensor if dimension is None else _permute(tensor, dimension, _halves(tensor.shape[dimension]).argsort())

    def neutral_tensors(self, recipe: NetRecipe, ours: Mapping[str, Tensor]) -> Tensors:
        return {} if "output.bias" in ours else {_BIAS: ours[TOKENS].new_zeros(1, len(ours[TOKENS]))}

    def tied_copies(self) -> dict[str, str]:
        copies = ("lm_head.weight", "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight")
        return dict.fromkeys(copies, self.their_name(TOKENS))


def _unsupported(part: EncoderRecipe) -> dict[str, bool]:
    return {
        f"kind={part.kind}": part.kind != "transformer",
        f"positions={part.positions}": part.positions != "none",
        f"norm={part.norm}": part.norm != "post",
        f"tie_layers={part.tie_layers}": part.tie_layers != "none",
        f"layers={part.layers}": part.layers < 1,
        f"eps={part.eps:g}": part.eps > 2 * _EPS,  # smaller ones differ by less than that
    }


def _state_dimension(name: str) -> int | None:
    """The dimension of our tensor that is one of states; None for that of a head or of a feed-forward layer.

    >>> _state_dimension("decoder.layers.0.attention.qkv.weight"), _state_dimension("encoders.0.layers.1.norm1.bias")
    (1, 0)
    """
    *_, module, leaf = name.split(".")
    if name == "output.weight" or (module in _READERS and leaf == "weight"):
        return 1
    return 0 if module in _WRITERS else None


def _halves(width: int) -> Tensor:
    """Our dimension for each of Marian's: the sines first, then the cosines.

    >>> _halves(6).tolist()
    [0, 2, 4, 1, 3, 5]
    """
    return torch.cat([torch.arange(0, width, 2), torch.arange(1, width, 2)])


def _permute(tensor: Tensor, dimension: int, order: Tensor) -> Tensor:
    return tensor.index_select(dimension, order.to(tensor.device))


def _is_sinusoidal(table: Tensor) -> bool:
    if table.ndim != 2 or not table.is_floating_point():
        return False
    rows, width = table.shape
    expected = sinusoids(torch.arange(rows), width)[:, _halves(width)]
    return bool(torch.isfinite(table).all()) and float((table.float() - expected).abs().max()) < _ROUNDING
