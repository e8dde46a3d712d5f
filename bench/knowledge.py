"""K-BERT beside BERT, and beside K-BERT with a shuffled graph: writes the section "Measured" of docs/k-bert.md.

    python bench/knowledge.py [-o FOLDER] [--minutes 15] [--seeds 3] [--max-examples 20000] [--only medical-ner]

One Chinese BERT is fine-tuned for medical NER with the facts of Medical.spo and for ChnSentiCorp with those of HowNet,
by several seeds: as it is, with facts inserted, and with the same names but the objects of all facts permuted
(--shuffle-graph), which tells knowledge from more tokens. Networks predict alone, without a linear part. Scores are
means over the seeds with 95% intervals (Student's t); differences are those of runs with the same seed. The folder is
that of bench/results.py: its models are reused, and interrupted runs are resumed.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from firth.fit.search import student
from task_data import UNLIMITED
from workspace import Result, Workspace, first_error, format_command, make_page_parser, run_main

HEADING = "\n## Measured\n"
LANGUAGE = "zh"


class KnowledgeSet(NamedTuple):
    """A task whose texts have names of a graph."""

    title: str
    task: str
    train: str
    dev: str
    graph: str
    test: str = ""
    """Empty: scores are those of the dev part, which also selects the checkpoint."""


SETS = {
    "medical-ner": KnowledgeSet(
        "medical NER, Medical.spo", "tag", "tag/medical_ner.train.txt.gz", "tag/medical_ner.dev.txt.gz",
        "knowledge/Medical.spo.gz", "tag/medical_ner.test.txt.gz",
    ),
    "chnsenticorp": KnowledgeSet(
        "ChnSentiCorp, HowNet", "classify", "classify/chnsenticorp.train.tsv.gz", "classify/chnsenticorp.dev.tsv.gz",
        "knowledge/HowNet.spo.gz",
    ),
}  # fmt: skip
ROWS = {"bert": "BERT", "k-bert": "K-BERT", "shuffled": "K-BERT, shuffled graph"}


class KnowledgeTable(NamedTuple):
    """The sets and seeds to run."""

    workspace: Workspace
    sets: Sequence[str]
    seeds: int
    max_examples: int
    max_dev: int

    def command(self, name: str, row: str, seed: int) -> list[str]:
        """The command of a fine-tuning, without `-o`."""
        own, subset = SETS[name], self.workspace.subset
        command = ["finetune", self.workspace.model_path("bert", LANGUAGE), own.task]
        command += ["--train", subset(own.train, self.max_examples), "--dev", subset(own.dev, self.max_dev)]
        command += ["--test", subset(own.test, self.max_dev)] if own.test else []
        command += ["--knowledge", self.workspace.link(own.graph)] if row != "bert" else []
        command += ["--shuffle-graph"] if row == "shuffled" else []
        return [*command, "--set", "linear_weight=0", "--seed", str(seed)]

    def run(self, name: str, row: str, seed: int) -> Result:
        size = "" if self.max_examples >= UNLIMITED else f".{self.max_examples}"
        cell = f"{name}.{row}.{self.workspace.minutes:g}min{size}.{seed}"
        return self.workspace.finetune(cell, self.command(name, row, seed))

    def results(self) -> dict[str, dict[str, list[Result]]]:
        """By set and row, a result for each seed."""
        cells = [(name, row, seed) for name in self.sets for row in ROWS for seed in range(self.seeds)]
        done = iter(self.workspace.run_parallel([partial(self.run, *cell) for cell in cells]))
        return {name: {row: [next(done) for _ in range(self.seeds)] for row in ROWS} for name in self.sets}


def scores_of(results: Sequence[Result]) -> list[float]:
    """The main metric of each run, on the test part if there is one."""
    measured = [result.get("test") or result["dev"] for result in results]
    return [one[one["main"]] for one in measured]


def format_mean(values: Sequence[float], sign: str = "") -> str:
    """The mean with its interval over seeds.

    >>> format_mean([0.5, 0.7]), format_mean([0.25], "+")
    ('0.600 [-0.671, 1.871]', '+0.250')
    """
    mean = statistics.fmean(values)
    if len(values) == 1:
        return f"{mean:{sign}.3f}"
    half = student(len(values)) * statistics.stdev(values) / math.sqrt(len(values))
    return f"{mean:{sign}.3f} [{mean - half:{sign}.3f}, {mean + half:{sign}.3f}]"


def format_row(name: str, row: str, results: dict[str, list[Result]]) -> str:
    runs = results[row]
    if error := first_error(runs) or first_error(results["bert"]):
        return f"| {SETS[name].title} | {ROWS[row]} | {error} | | | |"
    scores, plain = scores_of(runs), scores_of(results["bert"])
    difference = "" if row == "bert" else format_mean([a - b for a, b in zip(scores, plain, strict=True)], "+")
    facts = runs[0].get("knowledge", {})
    counts = f"{facts['facts']:,} ({facts['dropped_facts']:,} dropped)" if facts else ""
    metric = (runs[0].get("test") or runs[0]["dev"])["main"].replace("_", " ")
    part = "test" if "test" in runs[0] else "dev"
    return f"| {SETS[name].title} | {ROWS[row]} | {part} {metric} {format_mean(scores)} | {difference} | {counts} |"


def format_section(table: KnowledgeTable, results: dict[str, dict[str, list[Result]]]) -> str:
    minutes = table.workspace.minutes
    lines = [
        f"Made by `python bench/knowledge.py --minutes {minutes:g} --seeds {table.seeds}`: a Chinese BERT, pre-trained "
        f"for {minutes:g} minutes on two cores, fine-tuned with {table.seeds} seeds, without a linear part, which "
        "knows no graph. Intervals are 95% over seeds; differences are from BERT with the same seed.",
        "",
        "| set, graph | model | score | beside BERT | facts in the training examples |",
        "|---|---|---|---|---:|",
        *(format_row(name, row, rows) for name, rows in results.items() for row in ROWS),
        "",
        "```sh",
        format_command(table.workspace.pretrain_command("bert", LANGUAGE)),
        *(format_command(table.command(name, row, 0)) + " -o DIR" for name in results for row in ROWS),
        "```",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = make_page_parser(__doc__, "docs/k-bert.md")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--max-examples", type=int, default=UNLIMITED, help="for training")
    parser.add_argument("--max-dev", type=int, default=UNLIMITED, help="examples for evaluation")
    parser.add_argument("--only", default="", help=f"comma-separated sets: {', '.join(SETS)}")
    options = parser.parse_args()
    names = options.only.split(",") if options.only else list(SETS)
    if unknown := set(names) - set(SETS):
        parser.error(f"there is no set {min(unknown)}: choose from {', '.join(SETS)}.")
    page = options.write.read_text(encoding="utf-8") if options.write.exists() else "# K-BERT\n"
    workspace = Workspace(options.out.resolve(), options.minutes or 15.0, options.jobs)
    table = KnowledgeTable(workspace, names, options.seeds, options.max_examples, options.max_dev)
    workspace.pretrain_berts([LANGUAGE])
    results = table.results()
    kept = {f"{name} {row}": runs for name, rows in results.items() for row, runs in rows.items()}
    (workspace.folder / "knowledge.json").write_text(json.dumps(kept, ensure_ascii=False, indent=1), encoding="utf-8")
    before = page.partition(HEADING)[0]
    options.write.write_text(f"{before}{HEADING}\n{format_section(table, results)}", encoding="utf-8")
    print(f"-> {options.write}")


if __name__ == "__main__":
    run_main(main)
