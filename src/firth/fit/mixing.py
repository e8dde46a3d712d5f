"""Mixtures across families: an n-gram model with a cache beside an LSTM, say, over the same tokens."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from firth.artifact.models import load, save
from firth.counts.em import arrays_of, em_weights, prefixed, saved_weights
from firth.counts.mixture import token_probabilities
from firth.errors import AbilityError, ArtifactError, RecipeError
from firth.files import require_free
from firth.fit.adaptive import stream_of
from firth.fit.train import Text, open_corpus, store_counts
from firth.nets.ensemble import EnsembleRecipe
from firth.recipes.values import recipe_from_json, recipe_to_json
from firth.text.layout import Layout
from firth.tokens.build import open_store
from firth.tokens.language import LanguageModel, Stream
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.tokenizer import Tokenizer

_MOST = 100  # models


class MixedModel(LanguageModel):
    """Language models of any kind over the same tokens; the first one knows how to spell unknown words."""

    remembers: ClassVar[bool] = True

    def __init__(
        self, recipe: EnsembleRecipe, parts: Sequence[LanguageModel], weights: npt.NDArray[np.float64]
    ) -> None:
        super().__init__(recipe, parts[0].tokenizer, parts[0].layout, parts[0].spelling)
        self.parts = list(parts)
        self.weights = weights

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        arrays: dict[str, npt.NDArray[Any]] = {"weights": self.weights}
        for number, part in enumerate(self.parts):
            arrays |= prefixed(f"part{number}", part.arrays())
        return arrays

    def log_tokens(self, stream: Stream) -> npt.NDArray[np.float64]:
        return self._mixed([part.log_tokens(stream) for part in self.parts])

    def log_next(self, history: Sequence[int]) -> npt.NDArray[np.float64]:
        return self._mixed([part.log_next(history) for part in self.parts])

    def _mixed(self, logs: Sequence[npt.NDArray[np.float64]]) -> npt.NDArray[np.float64]:
        """The logarithm of the weighted sum of probabilities, which may be too small to be written out."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.logaddexp.reduce(np.array(logs) + np.log(self.weights)[:, None], axis=0))


def mix(
    models: Sequence[str | Path | LanguageModel], heldout: Text, out: str | Path | None = None, **reading: Any
) -> MixedModel:
    """Models, or the folders that hold them, mixed with the weights that make held-out text likeliest (EM).

    With `out` the mixture is saved there, with all its parts. `reading` may have `field`, `encoding` and `layout`.
    """
    if out is not None:
        require_free(Path(out))
    started = time.monotonic()
    names = [str(one) if isinstance(one, str | Path) else type(one).__name__ for one in models]
    parts = [load(one) if isinstance(one, str | Path) else one for one in models]
    tokenizer = _check(parts, names)
    layout = reading.get("layout", parts[0].layout)
    corpus = open_corpus((heldout,), reading.get("field", "text"), reading.get("encoding"), layout)
    store = open_store(corpus, tokenizer)
    stream = stream_of(store, np.ones(store.facts.sentences, dtype=np.bool_))
    probabilities = token_probabilities(parts, stream)
    weights = em_weights(probabilities).weights
    recipes = json.dumps([recipe_to_json(part.recipe) for part in parts])
    recipe = EnsembleRecipe(tokenizer=tokenizer.recipe, models=",".join(Path(one).name for one in names), parts=recipes)
    model = MixedModel(recipe, parts, weights)
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


def restore(recipe: EnsembleRecipe, arrays: Mapping[str, Any], tokenizer: Tokenizer, layout: Layout) -> MixedModel:
    """The mixture of a saved artifact's arrays."""
    weights = saved_weights(arrays, "weights", (None,))
    try:
        recipes = [recipe_from_json(dict(one)) for one in json.loads(recipe.parts)]
    except (ValueError, TypeError):
        recipes = []
    if len(recipes) != weights.size:
        raise ArtifactError("the recipe does not say what the parts of the mixture are: mix them again.")
    parts = []
    for number, one in enumerate(recipes):
        own = arrays_of(f"part{number}", arrays)
        part = None if isinstance(one, TokenizerRecipe) else one.restore(own, tokenizer, layout)
        if not isinstance(part, LanguageModel):
            raise ArtifactError(f"part {number} of the mixture is no language model: mix them again.")
        parts.append(part)
    return MixedModel(recipe, parts, weights)


def _check(parts: Sequence[Any], names: Sequence[str]) -> Tokenizer:
    """The tokenizer that all parts have in common; raises unless they can be mixed."""
    if not 2 <= len(parts) <= _MOST:
        raise RecipeError(f"a mixture has 2 to {_MOST} models, not {len(parts)}: name them one after another.")
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
    """What the weights are, and the perplexity of the held-out text for each part and for all."""
    with np.errstate(divide="ignore"):
        each = np.exp(-np.log(probabilities).mean(axis=1))
        mixed = float(np.exp(-np.log(weights @ probabilities).mean()))
    perplexities = {name: float(one) if np.isfinite(one) else None for name, one in zip(names, each, strict=True)}
    return {
        "weights": dict(zip(names, weights.tolist(), strict=True)),
        "part_perplexities": perplexities,
        "perplexity": mixed if np.isfinite(mixed) else None,
    }
