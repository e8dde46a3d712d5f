"""Objectives as parts of a recipe: settings by name, contradictions, JSON and differences."""

from __future__ import annotations

from dataclasses import replace

import pytest

from firth.errors import ArgumentError, ArtifactError, RecipeError
from firth.objectives.clm import CausalLM
from firth.objectives.masking import Masking
from firth.objectives.mlm import MaskedLM
from firth.objectives.pairs import NextSentence, SentenceOrder
from firth.objectives.registry import OBJECTIVES, parse_objectives
from firth.recipes.nets import bert, gpt, roberta
from firth.recipes.values import difference, override, recipe_from_json, recipe_to_json


def test_names_choose_objectives_and_keep_their_settings() -> None:
    changed = override(bert(), ["objectives=sop+mlm"])
    assert changed.objectives == (SentenceOrder(), MaskedLM(masking=Masking(mode="duplicated")))
    assert changed.names == ("sop", "mlm")


def test_settings_of_an_objective_begin_with_its_name() -> None:
    changed = override(bert(), ["mlm.masking.rate=0.3", "nsp.weight=0.5", "objectives.mlm.masking.policy=word"])
    masking = Masking(mode="duplicated", rate=0.3, policy="word")
    assert changed.objectives == (MaskedLM(masking=masking), NextSentence(weight=0.5))
    both = override(gpt(), ["visibility=bidirectional", "objectives=mlm", "mlm.masking.rate=0.4"])
    assert both.objectives == (MaskedLM(masking=Masking(rate=0.4)),)


@pytest.mark.parametrize(
    ("setting", "error", "message"),
    [
        ("objectives=mlm+mln", RecipeError, "no objective 'mln': did you mean 'mlm'"),
        ("objectives=mlm+mlm", RecipeError, "names one twice"),
        ("clm.weight=2", ArgumentError, "no objective clm: set objectives=mlm\\+nsp\\+clm"),
        ("mlm.rate=0.2", ArgumentError, "here it is mlm.masking.rate"),
        ("mlm_probability=0.2", ArgumentError, "here it is mlm.masking.rate"),
        ("mlm.masking.rate=2", RecipeError, "masking.rate=2"),
        ("mlm.weight=-1", RecipeError, "mlm.weight=-1"),
        ("nsp.begin=1", RecipeError, "nsp.begin and nsp.end"),
        ("nsp.end=nan", RecipeError, "nsp.begin and nsp.end"),
        ("sequence.format=stream", RecipeError, "nsp needs pairs, not sequence.format=stream"),
        ("visibility=causal", RecipeError, "mlm cannot be trained with visibility=causal"),
    ],
)
def test_contradictions_name_both_parts(setting: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message.replace(".", r"\.")):
        override(bert(), [setting])


def test_recipes_without_objectives_can_be_used_but_not_trained() -> None:
    recipe = replace(gpt(), objectives=())
    assert recipe.predicts == set()
    assert recipe_from_json(recipe_to_json(recipe)) == recipe


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_objective_is_written_by_name_and_read_again(name: str) -> None:
    (objective,) = parse_objectives(name)
    assert OBJECTIVES[objective.name] is type(objective)
    changed = replace(objective, weight=0.25, begin=0.125, end=0.75)
    recipe = bert() if name in bert().names else gpt()
    written = recipe_to_json(recipe) | {"objectives": {name: {"weight": 0.25, "begin": 0.125, "end": 0.75}}}
    if name == "mlm":
        written["objectives"][name]["masking"] = recipe_to_json(bert())["objectives"]["mlm"]["masking"]
        changed = replace(changed, masking=Masking(mode="duplicated"))
    if name == "clm":
        written["objectives"][name] |= {"activation_penalty": 0.0, "temporal_penalty": 0.0}
    if name in ("clm", "mlm", "nsp"):  # the others need another recipe
        assert recipe_from_json(written).objectives == (changed,)


@pytest.mark.parametrize("objectives", ["mlm", ["mlm"], {"unknown": {}}, {"mlm": {"masking": 1}}, {"mlm": {}}, 1])
def test_objectives_of_another_kind_are_refused(objectives: object) -> None:
    with pytest.raises(ArtifactError):
        recipe_from_json(recipe_to_json(bert()) | {"objectives": objectives})


def test_differences_name_objectives_and_only_settings_that_differ() -> None:
    assert difference(bert(), roberta())["objectives"] == ("mlm+nsp", "mlm")
    assert difference(bert(), roberta())["mlm.masking.mode"] == ("duplicated", "dynamic")
    assert not any(name.startswith("nsp.") for name in difference(bert(), roberta()))
    heavier = replace(bert(), objectives=(MaskedLM(masking=Masking(mode="duplicated")), NextSentence(weight=3.0)))
    assert difference(roberta(), heavier)["nsp.weight"] == (None, 3.0)


def test_an_objective_is_trained_in_its_part_of_the_run() -> None:
    late = CausalLM(weight=2.0, begin=0.5)
    assert [late.weight_at(progress) for progress in (0.0, 0.49, 0.5, 0.99, 1.0)] == [0.0, 0.0, 2.0, 2.0, 2.0]
    early = CausalLM(end=0.5)
    assert [early.weight_at(progress) for progress in (0.0, 0.5, 1.0)] == [1.0, 0.0, 0.0]
