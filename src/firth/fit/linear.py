"""Linear baselines, for fine-tuning of models without hidden states or vectors."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from firth.artifact.folder import Artifact
from firth.artifact.models import load, load_tokenizer, save
from firth.errors import AbilityError, RecipeError
from firth.fit.resolve_task import FinetuneConfig, labels_of
from firth.metrics.tags import fault_table, scheme_of
from firth.progress import note, progress
from firth.recipes.values import override
from firth.tasks.examples import TagExample, TextExample, numeric_labels, texts_of
from firth.tasks.linear_classifier import LinearClassifier, NgramFeatures
from firth.tasks.linear_tagger import Floats, LinearTagger
from firth.tasks.predictor import Predictor
from firth.tasks.recipe import WITH_LINEAR, LinearRecipe
from firth.tasks.tag_features import FeatureExtractor, Ints, WordFeatures
from firth.text.scripts import script_counts
from firth.tokens.coverage import note_poor_coverage
from firth.tokens.tokenizer import Tokenizer
from firth.tokens.word_classes import WordClasses

COSTS, TAGGER_COSTS = (0.1, 1.0, 10.0, 100.0), (1.0, 10.0, 100.0)
"""Inverse regularisation strengths, of which the best on the dev examples is chosen."""
_EPOCHS = 10  # of the tagger, and
_MIN_STEPS = 2000  # at least
_LR = 0.2
_INITIAL_SQUARES = 0.01  # of the sums of squared gradients
_MAX_STEPS = 1000
_SAMPLE = 200  # texts inspected to detect Chinese
_SETTABLE = ("features", "ngrams", "min_count", "weighting", "cost")
_SETTABLE_TAG = ("features", "min_count", "cost")


class Fitted(NamedTuple):
    """The parameters of a linear model, and the number of optimisation steps."""

    weights: npt.NDArray[np.float32]
    bias: npt.NDArray[np.float64]
    steps: int


def has_no_states(artifact: Artifact) -> bool:
    """Whether a model has neither hidden states nor vectors: a tokenizer, a count model or a bag of words."""
    manifest = artifact.manifest
    return manifest.kind in ("tokenizer", "counts") or manifest.recipe.get("type") == "bag"


def require_linear(artifact: Artifact, task: str, options: Mapping[str, Any]) -> None:
    """Raise `AbilityError` for tasks and options that the baseline does not support."""
    if task not in WITH_LINEAR:
        raise AbilityError(
            f"{artifact.folder} has neither states nor vectors, and the linear baseline for such models does classify, "
            f"pair and tag, not {task}: fine-tune a network or word vectors."
        )
    if given := [option for option, value in options.items() if value]:
        raise AbilityError(
            f"{artifact.folder} has neither states nor vectors, so that a linear baseline is trained, to which "
            f"{given[0]} means nothing: leave it out."
        )


def train_linear(config: FinetuneConfig, artifact: Artifact) -> Predictor:
    """A linear classifier over n-grams of a model's tokens, or a linear tagger, saved in the folder `out`."""
    began = time.monotonic()
    tokenizer = load_tokenizer(artifact)
    recipe = resolve_linear(config, tokenizer)
    note(f"{artifact.manifest.name} has neither states nor vectors: a linear baseline is trained on {_basis(recipe)}.")
    if recipe.features == "tokens" and recipe.task != "tag":  # taggers have features of their own
        note_poor_coverage(tokenizer, (text for example in config.train for text in texts_of(example)))
    model: LinearClassifier | LinearTagger
    if recipe.task == "tag":
        model, metrics = train_tagger(recipe, tokenizer, config.train, config.dev, config.seed)
    else:
        model, metrics = train_linear_classifier(recipe, tokenizer, config.train, config.dev)
    for part, examples in (("dev", config.dev), ("test", config.test)):
        if examples is not None:
            metrics[part] = model.measure(examples, model.predict_examples(examples), seed=config.seed)
    files = artifact.manifest.files
    start = files.get("model.safetensors") or files["tokenizer.json"]
    save(
        config.out,
        model,
        name=f"{artifact.manifest.name}-{config.task}",
        recipe=model.recipe,
        budget={"asked": None, "spent": {"seconds": time.monotonic() - began}},
        corpus={
            "layout": artifact.manifest.corpus.get("layout", "lines"),
            "examples": len(config.train),
            "model": start.sha256,
        },
        seed=config.seed,
        metrics=metrics,
    )
    return cast(Predictor, load(config.out, verify=False))


def _basis(recipe: LinearRecipe) -> str:
    if recipe.task == "tag":
        return f"{'words' if recipe.features == 'tokens' else 'characters'} and their neighbours"
    return f"n-grams of {'its tokens' if recipe.features == 'tokens' else 'characters'}"


