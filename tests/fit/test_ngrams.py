"""Networks beside an n-gram model: weights, probabilities, what is saved, and what the network does alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import firth as library
from firth.abilities import Embeds, Fills, Generates, Scores
from firth.artifact.models import load
from firth.counts.em import em_weights
from firth.errors import RecipeError
from firth.fit.ngrams import hold_out
from firth.fit.run import TrainingRun
from firth.lm.language_model import LanguageModel
from firth.nets.hybrid import HybridNet
from firth.nets.recipe import NetRecipe
from firth.nets.with_ngrams import CLASSES, NgramHybridNet, NgramStreamNet, without_ngrams
from firth.recipes.table import RECIPES, find_recipe
from firth.recipes.values import override
from firth.text.corpus import read_corpus
from tests.command import firth

SMALL = {"embedding.width": 16, "encoder.width": 16, "encoder.ffn_width": 24, "encoder.heads": 2, "encoder.layers": 1}
HELD_OUT = ["the sailor lifts the grey crane.", "the old barns burn.", "the shepherds pick the mushrooms."]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small `firth`, whose weights were fitted to a few sentences."""
    out = tmp_path_factory.mktemp("ngrams") / "m"
    options = {"settings": SMALL, "budget": "20ktok", "threads": 1, "reload": False}
    library.train("firth", "builtin:oracle", out=out, valid=[HELD_OUT], **options)
    return out


@pytest.fixture(scope="module")
def model(folder: Path) -> NgramHybridNet:
    found = load(folder)
    assert isinstance(found, NgramHybridNet)
    return found


def parts_of(model: NgramHybridNet) -> tuple[LanguageModel, LanguageModel]:
    return model.alone, model.ngrams


def test_probabilities_are_weighted_sums_and_sum_to_one(model: NgramHybridNet) -> None:
    stream = model.stream(HELD_OUT, [len(HELD_OUT)])[0]
    expected = sum(w * np.exp(p.token_logprobs(stream)) for w, p in zip(model.weights, parts_of(model), strict=True))
    logs, history = model.token_logprobs(stream), []
    np.testing.assert_allclose(np.exp(logs), expected, rtol=1e-9)
    for position, target in enumerate(stream.ids.tolist()):
        following = model.next_logprobs(history)
        assert np.exp(following).sum() == pytest.approx(1, abs=1e-6)
        assert following[target] == pytest.approx(logs[position], abs=1e-4)
        history.append(target)


def test_weights_are_those_of_em_on_the_held_out_text(model: NgramHybridNet, folder: Path) -> None:
    stream = model.stream(HELD_OUT, [len(HELD_OUT)])[0]
    parts = np.exp([part.token_logprobs(stream) for part in parts_of(model)])
    np.testing.assert_allclose(model.weights, em_weights(parts).weights, rtol=1e-6)
    assert 0 < model.weights[0] < 1
    recorded = firth("info", folder, "--json").json["metrics"]["weights"]
    assert recorded == {"network": model.weights[0], "ngrams": model.weights[1]}
    together = model.token_logprobs(stream).sum()
    assert together >= max(np.log(one).sum() for one in parts) - 1e-6


def test_the_ngram_model_is_that_of_its_own_recipe(model: NgramHybridNet, folder: Path, tmp_path: Path) -> None:
    settings = {"base.order": 5, "base.prune": 1e-8}
    options = {"tokenizer": folder, "valid": [HELD_OUT], "settings": settings}
    alone = library.train("kn5-cache", "builtin:oracle", out=tmp_path / "kn", **options)
    stream = model.stream(HELD_OUT, [len(HELD_OUT)])[0]
    np.testing.assert_array_equal(model.ngrams.token_logprobs(stream), alone.token_logprobs(stream))


def test_the_network_alone_does_the_rest(model: NgramHybridNet) -> None:
    for ability in (Scores, Generates, Fills, Embeds):
        assert isinstance(model, ability)
    assert model.fill("the [MASK] burn.") == model.alone.fill("the [MASK] burn.")
    np.testing.assert_array_equal(model.embed(HELD_OUT), model.alone.embed(HELD_OUT))
    assert model.recipe.ngrams.order == 5
    assert model.alone.recipe.ngrams.order == 0
    first, second = (model.generate("the old", count=3, length=8, seed=seed) for seed in (1, 1))
    assert first == second
    assert len(set(model.generate("the old", count=3, length=8, seed=1))) > 1
    *_, last = model.generate_stepwise("the old", length=8, seed=1)
    assert last == first[0]


def test_the_cache_raises_what_the_document_repeats(model: NgramHybridNet) -> None:
    once, again = HELD_OUT[0], "\n".join([HELD_OUT[0]] * 5)
    assert model.score([again])[0].logprob > 5 * model.score([once])[0].logprob


