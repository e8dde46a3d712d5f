"""Networks on the command line: fixed JSON keys, text for people, and errors."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import firth as library
from tests.command import Outcome, assert_refused, firth
from tests.nets.small_nets import TEXTS, small_net
from tests.vectors.small_models import save_model, small_model


@pytest.fixture(scope="module")
def nets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("nets")
    kinds = {"bert": "wordpiece", "gpt": "byte-bpe", "lstm": "words", "elmo": "words", "senna": "words"}
    made = {name: save_model(small_net(name, kind, length=40), folder / name) for name, kind in kinds.items()}
    made["vectors"] = save_model(small_model(["fox", "dog", "cat"], np.eye(3)), folder / "vectors")
    library.train("unigram", [["to be or not to be"]], out=folder / "counts")
    return made | {"counts": folder / "counts"}


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("\n".join([*TEXTS, ""]), encoding="utf-8")
    return path


def succeeded(outcome: Outcome) -> Outcome:
    assert outcome.code == 0, outcome.err
    return outcome


def test_masks_are_filled(nets: dict[str, Path]) -> None:
    report = succeeded(firth("fill", nets["bert"], "The quick [MASK] fox", "--top", 3, "--json")).json
    (mask,) = report["masks"]
    assert [list(one) for one in mask] == [["token", "probability", "text"]] * 3
    model = library.load(nets["bert"])
    assert [one["token"] for one in mask] == [one.token for one in model.fill("The quick [MASK] fox", 3)[0]]
    assert len(succeeded(firth("fill", nets["bert"], "[MASK] 喜 [MASK]", "--json")).json["masks"]) == 2
    lines = succeeded(firth("fill", nets["bert"], "The quick [MASK] fox")).out.splitlines()
    assert len(lines) == 5
    assert lines[0].endswith(mask[0]["text"])
    assert len(succeeded(firth("fill", nets["bert"], "[MASK] fox [MASK]", "--top", 2)).out.splitlines()) == 5


def test_texts_and_models_that_cannot_be_filled(nets: dict[str, Path]) -> None:
    assert_refused(firth("fill", nets["bert"], "The quick fox"), "write [MASK]")
    assert_refused(firth("fill", nets["bert"], ""), "write [MASK]")
    assert_refused(firth("fill", nets["gpt"], "The <mask> fox"), "use a masked model, such as bert")
    assert_refused(firth("fill", nets["counts"], "to [MASK]"), "use a masked model")
    assert_refused(firth("fill", nets["bert"], "[MASK]", "--top", 0), "--top", code=2)


@pytest.mark.parametrize(
    ("name", "kind"), [("bert", "pseudo"), ("gpt", "causal"), ("lstm", "causal"), ("elmo", "causal")]
)
def test_files_are_scored(nets: dict[str, Path], text: Path, tmp_path: Path, name: str, kind: str) -> None:
    out = tmp_path / "scores.jsonl"
    report = succeeded(firth("score", nets[name], text, "-o", out, "--json")).json
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert report["kind"] == kind
    assert len(rows) == len(TEXTS)
    assert sum(row["logprob"] for row in rows) == pytest.approx(report["logprob"])
    assert report["tokens"] == sum(row["tokens"] for row in rows)
    assert report["bits_per_byte"] > 0
    assert ("forward" in report) == (name == "elmo")
    if name == "elmo":
        assert report["forward"] == report["bits_per_byte"]
        assert report["backward"] > 0
        assert report["backward"] != report["forward"]
        from_stdin = succeeded(firth("score", nets[name], "-", "--json", stdin=text.read_bytes())).json
        assert from_stdin["backward"] == report["backward"]
    if name == "bert":
        words = succeeded(firth("score", nets[name], text, "--whole-words", "--json")).json
        assert words["tokens"] == report["tokens"]
        assert words["logprob"] != report["logprob"]


def test_texts_and_models_that_cannot_be_scored(nets: dict[str, Path], text: Path, tmp_path: Path) -> None:
    assert_refused(firth("score", nets["senna"], text), "gives no probabilities")
    assert_refused(firth("score", nets["gpt"], text, "--whole-words"), "leave --whole-words out")
    blank = tmp_path / "blank.txt"
    blank.write_text("\n \n")
    assert_refused(firth("score", nets["gpt"], blank), "there is no text")


def test_a_huge_line_is_scored_completely(nets: dict[str, Path], tmp_path: Path) -> None:
    path = tmp_path / "huge.txt"
    path.write_text("fox " * 5000 + "\n")
    report = succeeded(firth("score", nets["gpt"], path, "--json"))
    assert report.json["words"] == 5000
    assert "scored in windows that overlap" in report.err
    vectors = tmp_path / "huge.npy"
    assert succeeded(firth("embed", nets["bert"], path, "-o", vectors, "--json")).json["rows"] == 1


def test_texts_are_generated(nets: dict[str, Path]) -> None:
    def texts(*options: object) -> list[str]:
        return succeeded(firth("generate", nets["gpt"], "--prompt", "The quick", "--json", *options)).json["texts"]

    assert texts("--temperature", 0) == texts("--temperature", 0, "--seed", 5)
    assert len(texts("--count", 3, "--top-k", 5, "--top-p", 0.9)) == 3
    assert texts("--beams", 4, "--length", 8) == library.load(nets["gpt"]).generate("The quick", beams=4, length=8)
    assert all(text.startswith("The quick") for text in texts("--count", 2))
    assert succeeded(firth("generate", nets["lstm"], "--next", 3, "--json")).json["next"]
    assert_refused(firth("generate", nets["bert"]), "generate with a language model")
    assert_refused(firth("generate", nets["counts"], "--beams", 2), "leave --beams out")
    assert_refused(firth("generate", nets["gpt"], "--beams", 2, "--count", 3), "set --beams 3", code=2)
    assert_refused(firth("generate", nets["gpt"], "--temperature", -1), "--temperature is -1.0", code=2)


def test_texts_are_embedded(nets: dict[str, Path], text: Path, tmp_path: Path) -> None:
    def embed(name: str, *options: object) -> np.ndarray:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.npy"
        succeeded(firth("embed", nets[name], text, "-o", path, "--json", *options))
        return np.load(path)

    model = library.load(nets["elmo"])
    np.testing.assert_array_equal(embed("elmo"), model.embed(TEXTS))
    np.testing.assert_array_equal(embed("elmo", "--layer", "mix"), model.embed(TEXTS, layer="mix"))
    np.testing.assert_array_equal(embed("elmo", "--layer", "1"), model.embed(TEXTS, layer=1))
    assert embed("elmo", "--layer", "all", "--pooling", "max").shape == (len(TEXTS), 3 * 32)
    assert embed("bert", "--pooling", "first").shape == (len(TEXTS), 16)
    for options, message, code in [
        (("--layer", 9), "choose from 0 to 2", 1),  # which depends on the network
        (("--pooling", "sum"), "there is no pooling 'sum'", 2),
    ]:
        out = tmp_path / "never.npy"
        assert_refused(firth("embed", nets["bert"], text, "-o", out, *options), message, code=code)
        assert not out.exists()
    assert_refused(firth("embed", nets["vectors"], text, "-o", tmp_path / "n.npy", "--layer", 1), "leave --layer out")


def test_words_in_context_have_neighbours(nets: dict[str, Path], text: Path) -> None:
    query = ("similar", nets["elmo"], "fox", "--context", "the quick brown fox", "--json")
    report = succeeded(firth(*query, "--text", text, "--count", 4)).json
    assert [list(near) for near in report["neighbours"]] == [["word", "score", "context"]] * 4
    scores = [near["score"] for near in report["neighbours"]]
    assert scores == sorted(scores, reverse=True)
    assert {near["context"] for near in report["neighbours"]} <= set(TEXTS)
    alone = succeeded(firth(*query)).json["neighbours"]
    assert {near["word"] for near in alone} == {"the", "quick", "brown"}
    first = succeeded(firth(*query, "--text", text, "--layer", 0)).json["neighbours"][0]
    assert (first["word"], first["score"]) == ("fox", pytest.approx(1, abs=1e-5))
    shown = succeeded(firth(*query[:-1], "--text", text)).out
    assert len(shown.splitlines()) == 10


def test_words_without_context_have_neighbours(nets: dict[str, Path]) -> None:
    report = succeeded(firth("similar", nets["bert"], "fox", "--json")).json
    assert [list(near) for near in report["neighbours"]] == [["word", "score"]] * 10
    assert succeeded(firth("similar", nets["lstm"], "fox", "dog", "--distance", "--json")).json["similarity"] < 1


def test_words_and_models_without_neighbours(nets: dict[str, Path], text: Path) -> None:
    context = ("--context", "the quick fox")
    assert_refused(firth("similar", nets["bert"], "dog", *context), "the context does not have the word 'dog'")
    assert_refused(firth("similar", nets["bert"], "fox", *context, "--layer", 7), "choose from 0 to 2")
    assert_refused(firth("similar", nets["bert"], "fox", "--text", text), "go with one word", code=2)
    assert_refused(firth("similar", nets["vectors"], "fox", *context, "--text", text), "are for contextual models")
    assert_refused(firth("similar", nets["vectors"], "fox", *context), "one vector for a word")
    assert_refused(firth("similar", nets["counts"], "be", *context), "no word vectors")
    assert_refused(firth("similar", nets["bert"], "fox", "dog", *context), "give one word")
