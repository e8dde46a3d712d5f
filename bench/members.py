"""Every member of the family on one text: makes docs/family.md.

    python bench/members.py [-o FOLDER] [--minutes 5] [--language en] [--only bert,xlnet] [--plan]

Each model is pre-trained for the same time on the same text, then measured three times: bits per byte of held-out text
(pseudo bits per byte where a score is no probability of a text), minimal pairs, and a task after fine-tuning on the
same 2,000 examples, with 95% intervals. The time is turned into tokens first, by the speed that Firth measures on an
idle machine (--plan does only that), so that other programs do not change the models. Models and results stay in
FOLDER: finished ones are reused, interrupted ones resumed. Results are also kept in family.json beside the page, which
another machine continues. Takes about 10 minutes for each member.
"""

from __future__ import annotations

import gzip
import json
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from task_data import data_path
from workspace import CORPORA, Result, Workspace, error_of, format_command, make_page_parser, run, run_main

MEMBERS = (
    "mkn5", "lstm", "cnn-lm", "ulmfit", "elmo", "context2vec", "gpt", "gpt2", "transformer-xl", "bert", "roberta",
    "gpt-bert", "albert", "spanbert", "electra", "xlnet", "unilm", "ernie", "ernie2", "mass", "bart", "t5", "t5-1.1",
)  # fmt: skip
WITHOUT_BUDGET = ("mkn5",)
MEASURES = ("score", "pairs", "task")
HELD_OUT_LINES = 120
PAIRS_OF_A_PARADIGM = 30


class Language(NamedTuple):
    """What the members are measured on."""

    title: str
    held_out: str
    pairs: str
    task: str
    train: str
    dev: str


LANGUAGES = {
    "en": Language(
        "English", "lm/wiki_en.txt.gz", "pairs/blimp_dev.jsonl.gz", "SST-2", "classify/sst2.train.tsv.gz",
        "classify/sst2.dev.tsv",
    ),
    "zh": Language(
        "Chinese", "lm/wiki_zh.txt.gz", "pairs/sling_dev.jsonl.gz", "THUCNews titles",
        "classify/thucnews_title.train.tsv.gz", "classify/thucnews_title.dev.tsv",
    ),
}  # fmt: skip


