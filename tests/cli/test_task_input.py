"""Invalid files in firth finetune, predict and evaluate: a message of one sentence, never a traceback."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.command import Outcome, assert_refused, firth
from tests.fit.small_nets import small_bert

CLASSIFY = "label\ttext_a\n" + "".join(f"{'pos' if n % 2 else 'neg'}\tw{n % 9} w{n % 7}\n" for n in range(8))
JSONL = '{"label": "pos", "text": "w1"}\n{"label": "neg", "text": "w2"}\n'
TAG = "w1\tB-X\nw2\tI-X\nw3\tO\n\nw4\tO\nw5\tB-Y\n\n" * 3
CHOICE = "".join(
    json.dumps({"context": f"w{n}", "question": "w2", "choices": ["w1", "w3"], "label": n % 2}) + "\n" for n in range(4)
)
SIMILAR = "label\ttext_a\ttext_b\n" + "".join(f"{n / 7:.3f}\tw{n % 20}\tw{n % 13}\n" for n in range(30))


def squad(*answers: tuple[str, int]) -> str:
    questions = [
        {"id": str(number), "question": "w5", "answers": [{"text": answer, "answer_start": start}]}
        for number, (answer, start) in enumerate(answers)
    ]
    return json.dumps({"data": [{"paragraphs": [{"context": "w1 w2 w3 w4", "qas": questions}]}]})


GOOD = {
    "classify": ("good.tsv", CLASSIFY),
    "tag": ("good.txt", TAG),
    "span": ("good.json", squad(("w2", 3), ("w3", 6))),
    "choice": ("good.jsonl", CHOICE),
    "pair": ("good.pairs.tsv", SIMILAR),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a model and a valid file for each task."""
    folder = tmp_path_factory.mktemp("models")
    with small_bert(folder, "1ktok", layers=1, length=24):
        for task, (name, content) in GOOD.items():
            write(folder / name, content)
            done = run_finetune(folder, task, folder / name, folder / task)
            assert done.code == 0, done.err
        yield folder


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def run_finetune(folder: Path, task: str, path: Path, out: Path, *options: object, dev: Path | None = None) -> Outcome:
    files = ("--train", path, "--dev", dev or folder / GOOD[task][0], "-o", out, "--threads", 1)
    return firth("finetune", folder / "bert", task, *files, "--set", "learning.epochs=1", "--json", *options)


BINARY = bytes(range(256)) * 9
# Task, file name, content; messages of finetune, predict and evaluate, "" where they succeed.
BAD: list[tuple[str, str, str | bytes, str, str, str]] = [
    ("classify", "no.tsv", "text_a\tx\nw1\tw2\n", "none that holds the label", "", "none that holds the label"),
    ("classify", "j.jsonl", JSONL + '{"label": 3, "te\n', *["j.jsonl, line 3 is not JSON"] * 3),
    ("classify", "fields.tsv", CLASSIFY + "pos\tw1\tw2\n", *["fields.tsv, line 10: there are 3 fields"] * 3),
    ("classify", "quotes.csv", '"label","text_a"\n"pos","w1\n', *["quotes.csv, line 2 is not CSV"] * 3),
    ("classify", "empty.tsv", "", *["texts in {path}: give TSV"] * 3),
    ("classify", "blank.tsv", "\n\n \n", "texts in {path}: give TSV", "", "texts in {path}: give TSV"),
    ("classify", "binary.tsv", BINARY, *["{path} looks like a binary file"] * 3),
    ("classify", "one.tsv", "label\ttext_a\nx\tw1\nx\tw2\n", "one.tsv: the examples have one label only (x)", "", ""),
    ("tag", "t.txt", TAG + "w1\tO\nw2\n", *["t.txt, line 23: there must be 2 fields, not 1 field"] * 3),
    ("tag", "t.jsonl", '{"words": ["w1", "w2"], "tags": ["O"]}\n', "line 1 has 2 words and 1 tags", "", "and 1 tags"),
    ("tag", "s.json", squad(("w2", 3)), *["s.json"] * 3),
    ("span", "s.json", '{"data": [\n{]}', *["s.json, line 2 is not JSON"] * 3),
    (
        "span",
        "none.json",
        squad(("dog", 0)),
        "the answer 'dog' is not in the passage",
        "",
        "the answer 'dog' is not in the passage",
    ),
    ("choice", "c.jsonl", '{"context": "w1", "choices": ["w1"], "label": 0}\n', *["line 1 has 1 choices"] * 3),
    ("choice", "c.jsonl", CHOICE.replace('"label": 1', '"label": 2'), "line 2 has the label 2", "", "the label 2"),
    *(
        ("pair", "n.tsv", SIMILAR + f"{number}\tw1\tw2\n", message, "", message)
        for number in ("nan", "-inf", "1e300")
        for message in [f"n.tsv, line 32: the label '{number}' is out of range for a number"]
    ),
    ("pair", "n.jsonl", '{"label": NaN, "text_a": "w1", "text_b": "w2"}\n', "line 1: the label 'nan'", "", "line 1"),
    (
        "pair",
        "n.tsv",
        SIMILAR + "3,5\tw1\tw2\n",
        "line 32: the label '3,5' is not a number",
        "",
        "'3,5' is not a number",
    ),
    ("pair", "n.tsv", CLASSIFY, *["none that holds the text_b: this looks like classify"] * 3),
]


