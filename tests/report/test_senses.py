"""Words in two contexts: thresholds, files, and models of one and of several vectors for a word."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import firth
from firth.errors import AbilityError, ArgumentError, CorpusError
from firth.nets.contextual_vectors import range_states, word_states
from firth.report.senses import choose_threshold, evaluate_senses
from firth.report.suite_files import find_tagged, read_senses, strip_tags
from tests.command import firth as command

HEAD = "label\tword\tpos\tindex_a\tindex_b\ttext_a\ttext_b"
TOPICS = ("river", "money")
OTHERS = ("war", "art", "food", "law", "sea", "city", "farm", "film")


def context(rng: np.random.Generator, topic: str) -> tuple[str, int]:
    """Words of a topic around an ambiguous one, and where that is."""
    words = [f"{topic}{number}" for number in rng.integers(0, 6, 8)]
    index = int(rng.integers(1, 7))
    if topic in TOPICS:
        words[index] = "bank"
    return " ".join(words), index


def write_pairs(path: Path, count: int, seed: int = 0) -> Path:
    rng = np.random.default_rng(seed)
    lines = [HEAD]
    for number in range(count):
        topics = rng.choice(TOPICS, 2) if number % 2 else [str(rng.choice(TOPICS))] * 2
        (one, first), (two, second) = (context(rng, topic) for topic in topics)
        label = "T" if topics[0] == topics[1] else "F"
        lines.append(f"{label}\tbank\tN\t{first}\t{second}\t{one}\t{two}")
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home, rng = tmp_path_factory.mktemp("senses"), np.random.default_rng(5)
    text = [[context(rng, topic)[0] for _ in range(5)] for topic in rng.choice([*TOPICS, *OTHERS], 300)]
    firth.train("skipgram", text, out=home / "static", settings=["dimension=8", "epochs=2"], threads=1)
    settings = ["base.dimension=20", "base.epochs=10", "base.subsample=0", "base.lr=0.025", "min_training_words=0"]
    settings += ["min_occurrences=20"]
    firth.train("multi-prototype", text, out=home / "senses", settings=settings, threads=1)
    settings = ["embedding.width=16", "encoder.width=16", "tokenizer=words", "learning.batch=256"]
    firth.train("lstm", text, out=home / "lstm", settings=settings, budget="60ktok", threads=1)
    return home


def test_one_vector_for_a_word_is_no_better_than_the_majority(home: Path, tmp_path: Path) -> None:
    report = firth.evaluate(home / "static", "senses", write_pairs(tmp_path / "wic.tsv", 60))
    assert report["accuracy"] == pytest.approx(report["majority"])
    assert report["compared"] == "words without context"
    assert (report["pairs"], report["covered"]) == (60, 60)
    assert "5 folds" in report["threshold_by"]


@pytest.mark.parametrize("name", ["senses", "lstm"])
def test_contexts_tell_senses_apart(home: Path, tmp_path: Path, name: str) -> None:
    chosen, tested = write_pairs(tmp_path / "wic.train.tsv", 60, 1), write_pairs(tmp_path / "wic.test.tsv", 80, 2)
    report = firth.evaluate(home / name, "senses", chosen, tested)
    assert report["accuracy"] > report["majority"] + 0.1
    assert report["threshold_by"] == "chosen on wic.train.tsv"
    assert report["accuracy_interval"][0] < report["accuracy"] < report["accuracy_interval"][1] + 1e-9
    assert report["pairs"] == 80


def test_the_similarities_are_cosines_of_the_words_states(home: Path, tmp_path: Path) -> None:
    model: Any = firth.load(home / "lstm")
    texts, where = ["river1 bank river2", "money1 river2 bank"], [(7, 11), (14, 18)]
    expected = []
    for (spans, states), word in zip(word_states(model, texts, "last"), ("bank", "bank"), strict=True):
        expected.append(states[[span.word for span in spans].index(word)])
    np.testing.assert_allclose(range_states(model, texts, where), np.array(expected), atol=1e-6)
    assert np.isnan(range_states(model, ["water  bank"], [(5, 6)])).all()


def test_the_threshold_has_most_right_answers_of_all(home: Path) -> None:
    rng = np.random.default_rng(3)
    for _ in range(50):
        scores, labels = rng.integers(0, 6, 12) / 5, rng.random(12) < 0.5
        found = ((scores >= choose_threshold(scores, labels)) == labels).sum()
        assert found == max(((scores >= cut) == labels).sum() for cut in np.arange(-0.1, 1.3, 0.1))


def test_scws_has_the_correlation_in_context(home: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lines = ["id\tword1\tPOS1\tword2\tPOS2\tcontext1\tcontext2\tscore"]
    for number in range(40):
        one, two = rng.choice(TOPICS, 2)
        texts = [context(rng, topic)[0].replace("bank", "<b> bank </b>") for topic in (one, two)]
        lines.append(f"{number}\tbank\tn\tbank\tn\t{texts[0]}\t{texts[1]}\t{9.0 if one == two else 1.0}")
    path = tmp_path / "scws.tsv"
    path.write_text("\n".join(lines) + "\n")
    report = firth.evaluate(home / "lstm", "senses", path)
    assert report["spearman"] is None  # the word alone is the same in all
    assert report["spearman_contextual"] > 0.4
    assert firth.evaluate(home / "senses", "senses", path)["spearman_MaxSimC"] > 0.4
    with pytest.raises(CorpusError, match="alone"):
        evaluate_senses(firth.load(home / "lstm"), [path, path])


def test_where_the_tagged_word_is() -> None:
    for text in ("<b> bank </b> of it", "on the <b>bank</b>", "a  b <b> two words </b> c"):
        begin, end = find_tagged(text)
        assert strip_tags(text)[begin:end] in ("bank", "two words")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("X\tbank\tN\t0\t0\tbank\tbank", "must be T"),
        ("T\tbank\tN\t3\t0\tbank\tbank", "index '3'"),
        ("T\tbank\tN\t-1\t0\tbank\tbank", "index '-1'"),
        ("T\tbank\tN\t0\t0\tbank", "6 fields"),
    ],
)
def test_bad_lines_are_refused(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "f.tsv").write_text(f"{HEAD}\n{line}\n")
    with pytest.raises(CorpusError, match=message):
        read_senses(tmp_path / "f.tsv")


def test_bad_files_and_options_are_refused(home: Path, tmp_path: Path) -> None:
    (tmp_path / "one.tsv").write_text(f"{HEAD}\nT\tbank\tN\t0\t0\tbank\tbank\n")
    done = command("evaluate", home / "static", "senses", tmp_path / "one.tsv")
    assert done.code == 1
    assert "fewer than 5 pairs" in done.err
    with pytest.raises(AbilityError, match="layers"):
        firth.evaluate(home / "static", "senses", tmp_path / "one.tsv", layer=1)
    with pytest.raises(ArgumentError, match="pooling"):
        firth.evaluate(home / "lstm", "senses", tmp_path / "one.tsv", pooling="mean")
