"""What the benchmarks of tasks have in common: labelled sets, parts of them, models that are pre-trained once, results.

    python bench/task_data.py NAME EXAMPLES FILE    writes that part of a set's training examples

A part is drawn with a fixed seed, and a smaller one lies in every larger one. Whatever is made lies in one folder and
is made once: `data/` holds parts, `en/` and `zh/` models, `cells/` results as JSON, `tuned/` what is being learnt. All
commands are run in that folder, so that they can be shown as they are.
"""

from __future__ import annotations

import gzip
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
import data

SHARED = data.SHARED.parent
T = TypeVar("T")


class Dataset(NamedTuple):
    """A labelled set of real data and how much of it is used."""

    title: str
    language: str
    task: str
    train: str
    dev: str
    metric: str
    most: int
    """Training examples at most: fewer where one is many rows."""
    passes: int
    tokens: int
    """About how many an example has, all of its rows together."""
    held: int
    """Examples of the dev part."""
    most_held: int = 1_000_000
    """Of which at most so many are used."""
    also: str = ""
    """Another metric to be told."""


DATASETS = {
    "sst2": Dataset(
        "SST-2", "en", "classify", "classify/sst2.train.tsv.gz", "classify/sst2.dev.tsv", "accuracy", 5000, 5, 12, 872
    ),
    "mrpc": Dataset("MRPC", "en", "pair", "pair/mrpc.train.tsv.gz", "pair/mrpc.dev.tsv", "accuracy", 3576, 3, 55, 500),
    "conll2003": Dataset(
        "CoNLL-2003", "en", "tag", "tag/conll2003_ner.train.txt.gz", "tag/conll2003_ner.dev.txt.gz", "entity_f1",
        5000, 3, 20, 3250,
    ),
    "squad2": Dataset(
        "SQuAD 2.0 part", "en", "span", "qa/squad2_part.train.json.gz", "qa/squad2_part.dev.json.gz", "f1",
        1000, 2, 280, 1321, 600, "span_f1",
    ),
    "chnsenticorp": Dataset(
        "ChnSentiCorp", "zh", "classify", "classify/chnsenticorp.train.tsv.gz", "classify/chnsenticorp.dev.tsv.gz",
        "accuracy", 3000, 3, 100, 1160,
    ),
    "ocnli": Dataset(
        "OCNLI", "zh", "pair", "pair/ocnli.train.tsv.gz", "pair/ocnli.dev.tsv.gz", "accuracy", 5000, 3, 40, 2950, 1500
    ),
    "msra": Dataset(
        "MSRA NER", "zh", "tag", "tag/msra_ner.train.txt.gz", "tag/msra_ner.dev.txt.gz", "entity_f1", 4000, 3, 45,
        2318, 1500,
    ),
    "c3": Dataset(
        "C3", "zh", "choice", "choice/c3.train.jsonl.gz", "choice/c3.dev.jsonl.gz", "accuracy", 800, 2, 420, 3816, 600
    ),
}  # fmt: skip
CORPORA = {"en": ("lm/wiki_en.txt.gz", "lm/wikinews_en.txt.gz"), "zh": ("lm/wiki_zh.txt.gz",)}
LANGUAGES = {"en": "English", "zh": "Chinese"}


class Recipe(NamedTuple):
    """What is pre-trained, and how."""

    name: str
    timed: bool = True
    """Whether it is given as long as the others; a tokenizer and GloVe's counts take what they take."""
    network: bool = False
    """Rows of 128 tokens then, so that all can read long texts; the size is what Firth chooses for the time."""


RECIPES = {
    "words": Recipe("words", timed=False),
    "skipgram": Recipe("skipgram"),
    "glove": Recipe("glove", timed=False),
    "elmo": Recipe("elmo", network=True),
    "gpt": Recipe("gpt", network=True),
    "bert": Recipe("bert", network=True),
}


def data_path(name: str) -> Path:
    """Where a file of the real data is; raises `SystemExit` if it is not on this machine."""
    path = SHARED / name
    if not path.exists():
        raise SystemExit(f"{name} is not in ../shared/data: these benchmarks need the real data beside the repository.")
    return path


