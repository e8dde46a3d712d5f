"""How many labelled examples does a model need? Makes docs/data-size.md and docs/data-size.svg.

    python bench/data_size.py [--quick] [-o FOLDER] [--minutes 15] [--seeds 2] [--only kinds,strategies,stages]
                              [--with FILE.json]

Skip-gram, GloVe, ELMo and BERT, pre-trained for the same minutes on the same text (GloVe until it is done), learn
SST-2 (classify) and CoNLL-2003 (tag) from 100, 1,000, 10,000 and all examples. `strategies` compares what learns
nothing below the head with what learns everything; `stages` goes on pre-training before that: with the text of the
task's examples (TAPT), with text of its domain (DAPT, made once for all sizes), or both. Up to 1,000 examples the mean
over the seeds counts, above that one run; scores are those on 1,000 dev examples at most. The folder is that of
bench/results.py: models that are there are used, and results are kept. --with takes the numbers that an earlier run has
written beside its page.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent))
import task_data
from task_data import DATASETS, Bench, show

SETS = ("sst2", "conll2003")
SIZES, QUICK_SIZES = (100, 1_000, 10_000, 1_000_000), (50, 200)
COUNTS = {"sst2": 67_339, "conll2003": 14_041}
PASSES = 10  # of TAPT, if nothing is asked for
REPEATED = 1_000  # examples up to which there is more than one seed
DEV, QUICK_DEV, QUICK_MINUTES = 1_000, 300, 0.5


class Line(NamedTuple):
    """A line of a chart."""

    title: str
    model: str
    speed: float
    """Tokens a second with two cores, for the estimate."""
    more: tuple[str, ...] = ()
    stages: tuple[str, ...] = ()
    """More pre-training: domain, task."""


KINDS = (
    Line("skip-gram", "skipgram", 30_000),
    Line("GloVe", "glove", 30_000),
    Line("ELMo", "elmo", 12_000),
    Line("BERT", "bert", 22_000),
)
STRATEGIES = (
    Line("skip-gram, full", "skipgram", 30_000),
    Line("skip-gram, frozen", "skipgram", 30_000, ("--strategy", "frozen")),
    Line("BERT, full", "bert", 22_000),
    Line("BERT, frozen", "bert", 40_000, ("--strategy", "frozen")),
    Line("BERT, features", "bert", 20_000, ("--strategy", "features")),
)
STAGES = (
    Line("BERT", "bert", 22_000),
    Line("BERT, TAPT", "bert", 22_000, stages=("task",)),
    Line("BERT, DAPT", "bert", 22_000, stages=("domain",)),
    Line("BERT, DAPT and TAPT", "bert", 22_000, stages=("domain", "task")),
)
PARTS = {"kinds": KINDS, "strategies": STRATEGIES, "stages": STAGES}
TITLES = {
    "kinds": "Kinds of models",
    "strategies": "Frozen against fine-tuned",
    "stages": "More pre-training before",
}


Point = tuple[str, Line, int, int]
"""A set, a line, a number of examples and a seed."""


class Study(NamedTuple):
    """What is to be found out."""

    bench: Bench
    parts: Sequence[str]
    sizes: Sequence[int]
    seeds: int
    stage: str
    """The budget of further pre-training on a domain; the text of a task is read as often as Firth chooses."""

    def sizes_of(self, part: str) -> Sequence[int]:
        """All examples there are, for kinds of models alone: what the others ask is for those who have few."""
        return self.sizes if part == "kinds" else self.sizes[:-1]

    def words(self, name: str, line: Line, size: int, seed: int) -> list[str]:
        """The words of the command of a point, but for the folder of the result."""
        model = self.adapted(name, line.model) if "domain" in line.stages else self.bench.model(line.model, "en")
        task = ["--task-text"] if "task" in line.stages else []
        return self.bench.learning(name, model, [*line.more, *task, "--seed", str(seed)], size)

    def adapted(self, name: str, model: str) -> str:
        """Where the model is that has gone on with the domain of a set: the same for all its points."""
        return f"{self.bench.model(model, 'en')}-for-{name}-{self.stage}"

    def adapting(self, name: str, model: str) -> list[str]:
        """The words of the command that makes it."""
        text, out = domain_text(self.bench, name), self.adapted(name, model)
        return ["adapt", self.bench.model(model, "en"), text, "-o", out, "--budget", self.stage]

    def domains(self) -> list[tuple[str, str]]:
        """Sets and models that are adapted to the set's domain."""
        return domains(self.points())

    def cell(self, name: str, line: Line, size: int, seed: int) -> str:
        """What the result of a point is called; the same point in two charts is found once."""
        how = "-".join([line.model, *(one for one in line.more if not one.startswith("--")), *line.stages])
        return f"size.{name}.{how}.{self.bench.minutes:g}min.{size}.{seed}"

    def points(self) -> list[Point]:
        """All that is to be learnt, each once."""
        found = {}
        for part in self.parts:
            for name in SETS:
                for line in PARTS[part]:
                    for size in self.sizes_of(part):
                        for seed in range(self.seeds if size <= REPEATED else 1):
                            found.setdefault(self.cell(name, line, size, seed), (name, line, size, seed))
        return list(found.values())

    def known(self) -> dict[str, dict[str, Any]]:
        """What came of points so far, by the names of their cells."""
        return self.bench.known_of({self.cell(*one): self.words(*one) for one in self.points()})

    def missing(self) -> list[Point]:
        """Those of which nothing is known yet."""
        known = self.known()
        return [one for one in self.points() if self.cell(*one) not in known]

    def estimate(self) -> float:
        """About how many seconds is still to be waited, by speeds that were measured for two cores."""
        bench, missing, waiting = self.bench, self.missing(), 0.0
        for model in models(missing):
            if not (bench.folder / bench.model(model, "en") / "manifest.json").exists():
                waiting += 25 + 60 * (bench.minutes if task_data.RECIPES[model].timed else 1)
        for name, line, size, _ in missing:
            passes = 20 if size <= 500 else 10 if size <= 2_000 else 5 if size <= 10_000 else 3
            dev = min(bench.most_dev, DATASETS[name].held) / 3
            tokens = passes * (min(size, COUNTS[name]) + dev) * DATASETS[name].tokens
            stage = ("task" in line.stages) * PASSES * min(size, COUNTS[name]) * DATASETS[name].tokens / line.speed
            waiting += 5 / bench.jobs + tokens / line.speed + stage
        adapted = [one for one in domains(missing) if not (bench.folder / self.adapted(*one)).exists()]
        return waiting + self.seconds * len(adapted)

    @property
    def seconds(self) -> float:
        """Of further pre-training on a domain."""
        return float(self.stage.removesuffix("s"))


