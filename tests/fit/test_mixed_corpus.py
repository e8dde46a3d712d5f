"""Labelled pairs and running text in one run: recognised files, shares of the steps, resumed runs, bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import firth
from firth.apply.similarity import text_similarities
from firth.errors import CorpusError, RecipeError
from firth.fit.batches import Cursor
from firth.fit.labelled_pairs import open_labelled_pairs, pair_columns, read_pair_labels
from firth.fit.mixed_corpus import kind_of, open_sources
from firth.fit.mixture import ROUND
from firth.fit.source_mixture import source_mixture, step_shares
from firth.nets.network import build_network
from firth.objectives.heads.build import make_heads
from firth.recipes.table import find_recipe
from firth.recipes.values import override
from firth.tokens.build import open_tokens
from firth.tokens.recipe import TokenizerRecipe
from tests.command import firth as command
from tests.contracts.small_networks import vocabulary_of

COLOURS, THINGS = ("red", "blue", "old", "new", "big"), ("cat", "dog", "hen", "fox", "cow")
SMALL = (
    *("embedding.width=16", "encoder.width=16", "sequence.length=32", "learning.batch=128", "tokenizer.min_count=1"),
    *("embedding.init=random", "nli.hidden=8"),
)
DAN = (*SMALL, "sentence.bigrams=50")


def write_text(folder: Path) -> Path:
    rng = np.random.default_rng(0)
    documents = [
        "\n".join(f"the {rng.choice(COLOURS)} {rng.choice(THINGS)} is here" for _ in range(4)) for _ in range(20)
    ]
    path = folder / "text.txt"
    path.write_text("\n\n".join(documents) + "\n")
    return path


def rows(count: int = 60) -> list[tuple[str, str, str]]:
    """A sentence entails itself without its colour, contradicts another thing, and is neutral to another colour."""
    rng, found = np.random.default_rng(1), []
    for number in range(count // 3):
        colour, thing = rng.choice(COLOURS), THINGS[number % 5]
        premise = f"the {colour} {thing} is here"
        found += [
            ("entailment", premise, f"a {thing} is here"),
            ("contradiction", premise, f"a {THINGS[(number + 1) % 5]} is here"),
            ("neutral", premise, f"the {thing} is {rng.choice(COLOURS)}"),
        ]
    return found


def write_pairs(folder: Path, found: list[tuple[str, str, str]] | None = None, name: str = "pairs.tsv") -> Path:
    path = folder / name
    lines = ["label\ttext_a\ttext_b", *("\t".join(row) for row in (rows() if found is None else found))]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_files_are_recognised_by_their_columns(tmp_path: Path) -> None:
    text, pairs = write_text(tmp_path), write_pairs(tmp_path)
    (tmp_path / "snli.jsonl").write_text('{"gold_label": "neutral", "sentence1": "a b", "sentence2": "c"}\n')
    (tmp_path / "en.tsv").write_text("en\tde\nA dog\tEin Hund\n")
    (tmp_path / "sts.tsv").write_text("score\ttext_a\ttext_b\n3\ta\tb\n")
    (tmp_path / "lines.jsonl").write_text('{"text": "a b"}\n')
    names = [text, pairs, tmp_path / "snli.jsonl", tmp_path / "en.tsv", tmp_path / "sts.tsv", tmp_path / "lines.jsonl"]
    assert [kind_of(name) for name in names] == ["text", "labels", "labels", "translations", "text", "text"]
    assert kind_of([{"label": "a", "text_a": "b", "text_b": "c"}]) == "labels"
    assert kind_of([["a b", "c d"]]) == "text"
    assert kind_of("builtin:oracle") == "text"
    assert pair_columns(tmp_path / "missing.tsv") is None


def test_pairs_are_documents_with_labels(tmp_path: Path) -> None:
    """Whatever the case of a label; pairs without agreement, and those that have no tokens, have none."""
    found = [
        ("ENTAILMENT", "a cat", "a dog"),
        ("-", "a hen", "a cow"),
        ("Neutral", "\x01", "\x02"),
        ("neutral", "a fox", "a cow"),
    ]
    corpus = open_labelled_pairs([write_pairs(tmp_path, found)])
    assert next(iter(corpus)).sentences == ("a cat", "a dog")
    pieces = TokenizerRecipe(model="wordpiece", vocab_size=60)  # leaves control characters out
    tokenizer, store = open_tokens(pieces, corpus, 1)
    names = ("entailment", "neutral")
    labels = read_pair_labels(corpus, store, tokenizer, names, complete=True)
    assert labels.tolist() == [0, -1, 1]
    with pytest.raises(CorpusError, match="'neutral' is none of entailment, other"):
        read_pair_labels(corpus, store, tokenizer, ("entailment", "other"), complete=True)
    others = read_pair_labels(corpus, store, tokenizer, ("entailment", "other"), complete=False)
    assert others.tolist() == [0, -1, -1]


def test_shares_of_the_steps_are_exact_and_every_tenth_is_a_tenth() -> None:
    assert step_shares([0.1, 0, 0]) == pytest.approx([0.1, 0.45, 0.45])
    with pytest.raises(RecipeError, match="leave no steps"):
        step_shares([0.5, 0.6, 0])


def mixture_of(tmp_path: Path, settings: list[str], seed: int = 0) -> Any:
    recipe = override(find_recipe("use-dan"), [*DAN, *settings])
    corpus = open_sources(
        recipe, [write_text(tmp_path), write_pairs(tmp_path)], field="text", encoding=None, layout="lines"
    )
    tokenizer, _ = open_tokens(TokenizerRecipe(model="words", min_count=1), corpus, 1)
    network = build_network(recipe, vocabulary_of(len(tokenizer)), 0)
    return source_mixture(recipe, corpus, tokenizer, list(make_heads(recipe, network).values()), seed, 1)


def test_the_realised_proportions_are_the_shares(tmp_path: Path) -> None:
    mixture = mixture_of(tmp_path, ["nli.share=0.1"])
    assert mixture.names == ("nli", "neighbours", "response")
    assert mixture.quotas == [100, 450, 450]
    cursor, found = Cursor(), []
    for _ in range(ROUND):
        parts, cursor = mixture.step(cursor)
        assert len({one.objectives for one in parts}) == 1, "a step is of one source"
        found += [next(iter(parts[0].objectives))]
    assert [found.count(name) for name in mixture.names] == mixture.quotas
    at = np.flatnonzero(np.array(found) == "nli")
    assert set(np.diff(at)) <= {9, 10, 11}, "evenly spread"
    report = mixture.report(Cursor(1, 0))
    assert [report[name]["steps"] for name in mixture.names] == mixture.quotas
    assert report["nli"]["share"] == 0.1


def test_the_sequence_is_a_function_of_the_seed_and_the_step(tmp_path: Path) -> None:
    one, two, other = (mixture_of(tmp_path, ["nli.share=0.1"], seed) for seed in (0, 0, 1))
    (first,), _ = one.step(Cursor(3, 500))
    for row in range(20):
        two.step(Cursor(0, row))
    (second,), _ = two.step(Cursor(3, 500))
    assert first.objectives == second.objectives
    assert first.ids.equal(second.ids)
    sources = [[mixture.source_at(Cursor(0, row))[0] for row in range(50)] for mixture in (one, other)]
    assert sources[0] != sources[1]


def train(name: str, *texts: Any, out: Path, settings: Any = (), budget: str = "3ktok", **options: Any) -> Any:
    return firth.train(name, *texts, out=out, settings=settings, budget=budget, threads=1, **options)


def test_infersent_learns_inference_and_reports_its_mixture(tmp_path: Path) -> None:
    pairs, valid = write_pairs(tmp_path), write_pairs(tmp_path, rows(90)[60:], "dev.tsv")
    settings = [*SMALL, "learning.optimiser=adam", "learning.lr=0.01"]
    model = train("infersent", pairs, out=tmp_path / "m", settings=settings, budget="60ktok", valid=str(valid))
    manifest = json.loads((tmp_path / "m" / "manifest.json").read_text())
    assert manifest["metrics"]["valid_loss"] < 0.5  # ln 3 is 1.10
    assert manifest["metrics"]["mixture"]["nli"]["steps"] == manifest["metrics"]["steps"]
    assert manifest["corpus"]["labels"] == {"contradiction": 20, "entailment": 20, "neutral": 20}
    texts = ["the red cat is here", "a cat is here", ""]
    found = model.embed(texts)
    states = model.layers(texts[:1])[0][-1]
    np.testing.assert_allclose(found[0], states.max(0), rtol=1e-5, atol=1e-6)
    assert not found[2].any()


def test_embeddings_are_the_vectors_that_were_trained(tmp_path: Path) -> None:
    """`embed` gives what the head compares, also for a text in a batch with others."""
    model = train("use-dan", write_text(tmp_path), write_pairs(tmp_path), out=tmp_path / "m", settings=DAN)
    texts = ["the red cat is here", "a dog", "the old hen is here"]
    whole = model.embed(texts)
    np.testing.assert_allclose(whole[1], model.embed(texts[1:2])[0], rtol=1e-5, atol=1e-6)
    assert whole.shape == (3, 16)
    assert not np.allclose(whole[0], model.embed([" ".join(reversed(texts[0].split()))])[0]), "bigrams are ordered"
    assert np.abs(model.embed(texts[:1], pooling="mean") - whole[:1]).max() > 1e-3
    assert model.text_similarity == "angular"
    found = firth.load(tmp_path / "m").embed(texts)
    np.testing.assert_array_equal(found, whole)


def test_a_resumed_run_is_that_without_a_break(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from firth.fit.nets import NetTrainer

    text, pairs = write_text(tmp_path), write_pairs(tmp_path)
    train("use-dan", text, pairs, out=tmp_path / "whole", settings=DAN)
    steps, count = NetTrainer.steps, 0

    def stopping(self: Any) -> Any:
        nonlocal count
        for one in steps(self):
            count += 1
            if count == 12:
                raise KeyboardInterrupt
            yield one

    monkeypatch.setenv("FIRTH_CHECKPOINT", "0")
    with monkeypatch.context() as patch:
        patch.setattr(NetTrainer, "steps", stopping)
        with pytest.raises(KeyboardInterrupt):
            train("use-dan", text, pairs, out=tmp_path / "cut", settings=DAN)
    train("use-dan", text, pairs, out=tmp_path / "cut", settings=DAN, resume=True)
    whole, cut = (json.loads((tmp_path / one / "manifest.json").read_text()) for one in ("whole", "cut"))
    assert whole["metrics"]["steps"] > 15
    assert cut["files"]["model.safetensors"] == whole["files"]["model.safetensors"]
    assert cut["metrics"]["mixture"] == whole["metrics"]["mixture"]


def test_any_encoder_is_adapted_with_hard_negatives(tmp_path: Path) -> None:
    settings = ["embedding.width=16", "encoder.width=16", "encoder.ffn_width=32", "encoder.heads=2", "encoder.layers=1"]
    settings += ["tokenizer.vocab_size=120", "sequence.length=48", "learning.batch=256"]
    train("bert", write_text(tmp_path), out=tmp_path / "b", settings=settings)
    own = ["objectives=contrastive-nli", "sentence.pooling=mean", "learning.lr=0.003"]
    tuned = firth.adapt(
        tmp_path / "b", write_pairs(tmp_path), out=tmp_path / "s", settings=own, budget="30ktok", threads=1
    )
    (premise, near, far) = ("the red cat is here", "a cat is here", "a dog is here")
    u, v, w = tuned.embed([premise, near, far])
    cosines = [float(u @ one / np.linalg.norm(u) / np.linalg.norm(one)) for one in (v, w)]
    assert cosines[0] > cosines[1] + 0.2
    with pytest.raises(RecipeError, match=r"sentence\.pooling"):
        firth.adapt(tmp_path / "b", write_pairs(tmp_path), out=tmp_path / "x", settings=[*own, "sentence.layers=1"])


def test_tasks_of_gensen_are_those_of_the_texts_given(tmp_path: Path) -> None:
    """Translation and parsing are left out without such texts, with a note; inference is every tenth step."""
    text, pairs = write_text(tmp_path), write_pairs(tmp_path)
    translations, trees = tmp_path / "de.tsv", tmp_path / "trees.tsv"
    translations.write_text("en\tde\n" + "".join(f"a {one}\tein {one}\n" for one in THINGS))
    trees.write_text("text\ttree\n" + "".join(f"a {one}\t( NP ( DT ) ( NN ) )\n" for one in THINGS))
    small = [*SMALL, "encoder.width=8"]
    train("gensen", text, pairs, translations, trees, out=tmp_path / "four", settings=small)
    train("gensen", text, pairs, out=tmp_path / "two", settings=small)
    four, two = (json.loads((tmp_path / one / "manifest.json").read_text()) for one in ("four", "two"))
    shares = {name: one["share"] for name, one in four["metrics"]["mixture"].items()}
    assert shares == {"nli": 0.1, "neighbour-generation": 0.3, "translation": 0.3, "parsing": 0.3}
    assert {name: one["share"] for name, one in two["metrics"]["mixture"].items()} == {
        "nli": 0.1,
        "neighbour-generation": 0.9,
    }
    assert list(two["recipe"]["objectives"]) == ["neighbour-generation", "nli"]
    assert sorted(four["corpus"]["sources"]) == ["labels", "text", "translations", "trees"]
    model = firth.load(tmp_path / "four")
    states = model.layers(["the red cat is here"])[0]
    ahead, back = states[-2:]
    expected = np.concatenate([ahead[-1], back[0]])
    np.testing.assert_allclose(model.embed(["the red cat is here"])[0], expected, rtol=1e-5, atol=1e-6)


def test_pairs_from_python(tmp_path: Path) -> None:
    items = [{"label": label, "text_a": one, "text_b": two} for label, one, two in rows(30)]
    train("infersent", items, out=tmp_path / "m", settings=SMALL, budget="500tok")
    manifest = json.loads((tmp_path / "m" / "manifest.json").read_text())
    assert manifest["corpus"]["documents"] == 30


@pytest.mark.parametrize(
    ("name", "files", "message"),
    [
        ("infersent", ["text.txt"], "nli is trained on labelled pairs: name a file with the columns label"),
        ("use-dan", ["pairs.tsv"], "neighbours is trained on text: name a file of it, or set objectives=nli."),
        ("use-dan", ["text.txt"], "or set objectives=neighbours+response."),
        ("infersent", ["few.tsv"], "has the label 'contradiction', only entailment, neutral: add such pairs"),
        ("infersent", ["odd.tsv"], "line 2: the label 'entailed' is none of"),
        ("infersent", ["empty.tsv"], "there are no labelled texts"),
    ],
)
def test_bad_input_is_one_sentence(name: str, files: list[str], message: str, tmp_path: Path) -> None:
    write_text(tmp_path)
    write_pairs(tmp_path)
    write_pairs(tmp_path, [row for row in rows() if row[0] != "contradiction"], "few.tsv")
    write_pairs(tmp_path, [("entailed", "a", "b"), *rows()], "odd.tsv")
    write_pairs(tmp_path, [("entailment", "", "b"), ("neutral", "a", " ")], "empty.tsv")
    settings = [part for one in SMALL for part in ("--set", one)]
    outcome = command("train", name, *(tmp_path / one for one in files), "-o", tmp_path / "out", *settings)
    assert outcome.code == 1
    assert message in outcome.err
    assert outcome.err.strip().count("\n") == 0
    assert not (tmp_path / "out").exists()


def test_empty_sentences_are_counted(tmp_path: Path) -> None:
    pairs = write_pairs(tmp_path, [("neutral", "a cat", " "), *rows()])
    settings = [part for one in SMALL for part in ("--set", one)]
    outcome = command(
        "train", "infersent", pairs, "-o", tmp_path / "m", "--budget", "300tok", "--threads", "1", *settings
    )
    assert outcome.code == 0
    assert "1 example was without text and left out." in outcome.err
    store = json.loads((tmp_path / "m" / "manifest.json").read_text())["corpus"]
    assert store["documents"] == 60


def test_vectors_of_use_are_compared_by_the_angle(tmp_path: Path) -> None:
    model = train("use-dan", write_text(tmp_path), write_pairs(tmp_path), out=tmp_path / "m", settings=DAN)
    texts = ["the red cat is here", "a dog is here", "the old hen is here"]
    one, two = model.embed(["the big cow is here", texts[1]]).astype(np.float64)
    cosine = float(one @ two / np.linalg.norm(one) / np.linalg.norm(two))
    (tmp_path / "lines.txt").write_text("\n".join(texts) + "\n")
    given = ("--sentences", tmp_path / "lines.txt", "the big cow is here", "--json")
    found = command("similar", tmp_path / "m", *given).json
    scores = {near["text"]: near["score"] for near in found["queries"][0]["neighbours"]}
    assert scores[texts[1]] == pytest.approx(1 - np.arccos(cosine) / np.pi, abs=1e-5)
    assert text_similarities(model, [1.0, 0.0, -1.0]).tolist() == pytest.approx([1, 0.5, 0])


def test_labelled_files_are_checked(tmp_path: Path) -> None:
    found = [
        ("entailment", "a cat is here", "a cat"),
        ("-", "a dog", "a hen"),
        ("entailment", "a cat is here", "a cat"),
    ]
    path = write_pairs(tmp_path, [*found, ("neutral", "a fox", "")])
    report = command("check", path, "--json").json
    assert report["labels"] == {"entailment": 2, "-": 1}  # the pair without text is left out
    assert report["pairs"] == 4
    problems = {one["what"]: one["message"] for one in report["problems"]}
    assert problems.keys() == {"few-pairs", "empty-sides", "duplicate-pairs", "one-label", "missing-label", "undecided"}
    assert problems["empty-sides"].startswith("1 pairs have a side without text")
    shown = command("check", path).out
    assert "entailment 2" in shown
    assert "one-label" in shown
