"""Real tasks under every kind of model: makes docs/results.md.

    python bench/results.py [--quick] [-o FOLDER] [--minutes 15] [--seeds 2] [--only bert,gpt,sst2] [--with FILE.json]

Each model is pre-trained for the same minutes on the same text, then fine-tuned on at most 5,000 examples of each set
(fewer where they are long), with each seed; scores are those on the dev part. Models and results are kept in FOLDER:
what is there is not made again, what was interrupted goes on, and what failed is tried again. All numbers are written
beside the page as JSON; --with takes those of an earlier run, so that the languages can be done on different days.
FIRTH_MINILM names the folder of all-MiniLM-L6-v2 for the row of an imported model. With --quick it takes 20 minutes,
else about 4 hours.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent))
from task_data import CORPORA, DATASETS, LANGUAGES, RECIPES, Bench, Dataset, explain, run, show

QUICK_SHARE, QUICK_DEV, QUICK_MINUTES = 5, 200, 0.75
MINILM = "minilm"
QUESTIONS = (
    "A thousand questions, read twice, are 64 steps: too few, perhaps, for the SQuAD column to tell much. With"
    " all 4,757 questions, read three times (`--train data/squad2_part.train.json.gz --set "
    "learning.epochs=3`), the best spans of a BERT of 15 minutes have F1 0.114 [0.086, 0.142], those of the "
    "same from random weights 0.077 [0.054, 0.099] (one seed; the intervals overlap)."
)
"""Why a column of the whole table says little."""


class Row(NamedTuple):
    """A kind of model in the table."""

    title: str
    model: str
    """What is pre-trained or imported."""
    speed: float
    """Tokens a second with two cores when a model of 15 minutes is fine-tuned: for the estimate."""
    more: tuple[str, ...] = ()
    languages: tuple[str, ...] = ("en", "zh")
    passes: int = 1_000
    """At most: a large model that has learnt much needs few."""


ROWS = {
    "tfidf": Row("TF-IDF, linear", "words", 500_000),
    "skipgram": Row("skip-gram + BiLSTM", "skipgram", 30_000),
    "elmo": Row("ELMo", "elmo", 12_000),
    "gpt": Row("GPT", "gpt", 10_000),
    "bert": Row("BERT", "bert", 22_000),
    "random": Row("the same BERT from random weights", "bert", 22_000, ("--random",)),
    MINILM: Row("MiniLM, imported", MINILM, 2_400, languages=("en",), passes=2),
}
START = 5.0
"""Seconds that a command takes beside: imports, loading, intervals of the metrics."""
BUILD = 25.0
"""Seconds that reading the text takes before a model learns from it."""


class Table(NamedTuple):
    """What is to be made."""

    bench: Bench
    rows: Sequence[str]
    sets: Sequence[str]
    seeds: int

    def cells(self) -> Iterator[tuple[str, str]]:
        """Rows and sets that go together."""
        for name in self.sets:
            for row in self.rows:
                if DATASETS[name].language in ROWS[row].languages:
                    yield row, name

    def every(self) -> list[tuple[str, str, int]]:
        """Rows, sets and seeds of all that is learnt."""
        return [(row, name, seed) for row, name in self.cells() for seed in range(self.seeds)]

    def known(self) -> dict[str, dict[str, Any]]:
        """What came of them so far, by the names of their cells."""
        return self.bench.known_of({self.cell(*one): self.words(*one) for one in self.every()})

    def missing(self) -> list[tuple[str, str, int]]:
        """Those of which nothing is known yet."""
        known = self.known()
        return [one for one in self.every() if self.cell(*one) not in known]

    def words(self, row: str, name: str, seed: int) -> list[str]:
        """The words of the command of a cell."""
        found = ROWS[row]
        model = self.bench.model(found.model, DATASETS[name].language)
        return self.bench.learning(name, model, (*found.more, "--seed", str(seed)), passes=self.passes(row, name))

    def passes(self, row: str, name: str) -> int:
        """How often the examples of a set are read."""
        return min(ROWS[row].passes, self.bench.passes or DATASETS[name].passes)

    def cell(self, row: str, name: str, seed: int) -> str:
        """What the result of a cell is called."""
        bench = self.bench
        return f"{name}.{row}.{bench.minutes:g}min.{bench.examples(name)}.{seed}"


def models(cells: Sequence[tuple[str, str, int]]) -> list[tuple[str, str]]:
    """Models and languages that some cells need."""
    return list(dict.fromkeys((ROWS[row].model, DATASETS[name].language) for row, name, _ in cells))


def estimate(table: Table) -> float:
    """About how many seconds is still to be waited, by speeds that were measured for two cores."""
    bench, missing = table.bench, table.missing()
    waiting = 0.0
    for model, language in models(missing):
        if not (bench.folder / bench.model(model, language) / "manifest.json").exists() and model in RECIPES:
            waiting += BUILD + 60 * bench.minutes * RECIPES[model].timed
    for row, name, _ in missing:
        waiting += START / bench.jobs + work(name, bench, table.passes(row, name)) / ROWS[row].speed
    return waiting


def work(name: str, bench: Bench, passes: int) -> float:
    """The tokens of learning, and those of validation after each pass and at the end, which are three times faster."""
    found = DATASETS[name]
    return found.tokens * (passes * bench.examples(name) + (passes + 1) * held(found, bench) / 3)


def held(found: Dataset, bench: Bench) -> int:
    """How many examples of the dev part are used."""
    return min(bench.most_dev, found.held, found.most_held)


def make(table: Table) -> tuple[dict[str, dict[str, list[dict[str, Any]]]], dict[str, str]]:
    """All results by row and set, and what could not be pre-trained."""
    broken = {}
    for model, language in models(table.missing()):
        why = import_minilm(table.bench) if model == MINILM else table.bench.pretrain(model, language)
        if why:
            broken[f"{model} {language}"] = why
    made = [one for one in table.every() if f"{ROWS[one[0]].model} {DATASETS[one[1]].language}" not in broken]
    results = table.bench.each([partial(table.bench.finetune, table.cell(*one), table.words(*one)) for one in made])
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for (row, name, _), result in zip(made, results, strict=True):
        found.setdefault(row, {}).setdefault(name, []).append(result)
    return found, broken


def import_minilm(bench: Bench) -> str:
    """Imports the model that was trained elsewhere; returns why it could not be, or nothing."""
    given = os.environ.get("FIRTH_MINILM", "")
    if not given and not (bench.folder / "en" / MINILM).exists():
        return "FIRTH_MINILM does not name the folder of all-MiniLM-L6-v2"
    if (bench.folder / "en" / MINILM / "manifest.json").exists():
        return ""
    (bench.folder / "data").mkdir(parents=True, exist_ok=True)
    link = bench.folder / "data" / "all-MiniLM-L6-v2"
    if not link.exists():
        link.symlink_to(Path(given).resolve())
    return explain(run(bench.folder, MINILM_WORDS))


MINILM_WORDS = ["import", "huggingface", "data/all-MiniLM-L6-v2", "-o", f"en/{MINILM}"]


def write(table: Table, results: dict[str, dict[str, list[dict[str, Any]]]], broken: dict[str, str]) -> str:
    """The page."""
    bench = table.bench
    lines = [
        "# Results on real tasks",
        "",
        f"Made by `python bench/results.py {options_of(table)}`. Every network was pre-trained by Firth for the same "
        f"{bench.minutes:g} minutes on 2 cores on {texts_of(table)}, in the size that Firth "
        "chooses for that time, and then fine-tuned. A cell is the mean over "
        f"{table.seeds} seed{'s' * (table.seeds > 1)} on the dev part, ± half of the range, and the seconds of a "
        "fine-tuning with one thread. The dev part also decides which state is kept, so that scores are a little too "
        "high, for all rows alike. The last row is a trivial baseline: the majority label, no entity or no answer. The "
        "span F1 of a reading comprehension is that of the best span where there is an answer, whether it was given or "
        "not: with so few examples hardly any answer is sure enough to be given.",
        *([] if bench.passes or "squad2" not in table.sets else ["", QUESTIONS]),
        "",
        "The commands run in the folder that `-o` names. What lies there in `data/` are the real texts, and parts of "
        "the real sets: `python bench/task_data.py sst2 1000 FILE` writes one.",
    ]
    for language, called in LANGUAGES.items():
        sets = [name for name in table.sets if DATASETS[name].language == language]
        rows = [row for row in table.rows if language in ROWS[row].languages and row in results]
        if sets and rows:
            lines += ["", f"## {called}", "", *grid(table, results, rows, sets)]
            for row in rows:
                lines += ["", f"### {ROWS[row].title} ({called})", "", "```sh", *commands(table, row, sets), "```"]
    lines += [f"\nLeft out: {name}: {why}." for name, why in broken.items()]
    return "\n".join(lines) + "\n"


def texts_of(table: Table) -> str:
    """What the models of the table have read."""
    languages = dict.fromkeys(DATASETS[name].language for name in table.sets)
    texts = [" and ".join(Path(one).name.split(".")[0] for one in CORPORA[language]) for language in languages]
    return ", or on ".join(texts)


def options_of(table: Table) -> str:
    bench = table.bench
    quick = f"--quick --minutes {bench.minutes:g}" if bench.passes else f"--minutes {bench.minutes:g}"
    only = "" if len(table.sets) == len(DATASETS) else f" --only {','.join(table.sets)}"
    return f"{quick} --seeds {table.seeds}{only}"


def grid(
    table: Table, results: dict[str, dict[str, list[dict[str, Any]]]], rows: Sequence[str], sets: Sequence[str]
) -> list[str]:
    """The lines of a table, and below it why cells are empty."""
    notes: list[str] = []
    found = [DATASETS[name] for name in sets]
    examples = [table.bench.examples(name) for name in sets]
    lines = [
        "| | " + " | ".join(one.title for one in found) + " |",
        "|---|" + "---|" * len(found),
        "| task, metric | " + " | ".join(f"{one.task}, {metrics_of(one)}" for one in found) + " |",
        "| dev examples | " + " | ".join(f"{held(one, table.bench):,}" for one in found) + " |",
        "| training examples at most, passes | "
        + " | ".join(f"{n:,}, {table.bench.passes or one.passes}" for n, one in zip(examples, found, strict=True))
        + " |",
    ]
    for row in rows:
        cells = [cell(results[row].get(name, []), DATASETS[name], ROWS[row], notes) for name in sets]
        lines.append(f"| {ROWS[row].title} | " + " | ".join(cells) + " |")
    trivial = [baseline([results[row].get(name, []) for row in rows], DATASETS[name].metric) for name in sets]
    return [*lines, "| trivial baseline | " + " | ".join(trivial) + " |", *([""] if notes else []), *notes]


def cell(results: Sequence[dict[str, Any]], found: Dataset, row: Row, notes: list[str]) -> str:
    """Mean, spread and seconds; or the number of the note that says why there is none."""
    failed = [one["error"] for one in results if "error" in one]
    if failed or not results:
        notes.append(f"{len(notes) + 1}. {row.title}, {found.title}: {failed[0] if failed else 'not made'}")
        return f"– ({len(notes)})"
    told = [spread([one["dev"][metric] for one in results]) for metric in (found.metric, found.also) if metric]
    return f"{' / '.join(told)} ({statistics.mean(one['seconds'] for one in results):.0f} s)"


def metrics_of(found: Dataset) -> str:
    """Those that cells of a set tell."""
    return " / ".join(one.replace("_", " ") for one in (found.metric, found.also) if one)


def spread(scores: Sequence[float]) -> str:
    """The mean, and half of the range."""
    around = f" ± {(max(scores) - min(scores)) / 2:.3f}" if len(scores) > 1 else ""
    return f"{statistics.mean(scores):.3f}{around}"


def baseline(column: Sequence[Sequence[dict[str, Any]]], metric: str) -> str:
    """What needs no learning; the same in every row."""
    known = [one["dev"].get("baseline", {}).get(metric) for cell in column for one in cell if "dev" in one]
    return next((f"{value:.3f}" for value in known if value is not None), "–")


def commands(table: Table, row: str, sets: Sequence[str]) -> list[str]:
    """What made a row, with the first seed: the others change `--seed` and `-o` alone."""
    found, language = ROWS[row], DATASETS[sets[0]].language
    before = MINILM_WORDS if found.model == MINILM else table.bench.pretraining(found.model, language)
    cells = [[*table.words(row, name, 0), "-o", f"tuned/{table.cell(row, name, 0)}"] for name in sets]
    return [show(before), *map(show, cells)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help="1,000 examples at most, one pass, one seed, 45 seconds of pre-training"
    )
    parser.add_argument("-o", "--out", type=Path, default=Path("results"), help="keep models and results here")
    parser.add_argument("--write", type=Path, default=Path("docs/results.md"))
    parser.add_argument("--minutes", type=float, help="of pre-training; else 15, or 0.75 with --quick")
    parser.add_argument("--seeds", type=int, help="else 2, or 1 with --quick")
    parser.add_argument("--only", default="", help=f"rows and sets, of {', '.join([*ROWS, *DATASETS])}")
    parser.add_argument("--share", type=int, help="one of so many training examples; else 1, or 5 with --quick")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="fine-tunings side by side")
    parser.add_argument("--with", type=Path, dest="known", help="results of an earlier run that count as made")
    options = parser.parse_args()
    table = read(parser, options)
    if options.known is not None:
        table.bench.take(options.known)
    print(f"about {estimate(table) / 60:.0f} minutes on 2 cores; what is made is kept in {options.out}", flush=True)
    results, broken = make(table)
    options.write.write_text(write(table, results, broken), encoding="utf-8")
    table.bench.write_results(options.write.with_suffix(".json"), table.known())
    print(f"-> {options.write}, {options.write.with_suffix('.json')}")


def read(parser: argparse.ArgumentParser, options: argparse.Namespace) -> Table:
    """What the command line asks for."""
    only = options.only.split(",") if options.only else []
    for one in only:
        if one not in ROWS and one not in DATASETS:
            parser.error(f"there is neither a row nor a set {one}: choose from {', '.join([*ROWS, *DATASETS])}.")
    quick = options.quick
    bench = Bench(
        options.out.resolve(),
        options.minutes or (QUICK_MINUTES if quick else 15.0),
        options.jobs,
        options.share or (QUICK_SHARE if quick else 1),
        QUICK_DEV if quick else 1_000_000,
        1 if quick else 0,
    )
    rows = [row for row in ROWS if row in only] or list(ROWS)
    sets = [name for name in DATASETS if name in only] or list(DATASETS)
    return Table(bench, rows, sets, options.seeds or (1 if quick else 2))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("interrupted: the same command goes on.") from None
