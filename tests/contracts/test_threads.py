"""Threads may share a model: results are those of one thread, for every kind of model and every ability."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import firth as library
from firth.abilities import (
    Embeds,
    Explains,
    Fills,
    Generates,
    HasVectors,
    Predicts,
    PredictsNext,
    Scores,
    ScoresPairs,
    TaskPredictor,
    Translates,
)
from firth.fit.finetune import finetune
from firth.fit.train import reads_pairs, train
from firth.recipes.table import RECIPES
from firth.tasks.recipe import TASKS
from firth.vectors.recipe import ClassifierRecipe, GraphRecipe
from tests.contracts.test_recipes import TEXTS, _has_languages, _language_texts, _settings
from tests.contracts.test_tasks import MODELS, TEXT, make_examples
from tests.samples import CHINESE, ENGLISH

THREADS = 4
KINDS = (
    *("kn3", "cache", "mixture", "class-ngram", "maxent", "tfidf", "lsa", "brown", "skipgram", "multi-prototype"),
    *("fasttext", "pv-dm", "fasttext-classifier", "senna", "lstm", "hlbl", "elmo", "gpt", "transformer-xl", "bert"),
    *("electra", "xlm", "transformer"),
)
"""A recipe of each class of models and of each kind of network."""


@pytest.fixture(autouse=True)
def _frequent_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def texts(number: int) -> list[str]:
    """Sentences that differ from those of other numbers, so that threads add to caches at the same time."""
    return [f"{line} w{number}{place} dog{number}" for place, line in enumerate([*ENGLISH, *CHINESE])]


def calls(model: Any, number: int) -> Iterator[Callable[[], Any]]:
    """One call of each ability of a model."""
    own = texts(number)
    if isinstance(model, Scores):
        yield lambda: model.score(own)
    if isinstance(model, Explains):
        yield lambda: model.explain(own[0])
    if isinstance(model, PredictsNext):
        yield lambda: model.next(own[0])
    if isinstance(model, Generates):
        yield lambda: model.generate(own[0], count=2, length=8, seed=number)
    if isinstance(model, Fills):
        yield lambda: model.fill(f"The [MASK] dog{number}")
    if isinstance(model, Embeds):
        yield lambda: model.embed(own)
    if isinstance(model, HasVectors):
        words = [word for word in model.words if word in model.rows]
        yield lambda: model.similar(words[number % len(words)], 3)
    if isinstance(model, Predicts) and not isinstance(model, TaskPredictor):
        yield lambda: model.predict(own)
    if isinstance(model, ScoresPairs):
        yield lambda: list(model.score_pairs(zip(own[:3], own[3:], strict=True)))
    if isinstance(model, Translates):
        yield lambda: model.translate(own[:3], length=6)


def plain(value: Any) -> Any:
    """The value with arrays as bytes, which are compared bit by bit."""
    value = value.toarray() if hasattr(value, "toarray") else value
    return (value.shape, value.tobytes()) if isinstance(value, np.ndarray) else value


def assert_threads_agree(folder: Path, make_calls: Callable[[Any, int], Iterator[Callable[[], Any]]]) -> None:
    numbers = range(2 * THREADS)
    alone, shared = library.load(folder), library.load(folder)
    expected = [[plain(call()) for call in make_calls(alone, number)] for number in numbers]
    assert expected[0]

    def run(number: int) -> list[Any]:
        return [plain(call()) for call in make_calls(shared, number)]

    with ThreadPoolExecutor(THREADS) as pool:
        found = list(pool.map(run, numbers))
    assert found == expected


@pytest.mark.parametrize("name", KINDS)
def test_threads_share_a_model(name: str, tmp_path: Path) -> None:
    recipe = RECIPES[name].make()
    corpus, options = tmp_path / "corpus.txt", {}
    corpus.write_text("\n".join([*ENGLISH, "", *CHINESE, "\n"]) * 3, encoding="utf-8")
    given: list[Any] = [corpus]
    if isinstance(recipe, ClassifierRecipe):
        lines = [f"__label__{language} {line}" for language in ("en", "zh") for line in TEXTS[language]]
        corpus.write_text("\n".join(lines) + "\n", encoding="utf-8")
    if reads_pairs(recipe):
        given = [corpus.with_suffix(".tsv")]
        lines = ["en\tzh", *(f"{one}\t{two}" for one, two in zip(ENGLISH, CHINESE, strict=True))]
        given[0].write_text("\n".join(lines) + "\n", encoding="utf-8")
    if isinstance(recipe, GraphRecipe):
        corpus.write_text("\n".join(f"{line.split()[0]}\tbegins\t{line}" for line in ENGLISH), encoding="utf-8")
    if _has_languages(name):
        given = _language_texts(tmp_path)
    if RECIPES[name].family == "nets":
        options = {"budget": "2ktok"}
    train(name, *given, out=tmp_path / "m", settings=_settings(name), threads=1, layout="lines", **options)
    assert_threads_agree(tmp_path / "m", calls)


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("bases")
    for name, budget in (("bert", "10ktok"), ("kn3", None)):
        train(name, TEXT, out=folder / name, settings=MODELS.get(name, ()), budget=budget, threads=1, reload=False)
    return {name: folder / name for name in ("bert", "kn3")}


@pytest.mark.parametrize(
    ("base", "task"), [*(("bert", task) for task in TASKS), ("kn3", "classify"), ("kn3", "pair"), ("kn3", "tag")]
)
def test_threads_share_a_task_model(base: str, task: str, bases: dict[str, Path], tmp_path: Path) -> None:
    """Some inputs are truncated, which their own predictions say."""
    examples = make_examples(task)
    settings = ["learning.epochs=1"] if base == "bert" else []
    finetune(
        bases[base], task, train=examples, dev=examples, out=tmp_path / "m", settings=settings, threads=1,
    )  # fmt: skip

    def own_calls(model: Any, number: int) -> Iterator[Callable[[], Any]]:
        items = [repeated(task, one, 40 if number % 2 else 1) for one in make_examples(task)]
        yield lambda: model.predict(items)

    assert_threads_agree(tmp_path / "m", own_calls)
    if base == "bert":
        model = library.load(tmp_path / "m")
        for times in (1, 40):
            found = model.predict([repeated(task, one, times) for one in make_examples(task)])
            assert all(("truncated" in one) is (times > 1) for one in found)


def repeated(task: str, example: Any, times: int) -> Any:
    """The item of an example, longer by that factor."""
    if task == "classify":
        return example[1] * times
    if task == "pair":
        return (example[1] * times, example[2])
    if task in ("typing", "relation"):
        return (example[1] * times, *example[2:])
    if task == "tag":
        return example[0] * times
    if task == "span":
        return {"passage": example["passage"] * times, "question": example["question"]}
    if task == "choice":
        return {name: example[name] for name in ("question", "choices")} | {"context": example["context"] * times}
    return example[0] * times
