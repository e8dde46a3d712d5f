"""Text generation by one network or by an encoder and a decoder: makes docs/writing.md.

    python bench/writing.py [-o FOLDER] [--minutes 15] [--only multi30k,couplets]

A BERT of each language is fine-tuned to translate, to write headlines, or the second line of a couplet: alone, with
bidirectional attention over the source (prefix visibility), or as the encoder of a decoder that starts from the same
weights (`--decoder`), and each of these from random weights. The folder is that of bench/results.py: its models are
reused, and interrupted runs are resumed.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from workspace import Result, Workspace, format_command, make_page_parser, run_main, verb_commands


class ParallelSet(NamedTuple):
    """Files of sources and targets, and how much of them is used."""

    title: str
    language: str
    train: str
    dev: str
    max_examples: int
    epochs: int
    settings: tuple[str, ...] = ()


SETS = {
    "multi30k": ParallelSet(
        "Multi30k, English to German", "en", "generate/multi30k_en_de.train.tsv.gz", "generate/multi30k_en_de.dev.tsv",
        4000, 8,
    ),
    "bbc": ParallelSet(
        "BBC headlines", "en", "generate/bbc_news.train.jsonl.gz", "generate/bbc_news.dev.jsonl.gz", 1692, 10
    ),
    "couplets": ParallelSet(
        "couplets", "zh", "generate/couplet_zh.train.tsv", "generate/couplet_zh.dev.tsv", 3231, 10,
        ("no_repeat_ngram=2",),
    ),
    "lcsts": ParallelSet(
        "LCSTS part 3", "zh", "generate/lcsts_part3.train.jsonl.gz", "generate/lcsts_part3.dev.jsonl", 856, 10
    ),
}  # fmt: skip
ROWS = {
    "one": ("one BERT", False, False),
    "one-random": ("the same from random weights", False, True),
    "two": ("BERT encoder, BERT decoder", True, False),
    "two-random": ("the same two from random weights", True, True),
}
"""The title of a row, whether it has a decoder, and whether it starts from random weights."""
MAX_DEV, SHOWN = 200, 4


def subset_files(workspace: Workspace, name: str) -> tuple[str, str]:
    """Files of training and validation examples."""
    dataset = SETS[name]
    return workspace.subset(dataset.train, dataset.max_examples), workspace.subset(dataset.dev, MAX_DEV)


def row_commands(workspace: Workspace, name: str, row: str) -> list[list[str]]:
    dataset, (_, has_decoder, is_random) = SETS[name], ROWS[row]
    model = workspace.model_path("bert", dataset.language)
    options = ["--decoder", model] * has_decoder + ["--random"] * is_random
    options += [part for one in (f"learning.epochs={dataset.epochs}", *dataset.settings) for part in ("--set", one)]
    return verb_commands(model, "generate", *subset_files(workspace, name), f"writers/{name}.{row}", options)


def run_row(workspace: Workspace, name: str, row: str) -> Result:
    result = workspace.run_verbs(row_commands(workspace, name, row))
    outcome = result.get("error") or f"{format_metrics(result['found'])} ({result['seconds']} s)"
    print(f"{name}.{row}: {outcome}", flush=True)
    return result


def format_metrics(found: dict[str, Any]) -> str:
    """The metrics, the first two with their intervals."""
    (low, high), (low_bits, high_bits) = found["chrf_interval"], found["bits_per_byte_interval"]
    bits = f"{found['bits_per_byte']:.3f} [{low_bits:.3f}, {high_bits:.3f}]"
    return f"{bits} | {found['chrf']:.1f} [{low:.1f}, {high:.1f}] | {found['bleu']:.1f} | {found['rouge_l']:.3f}"


def read_pairs(path: Path) -> list[tuple[str, str]]:
    """The first sources and targets of a file."""
    lines = path.read_text(encoding="utf-8").splitlines()
    if path.suffix == ".jsonl":
        records = [json.loads(line) for line in lines[:SHOWN]]
        return [(one["source"], one["target"]) for one in records]
    return [(source, target) for source, target in (line.split("\t") for line in lines[1 : SHOWN + 1])]


def format_page(workspace: Workspace, results: dict[str, dict[str, Result]]) -> str:
    """The page; `results` are by dataset and row."""
    minutes = workspace.minutes
    only = f" --only {','.join(results)}" * (list(results) != list(SETS))
    lines = [
        "# Text generation",
        "",
        f"Made by `python bench/writing.py --minutes {minutes:g}{only}`: a BERT of each language, pre-trained for "
        f"{minutes:g} minutes on 2 cores, is fine-tuned to generate. Measured on at most {MAX_DEV} dev examples, with "
        "95% intervals; seconds are those of fine-tuning with one thread. Bits per byte of the references (lower is "
        "better) are informative even where many other texts would be as good as the reference, as in couplets; chrF, "
        "BLEU and ROUGE-L compare the generated text with the reference alone, and suffer where a BERT is lower-case, "
        "as the English one is here. The baseline copies the source.",
    ]
    for name, rows in results.items():
        dataset = SETS[name]
        lines += ["", f"## {dataset.title} ({dataset.max_examples:,} pairs, {dataset.epochs} epochs)", ""]
        lines += [*format_table(rows), "", *format_samples(workspace, name, rows)]
        lines += ["```sh", *(format_command(one) for row in rows.values() for one in row["commands"]), "```"]
    return "\n".join(lines) + "\n"


def format_table(rows: dict[str, Result]) -> list[str]:
    """The scores of a dataset."""
    lines = ["| | bits per byte | chrF | BLEU | ROUGE-L | seconds |", "|---|---|---|---|---|---|"]
    for row, result in rows.items():
        is_done = "found" in result
        cells = f"{format_metrics(result['found'])} | {result['seconds']}" if is_done else f"{result['error']} | | | |"
        lines.append(f"| {ROWS[row][0]} | {cells} |")
    baseline = next((result["found"]["baseline"] for result in rows.values() if "found" in result), {})
    chrf, bleu, rouge_l = (baseline.get(metric, 0) for metric in ("chrf", "bleu", "rouge_l"))
    return [*lines, f"| baseline | | {chrf:.1f} | {bleu:.1f} | {rouge_l:.3f} | |"]


def format_samples(workspace: Workspace, name: str, rows: dict[str, Result]) -> list[str]:
    """The texts generated for the first sources."""
    texts = {}
    for row in (row for row, result in rows.items() if "found" in result):
        path = workspace.folder / row_commands(workspace, name, row)[1][-1]
        lines = path.read_text(encoding="utf-8").splitlines()[:SHOWN]
        texts[ROWS[row][0]] = [json.loads(line)["text"] for line in lines]
    shown = []
    for number, (source, target) in enumerate(read_pairs(workspace.folder / subset_files(workspace, name)[1])):
        start = " ".join(source[:200].split())
        shown += [f"> {start}{'…' * (len(source) > 200)}", ">", f"> - reference: {target}"]
        shown += [f"> - {title}: {generated[number]}" for title, generated in texts.items()] + [""]
    return shown


def main() -> None:
    parser = make_page_parser(__doc__, "docs/writing.md")
    parser.add_argument("--only", default=",".join(SETS), help="comma-separated datasets")
    options = parser.parse_args()
    names = options.only.split(",")
    if unknown := set(names) - set(SETS):
        parser.error(f"there is no dataset {min(unknown)}: choose from {', '.join(SETS)}.")
    workspace = Workspace(options.out.resolve(), options.minutes or 15.0, options.jobs)
    workspace.pretrain_berts(SETS[name].language for name in names)
    cells = [(name, row) for name in names for row in ROWS]
    found: dict[str, dict[str, Result]] = {name: {} for name in names}
    runs = workspace.run_parallel([partial(run_row, workspace, *cell) for cell in cells])
    for (name, row), result in zip(cells, runs, strict=True):
        found[name][row] = result
    options.write.write_text(format_page(workspace, found), encoding="utf-8")
    print(f"-> {options.write}")


if __name__ == "__main__":
    run_main(main)
