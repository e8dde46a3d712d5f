"""firth compress: the card, paired intervals, refusal, lineage, vectors and n-grams in few bits, the search."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from firth.artifact.folder import open_artifact
from firth.artifact.models import load, verify_model
from firth.counts.recipe import NgramRecipe
from firth.counts.train import compress_ngram, train_on_sentences
from firth.errors import AbilityError, ArgumentError, OutputError, RecipeError
from firth.fit.compress.auto import is_best
from firth.fit.compress.card import CompressionError, refusal
from firth.fit.compress.quality import AgreementSet, PairSet, Side, TextSet, compare, spearman
from firth.fit.compress.run import compress
from firth.fit.compress.speed import measure_speeds, peak_memory
from firth.fit.train import train
from firth.tasks.examples import TextExample
from firth.vectors.quantised import decode, quantise_linear, quantise_product
from tests.command import assert_refused, firth
from tests.fit.quick_card import quick_card as quick_card
from tests.fit.small_nets import sentences, small_bert

PAIRS = [
    (one, two, str(index % 6)) for index, (one, two) in enumerate(zip(sentences(40), sentences(40, 1), strict=True))
]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a small BERT, an n-gram model, text and scored pairs."""
    home = tmp_path_factory.mktemp("compress")
    with small_bert(home, "3ktok"):
        lines = sentences(200, seed=3)
        (home / "text.txt").write_text("\n".join(lines) + "\n")
        train("mkn3", home / "text.txt", out=home / "kn", threads=1, reload=False)
        rows = ["score\ttext_a\ttext_b", *(f"{score}\t{one}\t{two}" for one, two, score in PAIRS)]
        with gzip.open(home / "pairs.tsv.gz", "wt") as file:
            file.write("\n".join(rows) + "\n")
        yield home


def static(home: Path, out: Path, **changes: Any) -> Any:
    options = {"sentences": 50, "dimension": 8}
    given: dict[str, Any] = {"corpus": home / "text.txt", "eval": [home / "pairs.tsv.gz"], "settings": options}
    return compress(home / "bert", method="static", out=out, threads=1, **given | changes)


def test_static_vectors_with_their_card(home: Path, tmp_path: Path) -> None:
    given = ("--corpus", home / "text.txt", "--eval", home / "pairs.tsv.gz", "--set", "sentences=50")
    done = firth("compress", home / "bert", "--method", "static", *given, "-o", tmp_path / "small", "--json")
    assert done.code == 0, done.err
    for side in ("before", "after"):
        assert {"mb", "ms", "texts_per_second", "quality"} <= done.json[side].keys()
        assert done.json[side]["mb"] > 0
        low, high = done.json[side]["quality_interval"]
        assert low <= done.json[side]["quality"] <= high
    assert done.json["faster"] > 1
    small = load(tmp_path / "small")
    assert small.embed(["w1 w2", "w2 w1"])[0] == pytest.approx(small.embed(["w2 w1"])[0], abs=1e-6)
    verify_model(tmp_path / "small")
    shown = firth("info", tmp_path / "small")
    assert "static of bert" in shown.out
    card = (tmp_path / "small" / "card.md").read_text()
    assert "## Compression" in card
    assert "texts per second" in card


def test_memory_of_a_new_process(home: Path) -> None:
    found = peak_memory(home / "kn", "score", ["w1 w2"])
    assert found is not None
    assert 20 < found < 4000
    assert peak_memory(home / "nothing", "score", ["w1"]) is None


def test_the_same_result_twice(home: Path, tmp_path: Path) -> None:
    one, two = static(home, tmp_path / "one"), static(home, tmp_path / "two")
    assert np.array_equal(one.vectors, two.vectors)


def test_lineage_of_two_steps(home: Path, tmp_path: Path) -> None:
    static(home, tmp_path / "one")
    options: dict[str, Any] = {"corpus": home / "text.txt", "allow_slower": True}
    small = compress(tmp_path / "one", method="quantise", out=tmp_path / "two", **options)
    found = open_artifact(tmp_path / "two").manifest.metrics["compression"]
    assert [one["method"] for one in found["lineage"]] == ["static", "quantise"]
    before = load(tmp_path / "one")
    scales = np.abs(before.vectors).max(axis=1, keepdims=True) / 127
    assert (np.abs(small.vectors - before.vectors) <= scales / 2 + 1e-6).all()
    verify_model(tmp_path / "two")


