"""XLNet: relative positions and segments, two streams (Yang et al. 2019)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from firth.artifact.formats.huggingface_family import ACTIVATIONS, Config, HeadClass, ModelType, Tensors
from firth.errors import ArtifactError
from firth.nets.recipe import NetRecipe
from firth.recipes.nets import xlnet
from firth.tasks.recipe import TaskName

_TEXTS = HeadClass("XLNetForSequenceClassification", "logits_proj", "sequence_summary.summary", "last")
_CHOICES = _TEXTS._replace(architecture="XLNetForMultipleChoice")
_SUMMARY: Config = {"summary_type": "last", "summary_use_proj": True, "summary_activation": "tanh"}
"""How its classifiers of texts and choices compute logits: from the last state by a layer with tanh and another one."""
_BY_HEADS = (".q", ".k", ".v", ".o", ".r", ".r_w_bias", ".r_r_bias", ".r_s_bias", ".seg_embed")
"""Tensors of theirs whose last dimension is that of the states, divided into heads."""


class Xlnet(ModelType):
    """XLNet. A token is predicted by a query at its position, given the masks of an order (`perm_mask`)."""

    name = "xlnet"
    architecture = "XLNetLMHeadModel"
    fields: ClassVar = {
        "encoder.width": ("d_model", 1024),
        "encoder.layers": ("n_layer", 24),
        "encoder.heads": ("n_head", 16),
        "encoder.ffn_width": ("d_inner", 4096),
        "encoder.eps": ("layer_norm_eps", 1e-12),
        "encoder.activation": ("ff_activation", "gelu"),
        "encoder.dropout": ("dropout", 0.1),
        "memory.length": ("mem_len", 512),
    }
    activations = ACTIVATIONS
    required: ClassVar = {
        "attn_type": "bi",
        "bi_data": False,
        "same_length": False,
        "untie_r": True,
        "pruned_heads": {},
    }
    pipelines: ClassVar = {"XLNetForQuestionAnsweringSimple": "question-answering"}
    prefix, head_prefixes = "transformer.", ("lm_loss.",)
    names: ClassVar = {
        "embedding.tokens": "transformer.word_embedding",
        "embedding.query": "transformer.mask_emb",
        "encoders.0.layers.*.attention.qkv.weight": "transformer.layer.*.rel_attn.q|k|v",
        "encoders.0.layers.*.attention.out.weight": "transformer.layer.*.rel_attn.o",
        "encoders.0.layers.*.attention.distances.weight": "transformer.layer.*.rel_attn.r",
        "encoders.0.layers.*.attention.biases.content": "transformer.layer.*.rel_attn.r_w_bias",
        "encoders.0.layers.*.attention.biases.position": "transformer.layer.*.rel_attn.r_r_bias",
        "encoders.0.layers.*.attention.segments.bias": "transformer.layer.*.rel_attn.r_s_bias",
        "encoders.0.layers.*.attention.segments.vectors": "transformer.layer.*.rel_attn.seg_embed",
        "encoders.0.layers.*.norm1": "transformer.layer.*.rel_attn.layer_norm",
        "encoders.0.layers.*.feedforward.inner": "transformer.layer.*.ff.layer_1",
        "encoders.0.layers.*.feedforward.outer": "transformer.layer.*.ff.layer_2",
        "encoders.0.layers.*.norm2": "transformer.layer.*.ff.layer_norm",
        "output.weight": "lm_loss.weight",
        "output.bias": "lm_loss.bias",
    }
    head_classes: ClassVar = {
        "classify": _TEXTS,
        "pair": _TEXTS,
        "tag": HeadClass("XLNetForTokenClassification", "classifier"),
        "span": HeadClass("XLNetForQuestionAnsweringSimple", "qa_outputs"),
        "choice": _CHOICES,
    }
    classifier_dropout = "summary_last_dropout"
    padding_side = "left"  # so that the last token is the one that is classified
    # Tokens of the published vocabulary that pre-training did not use; texts have <sep> and <cls> instead.
    renamed: ClassVar = {"<s>": "<unused-s>", "</s>": "<unused-/s>"}

    def published(self) -> NetRecipe:
        return xlnet()

    def claims(self, recipe: NetRecipe) -> bool:
        return recipe.visibility == "bidirectional" and recipe.encoder.positions == "relative"

    def unsupported(self, recipe: NetRecipe) -> dict[str, bool]:
        embedding, encoder, output = recipe.embedding, recipe.encoder, recipe.output
        return {
            f"encoder.segments={encoder.segments}": encoder.segments != "relative",
            f"encoder.tie_position_biases={encoder.tie_position_biases}": encoder.tie_position_biases,
            f"encoder.norm={encoder.norm}": encoder.norm != "post",
            f"encoder.rms={encoder.rms}": encoder.rms,
            f"encoder.gated={encoder.gated}": encoder.gated,
            f"encoder.biases={encoder.biases}": not encoder.biases,
            f"encoder.tie_layers={encoder.tie_layers}": encoder.tie_layers != "none",
            f"encoder.layers={encoder.layers}": encoder.layers < 1,
            f"embedding.query={embedding.query}": not embedding.query,
            f"embedding.positions={embedding.positions}": embedding.positions != "none",
            f"embedding.characters={embedding.characters}": embedding.characters,
            f"embedding.norm={embedding.norm}": embedding.norm,
            f"embedding.scaled={embedding.scaled}": embedding.scaled,
            f"embedding.segments={embedding.segments}": embedding.segments > 0,
            f"embedding.languages={embedding.languages}": embedding.languages > 0,
            f"embedding.width={embedding.width}": embedding.width != encoder.width,
            f"memory.same_length={recipe.memory.same_length}": recipe.memory.same_length,
            f"output.kind={output.kind}": output.kind not in ("tied", "full"),
            f"output.transform={output.transform}": output.transform,
            f"output.scaled={output.scaled}": output.scaled,
        }

    def further_config(self, recipe: NetRecipe) -> Config:
        sequence = recipe.sequence
        return {
            "attn_type": "bi",
            "bi_data": False,  # that of training; rows of one batch would have other distances
            "clamp_len": recipe.encoder.clamp_length or -1,
            "reuse_len": int(sequence.reused * sequence.length) if recipe.ends_with_class else None,
            "d_head": recipe.encoder.width // recipe.encoder.heads,
        }

    def check_config(self, config: Config) -> None:
        super().check_config(config)
        is_summarised = config.get("architectures") in ([_TEXTS.architecture], [_CHOICES.architecture])
        for key, wanted in _SUMMARY.items() if is_summarised else ():
            if config.get(key, wanted) != wanted:
                raise ArtifactError(
                    f"config.json has {key}={config[key]!r:.80}: Firth reads classifiers of texts with {wanted!r} only."
                )

    def recipe_values(self, config: Config) -> dict[str, Any]:
        """Also the largest distance; without a memory its length is null there."""
        if config.get("mem_len", 0) is None:
            config = config | {"mem_len": 0}
        clamped = config.get("clamp_len", -1)
        if type(clamped) is not int:
            raise ArtifactError(f"config.json has clamp_len={clamped!r:.80}: it must be an integer.")
        return super().recipe_values(config) | {"encoder.clamp_length": max(0, clamped)}

    def read_objectives(
        self, base: NetRecipe, values: dict[str, Any], config: Config, given: Mapping[str, Tensor]
    ) -> NetRecipe:
        """Their attention weights are dropped at the rate of states, which ours may be if Firth wrote config.json."""
        if values["encoder.dropout"] != base.encoder.dropout:
            values["encoder.attention_dropout"] = values["encoder.dropout"]
        return base

    def remarks(self, recipe: NetRecipe) -> list[str]:
        if recipe.encoder.attention_dropout == recipe.encoder.dropout:
            return []
        return ["transformers drops attention weights at the rate of encoder.dropout: it matters in training only"]

    def reshape(self, name: str, tensor: Tensor, offset: int) -> Tensor:
        """Layers of states have (inputs, outputs) there, but that of the attended ones."""
        if name.endswith((".qkv.weight", ".distances.weight")):
            return tensor.reshape(-1, tensor.shape[1], tensor.shape[1]).transpose(1, 2).reshape(tensor.shape)
        return tensor.view(1, 1, -1) if name == "embedding.query" else tensor

    def divide_heads(self, recipe: NetRecipe, theirs: Tensors) -> Tensors:
        heads = recipe.encoder.heads
        divided = {name: tensor for name, tensor in theirs.items() if name.endswith(_BY_HEADS) and ".rel_attn." in name}
        return theirs | {name: one.reshape(*one.shape[:-1], heads, -1) for name, one in divided.items()}

    def restore_shape(self, name: str, tensor: Tensor, offset: int) -> Tensor:
        if name == "embedding.query":
            return tensor.flatten()
        if ".attention." not in name:
            return tensor
        joined = tensor.flatten(-2)
        return self.reshape(name, joined, offset)

    def neutral_tensors(self, recipe: NetRecipe, ours: Mapping[str, Tensor]) -> Tensors:
        table = ours["embedding.tokens.weight"]
        return {} if "output.bias" in ours else {self.their_name("output.bias"): table.new_zeros(table.shape[0])}

    def task_config(self, task: TaskName) -> Config:
        found: Config = {"use_mems_eval": False}  # their pipelines cannot divide a batch of memories
        return found | (_SUMMARY if self.head_classes[task].pooler else {})