def resolve_linear(config: FinetuneConfig, tokenizer: Tokenizer) -> LinearRecipe:
    """The recipe for some examples; only the cost may stay unset."""
    labels, form = labels_of(cast(Any, config.task), config.train)
    plain = LinearRecipe(
        task=cast(Any, config.task), form=form, labels=labels, tokenizer=tokenizer.recipe, columns=tuple(config.columns)
    )
    if config.task == "tag":
        plain = replace(plain, scheme=scheme_of([one.tags for one in config.train]))
    elif config.task == "pair":
        plain = replace(plain, differences=True)
    else:
        plain = replace(plain, weighting="ratio", ngrams=3 if _is_chinese(config.train) else 2)
    settable = _SETTABLE_TAG if config.task == "tag" else _SETTABLE
    recipe = cast(LinearRecipe, override(plain, config.settings))
    if replace(plain, **{name: getattr(recipe, name) for name in settable}) != recipe:
        raise RecipeError(f"of a linear baseline only {', '.join(settable)} can be set: leave the rest out.")
    if recipe.features != "auto":
        return recipe
    if config.task == "tag":
        characters = are_characters(config.train)
    else:
        characters = tokenizer.recipe.model == "words" and _is_chinese(config.train)
    return replace(recipe, features="characters" if characters else "tokens")


def _is_chinese(examples: Sequence[TextExample]) -> bool:
    """Whether texts are mostly Chinese; a Chinese character counts as two Latin ones."""
    counts = script_counts("\n".join(one.text for one in examples[:_SAMPLE]))
    return 2 * counts.get("han", 0) > counts.get("latin", 0)


def train_linear_classifier(
    recipe: LinearRecipe, tokenizer: Tokenizer, train: Sequence[TextExample], dev: Sequence[TextExample]
) -> tuple[LinearClassifier, dict[str, Any]]:
    """The model with the best cost on `dev`, and its metrics for the manifest."""
    ngrams = NgramFeatures(recipe, tokenizer)
    ngrams.fit(train)
    features, dev_features = ngrams.matrix(train), ngrams.matrix(dev)
    steps: dict[Any, int] = {}

    def fit_model(chosen: LinearRecipe) -> LinearClassifier:
        fitted = fit(chosen, features, train)
        model = LinearClassifier(ngrams, fitted.weights, fitted.bias)
        model.recipe, steps[chosen.cost] = chosen, fitted.steps
        advance(1)
        return model

    with progress("trying costs", len(COSTS) if recipe.cost == "auto" else 1, "costs") as advance:
        model, tried = _best_cost(recipe, COSTS, fit_model, dev, dev_features)
    metrics = _metrics(model.weights.size + model.bias.size, len(train), steps[model.recipe.cost])
    return model, metrics | {"ngrams": ngrams.keys.size, "costs": tried}


def _best_cost(
    recipe: LinearRecipe, costs: Sequence[float], fit_model: Callable[[LinearRecipe], Any], dev: Any, dev_features: Any
) -> tuple[Any, list[dict[str, float]]]:
    """The model with the best cost on `dev`, the lowest of equals, and the metric of each cost."""
    tried: list[dict[str, float]] = []
    best: tuple[float, Any] | None = None
    for cost in costs if recipe.cost == "auto" else (recipe.cost,):
        model = fit_model(replace(recipe, cost=cost))
        found = model.measure(dev, model.predict_features(dev_features), samples=0)
        value = found[found["main"]]
        tried.append({"cost": cost, found["main"]: value})
        if best is None or value > best[0]:
            best = value, model
    assert best is not None
    return best[1], tried


def _metrics(size: int, examples: int, steps: int) -> dict[str, Any]:
    counts = {"parameters": size, "trainable_parameters": size, "examples": examples, "cut": 0, "steps": steps}
    return counts | {"stages": []}


def fit(recipe: LinearRecipe, features: Any, examples: Sequence[TextExample]) -> Fitted:
    """Weights (labels, features) and biases for one cost."""
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    with warnings.catch_warnings(), threadpool_limits(limits=1, user_api="blas"):  # the same bits on any machine
        warnings.simplefilter("ignore", ConvergenceWarning)  # nearly converged is good enough
        if recipe.form == "number":
            return _fit_numbers(recipe, features, examples)
        index = {label: number for number, label in enumerate(recipe.labels)}
        if recipe.form == "single":
            return _fit_labels(recipe, features, np.array([index[(one.labels or ("",))[0]] for one in examples]))
        targets = np.zeros((len(examples), len(index)), dtype=np.int64)
        for row, one in enumerate(examples):
            targets[row, [index[label] for label in one.labels or ()]] = 1
        return _fit_each(recipe, features, targets)


def _fit_labels(recipe: LinearRecipe, features: Any, labels: npt.NDArray[np.int64]) -> Fitted:
    """Softmax regression; of two labels the first has score 0."""
    from sklearn.linear_model import LogisticRegression

    found = LogisticRegression(C=recipe.cost, max_iter=_MAX_STEPS).fit(features, labels)
    weights, bias = found.coef_, found.intercept_
    if len(weights) == 1:
        weights, bias = np.vstack([np.zeros_like(weights), weights]), np.append(0.0, bias)
    return Fitted(weights.astype(np.float32), bias, int(found.n_iter_.max()))


