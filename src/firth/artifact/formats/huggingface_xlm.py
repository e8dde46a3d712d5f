"""XLM: languages instead of segments, causal or not (Lample and Conneau 2019)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from torch import Tensor

from firth.artifact.formats.huggingface_family import Config, HeadClass, ModelType, Tensors
from firth.errors import ArtifactError
from firth.nets.recipe import NetRecipe
from firth.objectives.clm import CausalLM
from firth.objectives.mlm import MaskedLM
from firth.recipes.nets import xlm
from firth.tasks.recipe import TaskName
from firth.tokens.tokenizer import MASK, UNK

_TEXTS = HeadClass("XLMForSequenceClassification", "sequence_summary.summary")
_SUMMARY: Config = {
    "summary_type": "first",
    "summary_use_proj": True,
    "summary_activation": None,
    "summary_proj_to_labels": True,
}
"""How its classifier of texts computes logits: from the first state by one layer, without a pooler."""


class Xlm(ModelType):
    """XLM."""

    name = "xlm"
    architecture = "XLMWithLMHeadModel"
    fields: ClassVar = {
        "encoder.width": ("emb_dim", 2048),
        "encoder.layers": ("n_layers", 12),
        "encoder.heads": ("n_heads", 16),
        "encoder.eps": ("layer_norm_eps", 1e-12),
        "encoder.activation": ("gelu_activation", True),
        "encoder.dropout": ("dropout", 0.1),
        "encoder.attention_dropout": ("attention_dropout", 0.1),
        "embedding.languages": ("n_langs", 1),
        "sequence.length": ("max_position_embeddings", 512),
    }
    activations: ClassVar = {True: "gelu", False: "relu"}
    required: ClassVar = {"asm": False, "is_encoder": True, "pruned_heads": {}}
    pipelines: ClassVar = {"XLMWithLMHeadModel": "fill-mask", "XLMForQuestionAnsweringSimple": "question-answering"}
    prefix, head_prefixes = "transformer.", ("pred_layer.",)
    names: ClassVar = {
        "embedding.tokens": "transformer.embeddings",
        "embedding.positions": "transformer.position_embeddings",
        "embedding.languages": "transformer.lang_embeddings",
        "embedding.norm": "transformer.layer_norm_emb",
        "encoders.0.layers.*.attention.qkv": "transformer.attentions.*.q_lin|k_lin|v_lin",
        "encoders.0.layers.*.attention.out": "transformer.attentions.*.out_lin",
        "encoders.0.layers.*.norm1": "transformer.layer_norm1.*",
        "encoders.0.layers.*.feedforward.inner": "transformer.ffns.*.lin1",
        "encoders.0.layers.*.feedforward.outer": "transformer.ffns.*.lin2",
        "encoders.0.layers.*.norm2": "transformer.layer_norm2.*",
        "output.weight": "pred_layer.proj.weight",
        "output.bias": "pred_layer.proj.bias",
    }
    # Its class for choices has one more layer than ours.
    head_classes: ClassVar = {
        "classify": _TEXTS,
        "pair": _TEXTS,
        "tag": HeadClass("XLMForTokenClassification", "classifier"),
        "span": HeadClass("XLMForQuestionAnsweringSimple", "qa_outputs"),
    }
    classifier_dropout = "summary_first_dropout"

    def published(self) -> NetRecipe:
        return xlm()

    def claims(self, recipe: NetRecipe) -> bool:
        plain = recipe.visibility == "bidirectional" and not recipe.embedding.segments and not recipe.output.transform
        return recipe.embedding.languages > 0 or (plain and recipe.output.kind != "none")

    def unsupported(self, recipe: NetRecipe) -> dict[str, bool]:
        embedding, encoder, output = recipe.embedding, recipe.encoder, recipe.output
        return {
            f"encoder.kind={encoder.kind}": encoder.kind != "transformer",
            f"embedding.positions={embedding.positions}": embedding.positions != "learned",
            f"embedding.characters={embedding.characters}": embedding.characters,
            f"embedding.norm={embedding.norm}": not embedding.norm,
            f"embedding.segments={embedding.segments}": embedding.segments > 0,
            f"embedding.languages={embedding.languages}": embedding.languages == 1,
            f"embedding.width={embedding.width}": embedding.width != encoder.width,
            f"encoder.norm={encoder.norm}": encoder.norm != "post",
            f"encoder.tie_layers={encoder.tie_layers}": encoder.tie_layers != "none",
            f"encoder.activation={encoder.activation}": encoder.activation not in ("gelu", "relu"),
            f"encoder.ffn_width={encoder.ffn_width}": encoder.ffn_width != 4 * encoder.width,
            f"encoder.layers={encoder.layers}": encoder.layers < 1,
            f"output.kind={output.kind}": output.kind not in ("tied", "full"),
            f"output.transform={output.transform}": output.transform,
        }

    def further_config(self, recipe: NetRecipe) -> Config:
        """The languages by number and name, and the ids of special tokens."""
        names = recipe.languages or tuple(map(str, range(recipe.embedding.languages)))
        return {
            "causal": recipe.visibility == "causal",
            "use_lang_emb": recipe.embedding.languages > 0,
            "lang2id": {name: number for number, name in enumerate(names)},
            "id2lang": {str(number): name for number, name in enumerate(names)},
            "lang_id": names.index(recipe.language) if recipe.language else 0,
            "unk_index": UNK,
            "mask_index": MASK,
            "mask_token_id": MASK,
        }

    def task_config(self, task: TaskName) -> Config:
        return _SUMMARY if self.head_classes[task] == _TEXTS else {}

    def check_config(self, config: Config) -> None:
        super().check_config(config)
        for key, wanted in _SUMMARY.items() if config.get("architectures") == [_TEXTS.architecture] else ():
            if config.get(key, wanted) != wanted:
                raise ArtifactError(
                    f"config.json has {key}={config[key]!r:.80}: Firth reads classifiers of texts with {wanted!r} only."
                )

    def read_objectives(
        self, base: NetRecipe, values: dict[str, Any], config: Config, given: Mapping[str, Tensor]
    ) -> NetRecipe:
        """The recipe with the languages and the direction; languages without a name have their number."""
        causal, count = config.get("causal", False), values["embedding.languages"]
        if count == 1 or config.get("use_lang_emb", True) is False:
            count = 0
        values["embedding.languages"] = count
        numbers = config.get("lang2id")
        names = tuple(map(str, range(count)))
        if isinstance(numbers, dict) and numbers and count:
            if len(numbers) != count or sorted(map(str, numbers.values())) != sorted(names):
                raise ArtifactError(f"config.json has n_langs={count}, and lang2id does not number them: correct one.")
            names = tuple(sorted(map(str, numbers), key=numbers.__getitem__))
        objectives = base.objectives
        if causal:
            objectives = tuple(one for one in objectives if one.predicts == "next") or (CausalLM(),)
        elif not count:
            objectives = tuple(one for one in objectives if not one.needs_translations) or (MaskedLM(),)
        return replace(
            base,
            visibility="causal" if causal else "bidirectional",
            objectives=objectives,
            embedding=replace(base.embedding, languages=count),
            languages=names,
            language=base.language if base.language in names else "",
        )

    def neutral_tensors(self, recipe: NetRecipe, ours: Mapping[str, Tensor]) -> Tensors:
        table = ours["embedding.tokens.weight"]
        return {} if "output.bias" in ours else {self.their_name("output.bias"): table.new_zeros(table.shape[0])}
