"""Interpolation of trained language models with weights fitted by EM."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from firth.arguments import require_list, require_path
from firth.artifact.ensemble import EnsembleModel
from firth.artifact.models import load, save
from firth.counts.em import em_weights
from firth.counts.mixture import token_probabilities
from firth.errors import AbilityError, RecipeError
from firth.files import require_free
from firth.fit.adaptive import token_stream
from firth.fit.run import Text, open_corpus, store_counts
from firth.lm.language_model import LanguageModel
from firth.recipes.ensemble import EnsembleRecipe
from firth.recipes.values import recipe_to_json
from firth.tokens.build import open_store
from firth.tokens.tokenizer import Tokenizer

_MAX_MODELS = 100


def mix(
    models: Sequence[str | Path | LanguageModel], heldout: Text, out: str | Path | None = None, **reading: Any
) -> EnsembleModel:
    """Models, or saved ones, interpolated with the weights that maximise the likelihood of held-out text (EM).

    With `out` the mixture is saved there with all its parts. `reading` may have `field`, `encoding` and `layout`.
    """
    models = require_list(models, "models")
    if out is not None:
        require_free(require_path(out, "out", "the folder to write"))
    started = time.monotonic()
    names = [str(one) if isinstance(one, str | Path) else type(one).__name__ for one in models]
    parts = [load(one) if isinstance(one, str | Path) else one for one in models]
    tokenizer = _shared_tokenizer(parts, names)
    layout = reading.get("layout", parts[0].layout)
    corpus = open_corpus((heldout,), reading.get("field", "text"), reading.get("encoding"), layout)
    store = open_store(corpus, tokenizer)
    stream = token_stream(store)
    probabilities = token_probabilities(parts, stream)
    weights = em_weights(probabilities).weights
    recipes = json.dumps([recipe_to_json(part.recipe) for part in parts])
    recipe = EnsembleRecipe(tokenizer=tokenizer.recipe, models=",".join(Path(one).name for one in names), parts=recipes)
    model = EnsembleModel(recipe, parts, weights)
    if out is not None:
        save(
            Path(out),
            model,
            name="mixture",
            recipe=recipe,
            budget={"asked": None, "spent": {"seconds": time.monotonic() - started, "tokens": stream.ids.size}},
            corpus=corpus.describe() | store_counts(store) | {"layout": model.layout},
            seed=0,
            metrics=_metrics(probabilities, weights, names),
        )
    return model


def _shared_tokenizer(parts: Sequence[Any], names: Sequence[str]) -> Tokenizer:
    """The tokenizer of all parts; raises unless they can be mixed."""
    if not 2 <= len(parts) <= _MAX_MODELS:
        raise RecipeError(f"a mixture has 2 to {_MAX_MODELS} models, not {len(parts)}: name them one after another.")
    for part, name in zip(parts, names, strict=True):
        if not isinstance(part, LanguageModel):
            raise AbilityError(
                f"{name} does not predict token after token: mix causal language models, such as mkn5, lstm and gpt."
            )
        if part.tokenizer.digest != parts[0].tokenizer.digest:
            raise RecipeError(
                f"{name} has other tokens than {names[0]}: train it with --tokenizer {names[0]} to mix them."
            )
    tokenizer: Tokenizer = parts[0].tokenizer
    return tokenizer


def _metrics(
    probabilities: npt.NDArray[np.float64], weights: npt.NDArray[np.float64], names: Sequence[str]
) -> dict[str, Any]:
    """The weights, and the perplexity of the held-out text for each part and the mixture."""
    with np.errstate(divide="ignore"):
        each = np.exp(-np.log(probabilities).mean(axis=1))
        mixed = float(np.exp(-np.log(weights @ probabilities).mean()))
    perplexities = {name: float(one) if np.isfinite(one) else None for name, one in zip(names, each, strict=True)}
    return {
        "weights": dict(zip(names, weights.tolist(), strict=True)),
        "part_perplexities": perplexities,
        "perplexity": mixed if np.isfinite(mixed) else None,
    }
