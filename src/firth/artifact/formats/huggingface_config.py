"""config.json of a Hugging Face model and our recipe: which type a recipe is there, and what its fields are called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from firth.errors import AbilityError, ArtifactError, FirthError, RecipeError
from firth.nets.recipe import NetRecipe
from firth.recipes.nets import albert, bert, gpt, gpt2, roberta
from firth.recipes.values import describe_type, field_types, fits, recipe_from_json, recipe_to_json
from firth.tokens.tokenizer import BOS, EOS, PAD

Config = dict[str, Any]
OURS = "firth"
"""The key of config.json under which our recipe is kept; nobody else looks at it."""


@dataclass(frozen=True)
class Kind:
    """A type of Hugging Face models."""

    name: str
    """`model_type` in config.json."""
    base: Callable[[], NetRecipe]
    """The published member of the lineage, for all that a config.json does not tell."""
    fields: Mapping[str, tuple[str, Any]]
    """Field of our recipe -> their key, and the value that it has if it is left out."""
    activations: Mapping[str, str]
    """Their activations that are ours; of several, the last one is written."""
    architecture: str
    """The class with the head for language modelling."""
    pairs: str = ""
    """The class that judges pairs as well."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Their keys that must have this value, which they have if they are left out."""

    @property
    def causal(self) -> bool:
        """Whether models of this type predict the next token."""
        return not self.pairs and self.name != "roberta"

    @property
    def prefix(self) -> str:
        """What the names of all tensors but those of heads begin with."""
        return "transformer." if self.causal else f"{self.name}."


_SIZES = {
    "encoder.width": ("hidden_size", 768),
    "encoder.layers": ("num_hidden_layers", 12),
    "encoder.heads": ("num_attention_heads", 12),
    "encoder.inner": ("intermediate_size", 3072),
    "encoder.eps": ("layer_norm_eps", 1e-12),
    "encoder.activation": ("hidden_act", "gelu"),
    "encoder.dropout": ("hidden_dropout_prob", 0.1),
    "encoder.attention_dropout": ("attention_probs_dropout_prob", 0.1),
    "embedding.segments": ("type_vocab_size", 2),
    "rows.length": ("max_position_embeddings", 512),
}
_CAUSAL_SIZES = {
    "encoder.width": ("n_embd", 768),
    "encoder.layers": ("n_layer", 12),
    "encoder.heads": ("n_head", 12),
    "encoder.inner": ("n_inner", None),
    "encoder.eps": ("layer_norm_epsilon", 1e-5),
    "encoder.activation": ("activation_function", "gelu_new"),
    "encoder.dropout": ("resid_pdrop", 0.1),
    "encoder.attention_dropout": ("attn_pdrop", 0.1),
    "embedding.dropout": ("embd_pdrop", 0.1),
    "rows.length": ("n_positions", 1024),
}
_ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_pytorch_tanh": "gelu-tanh",
    "gelu_new": "gelu-tanh",
    "relu": "relu",
    "tanh": "tanh",
}
_PLAIN = {"position_embedding_type": "absolute", "is_decoder": False, "add_cross_attention": False, "pruned_heads": {}}

KINDS = {
    kind.name: kind
    for kind in (
        Kind("bert", bert, _SIZES, _ACTIVATIONS, "BertForMaskedLM", "BertForPreTraining", _PLAIN),
        # RoBERTa's head has gelu whatever its layers have.
        Kind("roberta", roberta, _SIZES, {"gelu": "gelu"}, "RobertaForMaskedLM", fixed=_PLAIN),
        Kind(
            "albert",
            albert,
            {
                **_SIZES,
                "embedding.width": ("embedding_size", 128),
                "encoder.width": ("hidden_size", 4096),
                "encoder.heads": ("num_attention_heads", 64),
                "encoder.inner": ("intermediate_size", 16384),
                "encoder.activation": ("hidden_act", "gelu_new"),
                "encoder.dropout": ("hidden_dropout_prob", 0.0),
                "encoder.attention_dropout": ("attention_probs_dropout_prob", 0.0),
            },
            _ACTIVATIONS,
            "AlbertForMaskedLM",
            "AlbertForPreTraining",
            {**_PLAIN, "num_hidden_groups": 1, "inner_group_num": 1, "tie_word_embeddings": True},
        ),
        Kind(
            "gpt2",
            gpt2,
            _CAUSAL_SIZES,
            _ACTIVATIONS,
            "GPT2LMHeadModel",
            fixed={
                "add_cross_attention": False,
                "pruned_heads": {},
                "scale_attn_weights": True,
                "scale_attn_by_inverse_layer_idx": False,
            },
        ),
        Kind(
            "openai-gpt",
            gpt,
            # What they call gelu there is the approximation; feed-forward layers are always four times as wide.
            {
                **{ours: pair for ours, pair in _CAUSAL_SIZES.items() if ours != "encoder.inner"},
                "encoder.activation": ("afn", "gelu"),
                "rows.length": ("n_positions", 512),
            },
            {"gelu": "gelu-tanh", "relu": "relu"},
            "OpenAIGPTLMHeadModel",
            fixed={"pruned_heads": {}},
        ),
    )
}
"""What can be exported and imported."""
_KNOWN = ", ".join(KINDS)


