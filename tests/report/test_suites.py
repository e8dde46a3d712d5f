"""Evaluation of vectors: by hand, and compared with gensim."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gensim.models import KeyedVectors
from scipy import sparse

from firth.cli.console import to_json
from firth.errors import AbilityError, CorpusError
from firth.report.suite_files import read_contexts, read_labelled, read_pairs, read_questions
from firth.report.suites import (
    correlation,
    evaluate_analogies,
    evaluate_contexts,
    evaluate_probe,
    evaluate_words,
    wilson,
)
from firth.vectors.model import VectorModel
from tests.vectors.small_models import small_model

IN_GENSIM = pytest.mark.filterwarnings("ignore:Call to deprecated `init_sims`:DeprecationWarning")
WORDS = ["the", "cat", "tiger", "car", "train", "paris", "france"]
LINE = [[1, 0], [2, 1], [2, 1.2], [-1, 3], [-1, 2], [0, -1], [1, -1]]


@pytest.fixture
def model() -> VectorModel:
    return small_model(WORDS, LINE)


def write(path: Path, text: str) -> Path:
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


PAIRS = "tiger\tcat\t6\ncar\tTrain\t7.5\ncat\tcar\t1\nzebra\tcat\t5\nparis\tthe\t0.5\n"


@pytest.mark.parametrize("head", ["", "word1\tword2\tscore\n", "# a remark\n"])
@pytest.mark.parametrize("name", ["pairs.tsv", "pairs.tsv.gz"])
def test_word_pairs(model: VectorModel, tmp_path: Path, head: str, name: str) -> None:
    report = evaluate_words(model, [write(tmp_path / name, head + PAIRS)])
    assert (report["pairs"], report["covered"], report["missing"]) == (5, 4, ["zebra"])
    assert report["spearman"] == pytest.approx(0.8), "tiger-cat and car-train are swapped"
    low, high = report["spearman_interval"]
    assert low < 0.8 < high
    assert (report["ties"], report["ties_of_people"]) == (0, 0)


def test_missing_pairs_count_as_the_mean_for_all(model: VectorModel, tmp_path: Path) -> None:
    report = evaluate_words(model, [write(tmp_path / "pairs.tsv", PAIRS)])
    ours = [model.similarity(*pair) for pair in (("tiger", "cat"), ("car", "train"), ("cat", "car"), ("paris", "the"))]
    filled = np.array([*ours[:3], np.mean(ours), ours[3]])
    assert report["spearman_all"] == pytest.approx(correlation(filled, np.array([6, 7.5, 1, 5, 0.5]))["spearman"])


def test_pairs_may_be_separated_by_spaces(tmp_path: Path) -> None:
    assert read_pairs(write(tmp_path / "a", "tiger cat  7.5\n\ncar train 6\n"))[1] == ("car", "train", 6.0, None)


def test_several_files_have_a_mean_and_a_report_each(model: VectorModel, tmp_path: Path) -> None:
    one = write(tmp_path / "one", "cat tiger 3\ncar train 2\ncat paris 1\n")
    two = write(tmp_path / "two", "cat tiger 1\ncar zebra 2\ncat paris 3\n")
    report = evaluate_words(model, [one, two])
    assert [part["spearman"] for part in report["files"]] == pytest.approx([1.0, -1.0])
    assert report["spearman"] == pytest.approx(0)
    assert (report["pairs"], report["covered"], report["missing"]) == (6, 5, ["zebra"])


def test_equal_similarities_have_no_correlation(tmp_path: Path) -> None:
    onehot = small_model(WORDS, np.eye(7))
    report = evaluate_words(onehot, [write(tmp_path / "pairs", "cat tiger 3\ncar train 2\nthe paris 1\n")])
    assert report["spearman"] is None
    assert report["spearman_interval"] is None
    assert report["ties"] == 3
    assert "compared" in report["note"]
    assert "NaN" not in to_json(report)
    assert json.loads(to_json(report))["spearman"] is None


def test_words_that_are_all_missing(model: VectorModel, tmp_path: Path) -> None:
    report = evaluate_words(model, [write(tmp_path / "pairs", "x y 3\nz y 2\n")])
    assert (report["covered"], report["spearman"], report["spearman_all"]) == (0, None, None)
    assert report["missing"] == ["x", "y", "z"]


def test_the_interval_is_that_of_bonett_and_wright() -> None:
    report = correlation(np.arange(100.0), np.roll(np.arange(100.0), 7))
    value = report["spearman"]
    error = 1.959963984540054 * math.sqrt((1 + value**2 / 2) / 97)
    expected = [math.tanh(math.atanh(value) - error), math.tanh(math.atanh(value) + error)]
    assert report["spearman_interval"] == pytest.approx(expected)
    perfect = correlation(np.arange(9.0), np.arange(9.0))
    assert perfect["spearman"] == pytest.approx(1)
    assert all(-1 <= bound <= 1 for bound in perfect["spearman_interval"])


def test_wilson_by_hand() -> None:
    assert wilson(0, 0) is None
    low, high = wilson(0, 20) or [1, 0]
    assert low == 0
    assert high == pytest.approx(0.1611, abs=1e-4)


ANALOGIES = ": one\nMan King Woman Queen\nman king woman girl\n: two\nman king woman zebra\nking queen man woman\n"


def test_analogies_by_section(tmp_path: Path) -> None:
    model = small_model(
        ["the", "king", "queen", "man", "woman", "girl"],
        [[1, 1, 9], [4, 1, 0], [4, 2, 0], [1, 1, 0], [1, 2, 0], [-1, 2, 3]],
    )
    for method in ("add", "mul"):
        report = evaluate_analogies(model, [write(tmp_path / "a.txt.gz", ANALOGIES)], method)
        assert (report["questions"], report["covered"], report["missing"]) == (4, 3, ["zebra"])
        assert report["accuracy"] == pytest.approx(2 / 3)
        assert report["accuracy_all"] == pytest.approx(2 / 4)
        assert report["sections"]["one"] == {"accuracy": 0.5, "questions": 2, "covered": 2}
        assert report["sections"]["two"] == {"accuracy": 1.0, "questions": 2, "covered": 1}
        assert report["accuracy_interval"] == wilson(2, 3)
    few = evaluate_analogies(model, [tmp_path / "a.txt.gz"], restrict=3)
    assert (few["covered"], few["accuracy"]) == (0, None)


def case_models() -> tuple[VectorModel, KeyedVectors]:
    """Words in two cases, so that the folding of case decides."""
    random = np.random.default_rng(7)
    words = [word for number in range(60) for word in (f"W{number}x", f"w{number}x", f"v{number}X")]
    vectors = random.standard_normal((180, 5)).astype(np.float32)
    peer = KeyedVectors(5)
    peer.add_vectors(words, vectors)
    return small_model(words, vectors, lowercase=False), peer


@IN_GENSIM
@pytest.mark.parametrize("restrict", [300_000, 120])
def test_gensim_counts_the_same_analogies(tmp_path: Path, restrict: int) -> None:
    model, peer = case_models()
    random = np.random.default_rng(1)
    lines = [": first"]
    for number in range(900):
        lines += [": second"] * (number == 400)
        a, b, c = (f"{'wv'[kind]}{row}x" for kind, row in zip(*random.integers(0, [[2], [60]], (2, 3)), strict=True))
        answer = peer.most_similar(positive=[_any(peer, b), _any(peer, c)], negative=[_any(peer, a)], topn=1)[0][0]
        lines.append(f"{a} {b} {c} {answer if number % 2 else 'w5X'}")
    path = write(tmp_path / "a.txt", "\n".join(lines) + "\n")
    theirs, sections = peer.evaluate_word_analogies(path, restrict_vocab=restrict)
    ours = evaluate_analogies(model, [path], restrict=restrict)
    assert ours["accuracy"] == pytest.approx(theirs)
    assert ours["covered"] == sum(len(part["correct"]) + len(part["incorrect"]) for part in sections[:-1])
    for part in sections[:-1]:
        assert ours["sections"][part["section"]]["accuracy"] * ours["sections"][part["section"]][
            "covered"
        ] == pytest.approx(len(part["correct"]))
    assert 0.05 < ours["accuracy"] < 0.95


def _any(peer: KeyedVectors, word: str) -> str:
    return next(known for known in peer.index_to_key if known.upper() == word.upper())


def test_gensim_measures_the_same_pairs(tmp_path: Path) -> None:
    random = np.random.default_rng(2)
    words = [f"w{number}x" for number in range(80)]
    vectors = random.standard_normal((80, 6)).astype(np.float32)
    peer = KeyedVectors(6)
    peer.add_vectors(words, vectors)
    chosen = random.permutation(79 * 80 // 2)[:200]  # no pair twice, and no word with itself: rounding breaks such ties
    ones, twos = (part[chosen].tolist() for part in np.triu_indices(80, 1))
    scores = random.integers(0, 20, 200).tolist()
    names = [f"{words[a].upper()}\t{words[b]}\t{c}" for a, b, c in zip(ones, twos, scores, strict=True)]
    path = write(tmp_path / "pairs.tsv", "\n".join([*names, "w1x\tmissing\t3"]) + "\n")
    _, theirs, unknown = peer.evaluate_word_pairs(path)
    ours = evaluate_words(small_model(words, vectors), [path])
    assert ours["spearman"] == pytest.approx(float(theirs[0]), abs=1e-9)
    assert ours["covered"] == 200
    assert unknown == pytest.approx(100 / 201)


CONTEXT = "{0}\t{1}\tn\t{2}\tn\tthe <b> {1} </b> sat\ta <b> {2} </b> ran\t{3}\n"


def contexts(tmp_path: Path) -> Path:
    rows = [("cat", "tiger", 3), ("car", "train", 2), ("cat", "paris", 1), ("zebra", "cat", 4)]
    head = "id\tword1\tpos1\tword2\tpos2\tcontext1\tcontext2\tscore\n"
    lines = (CONTEXT.format(number, *row) for number, row in enumerate(rows))
    return write(tmp_path / "scws.tsv", head + "".join(lines))


def test_words_in_context_of_one_sense(model: VectorModel, tmp_path: Path) -> None:
    report = evaluate_contexts(model, [contexts(tmp_path)])
    assert (report["pairs"], report["covered"], report["measure"]) == (4, 3, "AvgSim")
    assert report["spearman"] == pytest.approx(1)
    assert not [name for name in report if "SimC" in name or "in_context" in name]


def test_words_in_context_of_several_senses(tmp_path: Path) -> None:
    asked: list[tuple[str, ...]] = []

    class Senses(VectorModel):
        names = WORDS

        def similarity_in_context(self, one: str, before: str, two: str, after: str) -> float:
            asked.append((one, before, two, after))
            return -len(asked)

        def max_similarity_in_context(self, one: str, before: str, two: str, after: str) -> float:
            return len(asked)

    plain = small_model(WORDS, LINE)
    report = evaluate_contexts(Senses(plain.recipe, plain.tokenizer, "lines", plain.vectors), [contexts(tmp_path)])
    assert asked[0] == ("cat", "the cat sat", "tiger", "a tiger ran")
    assert (report["spearman_AvgSimC"], report["spearman_MaxSimC"]) == pytest.approx((1.0, -1.0))


class Counting:
    """Texts as the counts of the characters a and b."""

    def __init__(self, sparse: bool) -> None:
        self.sparse = sparse

    def embed(self, texts: list[str]) -> Any:
        rows = np.array([[text.count("a"), text.count("b")] for text in texts], dtype=np.float32)
        return sparse.csr_array(rows) if self.sparse else rows


def labelled(path: Path, wrong: int) -> Path:
    lines = [f"{'x' if number % 3 else 'y'}\t{number}\t{'aab' if number % 3 else 'abb'}" for number in range(60)]
    lines += [f"y\t{number}\taaab" for number in range(wrong)]
    return write(path, "label\tid\ttext_a\n" + "\n".join(lines) + "\n")


@pytest.mark.parametrize("kind", [True, False])
def test_a_probe_is_cross_validated(tmp_path: Path, kind: bool) -> None:
    report = evaluate_probe(Counting(kind), [labelled(tmp_path / "train.tsv.gz", 6)])
    assert (report["rows"], report["tested"], report["classes"], report["folds"]) == (66, 66, 2, 5)
    assert report["accuracy"] == pytest.approx(60 / 66)
    assert report["majority"] == pytest.approx(40 / 66)
    assert report["accuracy_interval"] == wilson(60, 66)
    assert report["macro_f1"] == pytest.approx((80 / 86 + 40 / 46) / 2)


def test_a_probe_with_a_test_file(tmp_path: Path) -> None:
    files = [labelled(tmp_path / "train.tsv", 0), labelled(tmp_path / "test.tsv", 20)]
    report = evaluate_probe(Counting(False), files)
    assert report["accuracy"] == pytest.approx(60 / 80)
    assert report["majority"] == pytest.approx(40 / 80)
    assert report["folds"] is None


BAD = {
    "an empty file": (read_pairs, "\n", "no word pairs"),
    "a pair of one": (read_pairs, "a b 1\na 3\n", "line 2"),
    "a score that is no number": (read_pairs, "a b 1\nc d high\n", "line 2"),
    "a score that is infinite": (read_pairs, "a b 1\nc d inf\n", "line 2"),
    "three words": (read_questions, ": one\na b c d\na b c\n", "line 3"),
    "sections alone": (read_questions, ": one\n: two\n", "no analogies"),
    "too few fields": (read_contexts, "1\tcat\tn\n2\tcat\tn\n", "line 2"),
    "no names of columns": (read_labelled, "x\tsome text\n", "label and text_a"),
    "one field more": (read_labelled, "label\ttext_a\nx\tsome\ttext\n", "line 2"),
}


@pytest.mark.parametrize("case", BAD)
def test_files_that_do_not_fit_are_refused(tmp_path: Path, case: str) -> None:
    read, text, said = BAD[case]
    with pytest.raises(CorpusError, match=said):
        read(write(tmp_path / "bad.tsv", text))


def test_models_without_vectors_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "pairs", PAIRS)
    for measure in (evaluate_words, evaluate_contexts, evaluate_analogies):
        with pytest.raises(AbilityError, match="no word vectors"):
            measure(object(), [path])
    with pytest.raises(AbilityError, match="no vectors of texts"):
        evaluate_probe(object(), [path])


def test_too_few_labels_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="one label"):
        evaluate_probe(Counting(False), [write(tmp_path / "a", "label\ttext_a\nx\ta\nx\tb\n")])
    with pytest.raises(CorpusError, match="fewer than 5"):
        evaluate_probe(Counting(False), [write(tmp_path / "b", "label\ttext_a\nx\ta\ny\tb\n")])