def cut(name: str, most: int, path: Path, after: int = 0) -> int:
    """Writes at most so many examples of a file of the real data, in their order; returns how many.

    `after`: none of those that a part of so many examples would have.
    """
    text = read_text(data_path(name))
    kind = name.removesuffix(".gz").rpartition(".")[2]
    if kind == "json":
        kept, count = cut_questions(json.loads(text), most, after)
        made = json.dumps(kept, ensure_ascii=False)
    else:
        header, parts, between = split_examples(kind, text)
        chosen = choose(len(parts), most, after)
        made, count = header + between.join(parts[one] for one in chosen) + between, len(chosen)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.part{os.getpid()}.{threading.get_ident()}")
    unfinished.write_text(made, encoding="utf-8")
    unfinished.replace(path)
    return count


def split_examples(kind: str, text: str) -> tuple[str, list[str], str]:
    """What stands above the examples of a file, the examples, and what stands between them."""
    if kind == "conllu" or (kind == "txt" and "\n\n" in text):
        return "", text.strip("\n").split("\n\n"), "\n\n"
    lines = text.rstrip("\n").split("\n")
    return (lines[0] + "\n", lines[1:], "\n") if kind == "tsv" else ("", lines, "\n")


def choose(count: int, most: int, after: int = 0) -> list[int]:
    """Numbers of examples: those of a smaller part are among those of a larger one.

    >>> set(choose(100, 5)) < set(choose(100, 9)), set(choose(100, 5)) & set(choose(100, 4, after=5))
    (True, set())
    """
    return sorted(np.random.default_rng(0).permutation(count)[after : after + most].tolist())


def cut_questions(squad: dict[str, Any], most: int, after: int = 0) -> tuple[dict[str, Any], int]:
    """The same passages with some of the questions; passages without any are left out."""
    passages = [one for article in squad["data"] for one in article["paragraphs"]]
    every = [(number, question) for number, one in enumerate(passages) for question in one["qas"]]
    chosen = choose(len(every), most, after)
    kept: dict[int, list[Any]] = {}
    for one in chosen:
        kept.setdefault(every[one][0], []).append(every[one][1])
    paragraphs = [{"context": passages[number]["context"], "qas": own} for number, own in kept.items()]
    return squad | {"data": [{"title": "part", "paragraphs": paragraphs}]}, len(chosen)


def read_text(path: Path) -> str:
    if path.suffix == ".gz":
        with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
            return file.read()
    return path.read_text(encoding="utf-8")


