"""What pre-training gives for its minutes: makes the table of docs/small-budgets.md.

    python bench/pays.py [-o FOLDER] [--minutes 15] [--seeds 2] [--quick] [--language en,zh] [--only bert,gpt2]

Networks are pre-trained for the same minutes on the same text, beside an n-gram model, and measured by bits per byte of
held-out documents (every 50th of one corpus), minimal pairs, and tasks with the defaults of `firth finetune`; a linear
model of the same examples and the same network from random weights are the baselines. With 1,000 examples the network
is also measured without its linear part. Models and results stay in FOLDER: finished ones are reused, interrupted
ones resumed. Results are also kept as JSON beside the page, which another machine continues. Takes about 6 hours, 30
minutes with --quick.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from task_data import DATASETS, data_path
from workspace import (
    CORPORA,
    Result,
    Workspace,
    error_of,
    format_command,
    format_scores,
    insert_section,
    make_page_parser,
    run,
    run_main,
)

LINEAR, NGRAMS = "words", "mkn5"
"""A tokenizer, whose tasks are linear models, and an n-gram model; neither has a budget."""
NETWORKS = ("gpt2", "bert", "electra", "firth")
HELD_OUT_EVERY = 50
FEW = 1_000
"""Training examples for the comparison with random weights."""
QUICK_MINUTES, QUICK_DIVISOR, QUICK_DEV = 2.0, 10, 300
QUICK_NETWORKS = ("bert", "firth")
SECTION = "results of bench/pays.py"


class Language(NamedTuple):
    """What the models of a language are measured on."""

    title: str
    held_out: str
    """The corpus whose documents are held out."""
    pairs: str
    tasks: tuple[str, ...]


LANGUAGES = {
    "en": Language("English", "lm/wikinews_en.txt.gz", "pairs/blimp_dev.jsonl.gz", ("sst2", "conll2003", "mrpc")),
    "zh": Language("Chinese", "lm/wiki_zh.txt.gz", "pairs/sling_dev.jsonl.gz", ("chnsenticorp", "msra", "ocnli")),
}


class Row(NamedTuple):
    """A row of the tables of tasks."""

    title: str
    model: str
    options: tuple[str, ...] = ()


class Study(NamedTuple):
    """The models, measures and seeds of a language."""

    workspace: Workspace
    language: str
    networks: Sequence[str]
    seeds: int

    def prepare(self) -> None:
        """Write the training text and the held-out text."""
        folder, held_out = self.workspace.folder, []
        for name in CORPORA[self.language]:
            path = folder / self.text(name)
            if path.exists():
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            with gzip.open(data_path(name), "rt", encoding="utf-8") as file:
                documents = list(read_documents(file))
            if name == LANGUAGES[self.language].held_out:
                held_out = documents[::HELD_OUT_EVERY]
                documents = [one for number, one in enumerate(documents) if number % HELD_OUT_EVERY]
                (folder / self.held_out()).write_text("\n".join(held_out), encoding="utf-8")
            path.write_text("\n".join(documents), encoding="utf-8")

    def text(self, name: str) -> str:
        return f"data/{self.language}-train-{Path(name).name.removesuffix('.gz')}"

    def held_out(self) -> str:
        return f"data/{self.language}-held.txt"

    def model(self, name: str) -> str:
        minutes = f"-{self.workspace.minutes:g}min" if name in self.networks else ""
        return f"pays/{self.language}/{name}{minutes}"

    def train_command(self, name: str) -> list[str]:
        budget = ["--budget", f"{round(60 * self.workspace.minutes)}s"] if name in self.networks else []
        return ["train", name, *map(self.text, CORPORA[self.language]), "-o", self.model(name), *budget]

    def commands(self, name: str) -> dict[str, list[str]]:
        """The commands that measure a language model."""
        pairs = self.workspace.link(LANGUAGES[self.language].pairs)
        return {
            "score": ["score", self.model(name), self.held_out(), "--json"],
            "pairs": ["evaluate", self.model(name), "pairs", pairs, "--json"],
        }

    def measure(self, name: str) -> Result:
        """Bits per byte and accuracy in minimal pairs, of this run or an earlier one."""
        path = self.workspace.result_path(self.model(name))
        known: Result = json.loads(path.read_text()) if path.exists() else {}
        for key, command in self.commands(name).items():
            if key not in known:
                done = run(self.workspace.folder, command)
                known[key] = {"error": error} if (error := error_of(done)) else shorten(json.loads(done.stdout))
                self.workspace.save_result(self.model(name), known)
                print(f"{self.model(name):<32}{key:<8}{format_measure(known, key)}", flush=True)
        return known

    def rows(self) -> list[Row]:
        """The rows of the tasks with all examples: the default of each model."""
        return [Row("linear", LINEAR), *(Row(f"`{name}`", name) for name in self.networks)]

    def few_rows(self) -> list[Row]:
        """The rows of the tasks with few examples: networks alone, and the same from random weights."""
        alone = ("--set", "linear_weight=0")
        rows = [Row("linear", LINEAR)]
        for name in self.networks:
            rows += [
                Row(f"`{name}`", name, alone),
                Row(f"`{name}`, random weights", name, ("--random", *alone)),
            ]
        return rows

    def cells(self, row: Row, task: str, count: int | None) -> dict[str, list[str]]:
        """The command of each seed by the name of its result."""
        found = {}
        for seed in range(self.seeds if row.model != LINEAR else 1):
            options = [*row.options, "--seed", str(seed)]
            random = ".random" * ("--random" in options)
            size = "" if count is None else f".{count}"
            cell = f"{self.model(row.model)}.{task}{size}{random}.{seed}"
            found[cell] = self.workspace.finetune_command(task, self.model(row.model), options, count)
        return found

    def all_cells(self) -> dict[str, list[str]]:
        """The commands of all fine-tunings by the names of their results."""
        found: dict[str, list[str]] = {}
        for task in LANGUAGES[self.language].tasks:
            for rows, count in ((self.rows(), None), (self.few_rows(), self.few(task))):
                for row in rows:
                    found |= self.cells(row, task, count)
        return found

    def few(self, task: str) -> int:
        return min(FEW, self.workspace.max_examples(task))

    def run(self) -> None:
        """Train and measure everything that is not known yet."""
        self.prepare()
        cells = self.all_cells()
        known = self.workspace.known_results(cells)
        for name in (LINEAR, NGRAMS, *self.networks):
            measured = self.workspace.result_path(self.model(name)).exists() or name == LINEAR
            if measured and not any(
                self.model(name) in command and cell not in known for cell, command in cells.items()
            ):
                continue
            if error := self.workspace.run_once(self.model(name), self.train_command(name)):
                raise SystemExit(error)
            if name != LINEAR:
                self.measure(name)
        self.workspace.run_parallel([partial(self.workspace.finetune, *one) for one in cells.items()])

    def results(self) -> dict[str, Result]:
        """All known results by their names."""
        found = self.workspace.known_results(self.all_cells())
        for name in (NGRAMS, *self.networks):
            path = self.workspace.result_path(self.model(name))
            if path.exists():
                found[self.model(name)] = json.loads(path.read_text())
        return found

    def tables(self) -> list[str]:
        """The tables of the page."""
        own, found = LANGUAGES[self.language], self.results()
        lines = [f"### {own.title}", "", "| | bits per byte | minimal pairs |", "|---|---|---|"]
        for name in (NGRAMS, *self.networks):
            if measured := found.get(self.model(name)):
                cells = [format_measure(measured, key) for key in ("score", "pairs")]
                lines.append(f"| `{name}` | {' | '.join(cells)} |")
        lines += self.task_table("the defaults", self.rows(), found, few=False)
        lines += self.task_table(f"{FEW:,} examples, networks alone", self.few_rows(), found, few=True)
        return lines

    def task_table(self, title: str, rows: Sequence[Row], found: dict[str, Result], *, few: bool) -> list[str]:
        tasks = LANGUAGES[self.language].tasks
        titles = []
        for task in tasks:
            count = self.few(task) if few else self.workspace.max_examples(task)
            titles.append(f"{DATASETS[task].title} {count:,}")
        lines = ["", f"| {title} | {' | '.join(titles)} |", f"|---|{'---|' * len(tasks)}"]
        for row in rows:
            cells = []
            for task in tasks:
                names = self.cells(row, task, self.few(task) if few else None)
                scores = [found[one]["dev"][DATASETS[task].metric] for one in names if one in found]
                cells.append(format_scores(scores) if scores else "–")
            lines.append(f"| {row.title} | {' | '.join(cells)} |")
        return lines


def read_documents(lines: Iterator[str]) -> Iterator[str]:
    """The documents of a corpus, which empty lines separate.

    >>> list(read_documents(iter(["a\\n", "b\\n", "\\n", "c\\n"])))
    ['a\\nb\\n', 'c\\n']
    """
    document: list[str] = []
    for line in lines:
        if line.strip():
            document.append(line)
        elif document:
            yield "".join(document)
            document = []
    if document:
        yield "".join(document)


def shorten(report: Result) -> Result:
    """What the table shows of a report."""
    return {key: report[key] for key in ("bits_per_byte", "kind", "accuracy", "accuracy_interval") if key in report}


def format_measure(known: Result, key: str) -> str:
    """Bits per byte with their kind, or an accuracy with its interval; a dash if the model cannot do it."""
    found = known.get(key, {})
    if "bits_per_byte" in found:
        return f"{found['bits_per_byte']:.3f} ({found['kind']})"
    if "accuracy" in found:
        low, high = found["accuracy_interval"]
        return f"{found['accuracy']:.3f} [{low:.3f}, {high:.3f}]"
    return "–"


def format_section(studies: Sequence[Study], arguments: str) -> list[str]:
    workspace = studies[0].workspace
    lines = [
        f"Made by `python bench/pays.py{arguments}`. Networks are pre-trained for {workspace.minutes:g} minutes of 2 "
        "cores on wiki_en and wikinews_en, or wiki_zh, at the size that Firth chooses; every "
        f"{HELD_OUT_EVERY}th document of wikinews_en or wiki_zh is held out. Scores of tasks are the mean over "
        f"{studies[0].seeds} seeds and half of their range, on the dev part. `{NGRAMS}` reads all of the text.",
        "",
    ]
    for study in studies:
        lines += [*study.tables(), ""]
    command = studies[0].train_command(studies[0].networks[-1])
    return [*lines, "```sh", format_command(command), "```"]


def main() -> None:
    parser = make_page_parser(__doc__, "docs/small-budgets.md", quick="less of everything: half an hour")
    parser.add_argument("--language", default=",".join(LANGUAGES))
    parser.add_argument("--only", default="", help="comma-separated networks")
    options = parser.parse_args()
    networks = QUICK_NETWORKS if options.quick else NETWORKS
    networks = tuple(options.only.split(",")) if options.only else networks
    if unknown := set(networks) - set(NETWORKS):
        parser.error(f"there is no network {min(unknown)}: choose from {', '.join(NETWORKS)}.")
    workspace = Workspace(
        options.out.resolve(),
        options.minutes or (QUICK_MINUTES if options.quick else 15.0),
        options.jobs,
        QUICK_DIVISOR if options.quick else 1,
        *((QUICK_DEV,) if options.quick else ()),
        epochs=None,
    )
    seeds = options.seeds or (1 if options.quick else 2)
    studies = [Study(workspace, one, networks, seeds) for one in options.language.split(",")]
    kept = options.known or options.write.with_name("pays.json")
    if kept.exists() and not options.quick:
        workspace.import_results(kept)
    for study in studies:
        study.run()
        arguments = " --quick" if options.quick else f" --minutes {workspace.minutes:g}"
        insert_section(options.write, SECTION, format_section(studies, arguments))
        if not options.quick:
            results = {name: one for some in studies for name, one in some.results().items()}
            workspace.export_results(options.write.with_name("pays.json"), results)
    print(f"-> {options.write}")


if __name__ == "__main__":
    run_main(main)
