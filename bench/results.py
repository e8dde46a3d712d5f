"""Real tasks with every kind of model: makes docs/results.md.

    python bench/results.py [--quick] [-o FOLDER] [--minutes 15] [--seeds 2] [--only bert,gpt,sst2] [--with FILE.json]

Each model is pre-trained for the same time on the same text, then fine-tuned on at most 5,000 examples of each dataset
(fewer where they are long), with each seed; scores are those on the dev part. Models and results stay in FOLDER:
finished ones are reused, interrupted ones resumed, failed ones tried again. All results are also written beside the
page as JSON; --with reuses those of an earlier run, so that the languages can be run on different days. FIRTH_MINILM
names the folder of all-MiniLM-L6-v2 for the row of an imported model. Takes 20 minutes with
--quick, else about 4 hours.
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from task_data import DATASETS, LANGUAGES, UNLIMITED, Dataset
from workspace import (
    CORPORA,
    RECIPES,
    WITHOUT_BUDGET,
    ModelVariant,
    Result,
    Workspace,
    error_of,
    first_error,
    format_command,
    format_scores,
    make_page_parser,
    run,
    run_main,
)

QUICK_DIVISOR, QUICK_DEV, QUICK_MINUTES = 5, 200, 0.75
MINILM = "minilm"
MINILM_COMMAND = ["import", "huggingface", "data/all-MiniLM-L6-v2", "-o", f"en/{MINILM}"]
SQUAD_NOTE = (
    "A thousand questions for two epochs are 64 steps: perhaps too few for the SQuAD column to be informative. With"
    " all 4,757 questions for three epochs (`--train data/squad2_part.train.json.gz --set "
    "learning.epochs=3`), the best spans of a BERT of 15 minutes have F1 0.114 [0.086, 0.142], those of the "
    "same from random weights 0.077 [0.054, 0.099] (one seed; the intervals overlap)."
)
ROWS = {
    "tfidf": ModelVariant("TF-IDF, linear", "words", 500_000),
    "skipgram": ModelVariant("skip-gram + BiLSTM", "skipgram", 30_000),
    "elmo": ModelVariant("ELMo", "elmo", 12_000),
    "gpt": ModelVariant("GPT", "gpt", 10_000),
    "bert": ModelVariant("BERT", "bert", 22_000),
    "random": ModelVariant("the same BERT from random weights", "bert", 22_000, ("--random",)),
    MINILM: ModelVariant("MiniLM, imported", MINILM, 2_400, languages=("en",), max_epochs=2),
}
STARTUP_SECONDS = 5.0
"""Of a command: imports, loading, intervals of the metrics."""
READING_SECONDS = 25.0
"""Of the text before pre-training."""
Results = dict[str, dict[str, list[Result]]]
"""By row and dataset, a result for each seed."""


class ResultsTable(NamedTuple):
    """The rows, datasets and seeds to run."""

    workspace: Workspace
    rows: Sequence[str]
    datasets: Sequence[str]
    seeds: int

    def cells(self) -> Iterator[tuple[str, str]]:
        """Rows and datasets of the same language."""
        for name in self.datasets:
            for row in self.rows:
                if DATASETS[name].language in ROWS[row].languages:
                    yield row, name

    def runs(self) -> list[tuple[str, str, int]]:
        """Rows, datasets and seeds of all fine-tunings."""
        return [(row, name, seed) for row, name in self.cells() for seed in range(self.seeds)]

    def known(self) -> dict[str, Result]:
        """The known results by the names of their cells."""
        return self.workspace.known_results({self.cell_name(*run): self.command(*run) for run in self.runs()})

    def missing(self) -> list[tuple[str, str, int]]:
        known = self.known()
        return [run for run in self.runs() if self.cell_name(*run) not in known]

    def command(self, row: str, name: str, seed: int) -> list[str]:
        """The command of a fine-tuning, without `-o`."""
        model = self.workspace.model_path(ROWS[row].model, DATASETS[name].language)
        options = (*ROWS[row].options, "--seed", str(seed))
        return self.workspace.finetune_command(name, model, options, epochs=self.epochs(row, name))

    def epochs(self, row: str, name: str) -> int:
        return min(ROWS[row].max_epochs, self.workspace.epochs or DATASETS[name].epochs)

    def cell_name(self, row: str, name: str, seed: int) -> str:
        return f"{name}.{row}.{self.workspace.minutes:g}min.{self.workspace.max_examples(name)}.{seed}"


def models_of(runs: Sequence[tuple[str, str, int]]) -> list[tuple[str, str]]:
    """The models and languages that fine-tunings need."""
    return list(dict.fromkeys((ROWS[row].model, DATASETS[name].language) for row, name, _ in runs))


def estimate(table: ResultsTable) -> float:
    """The approximate seconds of what is missing, by speeds measured on two cores."""
    workspace, missing, seconds = table.workspace, table.missing(), 0.0
    for model, language in models_of(missing):
        path = workspace.folder / workspace.model_path(model, language) / "manifest.json"
        if not path.exists() and model in RECIPES:
            seconds += READING_SECONDS + 60 * workspace.minutes * (model not in WITHOUT_BUDGET)
    for row, name, _ in missing:
        epochs, dataset = table.epochs(row, name), DATASETS[name]
        # Validation, after each epoch and at the end, is three times as fast as training.
        validation = (epochs + 1) * dev_examples(dataset, workspace) / 3
        tokens = dataset.tokens * (epochs * workspace.max_examples(name) + validation)
        seconds += STARTUP_SECONDS / workspace.jobs + tokens / ROWS[row].speed
    return seconds


def dev_examples(dataset: Dataset, workspace: Workspace) -> int:
    return min(workspace.max_dev, dataset.dev_examples, dataset.max_dev)


def run_all(table: ResultsTable) -> tuple[Results, dict[str, str]]:
    """All results, and the errors of pre-training by model and language."""
    workspace, errors = table.workspace, {}
    for model, language in models_of(table.missing()):
        if error := import_minilm(workspace) if model == MINILM else workspace.pretrain(model, language):
            errors[f"{model} {language}"] = error
    runs = [run for run in table.runs() if f"{ROWS[run[0]].model} {DATASETS[run[1]].language}" not in errors]
    tasks = [partial(workspace.finetune, table.cell_name(*run), table.command(*run)) for run in runs]
    results: Results = {}
    for (row, name, _), result in zip(runs, workspace.run_parallel(tasks), strict=True):
        results.setdefault(row, {}).setdefault(name, []).append(result)
    return results, errors


def import_minilm(workspace: Workspace) -> str:
    """Import MiniLM unless it is there; returns the error, or an empty string."""
    path = os.environ.get("FIRTH_MINILM", "")
    if not path and not (workspace.folder / "en" / MINILM).exists():
        return "FIRTH_MINILM does not name the folder of all-MiniLM-L6-v2"
    if (workspace.folder / "en" / MINILM / "manifest.json").exists():
        return ""
    (workspace.folder / "data").mkdir(parents=True, exist_ok=True)
    link = workspace.folder / "data" / "all-MiniLM-L6-v2"
    if not link.exists():
        link.symlink_to(Path(path).resolve())
    return error_of(run(workspace.folder, MINILM_COMMAND))


def format_page(table: ResultsTable, results: Results, errors: dict[str, str]) -> str:
    workspace = table.workspace
    lines = [
        "# Results on real tasks",
        "",
        f"Made by `python bench/results.py {format_options(table)}`. Every network was pre-trained by Firth for the "
        f"same {workspace.minutes:g} minutes on 2 cores on {format_corpora(table)}, in the size that Firth "
        "chooses for that time, and then fine-tuned. A cell is the mean over "
        f"{table.seeds} seed{'s' * (table.seeds > 1)} on the dev part, ± half of the range, and the seconds of a "
        "fine-tuning with one thread. The dev part also selects the checkpoint, so scores are slightly optimistic, in "
        "all rows alike. The last row is a trivial baseline: the majority label, no entity or no answer. The "
        "span F1 of reading comprehension is that of the best spans of answerable questions, whether or not they were "
        "predicted: with so few examples hardly any score passes the threshold.",
        *([] if workspace.epochs or "squad2" not in table.datasets else ["", SQUAD_NOTE]),
        "",
        "The commands run in the folder that `-o` names. Its `data/` has the real texts and parts of "
        "the real datasets: `python bench/task_data.py sst2 1000 FILE` writes one.",
    ]
    for language, called in LANGUAGES.items():
        datasets = [name for name in table.datasets if DATASETS[name].language == language]
        rows = [row for row in table.rows if language in ROWS[row].languages and row in results]
        if datasets and rows:
            lines += ["", f"## {called}", "", *format_table(table, results, rows, datasets)]
            for row in rows:
                commands = format_commands(table, row, datasets)
                lines += ["", f"### {ROWS[row].title} ({called})", "", "```sh", *commands, "```"]
    lines += [f"\nLeft out: {name}: {error}." for name, error in errors.items()]
    return "\n".join(lines) + "\n"


def format_corpora(table: ResultsTable) -> str:
    """The names of the pre-training corpora."""
    languages = dict.fromkeys(DATASETS[name].language for name in table.datasets)
    texts = [" and ".join(Path(one).name.split(".")[0] for one in CORPORA[language]) for language in languages]
    return ", or on ".join(texts)


def format_options(table: ResultsTable) -> str:
    minutes = f"--minutes {table.workspace.minutes:g}"
    quick = f"--quick {minutes}" if table.workspace.epochs else minutes
    only = "" if len(table.datasets) == len(DATASETS) else f" --only {','.join(table.datasets)}"
    return f"{quick} --seeds {table.seeds}{only}"


def format_table(table: ResultsTable, results: Results, rows: Sequence[str], names: Sequence[str]) -> list[str]:
    """The lines of a table, followed by the reasons of empty cells."""
    notes: list[str] = []
    workspace, datasets = table.workspace, [DATASETS[name] for name in names]
    columns = {
        "": [dataset.title for dataset in datasets],
        "task, metric": [f"{dataset.task}, {format_metrics(dataset)}" for dataset in datasets],
        "dev examples": [f"{dev_examples(dataset, workspace):,}" for dataset in datasets],
        "maximum training examples, epochs": [
            f"{workspace.max_examples(name):,}, {workspace.epochs or DATASETS[name].epochs}" for name in names
        ],
    }
    for row in rows:
        cells = [format_cell(results[row].get(name, []), DATASETS[name], ROWS[row], notes) for name in names]
        columns[ROWS[row].title] = cells
    columns["trivial baseline"] = [
        format_baseline([results[row].get(name, []) for row in rows], DATASETS[name].metric) for name in names
    ]
    lines = [f"| {title} | {' | '.join(cells)} |".replace("|  |", "| |", 1) for title, cells in columns.items()]
    return [lines[0], "|---|" + "---|" * len(datasets), *lines[1:], *([""] if notes else []), *notes]


def format_cell(results: Sequence[Result], dataset: Dataset, row: ModelVariant, notes: list[str]) -> str:
    """Mean, spread and seconds, or the number of a note with the error, which is added to `notes`."""
    if error := first_error(results):
        notes.append(f"{len(notes) + 1}. {row.title}, {dataset.title}: {error}")
        return f"– ({len(notes)})"
    metrics = [metric for metric in (dataset.metric, dataset.second_metric) if metric]
    scores = [format_scores([result["dev"][metric] for result in results]) for metric in metrics]
    return f"{' / '.join(scores)} ({statistics.mean(result['seconds'] for result in results):.0f} s)"


def format_metrics(dataset: Dataset) -> str:
    return " / ".join(metric.replace("_", " ") for metric in (dataset.metric, dataset.second_metric) if metric)


def format_baseline(column: Sequence[Sequence[Result]], metric: str) -> str:
    """The trivial baseline of a dataset, which is the same in all rows."""
    known = [result["dev"].get("baseline", {}).get(metric) for cell in column for result in cell if "dev" in result]
    return next((f"{value:.3f}" for value in known if value is not None), "–")


def format_commands(table: ResultsTable, row: str, datasets: Sequence[str]) -> list[str]:
    """The commands of a row for the first seed; the others differ in `--seed` and `-o` alone."""
    model, language = ROWS[row].model, DATASETS[datasets[0]].language
    pretrain = MINILM_COMMAND if model == MINILM else table.workspace.pretrain_command(model, language)
    finetune = [[*table.command(row, name, 0), "-o", f"tuned/{table.cell_name(row, name, 0)}"] for name in datasets]
    return [format_command(pretrain), *map(format_command, finetune)]


def main() -> None:
    quick = "1,000 examples at most, one epoch, one seed, 45 seconds of pre-training"
    parser = make_page_parser(__doc__, "docs/results.md", quick=quick)
    parser.add_argument("--only", default="", help=f"rows and datasets, of {', '.join([*ROWS, *DATASETS])}")
    parser.add_argument("--divisor", type=int, help="use 1/N of the training examples; 1 by default, 5 with --quick")
    options = parser.parse_args()
    table = make_table(parser, options)
    if options.known is not None:
        table.workspace.import_results(options.known)
    print(f"about {estimate(table) / 60:.0f} minutes on 2 cores; results are saved in {options.out}", flush=True)
    results, errors = run_all(table)
    options.write.write_text(format_page(table, results, errors), encoding="utf-8")
    table.workspace.export_results(options.write.with_suffix(".json"), table.known())
    print(f"-> {options.write}, {options.write.with_suffix('.json')}")


def make_table(parser: argparse.ArgumentParser, options: argparse.Namespace) -> ResultsTable:
    only = options.only.split(",") if options.only else []
    for name in only:
        if name not in ROWS and name not in DATASETS:
            parser.error(f"there is neither a row nor a dataset {name}: choose from {', '.join([*ROWS, *DATASETS])}.")
    quick = options.quick
    workspace = Workspace(
        options.out.resolve(),
        options.minutes or (QUICK_MINUTES if quick else 15.0),
        options.jobs,
        options.divisor or (QUICK_DIVISOR if quick else 1),
        QUICK_DEV if quick else UNLIMITED,
        1 if quick else 0,
    )
    rows = [row for row in ROWS if row in only] or list(ROWS)
    datasets = [name for name in DATASETS if name in only] or list(DATASETS)
    return ResultsTable(workspace, rows, datasets, options.seeds or (1 if quick else 2))


if __name__ == "__main__":
    run_main(main)