def models(points: Sequence[Point]) -> list[str]:
    """What is to be pre-trained for some points."""
    return list(dict.fromkeys(line.model for _, line, _, _ in points))


def domains(points: Sequence[Point]) -> list[tuple[str, str]]:
    """Sets and models that are adapted to the set's domain for some points."""
    return list(dict.fromkeys((name, line.model) for name, line, _, _ in points if "domain" in line.stages))


def domain_text(bench: Bench, name: str) -> str:
    """Text of a set's domain: news for CoNLL-2003, films for SST-2, without the sentences of its dev part."""
    if name == "conll2003":
        return bench.link("lm/wikinews_en.txt.gz")
    path = bench.folder / "data" / "films.txt"
    if not path.exists():
        held_out = {letters(text) for text in texts(DATASETS["sst2"].dev)}
        lines = [one for source in ("mr", "subj") for one in texts(f"sentences/{source}.tsv.gz")]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{one}\n" for one in lines if letters(one) not in held_out), encoding="utf-8")
    return "data/films.txt"


def texts(name: str) -> list[str]:
    lines = task_data.read_text(task_data.data_path(name)).splitlines()
    column = lines[0].split("\t").index("text_a")
    return [line.split("\t")[column].strip() for line in lines[1:]]


def letters(text: str) -> str:
    """What is left of a text when spaces and punctuation are taken away, which sources have differently."""
    return "".join(one for one in text.lower() if one.isalnum())


Scores = dict[str, list[dict[str, Any]]]


def make(study: Study) -> Scores:
    """The results of all points, by the cell's name without its seed."""
    missing = study.missing()
    broken = {model: why for model in models(missing) if (why := study.bench.pretrain(model, "en"))}
    for one in domains(missing):
        if one[1] not in broken and (why := study.bench.once(study.adapted(*one), study.adapting(*one))):
            broken[one[1]] = why
    points = [one for one in study.points() if one[1].model not in broken]
    results = study.bench.each([partial(study.bench.finetune, study.cell(*one), study.words(*one)) for one in points])
    found: Scores = {}
    for (name, line, size, _), result in zip(points, results, strict=True):
        found.setdefault(study.cell(name, line, size, 0), []).append(result)
    return found


def score(study: Study, found: Scores, name: str, line: Line, size: int) -> tuple[float | None, str]:
    """The mean over the seeds, and how it is told, with half of the range; or why there is none."""
    results = found.get(study.cell(name, line, size, 0), [])
    failed = [one["error"] for one in results if "error" in one]
    if failed or not results:
        return None, failed[0] if failed else "not made"
    values = [one["dev"][DATASETS[name].metric] for one in results]
    spread = f" ± {(max(values) - min(values)) / 2:.3f}" if len(values) > 1 else ""
    return statistics.mean(values), f"{statistics.mean(values):.3f}{spread}"


