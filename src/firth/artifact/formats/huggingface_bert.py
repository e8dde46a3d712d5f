"""BERT, and what its descendants have in common (Devlin et al. 2019)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from firth.artifact.formats.huggingface_family import ACTIVATIONS, PLAIN, Config, HeadClass, ModelType, Tensors
from firth.nets.recipe import NetRecipe
from firth.recipes.nets import bert
from firth.tasks.recipe import TaskName

BERT_FIELDS: dict[str, tuple[str, Any]] = {
    "encoder.width": ("hidden_size", 768),
    "encoder.layers": ("num_hidden_layers", 12),
    "encoder.heads": ("num_attention_heads", 12),
    "encoder.ffn_width": ("intermediate_size", 3072),
    "encoder.eps": ("layer_norm_eps", 1e-12),
    "encoder.activation": ("hidden_act", "gelu"),
    "encoder.dropout": ("hidden_dropout_prob", 0.1),
    "encoder.attention_dropout": ("attention_probs_dropout_prob", 0.1),
    "embedding.segments": ("type_vocab_size", 2),
    "sequence.length": ("max_position_embeddings", 512),
}
BERT_LAYER = {
    "attention.qkv": "attention.self.query|key|value",
    "attention.out": "attention.output.dense",
    "norm1": "attention.output.LayerNorm",
    "feedforward.inner": "intermediate.dense",
    "feedforward.outer": "output.dense",
    "norm2": "output.LayerNorm",
}
"""Part of a layer in Firth and in BERT."""


def encoder_names(name: str, layer: str = "encoder.layer.*", parts: Mapping[str, str] = BERT_LAYER) -> dict[str, str]:
    """Embeddings and layers of BERT and its descendants."""
    return {
        "embedding.tokens": f"{name}.embeddings.word_embeddings",
        "embedding.positions": f"{name}.embeddings.position_embeddings",
        "embedding.segments": f"{name}.embeddings.token_type_embeddings",
        "embedding.norm": f"{name}.embeddings.LayerNorm",
    } | {f"encoders.0.layers.*.{ours}": f"{name}.{layer}.{theirs}" for ours, theirs in parts.items()}


def masked_classes(name: str, pooler: str, texts: HeadClass | None = None) -> dict[TaskName, HeadClass]:
    """The task classes of a masked model; `texts` classifies texts if its layers have other names."""
    texts = texts or HeadClass(f"{name}ForSequenceClassification", "classifier", pooler)
    return {
        "classify": texts,
        "pair": texts,
        "tag": HeadClass(f"{name}ForTokenClassification", "classifier"),
        "span": HeadClass(f"{name}ForQuestionAnswering", "qa_outputs"),
        "choice": HeadClass(f"{name}ForMultipleChoice", "classifier", pooler),
    }


def pair_objective(recipe: NetRecipe) -> str:
    """The objective of a recipe that classifies sentence pairs, or an empty string."""
    return next((one.name for one in recipe.objectives if one.classifies_pairs), "")


class MaskedType(ModelType):
    """Bidirectional networks with a layer norm after the embedding and a transform layer before the output."""

    required = PLAIN

    def unsupported(self, recipe: NetRecipe) -> dict[str, bool]:
        embedding, encoder, output = recipe.embedding, recipe.encoder, recipe.output
        return {
            f"encoder.kind={encoder.kind}": encoder.kind != "transformer",
            f"visibility={recipe.visibility}": recipe.visibility != "bidirectional",
            f"embedding.positions={embedding.positions}": embedding.positions != "learned",
            f"embedding.characters={embedding.characters}": embedding.characters,
            f"output.kind={output.kind}": output.kind not in ("tied", "full"),
            f"encoder.norm={encoder.norm}": encoder.norm != "post",
            f"encoder.tie_layers={encoder.tie_layers}": encoder.tie_layers not in ("none", "all"),
            f"embedding.norm={embedding.norm}": not embedding.norm,
            f"output.transform={output.transform}": not output.transform,
            f"encoder.layers={encoder.layers}": encoder.layers < 1,
        }

    def head_objective(self, recipe: NetRecipe) -> str:
        return pair_objective(recipe)

    def head_layers(self, recipe: NetRecipe) -> dict[str, int]:
        return {"pooler": recipe.width, "classifier": 2}

    def read_objectives(
        self, base: NetRecipe, values: dict[str, Any], config: Config, given: Mapping[str, Tensor]
    ) -> NetRecipe:
        """The recipe with a sentence-pair objective if there is a head for it; otherwise sequences need not be pairs.

        A single segment whose embedding is zero is none.
        """
        rows = given.get(self.their_name("embedding.segments.weight"))
        if values["embedding.segments"] == 1 and (rows is None or not bool(rows.any())):
            values["embedding.segments"] = 0
        segments, form = values["embedding.segments"], base.sequence.format
        objectives = tuple(one for one in base.objectives if one.needs_output or not one.needs_pairs)
        if self.has_pair_head(given):
            paired = base if pair_objective(base) else self.published()
            objectives += tuple(one for one in paired.objectives if one.needs_pairs and one not in objectives)
            form = paired.sequence.format
        elif segments < 2:
            form = "full-sentences"
        return replace(
            base,
            objectives=objectives,
            sequence=replace(base.sequence, format=form),
            embedding=replace(base.embedding, segments=segments),
        )

    def has_pair_head(self, given: Mapping[str, Tensor]) -> bool:
        """Whether the weights have layers for sentence pairs."""
        classifier = "heads.*.classifier"
        return classifier in self.names and self.their_name("heads.x.classifier.weight") in given

    def neutral_tensors(self, recipe: NetRecipe, ours: Mapping[str, Tensor]) -> Tensors:
        found: Tensors = {}
        table, bias = ours["embedding.tokens.weight"], self.their_name("output.bias")
        if not recipe.embedding.segments:
            found[self.their_name("embedding.segments.weight")] = table.new_zeros(1, table.shape[1])
        if "output.bias" not in ours:
            found[bias] = table.new_zeros(table.shape[0])
        return found

    def with_bias_copy(self, found: Tensors, ours: Mapping[str, Tensor]) -> Tensors:
        """The tensors with the copy of the output bias that an untied decoder layer has."""
        bias = self.their_name("output.bias")
        if "output.weight" in ours:
            copied = ours["output.bias"] if "output.bias" in ours else found[bias]
            found[bias.removesuffix("bias") + "decoder.bias"] = copied.clone()
        return found

    def tied_copies(self) -> dict[str, str]:
        layer = self.their_name("output.bias").removesuffix("bias")
        return {
            f"{layer}decoder.weight": self.their_name("embedding.tokens.weight"),
            f"{layer}decoder.bias": f"{layer}bias",
        }


def head_names(prefix: str) -> dict[str, str]:
    """The names of the layers that predict masked tokens and classify pairs; the pooler is in the encoder there."""
    return {
        "output.transform.dense": "cls.predictions.transform.dense",
        "output.transform.norm": "cls.predictions.transform.LayerNorm",
        "output.weight": "cls.predictions.decoder.weight",
        "output.bias": "cls.predictions.bias",
        "heads.*.pooler": f"{prefix}.pooler.dense",
        "heads.*.classifier": "cls.seq_relationship",
    }


class Bert(MaskedType):
    """BERT; SpanBERT and others with its architecture, too."""

    name = "bert"
    architecture, pair_architecture = "BertForMaskedLM", "BertForPreTraining"
    fields = BERT_FIELDS
    activations = ACTIVATIONS
    prefix, head_prefixes = "bert.", ("cls.",)
    names = encoder_names("bert") | head_names("bert")
    head_classes = masked_classes("Bert", "bert.pooler.dense")

    def published(self) -> NetRecipe:
        return bert()

    def claims(self, recipe: NetRecipe) -> bool:
        return True

    def neutral_tensors(self, recipe: NetRecipe, ours: Mapping[str, Tensor]) -> Tensors:
        return self.with_bias_copy(super().neutral_tensors(recipe, ours), ours)