@pytest.mark.parametrize("case", range(len(BAD)), ids=lambda case: f"{BAD[case][0]}-{BAD[case][1]}-{case}")
def test_the_error_names_the_fault(case: int, folder: Path, tmp_path: Path) -> None:
    task, name, content, *messages = BAD[case]
    path = write(tmp_path / name, content)
    verbs: list[Callable[[], Outcome]] = [
        lambda: run_finetune(folder, task, path, tmp_path / "0"),
        lambda: firth("predict", folder / task, path, "-o", tmp_path / "1", "--json"),
        lambda: firth("evaluate", folder / task, "task", path, "--json"),
    ]
    for number, (verb, message) in enumerate(zip(verbs, messages, strict=True)):
        done = verb()
        if message:
            assert_refused(done, message.format(path=path))
            assert not (tmp_path / str(number)).exists()
        else:
            assert done.code == 0, done.err
            assert done.json


@pytest.mark.parametrize(
    ("task", "name", "content", "note"),
    [
        ("classify", "j.jsonl", JSONL + '{"label": 3, "te\n', "1 line was skipped: {path}, line 3 is not JSON"),
        ("classify", "f.tsv", CLASSIFY + "pos\n" * 2, "2 lines were skipped: the first is {path}, line 10: there is 1"),
        ("tag", "t.txt", TAG + "w1\n\n", "1 sentence was skipped: {path}, line 22"),
        ("choice", "c.jsonl", CHOICE + "{}\n", "1 line was skipped: {path}, line 5"),
        ("pair", "n.tsv", SIMILAR + "nan\tw1\tw2\n\tw1\tw2\n", "2 lines were skipped: the first is {path}, line 32"),
    ],
)
def test_skipped_examples_are_counted(
    task: str, name: str, content: str, note: str, folder: Path, tmp_path: Path
) -> None:
    path = write(tmp_path / name, content)
    for done in (
        run_finetune(folder, task, path, tmp_path / "new", "--skip-bad"),
        firth("evaluate", folder / task, "task", path, "--json", "--skip-bad"),
    ):
        assert done.code == 0, done.err
        assert note.format(path=path) in done.err
    done = firth("predict", folder / task, path, "--json", "--skip-bad")
    assert done.code == 0, done.err
    assert (note.format(path=path) in done.err) == (task != "pair"), "predict ignores labels"


def test_labels_that_were_not_trained_on(folder: Path, tmp_path: Path) -> None:
    labels, tags = write(tmp_path / "l.tsv", CLASSIFY + "other\tw1\n"), write(tmp_path / "t.txt", TAG + "w1\tB-Z\n")
    for task, path, label, line in (("classify", labels, "other", 10), ("tag", tags, "B-Z", 22)):
        done = run_finetune(folder, task, folder / GOOD[task][0], tmp_path / "new", dev=path)
        assert_refused(done, f"{path}, line {line}: the label '{label}' is not among those of the training examples")
        done = firth("evaluate", folder / task, "task", path, "--json")
        assert done.code == 0, done.err
        assert f"labels unknown to the model, for which every prediction counts as wrong: {label}" in done.err
    done = run_finetune(folder, "classify", folder / "good.tsv", tmp_path / "skipped", "--skip-bad", dev=labels)
    assert done.code == 0, done.err
    assert done.json["metrics"]["dev"]["examples"] == 8
    assert "1 examples were left out, whose labels the training examples do not have." in done.err


def test_a_fine_tuned_model_is_no_plain_classifier(folder: Path, tmp_path: Path) -> None:
    """Of the suite classify; the message names the right one."""
    file = tmp_path / "test.tsv"
    file.write_text(CLASSIFY)
    assert_refused(firth("evaluate", folder / "classify", "classify", file), "the suite task")


def test_texts_without_words(folder: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "e.tsv", CLASSIFY + "pos\t\nneg\t \n")
    assert "2 examples were without text and left out." in run_finetune(folder, "classify", path, tmp_path / "new").err
    done = firth("evaluate", folder / "classify", "task", path, "--json")
    assert (done.json["examples"], "2 examples were without text and left out." in done.err) == (8, True)
    done = firth("predict", folder / "classify", path, "--json")
    assert (done.json["examples"], "2 examples were without text." in done.err) == (10, True)


