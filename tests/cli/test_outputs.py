"""What commands print and write: files that are not replaced, text that cannot control a terminal, summaries."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import firth as library
from firth.artifact.folder import save_artifact
from firth.artifact.manifest import Manifest
from firth.recipes.table import find_recipe
from firth.recipes.values import recipe_to_json
from tests.command import Outcome, assert_refused, firth
from tests.vectors.small_models import save_model, small_model

ESCAPE = "\x1b]0;owned\x07\x1b[2J\x9b31m"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with vectors, a classifier, an n-gram model and labelled texts."""
    folder = tmp_path_factory.mktemp("models")
    save_model(small_model(["one", "two"], [[1, 0], [0, 1]]), folder / "vectors")
    rows = [("pos", "a good film"), ("neg", "a bad film")] * 5
    (folder / "films.tsv").write_text("label\ttext_a\n" + "".join(f"{label}\t{text}\n" for label, text in rows))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FIRTH_CACHE", str(folder / "cache"))
        library.train("fasttext-classifier", rows, out=folder / "classifier", settings=["epochs=1", "dimension=4"])
        library.train("mkn3", [["to be or not to be", "that is the question"]], out=folder / "mkn3")
    return folder


def writers(folder: Path) -> dict[str, Callable[..., Outcome]]:
    """Each verb that writes a file, as a function of the path of the file and further options."""
    return {
        "export": lambda out, *more: firth("export", folder / "vectors", "word2vec", out, *more),
        "predict": lambda out, *more: firth("predict", folder / "classifier", folder / "films.tsv", "-o", out, *more),
        "evaluate": lambda out, *more: firth(
            "evaluate", folder / "classifier", "task", folder / "films.tsv", "-o", out, *more
        ),
        "score": lambda out, *more: firth("score", folder / "mkn3", folder / "films.tsv", "-o", out, *more),
        "embed": lambda out, *more: firth("embed", folder / "vectors", folder / "films.tsv", "-o", out, *more),
    }


WRITERS = ("export", "predict", "evaluate", "score", "embed")


@pytest.mark.parametrize("verb", WRITERS)
def test_existing_files_are_replaced_by_force_alone(verb: str, folder: Path, tmp_path: Path) -> None:
    write, out = writers(folder)[verb], tmp_path / "out"
    out.write_text("older")
    assert_refused(write(out), "exists already", "--force")
    assert out.read_text() == "older"
    done = write(out, "--force")
    assert done.code == 0, done.err
    assert out.read_bytes() != b"older"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_inputs_are_never_replaced(folder: Path) -> None:
    for verb, source in (("predict", folder / "films.tsv"), ("evaluate", folder / "films.tsv")):
        before = source.read_bytes()
        assert_refused(writers(folder)[verb](source, "--force"), "is read by this command")
        assert source.read_bytes() == before
    manifest = folder / "vectors" / "manifest.json"
    assert_refused(writers(folder)["export"](manifest, "--force"), "is read by this command")
    assert_refused(writers(folder)["export"](folder / "vectors" / "new.txt"), "in the folder of the model")
    assert firth("verify", folder / "vectors").code == 0


@pytest.mark.parametrize("place", ["new", "below/new", "card.md"])
@pytest.mark.parametrize("verb", WRITERS)
def test_nothing_is_written_into_an_artifact(verb: str, place: str, folder: Path, tmp_path: Path) -> None:
    """Neither into that of the model nor into another one, which would be refused then for its unknown file."""
    other = library.train("unigram", [["one two"]], out=tmp_path / "other") and tmp_path / "other"
    (tmp_path / "link").symlink_to(other)
    for target in (other, tmp_path / "link"):
        assert_refused(
            writers(folder)[verb](target / place, "--force"), "in the folder of the model", "write elsewhere"
        )
    assert firth("verify", other).code == 0