def test_saved_verified_and_further_used(model: NgramHybridNet, folder: Path, tmp_path: Path) -> None:
    assert firth("verify", folder, "--json").json["ok"] is True
    examples = tmp_path / "train.tsv"
    examples.write_text("label\ttext_a\nfarm\tthe farmer feeds the horse.\nsea\tthe sailor mends the rope.\n" * 3)
    tuned = firth(
        "finetune", folder, "classify", "--train", examples, "--dev", examples, "-o", tmp_path / "t", "--json"
    )
    assert tuned.code == 0, tuned.err
    assert tuned.json["recipe"]["network"]["ngrams"]["order"] == 0
    adapted = firth("adapt", folder, "builtin:oracle", "-o", tmp_path / "a", "--budget", "2ktok", "--threads", "1")
    assert adapted.code == 0, adapted.err
    further = load(tmp_path / "a")
    assert isinstance(further, NgramHybridNet)
    stream = model.stream(HELD_OUT)[0]
    np.testing.assert_array_equal(further.ngrams.token_logprobs(stream), model.ngrams.token_logprobs(stream))
    assert not np.array_equal(further.alone.token_logprobs(stream), model.alone.token_logprobs(stream))
    exported = firth("export", folder, "huggingface", tmp_path / "hf")
    assert exported.code == 0, exported.err
    assert "no place for the n-gram model" in exported.err
    imported = firth("import", "huggingface", tmp_path / "hf", "-o", tmp_path / "again")
    assert imported.code == 0, imported.err
    again = load(tmp_path / "again")
    np.testing.assert_allclose(again.token_logprobs(stream), model.alone.token_logprobs(stream), atol=1e-5)


def test_a_part_of_the_text_is_held_out_by_documents() -> None:
    documents = [f"document {number} has words" for number in range(300)]
    run = TrainingRun(read_corpus(documents, layout="lines"), None, None, None, 0, 1)
    held = hold_out(run)
    assert held.text is not None
    kept, out = ({one.sentences[0] for one in part} for part in (held.run.corpus, held.text))
    assert not kept & out
    assert len(kept | out) == 300
    assert 0 < len(out) < 20


def test_a_text_of_one_line_has_nothing_to_hold_out(tmp_path: Path) -> None:
    options = {"settings": SMALL, "budget": "1ktok", "threads": 1}
    made = library.train("firth", [["to be or not to be"]], out=tmp_path / "m", layout="lines", **options)
    assert made.score(["to be"])[0].logprob < 0
    assert made.weights.tolist() == [0.5, 0.5]


def test_a_part_of_a_corpus_is_not_divided_again() -> None:
    part, _, _ = read_corpus([f"document {number} has words" for number in range(300)], layout="lines").parts()
    assert hold_out(TrainingRun(part, None, None, None, 0, 1)).text is None


def test_further_training_keeps_drops_or_adds_the_ngram_model(folder: Path, tmp_path: Path) -> None:
    options = ("builtin:oracle", "--budget", "2ktok", "--threads", "1")
    changed = firth("adapt", folder, *options, "--set", "ngrams.order=3", "-o", tmp_path / "a")
    assert changed.code == 1
    assert "of a trained model stays" in changed.err
    dropped = firth("adapt", folder, *options, "--set", "ngrams.order=0", "-o", tmp_path / "b")
    assert dropped.code == 0, dropped.err
    assert type(load(tmp_path / "b")) is HybridNet
    added = firth("adapt", tmp_path / "b", *options, "--set", "ngrams.order=2", "-o", tmp_path / "c")
    assert added.code == 0, added.err
    assert isinstance(load(tmp_path / "c"), NgramHybridNet)


@pytest.mark.parametrize(("method", "kind"), [("prune", HybridNet), ("quantise", NgramHybridNet)])
def test_compressed(method: str, kind: type, folder: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("\n".join(HELD_OUT * 10), encoding="utf-8")
    settings = ("--set", "heads=0.5", "--budget", "1ktok") if method == "prune" else ()
    made = firth(
        *("compress", folder, "--method", method, "--corpus", text, "--eval", text, *settings),
        *("--allow-slower", "--at-most-loss", "10", "-o", tmp_path / "small"),
    )
    assert made.code == 0, made.err
    assert type(load(tmp_path / "small")) is kind
    assert ("no place for the n-gram model" in made.err) == (kind is HybridNet)


@pytest.mark.parametrize("name", [name for name, entry in RECIPES.items() if entry.family == "nets"])
def test_every_network_can_have_one_or_is_refused(name: str) -> None:
    try:
        recipe = override(find_recipe(name), ["ngrams.order=3"])
    except RecipeError as error:
        assert "ngrams.order" in str(error)  # noqa: PT017
        return
    assert isinstance(recipe, NetRecipe)
    kinds = [kind for one in recipe.objectives if (kind := one.model_type(recipe)) is not None]
    assert kinds[0] in CLASSES


def test_other_causal_networks_may_have_one(tmp_path: Path) -> None:
    settings = {**SMALL, "ngrams.order": 3, "ngrams.cache": 0}
    made = library.train(
        "gpt2", "builtin:oracle", out=tmp_path / "m", settings=settings, budget="5ktok", valid=[HELD_OUT], threads=1
    )
    assert isinstance(made, NgramStreamNet)
    assert without_ngrams(made) is made.alone
    assert made.score(HELD_OUT)[0].logprob < 0


@pytest.mark.parametrize(
    ("name", "setting", "wrong"),
    [
        ("bert", "ngrams.order=5", "gpt2 and gpt-bert"),
        ("transformer-xl", "ngrams.order=5", "without memory"),
        ("elmo", "ngrams.order=5", "left to right"),
        ("firth", "ngrams.order=9", "ngrams.order=9 must be from 0 to 8"),
        ("firth", "ngrams.decay=-1", "ngrams.decay"),
    ],
)
def test_impossible_recipes_are_refused(name: str, setting: str, wrong: str) -> None:
    with pytest.raises(RecipeError, match=wrong):
        override(find_recipe(name), [setting])