def test_a_loss_that_is_too_large_writes_nothing(home: Path, tmp_path: Path) -> None:
    with pytest.raises(CompressionError, match="at_most_loss"):
        static(home, tmp_path / "small", at_most_loss=-2.0)
    assert list(tmp_path.iterdir()) == []
    given = ("--corpus", home / "text.txt", "--eval", home / "pairs.tsv.gz", "--set", "sentences=50")
    done = firth(
        *("compress", home / "bert", "--method", "static", *given, "-o", tmp_path / "small"),
        *("--at-most-loss", "-2", "--set", "vocabulary=tokens"),
    )
    assert_refused(done, "nothing is written", "--at-most-loss -2")
    assert list(tmp_path.iterdir()) == []


def test_refusals_say_the_numbers() -> None:
    card: dict[str, Any] = {"loss": 0.02, "metric": "accuracy", "faster": 0.5}
    card["before"] = {"quality": 0.9, "texts_per_second": 1000, "mb": 9.0, "ms": 1.0}
    card["after"] = {"quality": 0.88, "texts_per_second": 500, "mb": 5.0, "ms": 2.0}
    assert "slower: 500 texts per second instead of 1,000" in refusal(card, None)
    assert refusal(card, None, allow_slower=True) == ""
    assert refusal(card, 0.02, allow_slower=True) == ""
    assert "from 0.9 to 0.88, by 0.02" in refusal(card, 0.01)
    assert "5 MB, more than --max-mb 4" in refusal(card, None, max_mb=4)
    assert "2 ms, more than --max-ms 1.5" in refusal(card, None, max_ms=1.5)


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--method", "statik"], ["statik", "static"]),
        (["--method", "static", "--set", "dimensoin=3"], ["dimensoin", "dimension"]),
        (["--method", "static", "--max-mb", "0"], ["--max-mb 0"]),
    ],
)
def test_wrong_usage(home: Path, tmp_path: Path, options: list[str], parts: list[str]) -> None:
    assert_refused(firth("compress", home / "bert", *options, "-o", tmp_path / "x"), *parts, code=2)
    assert not (tmp_path / "x").exists()


def test_nothing_to_measure_on(home: Path, tmp_path: Path) -> None:
    done = firth("compress", home / "kn", "--method", "quantise", "-o", tmp_path / "x")
    assert_refused(done, "nothing to measure quality on", "--eval", code=2)


