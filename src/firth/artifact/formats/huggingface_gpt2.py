"""GPT-2, and what it has in common with GPT: causal networks without an output bias (Radford et al. 2019)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from torch import Tensor

from firth.artifact.formats.huggingface_family import ACTIVATIONS, Config, HeadClass, ModelType
from firth.nets.recipe import NetRecipe
from firth.recipes.nets import gpt2
from firth.tasks.recipe import TaskName
from firth.tokens.special_tokens import NO_SPECIAL_TOKENS, SpecialTokens
from firth.tokens.tokenizer import BOS, EOS, PAD, UNK, Tokenizer

GPT2_FIELDS: dict[str, tuple[str, Any]] = {
    "encoder.width": ("n_embd", 768),
    "encoder.layers": ("n_layer", 12),
    "encoder.heads": ("n_head", 12),
    "encoder.ffn_width": ("n_inner", None),
    "encoder.eps": ("layer_norm_epsilon", 1e-5),
    "encoder.activation": ("activation_function", "gelu_new"),
    "encoder.dropout": ("resid_pdrop", 0.1),
    "encoder.attention_dropout": ("attn_pdrop", 0.1),
    "embedding.dropout": ("embd_pdrop", 0.1),
    "sequence.length": ("n_positions", 1024),
}


def causal_names(tokens: str, positions: str) -> dict[str, str]:
    """Tensors of GPT and GPT-2; the layers `c_*` have transposed weights: (inputs, outputs)."""
    return {
        "embedding.tokens": f"transformer.{tokens}",
        "embedding.positions": f"transformer.{positions}",
        "encoders.0.layers.*.norm1": "transformer.h.*.ln_1",
        "encoders.0.layers.*.attention.qkv": "transformer.h.*.attn.c_attn",
        "encoders.0.layers.*.attention.out": "transformer.h.*.attn.c_proj",
        "encoders.0.layers.*.norm2": "transformer.h.*.ln_2",
        "encoders.0.layers.*.feedforward.inner": "transformer.h.*.mlp.c_fc",
        "encoders.0.layers.*.feedforward.outer": "transformer.h.*.mlp.c_proj",
        "output.weight": "lm_head.weight",
    }


class CausalType(ModelType):
    """Causal networks. A text begins with the end of the one before it, as in training."""

    prefix, head_prefixes = "transformer.", ("lm_head.",)
    has_output_bias = False
    is_causal = True
    begin_token = EOS
    required_specials = (EOS,)
    prefers_cls = False
    missing_template = NO_SPECIAL_TOKENS

    def unsupported(self, recipe: NetRecipe) -> dict[str, bool]:
        embedding, encoder, output = recipe.embedding, recipe.encoder, recipe.output
        return {
            f"encoder.kind={encoder.kind}": encoder.kind != "transformer",
            f"embedding.positions={embedding.positions}": embedding.positions != "learned",
            f"embedding.characters={embedding.characters}": embedding.characters,
            f"output.kind={output.kind}": output.kind not in ("tied", "full"),
            f"encoder.norm={encoder.norm}": encoder.norm not in ("pre", "post"),
            f"encoder.tie_layers={encoder.tie_layers}": encoder.tie_layers != "none",
            f"embedding.norm={embedding.norm}": embedding.norm,
            f"output.transform={output.transform}": output.transform,
            f"embedding.segments={embedding.segments}": embedding.segments > 0,
            f"embedding.width={embedding.width}": embedding.width != encoder.width,
            f"encoder.layers={encoder.layers}": encoder.layers < 1,
        }

    def reshape(self, name: str, tensor: Tensor, offset: int) -> Tensor:
        return tensor.T if self._is_transposed(name, tensor) else tensor

    def restore_shape(self, name: str, tensor: Tensor, offset: int) -> Tensor:
        return tensor.T if self._is_transposed(name, tensor) else tensor

    def _is_transposed(self, name: str, tensor: Tensor) -> bool:
        return ".c_" in self.their_name(name) and tensor.ndim == 2

    def task_config(self, task: TaskName) -> Config:
        return {"bos_token_id": BOS}

    def token_config(self, tokenizer: Tokenizer, kept: Sequence[int]) -> Config:
        end = kept.index(EOS)
        return {"pad_token_id": PAD if PAD in kept else None, "bos_token_id": end, "eos_token_id": end}

    def export_roles(self, tokens: Mapping[int, str], roles: dict[str, str], for_task: bool) -> dict[str, str]:
        if for_task:
            return {role: token for role, token in roles.items() if role not in ("cls_token", "sep_token")}
        end = tokens[EOS]  # also begins texts
        found = {"unk_token": tokens.get(UNK, end), "bos_token": end, "eos_token": end}
        return found | ({"pad_token": tokens[PAD]} if PAD in tokens else {})

    def export_template(self, kept: Sequence[int], for_task: bool) -> SpecialTokens | None:
        """The end of text before a text, or with `for_task`: start a delimiter b extract."""
        return None if for_task else SpecialTokens((kept.index(EOS),), (), (), 0)

    def import_template(self, found: SpecialTokens | None, config: Config, is_task: bool) -> SpecialTokens | None:
        return super().import_template(found, config, is_task) if is_task else None


class Gpt2(CausalType):
    """GPT-2."""

    name = "gpt2"
    architecture = "GPT2LMHeadModel"
    fields = GPT2_FIELDS
    activations = ACTIVATIONS
    required: ClassVar = {
        "add_cross_attention": False,
        "pruned_heads": {},
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
    }
    names = causal_names("wte", "wpe") | {"encoders.0.norm": "transformer.ln_f"}
    head_classes: ClassVar = {
        "classify": HeadClass("GPT2ForSequenceClassification", "score", pooling="last"),
        "pair": HeadClass("GPT2ForSequenceClassification", "score", pooling="last"),
        "tag": HeadClass("GPT2ForTokenClassification", "classifier", pooling="last"),
        "span": HeadClass("GPT2ForQuestionAnswering", "qa_outputs", pooling="last"),
    }

    def published(self) -> NetRecipe:
        return gpt2()

    def claims(self, recipe: NetRecipe) -> bool:
        return recipe.visibility == "causal" and recipe.encoder.norm == "pre"