class Measurements(NamedTuple):
    """The commands of the members in one language."""

    workspace: Workspace
    language: str

    def prepare(self) -> None:
        """Write the files that all members are trained and measured on."""
        folder, own = self.workspace.folder, LANGUAGES[self.language]
        if (folder / self._pairs()).exists():
            return
        (folder / "data").mkdir(parents=True, exist_ok=True)
        for name in CORPORA[self.language]:
            lines = _read(name)
            if name == own.held_out:
                cut = _document_end(lines, HELD_OUT_LINES)
                (folder / self._text("held")).write_text("".join(lines[:cut]), encoding="utf-8")
                lines = lines[cut:]
            (folder / self._text(Path(name).name.split(".")[0])).write_text("".join(lines), encoding="utf-8")
        (folder / self._pairs()).write_text("".join(_some_pairs(_read(own.pairs))), encoding="utf-8")

    def _text(self, name: str) -> str:
        return f"data/{self.language}-{name}.txt"

    def _pairs(self) -> str:
        return f"data/{self.language}-pairs.jsonl"

    def model(self, name: str) -> str:
        return f"{self.language}/{name}-{self.workspace.minutes:g}min"

    def commands(self, name: str) -> dict[str, list[str]]:
        """The commands that make and measure a member; the last makes a model, too."""
        own, model = LANGUAGES[self.language], self.model(name)
        train, dev = self.workspace.subset(own.train, 2_000), self.workspace.subset(own.dev, 1_000)
        return {
            "train": self._train_command(name, self.plan(name)),
            "score": ["score", model, self._text("held"), "--json"],
            "pairs": ["evaluate", model, "pairs", self._pairs(), "--json"],
            "task": [
                *("finetune", model, "classify", "--train", train, "--dev", dev),
                *([] if name in WITHOUT_BUDGET else ["--set", "linear_weight=0"]),
                *("-o", f"tuned/{model}", "--json"),
            ],
        }

    def _train_command(self, name: str, options: Sequence[str]) -> list[str]:
        texts = [self._text(Path(one).name.split(".")[0]) for one in CORPORA[self.language]]
        # As published: short runs train the output layer on samples otherwise, which the generator of ELECTRA cannot.
        whole = [] if name in WITHOUT_BUDGET else ["--set", "output.training_samples=0"]
        return ["train", name, *texts, "-o", self.model(name), *options, *whole]

    def known(self, name: str) -> Result:
        """The known results of a member."""
        path = self.workspace.result_path(self.model(name))
        return dict(json.loads(path.read_text())) if path.exists() else {}

    def plan(self, name: str) -> list[str]:
        """The size and the tokens that Firth plans for the time, measured in the first seconds of a run."""
        if name in WITHOUT_BUDGET:
            return []
        known = self.known(name)
        if "plan" not in known:
            command = self._train_command(name, ["--budget", f"{round(60 * self.workspace.minutes)}s"])
            known["plan"] = _planned([*command, "--threads", "2"], self.workspace.folder)
            shutil.rmtree(self.workspace.folder / self.model(name), ignore_errors=True)
            self.workspace.save_result(self.model(name), known)
            print(f"{name:<16}plan    {' '.join(known['plan'])}", flush=True)
        return list(known["plan"])

    def run(self, name: str) -> Result:
        """The results of a member: those that are known, and the others as they are made."""
        known = self.known(name)
        if all(key in known for key in MEASURES):
            return known
        commands = self.commands(name)
        error = self.workspace.run_once(self.model(name), commands["train"])
        if error:
            return {"train": {"error": error}}
        known = self.known(name)
        manifest = json.loads((self.workspace.folder / self.model(name) / "manifest.json").read_text())
        known["train"] = {"parameters": manifest["metrics"].get("parameters"), **manifest["budget"]["spent"]}
        for key, command in list(commands.items())[1:]:
            if key not in known:
                known[key] = _shorten(key, self._measure(command))
                self.workspace.save_result(self.model(name), known)
                print(f"{name:<16}{key:<8}{_short(key, known[key])}", flush=True)
        return known

    def _measure(self, command: Sequence[str]) -> Result:
        resume = ["--resume"] if command[0] == "finetune" and (self.workspace.folder / command[-2]).exists() else []
        done = run(self.workspace.folder, [*command, *resume])
        return {"error": error} if (error := error_of(done)) else dict(json.loads(done.stdout))


def _planned(command: Sequence[str], folder: Path) -> list[str]:
    """The options of the size and the tokens that a run prints before it trains; the run ends there."""
    size = ""
    arguments = [sys.executable, "-W", "ignore", "-m", "firth", *command]
    with subprocess.Popen(arguments, cwd=folder, text=True, stderr=subprocess.PIPE) as process:
        for line in process.stderr or ():
            size = found[1] if (found := re.search(r"\bsize (\w+) \(", line)) else size
            if found := re.match(r"([\d,]+) tokens \(", line):
                process.send_signal(signal.SIGKILL)
                return ["--budget", f"{found[1].replace(',', '')}tok", *(["--size", size] if size else [])]
    raise SystemExit(f"no plan: {format_command(command)}")


def _read(name: str) -> list[str]:
    """The lines of a file of the real data."""
    with gzip.open(data_path(name), "rt", encoding="utf-8") as file:
        return list(file)


def _document_end(lines: Sequence[str], count: int) -> int:
    """The number of lines of whole documents that have at least `count` lines of text."""
    texts = 0
    for number, line in enumerate(lines):
        texts += bool(line.strip())
        if texts >= count and not line.strip():
            return number + 1
    return len(lines)


def _some_pairs(lines: Sequence[str]) -> list[str]:
    """The first pairs of each paradigm."""
    seen: Counter[str] = Counter()
    found = []
    for line in lines:
        paradigm = json.loads(line)["paradigm"]
        seen[paradigm] += 1
        if seen[paradigm] <= PAIRS_OF_A_PARADIGM:
            found.append(line)
    return found