class Bench(NamedTuple):
    """A folder in which models and results are kept, and how they are made."""

    folder: Path
    minutes: float
    jobs: int
    """How many are fine-tuned side by side, each with one thread: faster than one with several."""
    share: int = 1
    """One of so many of the training examples that a set would have."""
    most_dev: int = 1_000_000
    passes: int | None = 0
    """0: as the set says; None: as the number of examples decides."""

    def part(self, name: str, most: int | None = None) -> tuple[str, str]:
        """Training and validation examples, as files of the folder."""
        found = DATASETS[name]
        kept = self.examples(name) if most is None else most
        return self.file(found.train, kept), self.file(found.dev, min(found.most_held, self.most_dev))

    def examples(self, name: str) -> int:
        """Training examples at most."""
        return max(1, DATASETS[name].most // self.share)

    def file(self, name: str, most: int, after: int | None = None) -> str:
        """A part of a file, that behind another or the first one, or the file itself where no limit is set."""
        if most >= 1_000_000:
            return self.link(name)
        stem, kind = Path(name).name.removesuffix(".gz").rsplit(".", 1)
        path = f"data/{stem}.{most if after is None else f'{after}-{after + most}'}.{kind}"
        if not (self.folder / path).exists():
            cut(name, most, self.folder / path, after or 0)
        return path

    def link(self, name: str) -> str:
        """A file of the real data under `data/`."""
        path = self.folder / "data" / Path(name).name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)  # a link to where the data was before
            path.symlink_to(data_path(name))
        return f"data/{path.name}"

    def model(self, name: str, language: str) -> str:
        """Where a pre-trained model is."""
        timed = name in RECIPES and RECIPES[name].timed
        return f"{language}/{name}-{self.minutes:g}min" if timed else f"{language}/{name}"

    def pretraining(self, name: str, language: str) -> list[str]:
        """The words of the command that makes a model."""
        recipe = RECIPES[name]
        found = ["train", recipe.name, *map(self.link, CORPORA[language]), "-o", self.model(name, language)]
        found += ["--set", "rows.length=128"] if recipe.network else []
        return found + (["--budget", f"{round(60 * self.minutes)}s"] if recipe.timed else [])

    def pretrain(self, name: str, language: str) -> str:
        """Makes a model unless it is there, or goes on with it; returns why it could not be made, or nothing."""
        return self.once(self.model(name, language), self.pretraining(name, language))

    def once(self, out: str, words: Sequence[str]) -> str:
        """Runs a command that makes a model, unless it is there; returns why it could not be made, or nothing."""
        if (self.folder / out / "manifest.json").exists():
            return ""
        print(show(words), flush=True)
        own = ["--resume"] if (self.folder / out).exists() else []
        return explain(run(self.folder, [*words, *own], shown=True))

    def learning(
        self, name: str, model: str, more: Sequence[str] = (), most: int | None = None, passes: int | None = None
    ) -> list[str]:
        """The words of the command that fine-tunes, but for the folder of the result."""
        found, (train, dev) = DATASETS[name], self.part(name, most)
        # What has no network learns until it is done.
        free = self.passes is None or model.endswith("/words")
        epochs = [] if free else ["--set", f"learning.epochs={passes or self.passes or found.passes}"]
        return ["finetune", model, found.task, "--train", train, "--dev", dev, *epochs, *more]

    def _kept(self, cell: str) -> Path:
        return self.folder / "cells" / f"{cell}.json"

    def known(self, cell: str, words: Sequence[str]) -> dict[str, Any] | None:
        """What came of a fine-tuning that was made before with the same command and did not fail."""
        if not self._kept(cell).exists():
            return None
        told: dict[str, Any] = json.loads(self._kept(cell).read_text())
        return told if told["command"] == [*words, "-o", f"tuned/{cell}"] and "error" not in told else None

    def known_of(self, cells: Mapping[str, Sequence[str]]) -> dict[str, dict[str, Any]]:
        """What came of cells so far, by their names; `cells` are the words of their commands."""
        found = {cell: self.known(cell, words) for cell, words in cells.items()}
        return {cell: told for cell, told in found.items() if told is not None}

    def take(self, path: Path) -> None:
        """Results that another run has written, as if they had been made here; those of this folder stay."""
        for cell, told in json.loads(path.read_text(encoding="utf-8")).items():
            if not self._kept(cell).exists():
                self._kept(cell).parent.mkdir(parents=True, exist_ok=True)
                self._kept(cell).write_text(json.dumps(told, ensure_ascii=False, indent=1))

    def write_results(self, path: Path, found: dict[str, dict[str, Any]]) -> None:
        """All results by the names of their cells, a line each, for `take`."""
        lines = [f"{json.dumps(cell)}: {json.dumps(told, ensure_ascii=False)}" for cell, told in found.items()]
        path.write_text("{" + ",\n".join(lines) + "}\n", encoding="utf-8")

    def finetune(self, cell: str, words: Sequence[str]) -> dict[str, Any]:
        """What came of a fine-tuning; what was learnt before and did not fail is not learnt again."""
        kept, out = self._kept(cell), f"tuned/{cell}"
        if (known := self.known(cell, words)) is not None:
            return known
        command = [*words, "-o", out]
        own = ["--resume"] if (self.folder / out).exists() else []
        done = run(self.folder, [*command, "--threads", "1", "--json", *own])
        told: dict[str, Any] = {"command": command}
        if why := explain(done):
            told["error"] = why
        else:
            facts = json.loads(done.stdout)
            told |= {"dev": facts["metrics"]["dev"], "seconds": facts["budget"]["spent"]["seconds"]}
        shutil.rmtree(self.folder / out, ignore_errors=True)
        shutil.rmtree(self.folder / f"{out}.stages", ignore_errors=True)
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(told, ensure_ascii=False, indent=1))
        print(f"{cell:<48}{told.get('error') or format_line(told)}", flush=True)
        return told

    def verbs(self, words: Sequence[Sequence[str]]) -> dict[str, Any]:
        """What finetune, predict and evaluate, called in this order, tell in the end; what is known is not made again.

        Answers stay where predict has written them.
        """
        (tuning, asking, measuring), out = words, words[0][-1]
        kept = self.folder / f"{out}.facts.json"
        if kept.exists() and (known := json.loads(kept.read_text()))["commands"] == words:
            return dict(known)
        facts: dict[str, Any] = {"commands": words}
        own = ["--threads", "1", "--json"] + ["--resume"] * (self.folder / out).exists()
        for command in ([*tuning, *own], asking, measuring):
            done = run(self.folder, command)
            if why := explain(done):
                return facts | {"error": f"{command[0]}: {why}"}
            if command[0] == "finetune":
                facts["seconds"] = round(json.loads(done.stdout)["budget"]["spent"]["seconds"])
        facts["found"] = json.loads(done.stdout)
        answered = (self.folder / asking[-1]).read_text(encoding="utf-8").count("\n")
        if answered < facts["found"]["examples"]:  # what is without text is answered, but not measured
            raise SystemExit(f"{out}: {answered} answers to {facts['found']['examples']} examples.")
        kept.write_text(json.dumps(facts, ensure_ascii=False, indent=1))
        return facts

    def each(self, tasks: Sequence[Callable[[], T]]) -> list[T]:
        """All results, some at a time."""
        pool = ThreadPoolExecutor(self.jobs)
        try:
            return list(pool.map(lambda one: one(), tasks))
        finally:
            pool.shutdown(cancel_futures=True)


