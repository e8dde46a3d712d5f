"""What the families with an encoder and a decoder have in common, which `generate` of transformers runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from torch import Tensor

from firth.artifact.formats.huggingface_family import ACTIVATIONS, TOKENS, Config, ModelType, Tensors
from firth.errors import ArtifactError
from firth.nets.recipe import EncoderRecipe, NetRecipe, OutputRecipe
from firth.tokens.special_tokens import NO_SPECIAL_TOKENS, PairFormat, SpecialTokens
from firth.tokens.tokenizer import BOS, EOS, MASK, PAD, UNK, Tokenizer

LAYER_NORM_EPS = 1e-5
"""Of torch.nn.LayerNorm, which is not in the configuration of Marian and BART."""
_BEAMS = 4
_LENGTH_PENALTY = 0.42  # n^0.42 grows as ((5 + n) / 6)^0.6, the measure of `firth generate`, does at 12 tokens
_BIAS = "final_logits_bias"
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
_SHARED = ("width", "activation", "dropout", "attention_dropout")  # settings that encoder and decoder have in common


class EncoderDecoder(ModelType):
    """An encoder and a decoder, which starts with a token of its own."""

    required_specials = (EOS,)
    prefers_cls = False
    missing_template = NO_SPECIAL_TOKENS

    def further_config(self, recipe: NetRecipe) -> Config:
        return {"is_encoder_decoder": True, "decoder_start_token_id": EOS, "forced_eos_token_id": None}

    def token_config(self, tokenizer: Tokenizer, kept: Sequence[int]) -> Config:
        """The tokens that a target begins with; `kept` has the ids of the tokens of the model."""
        found = PairFormat.of(tokenizer)
        forced = {"forced_bos_token_id": kept.index(found.prefix[0])} if found.prefix else {}
        return {"decoder_start_token_id": kept.index(found.start), **forced}

    def further_files(self, recipe: NetRecipe, config: Config) -> dict[str, Config]:
        """The settings of `generate`: those of `firth generate`, as far as it has them."""
        forced = config.get("forced_bos_token_id")
        return {
            "generation_config.json": {
                "num_beams": _BEAMS,
                "early_stopping": True,
                "length_penalty": _LENGTH_PENALTY,
                "max_length": recipe.sequence.length,
                "suppress_tokens": [one for one in self.never_predicted(config) if one != forced],
                **{key: config[key] for key in config if key.endswith("_token_id") and config[key] is not None},
            }
        }

    def never_predicted(self, config: Config) -> list[int]:
        """The ids of the special tokens that Firth never predicts."""
        return [PAD, UNK, BOS, MASK]

    def import_template(self, found: SpecialTokens | None, config: Config, is_task: bool) -> SpecialTokens | None:
        """Their template for the source, and the tokens that the decoder starts with before the target."""
        before, _, end, *_ = found or NO_SPECIAL_TOKENS
        start = _token_id(config, "decoder_start_token_id")
        forced = [] if config.get("forced_bos_token_id") is None else [_token_id(config, "forced_bos_token_id")]
        return SpecialTokens(before, (*end, start, *forced), end, 0)

    def check_tokens(self, config: Config, order: Sequence[int]) -> None:
        end = config.get("eos_token_id", self.default_end)
        if order[EOS] != end:
            raise ArtifactError(
                f"config.json has eos_token_id={end!r:.80}, but the tokenizer's is {order[EOS]}: set eos_token in "
                "tokenizer_config.json."
            )

    default_end: ClassVar[int] = 0
    """`eos_token_id` of a config.json that has none."""


class FairseqType(EncoderDecoder):
    """The layers of fairseq's Transformers, normalised after each sublayer; all tables of tokens are one."""

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

    def unsupported(self, recipe: NetRecipe) -> dict[str, bool]:
        embedding, output = recipe.embedding, recipe.output
        found = {
            f"visibility={recipe.visibility}": recipe.visibility != "bidirectional",
            f"embedding.characters={embedding.characters}": embedding.characters,
            f"embedding.segments={embedding.segments}": embedding.segments > 0,
            f"embedding.languages={embedding.languages}": embedding.languages > 0,
            f"embedding.width={embedding.width}": embedding.width != recipe.encoder.width,
            f"output.kind={output.kind}": output.kind != "tied",
            f"output.transform={output.transform}": output.transform,
            f"output.scaled={output.scaled}": output.scaled,
        }
        for side, part in (("encoder", recipe.encoder), ("decoder", recipe.decoder or recipe.encoder)):
            found |= {f"{side}.{name}": is_lacking for name, is_lacking in _unsupported(part).items()}
        if recipe.decoder is not None:
            activation = recipe.decoder.activation
            found[f"decoder.activation={activation}"] = activation != recipe.encoder.activation
        return found

    def further_config(self, recipe: NetRecipe) -> Config:
        return {**super().further_config(recipe), "activation_dropout": 0.0}

    def recipe_values(self, config: Config) -> dict[str, Any]:
        values = super().recipe_values(config)
        return values | {f"decoder.{name}": values[f"encoder.{name}"] for name in _SHARED}

    def read_output(self, base: NetRecipe, config: Config, given: Mapping[str, Tensor]) -> OutputRecipe:
        bias = given.get(_BIAS)
        return replace(base.output, kind="tied", bias=base.output.bias or (bias is not None and bool(bias.any())))

    def reshape(self, name: str, tensor: Tensor, offset: int) -> Tensor:
        return tensor[None] if name == "output.bias" else tensor

    def restore_shape(self, name: str, tensor: Tensor, offset: int) -> Tensor:
        return tensor[0] if name == "output.bias" else tensor

    def neutral_tensors(self, recipe: NetRecipe, ours: Mapping[str, Tensor]) -> Tensors:
        return {} if "output.bias" in ours else {_BIAS: ours[TOKENS].new_zeros(1, len(ours[TOKENS]))}

    def tied_copies(self) -> dict[str, str]:
        copies = ("lm_head.weight", "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight")
        return dict.fromkeys(copies, self.their_name(TOKENS))


def _token_id(config: Config, key: str) -> int:
    found, tokens = config.get(key), config.get("vocab_size")
    if type(found) is not int or type(tokens) is not int or not 0 <= found < tokens:
        raise ArtifactError(f"config.json has {key}={found!r:.80}: it must be the id of a token.")
    return found


def _unsupported(part: EncoderRecipe) -> dict[str, bool]:
    return {
        f"kind={part.kind}": part.kind != "transformer",
        f"positions={part.positions}": part.positions != "none",
        f"norm={part.norm}": part.norm != "post",
        f"rms={part.rms}": part.rms,
        f"gated={part.gated}": part.gated,
        f"biases={part.biases}": not part.biases,
        f"tie_layers={part.tie_layers}": part.tie_layers != "none",
        f"layers={part.layers}": part.layers < 1,
        f"eps={part.eps:g}": part.eps > 2 * LAYER_NORM_EPS,  # smaller ones differ by less than that
    }
