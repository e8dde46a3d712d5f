"""GPT, `openai-gpt` at Hugging Face (Radford et al. 2018)."""

from __future__ import annotations

from typing import ClassVar

from firth.artifact.formats.huggingface_family import HeadClass
from firth.artifact.formats.huggingface_gpt2 import GPT2_FIELDS, CausalType, causal_names
from firth.nets.recipe import NetRecipe
from firth.recipes.nets import gpt

_TEXTS = HeadClass("OpenAIGPTForSequenceClassification", "score", pooling="last")


class Gpt(CausalType):
    """GPT; its feed-forward layers are always four times as wide."""

    name = "openai-gpt"
    architecture = "OpenAIGPTLMHeadModel"
    fields: ClassVar = {ours: pair for ours, pair in GPT2_FIELDS.items() if ours != "encoder.ffn_width"} | {
        "encoder.activation": ("afn", "gelu"),
        "sequence.length": ("n_positions", 512),
    }
    activations: ClassVar = {"gelu": "gelu-tanh", "relu": "relu"}  # their gelu is the tanh approximation here
    required: ClassVar = {"pruned_heads": {}}
    names = causal_names("tokens_embed", "positions_embed")
    head_classes: ClassVar = {"classify": _TEXTS, "pair": _TEXTS}

    def published(self) -> NetRecipe:
        return gpt()

    def claims(self, recipe: NetRecipe) -> bool:
        return recipe.visibility == "causal" and recipe.encoder.norm != "pre"

    def unsupported(self, recipe: NetRecipe) -> dict[str, bool]:
        encoder = recipe.encoder
        return {
            **super().unsupported(recipe),
            f"encoder.activation={encoder.activation}": encoder.activation not in ("gelu-tanh", "relu"),
            f"encoder.ffn_width={encoder.ffn_width}": encoder.ffn_width != 4 * encoder.width,
        }
