"""Models and tokenizers to artifact folders and back."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from firth.abilities import Model
from firth.artifact.folder import Artifact, FileWriter, open_artifact, save_artifact
from firth.artifact.manifest import Manifest
from firth.artifact.restore import restore
from firth.artifact.tensors import write_tensors
from firth.errors import ArtifactError
from firth.files import digest_file
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
    """Write a model or tokenizer, and further files, as an artifact, completely or not at all."""
    contents: dict[str, bytes | FileWriter] = {_TOKENIZER: model.tokenizer.data, **(files or {})}
    if model.tokenizer.dictionary is not None:
        contents[_DICTIONARY] = model.tokenizer.dictionary.read_bytes()
    if not isinstance(model, Tokenizer):
        contents[_WEIGHTS] = lambda path: write_tensors(path, model.arrays())
    manifest = Manifest(
        kind=recipe.kind,
        name=name,
        recipe=recipe_to_json(recipe),
        budget=dict(budget),
        corpus=dict(corpus),
        seed=seed,
        metrics=dict(metrics),
    )
    return save_artifact(folder, manifest, contents)


def save_imported(
    folder: Path, model: Any, source: Path, started: float, metrics: Mapping[str, Any], digest: str | None = None
) -> None:
    """Save a model that was read from the file `source` of another program since the time `started`."""
    save(
        folder,
        model,
        name="imported",
        recipe=model.recipe,
        budget={"asked": None, "spent": {"seconds": time.monotonic() - started}},
        corpus={"layout": "lines", "imported": source.name, "digest": digest or digest_file(source)},
        seed=0,
        metrics=metrics,
    )


def load(folder: str | Path, *, verify: bool = True) -> Any:
    """The model or tokenizer of an artifact folder."""
    artifact = open_artifact(Path(folder), verify=verify)
    tokenizer = load_tokenizer(artifact)
    recipe = recipe_from_json(artifact.manifest.recipe)
    if isinstance(recipe, TokenizerRecipe):
        return tokenizer
    return restore(recipe, artifact.tensors(_WEIGHTS), tokenizer, _layout_of(artifact))


def load_tokenizer(artifact: Artifact) -> Tokenizer:
    """The tokenizer of an artifact of any kind."""
    recipe = recipe_from_json(artifact.manifest.recipe)
    if not isinstance(recipe, TokenizerRecipe):
        recipe = recipe.tokenizer
    dictionary = artifact.path(_DICTIONARY) if _DICTIONARY in artifact.manifest.files else None
    return Tokenizer(artifact.read(_TOKENIZER), recipe, dictionary)


def _layout_of(artifact: Artifact) -> Layout:
    """How the training text of a model was split into sentences."""
    layout = artifact.manifest.corpus.get("layout")
    if layout not in LAYOUTS:
        raise ArtifactError(f"{artifact.folder} does not say how its text was split: train it again.")
    return cast(Layout, layout)
