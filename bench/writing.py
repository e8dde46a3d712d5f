"""Texts written for other texts, by one network or by two: makes docs/writing.md.

    python bench/writing.py [-o FOLDER] [--minutes 15] [--only multi30k,couplets]

A BERT of each language learns to translate, to write headlines, or the second line of a couplet: alone, with the whole
source visible (prefix visibility), or as the reader beside another that begins with the same parameters and writes
(`--decoder`), and each of these from random weights. The folder is that of bench/results.py: models that are there are
used, results are kept, and what was interrupted goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent))
from task_data import Bench, show


class Pairs(NamedTuple):
    """Sources and targets, and how much of them is used."""

    title: str
    language: str
    train: str
    dev: str
    most: int
    passes: int
    more: tuple[str, ...] = ()
    """What else is set."""


SETS = {
    "multi30k": Pairs(
        "Multi30k, English to German", "en", "generate/multi30k_en_de.train.tsv.gz", "generate/multi30k_en_de.dev.tsv",
        4000, 8,
    ),
    "bbc": Pairs(
        "BBC headlines", "en", "generate/bbc_news.train.jsonl.gz", "generate/bbc_news.dev.jsonl.gz", 1692, 10
    ),
    "couplets": Pairs(
        "couplets", "zh", "generate/couplet_zh.train.tsv", "generate/couplet_zh.dev.tsv", 3231, 10, ("once=2",)
    ),
    "lcsts": Pairs(
        "LCSTS part 3", "zh", "generate/lcsts_part3.train.jsonl.gz", "generate/lcsts_part3.dev.jsonl", 856, 10
    ),
}  # fmt: skip
ROWS = {
    "one": ("BERT reads and writes", False, False),
    "one-random": ("the same from random weights", False, True),
    "two": ("BERT reads, BERT writes", True, False),
    "two-random": ("the same two from random weights", True, True),
}
"""What a row is called, whether it has a decoder, and whether it begins by chance."""
DEV, SHOWN = 200, 4


class Writers(NamedTuple):
    """What is to be made."""

    bench: Bench

    def files(self, name: str) -> tuple[str, str]:
        """The parts of a set that are used, as files of the folder."""
        return self.bench.file(SETS[name].train, SETS[name].most), self.bench.file(SETS[name].dev, DEV)

    def commands(self, name: str, row: str) -> list[list[str]]:
        """finetune, predict and evaluate, in this order."""
        found, (train, dev), (_, two, random) = SETS[name], self.files(name), ROWS[row]
        model, out = self.bench.model("bert", found.language), f"writers/{name}.{row}"
        more = ["--decoder", model] * two + ["--random"] * random
        more += [word for one in (f"learning.epochs={found.passes}", *found.more) for word in ("--set", one)]
        return [
            ["finetune", model, "generate", "--train", train, "--dev", dev, *more, "-o", out],
            ["predict", out, dev, "-o", f"{out}.jsonl"],
            ["evaluate", out, "task", dev, "--json"],
        ]

    def make(self, name: str, row: str) -> dict[str, Any]:
        """What was measured; what is known is not made again."""
        facts = self.bench.verbs(self.commands(name, row))
        told = facts.get("error") or f"{values(facts['found'])} ({facts['seconds']} s)"
        print(f"{name}.{row}: {told}", flush=True)
        return facts

    def texts(self, name: str, row: str) -> list[str]:
        """The first of what was written."""
        path = self.bench.folder / self.commands(name, row)[1][-1]
        return [json.loads(line)["text"] for line in path.read_text(encoding="utf-8").splitlines()[:SHOWN]]


def values(found: dict[str, Any]) -> str:
    """The metrics, the first two with their intervals."""
    (low, high), (fewest, most) = found["chrf_interval"], found["bits_per_byte_interval"]
    bits = f"{found['bits_per_byte']:.3f} [{fewest:.3f}, {most:.3f}]"
    return f"{bits} | {found['chrf']:.1f} [{low:.1f}, {high:.1f}] | {found['bleu']:.1f} | {found['rouge_l']:.3f}"


def examples(path: Path) -> list[tuple[str, str]]:
    """The first pairs of a file."""
    lines = path.read_text(encoding="utf-8").splitlines()
    if path.suffix == ".jsonl":
        records = [json.loads(line) for line in lines[:SHOWN]]
        return [(one["source"], one["target"]) for one in records]
    return [(source, target) for source, target in (line.split("\t") for line in lines[1 : SHOWN + 1])]


def page(writers: Writers, results: dict[tuple[str, str], dict[str, Any]]) -> str:
    """The page."""
    minutes, names = writers.bench.minutes, list(dict.fromkeys(name for name, _ in results))
    only = f" --only {','.join(names)}" * (names != list(SETS))
    lines = [
        "# Texts written for others",
        "",
        f"Made by `python bench/writing.py --minutes {minutes:g}{only}`: a BERT of each language, pre-trained for "
        f"{minutes:g} minutes on 2 cores, learns to write. Measured on {DEV} dev examples at most, intervals are of "
        "95%; seconds are those of fine-tuning with one thread. Bits per byte of the right texts (less is better) tell "
        "what a network has learnt even where many other texts would be as good as the right one, as in couplets; "
        "chrF, BLEU and ROUGE-L compare what it writes with the right text alone, and suffer where a BERT knows small "
        "letters only, as that of English does here. The baseline copies the source.",
    ]
    for name in names:
        own = {row: told for (one, row), told in results.items() if one == name}
        lines += ["", f"## {SETS[name].title} ({SETS[name].most:,} pairs, {SETS[name].passes} passes)", ""]
        lines += [*table(own), "", *samples(writers, name, own)]
        lines += ["```sh", *(show(words) for told in own.values() for words in told["commands"]), "```"]
    return "\n".join(lines) + "\n"


def table(own: dict[str, dict[str, Any]]) -> list[str]:
    """The scores of a set."""
    lines = ["| | bits per byte | chrF | BLEU | ROUGE-L | seconds |", "|---|---|---|---|---|---|"]
    for row, told in own.items():
        known = f"{values(told['found'])} | {told['seconds']}" if "found" in told else f"{told['error']} | | | |"
        lines.append(f"| {ROWS[row][0]} | {known} |")
    baseline = next((told["found"]["baseline"] for told in own.values() if "found" in told), {})
    return [
        *lines,
        f"| baseline | | {baseline.get('chrf', 0):.1f} | {baseline.get('bleu', 0):.1f} | "
        f"{baseline.get('rouge_l', 0):.3f} | |",
    ]


def samples(writers: Writers, name: str, own: dict[str, dict[str, Any]]) -> list[str]:
    """What was written for the first sources."""
    texts = {row: writers.texts(name, row) for row, told in own.items() if "found" in told}
    lines = []
    for number, (source, target) in enumerate(examples(writers.bench.folder / writers.files(name)[1])):
        shown = " ".join(source[:200].split())
        lines += [f"> {shown}{'…' * (len(source) > 200)}", ">", f"> - right: {target}"]
        lines += [f"> - {ROWS[row][0]}: {some[number]}" for row, some in texts.items()] + [""]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--out", type=Path, default=Path("results"), help="keep models and results here")
    parser.add_argument("--write", type=Path, default=Path("docs/writing.md"))
    parser.add_argument("--minutes", type=float, default=15.0, help="of pre-training")
    parser.add_argument("--only", default=",".join(SETS), help="sets, with commas between")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="fine-tunings side by side")
    options = parser.parse_args()
    names = options.only.split(",")
    if unknown := set(names) - set(SETS):
        parser.error(f"there is no set {min(unknown)}: choose from {', '.join(SETS)}.")
    writers = Writers(Bench(options.out.resolve(), options.minutes, options.jobs))
    for language in dict.fromkeys(SETS[name].language for name in names):
        if why := writers.bench.pretrain("bert", language):
            raise SystemExit(why)
    cells = [(name, row) for name in names for row in ROWS]
    results = writers.bench.each([partial(writers.make, *cell) for cell in cells])
    options.write.write_text(page(writers, dict(zip(cells, results, strict=True))), encoding="utf-8")
    print(f"-> {options.write}")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("interrupted: the same command goes on.") from None
