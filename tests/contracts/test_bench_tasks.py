"""The tables of the benchmarks of tasks are complete: files exist, and the command line takes the commands."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

BENCH = Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))

import data_size  # noqa: E402
import every_set  # noqa: E402
import results  # noqa: E402
import task_data  # noqa: E402
import writing  # noqa: E402
from firth.cli.main import app  # noqa: E402
from firth.recipes.table import find_recipe  # noqa: E402
from firth.tasks.reading import read_task  # noqa: E402
from firth.tasks.recipe import TASKS  # noqa: E402

COMMANDS: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
FILES = sorted(
    {name for one in task_data.DATASETS.values() for name in (one.train, one.dev)}
    | {name for one in every_set.SETS.values() for name in (one.train, one.dev) if name}
    | {name for one in writing.SETS.values() for name in (one.train, one.dev)}
    | {name for names in task_data.CORPORA.values() for name in names}
)


def parse(words: list[str]) -> dict[str, Any]:
    """What the command line understands, without doing it; raises for unknown options and missing ones."""
    command = COMMANDS[words[0]]
    with command.make_context(words[0], list(words[1:])) as context:
        return dict(context.params)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> task_data.Bench:
    """A folder in which the parts of sets are there already, empty."""
    monkeypatch.setattr(task_data, "cut", lambda name, most, path, after=0: 0)
    monkeypatch.setattr(task_data, "data_path", lambda name: tmp_path / name)
    monkeypatch.setattr(data_size, "domain_text", lambda bench, name: "data/films.txt")
    return task_data.Bench(tmp_path / "folder", 15, 1, share=5)


def all_points(bench: task_data.Bench) -> data_size.Study:
    whole = bench._replace(passes=None)
    return data_size.Study(whole, list(data_size.PARTS), data_size.SIZES, 2, "60s")


def all_commands(bench: task_data.Bench) -> Iterator[list[str]]:
    table = results.Table(bench, list(results.ROWS), list(task_data.DATASETS), 2)
    for model, language in results.models(table.every()):
        yield results.MINILM_WORDS if model == results.MINILM else bench.pretraining(model, language)
    for row, name in table.cells():
        yield [*table.words(row, name, 1), "-o", "out"]
    study = all_points(bench)
    for point in study.points():
        yield [*study.words(*point), "-o", "out"]
    for one in study.domains():
        yield study.adapting(*one)


def test_the_three_verbs_of_every_set_are_understood(bench: task_data.Bench) -> None:
    every = every_set.Round(bench, 100, 50)
    for name, found in every_set.SETS.items():
        tuning, asking, measuring = map(parse, every.commands(name))
        assert tuning["task"] == found.task
        assert str(tuning["out"]) == str(asking["model"]) == str(measuring["model"])
        assert tuning["dev"] == str(asking["file"]) == str(measuring["files"][0]) != tuning["train"]


def test_those_of_every_writer_are_understood(bench: task_data.Bench) -> None:
    for name in writing.SETS:
        for row, (_, two, random) in writing.ROWS.items():
            tuning, asking, measuring = map(parse, writing.Writers(bench).commands(name, row))
            assert (tuning["decoder"] is not None, tuning["random"]) == (two, random)
            assert str(tuning["out"]) == str(asking["model"]) == str(measuring["model"])
            assert tuning["dev"] == str(asking["file"]) == str(measuring["files"][0]) != tuning["train"]


def test_commands_are_understood(bench: task_data.Bench) -> None:
    for words in all_commands(bench):
        given = parse(words)
        if words[0] == "finetune":
            assert given["task"] in TASKS
            assert str(given["out"]) == "out"
        elif words[0] == "train":
            find_recipe(given["recipe"])


def test_an_unknown_option_is_seen() -> None:
    with pytest.raises(Exception, match="No such option"):
        parse(["finetune", "m", "classify", "--train", "a", "--dev", "b", "-o", "c", "--nonsense"])


def test_every_set_has_its_row_of_models(bench: task_data.Bench) -> None:
    table = results.Table(bench, list(results.ROWS), list(task_data.DATASETS), 2)
    english = [row for row, name in table.cells() if name == "sst2"]
    chinese = [row for row, name in table.cells() if name == "c3"]
    assert english == list(results.ROWS)
    assert chinese == [row for row in results.ROWS if row != results.MINILM]
    names = [table.cell(row, name, seed) for row, name in table.cells() for seed in (0, 1)]
    assert len(set(names)) == len(names)


def test_the_points_of_the_curves_have_names_of_their_own(bench: task_data.Bench) -> None:
    study = all_points(bench)
    commands = {study.cell(*point): study.words(*point) for point in study.points()}
    assert len(set(map(tuple, commands.values()))) == len(commands)


def test_a_smaller_part_lies_in_a_larger_one() -> None:
    assert set(task_data.choose(1000, 10)) < set(task_data.choose(1000, 100))
    assert task_data.choose(5, 100) == [0, 1, 2, 3, 4]
    assert not set(task_data.choose(1000, 100)) & set(task_data.choose(1000, 50, after=100))


def test_what_an_earlier_run_has_written_is_not_made_again(
    bench: task_data.Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = results.Table(bench, ["tfidf", "bert"], ["sst2"], 1)
    told = {
        table.cell(*one): {"command": [*table.words(*one), "-o", f"tuned/{table.cell(*one)}"], "dev": {"accuracy": 0.5}}
        for one in table.every()
    }
    bench.write_results(tmp_path / "earlier.json", told)
    again = table._replace(bench=bench._replace(folder=tmp_path / "another"))
    monkeypatch.setattr(task_data, "run", lambda *given, **more: pytest.fail("nothing was left to be run"))
    monkeypatch.setattr(results.Bench, "pretrain", lambda *given: pytest.fail("no model was needed"))
    assert again.missing() == again.every()
    again.bench.take(tmp_path / "earlier.json")
    assert results.estimate(again) == 0
    found, broken = results.make(again)
    assert again.known() == told
    assert found["bert"]["sst2"] == [told[table.cell("bert", "sst2", 0)]]
    assert not broken
    other = again._replace(bench=again.bench._replace(passes=7))
    assert other.missing() == [("bert", "sst2", 0)], "what was learnt in another way was taken for this"


def test_a_page_tells_scores_and_what_failed(bench: task_data.Bench) -> None:
    table = results.Table(bench, ["tfidf", "bert"], ["sst2", "conll2003"], 2)
    dev = {"accuracy": 0.5, "baseline": {"accuracy": 0.4}}
    done = [{"dev": dev, "seconds": 3.0}, {"dev": dev | {"accuracy": 0.75}, "seconds": 4.0}]
    found = {"tfidf": {"sst2": done, "conll2003": [{"error": "cannot tag"}] * 2}}
    page = results.write(table, found, {"bert en": "no text"})
    assert "| TF-IDF, linear | 0.625 ± 0.125 (4 s) | – (1) |" in page
    assert "| trivial baseline | 0.400 | – |" in page
    assert "1. TF-IDF, linear, CoNLL-2003: cannot tag" in page
    assert "Left out: bert en: no text." in page
    both = [{"dev": {"f1": 0.5, "span_f1": 0.25}, "seconds": 3.0}]
    spans = results.write(table._replace(rows=["bert"], sets=["squad2"]), {"bert": {"squad2": both}}, {})
    assert "| task, metric | span, f1 / span f1 |" in spans
    assert "| BERT | 0.500 / 0.250 (3 s) |" in spans
    assert "firth finetune en/words classify --train data/sst2.train.1000.tsv --dev data/sst2.dev.tsv --seed 0" in page


@pytest.mark.shared
def test_every_file_is_there_and_in_the_list(shared_data: Path) -> None:
    listed = (shared_data / "README.md").read_text(encoding="utf-8")
    for name in FILES:
        assert (shared_data / name).is_file(), name
        assert f"`{name}`" in listed, name


@pytest.mark.shared
@pytest.mark.parametrize("name", ["mrpc", "squad2", "c3"])
def test_a_part_of_a_set_is_read_as_the_set_is(name: str, shared_data: Path, tmp_path: Path) -> None:
    found = task_data.DATASETS[name]
    path = tmp_path / f"part.{found.train.removesuffix('.gz').rpartition('.')[2]}"
    assert task_data.cut(found.train, 20, path) == 20
    assert len(list(read_task(found.task, path))) == 20


@pytest.mark.shared
def test_a_part_of_tagged_sentences_has_whole_sentences(shared_data: Path, tmp_path: Path) -> None:
    found = task_data.DATASETS["conll2003"]
    task_data.cut(found.train, 30, tmp_path / "few.txt")
    few = [(one.words, one.tags) for one in read_task("tag", tmp_path / "few.txt")]
    every = [(one.words, one.tags) for one in read_task("tag", shared_data / found.train)]
    assert len(few) == 30
    assert [every[one] for one in task_data.choose(len(every), 30)] == few
