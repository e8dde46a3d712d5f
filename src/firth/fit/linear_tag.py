"""Training the linear tagger: a conditional random field, by AdaGrad, one sentence at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from firth.progress import progress
from firth.tasks.chain import UNLIKELY
from firth.tasks.examples import TagExample
from firth.tasks.linear_recipe import LinearRecipe
from firth.tasks.linear_tag import Floats, LinearTagger, Numbers, Sights, Words, faults
from firth.tokens.tokenizer import Tokenizer

COSTS = (1.0, 10.0, 100.0)
"""Those of which the best on the dev examples is taken."""
_PASSES = 10
_STEPS = 2000  # at least; small sets are passed over more often
_RATE = 0.2
_FIRST = 0.01  # what the sums of squared gradients begin with
_SEEN = 200  # sentences that are looked at to tell whether each character is a word


class Lessons(NamedTuple):
    """What is learnt from."""

    words: Words
    tags: Numbers
    """The number of each word's tag."""
    counts: Numbers
    """How many words have each feature."""


def are_characters(examples: Sequence[TagExample]) -> bool:
    """Whether words are mostly single characters of writing without spaces.

    >>> are_characters([TagExample(("我", "们"), spaced=False)]), are_characters([TagExample(("a", "b"))])
    (True, False)
    """
    seen = [word for one in examples[:_SEEN] if not one.spaced for word in one.words]
    words = sum(len(one.words) for one in examples[:_SEEN])
    return 10 * sum(len(word) == 1 for word in seen) > 9 * words


def learn_tags(
    recipe: LinearRecipe, tokenizer: Tokenizer, train: Sequence[TagExample], dev: Sequence[TagExample], seed: int
) -> tuple[LinearTagger, dict[str, Any]]:
    """The tagger whose cost is best on `dev`, the smallest of equals, and what a manifest says of it."""
    train = [one for one in train if one.words]
    sights = Sights(recipe)
    lessons = _lessons(recipe, sights, train)
    unseen = sights.find(dev)
    costs = COSTS if recipe.cost == "auto" else (recipe.cost,)
    passes = max(_PASSES, math.ceil(_STEPS / len(train)))
    tried: list[dict[str, float]] = []
    best: tuple[float, LinearTagger] | None = None
    with progress("learning to tag", len(costs) * passes, "passes") as advance:
        for cost in costs:
            chosen = replace(recipe, cost=cost)
            weights, steps = fit_tags(chosen, lessons, passes, seed, advance)
            model = LinearTagger(chosen, tokenizer, sights, weights, steps)
            found = model.measure(dev, model.answers(unseen), samples=0)
            metric = found["main"]
            tried.append({"cost": cost, metric: found[metric]})
            if best is None or found[metric] > best[0]:
                best = found[metric], model
    assert best is not None
    size = best[1].weights.size + best[1].steps.size
    facts = {"parameters": size, "learnt": size, "examples": len(train), "cut": 0, "steps": passes * len(train)}
    return best[1], facts | {"stages": [], "features": sights.keys.size, "costs": tried}


def _lessons(recipe: LinearRecipe, sights: Sights, examples: Sequence[TagExample]) -> Lessons:
    counts = sights.learn(examples, recipe.min_count)
    number = {label: place for place, label in enumerate(recipe.labels)}
    tags = np.array([number[tag] for one in examples for tag in one.tags or ()], dtype=np.int64)
    return Lessons(sights.find(examples), tags, counts)


def fit_tags(
    recipe: LinearRecipe, lessons: Lessons, passes: int, seed: int, advance: Any
) -> tuple[npt.NDArray[np.float32], Floats]:
    """The weights of features and of steps that make  cost * loss + half their squared length  small."""
    from firth.tasks._linear_kernels import learn_pass

    assert recipe.cost != "auto"
    labels, (words, tags, counts) = len(recipe.labels), lessons
    weights = np.zeros((counts.size, labels), dtype=np.float32)
    squares = np.full_like(weights, _FIRST)
    steps = np.zeros((labels + 1, labels + 1))
    step_squares = np.full_like(steps, _FIRST)
    barred = np.where(faults(recipe), UNLIKELY, 0.0)
    sentences = words.bounds.size - 1
    decay, step_decay = 1 / (recipe.cost * counts), 1 / (recipe.cost * sentences)
    for number in range(passes):
        order = np.random.default_rng((seed, number)).permutation(sentences)
        learn_pass(
            order, words.bounds, words.features, tags, decay, _RATE, weights, squares, steps, step_squares, barred,
            step_decay,
        )  # fmt: skip
        advance(1)
    return weights, steps
