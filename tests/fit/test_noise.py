"""firth noise: counts by hand, and for every recipe with masks measured numbers beside the stated ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import firth as package
from firth.errors import RecipeError
from firth.fit.noise import NoiseCounts, noise, noise_rows
from firth.nets.batch import Batch
from firth.nets.network import build_network
from firth.objectives.heads.build import make_heads
from firth.objectives.heads.masking import span_length_probabilities
from firth.objectives.masking import Masking
from firth.objectives.registry import OBJECTIVES
from firth.recipes.table import RECIPES
from firth.recipes.values import override
from firth.tokens.tokenizer import BOS, EOS, MASK, PAD
from tests.command import assert_refused, firth
from tests.objectives.small_stores import small_recipe, small_vocabulary

NETS = {name: entry.make() for name, entry in RECIPES.items() if entry.family == "nets"}
MASKED = [
    name
    for name, recipe in NETS.items()
    if any("masked" in one.published_noise() for one in recipe.objectives)  # type: ignore[union-attr]
    and not recipe.entities.width  # type: ignore[union-attr]
]
"""Those that read the entities of a graph have a test of their own."""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents of sentences of made-up words of several tokens."""
    rng = np.random.default_rng(0)
    words = ["".join(rng.choice(list("bdgklmnr"), 2)) + "".join(rng.choice(list("aeiou"), 3)) for _ in range(400)]
    documents = [
        "\n".join(" ".join(rng.choice(words, int(rng.integers(6, 20)))) for _ in range(int(rng.integers(20, 60))))
        for _ in range(400)
    ]
    path = tmp_path_factory.mktemp("noise") / "text.txt"
    path.write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("name", MASKED)
def test_measured_numbers_are_those_stated(name: str, corpus: Path) -> None:
    """Spans end at special tokens, so some are shorter than drawn: up to 5 % of them in sequences of this length."""
    settings = ["tokenizer.vocab_size=300"]
    report = noise(name, str(corpus), settings=settings, layout="lines", tokens=240_000, threads=1)
    assert report["tokens"] >= 200_000
    stated = 0
    for _, what, measured, expected in noise_rows(report["objectives"]):
        if expected is None or (measured is None and what in ("whole phrases", "whole entities")):  # it has none
            continue
        stated += 1
        assert measured is not None, what
        loose = {"mean span": 0.2, "first": 0.08, "last": 0.08, "negative": 0.08}
        assert measured == pytest.approx(expected, abs=loose.get(what, 0.03)), what
    assert stated > 5
    chosen = [one["measured"] for one in report["objectives"].values() if "chosen" in one["measured"]]
    made = [one for one in NETS[name].objectives if not one.needs_translations]  # type: ignore[union-attr]
    stages = [one.at(begin) for one in made for begin in NETS[name].stages]  # type: ignore[union-attr]
    assert len(chosen) == len({(one.name, one.stage_name) for one in stages if "chosen" in one.published_noise()})
    for one in chosen:
        assert one["masked"] + one["random"] + one["kept"] == pytest.approx(1)
    again = noise(name, str(corpus), settings=settings, layout="lines", tokens=240_000, threads=1)
    assert again == report


def test_counts_by_hand() -> None:
    """A row of two sequences, with six chosen tokens in three spans."""
    recipe = small_recipe("mlm", policy="span")
    head = make_heads(recipe, build_network(recipe, small_vocabulary(), 0))["mlm"]
    before = [BOS, 10, 11, 12, 13, 14, EOS, BOS, 20, 21, 22, EOS, PAD]
    starts = [1, 1, 0, 1, 1, 0, 1, 1, 1, 1, 0, 1, 1]  # words: 10 11 | 12 | 13 14 and 20 | 21 22
    ids = torch.tensor([before])
    batch = Batch(ids.clone(), torch.tensor([starts]).bool(), torch.tensor([[0] * 7 + [1] * 5 + [-1]]))
    positions = torch.tensor([1, 2, 3, 9, 10, 5])[[0, 1, 2, 5, 3, 4]]
    batch.labels = {
        "mlm.positions": positions,
        "mlm.targets": ids[0, positions],
        "mlm.groups": torch.tensor([0, 0, 0, 1, 2, 2]),
    }
    batch.ids[0, [1, 2, 3, 5]] = MASK
    batch.ids[0, 9] = 33
    counts = NoiseCounts()
    counts.add(head, batch)
    assert counts.shares() == {
        "chosen": 6 / 8,
        "masked": 4 / 6,
        "random": 1 / 6,
        "kept": 1 / 6,
        "first": 1 / 2,
        "last": 2 / 2,
        "whole words": 3 / 4,
        "predicted": 6 / 8,
        "mean span": 4 / 3,
        "spans of 1": 2 / 3,
        "spans of 2": 1 / 3,
    }


