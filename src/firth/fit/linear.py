"""The linear baseline: what fine-tuning is for models that have neither states nor vectors to build on."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from firth.artifact.folder import Artifact
from firth.artifact.models import load, load_tokenizer, save
from firth.errors import AbilityError, RecipeError
from firth.fit.linear_tag import are_characters, learn_tags
from firth.fit.tuning_settle import labels_of
from firth.progress import note, progress
from firth.recipes.values import override
from firth.tasks.examples import TextExample, numeric_labels
from firth.tasks.linear import Grams, LinearModel
from firth.tasks.linear_recipe import LinearRecipe
from firth.tasks.linear_tag import LinearTagger
from firth.tasks.schemes import scheme_of
from firth.tasks.solver import Solver
from firth.text.scripts import script_counts
from firth.tokens.tokenizer import Tokenizer

COSTS = (0.1, 1.0, 10.0, 100.0)
"""Those of which the best on the dev examples is taken."""
_STEPS = 1000  # of the optimiser, at most
_SEEN = 200  # texts that are looked at to tell whether they are Chinese
_SETTABLE = ("features", "ngrams", "min_count", "weighting", "cost")
_SETTABLE_TAG = ("features", "min_count", "cost")


@dataclass(frozen=True, kw_only=True)
class LinearTuning:
    """What a linear baseline is given."""

    task: str
    train: Sequence[Any]
    """TextExamples or, for tag, TagExamples, as those of the other parts."""
    dev: Sequence[Any]
    test: Sequence[Any] | None = None
    out: Path
    settings: Sequence[str] = ()
    fields: Sequence[str] = ()
    seed: int = 0


class Fitted(NamedTuple):
    """A linear model's numbers, and the optimiser's steps to them."""

    weights: npt.NDArray[np.float32]
    bias: npt.NDArray[np.float64]
    steps: int


def is_plain(artifact: Artifact) -> bool:
    """Whether a model has neither states nor vectors: a tokenizer, a count model or a bag of words."""
    manifest = artifact.manifest
    return manifest.kind in ("tokenizer", "counts") or manifest.recipe.get("type") == "bag"


def require_linear(artifact: Artifact, task: str, options: Mapping[str, Any]) -> None:
    """Raises `AbilityError` for a task that the baseline cannot do, or options that mean nothing to it."""
    if task not in ("classify", "pair", "tag"):
        raise AbilityError(
            f"{artifact.folder} has neither states nor vectors, and the linear baseline for such models does classify, "
            f"pair and tag, not {task}: fine-tune a network or word vectors."
        )
    if given := [option for option, value in options.items() if value]:
        raise AbilityError(
            f"{artifact.folder} has neither states nor vectors, so that a linear baseline is trained, to which "
            f"{given[0]} means nothing: leave it out."
        )


def tune_linear(tuning: LinearTuning, artifact: Artifact) -> Solver:
    """A linear model on the n-grams of a model's tokens, or a tagger of words, saved in the folder `out`."""
    began = time.monotonic()
    tokenizer = load_tokenizer(artifact)
    recipe = settle_linear(tuning, tokenizer)
    note(f"{artifact.manifest.name} has neither states nor vectors: a linear baseline is trained on {_basis(recipe)}.")
    model: LinearModel | LinearTagger
    if recipe.task == "tag":
        model, metrics = learn_tags(recipe, tokenizer, tuning.train, tuning.dev, tuning.seed)
    else:
        model, metrics = learn(recipe, tokenizer, tuning.train, tuning.dev)
    for part, examples in (("dev", tuning.dev), ("test", tuning.test)):
        if examples is not None:
            metrics[part] = model.measure(examples, model.solve(examples), seed=tuning.seed)
    files = artifact.manifest.files
    start = files.get("model.safetensors") or files["tokenizer.json"]
    save(
        tuning.out,
        model,
        name=f"{artifact.manifest.name}-{tuning.task}",
        recipe=model.recipe,
        budget={"asked": None, "spent": {"seconds": time.monotonic() - began}},
        corpus={
            "layout": artifact.manifest.corpus.get("layout", "lines"),
            "examples": len(tuning.train),
            "model": start.sha256,
        },
        seed=tuning.seed,
        metrics=metrics,
    )
    return cast(Solver, load(tuning.out, verify=False))


def _basis(recipe: LinearRecipe) -> str:
    if recipe.task == "tag":
        return f"{'words' if recipe.features == 'tokens' else 'characters'} and their neighbours"
    return f"n-grams of {'its tokens' if recipe.features == 'tokens' else 'characters'}"


