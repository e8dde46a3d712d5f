"""Mixtures across families: weights, probabilities, artifacts, and what cannot be mixed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import firth as library
from firth.artifact.ensemble import EnsembleModel
from firth.artifact.restore import restore_ensemble
from firth.counts.em import em_weights
from firth.errors import AbilityError, ArtifactError, FirthError, RecipeError
from firth.fit.mixing import mix
from firth.lm.language_model import TokenStream
from firth.recipes.ensemble import EnsembleRecipe
from tests.command import firth
from tests.nets.small_nets import small_net
from tests.samples import CHINESE, ENGLISH
from tests.vectors.small_models import save_model

HELDOUT = ["The lazy fox jumps over it.", "我们喜欢语言。", "The quick dog, doesn't it?"]


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    """A cache model and two networks over the same tokens."""
    made = [save_model(small_net(name), tmp_path / name) for name in ("lstm", "gpt")]
    counts = tmp_path / "kn"
    library.train("kn5-cache", [[*ENGLISH, *CHINESE]], out=counts, tokenizer=made[0], valid=[HELDOUT], layout="lines")
    return [counts, *made]


def heldout_stream(model: EnsembleModel) -> TokenStream:
    return model.stream(HELDOUT, [len(HELDOUT)])[0]


def test_weights_are_those_of_em_and_probabilities_their_sum(folders: list[Path]) -> None:
    model = mix(folders, [HELDOUT])
    parts = np.exp([library.load(folder).token_logprobs(heldout_stream(model)) for folder in folders])
    np.testing.assert_allclose(model.weights, em_weights(parts).weights, rtol=1e-6)
    np.testing.assert_allclose(np.exp(model.token_logprobs(heldout_stream(model))), model.weights @ parts, rtol=1e-6)
    assert model.weights[0] > 0.5, "the trained part is believed most"
    likelihoods = np.log(parts).sum(axis=1)
    assert model.token_logprobs(heldout_stream(model)).sum() >= likelihoods.max() - 1e-6


def test_the_next_word_sums_to_one_and_agrees_with_scores(folders: list[Path]) -> None:
    model = mix(folders, [HELDOUT])
    stream = heldout_stream(model)
    logs, history = model.token_logprobs(stream), []
    for place, target in enumerate(stream.ids.tolist()):
        following = model.next_logprobs(history)
        assert np.exp(following).sum() == pytest.approx(1, abs=1e-5)
        assert following[target] == pytest.approx(logs[place], abs=1e-4)
        history.append(target)


def test_a_mixture_is_saved_with_its_parts(folders: list[Path], tmp_path: Path) -> None:
    text = tmp_path / "heldout.txt"
    text.write_text("\n".join(HELDOUT) + "\n", encoding="utf-8")
    out = tmp_path / "mixed"
    made = firth("mix", *folders, "--valid", text, "-o", out, "--json")
    assert made.code == 0, made.err
    assert sum(made.json["metrics"]["weights"].values()) == pytest.approx(1)
    assert made.json["recipe"]["models"] == "kn,lstm,gpt"
    expected = mix(folders, [HELDOUT])
    for folder in folders:  # it needs them no more
        (folder / "manifest.json").unlink()
    again = library.load(out)
    np.testing.assert_allclose(again.weights, expected.weights, rtol=1e-9)
    assert again.score(HELDOUT, as_document=True) == expected.score(HELDOUT, as_document=True)
    scored = firth("score", out, text, "--context", "document", "--json")
    assert scored.code == 0, scored.err
    assert scored.json["perplexity"] == pytest.approx(made.json["metrics"]["perplexity"], rel=1e-6)
    assert firth("generate", out, "--prompt", "The quick", "--json").json["texts"]
    assert firth("verify", out).code == 0


def test_impossible_requests_are_refused_mixed_is_refused(folders: list[Path], tmp_path: Path) -> None:
    for given, kind, said in [
        (folders[:1], RecipeError, "2 to 100 models, not 1"),
        ([folders[0], save_model(small_net("gpt", "chars"), tmp_path / "chars")], RecipeError, "other tokens than"),
        ([folders[0], save_model(small_net("bert"), tmp_path / "bert")], AbilityError, "token after token"),
        ([folders[0], tmp_path / "nothing"], FirthError, "does not exist"),
    ]:
        with pytest.raises(kind, match=said):
            mix(given, [HELDOUT])
    outcome = firth("mix", *folders, "--valid", tmp_path / "missing.txt", "-o", tmp_path / "out")
    assert outcome.code == 1
    assert not (tmp_path / "out").exists()
    taken = firth("mix", *folders, "--valid", tmp_path / "missing.txt", "-o", folders[0])
    assert taken.code == 1
    assert "already holds something" in taken.err


@pytest.mark.parametrize("parts", ["[]", "no json", '[{"type": "nonsense"}, 1]', "[1, 2]", "{}"])
def test_a_made_up_mixture_is_refused(folders: list[Path], parts: str) -> None:
    model = mix(folders[:2], [HELDOUT])
    recipe = EnsembleRecipe(tokenizer=model.tokenizer.recipe, models="a,b", parts=parts)
    with pytest.raises(ArtifactError):
        restore_ensemble(recipe, model.arrays(), model.tokenizer, "lines")
    arrays = model.arrays() | {"weights": np.array([0.5, 0.4])}
    with pytest.raises(ArtifactError, match="do not sum to 1"):
        restore_ensemble(model.recipe, arrays, model.tokenizer, "lines")
    words = json.dumps([json.loads(model.recipe.parts)[0], {"type": "tokenizer"}])
    with pytest.raises(ArtifactError):
        restore_ensemble(
            EnsembleRecipe(tokenizer=recipe.tokenizer, parts=words), model.arrays(), model.tokenizer, "lines"
        )