def test_methods_that_do_not_fit_name_another(home: Path, tmp_path: Path) -> None:
    text = home / "text.txt"
    for model, method, part in (
        ("kn", "static", "quantise"),
        ("kn", "distil", "quantise"),
        ("kn", "prune", "quantise"),
    ):
        with pytest.raises(AbilityError, match=part):
            compress(home / model, method=method, eval=[text], out=tmp_path / "x")
    with pytest.raises(AbilityError, match="corpus"):
        compress(home / "bert", method="static", eval=[home / "pairs.tsv.gz"], out=tmp_path / "x")
    with pytest.raises(AbilityError, match="no vectors of texts"):
        compress(home / "kn", method="quantise", eval=[home / "pairs.tsv.gz"], out=tmp_path / "x")
    with pytest.raises(ArgumentError, match="leave settings out"):
        compress(home / "kn", method="auto", eval=[text], settings={"prune": 0.1}, out=tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


def test_unfinished_work_is_not_overwritten(home: Path, tmp_path: Path) -> None:
    (tmp_path / "small.compress").mkdir()
    with pytest.raises(OutputError, match="resume"):
        static(home, tmp_path / "small")


class TestQuality:
    def test_spearman_of_ties(self) -> None:
        from scipy.stats import spearmanr

        one, two = np.array([1, 2, 2, 4, 9]), np.array([0.1, 0.5, 0.2, 0.2, 0.9])
        assert spearman(one, two) == pytest.approx(spearmanr(one, two).statistic)
        assert spearman(one, np.zeros(5)) == 0.0

    def test_the_interval_of_a_loss_is_paired(self) -> None:
        """Two models that are alike but for a constant have wide intervals, and none of their difference."""

        class Model:
            def __init__(self, factor: float) -> None:
                self.factor = factor

            def embed(self, texts: list[str]) -> Any:
                return self.factor * np.array([[len(text), 1.0] for text in texts])

        examples = [TextExample("a" * (1 + i % 7), "b" * (1 + i % 5), (str(i % 4),)) for i in range(30)]
        found = compare(PairSet("pairs", examples), Side(Model(1.0)), Side(Model(4.0)))
        assert found.loss == 0
        assert found.loss_interval == [0, 0]
        assert found.before_interval[0] < found.before < found.before_interval[1]

    def test_bits_per_byte_is_better_when_lower(self, home: Path) -> None:
        good, bad = load(home / "kn"), train_on_sentences(["w1 w2", "w3"], NgramRecipe(order=1, smoothing="additive"))
        found = compare(TextSet("text", sentences(30, 3)), Side(good), Side(bad))
        assert found.after > found.before
        assert found.loss == pytest.approx(found.after - found.before)

    def test_the_original_agrees_with_itself(self, home: Path) -> None:
        side = Side(load(home / "bert"))
        assert compare(AgreementSet("text", sentences(20), side), side, side).before == pytest.approx(1)

    def test_speeds(self) -> None:
        import time

        def slow(items: Any) -> None:
            time.sleep(0.004 * len(items))

        def fast(items: Any) -> None:
            time.sleep(0.001 * len(items))

        one, two = measure_speeds([slow, fast], list("abcdefgh"), 8)
        assert one.ms >= 3
        assert two.texts_per_second > 2 * one.texts_per_second


class TestFewBits:
    def test_codes_of_8_bits(self) -> None:
        vectors = np.random.default_rng(0).normal(size=(50, 12)).astype(np.float32)
        codes, scales = quantise_linear(vectors)
        assert np.abs(codes).max(axis=1).tolist() == [127] * 50
        assert np.abs(decode(codes, scales, None) - vectors).max() <= scales.max() / 2 + 1e-7

    def test_products_find_exact_clusters(self) -> None:
        """Vectors made of few distinct parts are found exactly."""
        rng = np.random.default_rng(0)
        books = rng.normal(size=(3, 5, 4)).astype(np.float32)
        books /= np.linalg.norm(books, axis=2, keepdims=True)
        chosen = rng.integers(0, 5, (400, 3))
        vectors = np.concatenate([books[part][chosen[:, part]] for part in range(3)], axis=1) * 2
        codes, norms, found = quantise_product(vectors, 3)
        assert decode(codes, norms, found) == pytest.approx(vectors, abs=1e-4)
        with pytest.raises(AbilityError, match="set parts=4"):
            quantise_product(vectors, 5)

    def test_ngrams_sum_to_one(self, home: Path, tmp_path: Path) -> None:
        model = load(home / "kn")
        same = compress_ngram(model, 0.0, "float64")
        assert same.score(sentences(5))[0].logprob == pytest.approx(model.score(sentences(5))[0].logprob)
        small = compress_ngram(model, 1e-3, "8bit")
        assert small.trie.words.size < model.trie.words.size
        for history in ([], [6], [6, 8]):
            assert np.exp(small.next_logprobs(history)).sum() == pytest.approx(1, abs=1e-6)
        given: dict[str, Any] = {"eval": [home / "text.txt"], "allow_slower": True, "settings": {"prune": 1e-3}}
        compress(home / "kn", method="quantise", out=tmp_path / "small", **given)
        card = open_artifact(tmp_path / "small").manifest.metrics["compression"]
        assert load(tmp_path / "small").logp.dtype == np.uint8
        assert card["metric"] == "bits_per_byte"
        with pytest.raises(RecipeError):
            compress(home / "kn", method="quantise", out=tmp_path / "x", **given | {"settings": {"prune": 2}})


def test_the_search_meets_the_limit(home: Path, tmp_path: Path) -> None:
    limit = sum(path.stat().st_size for path in (home / "kn").iterdir()) / 1e6
    compress(home / "kn", method="auto", eval=[home / "text.txt"], max_mb=limit, out=tmp_path / "small")
    card = open_artifact(tmp_path / "small").manifest.metrics["compression"]
    assert card["after"]["mb"] <= limit
    assert len(card["tried"]) == 4
    best = min(one["quality"] for one in card["tried"].values() if one["mb"] <= limit)
    assert card["after"]["quality"] == pytest.approx(best)
    assert b"<svg" in (tmp_path / "small" / "front.svg").read_bytes()
    verify_model(tmp_path / "small")
    assert [path.name for path in tmp_path.iterdir()] == ["small"]


def test_the_search_without_a_result(home: Path, tmp_path: Path) -> None:
    with pytest.raises(CompressionError, match="none is within the limits"):
        compress(home / "kn", method="auto", eval=[home / "text.txt"], max_mb=1e-4, out=tmp_path / "small")
    assert [path.name for path in tmp_path.iterdir()] == ["small.compress"]
    limits = {"allow_slower": True, "resume": True}  # a busy machine may measure any speed
    compress(home / "kn", method="auto", eval=[home / "text.txt"], out=tmp_path / "small", **limits)
    assert [path.name for path in tmp_path.iterdir()] == ["small"]


def test_the_front() -> None:
    keys = [(1.0, 1.0, 1.0), (2.0, 1.0, 1.0), (0.5, 3.0, 1.0)]
    assert [is_best(one, keys) for one in keys] == [False, True, True]