def test_maps_folders_and_python_write_nothing_into_an_artifact(folder: Path, tmp_path: Path) -> None:
    inside = folder / "vectors" / "new"
    text = tmp_path / "text.txt"
    text.write_text("one two\n")
    for command in (
        ("similar", folder / "vectors", "one", "--map", inside),
        ("train", "unigram", text, "-o", inside),
        ("adapt", folder / "mkn3", text, "-o", inside),
        ("mix", folder / "mkn3", folder / "mkn3", "--valid", text, "-o", inside),
        ("export", folder / "vectors", "huggingface", inside),
        ("import", "word2vec", text, "-o", inside),
        ("demo", "-o", inside),
    ):
        assert_refused(firth(*command), "in the folder of the model", "write elsewhere")
    with pytest.raises(library.FirthError, match="in the folder of the model"):
        library.export(folder / "vectors", "word2vec", inside)
    assert firth("verify", folder / "vectors").code == 0


def test_folders_with_a_manifest_of_others_are_written_to(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"manifest_version": 3}')
    assert writers(folder)["export"](tmp_path / "out.txt").code == 0


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """An artifact whose manifest is full of escape sequences."""
    manifest = Manifest(
        kind=f"counts{ESCAPE}",
        name=f"model{ESCAPE}",
        recipe=recipe_to_json(find_recipe("unigram")) | {f"key{ESCAPE}": ESCAPE},
        corpus={"layout": ESCAPE, "imported": ESCAPE},
        seed=1,
        metrics={f"loss{ESCAPE}": 1.5},
        versions={"firth": ESCAPE},
    )
    save_artifact(tmp_path / "hostile", manifest, {"words.txt": b"a"})
    return tmp_path / "hostile"


def test_escape_sequences_of_a_manifest_are_escaped(hostile: Path) -> None:
    commands: list[tuple[Any, ...]] = [
        *(("info", hostile), ("info", hostile, "--all"), ("verify", hostile), ("diff", hostile, "unigram")),
        *(("info", hostile, "--json"), ("verify", hostile, "--json"), ("score", hostile, hostile / "words.txt")),
    ]
    for command in commands:
        shown = firth(*command)
        text = shown.out + shown.err
        assert "owned" in text or command[0] in ("score", "verify")  # which say only that files are missing
        assert not set("\x1b\x07\x9b") & set(text), command
    assert firth("info", hostile, "--json").json["name"] == f"model{ESCAPE}"
    assert "model\\x1b]0;owned\\x07" in firth("info", hostile).out


def test_long_wrong_values_are_cut(tmp_path: Path) -> None:
    long = "x" * 50_000
    recipe = recipe_to_json(find_recipe("unigram")) | {"smoothing": long}
    manifest = Manifest(kind="counts", name="unigram", recipe=recipe, corpus={}, seed=1, metrics={})
    save_artifact(tmp_path / "long", manifest, {"words.txt": b"a"})
    text = tmp_path / "text.txt"
    text.write_text("one two\n")
    for command in (
        ("score", tmp_path / "long", text),
        ("train", long, text, "-o", tmp_path / "out"),
        ("train", "unigram", text, "-o", tmp_path / "out", "--set", f"{long}=1"),
        ("train", "unigram", text, "-o", tmp_path / "out", "--set", f"delta={long}"),
        ("train", "unigram", text, "-o", tmp_path / "out", "--budget", long),
        ("finetune", "m", long, "--train", text, "--dev", text, "-o", tmp_path / "out"),
        ("export", tmp_path / "long", long, tmp_path / "out"),
    ):
        shown = firth(*command)
        assert shown.code in (1, 2)
        assert shown.err.startswith("firth: ")
        assert len(shown.err) < 1500, command[0]