def kind_of(recipe: NetRecipe) -> Kind:
    """The type that a model of this recipe is at Hugging Face, by its parts.

    >>> from firth.recipes.nets import elmo
    >>> kind_of(albert()).name, kind_of(gpt()).name
    ('albert', 'openai-gpt')
    >>> kind_of(elmo())
    Traceback (most recent call last):
    ...
    firth.errors.AbilityError: Hugging Face has no such model (encoder.kind=lstm): export one such as bert, \
roberta, albert, gpt2 or gpt.
    """
    if fault := _fault(recipe):
        raise AbilityError(
            f"Hugging Face has no such model ({fault}): export one such as bert, roberta, albert, gpt2 or gpt."
        )
    if recipe.visibility == "causal":
        return KINDS["gpt2" if recipe.encoder.norm == "pre" else "openai-gpt"]
    if recipe.encoder.share == "all":
        return KINDS["albert"]
    plain = not recipe.embedding.segments and not pair_objective(recipe) and recipe.encoder.activation == "gelu"
    return KINDS["roberta" if plain else "bert"]


def _fault(recipe: NetRecipe) -> str:
    """What no model of theirs has."""
    embedding, encoder, output = recipe.embedding, recipe.encoder, recipe.output
    causal, narrow = recipe.visibility == "causal", embedding.width != encoder.width
    wrong = {
        f"encoder.kind={encoder.kind}": encoder.kind != "transformer",
        f"visibility={recipe.visibility}": recipe.visibility not in ("causal", "bidirectional"),
        f"embedding.positions={embedding.positions}": embedding.positions != "learned",
        f"embedding.characters={embedding.characters}": embedding.characters,
        f"output.kind={output.kind}": output.kind not in ("tied", "full"),
        f"encoder.norm={encoder.norm}": encoder.norm not in (("pre", "post") if causal else ("post",)),
        f"encoder.share={encoder.share}": encoder.share not in (("none",) if causal else ("none", "all")),
        f"embedding.norm={embedding.norm}": embedding.norm == causal,
        f"output.transform={output.transform}": output.transform == causal,
        f"embedding.segments={embedding.segments}": causal and embedding.segments > 0,
        f"embedding.width={embedding.width}": narrow and encoder.share != "all",
        "encoder.share=all with output.kind=full": encoder.share == "all" and output.kind == "full",
        f"encoder.layers={encoder.layers}": encoder.layers < 1,
    }
    if causal and encoder.norm == "post":
        wrong[f"encoder.activation={encoder.activation}"] = encoder.activation not in ("gelu-tanh", "relu")
        wrong[f"encoder.inner={encoder.inner}"] = encoder.inner != 4 * encoder.width
    return next((fault for fault, is_so in wrong.items() if is_so), "")


def pair_objective(recipe: NetRecipe) -> str:
    """The objective that judges pairs, if there is one."""
    return next((name for name in recipe.names if name in ("nsp", "sop")), "")


def config_of(recipe: NetRecipe, vocabulary: int, *, pairs: bool) -> Config:
    """The config.json of a model with so many tokens, and perhaps a head that judges pairs."""
    kind = kind_of(recipe)
    shift = PAD + 1 if kind.name == "roberta" else 0
    spelt = {ours: theirs for theirs, ours in kind.activations.items()}
    special = {
        "encoder.activation": spelt[recipe.encoder.activation],
        "rows.length": recipe.rows.length + shift,
        "embedding.segments": recipe.embedding.segments or 1,
    }
    kept = replace(recipe, tokenizer=replace(recipe.tokenizer, dictionary=None))
    config: Config = {
        "model_type": kind.name,
        "architectures": [kind.pairs if pairs else kind.architecture],
        "vocab_size": vocabulary,
        **{theirs: special.get(ours, _get(recipe, ours)) for ours, (theirs, _) in kind.fields.items()},
        "tie_word_embeddings": recipe.output.kind == "tied",
        "pad_token_id": PAD,
        "bos_token_id": EOS if kind.causal else BOS,
        "eos_token_id": EOS,
        "dtype": "float32",
        OURS: recipe_to_json(kept),
    }
    return config


def recipe_of(config: Config, *, segments: bool, pairs: bool) -> NetRecipe:
    """The recipe of a config.json.

    `segments`: whether a single segment has a vector that matters; `pairs`: whether there is a head that judges pairs.
    """
    kind = find_kind(config)
    _check_fixed(kind, config)
    values = _values(kind, config)
    if values.get("embedding.segments") == 1 and not segments:
        values["embedding.segments"] = 0
    base = stored_recipe(config)
    if base is None or not _alike(kind_of(base), kind):
        base = kind.base()
        values.setdefault("embedding.dropout", values["encoder.dropout"])
    output = replace(base.output, kind="tied" if is_tied(config) else "full", bias=not kind.causal)
    try:
        recipe = _with_objectives(base, kind, pairs, values.get("embedding.segments", 0))
        recipe = replace(_with_fields(recipe, values), output=output)
    except RecipeError as error:
        raise ArtifactError(f"config.json asks for what Firth cannot build: {error}") from None
    kind_of(recipe)
    return recipe


