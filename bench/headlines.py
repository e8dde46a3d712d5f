"""Headlines by pre-trained encoder-decoders beside random weights: makes docs/headlines.md.

    python bench/headlines.py [-o FOLDER] [--minutes 5] [--only bbc,lcsts]

BART and T5, pre-trained as bench/members.py does (in the same folder, whose models are reused), are fine-tuned to write
the headline of a text, from their weights and from random ones (`--random`), beside a `transformer` that is trained on
the pairs alone. Finished rows are reused, interrupted ones resumed.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from firth.metrics.bootstrap import measured, sums_sample
from members import Measurements
from workspace import Result, Workspace, error_of, format_command, make_page_parser, run, run_main, verb_commands
from writing import MAX_DEV, SETS, format_metrics, subset_files

NAMES = ("bbc", "lcsts")
RECIPES = ("bart", "t5")
BASELINE = "transformer"
PAIR = ("--pair", "source,target")
MAX_SOURCE = 150  # characters of a source, at most about 64 tokens
_METRICS = ("chrf", "chrf_interval", "bits_per_byte", "bits_per_byte_interval", "bleu", "rouge_l")


def row_commands(workspace: Workspace, name: str, row: str) -> list[list[str]]:
    """The commands of a row: a recipe, the same from random weights, or the baseline."""
    dataset, (train, dev), out = SETS[name], subset_files(workspace, name), f"headlines/{name}.{row}"
    epochs = ["--set", f"learning.epochs={dataset.epochs}"]
    if row == BASELINE:
        train, dev = (shorten(workspace, one) for one in (train, dev))
        return [
            ["train", BASELINE, train, *PAIR, *epochs, "--size", "tiny", "-o", out],
            ["score", out, dev, *PAIR, "--force", "-o", f"{out}.jsonl"],
            ["evaluate", out, "translation", dev, *PAIR, "--json"],
        ]
    recipe = row.removesuffix("-random")
    model = Measurements(workspace, dataset.language).model(recipe)
    options = [*epochs, *["--random"] * row.endswith("-random")]
    return verb_commands(model, "generate", train, dev, out, options)


def shorten(workspace: Workspace, name: str) -> str:
    """A copy of a file with the beginning of each source: pairs are never truncated, and the others read no more."""
    path = Path(name)
    short = str(path.with_name(f"{path.stem}.short{path.suffix}"))
    if not (workspace.folder / short).exists():
        lines = (workspace.folder / name).read_text(encoding="utf-8").splitlines()
        pairs = [{key: json.loads(line)[key] for key in ("source", "target")} for line in lines]
        for pair in pairs:
            pair["source"] = " ".join(pair["source"].split())[:MAX_SOURCE]
        texts = "".join(json.dumps(pair, ensure_ascii=False) + "\n" for pair in pairs)
        (workspace.folder / short).write_text(texts, encoding="utf-8")
    return short


def run_row(workspace: Workspace, name: str, row: str) -> Result:
    """The result of a row, which is made unless it is known."""
    cell = f"headlines/{name}.{row}"
    path = workspace.result_path(cell)
    if path.exists():
        return dict(json.loads(path.read_text()))
    commands = row_commands(workspace, name, row)
    result = run_baseline(workspace, commands) if row == BASELINE else workspace.run_verbs(commands)
    if found := result.get("found"):
        result["found"] = {key: found[key] for key in (*_METRICS, "baseline") if key in found}
    workspace.save_result(cell, result)
    print(f"{name}.{row}: {result.get('error') or format_metrics(result['found'])}", flush=True)
    return result


def run_baseline(workspace: Workspace, commands: list[list[str]]) -> Result:
    """The metrics of a transformer of the pairs alone; bits per byte are those of `firth score`."""
    train, score, evaluate = commands
    if error := workspace.run_once(train[-1], train):
        return {"commands": commands, "error": error}
    for command in (score, evaluate):
        done = run(workspace.folder, command)
        if error := error_of(done):
            return {"commands": commands, "error": error}
    found = json.loads(done.stdout) | line_bits(workspace.folder / score[-1])
    manifest = json.loads((workspace.folder / train[-1] / "manifest.json").read_text())
    return {"commands": commands, "found": found, "seconds": round(manifest["budget"]["spent"]["seconds"])}


def line_bits(path: Path) -> dict[str, Any]:
    """Bits per byte of the lines that `firth score` has written, with an interval."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    rows = np.array([[-one["logprob"] / math.log(2), one["bytes"]] for one in lines])
    return measured(sums_sample(rows, lambda sums, _: {"bits_per_byte": sums[:, 0] / sums[:, 1]}))


def format_page(minutes: float, results: dict[str, dict[str, Result]]) -> str:
    """The page; `results` are by dataset and row."""
    lines = [
        "# Headlines: what pre-training gives",
        "",
        f"Made by `python bench/headlines.py --minutes {minutes:g}`: BART and T5, pre-trained as for "
        f"[the family](family.md), are fine-tuned to write headlines, beside the same networks from random weights and "
        f"a `transformer` of size tiny of the pairs alone. Measured on at most {MAX_DEV} dev examples, with 95% "
        "intervals. Bits per byte of the references: lower is better. The baseline copies the source.",
    ]
    for name, rows in results.items():
        dataset = SETS[name]
        lines += ["", f"## {dataset.title} ({dataset.max_examples:,} pairs, {dataset.epochs} epochs)", ""]
        lines += ["| | bits per byte | chrF | BLEU | ROUGE-L |", "|---|---|---|---|---|"]
        for row, result in rows.items():
            title = f"{row.removesuffix('-random')}, random weights" if row.endswith("-random") else row
            lines.append(f"| {title} | {result.get('error') or format_metrics(result['found'])} |")
        copied = next((one["found"]["baseline"] for one in rows.values() if "baseline" in one.get("found", {})), {})
        chrf, bleu, rouge_l = (copied.get(metric, 0) for metric in ("chrf", "bleu", "rouge_l"))
        lines.append(f"| baseline | | {chrf:.1f} | {bleu:.1f} | {rouge_l:.3f} |")
        lines += ["", "```", *(format_command(one) for row in rows.values() for one in row["commands"]), "```"]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = make_page_parser(__doc__, "docs/headlines.md")
    parser.add_argument("--only", default=",".join(NAMES), help="comma-separated datasets")
    options = parser.parse_args()
    workspace = Workspace(options.out.resolve(), options.minutes or 5.0, options.jobs)
    results: dict[str, dict[str, Result]] = {}
    for name in options.only.split(","):
        measurements = Measurements(workspace, SETS[name].language)
        measurements.prepare()
        for recipe in RECIPES:
            if error := workspace.run_once(measurements.model(recipe), measurements.commands(recipe)["train"]):
                raise SystemExit(error)
        rows = [row for recipe in RECIPES for row in (recipe, f"{recipe}-random")] + [BASELINE]
        results[name] = {row: run_row(workspace, name, row) for row in rows}
        options.write.write_text(format_page(workspace.minutes, results), encoding="utf-8")
    print(f"-> {options.write}")


if __name__ == "__main__":
    run_main(main)
