"""config.json of XLM and recipes: languages instead of segments, causal or not (Lample and Conneau 2019)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from firth.errors import ArtifactError
from firth.nets.recipe import NetRecipe
from firth.objectives.clm import CausalLM
from firth.objectives.mlm import MaskedLM
from firth.tokens.tokenizer import MASK, UNK

Config = dict[str, Any]
XLM_FIELDS = {
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
"""Recipe field -> key of config.json and its default."""


def unsupported_xlm_part(recipe: NetRecipe) -> str:
    """The first part of a recipe that XLM does not have."""
    embedding, encoder, output = recipe.embedding, recipe.encoder, recipe.output
    unsupported = {
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
    return next((part for part, is_unsupported in unsupported.items() if is_unsupported), "")


def language_config(recipe: NetRecipe) -> Config:
    """What config.json of XLM has besides: the languages by number and name, and the ids of special tokens."""
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


def with_xlm_languages(recipe: NetRecipe, config: Config, values: dict[str, Any]) -> NetRecipe:
    """The recipe with the languages and the direction of an XLM; languages without a name have their number."""
    causal, count = config.get("causal", False), values["embedding.languages"]
    if count == 1 or config.get("use_lang_emb", True) is False:
        count = 0
    values["embedding.languages"] = count
    given = config.get("lang2id")
    names = tuple(map(str, range(count)))
    if isinstance(given, dict) and given and count:
        if len(given) != count or sorted(map(str, given.values())) != sorted(names):
            raise ArtifactError(f"config.json has n_langs={count}, and lang2id does not number them: correct one.")
        names = tuple(sorted(map(str, given), key=given.__getitem__))
    objectives = recipe.objectives
    if causal:
        objectives = tuple(one for one in objectives if one.predicts == "next") or (CausalLM(),)
    elif not count:
        objectives = tuple(one for one in objectives if not one.needs_translations) or (MaskedLM(),)
    return replace(
        recipe,
        visibility="causal" if causal else "bidirectional",
        objectives=objectives,
        embedding=replace(recipe.embedding, languages=count),
        languages=names,
        language=recipe.language if recipe.language in names else "",
    )
