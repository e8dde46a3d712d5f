"""The folder of models and results that the task benchmarks share, and helpers of the pages that they write.

Everything is made once: `data/` holds subsets of datasets, `en/` and `zh/` models, `cells/` results as JSON, `tuned/`
models while they are fine-tuned. All commands run in that folder, so that pages can show them as they are.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from harness import make_parser
from task_data import DATASETS, UNLIMITED, data_path, write_subset

T = TypeVar("T")
Result = dict[str, Any]
"""A fine-tuning: its command, and its dev metrics and seconds or its error."""
CORPORA = {"en": ("lm/wiki_en.txt.gz", "lm/wikinews_en.txt.gz"), "zh": ("lm/wiki_zh.txt.gz",)}
RECIPES = ("words", "skipgram", "glove", "elmo", "gpt", "bert")
WITHOUT_BUDGET = ("words", "glove")
"""Recipes that train until they are done."""
NETWORKS = ("elmo", "gpt", "bert")
"""Pre-trained on sequences of 128 tokens, for long texts; Firth chooses the size by the budget."""


class ModelVariant(NamedTuple):
    """A model in a table or a chart, and how it is fine-tuned."""

    title: str
    model: str
    speed: float
    """Tokens per second of fine-tuning on two cores after 15 minutes of pre-training, for estimates of the time."""
    options: tuple[str, ...] = ()
    languages: tuple[str, ...] = ("en", "zh")
    max_epochs: int = 1_000
    """Large pre-trained models need few."""
    stages: tuple[str, ...] = ()
    """Further pre-training: domain, task."""


class Workspace(NamedTuple):
    """The folder of models and results, and the settings with which they are made."""

    folder: Path
    minutes: float
    """Of pre-training."""
    jobs: int
    """Fine-tunings side by side with one thread each: faster than one with several threads."""
    divisor: int = 1
    """Use 1/`divisor` of the training examples of a dataset."""
    max_dev: int = UNLIMITED
    epochs: int | None = 0
    """0: those of the dataset; None: chosen by Firth from the number of examples."""

    def example_files(self, name: str, count: int | None = None) -> tuple[str, str]:
        """Files of training and validation examples."""
        dataset = DATASETS[name]
        train = self.subset(dataset.train, self.max_examples(name) if count is None else count)
        return train, self.subset(dataset.dev, min(dataset.max_dev, self.max_dev))

    def max_examples(self, name: str) -> int:
        return max(1, DATASETS[name].max_examples // self.divisor)

    def subset(self, name: str, count: int, skip: int | None = None) -> str:
        """A file with a subset of the examples of a file, or a link to it if the count is unlimited."""
        if count >= UNLIMITED:
            return self.link(name)
        stem, kind = Path(name).name.removesuffix(".gz").rsplit(".", 1)
        path = f"data/{stem}.{count if skip is None else f'{skip}-{skip + count}'}.{kind}"
        if not (self.folder / path).exists():
            write_subset(name, count, self.folder / path, skip or 0)
        return path

    def link(self, name: str) -> str:
        """A link to a file of the real data."""
        path = self.folder / "data" / Path(name).name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)  # a dangling link
            path.symlink_to(data_path(name))
        return f"data/{path.name}"

    def model_path(self, name: str, language: str) -> str:
        has_budget = name in RECIPES and name not in WITHOUT_BUDGET
        return f"{language}/{name}-{self.minutes:g}min" if has_budget else f"{language}/{name}"

    def pretrain_command(self, name: str, language: str) -> list[str]:
        command = ["train", name, *map(self.link, CORPORA[language]), "-o", self.model_path(name, language)]
        command += ["--set", "sequence.length=128"] if name in NETWORKS else []
        return command + ([] if name in WITHOUT_BUDGET else ["--budget", f"{round(60 * self.minutes)}s"])

    def pretrain(self, name: str, language: str) -> str:
        """Pre-train or resume a model unless it is complete; returns the error, or an empty string."""
        return self.run_once(self.model_path(name, language), self.pretrain_command(name, language))

    def pretrain_berts(self, languages: Iterable[str]) -> None:
        """Pre-train a BERT for each language; raises `SystemExit` on an error."""
        for language in dict.fromkeys(languages):
            if error := self.pretrain("bert", language):
                raise SystemExit(error)

    def run_once(self, out: str, command: Sequence[str]) -> str:
        """Run a command that makes a model, unless it is complete; returns the error, or an empty string."""
        if (self.folder / out / "manifest.json").exists():
            return ""
        print(format_command(command), flush=True)
        resume = ["--resume"] if (self.folder / out).exists() else []
        return error_of(run(self.folder, [*command, *resume], is_shown=True))

    def finetune_command(
        self, name: str, model: str, options: Sequence[str] = (), count: int | None = None, epochs: int | None = None
    ) -> list[str]:
        """The command that fine-tunes a model, without `-o`."""
        dataset, (train, dev) = DATASETS[name], self.example_files(name, count)
        # Linear models without a network train until they converge.
        is_free = self.epochs is None or model.endswith("/words")
        setting = [] if is_free else ["--set", f"learning.epochs={epochs or self.epochs or dataset.epochs}"]
        return ["finetune", model, dataset.task, "--train", train, "--dev", dev, *setting, *options]

    def result_path(self, cell: str) -> Path:
        return self.folder / "cells" / f"{cell}.json"

    def known_result(self, cell: str, command: Sequence[str]) -> Result | None:
        """The result of a successful fine-tuning by the same command."""
        if not self.result_path(cell).exists():
            return None
        result: Result = json.loads(self.result_path(cell).read_text())
        return result if result["command"] == [*command, "-o", f"tuned/{cell}"] and "error" not in result else None

    def known_results(self, commands: Mapping[str, Sequence[str]]) -> dict[str, Result]:
        """The known results of cells, given the command of each."""
        found = {cell: self.known_result(cell, command) for cell, command in commands.items()}
        return {cell: result for cell, result in found.items() if result is not None}

    def import_results(self, path: Path) -> None:
        """Add the results that `export_results` has written; those of this folder stay."""
        for cell, result in json.loads(path.read_text(encoding="utf-8")).items():
            if not self.result_path(cell).exists():
                self.save_result(cell, result)

    def export_results(self, path: Path, results: dict[str, Result]) -> None:
        lines = [f"{json.dumps(cell)}: {json.dumps(result, ensure_ascii=False)}" for cell, result in results.items()]
        path.write_text("{" + ",\n".join(lines) + "}\n", encoding="utf-8")

    def save_result(self, cell: str, result: Result) -> None:
        self.result_path(cell).parent.mkdir(parents=True, exist_ok=True)
        self.result_path(cell).write_text(json.dumps(result, ensure_ascii=False, indent=1))

    def finetune(self, cell: str, command: Sequence[str]) -> Result:
        """The result of a fine-tuning, which runs unless its result is known."""
        if (known := self.known_result(cell, command)) is not None:
            return known
        out = f"tuned/{cell}"
        resume = ["--resume"] if (self.folder / out).exists() else []
        done = run(self.folder, [*command, "-o", out, "--threads", "1", "--json", *resume])
        result: Result = {"command": [*command, "-o", out]}
        if error := error_of(done):
            result["error"] = error
        else:
            info = json.loads(done.stdout)
            metrics = info["metrics"]
            result |= {"dev": metrics["dev"], "seconds": info["budget"]["spent"]["seconds"]}
            result |= {name: metrics[name] for name in ("test", "knowledge") if name in metrics}
        for folder in (out, f"{out}.stages"):
            shutil.rmtree(self.folder / folder, ignore_errors=True)
        self.save_result(cell, result)
        print(f"{cell:<48}{result.get('error') or format_result(result)}", flush=True)
        return result

    def run_verbs(self, commands: Sequence[Sequence[str]]) -> Result:
        """The result of `verb_commands`, which run unless it is known; the predictions stay where they are written."""
        (finetune, predict, evaluate), out = commands, commands[0][-1]
        path = self.folder / f"{out}.facts.json"
        if path.exists() and (known := json.loads(path.read_text()))["commands"] == commands:
            return dict(known)
        result: Result = {"commands": commands}
        options = ["--threads", "1", "--json"] + ["--resume"] * (self.folder / out).exists()
        for command in ([*finetune, *options], [*predict, "--force"], evaluate):
            done = run(self.folder, command)
            if error := error_of(done):
                return result | {"error": f"{command[0]}: {error}"}
            if command[0] == "finetune":
                result["seconds"] = round(json.loads(done.stdout)["budget"]["spent"]["seconds"])
        result["found"] = json.loads(done.stdout)
        predicted = (self.folder / predict[-1]).read_text(encoding="utf-8").count("\n")
        if predicted < result["found"]["examples"]:  # examples without text are predicted, but not evaluated
            raise SystemExit(f"{out}: {predicted} predictions for {result['found']['examples']} examples.")
        path.write_text(json.dumps(result, ensure_ascii=False, indent=1))
        return result

    def run_parallel(self, tasks: Sequence[Callable[[], T]]) -> list[T]:
        """The results of all tasks, `jobs` at a time."""
        pool = ThreadPoolExecutor(self.jobs)
        try:
            return list(pool.map(lambda task: task(), tasks))
        finally:
            pool.shutdown(cancel_futures=True)


def verb_commands(
    model: str, task: str, train: str, dev: str, out: str, options: Sequence[str], reading: Sequence[str] = ()
) -> list[list[str]]:
    """The commands of finetune, predict and evaluate; `reading`: options of the last two."""
    return [
        ["finetune", model, task, "--train", train, "--dev", dev, *options, "-o", out],
        ["predict", out, dev, *reading, "-o", f"{out}.jsonl"],
        ["evaluate", out, "task", dev, *reading, "--json"],
    ]


def run(folder: Path, arguments: Sequence[str], *, is_shown: bool = False) -> subprocess.CompletedProcess[str]:
    """Run a Firth command in a folder, with its standard error printed if `is_shown`; raises if it is interrupted."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-W", "ignore", "-m", "firth", *arguments]
    lines: list[str] = []
    with tempfile.TemporaryFile("w+") as output:
        with subprocess.Popen(command, cwd=folder, text=True, stdout=output, stderr=subprocess.PIPE) as process:
            for line in process.stderr or ():
                lines.append(line)
                if is_shown:
                    print(f"  {line}", end="", flush=True)
        if process.returncode in (130, -2, -15):
            raise KeyboardInterrupt
        output.seek(0)
        return subprocess.CompletedProcess(command, process.returncode, output.read(), "".join(lines))


