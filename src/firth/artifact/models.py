"""Models and tokenizers to artifact folders and back."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from firth.abilities import FineTuned, Model, without_tasks
from firth.artifact.card import CARD, make_card
from firth.artifact.folder import Artifact, FileWriter, open_artifact, save_artifact, verify_artifact
from firth.artifact.manifest import COPY_AGAIN, Manifest
from firth.artifact.restore import check_numbers, restore
from firth.artifact.tensors import write_tensors
from firth.errors import ArtifactError, reading
from firth.files import digest_file
from firth.progress import note
from firth.recipes.families import Recipe
from firth.recipes.values import recipe_from_json, recipe_to_json
from firth.text.corpus import LAYOUTS
from firth.text.layout import Layout
from firth.tokens.loading import try_tokenizer
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.tokenizer import Tokenizer

_TOKENIZER = "tokenizer.json"
_DICTIONARY = "dictionary.txt"
_WEIGHTS = "model.safetensors"
_CURVE = "curve.svg"


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
    contents[CARD] = make_card(manifest, _CURVE if _CURVE in contents else "").encode()
    return save_artifact(folder, manifest, contents)


def save_imported(
    folder: Path,
    model: Any,
    source: Path,
    started: float,
    metrics: Mapping[str, Any],
    digest: str | None = None,
    layout: Layout = "lines",
) -> None:
    """Save a model that was read from the file `source` of another program since the time `started`."""
    save(
        folder,
        model,
        name="imported",
        recipe=model.recipe,
        budget={"asked": None, "spent": {"seconds": time.monotonic() - started}},
        corpus={"layout": layout, "imported": source.name, "digest": digest or digest_file(source)},
        seed=0,
        metrics=metrics,
    )


def load(folder: str | Path, *, verify: bool = True) -> Any:
    """The model or tokenizer of an artifact folder, after a check of every number that could lead out of memory."""
    with reading(folder, COPY_AGAIN):
        artifact = open_artifact(Path(folder), verify=verify)
        tokenizer = load_tokenizer(artifact)
        recipe = recipe_from_json(artifact.manifest.recipe)
        if isinstance(recipe, TokenizerRecipe):
            return tokenizer
        arrays = artifact.tensors(_WEIGHTS)
        check_numbers(arrays)
        model = restore(recipe, arrays, tokenizer, _layout_of(artifact))
        model.card = artifact.read(CARD).decode() if CARD in artifact.manifest.files else ""
        return model


def load_network(folder: str | Path) -> Any:
    """The model of an artifact folder; of a fine-tuned one its network, which can do what it could before."""
    model = load(folder)
    if isinstance(model, FineTuned):
        note(f"{folder} was fine-tuned: its network answers, without the head of a task.")
    return without_tasks(model)


def load_tokenizer(artifact: Artifact) -> Tokenizer:
    """The tokenizer of an artifact of any kind."""
    with reading(artifact.folder, COPY_AGAIN):
        recipe = recipe_from_json(artifact.manifest.recipe)
        if not isinstance(recipe, TokenizerRecipe):
            recipe = recipe.tokenizer
        dictionary = artifact.path(_DICTIONARY) if _DICTIONARY in artifact.manifest.files else None
        return Tokenizer(artifact.read(_TOKENIZER), recipe, dictionary)


def verify_model(folder: str | Path) -> dict[str, Any]:
    """A report on an artifact after every check: its files, and the model in them, which is loaded."""
    report = verify_artifact(Path(folder))
    with reading(folder, COPY_AGAIN):
        try_tokenizer(open_artifact(Path(folder), verify=False).read(_TOKENIZER))
    model = load(folder, verify=False)
    with reading(folder, COPY_AGAIN):
        for one in (model, *_components(model)):
            if hasattr(one, "verify"):
                one.verify()
    return report


def _components(model: Any) -> Iterator[Any]:
    """The models that a model is made of."""
    found = [getattr(model, name) for name in ("base", "inner") if hasattr(model, name)]
    for part in [*found, *getattr(model, "parts", ())]:
        yield from (part, *_components(part))


def _layout_of(artifact: Artifact) -> Layout:
    """How the training text of a model was split into sentences."""
    layout = artifact.manifest.corpus.get("layout")
    if layout not in LAYOUTS:
        raise ArtifactError(f"{artifact.folder} does not say how its text was split: train it again.")
    return cast(Layout, layout)
