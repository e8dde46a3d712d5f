"""Every member of the family on one text: makes docs/family.md.

    python bench/members.py [-o FOLDER] [--minutes 5] [--language en] [--only bert,xlnet]

Each model is pre-trained for the same time on the same text, then measured three times: bits per byte of held-out text
(pseudo bits per byte where a score is no probability of a text), minimal pairs, and a task after fine-tuning on the
same 2,000 examples, with 95% intervals. Models and results stay in FOLDER: finished ones are reused, interrupted ones
resumed. Takes about 12 minutes for each member and language.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from task_data import data_path
from workspace import CORPORA, Result, Workspace, error_of, format_command, make_page_parser, run, run_main

MEMBERS = (
    "mkn5", "rnn", "lstm", "cnn-lm", "ulmfit", "elmo", "context2vec", "gpt", "gpt2", "transformer-xl", "bert",
    "bert-wwm", "roberta", "albert", "spanbert", "electra", "xlnet", "unilm", "ernie", "ernie2", "mass", "bart", "t5",
    "t5-1.1",
)  # fmt: skip
WITHOUT_BUDGET = ("mkn5",)
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
        "English", "lm/wikitext2.valid.txt.gz", "pairs/blimp_dev.jsonl.gz", "SST-2", "classify/sst2.train.tsv.gz",
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
        (folder / "data").mkdir(parents=True, exist_ok=True)
        held_out = HELD_OUT_LINES if own.held_out in CORPORA[self.language] else 0
        for name in CORPORA[self.language]:
            lines = _read(name)
            if name == own.held_out:
                cut = _document_end(lines, held_out)
                (folder / self._text("held")).write_text("".join(lines[:cut]), encoding="utf-8")
                lines = lines[cut:]
            (folder / self._text(Path(name).name.split(".")[0])).write_text("".join(lines), encoding="utf-8")
        if not held_out:
            lines = [line for line in _read(own.held_out) if line.strip() and not line.lstrip().startswith("=")]
            (folder / self._text("held")).write_text("".join(lines[:HELD_OUT_LINES]), encoding="utf-8")
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
        texts = [self._text(Path(one).name.split(".")[0]) for one in CORPORA[self.language]]
        budget = [] if name in WITHOUT_BUDGET else ["--budget", f"{round(60 * self.workspace.minutes)}s"]
        train, dev = self.workspace.subset(own.train, 2_000), self.workspace.subset(own.dev, 1_000)
        return {
            "train": ["train", name, *texts, "-o", model, *budget],
            "score": ["score", model, self._text("held"), "--json"],
            "pairs": ["evaluate", model, "pairs", self._pairs(), "--json"],
            "task": ["finetune", model, "classify", "--train", train, "--dev", dev, "-o", f"tuned/{model}", "--json"],
        }

    def run(self, name: str) -> Result:
        """The results of a member: those that are known, and the others as they are made."""
        path = self.workspace.result_path(f"{self.model(name)}")
        known: Result = json.loads(path.read_text()) if path.exists() else {}
        commands = self.commands(name)
        error = self.workspace.run_once(self.model(name), commands["train"])
        if error:
            return {"train": {"error": error}}
        manifest = json.loads((self.workspace.folder / self.model(name) / "manifest.json").read_text())
        known["train"] = {"parameters": manifest["metrics"].get("parameters"), **manifest["budget"]["spent"]}
        for key, command in list(commands.items())[1:]:
            if "error" in known.get(key, {"error": ""}):
                known[key] = self._measure(command)
                self.workspace.save_result(self.model(name), known)
                print(f"{name:<16}{key:<8}{_short(key, known[key])}", flush=True)
        return known

    def _measure(self, command: Sequence[str]) -> Result:
        resume = ["--resume"] if command[0] == "finetune" and (self.workspace.folder / command[-2]).exists() else []
        done = run(self.workspace.folder, [*command, *resume])
        return {"error": error} if (error := error_of(done)) else dict(json.loads(done.stdout))


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


def _short(key: str, result: Result) -> str:
    """A measurement with its interval, or a dash if the model cannot do it."""
    if "error" in result:
        return f"– ({result['error']})"
    if key == "score":
        return f"{result['bits_per_byte']:.3f} ({result['kind']})"
    found: Result = result if key == "pairs" else result["metrics"]["dev"]
    low, high = found["accuracy_interval"]
    return f"{found['accuracy']:.3f} [{low:.3f}, {high:.3f}]"


def format_table(measurements: Measurements, results: dict[str, Result]) -> list[str]:
    """The table of a language, with the commands of its first member."""
    own = LANGUAGES[measurements.language]
    lines = [f"## {own.title}", "", f"| member | parameters | bits per byte | minimal pairs | {own.task} |"]
    lines.append("|---|---:|---|---|---|")
    for name, result in results.items():
        if error := result["train"].get("error"):
            lines.append(f"| {name} | {error} | | | |")
            continue
        size = result["train"]["parameters"]
        cells = [_short(key, result[key]) for key in ("score", "pairs", "task")]
        lines.append(f"| {name} | {f'{size:,.0f}' if size else '–'} | {' | '.join(cells)} |")
    first = next(iter(results))
    return [*lines, "", "```sh", *(format_command(one) for one in measurements.commands(first).values()), "```", ""]


def format_page(minutes: float, tables: Sequence[Sequence[str]]) -> str:
    lines = [
        "# The family on one text",
        "",
        f"Made by `python bench/members.py --minutes {minutes:g}`: each member is pre-trained for {minutes:g} minutes "
        "of 2 cores on the same text, at the size that Firth chooses for that budget, and measured on the same "
        f"held-out text ({HELD_OUT_LINES} paragraphs), the same minimal pairs ({PAIRS_OF_A_PARADIGM} of each paradigm; "
        "chance is 0.5) and the same 2,000 examples of a task. Bits per byte compare models of one kind: a causal one "
        "gives the probability of a text, a masked one the product of each token given all others, which is no "
        "probability of the text. Intervals are 95%. A dash says why a model cannot be measured so.",
        "",
    ]
    return "\n".join(lines + [line for table in tables for line in table])


def main() -> None:
    parser = make_page_parser(__doc__, "docs/family.md")
    parser.add_argument("--language", choices=LANGUAGES, help="both by default")
    parser.add_argument("--only", default="", help="comma-separated members")
    options = parser.parse_args()
    names: Any = options.only.split(",") if options.only else MEMBERS
    if unknown := set(names) - set(MEMBERS):
        parser.error(f"there is no member {min(unknown)}: choose from {', '.join(MEMBERS)}.")
    workspace = Workspace(options.out.resolve(), options.minutes or 5.0, options.jobs)
    tables = []
    for language in [options.language] if options.language else LANGUAGES:
        measurements = Measurements(workspace, language)
        measurements.prepare()
        tables.append(format_table(measurements, {name: measurements.run(name) for name in names}))
        options.write.write_text(format_page(workspace.minutes, tables), encoding="utf-8")
    print(f"-> {options.write}")


if __name__ == "__main__":
    run_main(main)
