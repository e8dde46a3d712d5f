"""RoBERTa: a BERT without segments and sentence pairs (Liu et al. 2019)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor

from firth.artifact.formats.huggingface_bert import (
    BERT_FIELDS,
    Bert,
    MaskedType,
    encoder_names,
    masked_classes,
    pair_objective,
)
from firth.artifact.formats.huggingface_family import Config, HeadClass, Tensors
from firth.errors import ArtifactError
from firth.nets.recipe import NetRecipe
from firth.recipes.nets import roberta

_MAX_PADDING_ID = 1000


class Roberta(MaskedType):
    """RoBERTa."""

    name = "roberta"
    layout = Bert.name  # they differ only in how they number positions
    architecture = "RobertaForMaskedLM"
    fields = BERT_FIELDS
    activations: ClassVar = {"gelu": "gelu"}  # its head has gelu whatever its layers have
    prefix, head_prefixes = "roberta.", ("lm_head.",)
    names = encoder_names("roberta") | {
        "output.transform.dense": "lm_head.dense",
        "output.transform.norm": "lm_head.layer_norm",
        "output.weight": "lm_head.decoder.weight",
        "output.bias": "lm_head.bias",
    }
    head_classes = masked_classes(
        "Roberta",
        "roberta.pooler.dense",
        HeadClass("RobertaForSequenceClassification", "classifier.out_proj", "classifier.dense"),
    )

    def published(self) -> NetRecipe:
        return roberta()

    def claims(self, recipe: NetRecipe) -> bool:
        return not recipe.embedding.segments and not pair_objective(recipe) and recipe.encoder.activation == "gelu"

    def position_offset(self, config: Config) -> int:
        """Positions are numbered from the padding id + 1."""
        padding = config.get("pad_token_id", 1)
        if type(padding) is not int or not 0 <= padding < _MAX_PADDING_ID:
            raise ArtifactError(f"config.json has pad_token_id={padding!r:.80}: it must be a small whole number.")
        return padding + 1

    def neutral_tensors(self, recipe: NetRecipe, ours: Mapping[str, Tensor]) -> Tensors:
        return self.with_bias_copy(super().neutral_tensors(recipe, ours), ours)