def test_info_is_ten_lines_and_everything_on_request(folder: Path) -> None:
    for name in ("mkn3", "vectors", "classifier"):
        shown = firth("info", folder / name).out
        assert len(shown.splitlines()) == 10
        assert max(map(len, shown.splitlines())) < 200
        every = firth("info", folder / name, "--all").out
        assert len(every.splitlines()) > 30
    shown = firth("info", folder / "mkn3").out
    for fact in (
        "mkn3 (counts)",
        "10 words",
        "layout lines",
        "tokenizer  words\n",
        "mkn3 with tokenizer.split=space",
        "--all",
    ):
        assert fact in shown


def test_training_ends_with_a_rounded_table(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("to be or not to be\nthat is the question\n")
    done = firth("train", "mkn3", text, "-o", tmp_path / "m", "--valid", text)
    assert done.code == 0, done.err
    title, *rows = done.out.splitlines()
    assert title.startswith(f"mkn3 -> {tmp_path / 'm'}  (")
    table = dict(row.split("  ", 1) for row in rows)
    metrics = json.loads(firth("info", tmp_path / "m", "--json").out)["metrics"]
    assert table["valid_perplexity"].strip() == f"{metrics['valid_perplexity']:.4g}"
    assert table["ngrams"].strip() == ", ".join(map(str, metrics["ngrams"]))
    assert not set("{}[]") & set(done.out)


def test_a_note_is_printed_once(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("to be or not to be\n")
    done = firth("train", "mkn5", text, "-o", tmp_path / "m")
    assert done.err.count("support no estimate") == 1
    assert "1, 2, 3, 4, 5-grams" in done.err


def test_equal_notes_are_printed_once_for_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    from firth.progress import note, notes_once

    for _ in range(2):
        with notes_once():
            note("the same")
            note("the same")
    note("the same")
    assert capsys.readouterr().err.count("the same") == 3


def test_intervals_are_explained(folder: Path, tmp_path: Path) -> None:
    text = firth("evaluate", folder / "classifier", "task", folder / "films.tsv").out
    assert "[low to high]: 95% confidence interval" in text
    text = firth("evaluate", folder / "classifier", "classify", folder / "films.tsv").out
    accuracy = next(line for line in text.splitlines() if line.startswith("accuracy "))
    assert " to " in accuracy
    assert "95%" in text
    assert "accuracy_interval" not in text


def test_interrupted_training_says_how_to_continue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C after the first block: the checkpoint is there, and --resume ends with the model of an undisturbed run."""

    @contextmanager
    def interrupted_at_once() -> Any:
        yield lambda: True

    text = tmp_path / "text.txt"
    text.write_text("to be or not to be that is the question\n" * 40)
    command = ("train", "skipgram", text, "--set", "dimension=4", "--set", "tokenizer.min_count=1")
    with monkeypatch.context() as patch:
        patch.setattr("firth.training.deferred_interrupts", interrupted_at_once)
        stopped = run_in(tmp_path / "m", command)
    assert stopped.code == 130
    assert stopped.out == ""
    assert (
        stopped.err.splitlines()[-1] == "firth: interrupted: state saved; continue with the same command and --resume."
    )
    assert run_in(tmp_path / "m", command, "--resume").code == 0
    assert run_in(tmp_path / "n", command).code == 0
    files = [json.loads((tmp_path / name / "manifest.json").read_text())["files"] for name in ("m", "n")]
    assert files[0].keys() == files[1].keys()
    assert all(files[0][name] == files[1][name] for name in files[0] if name != "metrics.jsonl"), "that records times"


def run_in(out: Path, command: tuple[Any, ...], *more: object) -> Outcome:
    return firth(*command, "-o", out, *more)


def test_an_interrupt_without_a_checkpoint_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("firth.fit.train.train", interrupt)
    stopped = firth("train", "unigram", tmp_path / "text.txt", "-o", tmp_path / "m")
    assert (stopped.code, stopped.err) == (130, "firth: interrupted: no incomplete output was left.\n")
    (tmp_path / "m.runs" / "0").mkdir(parents=True)
    assert "--resume" in firth("train", "unigram", tmp_path / "text.txt", "-o", tmp_path / "m").err
