"""Models and tokenizers to artifact folders and back."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from firth.abilities import Model
from firth.artifact.folder import Artifact, Writer, open_artifact, save_artifact
from firth.artifact.manifest import Manifest
from firth.artifact.tensors import write_tensors
from firth.errors import ArtifactError
from firth.recipes.families import Recipe
from firth.recipes.values import recipe_from_json, recipe_to_json
from firth.text.corpus import LAYOUTS
from firth.text.layout import Layout
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.tokenizer import Tokenizer

_TOKENIZER = "tokenizer.json"
_DICTIONARY = "dictionary.txt"
_WEIGHTS = "model.safetensors"


def save(
    folder: Path,
    model: Model | Tokenizer,
    *,
    name: str,
    recipe: Recipe,
    budget: Mapping[str, Any],
    corpus: Mapping[str, Any],
    seed: int,
    metrics: Mapping[str, Any],
    files: Mapping[str, bytes] | None = None,
) -> Manifest:
    """Writes a model or tokenizer as an artifact, with other files if they are given, whole or not at all."""
    contents = tokenizer_files(model.tokenizer) | dict(files or {})
    if not isinstance(model, Tokenizer):
        contents[_WEIGHTS] = _weights_writer(model)
    return save_artifact(
        folder,
        kind=recipe.kind,
        name=name,
        recipe=recipe_to_json(recipe),
        files=contents,
        budget=dict(budget),
        corpus=dict(corpus),
        seed=seed,
        metrics=dict(metrics),
    )


def load(folder: str | Path, *, verify: bool = True) -> Any:
    """The model or tokenizer of an artifact folder, ready for use."""
    artifact = open_artifact(Path(folder), verify=verify)
    tokenizer = load_tokenizer(artifact)
    recipe = recipe_from_json(artifact.manifest.recipe)
    if isinstance(recipe, TokenizerRecipe):
        return tokenizer
    return recipe.restore(artifact.tensors(_WEIGHTS), tokenizer, layout_of(artifact))


def load_tokenizer(artifact: Artifact) -> Tokenizer:
    """The tokenizer of any artifact."""
    recipe = recipe_from_json(artifact.manifest.recipe)
    if not isinstance(recipe, TokenizerRecipe):
        recipe = recipe.tokenizer
    dictionary = artifact.path(_DICTIONARY) if _DICTIONARY in artifact.manifest.files else None
    return Tokenizer(artifact.read(_TOKENIZER), recipe, dictionary)


def layout_of(artifact: Artifact) -> Layout:
    """How the text that a model was trained on was split into sentences."""
    layout = artifact.manifest.corpus.get("layout")
    if layout not in LAYOUTS:
        raise ArtifactError(f"{artifact.folder} does not say how its text was split: train it again.")
    return cast(Layout, layout)


def tokenizer_files(tokenizer: Tokenizer) -> dict[str, bytes | Writer]:
    """The files that make a tokenizer whole."""
    files: dict[str, bytes | Writer] = {_TOKENIZER: tokenizer.data}
    if tokenizer.dictionary is not None:
        files[_DICTIONARY] = tokenizer.dictionary.read_bytes()
    return files


def _weights_writer(model: Model) -> Writer:
    return lambda path: write_tensors(path, model.arrays())
