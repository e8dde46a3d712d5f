"""Models from the arrays of saved artifacts.

Each type of recipe has its function. Modules of vectors, networks and tasks are imported when a model is restored,
because they import large libraries.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import singledispatch
from typing import Any

import numpy as np
import numpy.typing as npt

from firth.artifact.ensemble import EnsembleModel
from firth.counts.cache import restore_cache
from firth.counts.classes import restore_classes
from firth.counts.em import saved_weights, strip_prefix
from firth.counts.maxent import restore_maxent
from firth.counts.mixture import restore_mixture
from firth.counts.ngram import restore_ngram
from firth.counts.recipe import CacheRecipe, ClassRecipe, MaxentRecipe, MixtureRecipe, NgramRecipe
from firth.errors import ArtifactError
from firth.lm.language_model import LanguageModel
from firth.nets.recipe import NetRecipe
from firth.recipes.counts import ngram_recipe
from firth.recipes.ensemble import EnsembleRecipe
from firth.recipes.values import recipe_from_json
from firth.tasks.recipe import LinearRecipe, ManyRecipe, TaskRecipe
from firth.text.layout import Layout
from firth.tokens.tokenizer import Tokenizer
from firth.vectors.recipe import (
    BagRecipe,
    BrownRecipe,
    ClassifierRecipe,
    GraphRecipe,
    ParagraphRecipe,
    QuantisedRecipe,
    SenseRecipe,
    SifRecipe,
    SvdRecipe,
    VectorRecipe,
)

Arrays = Mapping[str, npt.NDArray[Any]]


_LOG_PROBABILITIES = {"logp", "bow", "codebooks", "bucket_logp", "unigrams"}
"""Arrays that may hold the logarithm of 0."""


def check_numbers(arrays: Arrays) -> None:
    """Raise `ArtifactError` for NaN and infinities, except log 0, and for booleans that are neither 0 nor 1.

    >>> check_numbers({"base.logp": np.array([-np.inf, 0.0])})
    >>> check_numbers({"vectors": np.array([np.nan])})
    Traceback (most recent call last):
    ...
    firth.errors.ArtifactError: the array 'vectors' holds NaN or infinity: copy the folder again, or train it again.
    """
    for name, array in arrays.items():
        if array.dtype.kind == "b" and array.size and array.view(np.uint8).max() > 1:
            raise ArtifactError(f"the array {name!r:.80} holds no true or false: copy the folder again.")
        if array.dtype.kind not in "fc" or not array.size:
            continue
        # The minimum and the maximum are NaN if any number is; they need no memory, as isfinite does.
        low, high = array.min(), array.max()
        is_log = name.rpartition(".")[2] in _LOG_PROBABILITIES
        if not (high < np.inf and (low > -np.inf or (is_log and not np.isnan(low)))):
            raise ArtifactError(
                f"the array {name!r:.80} holds NaN or infinity: copy the folder again, or train it again."
            )


@singledispatch
def restore(recipe: Any, arrays: Arrays, tokenizer: Tokenizer, layout: Layout) -> Any:
    """The model of a recipe with the arrays of a saved artifact, whose names, types and shapes are checked."""
    raise ArtifactError(f"a {type(recipe).__name__} has no model: train one with it.")


restore.register(NgramRecipe, restore_ngram)
restore.register(CacheRecipe, restore_cache)
restore.register(MixtureRecipe, restore_mixture)
restore.register(ClassRecipe, restore_classes)
restore.register(MaxentRecipe, restore_maxent)


@restore.register
def _(recipe: VectorRecipe, arrays: Arrays, tokenizer: Tokenizer, layout: Layout) -> Any:
    from firth.vectors.subwords import restore_subwords

    return restore_subwords(recipe, arrays, tokenizer, layout)


@restore.register
def _(recipe: BagRecipe, arrays: Arrays, tokenizer: Tokenizer, layout: Layout) -> Any:
    from firth.vectors.bag import restore_bag

    return restore_bag(recipe, arrays, tokenizer, layout)


@restore.register
def _(recipe: SvdRecipe, arrays: Arrays, tokenizer: Tokenizer, layout: Layout) -> Any:
    from firth.vectors.svd import restore_svd

    return restore_svd(recipe, arrays, tokenizer, layout)


@restore.register
def _(recipe: BrownRecipe, arrays: Arrays, tokenizer: Tokenizer, layout: Layout) -> Any:
    from firth.vectors.brown import restore_brown

    return restore_brown(recipe, arrays, tokenizer, layout)


@restore.register
def _(recipe: SenseRecipe, arrays: Arrays, tokenizer: Tokenizer, layout: Layout) -> Any:
    from firth.vectors.senses import restore_senses

    return restore_senses(recipe, arrays, tokenizer, layout)


@restore.register
def _(recipe: SifRecipe, arrays: Arrays, tokenizer: Tokenizer, layout: Layout) -> Any:
    from firth.vectors.sif import restore_sif

    return restore_sif(recipe, arrays, tokenizer, layout)


@restore.register
def _(recipe: QuantisedRecipe, arrays: Arrays, tokenizer: Tokenizer, layout: Layout) -> Any:
    from firth.vectors.quantised import restore_quantised

    return restore_quantised(recipe, arrays, tokenizer, layout)


@restore.register
def _(recipe: ParagraphRecipe, arrays: Arrays, tokenizer: Tokenizer, layout: Layout) -> Any:
    from firth.vectors.paragraph import restore_paragraphs

    return restore_paragraphs(recipe, arrays, tokenizer, layout)


@restore.register
def _(recipe: GraphRecipe, arrays: Arrays, tokenizer: Tokenizer, layout: Layout) -> Any:
    from firth.vectors.graph_model import restore_graph

    return restore_graph(recipe, arrays, tokenizer, layout)


@restore.register
def _(recipe: ClassifierRecipe, arrays: Arrays, tokenizer: Tokenizer, layout: Layout) -> Any:
    from firth.vectors.classifier_model import restore_classifier

    return restore_classifier(recipe, arrays, tokenizer, layout)


@restore.register
def _(recipe: NetRecipe, arrays: Arrays, tokenizer: Tokenizer, layout: Layout) -> Any:
    from firth.nets.restore import Ngrams, restore_net
    from firth.nets.with_ngrams import NGRAMS, WEIGHTS

    if not recipe.ngrams.order:
        return restore_net(recipe, arrays, tokenizer, layout)
    ngrams = {name: array for name, array in arrays.items() if name.startswith(NGRAMS) or name == WEIGHTS}
    weights = saved_weights(ngrams, WEIGHTS, (2,))
    own = ngram_recipe(recipe.ngrams, recipe.tokenizer)
    model = restore(own, strip_prefix(NGRAMS.removesuffix("."), ngrams), tokenizer, layout)
    others = {name: array for name, array in arrays.items() if name not in ngrams}
    return restore_net(recipe, others, tokenizer, layout, Ngrams(model, weights))


@restore.register
def _(recipe: TaskRecipe, arrays: Arrays, tokenizer: Tokenizer, layout: Layout) -> Any:
    from firth.tasks.registry import restore_task

    return restore_task(recipe, arrays, tokenizer, layout)


@restore.register
def _(recipe: ManyRecipe, arrays: Arrays, tokenizer: Tokenizer, layout: Layout) -> Any:
    from firth.tasks.many import restore_many

    return restore_many(recipe, arrays, tokenizer, layout)


@restore.register
def _(recipe: LinearRecipe, arrays: Arrays, tokenizer: Tokenizer, layout: Layout) -> Any:
    if recipe.task == "tag":
        from firth.tasks.linear_tagger import restore_tagger

        return restore_tagger(recipe, arrays, tokenizer)
    from firth.tasks.linear_classifier import restore_linear

    return restore_linear(recipe, arrays, tokenizer)


@restore.register
def restore_ensemble(recipe: EnsembleRecipe, arrays: Arrays, tokenizer: Tokenizer, layout: Layout) -> EnsembleModel:
    """The language models of an ensemble with their weights."""
    weights = saved_weights(arrays, "weights", (None,))
    try:
        recipes = [recipe_from_json(dict(one)) for one in json.loads(recipe.parts)]
    except (ValueError, TypeError, RecursionError):
        recipes = []
    if len(recipes) != weights.size:
        raise ArtifactError("the recipe does not say what the parts of the mixture are: mix them again.")
    parts = []
    for number, one in enumerate(recipes):
        part = restore(one, strip_prefix(f"part{number}", arrays), tokenizer, layout)
        if not isinstance(part, LanguageModel):
            raise ArtifactError(f"part {number} of the mixture is no language model: mix them again.")
        parts.append(part)
    return EnsembleModel(recipe, parts, weights)