def _check_fixed(kind: Kind, config: Config) -> None:
    for key, wanted in kind.fixed.items():
        if config.get(key, wanted) != wanted:
            raise ArtifactError(f"config.json has {key}={config[key]!r:.80}: Firth reads models with {wanted!r} alone.")
    if config.get("quantization_config"):
        raise ArtifactError("config.json says that the weights are quantised: save the model in float32 first.")


def _alike(one: Kind, two: Kind) -> bool:
    """Whether models of two types are built alike: BERT and RoBERTa count positions differently, and that is all."""
    return one is two or {one.name, two.name} == {"bert", "roberta"}


def is_tied(config: Config) -> bool:
    """Whether the output has the vectors of the embedding."""
    tied = config.get("tie_word_embeddings", True)
    if not isinstance(tied, bool):
        raise ArtifactError(f"config.json has tie_word_embeddings={tied!r:.80}: it must be true or false.")
    return tied


def stored_recipe(config: Config) -> NetRecipe | None:
    """The recipe that was kept in a config.json, if there is one that can be read and exported."""
    try:
        found = recipe_from_json(config[OURS])
        return found if isinstance(found, NetRecipe) and kind_of(found) else None
    except (FirthError, KeyError, TypeError, ValueError):
        return None


def find_kind(config: Config) -> Kind:
    """The type that a config.json names."""
    name = config.get("model_type")
    if not isinstance(name, str) or name not in KINDS:
        raise ArtifactError(f"config.json has model_type={name!r:.80}, which Firth cannot read: it reads {_KNOWN}.")
    return KINDS[name]


def shift_of(kind: Kind, config: Config) -> int:
    """Rows before the first position: RoBERTa counts from the one after that of padding."""
    if kind.name != "roberta":
        return 0
    padding = config.get("pad_token_id", 1)
    if type(padding) is not int or not 0 <= padding < 1000:
        raise ArtifactError(f"config.json has pad_token_id={padding!r:.80}: it must be a small whole number.")
    return padding + 1


def _values(kind: Kind, config: Config) -> dict[str, Any]:
    """The fields of our recipe that a config.json tells."""
    values = {ours: _value(kind, config, ours) for ours in kind.fields}
    values["rows.length"] -= shift_of(kind, config)
    values.setdefault("embedding.width", values["encoder.width"])
    values.setdefault("encoder.inner", 4 * values["encoder.width"])
    return values


def _value(kind: Kind, config: Config, ours: str) -> Any:
    """The value of a field of our recipe, of the right type."""
    theirs, default = kind.fields[ours]
    found = config.get(theirs, default)
    if ours == "encoder.inner" and found is None:
        return 4 * _value(kind, config, "encoder.width")
    if ours == "encoder.activation":
        if not isinstance(found, str) or found not in kind.activations:
            known = ", ".join(kind.activations)
            raise ArtifactError(f"config.json has {theirs}={found!r:.80}: Firth reads {kind.name} models with {known}.")
        return kind.activations[found]
    part, _, name = ours.partition(".")
    hint = field_types(type(getattr(kind.base(), part)))[name]
    if not fits(found, hint):
        raise ArtifactError(f"config.json has {theirs}={found!r:.80}: it must be {describe_type(hint)}.")
    return found


def _get(recipe: NetRecipe, name: str) -> Any:
    part, _, own = name.partition(".")
    return getattr(getattr(recipe, part), own)


def _with_fields(recipe: NetRecipe, values: Mapping[str, Any]) -> NetRecipe:
    """The recipe with fields such as `encoder.width` set, all at once."""
    parts: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        part, _, own = name.partition(".")
        parts.setdefault(part, {})[own] = value
    return replace(recipe, **{part: replace(getattr(recipe, part), **chosen) for part, chosen in parts.items()})


def _with_objectives(recipe: NetRecipe, kind: Kind, pairs: bool, segments: int) -> NetRecipe:
    """The recipe with an objective for pairs if there is a head for it; else rows need not be pairs."""
    if kind.causal:
        return recipe
    objectives = "+".join(name for name in recipe.names if name not in ("nsp", "sop"))
    row_format = recipe.rows.format
    if pairs:
        judge = recipe if pair_objective(recipe) else kind.base()
        objectives, row_format = f"{objectives}+{pair_objective(judge)}", judge.rows.format
    elif segments < 2:
        row_format = "full-sentences"
    rows = replace(recipe.rows, format=row_format)
    return replace(recipe, objectives=objectives, rows=rows, embedding=replace(recipe.embedding, segments=segments))
