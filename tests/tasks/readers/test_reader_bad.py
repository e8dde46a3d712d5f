"""Labelled files with something wrong in them: one sentence that says what, where, and what to do."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from firth.errors import CorpusError, EncodingError
from firth.tasks.readers.reader import read_items, read_task

SQUAD = '{"data": [{"paragraphs": [{"context": "a cat", "qas": [{"question": "q", "answers": [%s]}]}]}]}'
TREE = "1\ta\ta\tX\tY\t_\t0\tx\t_\t_\n"
TABLE = "label\ttext_a\n1\tone\n"
PAIRS = "label\ttext_a\ttext_b\n1\tone\ttwo\n"
WORDS = "EU\tB-ORG\nsays\tO\n\nhe\tO\n"

# What is wrong with the whole file, so that skipping is no help: task, name, text, what is said.
FILES: list[tuple[str, str, str, str]] = [
    ("classify", "a.tsv", "id\ttext_a\n1\tone\n", "columns id, text_a, and none that holds the label: name it label"),
    ("classify", "a.tsv", "label\tbody\n1\tone\n", "label, body, and none that holds the text: name it text_a"),
    (
        "classify",
        "a.tsv",
        PAIRS,
        r"a second text, text_b: this looks like pair: use firth\.finetune\(MODEL, 'pair', \.\.\.\)",
    ),
    (
        "classify",
        "a.tsv",
        "en\tde\nx\ty\n",
        "en, de, and none that holds the text or the label: name them text_a",
    ),
    ("classify", "a.txt", WORDS, r"this looks like tag: use firth\.finetune\(MODEL, 'tag', \.\.\.\)"),
    ("classify", "a.json", json.dumps({"data": []}, indent=1), "this looks like span"),
    ("classify", "a.csv", "stars,body\n1,one\n", "stars, body, and none that holds the text or the label: name them"),
    (
        "classify",
        "a.csv",
        "label,body\n1,one\n",
        r"none that holds the text: name it text_a, or by columns=\['text",
    ),
    ("generate", "a.csv", "english\none\n", "none that holds the source or the target"),
    ("tag", "a.csv", "label,text_a\n1,one\n", "has the columns label, text_a: this looks like classify"),
    ("classify", "a.tsv", "", "there are no labelled texts in .*a.tsv: give TSV or CSV"),
    ("classify", "a.tsv", "label\ttext_a\n", "there are no labelled texts"),
    ("classify", "a.tsv", "label\ttext_a\n1\t \n", "there are no labelled texts"),
    ("pair", "a.tsv", TABLE, "none that holds the text_b: this looks like classify"),
    (
        "pair",
        "a.tsv",
        "text_a\ttext_b\none\ttwo\n",
        r"none that holds the label: name it label, or by columns=\['label=NAME'\]",
    ),
    ("pair", "a.txt", "one text\nanother\n", "cannot be read for pair: give TSV"),
    ("pair", "a.txt", "__label__x one\n", "this looks like classify"),
    ("tag", "a.tsv", TABLE, "this looks like classify"),
    ("tag", "a.tsv", PAIRS, "this looks like pair"),
    ("tag", "a.txt", "the cat sat\nit ran far off\n", "there are no tags in .*a.txt: give a word and its tag"),
    ("tag", "a.txt", "a\tX\n" * 100_001, "line 1 begins a sentence of more than 100,000 words: put a blank line"),
    ("tag", "a.txt", "", "there are no tags"),
    ("span", "a.json", '{"data": [\n{]}', "a.json, line 2 is not JSON .*fetch or write it again"),
    ("span", "a.json", '{"data": 3}', "has no list in 'data': give JSON as SQuAD has it"),
    ("span", "a.json", '{"data": [3]}', "article 1 of .*a.json has no list in 'paragraphs'"),
    ("span", "a.json", '{"data": [{"paragraphs": [3]}]}', "is no object"),
    ("span", "a.json", '{"data": [{"paragraphs": [{}]}]}', "has no list in 'qas'"),
    ("span", "a.json", '{"data": [{"paragraphs": [{"qas": [3]}]}]}', "is no object"),
    ("span", "a.json", "[" * 100_000, "cannot be read as JSON"),
    ("span", "a.json", "", "there are no labelled texts"),
    ("span", "a.tsv", PAIRS, "is not JSON: this looks like pair"),
    ("span", "a.txt", "plain text\n", "is not JSON: give JSON as SQuAD has it"),
    ("choice", "a.tsv", TABLE, "cannot be read for choice: this looks like classify"),
    ("choice", "a.txt", "plain\n", "cannot be read for choice: give JSONL"),
    ("generate", "a.tsv", TABLE, "this looks like classify"),
    ("generate", "a.tsv", PAIRS, "this looks like pair"),
    ("generate", "a.tsv", "I try.\tIch auch.\n", "the first line of .*a.tsv looks like text: write the names"),
    (
        "generate",
        "a.tsv",
        "a\tb\tc\n1\t2\t3\n",
        r"none that holds the source or the target: name them source and target, or by columns=\['source=NAME'\]",
    ),
    ("generate", "a.txt", "plain\n", "cannot be read for generate: give TSV or CSV with two columns"),
]

GOOD = {
    "classify.tsv": TABLE,
    "classify.txt": "__label__x one\n",
    "classify.csv": "label,text_a\n1,one\n",
    "classify.jsonl": '{"label": 1, "text": "a"}\n',
    "pair.tsv": PAIRS,
    "pair.jsonl": '{"label": 1, "text_a": "a", "text_b": "b"}\n',
    "tag.txt": WORDS,
    "tag.conll": "EU B-ORG\nsays O\n\nhe O\nhe O\nhe O\n",
    "tag.slashed": "a/X b/Y\n" * 200,
    "tag.conllu": TREE,
    "tag.jsonl": '{"words": ["a"], "tags": ["X"]}\n',
    "span.jsonl": '{"context": "a", "question": "q", "answers": []}\n',
    "choice.jsonl": '{"context": "c", "choices": ["a", "b"], "label": 0}\n',
    "generate.tsv": "en\tde\na\tb\n",
    "generate.jsonl": '{"source": "a", "target": "b"}\n',
}

# What is wrong with one example after good ones: task and kind of file, the bad example, what is said.
EXAMPLES: list[tuple[str, str, str]] = [
    ("classify.tsv", "\ttwo\n", "line 3: there is no label: give TSV"),
    ("classify.tsv", "1\tone\ttwo\n", "line 3: there are 3 fields where the first line names 2: write spaces"),
    ("classify.tsv", "one\n", "line 3: there is 1 field where the first line names 2"),
    ("classify.csv", "1,one,two\n", "line 3: there are 3 fields where the first line names 2: put texts that hold ','"),
    ("classify.csv", ',"two"\n', "line 3: there is no label"),
    ("classify.csv", '1,"two"x\n', "line 3 is not CSV .*: write a double quote inside a field twice"),
    ("classify.csv", '1,"two\n2,three\n', "line 3 is not CSV .a quoted field does not end"),
    ("classify.txt", "no label\n", "line 2: there is no label"),
    ("classify.txt", " ".join(f"__label__{n}" for n in range(1001)) + " x\n", "1001 labels are too many"),
    ("classify.jsonl", '{"label": 1\n', "classify.jsonl, line 2 is not JSON .*: write one JSON object a line"),
    ("classify.jsonl", "[" * 100_000 + "\n", "line 2 is not JSON"),
    ("classify.jsonl", "[1]\n", "line 2 is not a JSON object"),
    (
        "classify.jsonl",
        '{"label": 1, "texts": "a"}\n',
        "no text in 'text': its fields are label, texts; .*columns=",
    ),
    ("classify.jsonl", '{"label": 1, "text": 3}\n', "line 2 has no text in 'text'"),
    ("classify.jsonl", '{"text": "b"}\n', "line 2: there is no label in 'label'"),
    ("classify.jsonl", '{"label": "", "text": "b"}\n', "line 2: there is no label"),
    ("classify.jsonl", '{"label": {"a": 1}, "text": "b"}\n', "neither a name nor a number"),
    ("classify.jsonl", '{"label": 1, "text": "\\ud800"}\n', "line 2 holds half of a surrogate"),
    ("classify.jsonl", '{"label": 1, "text": "a\\u0000"}\n', "line 2 holds a NUL"),
    ("classify.jsonl", '{"context": "", "question": "", "choices": [], "label": 0}\n', "looks like choice"),
    ("classify.jsonl", '{"label": 1, "text_a": "a", "text_b": "b"}\n', "looks like pair"),
    ("pair.tsv", "1\tone\n", "line 3: there are 2 fields where the first line names 3"),
    ("pair.jsonl", '{"label": [1, 2], "text_a": "a", "text_b": "b"}\n', "2 labels"),
    ("pair.jsonl", '{"label": 1, "text_a": "a"}\n', "line 2 has no text in 'text_b'"),
    ("tag.txt", "\nhe\tO\nsays\n", "line 7: there must be 2 fields, not 1 field: give each word one tag"),
    ("tag.txt", "\nhe\tX\tO\n", "line 6: there must be 2 fields, not 3 fields"),
    ("tag.txt", "\nhe\t\n", "line 6 begins a sentence in which a word or a tag is empty"),
    ("tag.conll", "\nhe\n", "line 8: there must be 2 fields"),
    ("tag.slashed", "a/X b\n", "line 201: 'b' has no tag: write each word as word/TAG"),
    ("tag.conllu", "\n1\ta\tb\n", "line 3 has 3 columns where CoNLL-U has 10"),
    ("tag.conllu", "\n" + TREE.replace("X", "_"), "line 3 has no tag in the column upos: choose another"),
    ("tag.jsonl", '{"words": ["a", "b"], "tags": ["X"]}\n', "line 2 has 2 words and 1 tags"),
    ("tag.jsonl", '{"words": [], "tags": []}\n', "line 2 has no words"),
    ("tag.jsonl", '{"words": ["a"], "tags": [""]}\n', "line 2 has an empty tag"),
    ("tag.jsonl", '{"words": "a b", "tags": "X Y"}\n', "no list of texts in 'words'"),
    ("tag.jsonl", '{"words": ["a"]}\n', "there is no tag in 'tags'"),
    ("span.jsonl", '{"context": "a", "question": "q"}\n', "there are no answers"),
    ("span.jsonl", '{"context": " ", "question": "q", "answers": []}\n', "line 2 has an empty passage"),
    ("span.jsonl", '{"context": "a", "question": "q", "answers": [3]}\n', "not a text with its offset"),
    ("span.jsonl", '{"context": "a", "question": "q", "answers": 3}\n', "not a text with its offset"),
    ("span.jsonl", '{"context": "a", "question": "q", "answers": {"text": ["a"]}}\n', "not a text with its offset"),
    ("choice.jsonl", '{"context": "c", "label": 0}\n', "no list of texts in 'choices'"),
    ("choice.jsonl", '{"context": "c", "choices": ["a"], "label": 0}\n', "1 choices or an empty one"),
    ("choice.jsonl", '{"context": "c", "choices": ["a", "b"], "label": 2}\n', "label 2: give the index .*from 0 to 1"),
    ("choice.jsonl", '{"context": "c", "choices": ["a", "b"], "label": -1}\n', "the label -1"),
    ("choice.jsonl", '{"context": "c", "choices": ["a", "b"], "label": "b"}\n', "the label 'b'"),
    ("choice.jsonl", '{"context": "c", "choices": ["a", "b"]}\n', "there is no label"),
    ("choice.jsonl", '{"choices": ["a", "b"], "label": 1}\n', "neither a context nor a question"),
    ("generate.tsv", "a\tb\tc\n", "line 3: there are 3 fields"),
    ("generate.jsonl", '{"source": "a"}\n', "line 2: there is no target in 'target'"),
    ("generate.jsonl", '{"label": 1, "text": "b"}\n', "line 2 has no text in 'source': this looks like classify"),
]


def write(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_bytes(text.encode())
    return folder / name


def read(task: str, path: Path, **options: Any) -> int:
    return sum(1 for _ in read_task(task, path, **options))


@pytest.mark.parametrize("case", range(len(FILES)), ids=lambda case: f"{FILES[case][0]}-{case}")
def test_a_file_that_cannot_be_read(case: int, tmp_path: Path) -> None:
    task, name, text, message = FILES[case]
    path = write(tmp_path, name, text)
    for skip_bad in (False, True):
        with pytest.raises(CorpusError, match=message) as error:
            read(task, path, skip_bad=skip_bad)
        assert name in str(error.value)
        assert str(error.value).endswith(".")
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("case", range(len(EXAMPLES)), ids=lambda case: f"{EXAMPLES[case][0]}-{case}")
def test_an_example_that_cannot_be_used(case: int, tmp_path: Path) -> None:
    name, bad, message = EXAMPLES[case]
    task, kind = name.split(".")
    alone = read(task, write(tmp_path, name, GOOD[name]))
    path = write(tmp_path, name, GOOD[name] + bad)
    with pytest.raises(CorpusError, match=message) as error:
        read(task, path)
    sentence = str(error.value)
    assert str(path) in sentence
    assert sentence.endswith(".")
    assert "\n" not in sentence
    reading = read_task(task, path, skip_bad=True)
    assert len(list(reading)) == alone
    assert (reading.counts.read, reading.counts.skipped) == (alone, 1)
    unit = "sentence" if task == "tag" and kind != "jsonl" else "line"
    assert reading.notes()[0] == f"1 {unit} was skipped: {sentence}"


def test_where_all_is_bad_the_first_fault_is_told(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", "no label\nnone\n")
    with pytest.raises(
        CorpusError, match=r"nothing in .*a.txt can be used; the first error: .*line 1: there is no label"
    ):
        read("classify", path, skip_bad=True)
    path = write(tmp_path, "b.json", SQUAD % '{"text": "dog", "answer_start": 1}')
    with pytest.raises(CorpusError, match=r"nothing in .*b.json can be used; .*question 1: the answer 'dog'"):
        read("span", path)


def test_skipped_lines_are_counted_and_the_first_is_told(tmp_path: Path) -> None:
    path = write(tmp_path, "a.tsv", TABLE + "1\n1\t2\t3\n1\ttwo\n")
    reading = read_task("classify", path, skip_bad=True)
    assert len(list(reading)) == 2
    (note,) = reading.notes()
    assert note.startswith(f"2 lines were skipped: the first is {path}, line 3: there is 1 field")


def test_tags_against_the_scheme_are_told(tmp_path: Path) -> None:
    text = "a\tB-X\nb\tI-X\n\na\tO\nb\tI-X\n\na\tB-Y\nb\tI-X\n"
    path = write(tmp_path, "a.txt", text)
    reading = read_task("tag", path)
    assert len(list(reading)) == 3
    assert reading.notes() == [
        "2 tags were against the rules of BIO and read as the beginning or end of an entity: "
        f"the first is I-X after O in the sentence of {path}, line 4."
    ]
    for sound in ("a\tI-X\nb\tO\n", "a\tS-X\nb\tO\n", "a\tNOUN\nb\tI-X\n", "a\tB-X\nb\tO\n"):
        reading = read_task("tag", write(tmp_path, "b.txt", sound))
        list(reading)
        assert reading.notes() == []


def test_columns_that_do_not_exist(tmp_path: Path) -> None:
    table, words = write(tmp_path, "a.tsv", TABLE), write(tmp_path, "a.txt", WORDS)
    tree, slashed = write(tmp_path, "a.conllu", TREE), write(tmp_path, "b.txt", "a/X b/Y\n")
    for task, path, fields, message in (
        ("classify", table, {"label": "class"}, "none that holds the label: name it class"),
        ("tag", words, {"tag": "3"}, "has no column '3': give its number, 1 to 2, or segment"),
        ("tag", words, {"word": "form"}, "has no column 'form'"),
        ("tag", tree, {"tag": "xpoz"}, "did you mean 'xpos'"),
        ("tag", slashed, {"tag": "xpos"}, "says nothing about such a file"),
        ("tag", slashed, {"word": "2"}, "leave it out"),
    ):
        with pytest.raises(CorpusError, match=message):
            read(task, path, columns=fields)


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_bytes(bytes(range(256)) * 9)
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    packed = gzip.compress(
        ("label\ttext_a\n" + "".join(f"{n}\t{os.urandom(9).hex()}\n" for n in range(50_000))).encode()
    )
    (tmp_path / "b.tsv.gz").write_bytes(packed[: len(packed) // 2])
    (tmp_path / "c.json.gz").write_bytes(gzip.compress(json.dumps({"data": []}).encode())[:-4])
    (tmp_path / "d.json").write_bytes(b'{"data": "' + "好".encode() * 9 + b'\xff"}')
    for skip_bad in (False, True):
        with pytest.raises(EncodingError, match="binary"):
            read("classify", tmp_path / "a.tsv", skip_bad=skip_bad)
        with pytest.raises(CorpusError, match="Parquet"):
            read("classify", tmp_path / "a.parquet", skip_bad=skip_bad)
        with pytest.raises(CorpusError, match=r"b\.tsv\.gz is damaged .*it ends too early"):
            read("classify", tmp_path / "b.tsv.gz", skip_bad=skip_bad)
        with pytest.raises(CorpusError, match=r"c\.json\.gz is damaged"):
            read("span", tmp_path / "c.json.gz", skip_bad=skip_bad)
        with pytest.raises(EncodingError):
            read("span", tmp_path / "d.json", skip_bad=skip_bad)


ITEMS: list[tuple[str, Any, str]] = [
    ("classify", "a text alone", "item 1: there is no label"),
    ("classify", ("x", 3), "item 1 has no text in 'text'"),
    ("classify", ("x", "y", "z"), "item 1 is not a pair of a label, or a list of labels, and a text: give such items"),
    ("classify", 3, "item 1 is not a pair"),
    ("classify", (None, "x"), "there is no label"),
    ("classify", ({}, "x"), "neither a name nor a number"),
    ("classify", ("x", "\ud800"), "item 1 holds half"),
    ("pair", ("x", "y"), "there is no label"),
    ("pair", "x", "item 1 is not a label and two texts"),
    ("tag", (["a"], ["X", "Y"]), "1 words and 2 tags"),
    ("tag", ["a", "b"], "there is no tag in 'tags'"),
    ("tag", "", "no words"),
    ("span", ("p", "q", "x"), "nothing in the items given can be used"),
    ("span", ("p", "q", 3), "not a text with its offset"),
    ("choice", ("c", "q", ["x", "y"], 2), "the label 2"),
    ("choice", ("c", "q", ["x", "y"], True), "the label True"),
    ("generate", ("s", None), "there is no target"),
]


@pytest.mark.parametrize("case", range(len(ITEMS)), ids=lambda case: f"{ITEMS[case][0]}-{case}")
def test_items_that_cannot_be_used(case: int) -> None:
    task, item, message = ITEMS[case]
    with pytest.raises(CorpusError, match=message):
        list(read_items(task, [item]))


def test_bad_items_can_be_skipped() -> None:
    reading = read_items("classify", [("x", "one"), 3, ("y", "two")], skip_bad=True)
    assert len(list(reading)) == 2
    assert reading.notes()[0].startswith("1 item was skipped: item 2 is not a pair")
    with pytest.raises(CorpusError, match="no labelled texts in the items given"):
        list(read_items("pair", []))


@pytest.mark.parametrize("task", ["pair", "choice", "span"])
@pytest.mark.parametrize("content", ["\n\n", "  \n\t\n", "\u200b\n"])
def test_blank_lines_are_no_examples_of_several_texts(task: str, content: str, tmp_path: Path) -> None:
    """Of a task whose examples are texts they would be empty ones, and predictions of these."""
    path = tmp_path / "blank.txt"
    path.write_text(content, encoding="utf-8")
    for labelled in (False, True):
        with pytest.raises(CorpusError):
            list(read_task(task, path, labelled=labelled))
