"""T5 1.0 and 1.1: distances instead of positions, root-mean-square normalisation, no biases.

Feed-forward layers are gated in 1.1, where one matrix of ours is two there. Version 5 of transformers always declares
the output layer tied; a stored one that differs from the token vectors is used all the same, and states are scaled
before it unless config.json says `tie_word_embeddings` or `scale_decoder_outputs` false.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from firth.artifact.formats.huggingface_family import ACTIVATIONS, TOKENS, Config, HeadClass, Tensors, is_tied
from firth.artifact.formats.huggingface_seq2seq import EncoderDecoder
from firth.errors import ArtifactError
from firth.nets.recipe import EncoderRecipe, NetRecipe, OutputRecipe
from firth.recipes.denoising import t5, t5_1_1
from firth.tokens.tokenizer import BOS, EOS, MASK, PAD, UNK, Tokenizer

_SCALE = "scale_decoder_outputs"
_GATED = "gated-"
_GATED_GELU = {"gelu": "gelu_new"}  # what their gated-gelu computes
_LAYER = {
    "attention.qkv": "layer.0.SelfAttention.q|k|v",
    "attention.out": "layer.0.SelfAttention.o",
    "attention.table": "layer.0.SelfAttention.relative_attention_bias",
    "norm1": "layer.0.layer_norm",
}
_CROSS = {
    "cross_attention.query": "layer.1.EncDecAttention.q",
    "cross_attention.keys": "layer.1.EncDecAttention.k|v",
    "cross_attention.out": "layer.1.EncDecAttention.o",
    "norm3": "layer.1.layer_norm",
}
_UNUSED = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"  # of old files
_INNER, _GATES = ".DenseReluDense.wi.", (".DenseReluDense.wi_0.", ".DenseReluDense.wi_1.")
_TASK_PREFIX = "transformer."  # of the tensors in classes for tasks
_COMMON = ("width", "heads", "ffn_width", "buckets", "max_distance", "eps", "activation", "gated")


def _names(ours: str, theirs: str, sublayers: Mapping[str, str], last: int) -> dict[str, str]:
    found = {
        **sublayers,
        "feedforward.inner": f"layer.{last}.DenseReluDense.wi",
        "feedforward.outer": f"layer.{last}.DenseReluDense.wo",
        "norm2": f"layer.{last}.layer_norm",
    }
    return {f"{ours}.layers.*.{one}": f"{theirs}.block.*.{other}" for one, other in found.items()} | {
        f"{ours}.norm": f"{theirs}.final_layer_norm"
    }


class T5(EncoderDecoder):
    """An encoder and a decoder that write the missing spans of a text, or the encoder alone."""

    name = "t5"
    architecture = "T5ForConditionalGeneration"
    fields: ClassVar = {
        "encoder.width": ("d_model", 512),
        "encoder.layers": ("num_layers", 6),
        "encoder.heads": ("num_heads", 8),
        "encoder.ffn_width": ("d_ff", 2048),
        "encoder.buckets": ("relative_attention_num_buckets", 32),
        "encoder.max_distance": ("relative_attention_max_distance", 128),
        "encoder.eps": ("layer_norm_epsilon", 1e-6),
        "encoder.activation": ("feed_forward_proj", "relu"),
        "encoder.dropout": ("dropout_rate", 0.1),
        "sequence.length": ("n_positions", 512),
    }
    activations: ClassVar = {**ACTIVATIONS, "gelu_python": "gelu", "gelu_new": "gelu-tanh"}
    required: ClassVar = {"is_decoder": False, "pruned_heads": {}}
    pipelines: ClassVar = {"T5ForConditionalGeneration": "text2text-generation", "T5EncoderModel": "feature-extraction"}
    names: ClassVar = {
        "embedding.tokens": "shared",
        **_names("encoders.0", "encoder", _LAYER, 1),
        **_names("decoder", "decoder", _LAYER | _CROSS, 2),
        "output.weight": "lm_head.weight",
    }
    prefix, head_prefixes = "", ("lm_head.",)
    task_prefix = _TASK_PREFIX
    has_output_bias = False
    has_spare_rows = True
    head_classes: ClassVar = {"tag": HeadClass("T5ForTokenClassification", "classifier")}
    default_end = 1

    def published(self) -> NetRecipe:
        return t5()

    def starting_recipe(self, given: Mapping[str, Tensor]) -> NetRecipe:
        return t5_1_1() if any(_GATES[0] in name for name in given) else t5()

    def claims(self, recipe: NetRecipe) -> bool:
        return recipe.encoder.positions == "buckets"

    def unsupported(self, recipe: NetRecipe) -> dict[str, bool]:
        embedding, encoder, output = recipe.embedding, recipe.encoder, recipe.output
        found = {
            f"visibility={recipe.visibility}": recipe.visibility != "bidirectional",
            f"embedding.positions={embedding.positions}": embedding.positions != "none",
            f"embedding.characters={embedding.characters}": embedding.characters,
            f"embedding.segments={embedding.segments}": embedding.segments > 0,
            f"embedding.languages={embedding.languages}": embedding.languages > 0,
            f"embedding.norm={embedding.norm}": embedding.norm,
            f"embedding.scaled={embedding.scaled}": embedding.scaled,
            f"embedding.own_decoder={embedding.own_decoder}": embedding.own_decoder,
            f"embedding.width={embedding.width}": embedding.width != encoder.width,
            f"output.kind={output.kind}": output.kind not in ("tied", "full"),
            f"output.transform={output.transform}": output.transform,
            f"encoder.layers={encoder.layers}": encoder.layers < 1,
        }
        for side, part in (("encoder", encoder), ("decoder", recipe.decoder or encoder)):
            found |= {f"{side}.{name}": is_lacking for name, is_lacking in _unsupported(part).items()}
            for name in _COMMON:
                value = getattr(part, name)
                found[f"{side}.{name}={value}"] = value != getattr(encoder, name)
        return found

    def architecture_of(self, recipe: NetRecipe, has_head: bool) -> str:
        return "T5EncoderModel" if recipe.decoder is None else self.architecture

    def further_config(self, recipe: NetRecipe) -> Config:
        encoder, their_names = recipe.encoder, {ours: theirs for theirs, ours in self.activations.items()}
        gated_names = their_names | {"gelu-tanh": "gelu"}
        proj = _GATED + gated_names[encoder.activation] if encoder.gated else their_names[encoder.activation]
        layers = (recipe.decoder or encoder).layers
        return {
            **super().further_config(recipe),
            "d_kv": encoder.width // encoder.heads,
            "num_decoder_layers": layers,
            "feed_forward_proj": proj,
            "tie_word_embeddings": recipe.output.scaled,  # what they tell by it
            _SCALE: recipe.output.scaled,
        }

    def token_config(self, tokenizer: Tokenizer, kept: Sequence[int]) -> Config:
        roles = {"pad": PAD, "unk": UNK, "bos": BOS, "eos": EOS, "mask": MASK}
        ids = {f"{role}_token_id": kept.index(token) if token in kept else None for role, token in roles.items()}
        return ids | super().token_config(tokenizer, kept)

    def never_predicted(self, config: Config) -> list[int]:
        found = (config.get(f"{role}_token_id") for role in ("pad", "unk", "bos", "mask"))
        return [token for token in found if token is not None]

    # Import

    def check_config(self, config: Config) -> None:
        super().check_config(config)
        width, heads, size = config.get("d_model", 512), config.get("num_heads", 8), config.get("d_kv", 64)
        if not all(isinstance(one, int) for one in (width, heads, size)) or width != heads * size:
            raise ArtifactError(
                f"config.json has d_model={width!r:.80}, but {heads!r:.80} heads of d_kv={size!r:.80}: Firth reads "
                "models of heads that make up the width."
            )

    def recipe_values(self, config: Config) -> dict[str, Any]:
        proj = config.get("feed_forward_proj", "relu")
        is_gated = isinstance(proj, str) and proj.startswith(_GATED)
        if is_gated:
            plain = proj.removeprefix(_GATED)
            config = config | {"feed_forward_proj": _GATED_GELU.get(plain, plain)}
        values = super().recipe_values(config) | {"encoder.gated": is_gated}
        layers = config.get("num_decoder_layers")
        if layers is not None and type(layers) is not int:
            raise ArtifactError(f"config.json has num_decoder_layers={layers!r:.80}: it must be a whole number.")
        values |= {f"decoder.{name}": values[f"encoder.{name}"] for name in (*_COMMON, "dropout", "layers")}
        return values if layers is None else values | {"decoder.layers": layers}

    def default_values(self, values: Mapping[str, Any]) -> dict[str, Any]:
        rate = values["encoder.dropout"]
        return dict.fromkeys(("embedding.dropout", "encoder.attention_dropout", "decoder.attention_dropout"), rate)

    def read_output(self, base: NetRecipe, config: Config, given: Mapping[str, Tensor]) -> OutputRecipe:
        scaled = config.get(_SCALE, is_tied(config))
        if not isinstance(scaled, bool):
            raise ArtifactError(f"config.json has {_SCALE}={scaled!r:.80}: it must be true or false.")
        return replace(base.output, kind="full" if "lm_head.weight" in given else "tied", scaled=scaled, bias=False)

    def read_objectives(
        self, base: NetRecipe, values: dict[str, Any], config: Config, given: Mapping[str, Tensor]
    ) -> NetRecipe:
        """The encoder alone has no objective."""
        if any(name.startswith("decoder.") for name in given):
            return base
        for name in [name for name in values if name.startswith("decoder.")]:
            del values[name]
        return replace(base, decoder=None, objectives=(), sequence=replace(base.sequence, format="sentences"))

    def drop_static(self, config: Config, given: Tensors) -> None:
        """Remove the prefix of classes for tasks, a table that was never used, and copies of the token vectors."""
        for name in [name for name in given if name.startswith(_TASK_PREFIX)]:
            given[name.removeprefix(_TASK_PREFIX)] = given.pop(name)
        given.pop(_UNUSED, None)
        table = given.get(self.their_name(TOKENS))
        for name in (*self.tied_copies(), "lm_head.weight"):
            if table is not None and name in given and torch.equal(table, given[name]):
                del given[name]

    # Tensors

    def to_theirs(self, ours: Mapping[str, Tensor], offset: int) -> Tensors:
        found = super().to_theirs(ours, offset)
        for name in [name for name in found if _INNER in name]:
            inner = found[name]
            if len(inner) == 2 * found[name.replace(_INNER, ".DenseReluDense.wo.")].shape[1]:
                del found[name]
                found |= {name.replace(_INNER, gate): part for gate, part in zip(_GATES, inner.chunk(2), strict=True)}
        return found

    def to_ours(self, theirs: Mapping[str, Tensor], names: Iterable[str], offset: int) -> Tensors:
        joined = dict(theirs)
        for name in theirs:
            if _GATES[0] in name:
                gates = [theirs[name.replace(_GATES[0], gate)] for gate in _GATES]
                joined[name.replace(_GATES[0], _INNER)] = torch.cat(gates)
        return super().to_ours(joined, names, offset)

    def tied_copies(self) -> dict[str, str]:
        copies = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
        return dict.fromkeys(copies, self.their_name(TOKENS))


def _unsupported(part: EncoderRecipe) -> dict[str, bool]:
    return {
        f"kind={part.kind}": part.kind != "transformer",
        f"positions={part.positions}": part.positions != "buckets",
        f"norm={part.norm}": part.norm != "pre",
        f"rms={part.rms}": not part.rms,
        f"biases={part.biases}": part.biases,
        f"tie_layers={part.tie_layers}": part.tie_layers != "none",
    }
