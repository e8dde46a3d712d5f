"""config.json of Hugging Face models and recipes: the model type of a recipe, and the keys of its fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any

from firth.artifact.formats.huggingface_xlm import XLM_FIELDS, language_config, unsupported_xlm_part, with_xlm_languages
from firth.errors import AbilityError, ArtifactError, FirthError, RecipeError
from firth.nets.recipe import NetRecipe
from firth.objectives.pairs import NextSentence
from firth.recipes.nets import albert, bert, gpt, gpt2, roberta, xlm
from firth.recipes.values import describe_type, field_types, fits, recipe_from_json, recipe_to_json
from firth.tokens.tokenizer import BOS, EOS, PAD

Config = dict[str, Any]
RECIPE_KEY = "firth"  # key of config.json that holds the recipe; other programs ignore it


@dataclass(frozen=True)
class ModelType:
    """A model type of Hugging Face."""

    name: str  # `model_type` in config.json
    published: Callable[[], NetRecipe]  # the published recipe, for fields that config.json lacks
    fields: Mapping[str, tuple[str, Any]]  # recipe field -> key of config.json and its default
    activations: Mapping[Any, str]  # theirs -> ours; of several for one of ours, the last is written
    architecture: str  # the class with the language-modelling head
    pair_architecture: str = ""  # the class with a head for sentence pairs as well
    required: Mapping[str, Any] = field(default_factory=dict)  # keys with the only value that is read, the default

    @property
    def is_causal(self) -> bool:
        return self.name in ("gpt2", "openai-gpt")

    @property
    def is_xlm(self) -> bool:
        """Whether the layout is that of XLM: causal or not, and with languages instead of segments."""
        return self.name == "xlm"

    @property
    def prefix(self) -> str:
        """Prefix of all tensor names but those of heads."""
        return "transformer." if self.is_causal or self.is_xlm else f"{self.name}."


_FIELDS: tuple[tuple[str, str, Any, Any, str, Any], ...] = (
    ("encoder.width", "hidden_size", 768, 4096, "n_embd", 768),
    ("encoder.layers", "num_hidden_layers", 12, 12, "n_layer", 12),
    ("encoder.heads", "num_attention_heads", 12, 64, "n_head", 12),
    ("encoder.ffn_width", "intermediate_size", 3072, 16384, "n_inner", None),
    ("encoder.eps", "layer_norm_eps", 1e-12, 1e-12, "layer_norm_epsilon", 1e-5),
    ("encoder.activation", "hidden_act", "gelu", "gelu_new", "activation_function", "gelu_new"),
    ("encoder.dropout", "hidden_dropout_prob", 0.1, 0.0, "resid_pdrop", 0.1),
    ("encoder.attention_dropout", "attention_probs_dropout_prob", 0.1, 0.0, "attn_pdrop", 0.1),
    ("embedding.segments", "type_vocab_size", 2, 2, "", None),
    ("embedding.dropout", "", None, None, "embd_pdrop", 0.1),
    ("sequence.length", "max_position_embeddings", 512, 512, "n_positions", 1024),
)
"""Recipe field, key and defaults of BERT and ALBERT, key and default of GPT-2."""
_BERT_FIELDS = {ours: (key, default) for ours, key, default, _, _, _ in _FIELDS if key}
_ALBERT_FIELDS = {ours: (key, default) for ours, key, _, default, _, _ in _FIELDS if key}
_GPT2_FIELDS = {ours: (key, default) for ours, _, _, _, key, default in _FIELDS if key}
# The feed-forward layers of GPT are always four times as wide.
_GPT_FIELDS = {ours: pair for ours, pair in _GPT2_FIELDS.items() if ours != "encoder.ffn_width"}
_ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_pytorch_tanh": "gelu-tanh",
    "gelu_new": "gelu-tanh",
    "relu": "relu",
    "tanh": "tanh",
}
_PLAIN = {"position_embedding_type": "absolute", "is_decoder": False, "add_cross_attention": False, "pruned_heads": {}}

MODEL_TYPES = {
    model_type.name: model_type
    for model_type in (
        ModelType("bert", bert, _BERT_FIELDS, _ACTIVATIONS, "BertForMaskedLM", "BertForPreTraining", _PLAIN),
        # RoBERTa's head has gelu whatever its layers have.
        ModelType("roberta", roberta, _BERT_FIELDS, {"gelu": "gelu"}, "RobertaForMaskedLM", required=_PLAIN),
        ModelType(
            "albert",
            albert,
            _ALBERT_FIELDS | {"embedding.width": ("embedding_size", 128)},
            _ACTIVATIONS,
            "AlbertForMaskedLM",
            "AlbertForPreTraining",
            _PLAIN | {"num_hidden_groups": 1, "inner_group_num": 1, "tie_word_embeddings": True},
        ),
        ModelType(
            "gpt2",
            gpt2,
            _GPT2_FIELDS,
            _ACTIVATIONS,
            "GPT2LMHeadModel",
            required={"add_cross_attention": False, "pruned_heads": {}}
            | {"scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False},
        ),
        ModelType(
            "openai-gpt",
            gpt,
            _GPT_FIELDS | {"encoder.activation": ("afn", "gelu"), "sequence.length": ("n_positions", 512)},
            {"gelu": "gelu-tanh", "relu": "relu"},  # their gelu is the tanh approximation here
            "OpenAIGPTLMHeadModel",
            required={"pruned_heads": {}},
        ),
        ModelType(
            "xlm",
            xlm,
            XLM_FIELDS,
            {True: "gelu", False: "relu"},
            "XLMWithLMHeadModel",
            required={"asm": False, "is_encoder": True, "pruned_heads": {}},
        ),
    )
}
"""Model types that can be exported and imported."""
_SUPPORTED = ", ".join(MODEL_TYPES)


def model_type_for(recipe: NetRecipe) -> ModelType:
    """The model type that a recipe has at Hugging Face, by its parts.

    >>> from firth.recipes.nets import elmo
    >>> model_type_for(albert()).name, model_type_for(gpt()).name
    ('albert', 'openai-gpt')
    >>> model_type_for(elmo())
    Traceback (most recent call last):
    ...
    firth.errors.AbilityError: Hugging Face has no such model (encoder.kind=lstm): export one such as bert or gpt2.
    """
    plain = recipe.visibility == "bidirectional" and not recipe.embedding.segments and not recipe.output.transform
    is_xlm = recipe.embedding.languages > 0 or plain
    if part := unsupported_xlm_part(recipe) if is_xlm else _unsupported_part(recipe):
        raise AbilityError(f"Hugging Face has no such model ({part}): export one such as bert or gpt2.")
    if is_xlm:
        return MODEL_TYPES["xlm"]
    if recipe.visibility == "causal":
        return MODEL_TYPES["gpt2" if recipe.encoder.norm == "pre" else "openai-gpt"]
    if recipe.encoder.tie_layers == "all":
        return MODEL_TYPES["albert"]
    no_pairs = not recipe.embedding.segments and not pair_objective(recipe) and recipe.encoder.activation == "gelu"
    return MODEL_TYPES["roberta" if no_pairs else "bert"]


def _unsupported_part(recipe: NetRecipe) -> str:
    """The first part of a recipe that no model type supports."""
    embedding, encoder, output = recipe.embedding, recipe.encoder, recipe.output
    causal, narrow = recipe.visibility == "causal", embedding.width != encoder.width
    unsupported = {
        f"encoder.kind={encoder.kind}": encoder.kind != "transformer",
        f"visibility={recipe.visibility}": recipe.visibility not in ("causal", "bidirectional"),
        f"embedding.positions={embedding.positions}": embedding.positions != "learned",
        f"embedding.characters={embedding.characters}": embedding.characters,
        f"output.kind={output.kind}": output.kind not in ("tied", "full"),
        f"encoder.norm={encoder.norm}": encoder.norm not in (("pre", "post") if causal else ("post",)),
        f"encoder.tie_layers={encoder.tie_layers}": encoder.tie_layers
        not in (("none",) if causal else ("none", "all")),
        f"embedding.norm={embedding.norm}": embedding.norm == causal,
        f"output.transform={output.transform}": output.transform == causal,
        f"embedding.segments={embedding.segments}": causal and embedding.segments > 0,
        f"embedding.width={embedding.width}": narrow and encoder.tie_layers != "all",
        "encoder.tie_layers=all with output.kind=full": encoder.tie_layers == "all" and output.kind == "full",
        f"encoder.layers={encoder.layers}": encoder.layers < 1,
    }
    if causal and encoder.norm == "post":
        unsupported[f"encoder.activation={encoder.activation}"] = encoder.activation not in ("gelu-tanh", "relu")
        unsupported[f"encoder.ffn_width={encoder.ffn_width}"] = encoder.ffn_width != 4 * encoder.width
    return next((part for part, is_unsupported in unsupported.items() if is_unsupported), "")


def pair_objective(recipe: NetRecipe) -> str:
    """The sentence-pair objective of a recipe, or an empty string."""
    return next((one.name for one in recipe.objectives if isinstance(one, NextSentence)), "")


def make_config(recipe: NetRecipe, vocabulary: int, *, pair_head: bool) -> Config:
    """The config.json of a model with `vocabulary` tokens, with or without a head for sentence pairs."""
    model_type = model_type_for(recipe)
    offset = PAD + 1 if model_type.name == "roberta" else 0
    their_activations = {ours: theirs for theirs, ours in model_type.activations.items()}
    converted = {
        "encoder.activation": their_activations[recipe.encoder.activation],
        "sequence.length": recipe.sequence.length + offset,
        "embedding.segments": recipe.embedding.segments or 1,
        "embedding.languages": recipe.embedding.languages or 1,
    }
    stored = replace(recipe, tokenizer=replace(recipe.tokenizer, dictionary=None))
    return {
        "model_type": model_type.name,
        "architectures": [model_type.pair_architecture if pair_head else model_type.architecture],
        "vocab_size": vocabulary,
        **{theirs: converted.get(ours, attrgetter(ours)(recipe)) for ours, (theirs, _) in model_type.fields.items()},
        "tie_word_embeddings": recipe.output.kind == "tied",
        "pad_token_id": PAD,
        "bos_token_id": EOS if model_type.is_causal else BOS,
        "eos_token_id": EOS,
        "dtype": "float32",
        **(language_config(recipe) if model_type.is_xlm else {}),
        RECIPE_KEY: recipe_to_json(stored),
    }


def recipe_from_config(config: Config, *, segments: bool, pair_head: bool) -> NetRecipe:
    """The recipe of a config.json.

    `segments`: whether the embedding of a single segment is not zero; `pair_head`: whether the model has a head for
    sentence pairs.
    """
    model_type = model_type_of(config)
    _check_required(model_type, config)
    values = _recipe_values(model_type, config)
    if values.get("embedding.segments") == 1 and not segments:
        values["embedding.segments"] = 0
    base = stored_recipe(config)
    names = {model_type.name, model_type_for(base).name} if base else set()
    # BERT and RoBERTa differ only in how they number positions.
    if base is None or (len(names) > 1 and names != {"bert", "roberta"}):
        base = model_type.published()
        values.setdefault("embedding.dropout", values["encoder.dropout"])
    output = replace(base.output, kind="tied" if is_tied(config) else "full", bias=not model_type.is_causal)
    try:
        if model_type.is_xlm:
            recipe = with_xlm_languages(base, config, values)
        else:
            recipe = _with_objectives(base, model_type, pair_head, values.get("embedding.segments", 0))
        recipe = replace(_with_fields(recipe, values), output=output)
    except RecipeError as error:
        raise ArtifactError(f"config.json describes a model that Firth cannot build: {error}") from None
    model_type_for(recipe)
    return recipe


def _check_required(model_type: ModelType, config: Config) -> None:
    for key, wanted in model_type.required.items():
        if config.get(key, wanted) != wanted:
            raise ArtifactError(f"config.json has {key}={config[key]!r:.80}: Firth reads models with {wanted!r} only.")
    if config.get("quantization_config"):
        raise ArtifactError("config.json says that the weights are quantised: save the model in float32 first.")


def is_tied(config: Config) -> bool:
    """Whether the output layer shares the weights of the embedding."""
    tied = config.get("tie_word_embeddings", True)
    if not isinstance(tied, bool):
        raise ArtifactError(f"config.json has tie_word_embeddings={tied!r:.80}: it must be true or false.")
    return tied


def stored_recipe(config: Config) -> NetRecipe | None:
    """The recipe that Firth stored in a config.json, if it can be read and exported."""
    try:
        found = recipe_from_json(config[RECIPE_KEY])
        return found if isinstance(found, NetRecipe) and model_type_for(found) else None
    except (FirthError, KeyError, TypeError, ValueError):
        return None


def model_type_of(config: Config) -> ModelType:
    """The model type of a config.json."""
    name = config.get("model_type")
    if not isinstance(name, str) or name not in MODEL_TYPES:
        raise ArtifactError(f"config.json has model_type={name!r:.80}, which Firth cannot read: it reads {_SUPPORTED}.")
    return MODEL_TYPES[name]


def position_offset(model_type: ModelType, config: Config) -> int:
    """Unused rows of the position embedding: RoBERTa numbers positions from the padding id + 1."""
    if model_type.name != "roberta":
        return 0
    padding = config.get("pad_token_id", 1)
    if type(padding) is not int or not 0 <= padding < 1000:
        raise ArtifactError(f"config.json has pad_token_id={padding!r:.80}: it must be a small whole number.")
    return padding + 1


def _recipe_values(model_type: ModelType, config: Config) -> dict[str, Any]:
    values = {ours: _recipe_value(model_type, config, ours) for ours in model_type.fields}
    values["sequence.length"] -= position_offset(model_type, config)
    values.setdefault("embedding.width", values["encoder.width"])
    values.setdefault("encoder.ffn_width", 4 * values["encoder.width"])
    return values


def _recipe_value(model_type: ModelType, config: Config, ours: str) -> Any:
    theirs, default = model_type.fields[ours]
    found = config.get(theirs, default)
    if ours == "encoder.ffn_width" and found is None:
        return 4 * _recipe_value(model_type, config, "encoder.width")
    if ours == "encoder.activation":
        if type(found) not in (str, bool) or found not in model_type.activations:
            known = ", ".join(map(str, model_type.activations))
            raise ArtifactError(f"config.json has {theirs}={found!r:.80}: Firth reads {model_type.name} with {known}.")
        return model_type.activations[found]
    part, _, name = ours.partition(".")
    hint = field_types(type(getattr(model_type.published(), part)))[name]
    if not fits(found, hint):
        raise ArtifactError(f"config.json has {theirs}={found!r:.80}: it must be {describe_type(hint)}.")
    return found


def _with_fields(recipe: NetRecipe, values: Mapping[str, Any]) -> NetRecipe:
    """The recipe with fields such as `encoder.width` set, all at once."""
    parts: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        part, _, own = name.partition(".")
        parts.setdefault(part, {})[own] = value
    return replace(recipe, **{part: replace(getattr(recipe, part), **chosen) for part, chosen in parts.items()})


def _with_objectives(recipe: NetRecipe, model_type: ModelType, pair_head: bool, segments: int) -> NetRecipe:
    """The recipe with a sentence-pair objective if there is a head for it; otherwise sequences need not be pairs."""
    if model_type.is_causal:
        return recipe
    objectives = tuple(one for one in recipe.objectives if not one.needs_pairs)
    sequence_format = recipe.sequence.format
    if pair_head:
        paired = recipe if pair_objective(recipe) else model_type.published()
        objectives += tuple(one for one in paired.objectives if one.needs_pairs)
        sequence_format = paired.sequence.format
    elif segments < 2:
        sequence_format = "full-sentences"
    return replace(
        recipe,
        objectives=objectives,
        sequence=replace(recipe.sequence, format=sequence_format),
        embedding=replace(recipe.embedding, segments=segments),
    )