def _fit_each(recipe: LinearRecipe, features: Any, targets: npt.NDArray[np.int64]) -> Fitted:
    """A logistic regression for each label; a label that every example has gets a constant bias."""
    parts = []
    for labels in targets.T:
        if labels.all():
            weights, bias = np.zeros(features.shape[1], dtype=np.float32), np.log(2 * np.array(len(labels)) + 1)
            parts.append(Fitted(weights, bias, 0))
        else:
            one = _fit_labels(recipe, features, labels)
            parts.append(Fitted(one.weights[1], one.bias[1], one.steps))
    return Fitted(
        np.stack([one.weights for one in parts]),
        np.array([one.bias for one in parts], dtype=np.float64),
        sum(one.steps for one in parts),
    )


def _fit_numbers(recipe: LinearRecipe, features: Any, examples: Sequence[TextExample]) -> Fitted:
    """Ridge regression."""
    from sklearn.linear_model import Ridge

    assert recipe.cost != "auto"
    found = Ridge(alpha=1 / recipe.cost, solver="sparse_cg", tol=1e-6).fit(features, numeric_labels(examples))
    return Fitted(found.coef_[None].astype(np.float32), np.atleast_1d(found.intercept_), 1)


def are_characters(examples: Sequence[TagExample]) -> bool:
    """Whether words are mostly single characters of writing without spaces.

    >>> are_characters([TagExample(("我", "们"), spaced=False)]), are_characters([TagExample(("a", "b"))])
    (True, False)
    """
    seen = [word for one in examples[:_SAMPLE] if not one.spaced for word in one.words]
    words = sum(len(one.words) for one in examples[:_SAMPLE])
    return 10 * sum(len(word) == 1 for word in seen) > 9 * words


def train_tagger(
    recipe: LinearRecipe,
    tokenizer: Tokenizer,
    train: Sequence[TagExample],
    dev: Sequence[TagExample],
    seed: int,
    classes: WordClasses | None = None,
) -> tuple[LinearTagger, dict[str, Any]]:
    """The tagger with the best cost on `dev`, and its metrics for the manifest; it sees the `classes` of words."""
    train = [one for one in train if one.words]
    extractor = FeatureExtractor(recipe, tokenizer.segmenter, classes)
    recipe = replace(recipe, word_classes=extractor.classes is not None)
    counts = extractor.fit(train, recipe.min_count)
    index = {label: number for number, label in enumerate(recipe.labels)}
    tags = np.array([index[tag] for one in train for tag in one.tags or ()], dtype=np.int64)
    words = extractor.extract(train)
    epochs = max(_EPOCHS, math.ceil(_MIN_STEPS / len(train)))
    costs = len(TAGGER_COSTS) if recipe.cost == "auto" else 1
    with progress("training the tagger", costs * epochs, "epochs") as advance:

        def fit_model(chosen: LinearRecipe) -> LinearTagger:
            return LinearTagger(
                chosen, tokenizer, extractor, *fit_tags(chosen, words, tags, counts, epochs, seed, advance)
            )

        model, tried = _best_cost(recipe, TAGGER_COSTS, fit_model, dev, extractor.extract(dev))
    metrics = _metrics(model.weights.size + model.transitions.size, len(train), epochs * len(train))
    return model, metrics | {"features": extractor.keys.size, "costs": tried}


def fit_tags(
    recipe: LinearRecipe, words: WordFeatures, tags: Ints, counts: Ints, epochs: int, seed: int, advance: Any
) -> tuple[npt.NDArray[np.float32], Floats]:
    """The weights of features and of transitions that minimise  cost * loss + squared norm / 2.

    `tags` has the tag index of each word, `counts` the number of words with each feature.
    """
    from firth.tasks._crf_kernels import UNLIKELY, adagrad_epoch

    assert recipe.cost != "auto"
    labels = len(recipe.labels)
    weights = np.zeros((counts.size, labels), dtype=np.float32)
    squares = np.full_like(weights, _INITIAL_SQUARES)
    steps = np.zeros((labels + 1, labels + 1))
    step_squares = np.full_like(steps, _INITIAL_SQUARES)
    barred = np.where(fault_table(recipe.labels, recipe.scheme), UNLIKELY, 0.0)
    sentences = words.bounds.size - 1
    decay, step_decay = 1 / (recipe.cost * counts), 1 / (recipe.cost * sentences)
    for number in range(epochs):
        order = np.random.default_rng((seed, number)).permutation(sentences)
        adagrad_epoch(
            order, words.bounds, words.features, tags, decay, _LR, weights, squares, steps, step_squares, barred,
            step_decay,
        )  # fmt: skip
        advance(1)
    return weights, steps
