"""Labelled texts from TSV, JSONL, fastText's lines and Python, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import firth as library
from firth.errors import CorpusError, EncodingError, FirthError
from firth.fit.labels import LabelledItems, Labels, accuracy, open_labelled, read_labels
from firth.tokens.build import open_tokens
from firth.tokens.recipe import TokenizerRecipe
from tests.command import firth

TSV = "label\ttext_a\n1\ta good film\n0\ta bad film\n1\tgood\n"
WORDS = TokenizerRecipe(model="words", lowercase=True)


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def labels_of(*given: Any, recipe: TokenizerRecipe = WORDS) -> Labels:
    corpus = open_labelled(given)
    tokenizer, store = open_tokens(recipe, corpus, 1)
    return read_labels(corpus, store, tokenizer)


def test_labels_are_ordered_by_frequency_then_name(tmp_path: Path) -> None:
    found = labels_of([("b", "one"), ("c", "two"), (["a", "c", "c"], "three"), ("a", "four"), ("z", " ")])
    assert found.names == ("a", "c", "b")
    assert found.numbers.tolist() == [[2, -1], [1, -1], [0, 1], [0, -1]]
    again = labels_of(
        write(tmp_path / "x.txt", "__label__c two\n__label__a __label__c 3\n__label__b 1\n__label__a 4\n")
    )
    assert again.names == found.names
    assert again.digest != found.digest


def test_texts_without_tokens_lose_their_labels_only() -> None:
    pieces = TokenizerRecipe(model="wordpiece", vocab_size=60)  # leaves control characters out
    found = labels_of([("a", "one"), ("b", "\x01\x02"), ("c", "two"), ("b", "three")], recipe=pieces)
    assert found.names == ("b", "a", "c")
    assert found.numbers[:, 0].tolist() == [1, 2, 0]


def test_each_text_is_a_document_of_one_sentence(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"label": 1, "text": "One. Two.\\n\\nThree."}\n{"label": 2, "text": "Four."}\n')
    corpus = open_labelled([path])
    assert [document.sentences for document in corpus] == [("One. Two.  Three.",), ("Four.",)]
    assert corpus.layout == "lines"
    assert corpus.describe()["encodings"] == {str(path): "utf-8"}
    before = corpus.key()
    write(path, '{"label": 1, "text": "Other."}\n')
    assert open_labelled([path]).key() != before
    assert LabelledItems([("a", "b")]).size() == 0


def test_accuracy_counts_any_of_several_labels() -> None:
    class Always:
        def __init__(self) -> None:
            self.labels = ["x"]

        def predict(self, texts: Any, count: int = 1) -> Any:
            return [[("x", 0.5)] for _ in texts]

    corpus = open_labelled([[("x", "one"), (["y", "x"], "two"), ("y", "three"), ("z", "four")]])
    assert accuracy(Always(), corpus) == 0.5


BAD = {
    "plain.txt": ("just a text\nand another\n", "there is no label"),
    "gap.txt": ("__label__a one\nno label\n", "line 2: there is no label"),
    "gap.tsv": ("label\ttext_a\n1\tone\n\ttwo\n", "line 3: there is no label"),
    "columns.tsv": ("label\tbody\n1\tone\n", "has the columns label, body"),
    "unlabelled.tsv": ("id\ttext_a\n1\tone\n", "none that holds the label"),
    "fields.tsv": ("label\ttext_a\n1\tone\ttwo\n", "there are 3 fields where the first line names 2"),
    "broken.jsonl": ('{"label": 1\n', "is not JSON"),
    "deep.jsonl": ("[" * 100_000 + "\n", "is not JSON"),
    "list.jsonl": ("[1]\n", "is not a JSON object"),
    "textless.jsonl": ('{"label": 1, "texts": "a"}\n', "has no text in 'text'"),
    "number.jsonl": ('{"label": 1, "text": 3}\n', "has no text in 'text'"),
    "object.jsonl": ('{"label": {"a": 1}, "text": "b"}\n', "neither a name nor a number"),
    "empty.tsv": ("", "no labelled texts"),
    "header.tsv": ("label\ttext_a\n", "no labelled texts"),
    "blank.tsv": ("label\ttext_a\n1\t \n", "no labelled texts"),
    "one.tsv": ("label\ttext_a\n1\tone\n1\ttwo\n", "two labels or more"),
    "half.jsonl": ('{"label": 1, "text": "\\ud800"}\n', "surrogate"),
    "many.txt": (" ".join(f"__label__{n}" for n in range(1001)) + " x\n", "too many"),
}


@pytest.mark.parametrize("name", BAD)
def test_errors_are_one_sentence(name: str, tmp_path: Path) -> None:
    text, message = BAD[name]
    outcome = firth("train", "fasttext-classifier", write(tmp_path / name, text), "-o", tmp_path / "out")
    assert outcome.code == 1
    assert message in outcome.err
    assert outcome.err.strip().count("\n") == 0
    assert not (tmp_path / "out").exists()


def test_impossible_requests_are_refused_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "binary.tsv").write_bytes(bytes(range(256)) * 9)
    with pytest.raises(EncodingError):
        open_labelled([tmp_path / "binary.tsv"])
    (tmp_path / "table.parquet").write_bytes(b"PAR1")
    with pytest.raises(CorpusError, match="Parquet"):
        open_labelled([tmp_path / "table.parquet"])
    for given in ("builtin:oracle", library.read_corpus([["a text"]]), ["no pair"], [("a", 3)], tmp_path / "nowhere"):
        with pytest.raises(FirthError):
            open_labelled([given])


def test_training_in_python_and_validation(tmp_path: Path) -> None:
    rows = [("pos", "a good film"), ("neg", "a bad film"), ("pos", "good play"), ("neg", "bad play")] * 10
    valid = [("pos", "good"), ("neg", "bad"), ("pos", "bad"), ("other", "good")]
    model = library.train("fasttext-classifier", rows, out=tmp_path / "m", valid=valid, settings=["epochs=50"])
    assert model.predict(["a good one"])[0][0][0] == "pos"
    info = firth("info", tmp_path / "m", "--json").json
    assert info["metrics"]["valid_accuracy"] == 0.5
    assert info["corpus"]["documents"] == 40
    assert info["recipe"]["lr"] == 0.5


def test_the_digest_depends_on_the_labels() -> None:
    one, two = (labels_of([("a", "x"), (label, "y")]) for label in ("b", "c"))
    assert one.digest != two.digest
    assert one.digest == labels_of([("a", "x"), ("b", "y")]).digest
