"""Error analysis: exact numbers of hand-made predictions, the page, and the command."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from firth.apply.predict import predict_labelled
from firth.fit.finetune import finetune
from firth.fit.train import train
from firth.metrics.measure import label_table, measure
from firth.report.task_report import analyse, excerpt, most_frequent, rare_words, read_sizes, render_task_page
from firth.tasks.examples import (
    Answer,
    ChoiceExample,
    GenerateExample,
    Origin,
    SpanExample,
    TagExample,
    TextExample,
    without_labels,
)
from firth.text.corpus import read_corpus
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.train import train_tokenizer
from tests.command import firth

WORDS = train_tokenizer(TokenizerRecipe(model="words", min_count=1), read_corpus([["good bad film a the ."]]))
CHARS = train_tokenizer(TokenizerRecipe(model="chars", min_count=1), read_corpus([["我们 good"]]))


def labelled(text: str, label: str, line: int) -> TextExample:
    return TextExample(text, None, (label,), Origin("data/test.tsv", line))


EXAMPLES = [
    labelled("good film", "1", 2),
    labelled("a bad film .", "0", 3),
    labelled("good good good good film film film film", "1", 4),
    labelled("the zebra", "0", 5),
]
ANSWERS = [
    {"label": "1", "probability": 0.9},
    {"label": "1", "probability": 0.6},
    {"label": "0", "probability": 0.8},
    {"label": "0", "probability": 0.7},
]


def classified() -> dict[str, Any]:
    return analyse("classify", EXAMPLES, ANSWERS, WORDS)


def test_labels_by_hand() -> None:
    found = classified()
    assert found["score"] == {"name": "accuracy", "mean": 0.5, "best": 1.0}
    assert found["confusion"] == {"labels": ["0", "1"], "counts": [[1, 1], [1, 1]], "others": 0}
    assert found["labels"]["by_label"]["1"] == {
        "precision": 0.5,
        "recall": 0.5,
        "f1": 0.5,
        "support": 2,
        "predicted": 2,
    }
    assert found["wrong"] == 2
    assert found["errors"] == [
        {"where": "test.tsv, line 4", "text": EXAMPLES[2].text, "gold": "1", "predicted": "0", "probability": 0.8},
        {"where": "test.tsv, line 3", "text": EXAMPLES[1].text, "gold": "0", "predicted": "1", "probability": 0.6},
    ]


def test_length_and_rare_words_by_hand() -> None:
    found = classified()
    assert found["by_length"] == [
        {"from": 0, "below": 8, "examples": 3, "score": 2 / 3},
        {"from": 8, "below": 16, "examples": 1, "score": 0.0},
    ]
    # "zebra" is not known: half the words of the last example
    assert found["by_rare"] == [
        {"from": 0, "below": 1, "examples": 3, "score": 1 / 3},
        {"from": 41, "below": None, "examples": 1, "score": 1.0},
    ]


def test_percentages_of_rare_words_are_rounded_up() -> None:
    examples = [labelled("zebra" + " good" * known, "1", 1) for known in (19, 18)]
    answers = [{"label": "1", "probability": 0.9}, {"label": "0", "probability": 0.9}]
    assert analyse("classify", examples, answers, WORDS)["by_rare"] == [
        {"from": 1, "below": 6, "examples": 1, "score": 1.0},  # one of 20
        {"from": 6, "below": 11, "examples": 1, "score": 0.0},  # one of 19
    ]


def test_several_labels() -> None:
    examples = [TextExample("a", None, labels) for labels in (("x", "y"), (), ("y",))]
    answers = [{"labels": labels, "probabilities": {}} for labels in (["x"], [], ["x"])]
    found = analyse("classify", examples, answers, WORDS)
    assert found["score"]["mean"] == pytest.approx((2 / 3 + 1 + 0) / 3)
    assert found["confusion"] is None
    assert found["labels"]["by_label"]["x"] == {
        "precision": 0.5,
        "recall": 1.0,
        "f1": 2 / 3,
        "support": 1,
        "predicted": 2,
    }
    assert [(one["gold"], one["predicted"], one["score"]) for one in found["errors"]] == [
        ("y", "x", 0.0),
        ("x, y", "x", 2 / 3),
    ]


def test_numbers_are_worse_the_further_they_are() -> None:
    examples = [TextExample("a", "the", (label,)) for label in ("1.5", "2.0", "3")]
    found = analyse("pair", examples, [{"score": 1.0}, {"score": 4.0}, {"score": 3.0}], WORDS)
    assert found["score"] == {"name": "absolute error", "mean": 2.5 / 3, "best": 0.0}
    assert [(one["gold"], one["predicted"], one["score"]) for one in found["errors"]] == [
        ("2.0", "4.000", 2.0),
        ("1.5", "1.000", 0.5),
    ]
    assert found["errors"][0]["text"] == "a\nthe"
    assert found["labels"] is None


def test_tags() -> None:
    sentence = TagExample(("Ann", "saw", "New", "York"), ("B-PER", "O", "B-LOC", "I-LOC"))
    found = analyse("tag", [sentence], [{"tags": ["B-PER", "O", "B-LOC", "O"], "probabilities": [0.9] * 4}], WORDS)
    assert found["score"]["mean"] == 0.5  # one entity of two is found, and one of two predictions is correct
    assert (found["errors"][0]["gold"], found["errors"][0]["predicted"]) == ("York/I-LOC", "York/O")
    assert found["labels"]["by_label"]["O"]["precision"] == 0.5
    plain = TagExample(("a", "b"), ("DET", "NOUN"))
    assert analyse("tag", [plain], [{"tags": ["DET", "VERB"]}], WORDS)["score"]["mean"] == 0.5


def test_segmentation_shows_the_words() -> None:
    sentence = TagExample(tuple("我们好"), ("B", "E", "S"), spaced=False)
    found = analyse("tag", [sentence], [{"tags": ["S", "S", "S"], "probabilities": [1, 1, 1]}], CHARS)
    error = found["errors"][0]
    assert (error["text"], error["gold"], error["predicted"]) == ("我们好", "我们 好", "我 们 好")
    assert error["score"] == pytest.approx(2 * 1 / (2 + 3))


def test_spans_choices_and_texts() -> None:
    span = SpanExample("the film is bad", "what is bad", (Answer("the film", 0), Answer("film", 4)))
    none = SpanExample("the film is bad", "who", ())
    answers = [{"answer": "", "start": 0, "none": 1.0}, {"answer": "bad", "start": 12, "none": -3.0}]
    found = analyse("span", [span, none], answers, WORDS)
    assert [one["gold"] for one in found["errors"]] == ["", "the film | film"], "of equals the most confident first"
    assert found["errors"][0]["text"] == "who\nthe film is bad"
    choice = ChoiceExample("a film", "it is", ("bad", "good"), 0)
    found = analyse("choice", [choice], [{"choice": 1, "text": "good", "probabilities": [0.25, 0.75]}], WORDS)
    assert found["errors"][0] == {
        "where": "line 0",
        "text": "a film\nit is",
        "gold": "bad",
        "predicted": "good",
        "probability": 0.75,
    }
    assert found["confusion"]["counts"] == [[0, 1], [0, 0]]
    written = [GenerateExample("a film", "good"), GenerateExample("the film", "bad " * 8)]
    found = analyse("generate", written, [{"text": "good", "logprob": -1.0}, {"text": "xyz", "logprob": -2.0}], WORDS)
    assert (found["score"]["mean"], found["wrong"], found["errors"][0]["predicted"]) == (50.0, 1, "xyz")
    assert found["by_length"] == [{"from": 0, "below": 8, "examples": 2, "score": 50.0}], "the target is not counted"


def test_rare_labels_are_one_row() -> None:
    gold = [label for number, label in enumerate("abcd") for _ in range(4 - number)]
    found = most_frequent(label_table(gold, ["a"] * len(gold)), 2)
    assert found == {"labels": ["a", "b"], "counts": [[4, 0, 0], [3, 0, 0], [3, 0, 0]], "others": 2}
    assert sum(map(sum, found["counts"])) == len(gold)


def test_rare_words_of_tokenizers() -> None:
    assert rare_words("我们", CHARS.encode("我们")) == (0, 1)
    assert rare_words("语们", CHARS.encode("语们"))[0] == 1
    assert rare_words("good", CHARS.encode("good"), characters=True) == (0, 1)
    assert read_sizes([TextExample("good . zebra .")], WORDS) == ([4], [0.5]), "punctuation is not a word"
    assert read_sizes([TextExample(".")], WORDS) == ([1], [0.0])


def test_excerpts_contain_the_position() -> None:
    text = " ".join(str(number) for number in range(1000, 1400))
    for position in (0, 700, 1990):
        found = excerpt(text, position)
        assert text[position : position + 50] in found
        assert len(found) <= 602


def page(**changes: Any) -> str:
    gold = [(one.labels or ("",))[0] for one in EXAMPLES]
    metrics = measure("classify", gold, [str(one["label"]) for one in ANSWERS])
    named = {"model": "m", "task": "classify", "file": "f.tsv", "digest": "0" * 64, "truncated": 0, "seed": 0}
    return render_task_page(named | {"version": "0", "metrics": metrics} | classified() | changes)


def test_the_page_escapes_what_it_is_given() -> None:
    bad = "<script>alert('x')</script>"
    examples = [TextExample(f"{bad} film", None, (bad,), Origin(bad, 1))]
    found = analyse("classify", examples, [{"label": f"{bad}2", "probability": 0.5}], WORDS)
    html = page(model=bad, file=bad, **found)
    assert "<script" not in html
    assert html.count("&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;") >= 6


def test_the_page_is_whole_and_the_same_each_time() -> None:
    html = page()
    assert html == page()
    for name in ("numbers", "confusion", "labels", "errors", "length", "rare", "origin"):
        assert f'<section id="{name}">' in html
    assert "0.500" in html
    assert "80.0\u00a0%" in html
    assert "http://" not in html.replace("http-equiv", "")
    assert "All predictions are correct." in page(errors=[], wrong=0)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("tuned")
    examples = [("1", "a good film"), ("0", "a bad film")] * 10
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FIRTH_CACHE", str(folder / "cache"))
        train("unigram", [["a good film", "a bad film"]], out=folder / "base", reload=False)
        finetune(folder / "base", "classify", train=examples, dev=examples, out=folder / "m", threads=1)
        yield folder / "m"


def write(path: Path, *rows: str) -> Path:
    path.write_text("\n".join(["label\ttext_a", *rows, ""]), encoding="utf-8")
    return path


def test_the_command_writes_a_page(tuned: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "test.tsv", "1\tgood <script> film", "0\tbad film", "0\tgood film")
    plain = firth("evaluate", tuned, "task", file, "--json").json
    outcome = firth("evaluate", tuned, "task", file, "-o", tmp_path / "new" / "report.html", "--json")
    assert outcome.json == plain | {"report": str(tmp_path / "new" / "report.html")}
    html = (tmp_path / "new" / "report.html").read_text(encoding="utf-8")
    assert "good film" in html
    assert "<script" not in html
    assert [one.name for one in (tmp_path / "new").iterdir()] == ["report.html"]
    assert "report.html" in firth("evaluate", tuned, "task", file, "--out", tmp_path / "report.html").out


def test_an_unknown_label(tuned: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "test.tsv", "7\tgood film", "0\tbad film")
    outcome = firth("evaluate", tuned, "task", file, "-o", tmp_path / "r.html", "--json")
    assert outcome.json["accuracy"] == 0.5
    assert "labels unknown to the model, for which every prediction counts as wrong: 7\n" in outcome.err


@pytest.mark.parametrize(
    ("example", "unlabelled"),
    [
        (TextExample("a", "b", ("x",)), TextExample("a", "b")),
        (TagExample(("a",), ("B",), False), TagExample(("a",), None, False)),
        (SpanExample("a", "b", (Answer("a", 0),)), SpanExample("a", "b")),
        (ChoiceExample("a", "b", ("c", "d"), 1), ChoiceExample("a", "b", ("c", "d"))),
        (GenerateExample("a", "b"), GenerateExample("a")),
    ],
)
def test_models_get_no_labels(example: Any, unlabelled: Any) -> None:
    assert without_labels(example) == unlabelled


class RecordingModel:
    """A model that records its inputs."""

    task, columns = "classify", ()

    def __init__(self) -> None:
        self.inputs: list[TextExample] = []

    def stream(self, examples: Iterable[TextExample]) -> Iterator[dict[str, Any]]:
        for one in examples:
            self.inputs.append(one)
            yield {"label": "1"}

    def measure(self, *arguments: Any, **options: Any) -> dict[str, Any]:
        return {}


def test_labels_reach_the_measure_but_not_the_model(tmp_path: Path) -> None:
    model = RecordingModel()
    examples, answers = predict_labelled(model, write(tmp_path / "test.tsv", "1\tgood film"))
    assert (model.inputs[0].labels, examples[0].labels, answers) == (None, ("1",), [{"label": "1"}])


def test_bad_examples_can_be_skipped(tuned: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "test.tsv", "1\tgood film", "no label")
    outcome = firth("evaluate", tuned, "task", file, "-o", tmp_path / "r.html")
    assert (outcome.code, (tmp_path / "r.html").exists()) == (1, False)
    assert "test.tsv, line 3" in outcome.err
    assert firth("evaluate", tuned, "task", file, "--skip-bad", "--json").json["examples"] == 1
    assert firth("evaluate", tuned, "task", file, "--skip-bad", "-o", tmp_path / "r.html", "--json").json["report"]


def test_wrong_options_and_models_are_refused(tuned: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "test.tsv", "1\tgood film")
    other = firth("evaluate", tuned, "classify", file, "-o", tmp_path / "r.html")
    assert other.code == 2
    assert "-o belongs to the suite task, not to classify" in other.err
    assert "--skip-bad belongs to" in firth("evaluate", tuned, "words", file, "--skip-bad").err
    folder = firth("evaluate", tuned, "task", file, "-o", tmp_path)
    assert (folder.code, "is a folder: write to another file" in folder.err) == (1, True)
    gone = firth("evaluate", tuned, "task", tmp_path / "gone.tsv", "-o", tmp_path / "r.html")
    assert gone.code == 1
    assert "gone.tsv" in gone.err
    base = firth("evaluate", tuned.parent / "base", "task", file, "-o", tmp_path / "r.html")
    assert "was not fine-tuned for a task" in base.err


def test_a_classifier_of_vectors_is_measured_like_a_fine_tuned_model(tmp_path: Path) -> None:
    lines = [
        f"{number % 2}\t{'good kind warm' if number % 2 else 'bad dull cold'} film {number}" for number in range(40)
    ]
    train, test = write(tmp_path / "train.tsv", *lines), write(tmp_path / "test.tsv", *lines[:8], "0\tgood kind film")
    assert firth("train", "fasttext-classifier", train, "-o", tmp_path / "m").code == 0
    found = firth("evaluate", tmp_path / "m", "task", test, "-o", tmp_path / "r.html", "--json").json
    assert (found["task"], found["examples"], found["accuracy"]) == ("classify", 9, pytest.approx(8 / 9))
    assert found["accuracy_interval"][0] < found["accuracy"] < found["accuracy_interval"][1]
    by_itself = firth("evaluate", tmp_path / "m", "classify", test, "--json").json
    assert found["macro_f1"] == pytest.approx(by_itself["macro_f1"])
    assert "good kind film" in (tmp_path / "r.html").read_text(encoding="utf-8"), "the only error should be shown"