def _shorten(key: str, result: Result) -> Result:
    """What the table shows of a result."""
    if "error" in result:
        return result
    found: Result = result["metrics"]["dev"] if key == "task" else result
    return {name: found[name] for name in ("bits_per_byte", "kind", "accuracy", "accuracy_interval") if name in found}


def _short(key: str, result: Result) -> str:
    """A measurement with its interval, or a dash if the model cannot do it."""
    if "error" in result:
        return f"– ({result['error']})"
    if key == "score":
        return f"{result['bits_per_byte']:.3f} ({result['kind']})"
    low, high = result["accuracy_interval"]
    return f"{result['accuracy']:.3f} [{low:.3f}, {high:.3f}]"


def format_table(measurements: Measurements, results: dict[str, Result]) -> list[str]:
    """The table of a language, with the commands of its last member."""
    own = LANGUAGES[measurements.language]
    columns = ("member", "parameters", "tokens", "bits per byte", "minimal pairs", own.task)
    lines = ["| " + " | ".join(columns) + " |", "|---|---:|---:|---|---|---|"]
    for name, result in results.items():
        sizes = [_count(result["train"].get(key)) for key in ("parameters", "tokens")]
        cells = [_short(key, result[key]) for key in MEASURES]
        lines.append("| " + " | ".join([f"`{name}`", *sizes, *cells]) + " |")
    commands = measurements.commands(list(results)[-1]).values()
    return [*lines, "", "The commands of the last member:", "", "```", *map(format_command, commands), "```", ""]


def _count(value: Any) -> str:
    """A number of parameters or tokens, or a dash: those of an n-gram model are its discounts."""
    return f"{value:,.0f}" if isinstance(value, int | float) else "–"


def format_page(minutes: float, table: Sequence[str]) -> str:
    lines = [
        "# The family on one text",
        "",
        f"Made by `python bench/members.py --minutes {minutes:g}`. Each member is pre-trained on the same text, at the "
        f"size and for the tokens that Firth plans for {minutes:g} minutes of 2 idle cores, and measured on the same "
        f"held-out text ({HELD_OUT_LINES} paragraphs), the same minimal pairs ({PAIRS_OF_A_PARADIGM} of each paradigm; "
        "chance is 0.5), and a task: fine-tuned on the same 2,000 examples, accuracy on its validation set. Bits per "
        "byte compare models of one kind: a causal one gives the probability of a text, a masked one the product of "
        "each token given all others, which is no probability of the text. Recipes whose tokens are words (`lstm`, "
        "`cnn-lm`, `ulmfit`, `elmo`, `context2vec`, `transformer-xl`) spell each word that they do not know: of "
        "the 10,000 words of `lstm` one in seven here is none, which is where most of its bits go. Intervals are 95%, "
        "of the test examples, not of seeds. A dash says why a model cannot be measured so.",
        "",
    ]
    return "\n".join([*lines, *table])


def main() -> None:
    parser = make_page_parser(__doc__, "docs/family.md")
    parser.add_argument("--language", choices=LANGUAGES, default="en")
    parser.add_argument("--plan", action="store_true", help="only turn the time into tokens, on an idle machine")
    parser.add_argument("--only", default="", help="comma-separated members")
    options = parser.parse_args()
    names: Any = options.only.split(",") if options.only else MEMBERS
    if unknown := set(names) - set(MEMBERS):
        parser.error(f"there is no member {min(unknown)}: choose from {', '.join(MEMBERS)}.")
    workspace = Workspace(options.out.resolve(), options.minutes or 5.0, options.jobs)
    measurements = Measurements(workspace, options.language)
    kept = options.write.with_suffix(".json")
    if kept.exists():
        workspace.import_results(kept)
    measurements.prepare()
    for name in names:
        measurements.plan(name)
    if options.plan:
        return
    for name in names:
        measurements.run(name)
        known = {one: found for one in MEMBERS if (found := measurements.known(one))}
        workspace.export_results(kept, {measurements.model(one): found for one, found in known.items()})
        finished = {one: found for one, found in known.items() if "task" in found}
        page = format_page(workspace.minutes, format_table(measurements, finished))
        options.write.write_text(page, encoding="utf-8")
    print(f"-> {options.write}")


if __name__ == "__main__":
    run_main(main)
