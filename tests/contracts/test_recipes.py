"""Tests over every recipe in the table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from firth.abilities import Embeds, Explains, HasVectors, Scores, ScoresPairs, Translates, total
from firth.fit.mixed_corpus import mixes_sources
from firth.fit.train import reads_pairs
from firth.nets.recipe import NetRecipe
from firth.recipes.table import FINETUNED, RECIPES, lineage
from firth.recipes.values import difference, override, recipe_from_json, recipe_to_json
from firth.tokens.recipe import TokenizerRecipe
from firth.vectors.recipe import ClassifierRecipe, GraphRecipe, SvdRecipe, VectorRecipe
from tests.command import assert_refused, firth
from tests.samples import CHINESE, ENGLISH

TEXTS = {"en": ENGLISH, "zh": CHINESE}
EVERY = pytest.mark.parametrize("name", RECIPES)


@EVERY
def test_recipes_are_json(name: str) -> None:
    recipe = RECIPES[name].make()
    data = json.loads(json.dumps(recipe_to_json(recipe)))
    assert recipe_from_json(data) == recipe
    assert difference(recipe, recipe) == {}


@pytest.mark.parametrize("name", [*RECIPES, *FINETUNED])
def test_recipes_are_described(name: str) -> None:
    entry = (RECIPES | FINETUNED)[name]
    assert entry.about.endswith(".")
    assert len(entry.about) < 100
    assert 1900 < entry.year <= 2026
    assert entry.paper
    for parent in entry.parents:
        assert RECIPES[parent].year <= entry.year, f"{name} is older than its parent {parent}"


def test_the_tree_has_every_recipe_once() -> None:
    names = [name for _, name in lineage()]
    assert sorted(names) == sorted([*RECIPES, *FINETUNED])
    drawn = firth("recipes", "--tree")
    assert drawn.code == 0
    for name, entry in (RECIPES | FINETUNED).items():
        assert f"{name} ({entry.year})" in drawn.out


@pytest.mark.parametrize("name", FINETUNED)
def test_a_member_that_is_fine_tuned_names_its_command(name: str, tmp_path: Path) -> None:
    command = FINETUNED[name].command
    assert_refused(firth("train", name, "text.txt", "-o", tmp_path / "m"), name, command, code=2)
    assert_refused(firth("diff", "bert", name), command, code=2)
    assert command in firth("recipes", name).out
    assert firth("recipes", name, "--json").json["command"] == command
    assert firth("recipes", "--json").json["recipes"][name]["year"] == FINETUNED[name].year
    assert command.split()[:2] == ["firth", "finetune"]


@EVERY
def test_recipes_train_save_load_and_verify(name: str, tmp_path: Path) -> None:
    """On the command line, on a few sentences of both languages, twice with the same digests."""
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n".join([*ENGLISH, "", *CHINESE, "\n"]) * 3, encoding="utf-8")
    documents = 6
    if isinstance(RECIPES[name].make(), ClassifierRecipe):
        lines = [f"__label__{language} {line}" for language in ("en", "zh") for line in TEXTS[language]]
        corpus.write_text("\n".join(lines) + "\n", encoding="utf-8")
        documents = len(lines)
    if reads_pairs(RECIPES[name].make()):
        corpus = tmp_path / "corpus.tsv"
        lines = ["en\tzh", *(f"{one}\t{two}" for one, two in zip(ENGLISH, CHINESE, strict=True))]
        corpus.write_text("\n".join(lines) + "\n", encoding="utf-8")
        documents = len(lines) - 1
    if isinstance(RECIPES[name].make(), GraphRecipe):
        lines = [f"{line.split()[0]}\tbegins\t{line}" for line in ENGLISH]
        corpus.write_text("\n".join(lines) + "\n", encoding="utf-8")
        documents = len(lines)
    texts: list[object] = [corpus]
    if mixes_sources(RECIPES[name].make()):
        texts, documents = _labelled_texts(corpus), documents + 6
    if _has_languages(name):
        texts, documents = _language_texts(tmp_path), 9
    settings = [part for setting in _settings(name) for part in ("--set", setting)]
    settings += _knowledge(name, tmp_path)
    if RECIPES[name].family == "nets":
        settings += ["--budget", "2ktok", "--threads", "1"]
    first, second = (
        firth("train", name, *texts, "-o", tmp_path / out, "--layout", "lines", "--json", *settings)
        for out in ("one", "two")
    )
    assert first.code == second.code == 0, first.err
    assert first.json["name"] == name
    timed = {"metrics.jsonl", "curve.svg"}  # these record times
    one, two = ({k: v for k, v in made.json["files"].items() if k not in timed} for made in (first, second))
    assert one == two, "training twice gives different files"
    assert first.json["corpus"]["documents"] == documents
    assert firth("verify", tmp_path / "one", "--json").json["ok"] is True
    info = firth("info", tmp_path / "one", "--json").json
    assert info["recipe"]["type"]
    assert info["versions"]["firth"]
    assert firth("info", tmp_path / "one").out
    import firth as library

    model = library.load(tmp_path / "one")
    assert model.tokenizer.tokenize("The dog jumps")
    if isinstance(model, Scores):
        again = library.load(tmp_path / "two")
        assert total(model.score(ENGLISH)) == total(again.score(ENGLISH))
        assert total(model.score(ENGLISH)).bits_per_byte > 0
    if isinstance(model, Scores) and isinstance(model, Explains):
        logprobs = [token["logprob"] for sentence in model.explain(ENGLISH[0]) for token in sentence]
        assert sum(logprobs) == pytest.approx(model.score(ENGLISH[:1])[0].logprob)
    if isinstance(model, ScoresPairs):
        pairs = list(zip(ENGLISH, CHINESE, strict=True))
        assert total(model.score_pairs(pairs)) == total(library.load(tmp_path / "two").score_pairs(pairs))
    if isinstance(model, Translates):
        assert len(model.translate(ENGLISH, length=5)) == len(ENGLISH)
    if isinstance(model, HasVectors):
        word = next(word for word in model.words if word.isalpha() and word in model.rows)
        assert firth("similar", tmp_path / "one", word, "--count", "3", "--json").json["neighbours"]
        assert model.similarity(word, word) > 0.99
    if isinstance(model, Embeds):
        assert model.embed(ENGLISH).shape[0] == len(ENGLISH)


@EVERY
def test_unknown_fields_are_refused_with_the_list_of_fields(name: str, tmp_path: Path) -> None:
    outcome = firth("train", name, "builtin:oracle", "-o", tmp_path / "out", "--set", "zzz=1")
    assert outcome.code == 2
    for field in recipe_to_json(RECIPES[name].make()):
        assert field == "type" or field in outcome.err


def _knowledge(name: str, folder: Path) -> list[object]:
    """The option of a trained graph for a network that reads entities."""
    recipe = RECIPES[name].make()
    if not isinstance(recipe, NetRecipe) or not recipe.entities.width:
        return []
    (folder / "graph.tsv").write_text("".join(f"{line.split()[1]}\tin\t{line.split()[-1]}\n" for line in ENGLISH))
    trained = firth("train", "transe", folder / "graph.tsv", "-o", folder / "graph", "--set", "epochs=1")
    assert trained.code == 0, trained.err
    return ["--knowledge", folder / "graph"]


def _has_languages(name: str) -> bool:
    recipe = RECIPES[name].make()
    return isinstance(recipe, NetRecipe) and recipe.embedding.languages > 0


def _labelled_texts(corpus: Path) -> list[object]:
    """The text, and six labelled pairs."""
    labels = ("entailment", "neutral", "contradiction")
    lines = [*ENGLISH, *CHINESE]
    rows = [f"{labels[number % 3]}\t{lines[number % 4]}\t{lines[(number + 1) % 4]}" for number in range(6)]
    path = corpus.with_name("labelled.tsv")
    path.write_text("\n".join(["label\ttext_a\ttext_b", *rows]) + "\n", encoding="utf-8")
    return [corpus, path]


def _language_texts(folder: Path) -> list[object]:
    """Three documents of each language, and three pairs."""
    for language, lines in TEXTS.items():
        (folder / f"{language}.txt").write_text("\n".join([*lines, "\n"]) * 3, encoding="utf-8")
    pairs = [f"{one}\t{two}" for one, two in zip(["A dog", "A cat", "Two dogs"], CHINESE, strict=True)]
    (folder / "pairs.tsv").write_text("\n".join(["en\tzh", *pairs]) + "\n", encoding="utf-8")
    return [*(f"{language}={folder / language}.txt" for language in TEXTS), folder / "pairs.tsv"]


def _settings(name: str) -> list[str]:
    """Settings for a corpus of a few sentences."""
    recipe = RECIPES[name].make()
    if isinstance(recipe, TokenizerRecipe):
        return ["vocab_size=300"] if recipe.vocab_size is not None else []
    if isinstance(recipe, SvdRecipe):
        return ["tokenizer.min_count=1", "dimension=2"]
    if isinstance(recipe, NetRecipe):
        small = ["embedding.width=16", "encoder.width=16", f"encoder.ffn_width={min(recipe.encoder.ffn_width, 32)}"]
        small += [f"encoder.heads={min(recipe.encoder.heads, 2)}", f"encoder.layers={min(recipe.encoder.layers, 2)}"]
        small += ["sequence.length=16", "learning.batch=256"]
        small += ["entities.text_layers=1"] if recipe.entities.width else []
        if recipe.decoder is not None:
            small = [one for one in small if "length" not in one] + ["sequence.length=256"]
            small += [one.replace("encoder", "decoder") for one in small if one.startswith("encoder")]
        if mixes_sources(recipe):
            small = [one for one in small if "length" not in one] + ["sequence.length=128"]
        return small + (["tokenizer.vocab_size=300"] if recipe.tokenizer.model not in ("words", "chars") else [])
    return ["tokenizer.min_count=1"] if isinstance(recipe, VectorRecipe) else []


def test_settings_change_nested_fields() -> None:
    recipe = override(RECIPES["unigram"].make(), ["tokenizer.lowercase=true", "tokenizer.min_count=3"])
    assert difference(RECIPES["unigram"].make(), recipe) == {
        "tokenizer.lowercase": (False, True),
        "tokenizer.min_count": (1, 3),
    }