def settle_linear(tuning: LinearTuning, tokenizer: Tokenizer) -> LinearRecipe:
    """The recipe for some examples; only the cost may be left open."""
    labels, form = labels_of(cast(Any, tuning.task), tuning.train)
    plain = LinearRecipe(
        task=cast(Any, tuning.task), form=form, labels=labels, tokenizer=tokenizer.recipe, fields=tuple(tuning.fields)
    )
    if tuning.task == "tag":
        plain = replace(plain, scheme=scheme_of([one.tags for one in tuning.train]))
    settable = _SETTABLE_TAG if tuning.task == "tag" else _SETTABLE
    recipe = cast(LinearRecipe, override(plain, tuning.settings))
    if replace(plain, **{name: getattr(recipe, name) for name in settable}) != recipe:
        raise RecipeError(f"of a linear baseline only {', '.join(settable)} can be set: leave the rest out.")
    if recipe.features != "auto":
        return recipe
    if tuning.task == "tag":
        characters = are_characters(tuning.train)
    else:
        characters = tokenizer.recipe.model == "words" and _is_chinese(tuning.train)
    return replace(recipe, features="characters" if characters else "tokens")


def _is_chinese(examples: Sequence[TextExample]) -> bool:
    """Whether texts are mostly Chinese; a Chinese character says about as much as two letters."""
    counts = script_counts("\n".join(one.text for one in examples[:_SEEN]))
    return 2 * counts.get("han", 0) > counts.get("latin", 0)


def learn(
    recipe: LinearRecipe, tokenizer: Tokenizer, train: Sequence[TextExample], dev: Sequence[TextExample]
) -> tuple[LinearModel, dict[str, Any]]:
    """The model whose cost is best on `dev`, the smallest of equals, and what a manifest says of it."""
    grams = Grams(recipe, tokenizer)
    grams.learn(train)
    rows, unseen = grams.matrix(train), grams.matrix(dev)
    tried: list[dict[str, float]] = []
    best: tuple[float, LinearModel, Fitted] | None = None
    costs = COSTS if recipe.cost == "auto" else (recipe.cost,)
    with progress("trying costs", len(costs), "costs") as advance:
        for cost in costs:
            fitted = fit(replace(recipe, cost=cost), rows, train)
            model = LinearModel(grams, fitted.weights, fitted.bias)
            model.recipe = replace(recipe, cost=cost)
            found = model.measure(dev, model.answers(unseen), samples=0)
            metric = found["main"]
            tried.append({"cost": cost, metric: found[metric]})
            if best is None or found[metric] > best[0]:
                best = found[metric], model, fitted
            advance(1)
    assert best is not None
    _, model, fitted = best
    size = fitted.weights.size + fitted.bias.size
    facts = {"parameters": size, "learnt": size, "examples": len(train), "cut": 0, "steps": fitted.steps}
    return model, facts | {"stages": [], "ngrams": grams.keys.size, "costs": tried}


def fit(recipe: LinearRecipe, rows: Any, examples: Sequence[TextExample]) -> Fitted:
    """Weights and biases for one cost."""
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    with warnings.catch_warnings(), threadpool_limits(limits=1, user_api="blas"):  # the same bits on any machine
        warnings.simplefilter("ignore", ConvergenceWarning)  # what is nearly there is good enough
        if recipe.form == "number":
            return _fit_numbers(recipe, rows, examples)
        number = {label: place for place, label in enumerate(recipe.labels)}
        if recipe.form == "single":
            return _fit_labels(recipe, rows, np.array([number[(one.labels or ("",))[0]] for one in examples]))
        held = np.zeros((len(examples), len(number)), dtype=np.int64)
        for place, one in enumerate(examples):
            held[place, [number[label] for label in one.labels or ()]] = 1
        return _fit_each(recipe, rows, held)


def _fit_labels(recipe: LinearRecipe, rows: Any, labels: npt.NDArray[np.int64]) -> Fitted:
    """Softmax regression; of two labels the first has score 0."""
    from sklearn.linear_model import LogisticRegression

    found = LogisticRegression(C=recipe.cost, max_iter=_STEPS).fit(rows, labels)
    weights, bias = found.coef_, found.intercept_
    if len(weights) == 1:
        weights, bias = np.vstack([np.zeros_like(weights), weights]), np.append(0.0, bias)
    return Fitted(weights.astype(np.float32), bias, int(found.n_iter_.max()))


def _fit_each(recipe: LinearRecipe, rows: Any, held: npt.NDArray[np.int64]) -> Fitted:
    """A regression of its own for each label; one that every example has is certain."""
    parts = []
    for labels in held.T:
        if labels.all():
            parts.append(Fitted(np.zeros(rows.shape[1], dtype=np.float32), np.log(2 * np.array(len(labels)) + 1), 0))
            continue
        one = _fit_labels(recipe, rows, labels)
        parts.append(Fitted(one.weights[1], one.bias[1], one.steps))
    return Fitted(
        np.stack([one.weights for one in parts]),
        np.array([one.bias for one in parts], dtype=np.float64),
        sum(one.steps for one in parts),
    )


def _fit_numbers(recipe: LinearRecipe, rows: Any, examples: Sequence[TextExample]) -> Fitted:
    """Ridge regression."""
    from sklearn.linear_model import Ridge

    assert recipe.cost != "auto"
    found = Ridge(alpha=1 / recipe.cost, solver="sparse_cg", tol=1e-6).fit(rows, numeric_labels(examples))
    return Fitted(found.coef_[None].astype(np.float32), np.atleast_1d(found.intercept_), 1)