def page(study: Study, found: Scores) -> str:
    """The tables, and the commands of the rightmost points."""
    bench = study.bench
    lines = [
        "# How many examples does a model need?",
        "",
        f"Made by `python bench/data_size.py{' --quick' * (study.sizes == QUICK_SIZES)} --minutes {bench.minutes:g}`. "
        f"Each model was pre-trained for {bench.minutes:g} minutes on wiki_en and wikinews_en, GloVe with the passes "
        "it has by default; "
        f"scores on at most {bench.most_dev:,} dev examples. TAPT goes on pre-training with the text of "
        f"the examples for {PASSES} passes, DAPT with text of the domain (films for SST-2, news for CoNLL-2003) for "
        f"{study.stage}.",
        "",
        "![charts](data-size.svg)",
    ]
    for part in study.parts:
        for name in SETS:
            told, sizes = DATASETS[name], study.sizes_of(part)
            lines += ["", f"## {TITLES[part]}: {told.title}, {told.metric.replace('_', ' ')}", ""]
            lines += ["| examples | " + " | ".join(map(called, sizes)) + " |"]
            lines += ["|---|" + "---|" * len(sizes)]
            for line in PARTS[part]:
                values = [score(study, found, name, line, size)[1] for size in sizes]
                lines.append(f"| {line.title} | " + " | ".join(values) + " |")
            before = [show(study.adapting(*one)) for one in study.domains() if part == "stages" and one[0] == name]
            commands = [show([*study.words(name, line, sizes[-1], 0), "-o", "DIR"]) for line in PARTS[part]]
            lines += ["", "```sh", *before, *commands, "```"]
    return "\n".join(lines) + "\n"


def called(size: int) -> str:
    return "all" if size == SIZES[-1] else f"{size:,}"


def draw(study: Study, found: Scores, path: Path) -> None:
    """The charts: a row for each question, a column for each set."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "firth"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(len(study.parts), len(SETS), figsize=(10, 3.6 * len(study.parts)), squeeze=False)
    for row, part in zip(axes, study.parts, strict=True):
        for axis, name in zip(row, SETS, strict=True):
            for line in PARTS[part]:
                known = [
                    (min(size, COUNTS[name]), score(study, found, name, line, size)[0]) for size in study.sizes_of(part)
                ]
                drawn = [(size, value) for size, value in known if value is not None]
                if drawn:
                    axis.plot(*zip(*drawn, strict=True), marker="o", label=line.title)
            axis.set(xscale="log", xlabel="examples", ylabel=DATASETS[name].metric.replace("_", " "))
            shown = [min(size, COUNTS[name]) for size in study.sizes_of(part)]
            axis.set_xticks(shown, labels=[f"{size:,}" for size in shown], fontsize=8, rotation=30, ha="right")
            axis.minorticks_off()
            axis.set_title(f"{TITLES[part]}: {DATASETS[name].title}", fontsize=10)
            axis.grid(alpha=0.3)
            axis.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="50 and 200 examples, one seed, half a minute each")
    parser.add_argument("-o", "--out", type=Path, default=Path("results"), help="keep models and results here")
    parser.add_argument("--write", type=Path, default=Path("docs/data-size.md"), help="the chart is put beside it")
    parser.add_argument("--minutes", type=float, help="of pre-training; else 15, or a half with --quick")
    parser.add_argument("--seeds", type=int, help="else 2, or 1 with --quick")
    parser.add_argument("--stage", default="", help="budget of DAPT in seconds; else 60s, or 5s")
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="fine-tunings side by side")
    parser.add_argument("--with", type=Path, dest="known", help="results of an earlier run that count as made")
    options = parser.parse_args()
    quick, parts = options.quick, options.only.split(",")
    if unknown := [one for one in parts if one not in PARTS]:
        parser.error(f"there is no part {unknown[0]}: choose from {', '.join(PARTS)}.")
    minutes = options.minutes or (QUICK_MINUTES if quick else 15.0)
    most_dev = QUICK_DEV if quick else DEV
    bench = Bench(options.out.resolve(), minutes, options.jobs, most_dev=most_dev, passes=None)
    sizes, seeds = QUICK_SIZES if quick else SIZES, options.seeds or (1 if quick else 2)
    study = Study(bench, parts, sizes, seeds, options.stage or ("5s" if quick else "60s"))
    if options.known is not None:
        bench.take(options.known)
    print(f"about {study.estimate() / 60:.0f} minutes on 2 cores; what is made is kept in {options.out}", flush=True)
    found = make(study)
    draw(study, found, options.write.with_suffix(".svg"))
    options.write.write_text(page(study, found), encoding="utf-8")
    bench.write_results(options.write.with_suffix(".json"), study.known())
    print(f"-> {options.write}, {', '.join(str(options.write.with_suffix(one)) for one in ('.svg', '.json'))}")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("interrupted: the same command goes on.") from None
