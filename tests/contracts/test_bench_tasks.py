"""Task benchmarks: their files exist, and the command line accepts their commands."""

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
import workspace as workspaces  # noqa: E402
import writing  # noqa: E402
from firth.cli.main import app  # noqa: E402
from firth.recipes.table import find_recipe  # noqa: E402
from firth.tasks.readers.reader import read_task  # noqa: E402
from firth.tasks.recipe import TASKS  # noqa: E402

COMMANDS: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
FILES = sorted(
    {name for one in task_data.DATASETS.values() for name in (one.train, one.dev)}
    | {name for one in every_set.SETS.values() for name in (one.train, one.dev) if name}
    | {name for one in writing.SETS.values() for name in (one.train, one.dev)}
    | {name for names in workspaces.CORPORA.values() for name in names}
)


def parse(arguments: list[str]) -> dict[str, Any]:
    """The parsed parameters of a command, which does not run; raises for unknown and missing options."""
    command = COMMANDS[arguments[0]]
    with command.make_context(arguments[0], list(arguments[1:])) as context:
        return dict(context.params)


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> workspaces.Workspace:
    """A workspace that writes no subsets of datasets."""
    monkeypatch.setattr(workspaces, "write_subset", lambda name, count, path, skip=0: 0)
    monkeypatch.setattr(workspaces, "data_path", lambda name: tmp_path / name)
    monkeypatch.setattr(data_size, "domain_text", lambda workspace, name: "data/films.txt")
    return workspaces.Workspace(tmp_path / "folder", 15, 1, divisor=5)


def full_study(workspace: workspaces.Workspace) -> data_size.DataSizeStudy:
    parts = list(data_size.PARTS)
    return data_size.DataSizeStudy(workspace._replace(epochs=None), parts, data_size.SIZES, 2, "60s")


def all_commands(workspace: workspaces.Workspace) -> Iterator[list[str]]:
    table = results.ResultsTable(workspace, list(results.ROWS), list(task_data.DATASETS), 2)
    for model, language in results.models_of(table.runs()):
        yield results.MINILM_COMMAND if model == results.MINILM else workspace.pretrain_command(model, language)
    for row, name in table.cells():
        yield [*table.command(row, name, 1), "-o", "out"]
    study = full_study(workspace)
    for point in study.points():
        yield [*study.command(*point), "-o", "out"]
    for name, model in data_size.domains_of(study.points()):
        yield study.adapt_command(name, model)


def parse_verbs(commands: list[list[str]]) -> dict[str, Any]:
    """The parameters of finetune; predict and evaluate must use its model and validation file."""
    finetune, predict, evaluate = map(parse, commands)
    assert str(finetune["out"]) == str(predict["model"]) == str(evaluate["model"])
    assert finetune["dev"] == str(predict["file"]) == str(evaluate["files"][0]) != finetune["train"]
    return finetune


def test_commands_for_every_labelled_set_parse(workspace: workspaces.Workspace) -> None:
    runs = every_set.DatasetRuns(workspace, 100, 50)
    for name, dataset in every_set.SETS.items():
        assert parse_verbs(runs.commands(name))["task"] == dataset.task


def test_commands_for_every_generator_parse(workspace: workspaces.Workspace) -> None:
    for name in writing.SETS:
        for row, (_, has_decoder, is_random) in writing.ROWS.items():
            finetune = parse_verbs(writing.row_commands(workspace, name, row))
            assert (finetune["decoder"] is not None, finetune["random"]) == (has_decoder, is_random)


def test_all_other_commands_parse(workspace: workspaces.Workspace) -> None:
    for arguments in all_commands(workspace):
        parsed = parse(arguments)
        if arguments[0] == "finetune":
            assert parsed["task"] in TASKS
            assert str(parsed["out"]) == "out"
        elif arguments[0] == "train":
            find_recipe(parsed["recipe"])


def test_parsing_refuses_unknown_options() -> None:
    with pytest.raises(Exception, match="No such option"):
        parse(["finetune", "m", "classify", "--train", "a", "--dev", "b", "-o", "c", "--nonsense"])


def test_every_dataset_has_the_models_of_its_language(workspace: workspaces.Workspace) -> None:
    table = results.ResultsTable(workspace, list(results.ROWS), list(task_data.DATASETS), 2)
    english = [row for row, name in table.cells() if name == "sst2"]
    chinese = [row for row, name in table.cells() if name == "c3"]
    assert english == list(results.ROWS)
    assert chinese == [row for row in results.ROWS if row != results.MINILM]
    names = [table.cell_name(row, name, seed) for row, name in table.cells() for seed in (0, 1)]
    assert len(set(names)) == len(names)


