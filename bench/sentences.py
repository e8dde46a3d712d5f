"""Every sentence encoder on one text: makes the table of docs/sentences.md.

    python bench/sentences.py [-o FOLDER] [--minutes 10] [--jobs 2] [--only infersent,sif] [--minilm DIR]
        [--sets mr,sick]

Each model is trained for the same time of one core (--jobs models side by side) on wikinews_en and the labelled data
that its recipe uses (SNLI's development set, for its training set could not be had, and Multi30k for translation), then
measured by `firth evaluate M sentences`. MiniLM is imported from a folder of Hugging Face or sentence-transformers, if
one is given. Models and results stay in FOLDER: finished ones are reused, interrupted ones resumed. Results are also
kept as JSON beside the page, which another machine continues. Takes about 12 minutes of one core and the evaluation for
each model.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from task_data import SHARED
from workspace import Result, Workspace, error_of, insert_section, make_page_parser, run, run_main

TEXT = "lm/wikinews_en.txt.gz"
LABELLED = "pair/snli.dev.tsv.gz"
PARALLEL = "generate/multi30k_en_de.train.tsv.gz"
SECTION = "results of bench/sentences.py"


class Member(NamedTuple):
    """A model of the table."""

    title: str
    data: tuple[str, ...] = (TEXT,)
    settings: tuple[str, ...] = ()
    start: str = ""
    """The member that it is adapted from."""
    options: tuple[str, ...] = ()
    """Of `firth evaluate`."""


MEMBERS = {
    "sif": Member("SIF"),
    "pv-dbow": Member("PV-DBOW"),
    "bert": Member("BERT, mean", options=("--pooling", "mean")),
    "skip-thoughts": Member("skip-thoughts"),
    "quick-thoughts": Member("quick-thoughts"),
    "infersent": Member("InferSent", (TEXT, LABELLED)),
    "gensen": Member("GenSen", (TEXT, LABELLED, PARALLEL)),
    "use-dan": Member("USE, DAN", (TEXT, LABELLED)),
    "use-transformer": Member("USE, Transformer", (TEXT, LABELLED)),
    "simcse": Member("SimCSE"),
    "simcse-nli": Member(
        "SimCSE with labels, from BERT", (LABELLED,), ("objectives=contrastive-nli", "encoder.dropout=0.1"), "bert"
    ),
}
MINILM = "minilm"
SETS = {
    "mr": ("sentences/mr.tsv.gz",),
    "cr": ("sentences/cr.tsv.gz",),
    "subj": ("sentences/subj.tsv.gz",),
    "mpqa": ("sentences/mpqa.tsv.gz",),
    "sst2": ("classify/sst2.train.tsv.gz", "classify/sst2.dev.tsv"),
    "trec": ("sentences/trec.train.tsv.gz", "sentences/trec.test.tsv"),
    "mrpc": ("pair/mrpc.train.tsv.gz", "pair/mrpc.test.tsv.gz"),
    "sick": ("pair/sick.train.tsv.gz", "pair/sick.test.tsv.gz"),
    "stsb": ("pair/stsb.dev.tsv.gz",),
}
COLUMNS = {
    "MR": ("mr", "accuracy"),
    "CR": ("cr", "accuracy"),
    "SUBJ": ("subj", "accuracy"),
    "MPQA": ("mpqa", "accuracy"),
    "SST-2": ("sst2", "accuracy"),
    "TREC": ("trec", "accuracy"),
    "MRPC": ("mrpc", "accuracy"),
    "SICK-E": ("sick", "accuracy"),
    "STS-B": ("stsb", "spearman"),
    "SICK-R": ("sick", "spearman"),
}


class Measurements(NamedTuple):
    """The commands of the members."""

    workspace: Workspace
    sets: tuple[str, ...]
    minilm: Path | None

    def model(self, name: str) -> str:
        return f"en/{name}" if name == MINILM else f"en/{name}-{self.workspace.minutes:g}min"

    def make_command(self, name: str) -> list[str]:
        """The command that makes a model."""
        if name == MINILM:
            return ["import", "huggingface", str(self.minilm), "-o", self.model(name)]
        member = MEMBERS[name]
        texts = [self.workspace.link(one) for one in member.data]
        first = ["adapt", self.model(member.start)] if member.start else ["train", name]
        settings = [part for one in member.settings for part in ("--set", one)]
        budget = ["--budget", f"{round(60 * self.workspace.minutes)}s", "--threads", "1"]
        return [*first, *texts, "-o", self.model(name), *settings, *budget]

    def evaluate_command(self, name: str, given: str) -> list[str]:
        """The command that measures a model on one dataset."""
        files = [self.workspace.link(one) for one in SETS[given]]
        options = ("--pooling", "whole") if name == MINILM else MEMBERS[name].options
        return ["evaluate", self.model(name), "sentences", *files, *options, "--json"]

    def known(self, name: str) -> Result:
        """The known results of a member."""
        path = self.workspace.result_path(self.model(name))
        return dict(json.loads(path.read_text())) if path.exists() else {}

    def make(self, name: str, locks: dict[str, Lock]) -> str:
        """Train a model unless it is complete, after the one that it starts from; returns the error or nothing."""
        start = MEMBERS[name].start if name in MEMBERS else ""
        if start and (error := self.make(start, locks)):
            return error
        with locks[name]:
            return self.workspace.run_once(self.model(name), self.make_command(name))

    def run(self, name: str, locks: dict[str, Lock]) -> Result:
        """The results of a member: those that are known, and the others as they are made."""
        known = self.known(name)
        if all("error" not in known.get(given, {"error": ""}) for given in self.sets):
            return known
        if error := self.make(name, locks):
            return {"error": error}
        manifest = json.loads((self.workspace.folder / self.model(name) / "manifest.json").read_text())
        known["parameters"] = manifest["metrics"].get("parameters")
        for given in self.sets:
            if "error" in known.get(given, {"error": ""}):
                done = run(self.workspace.folder, self.evaluate_command(name, given))
                error = error_of(done)
                known[given] = {"error": error} if error else _only(json.loads(done.stdout))
                self.workspace.save_result(self.model(name), known)
                print(f"{name:<18}{given:<8}{known[given]}", flush=True)
        return known


def _only(report: Result) -> Result:
    """The metrics of a report on one dataset, and the mean cosine of random pairs of its texts."""
    ((_, found),) = report["sets"].items()
    return {**found, "mean_cosine": report["mean_cosine"]}


def format_cell(result: Result, given: str, metric: str) -> str:
    """A percentage with half of the width of its interval; a dash without a measurement.

    >>> format_cell({"mr": {"accuracy": 0.75, "accuracy_interval": [0.74, 0.76]}}, "mr", "accuracy")
    '75.0 ± 1.0'
    """
    found = result.get(given, {})
    if metric not in found:
        return "–"
    low, high = found[f"{metric}_interval"]
    return f"{100 * found[metric]:.1f} ± {50 * (high - low):.1f}"


def format_table(results: dict[str, Result], sets: Sequence[str], minutes: float) -> list[str]:
    columns = {title: where for title, where in COLUMNS.items() if where[0] in sets}
    lines = [
        f"Made by `python bench/sentences.py --minutes {minutes:g}`: each model is trained for {minutes:g} minutes of "
        "one core on wikinews_en and its labelled data, at the size that Firth chooses for that budget. Accuracy, and "
        "for STS-B and SICK-R Spearman's correlation, in percent, with half of the width of the 95% interval.",
        "",
        f"| model | {' | '.join(columns)} | mean |",
        f"|---|{'---|' * (len(columns) + 1)}",
    ]
    for name, result in results.items():
        title = "MiniLM" if name == MINILM else MEMBERS[name].title
        if "error" in result:
            lines.append(f"| {title} | {result['error']} |{' |' * len(columns)}")
            continue
        cells = [format_cell(result, *where) for where in columns.values()]
        known = [result[given][metric] for given, metric in columns.values() if metric in result.get(given, {})]
        mean = f"{100 * sum(known) / len(known):.1f}" if known else "–"
        lines.append(f"| {title} | {' | '.join(cells)} | {mean} |")
    return lines


def main() -> None:
    parser = make_page_parser(__doc__, "docs/sentences.md")
    parser.add_argument("--only", default="", help="comma-separated models")
    parser.add_argument("--sets", default="", help="comma-separated datasets")
    parser.add_argument("--minilm", type=Path, help="folder of an encoder to import")
    options = parser.parse_args()
    known = [*MEMBERS, *([MINILM] if options.minilm else [])]
    names = options.only.split(",") if options.only else known
    sets = options.sets.split(",") if options.sets else list(SETS)
    for given, allowed in ((names, known), (sets, list(SETS))):
        if unknown := set(given) - set(allowed):
            parser.error(f"there is no {min(unknown)}: choose from {', '.join(allowed)}.")
    found = tuple(one for one in sets if all((SHARED / file).exists() for file in SETS[one]))
    minilm = options.minilm.resolve() if options.minilm else None
    measurements = Measurements(Workspace(options.out.resolve(), options.minutes or 10.0, options.jobs), found, minilm)
    workspace = measurements.workspace
    kept = options.write.with_suffix(".json")
    if kept.exists():
        workspace.import_results(kept)
    locks, failed, writing = defaultdict[str, Lock](Lock), dict[str, Result](), Lock()

    def measure(name: str) -> None:
        result = measurements.run(name, locks)
        with writing:
            if "error" in result:
                failed[name] = result
            results = {one: known for one in (*MEMBERS, MINILM) if (known := measurements.known(one))}
            workspace.export_results(kept, {measurements.model(one): known for one, known in results.items()})
            insert_section(options.write, SECTION, format_table(results | failed, found, workspace.minutes))

    workspace.run_parallel([partial(measure, name) for name in names])
    print(f"-> {options.write}")


if __name__ == "__main__":
    run_main(main)
