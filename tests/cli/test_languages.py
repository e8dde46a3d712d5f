"""Models of several languages on the command line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.command import assert_refused, firth
from tests.fit.small_languages import SETTINGS, translate, write_texts

SET = [part for setting in SETTINGS for part in ("--set", setting)]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with texts, a model `m` of both languages, and the cache."""
    folder = tmp_path_factory.mktemp("languages")
    texts = write_texts(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FIRTH_CACHE", str(folder / "cache"))
        made = firth("train", "xlm", *texts, "-o", folder / "m", "--budget", "3ktok", "--threads", "1", "--json", *SET)
        assert made.code == 0, made.err
        assert made.json["corpus"]["languages"] == ["en", "zh"]
        (folder / "zh1.txt").write_text(translate("w1 w2 w3 w4") + "\n", encoding="utf-8")
        yield folder


def test_fill_says_which_language_was_used(home: Path) -> None:
    text = f"{translate('w1 w2')} [MASK]"
    auto = firth("fill", home / "m", text, "--json")
    assert auto.json["language"] == "zh"
    assert "chosen by its script" in auto.err
    assert firth("fill", home / "m", text, "--language", "zh", "--json").json["masks"] == auto.json["masks"]
    other = firth("fill", home / "m", text, "--language", "en", "--json").json
    assert other["language"] == "en"
    assert other["masks"] != auto.json["masks"]


def test_score_embed_and_similar_read_texts_in_a_language(home: Path, tmp_path: Path) -> None:
    text = home / "zh1.txt"
    auto, own, other = (
        firth("score", home / "m", text, "--json", *more).json["logprob"]
        for more in ([], ["--language", "zh"], ["--language", "en"])
    )
    assert auto == own != other
    for name, more in {"auto": [], "zh": ["--language", "zh"], "en": ["--language", "en"]}.items():
        assert firth("embed", home / "m", text, "-o", tmp_path / f"{name}.npy", *more).code == 0
    vectors = {name: np.load(tmp_path / f"{name}.npy") for name in ("auto", "zh", "en")}
    assert np.array_equal(vectors["auto"], vectors["zh"])
    assert not np.allclose(vectors["zh"], vectors["en"])
    near = firth("similar", home / "m", "w1", "--context", "w1 w2 w3", "--language", "en", "--json")
    assert near.json["neighbours"]


def test_retrieval_has_accuracies_both_ways(home: Path) -> None:
    pairs = home / "pairs.tsv"
    report = firth("evaluate", home / "m", "retrieval", pairs, "--json").json
    assert {"accuracy_forward", "accuracy_backward", "pairs", "accuracy_forward_interval"} <= report.keys()
    assert report["pairs"] == 120
    first = firth("evaluate", home / "m", "retrieval", pairs, "--json", "--layer", "0", "--pooling", "max").json
    assert (
        first["accuracy_forward"] != report["accuracy_forward"]
        or first["accuracy_backward"] != report["accuracy_backward"]
    )
    assert "accuracy_forward" in firth("evaluate", home / "m", "retrieval", pairs).out


def test_bad_input_is_refused_in_one_sentence(home: Path, tmp_path: Path) -> None:
    pairs = tmp_path / "fr.tsv"
    pairs.write_text("en\tfr\nw1\tw2\n", encoding="utf-8")
    cases = {
        "does not know the language 'fr'": ["fill", home / "m", "w1 [MASK]", "--language", "fr"],
        "knows en, zh": ["evaluate", home / "m", "retrieval", pairs],
        "en.txt is not said": ["train", "xlm", home / "en.txt", "-o", tmp_path / "a"],
        "is given twice": ["train", "xlm", f"en={home / 'en.txt'}", f"en={home / 'zh.txt'}", "-o", tmp_path / "b"],
        "only language": ["train", "xlm", f"en={home / 'en.txt'}", "-o", tmp_path / "c"],
        "there are none": [
            *("train", "xlm", f"en={home / 'en.txt'}", f"zh={home / 'zh.txt'}", "-o", tmp_path / "d"),
        ],
        "which the model does not know": ["adapt", home / "m", f"fr={home / 'en.txt'}", "-o", tmp_path / "e"],
    }
    for message, arguments in cases.items():
        outcome = firth(*arguments)
        assert_refused(outcome)
        assert message in outcome.err, outcome.err
    layer = firth("evaluate", home / "m", "words", pairs, "--layer", "1")
    assert layer.code == 2
    assert "belongs to the suites retrieval and sentences" in layer.err


def test_a_model_without_languages_refuses_one(home: Path, tmp_path: Path) -> None:
    assert firth("train", "unigram", home / "en.txt", "-o", tmp_path / "u").code == 0
    outcome = firth("score", tmp_path / "u", home / "en.txt", "--language", "en")
    assert_refused(outcome)
    assert "reads all languages alike" in outcome.err
