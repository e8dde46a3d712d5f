"""Few-shot evaluation: templates, prompts, exact scores of continuations, ways to compare answers, bad input."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import firth
from firth.apply.continuations import Continuation, score_continuations
from firth.apply.few_shot import Template, evaluate_shots, shots_prompt
from firth.cli.main import app
from firth.errors import AbilityError, ArgumentError, CorpusError
from firth.tasks.examples import ChoiceExample, TextExample
from tests.nets.small_nets import small_net

LINES = ["a fine film : good", "a dull film : bad", "a fine day : good", "a dull day : bad"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shots")
    (folder / "text.txt").write_text("\n".join(LINES * 6) + "\n")
    for recipe in ("mkn5", "kn5-cache"):
        firth.train(recipe, folder / "text.txt", out=folder / recipe)
    rows = [line.split(" : ") for line in LINES]
    table = ["label\ttext_a", *(f"{label}\t{text}" for text, label in rows)]
    (folder / "test.tsv").write_text("\n".join(table) + "\n")
    (folder / "numbers.tsv").write_text("\n".join(table).replace("good\t", "1\t").replace("bad\t", "0\t") + "\n")
    return folder


@pytest.mark.parametrize("name", ["mkn5", "kn5-cache"])
def test_an_answer_has_the_probability_of_its_tokens(home: Path, name: str) -> None:
    """The log-probability of the line is that of its beginning, of the answer, and of the end."""
    model = firth.load(home / name)
    (found,) = score_continuations(model, [Continuation((), "a fine film : ", "good")])
    tokens = model.explain("a fine film : good")[0]
    assert found.logprob == pytest.approx(tokens[4]["logprob"], abs=1e-12)
    assert (found.tokens, found.bytes, found.dropped) == (1, 4, 0)


def test_lines_before_are_the_document_of_models_that_carry_context(home: Path) -> None:
    """A cache makes the answer of the line before more probable; a sentence model reads one sentence."""
    asked = [Continuation(("a dull day : bad",), "a day : ", answer) for answer in ("bad", "good")]
    alone = [Continuation((), "a day : ", answer) for answer in ("bad", "good")]
    cache = firth.load(home / "kn5-cache")
    (bad, good), (bad0, good0) = score_continuations(cache, asked), score_continuations(cache, alone)
    assert bad.logprob - good.logprob > bad0.logprob - good0.logprob
    sentence = firth.load(home / "mkn5")
    (found, _) = score_continuations(sentence, asked)
    tokens = sentence.explain("a dull day : bad a day : bad")[0]
    assert found.logprob == pytest.approx(tokens[8]["logprob"], abs=1e-12)


@pytest.mark.parametrize("name", ["gpt", "lstm", "cnn-lm"])
def test_networks_score_the_answer_after_the_prompt(name: str) -> None:
    model = small_net(name, length=40)
    (found,) = score_continuations(model, [Continuation((), "the quick brown ", "fox")])
    ids = model.tokenizer.encode("the quick brown fox").ids
    logs = model.next_logprobs(ids[:-1])
    assert found.logprob == pytest.approx(float(logs[ids[-1]]), rel=1e-6)


def test_masked_models_give_pseudo_log_likelihoods() -> None:
    """The part of the answer in the score of the whole text."""
    model = small_net("bert", length=40)
    (one,) = score_continuations(model, [Continuation((), "the quick brown ", "fox jumps")])
    (two,) = score_continuations(model, [Continuation((), "the ", "quick brown fox jumps")])
    (first,) = score_continuations(model, [Continuation((), "", "the quick brown fox jumps")])
    stream, _ = model.token_scorer.stream(["the quick brown fox jumps"])
    logs = model.token_scorer.token_logprobs(stream)
    assert one.logprob == pytest.approx(float(logs[3:5].sum()), rel=1e-6)
    assert two.logprob == pytest.approx(float(logs[1:5].sum()), rel=1e-6)
    assert first.logprob == pytest.approx(model.score(["the quick brown fox jumps"])[0].logprob, rel=1e-6)


def test_the_oldest_examples_are_left_out() -> None:
    model = small_net("gpt", length=12)
    before = ("the quick brown fox", "the dog ran", "the cat ran")
    (cut,) = score_continuations(model, [Continuation(before, "the dog ", "fox")])
    (rest,) = score_continuations(model, [Continuation(before[-1:], "the dog ", "fox")])
    assert cut.dropped == 2
    assert cut.logprob == pytest.approx(rest.logprob, abs=1e-6)


def test_a_model_of_the_patterns_answers_without_examples(home: Path) -> None:
    report = evaluate_shots(firth.load(home / "mkn5"), home / "test.tsv")
    assert report["accuracy"] == 1.0
    assert set(report["accuracies"]) == {"sum", "token", "byte", "unconditional"}
    assert report["accuracies"]["unconditional"] == 1.0
    assert report["empty_context"] == 0.5
    assert report["baseline"]["accuracy"] == 0.5
    assert report["task"] == "classify"


def test_words_stand_for_labels(home: Path) -> None:
    model = firth.load(home / "mkn5")
    assert evaluate_shots(model, home / "numbers.tsv", answers=["1=good", "0=bad"])["accuracy"] == 1.0
    assert evaluate_shots(model, home / "numbers.tsv", answers=["0=good", "1=bad"])["accuracy"] == 0.0


def test_choices_are_answers_of_their_own(home: Path, tmp_path: Path) -> None:
    row = {"context": "a fine film", "question": ":", "choices": ["bad", "good"], "label": 1}
    (tmp_path / "c.jsonl").write_text(json.dumps(row) + "\n")
    report = evaluate_shots(firth.load(home / "mkn5"), tmp_path / "c.jsonl")
    assert (report["task"], report["accuracy"]) == ("choice", 1.0)


def test_answers_of_several_lengths_are_compared_in_four_ways(home: Path, tmp_path: Path) -> None:
    """By hand: "good" after "a fine film :" against "good a fine film", the mean of which is higher by token."""
    model = firth.load(home / "mkn5")
    answers = ["bad", "good film : good"]
    row = {"context": "a dull film", "question": ":", "choices": answers, "label": 0}
    (tmp_path / "c.jsonl").write_text(json.dumps(row) + "\n")
    report = evaluate_shots(model, tmp_path / "c.jsonl")
    scores = score_continuations(model, [Continuation((), "a dull film : ", answer) for answer in answers])
    empty = score_continuations(model, [Continuation((), ": ", answer) for answer in answers])
    expected = {
        "sum": [one.logprob for one in scores],
        "token": [one.logprob / one.tokens for one in scores],
        "byte": [one.logprob / one.bytes for one in scores],
        "unconditional": [one.logprob - two.logprob for one, two in zip(scores, empty, strict=True)],
    }
    assert report["accuracies"] == {name: float(np.argmax(values) == 0) for name, values in expected.items()}


def test_the_examples_of_a_question_depend_on_the_seed_and_its_number(home: Path) -> None:
    model = firth.load(home / "kn5-cache")
    one, same, other = (
        evaluate_shots(model, home / "test.tsv", shots=2, train=home / "test.tsv", seed=seed) for seed in (0, 0, 1)
    )
    assert one == same
    assert one["shots"] == other["shots"] == 2


def test_a_prompt_for_generation(home: Path) -> None:
    model = firth.load(home / "mkn5")
    prompt = shots_prompt(model, "a fine day", 2, home / "test.tsv", seed=3)
    assert prompt.endswith(" a fine day :")
    assert prompt.count(":") == 3
    assert model.next(prompt, 1)[0][0] == "good"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{label}", "no text of the example"),
        ("{text_a}", "ends with the answer"),
        ("{label} {text_a}", "ends with the answer"),
        ("{text_a} {lable}", "no field 'lable'"),
        ("{text_a} {label} {label}", "once"),
    ],
)
def test_templates_without_their_fields_are_refused(text: str, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        Template("classify", text)


def test_templates_write_examples() -> None:
    assert Template("pair", "{text_a} or {text_b} ? {label}").begin(TextExample("one", "two")) == "one or two ? "
    choice = ChoiceExample("It rains.", "Why?", ("a", "b"), 0)
    assert Template("choice", "{context} {question} {choice}").begin(choice) == "It rains. Why? "
    assert Template("classify", "{text_a} : {label}").empty == ": "


def test_bad_input_is_one_sentence(home: Path, tmp_path: Path) -> None:
    model = firth.load(home / "mkn5")
    with pytest.raises(ArgumentError, match="takes examples of"):
        evaluate_shots(model, home / "test.tsv", shots=2)
    with pytest.raises(CorpusError, match="give fewer"):
        evaluate_shots(model, home / "test.tsv", shots=9, train=home / "test.tsv")
    with pytest.raises(ArgumentError, match="classify, pair and choice"):
        evaluate_shots(model, home / "test.tsv", task="tag")
    with pytest.raises(ArgumentError, match="1=good"):
        evaluate_shots(model, home / "test.tsv", answers=["good"])
    (tmp_path / "p.tsv").write_text("label\ttext_a\ngood\tone\ngoods\ttwo\n")
    with pytest.raises(CorpusError, match="begins the label 'goods'"):
        evaluate_shots(model, tmp_path / "p.tsv")
    with pytest.raises(AbilityError, match="no probabilities of tokens"):
        score_continuations(object(), [])


def test_the_commands(home: Path) -> None:
    run = CliRunner()
    shots = ["--shots", "1", "--train", str(home / "test.tsv")]
    shown = run.invoke(app, ["evaluate", str(home / "mkn5"), "task", str(home / "test.tsv"), *shots, "--json"])
    assert json.loads(shown.stdout)["accuracies"]["sum"] == 1.0
    shown = run.invoke(app, ["evaluate", str(home / "mkn5"), "task", str(home / "test.tsv"), *shots])
    assert "accuracy by unconditional" in shown.stdout
    made = run.invoke(app, ["generate", str(home / "mkn5"), "--prompt", "a dull film", *shots, "--next", "1"])
    assert "bad" in made.stdout
    assert run.invoke(app, ["evaluate", str(home / "mkn5"), "words", str(home / "test.tsv"), *shots]).exit_code == 2
    page = ["-o", str(home / "page.html")]
    assert (
        run.invoke(app, ["evaluate", str(home / "mkn5"), "task", str(home / "test.tsv"), *shots, *page]).exit_code == 2
    )