def run(folder: Path, words: Sequence[str], *, shown: bool = False) -> subprocess.CompletedProcess[str]:
    """A command of Firth in a folder; `shown`: what it tells is printed while it runs. An interrupted one ends this."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-W", "ignore", "-m", "firth", *words]
    told: list[str] = []
    with tempfile.TemporaryFile("w+") as results:
        with subprocess.Popen(command, cwd=folder, text=True, stdout=results, stderr=subprocess.PIPE) as process:
            for line in process.stderr or ():
                told.append(line)
                if shown:
                    print(f"  {line}", end="", flush=True)
        if process.returncode in (130, -2, -15):
            raise KeyboardInterrupt
        results.seek(0)
        return subprocess.CompletedProcess(command, process.returncode, results.read(), "".join(told))


def explain(done: subprocess.CompletedProcess[str]) -> str:
    """Why a command failed, or nothing."""
    if done.returncode == 0:
        return ""
    told = done.stderr.strip().splitlines()
    return told[-1].removeprefix("firth: ") if told else f"ended with code {done.returncode}"


def show(words: Sequence[str]) -> str:
    """A command as one types it."""
    return shlex.join(["firth", *words])


def format_line(told: dict[str, Any]) -> str:
    """The metrics of a result in a line."""
    values = [f"{name} {value:.3f}" for name, value in told["dev"].items() if isinstance(value, float)]
    return f"{told['seconds']:6.0f} s  {', '.join(values[:3])}"


def main(words: Sequence[str]) -> None:
    if not words:
        print(__doc__, f"The sets: {', '.join(DATASETS)}.", sep="\n")
    elif len(words) != 3 or words[0] not in DATASETS or not words[1].isdigit():
        raise SystemExit(f"give one of {', '.join(DATASETS)}, a number of examples and a file.")
    else:
        print(f"{cut(DATASETS[words[0]].train, int(words[1]), Path(words[2])):,} examples")


if __name__ == "__main__":
    main(sys.argv[1:])