def test_invalid_tag_sequences(folder: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "t.txt", TAG + "w1\tO\nw2\tI-X\n")
    note = f"1 tag was against the rules of BIO and read as the beginning or end of an entity: I-X after O in the \
sentence of {path}, line 22."
    assert note in run_finetune(folder, "tag", path, tmp_path / "new").err
    assert note in firth("evaluate", folder / "tag", "task", path, "--json").err


def test_answers_at_wrong_offsets(folder: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "s.json", squad(("w2", 3), ("dog", 1), ("w3", 1)))
    tuned = run_finetune(folder, "span", path, tmp_path / "new")
    measured = firth("evaluate", folder / "span", "task", path, "--json")
    for done in (tuned, measured):
        assert done.code == 0, done.err
        assert f"1 question was skipped: {path}, question 2: the answer 'dog' is not in the passage" in done.err
        assert f"1 question was repaired, whose answer is not at answer_start: {path}, question 3" in done.err
    assert (tuned.json["metrics"]["examples"], measured.json["examples"]) == (2, 2)
    assert firth("predict", folder / "span", path, "--json").json["examples"] == 3


def test_varying_numbers_of_choices(folder: Path, tmp_path: Path) -> None:
    rows = [{"context": "w1", "choices": [f"w{one}" for one in range(count)], "label": 1} for count in (2, 3, 5)]
    path = write(tmp_path / "c.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    predictions = firth("predict", folder / "choice", path, "--json").json["predictions"]
    assert [len(row["probabilities"]) for row in predictions] == [2, 3, 5]
    assert [sum(row["probabilities"]) for row in predictions] == pytest.approx([1, 1, 1])
    assert firth("evaluate", folder / "choice", "task", path, "--json").json["examples"] == 3
    assert run_finetune(folder, "choice", path, tmp_path / "new").code == 0


@pytest.mark.parametrize("verb", ["predict", "evaluate"])
def test_encoding_and_line_ends_do_not_matter(verb: str, folder: Path, tmp_path: Path) -> None:
    suite = ("task",) if verb == "evaluate" else ()
    expected = firth(verb, folder / "classify", *suite, folder / "good.tsv", "--json").json
    for number, content in enumerate(
        (
            CLASSIFY.replace("\n", "\r\n").encode(),
            b"\xef\xbb\xbf" + CLASSIFY.encode(),
            b"\xef\xbb\xbf" + CLASSIFY.replace("\n", "\r\n").encode(),
            CLASSIFY.encode("utf-16"),
            CLASSIFY.rstrip("\n").encode(),
        )
    ):
        path = write(tmp_path / f"{number}.tsv", content)
        assert firth(verb, folder / "classify", *suite, path, "--json").json == expected


def test_quotes_are_characters(folder: Path, tmp_path: Path) -> None:
    """An opening quote does not swallow the lines after it."""
    path = write(tmp_path / "q.tsv", 'label\ttext_a\npos\t"w1 w2\nneg\tw3 "w4"\npos\tw1"\n')
    assert firth("evaluate", folder / "classify", "task", path, "--json").json["examples"] == 3
    assert run_finetune(folder, "classify", path, tmp_path / "new").json["metrics"]["examples"] == 3


def test_other_encodings(folder: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "l.tsv", CLASSIFY.encode() + "pos\tcafé déjà\n".encode("latin-1"))
    for done in (
        run_finetune(folder, "classify", path, tmp_path / "new"),
        firth("evaluate", folder / "classify", "task", path, "--json"),
        firth("predict", folder / "classify", path, "--json"),
    ):
        assert done.code == 0, done.err
        assert f"{path} was read as latin-1." in done.err
    assert_refused(
        firth("predict", folder / "classify", path, "--encoding", "utf-8", "--json"), path, "not at byte 100"
    )
    assert firth("predict", folder / "classify", path, "--encoding", "klingon", "--json").code == 2


def test_missing_files_and_untuned_models(folder: Path, tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere.tsv", tmp_path):
        assert_refused(run_finetune(folder, "classify", path, tmp_path / "new"), path)
        assert_refused(firth("predict", folder / "classify", path, "--json"), path)
        assert_refused(firth("evaluate", folder / "classify", "task", path, "--json"), path)
    assert_refused(firth("predict", folder / "bert", folder / "good.tsv", "--json"), "predicts no labels")
    assert_refused(
        firth("evaluate", folder / "bert", "task", folder / "good.tsv", "--json"), "was not fine-tuned for a task"
    )