def error_of(done: subprocess.CompletedProcess[str]) -> str:
    """The error message of a command, or an empty string."""
    if done.returncode == 0:
        return ""
    lines = done.stderr.strip().splitlines()
    return lines[-1].removeprefix("firth: ") if lines else f"ended with code {done.returncode}"


def first_error(results: Sequence[Result]) -> str:
    """The first error of repeated runs, or an empty string."""
    return next((result["error"] for result in results if "error" in result), "" if results else "not made")


def format_command(arguments: Sequence[str]) -> str:
    return shlex.join(["firth", *arguments])


def format_result(result: Result) -> str:
    values = [f"{name} {value:.3f}" for name, value in result["dev"].items() if isinstance(value, float)]
    return f"{result['seconds']:6.0f} s  {', '.join(values[:3])}"


def format_scores(scores: Sequence[float]) -> str:
    """The mean and half of the range.

    >>> format_scores([0.5]), format_scores([0.5, 0.75])
    ('0.500', '0.625 ± 0.125')
    """
    spread = f" ± {(max(scores) - min(scores)) / 2:.3f}" if len(scores) > 1 else ""
    return f"{statistics.mean(scores):.3f}{spread}"


def make_page_parser(description: str | None, page: str, *, quick: str = "") -> argparse.ArgumentParser:
    """The options of scripts that write a page; with `quick`, the help of --quick, also --quick, --seeds and --with."""
    parser = make_parser(description)
    parser.add_argument("-o", "--out", type=Path, default=Path("results"), help="folder of models and results")
    parser.add_argument("--write", type=Path, default=Path(page), help="the page")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="fine-tunings side by side")
    parser.add_argument("--minutes", type=float, help="of pre-training; 15 by default, less with --quick")
    if quick:
        parser.add_argument("--quick", action="store_true", help=quick)
        parser.add_argument("--seeds", type=int, help="2 by default, 1 with --quick")
        parser.add_argument("--with", type=Path, dest="known", help="results of an earlier run to be reused")
    return parser


def insert_section(path: Path, title: str, lines: Sequence[str]) -> None:
    """Write lines between the markers of a section of a page, or at the end of the page if it has none."""
    page = path.read_text(encoding="utf-8") if path.exists() else ""
    path.write_text(replace_section(page, title, "\n".join(lines)), encoding="utf-8")


def replace_section(page: str, title: str, text: str) -> str:
    """The page with another text in a section.

    >>> replace_section("a\\n<!-- t -->\\nold\\n<!-- end of t -->\\nb\\n", "t", "new")
    'a\\n<!-- t -->\\nnew\\n<!-- end of t -->\\nb\\n'
    """
    begin, end = f"<!-- {title} -->", f"<!-- end of {title} -->"
    section = f"{begin}\n{text}\n{end}"
    if begin not in page or end not in page:
        return f"{page.rstrip()}\n\n{section}\n".lstrip()
    before, rest = page.split(begin, 1)
    return before + section + rest.split(end, 1)[1]


def run_main(main: Callable[[], None]) -> None:
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("interrupted: run the same command again to resume.") from None