def test_stated_lengths_are_those_drawn() -> None:
    for policy, length in (("token", 3), ("word", 3), ("ngram", 3), ("span", 10), ("span", 4)):
        masking = Masking(policy=policy, max_length=length)  # type: ignore[arg-type]
        assert masking.span_lengths() == pytest.approx(span_length_probabilities(policy, length).tolist())


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_objective_states_numbers(name: str) -> None:
    stated = OBJECTIVES[name]().published_noise()
    assert all(isinstance(value, float) and value >= 0 for value in stated.values())


def test_the_verb(corpus: Path) -> None:
    options: list[Any] = ["--layout", "lines", "--tokens", "5000", "--set", "tokenizer.vocab_size=300"]
    found = firth("noise", "bert", corpus, *options, "--json").json
    assert found["recipe"] == "bert"
    assert found["objectives"]["nsp"]["stated"] == {"negative": 0.5}
    assert set(found["objectives"]["mlm"]["measured"]) > {"chosen", "masked", "random", "kept", "first", "last"}
    shown = firth("noise", "bert", corpus, *options)
    assert shown.code == 0
    assert "measured" in shown.out
    assert "negative" in shown.out
    causal = firth("noise", "gpt", corpus, *options, "--json").json
    assert set(causal["objectives"]["clm"]["measured"]) == {"predicted"}
    changed = firth("noise", "bert", corpus, *options, "--set", "mlm.masking.rate=0.4", "--json").json
    assert changed["objectives"]["mlm"]["stated"]["chosen"] == 0.4
    assert changed["objectives"]["mlm"]["measured"]["chosen"] == pytest.approx(0.4, abs=0.02)


def test_the_function_and_the_verb_give_the_same(corpus: Path) -> None:
    settings = {"tokenizer": {"vocab_size": 300}, "mlm.masking.rate": 0.3}
    found = package.noise("bert", corpus, tokens=4000, settings=settings, layout="lines", seed=3)
    options = ["--set", "tokenizer.vocab_size=300", "--set", "mlm.masking.rate=0.3", "--layout", "lines"]
    assert firth("noise", "bert", corpus, "--tokens", 4000, "--seed", 3, *options, "--json").json == found
    recipe = override(package.find_recipe("bert"), ["tokenizer.vocab_size=300", "mlm.masking.rate=0.3"])
    again = package.noise(recipe, package.read_corpus(corpus, layout="lines"), tokens=4000, seed=3)
    assert again == found | {"recipe": ""}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"recipe": "brt"}, "did you mean 'bert'"),
        ({"recipe": None}, "recipe must be the name of one"),
        ({"recipe": "mt-dnn"}, "use firth.finetune"),
        ({"recipe": override(RECIPES["unigram"].make(), [])}, "recipe must be the name of one"),
        ({"tokens": 0}, "tokens must be a number of 1 or more, not 0"),
        ({"tokens": "many"}, "not 'many'"),
        ({"settings": {"mlm.masking.rat": 0.3}}, "did you mean"),
        ({"layout": "proze"}, "did you mean 'prose'"),
        ({"corpora": ()}, "no corpus was given"),
    ],
)
def test_wrong_arguments_of_the_function(given: dict[str, Any], message: str) -> None:
    options: dict[str, Any] = {"recipe": "bert", "corpora": [[["a b c", "d e f"]]], "settings": {}} | given
    recipe, corpora = options.pop("recipe"), options.pop("corpora")
    with pytest.raises(package.FirthError, match=message) as error:
        package.noise(recipe, *corpora, **options)
    assert "\n" not in str(error.value)
    assert "--" not in str(error.value)


def test_what_has_no_noise_is_refused(corpus: Path) -> None:
    assert_refused(firth("noise", "unigram", corpus), "name one such as bert")
    with pytest.raises(RecipeError, match="no training objective"):
        noise("unigram", str(corpus))
    assert firth("noise", "bert", corpus, "--tokens", "0").code == 2
    assert firth("noise", "brt", corpus).code == 2