def test_points_of_the_curves_have_unique_names(workspace: workspaces.Workspace) -> None:
    study = full_study(workspace)
    commands = {study.cell_name(*point): study.command(*point) for point in study.points()}
    assert len(set(map(tuple, commands.values()))) == len(commands)


def test_smaller_subsets_are_contained_in_larger_ones() -> None:
    assert set(task_data.sample_indices(1000, 10)) < set(task_data.sample_indices(1000, 100))
    assert task_data.sample_indices(5, 100) == [0, 1, 2, 3, 4]
    assert not set(task_data.sample_indices(1000, 100)) & set(task_data.sample_indices(1000, 50, skip=100))


def test_results_of_an_earlier_run_are_reused(
    workspace: workspaces.Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = results.ResultsTable(workspace, ["tfidf", "bert"], ["sst2"], 1)
    commands = {table.cell_name(*run): table.command(*run) for run in table.runs()}
    known = {
        cell: {"command": [*command, "-o", f"tuned/{cell}"], "dev": {"accuracy": 0.5}}
        for cell, command in commands.items()
    }
    workspace.export_results(tmp_path / "earlier.json", known)
    again = table._replace(workspace=workspace._replace(folder=tmp_path / "another"))
    monkeypatch.setattr(workspaces, "run", lambda *args, **kwargs: pytest.fail("a command ran"))
    monkeypatch.setattr(workspaces.Workspace, "pretrain", lambda *args: pytest.fail("a model was pre-trained"))
    assert again.missing() == again.runs()
    again.workspace.import_results(tmp_path / "earlier.json")
    assert results.estimate(again) == 0
    found, errors = results.run_all(again)
    assert again.known() == known
    assert found["bert"]["sst2"] == [known[table.cell_name("bert", "sst2", 0)]]
    assert not errors
    other = again._replace(workspace=again.workspace._replace(epochs=7))
    assert other.missing() == [("bert", "sst2", 0)], "a result of other settings was reused"


def test_a_page_has_scores_and_errors(workspace: workspaces.Workspace) -> None:
    table = results.ResultsTable(workspace, ["tfidf", "bert"], ["sst2", "conll2003"], 2)
    dev = {"accuracy": 0.5, "baseline": {"accuracy": 0.4}}
    done = [{"dev": dev, "seconds": 3.0}, {"dev": dev | {"accuracy": 0.75}, "seconds": 4.0}]
    found = {"tfidf": {"sst2": done, "conll2003": [{"error": "cannot tag"}] * 2}}
    page = results.format_page(table, found, {"bert en": "no text"})
    assert "| TF-IDF, linear | 0.625 ± 0.125 (4 s) | – (1) |" in page
    assert "| trivial baseline | 0.400 | – |" in page
    assert "1. TF-IDF, linear, CoNLL-2003: cannot tag" in page
    assert "Left out: bert en: no text." in page
    both = [{"dev": {"f1": 0.5, "span_f1": 0.25}, "seconds": 3.0}]
    spans = results.format_page(table._replace(rows=["bert"], datasets=["squad2"]), {"bert": {"squad2": both}}, {})
    assert "| task, metric | span, f1 / span f1 |" in spans
    assert "| BERT | 0.500 / 0.250 (3 s) |" in spans
    assert "firth finetune en/words classify --train data/sst2.train.1000.tsv --dev data/sst2.dev.tsv --seed 0" in page


@pytest.mark.shared
def test_every_file_exists_and_is_listed(shared_data: Path) -> None:
    listed = (shared_data / "README.md").read_text(encoding="utf-8")
    for name in FILES:
        assert (shared_data / name).is_file(), name
        assert f"`{name}`" in listed, name


@pytest.mark.shared
@pytest.mark.parametrize("name", ["mrpc", "squad2", "c3"])
def test_subsets_are_readable(name: str, shared_data: Path, tmp_path: Path) -> None:
    dataset = task_data.DATASETS[name]
    path = tmp_path / f"part.{dataset.train.removesuffix('.gz').rpartition('.')[2]}"
    assert task_data.write_subset(dataset.train, 20, path) == 20
    assert len(list(read_task(dataset.task, path))) == 20


@pytest.mark.shared
def test_subsets_of_tagged_text_have_whole_sentences(shared_data: Path, tmp_path: Path) -> None:
    dataset = task_data.DATASETS["conll2003"]
    task_data.write_subset(dataset.train, 30, tmp_path / "few.txt")
    few = [(one.words, one.tags) for one in read_task("tag", tmp_path / "few.txt")]
    every = [(one.words, one.tags) for one in read_task("tag", shared_data / dataset.train)]
    assert len(few) == 30
    assert [every[one] for one in task_data.sample_indices(len(every), 30)] == few
