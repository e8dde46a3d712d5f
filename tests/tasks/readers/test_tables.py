"""Tables with columns of any name: TSV and CSV, and the names that --field gives."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firth.errors import CorpusError
from firth.tasks.examples import TextExample
from firth.tasks.readers.columns import read_options
from firth.tasks.readers.reader import read_task
from firth.tasks.readers.tables import read_csv
from tests.command import firth

WANTED = [(("good",), "a fine film"), (("bad",), "dull, long")]


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def read(task: str, path: Path, **options: Any) -> list[tuple[Any, str]]:
    examples = list(read_task(task, path, **options))
    return [(one.labels, one.text) for one in examples if isinstance(one, TextExample)]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", 'label,text\ngood,a fine film\nbad,"dull, long"\n'),
        ("a.csv", 'id,text,label\n1,"a fine\nfilm",good\n\n2,"dull, long",bad\n'),
        ("a.csv", '"label";"text"\n"good";"a fine film"\n"bad";"dull, long"\n'),
        ("a.CSV", '\ufefflabel\ttext\r\ngood\ta fine film\r\nbad\t"dull, long"\r\n'),
        ("a.tsv", '"label"\t"text_a"\n"good"\t"a fine film"\n"bad"\t"dull, long"\n'),
        ("a.txt", 'label,text\ngood,a fine film\nbad,"dull, long"\n'),
    ],
)
def test_csv_is_read(name: str, text: str, tmp_path: Path) -> None:
    assert read("classify", write(tmp_path / name, text)) == WANTED


def test_pairs_sources_and_unlabelled_texts_in_csv(tmp_path: Path) -> None:
    pairs = write(tmp_path / "a.csv", 'label,text_a,text_b\nyes,one,"two, three"\n')
    (pair,) = read_task("pair", pairs)
    assert isinstance(pair, TextExample)
    assert (pair.text, pair.other, pair.labels) == ("one", "two, three", ("yes",))
    (generated,) = read_task("generate", write(tmp_path / "b.csv", "en,de\none,eins\n"))
    assert (generated.source, generated.target) == ("one", "eins")  # type: ignore[union-attr]
    assert read("classify", write(tmp_path / "c.csv", "text\none\n\ntwo\n"), labelled=False) == [
        (None, "one"),
        (None, "two"),
    ]


def test_errors_name_the_line_where_a_row_begins(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", 'label,text\ngood,"one\n\ntwo"\n,"no label"\n')
    with pytest.raises(CorpusError, match="line 5: there is no label"):
        read("classify", path)


@given(st.lists(st.lists(st.text(st.characters(exclude_categories=["Cs", "Cc"])), min_size=2, max_size=2), min_size=1))
def test_csv_is_what_the_csv_module_writes(rows: list[list[str]]) -> None:
    """Line breaks in fields aside, which are tested above."""
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows([["label", "text"], *rows])
    assert [fields for _, fields in read_csv(enumerate(file.getvalue().split("\n")[:-1]), ",", "x")] == rows


@pytest.mark.parametrize("name", ["review.tsv", "review.csv", "review.jsonl"])
@pytest.mark.parametrize("role", ["text", "text_a"])
def test_a_column_is_named_by_its_role_or_its_usual_name(name: str, role: str, tmp_path: Path) -> None:
    text = {
        "review.tsv": "review\tstars\na fine film\tgood\ndull, long\tbad\n",
        "review.csv": 'review,stars\na fine film,good\n"dull, long",bad\n',
        "review.jsonl": '{"review": "a fine film", "stars": "good"}\n{"review": "dull, long", "stars": "bad"}\n',
    }[name]
    path = write(tmp_path / name, text)
    assert read("classify", path, columns={role: "review", "label": "stars"}) == WANTED
    with pytest.raises(CorpusError, match=r"review, stars.*columns=\['text=NAME'\]"):
        read("classify", path)


def test_usual_names_stand_for_their_role() -> None:
    assert read_options("classify", True, {"text_a": "x", "labels": "y"}).columns == {"text": "x", "label": "y"}
    assert read_options("span", True, {"context": "x"}).columns == {"passage": "x"}


def test_commands_read_other_columns(tmp_path: Path) -> None:
    """A classifier and a linear baseline, trained and used on CSV whose columns --field names."""
    rows = "".join(f'"a good, fine film",{n},pos\n"a bad film",{n},neg\n' for n in range(5))
    path = write(tmp_path / "films.csv", "review,id,stars\n" + rows)
    fields = ("--field", "text_a=review", "--field", "label=stars")
    assert "--field text=NAME" in firth("train", "fasttext-classifier", path, "-o", tmp_path / "c").err
    options = ("--set", "epochs=1", "--set", "dimension=4", "--json")
    done = firth("train", "fasttext-classifier", path, "-o", tmp_path / "c", *fields, *options)
    assert done.code == 0, done.err
    assert done.json["metrics"]["labels"] == 2
    for field in ("review", "text_a=review"):
        found = firth("predict", tmp_path / "c", path, "--field", field, "--json").json
        assert found["texts"] == 10
    for suite in ("task", "classify"):
        assert firth("evaluate", tmp_path / "c", suite, path, *fields, "--json").json["examples"] == 10
    assert firth("train", "words", path, "-o", tmp_path / "words", "--json").code == 0
    examples = ("--train", path, "--dev", path, "-o", tmp_path / "linear")
    done = firth("finetune", tmp_path / "words", "classify", *examples, *fields, "--json")
    assert done.code == 0, done.err
    assert done.json["metrics"]["examples"] == 10
    assert firth("evaluate", tmp_path / "linear", "task", path, "--json").json["accuracy"] == 1.0
