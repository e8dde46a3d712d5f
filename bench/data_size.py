"""How many labelled examples does a model need? Makes docs/data-size.md and docs/data-size.svg.

    python bench/data_size.py [--quick] [-o FOLDER] [--minutes 15] [--seeds 2] [--only kinds,strategies,stages]
                              [--with FILE.json]

Skip-gram, GloVe, ELMo and BERT, pre-trained for the same time on the same text (GloVe until it is done), are fine-tuned
on 100, 1,000, 10,000 and all examples of SST-2 (classify) and CoNLL-2003 (tag). `strategies` compares frozen with
fully fine-tuned models; `stages` continues pre-training first: on the text of the task's examples (TAPT), on text of
its domain (DAPT, once for all sizes), or both. Up to 1,000 examples, scores are the mean over the seeds, above that
those of one run, on at most 1,000 dev examples. The folder is that of bench/results.py: its models are reused. --with
reuses the results that an earlier run has written beside its page.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import task_data
from firth.plots import new_figure
from task_data import DATASETS, UNLIMITED
from workspace import (
    WITHOUT_BUDGET,
    ModelVariant,
    Result,
    Workspace,
    first_error,
    format_command,
    format_scores,
    make_page_parser,
    run_main,
)

COUNTS = {"sst2": 67_339, "conll2003": 14_041}
"""Training examples of the datasets."""
SIZES, QUICK_SIZES = (100, 1_000, 10_000, UNLIMITED), (50, 200)
TAPT_EPOCHS = 10  # the default of --task-text
MAX_REPEATED = 1_000  # examples up to which runs are repeated with several seeds
MAX_DEV, QUICK_DEV, QUICK_MINUTES = 1_000, 300, 0.5
PARTS = {
    "kinds": (
        ModelVariant("skip-gram", "skipgram", 30_000),
        ModelVariant("GloVe", "glove", 30_000),
        ModelVariant("ELMo", "elmo", 12_000),
        ModelVariant("BERT", "bert", 22_000),
    ),
    "strategies": (
        ModelVariant("skip-gram, full", "skipgram", 30_000),
        ModelVariant("skip-gram, frozen", "skipgram", 30_000, ("--strategy", "frozen")),
        ModelVariant("BERT, full", "bert", 22_000),
        ModelVariant("BERT, frozen", "bert", 40_000, ("--strategy", "frozen")),
        ModelVariant("BERT, features", "bert", 20_000, ("--strategy", "features")),
    ),
    "stages": (
        ModelVariant("BERT", "bert", 22_000),
        ModelVariant("BERT, TAPT", "bert", 22_000, stages=("task",)),
        ModelVariant("BERT, DAPT", "bert", 22_000, stages=("domain",)),
        ModelVariant("BERT, DAPT and TAPT", "bert", 22_000, stages=("domain", "task")),
    ),
}
TITLES = {
    "kinds": "Kinds of models",
    "strategies": "Frozen against fine-tuned",
    "stages": "More pre-training before",
}
Point = tuple[str, ModelVariant, int, int]
"""A dataset, a model, a number of examples and a seed."""
Scores = dict[str, list[Result]]
"""The results of all seeds by the name of the first one's cell."""


class DataSizeStudy(NamedTuple):
    """The questions, sizes and seeds to run."""

    workspace: Workspace
    parts: Sequence[str]
    sizes: Sequence[int]
    seeds: int
    dapt_budget: str
    """In seconds, such as 60s; Firth chooses that of TAPT."""

    def sizes_of(self, part: str) -> Sequence[int]:
        """The numbers of examples; all examples only for kinds of models, as the other parts are about few."""
        return self.sizes if part == "kinds" else self.sizes[:-1]

    def command(self, name: str, variant: ModelVariant, size: int, seed: int) -> list[str]:
        """The command of a point, without `-o`."""
        has_domain, has_task = "domain" in variant.stages, "task" in variant.stages
        model = variant.model
        path = self.adapted_path(name, model) if has_domain else self.workspace.model_path(model, "en")
        options = [*variant.options, *(["--task-text"] if has_task else []), "--seed", str(seed)]
        return self.workspace.finetune_command(name, path, options, size)

    def adapted_path(self, name: str, model: str) -> str:
        """The model that is adapted to the domain of a dataset."""
        return f"{self.workspace.model_path(model, 'en')}-for-{name}-{self.dapt_budget}"

    def adapt_command(self, name: str, model: str) -> list[str]:
        text, out = domain_text(self.workspace, name), self.adapted_path(name, model)
        return ["adapt", self.workspace.model_path(model, "en"), text, "-o", out, "--budget", self.dapt_budget]

    def cell_name(self, name: str, variant: ModelVariant, size: int, seed: int) -> str:
        """The name of a result; the same in all charts that have the point."""
        options = (one for one in variant.options if not one.startswith("--"))
        how = "-".join([variant.model, *options, *variant.stages])
        return f"size.{name}.{how}.{self.workspace.minutes:g}min.{size}.{seed}"

    def points(self) -> list[Point]:
        """All fine-tunings, each once."""
        found: dict[str, Point] = {}
        for part in self.parts:
            for name in COUNTS:
                for variant in PARTS[part]:
                    for size in self.sizes_of(part):
                        for seed in range(self.seeds if size <= MAX_REPEATED else 1):
                            point = (name, variant, size, seed)
                            found.setdefault(self.cell_name(*point), point)
        return list(found.values())

    def known(self) -> dict[str, Result]:
        """The known results by the names of their cells."""
        return self.workspace.known_results({self.cell_name(*one): self.command(*one) for one in self.points()})

    def missing(self) -> list[Point]:
        known = self.known()
        return [point for point in self.points() if self.cell_name(*point) not in known]

    def estimate(self) -> float:
        """The approximate seconds of what is missing, by speeds measured on two cores."""
        workspace, missing, seconds = self.workspace, self.missing(), 0.0
        for model in models_of(missing):
            if not (workspace.folder / workspace.model_path(model, "en") / "manifest.json").exists():
                seconds += 25 + 60 * (1 if model in WITHOUT_BUDGET else workspace.minutes)
        for name, variant, size, _ in missing:
            dataset, examples = DATASETS[name], min(size, COUNTS[name])
            epochs = 20 if size <= 500 else 10 if size <= 2_000 else 5 if size <= 10_000 else 3
            dev = min(workspace.max_dev, dataset.dev_examples) / 3
            tokens = dataset.tokens * epochs * (examples + dev)
            tokens += ("task" in variant.stages) * dataset.tokens * TAPT_EPOCHS * examples
            seconds += 5 / workspace.jobs + tokens / variant.speed
        to_adapt = [one for one in domains_of(missing) if not (workspace.folder / self.adapted_path(*one)).exists()]
        return seconds + float(self.dapt_budget.removesuffix("s")) * len(to_adapt)


def models_of(points: Sequence[Point]) -> list[str]:
    """The pre-trained models of some points."""
    return list(dict.fromkeys(variant.model for _, variant, _, _ in points))


def domains_of(points: Sequence[Point]) -> list[tuple[str, str]]:
    """The datasets and models of some points whose models are adapted to the domain of the dataset."""
    return list(dict.fromkeys((name, variant.model) for name, variant, _, _ in points if "domain" in variant.stages))


def domain_text(workspace: Workspace, name: str) -> str:
    """Text of a dataset's domain: news for CoNLL-2003, films for SST-2, without the sentences of its dev part."""
    if name == "conll2003":
        return workspace.link("lm/wikinews_en.txt.gz")
    path = workspace.folder / "data" / "films.txt"
    if not path.exists():
        held_out = {alphanumeric(text) for text in read_texts(DATASETS["sst2"].dev)}
        texts = [text for source in ("mr", "subj") for text in read_texts(f"sentences/{source}.tsv.gz")]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{one}\n" for one in texts if alphanumeric(one) not in held_out), encoding="utf-8")
    return "data/films.txt"


def read_texts(name: str) -> list[str]:
    lines = task_data.read_text(task_data.data_path(name)).splitlines()
    column = lines[0].split("\t").index("text_a")
    return [line.split("\t")[column].strip() for line in lines[1:]]


def alphanumeric(text: str) -> str:
    """The text without spaces and punctuation, in which the sources differ."""
    return "".join(character for character in text.lower() if character.isalnum())


def run_all(study: DataSizeStudy) -> Scores:
    workspace, missing = study.workspace, study.missing()
    failed = {model for model in models_of(missing) if workspace.pretrain(model, "en")}
    for name, model in domains_of(missing):
        out, command = study.adapted_path(name, model), study.adapt_command(name, model)
        if model not in failed and workspace.run_once(out, command):
            failed.add(model)
    points = [point for point in study.points() if point[1].model not in failed]
    tasks = [partial(workspace.finetune, study.cell_name(*point), study.command(*point)) for point in points]
    found: Scores = {}
    for (name, variant, size, _), result in zip(points, workspace.run_parallel(tasks), strict=True):
        found.setdefault(study.cell_name(name, variant, size, 0), []).append(result)
    return found


def score_of(
    study: DataSizeStudy, found: Scores, name: str, variant: ModelVariant, size: int
) -> tuple[float | None, str]:
    """The mean over the seeds, and its text with half of the range; or None and the error."""
    results = found.get(study.cell_name(name, variant, size, 0), [])
    if error := first_error(results):
        return None, error
    scores = [result["dev"][DATASETS[name].metric] for result in results]
    return statistics.mean(scores), format_scores(scores)


def format_page(study: DataSizeStudy, found: Scores) -> str:
    """The tables, and the commands of the largest sizes."""
    workspace = study.workspace
    quick = " --quick" * (study.sizes == QUICK_SIZES)
    lines = [
        "# How many examples does a model need?",
        "",
        f"Made by `python bench/data_size.py{quick} --minutes {workspace.minutes:g}`. "
        f"Each model was pre-trained for {workspace.minutes:g} minutes on wiki_en and wikinews_en, GloVe with its "
        "default number of epochs; "
        f"scores on at most {workspace.max_dev:,} dev examples. TAPT continues pre-training on the text of "
        f"the examples for {TAPT_EPOCHS} epochs, DAPT on text of the domain (films for SST-2, news for CoNLL-2003) for "
        f"{study.dapt_budget}.",
        "",
        "![charts](data-size.svg)",
    ]
    for part in study.parts:
        for name in COUNTS:
            dataset, sizes = DATASETS[name], study.sizes_of(part)
            called = ["all" if size == UNLIMITED else f"{size:,}" for size in sizes]
            lines += ["", f"## {TITLES[part]}: {dataset.title}, {dataset.metric.replace('_', ' ')}", ""]
            lines += ["| examples | " + " | ".join(called) + " |", "|---|" + "---|" * len(sizes)]
            for variant in PARTS[part]:
                scores = [score_of(study, found, name, variant, size)[1] for size in sizes]
                lines.append(f"| {variant.title} | " + " | ".join(scores) + " |")
            adapted = [one for one in domains_of(study.points()) if part == "stages" and one[0] == name]
            commands = [study.adapt_command(*one) for one in adapted]
            commands += [[*study.command(name, variant, sizes[-1], 0), "-o", "DIR"] for variant in PARTS[part]]
            lines += ["", "```sh", *map(format_command, commands), "```"]
    return "\n".join(lines) + "\n"


def draw(study: DataSizeStudy, found: Scores, path: Path) -> None:
    """Draw the charts: a row for each question, a column for each dataset."""
    with new_figure(10, 3.6 * len(study.parts)) as figure:
        for row, part in zip(figure.subplots(len(study.parts), len(COUNTS), squeeze=False), study.parts, strict=True):
            for axis, (name, count) in zip(row, COUNTS.items(), strict=True):
                sizes = study.sizes_of(part)
                ticks = [min(size, count) for size in sizes]
                for variant in PARTS[part]:
                    scores = [score_of(study, found, name, variant, size)[0] for size in sizes]
                    points = [(tick, score) for tick, score in zip(ticks, scores, strict=True) if score is not None]
                    if points:
                        axis.plot(*zip(*points, strict=True), marker="o", label=variant.title)
                axis.set(xscale="log", xlabel="examples", ylabel=DATASETS[name].metric.replace("_", " "))
                axis.set_xticks(ticks, labels=[f"{tick:,}" for tick in ticks], fontsize=8, rotation=30, ha="right")
                axis.minorticks_off()
                axis.set_title(f"{TITLES[part]}: {DATASETS[name].title}", fontsize=10)
                axis.grid(alpha=0.3)
                axis.legend(fontsize=8)
        figure.tight_layout()
        figure.savefig(path, metadata={"Date": None})


def main() -> None:
    quick = "50 and 200 examples, one seed, half a minute of pre-training"
    parser = make_page_parser(__doc__, "docs/data-size.md", quick=quick)
    parser.add_argument("--dapt-budget", help="in seconds; 60s by default, 5s with --quick")
    parser.add_argument("--only", default=",".join(PARTS))
    options = parser.parse_args()
    is_quick, parts = options.quick, options.only.split(",")
    if unknown := [part for part in parts if part not in PARTS]:
        parser.error(f"there is no part {unknown[0]}: choose from {', '.join(PARTS)}.")
    minutes, max_dev = (QUICK_MINUTES, QUICK_DEV) if is_quick else (15.0, MAX_DEV)
    minutes = options.minutes or minutes
    workspace = Workspace(options.out.resolve(), minutes, options.jobs, max_dev=max_dev, epochs=None)
    sizes, seeds = QUICK_SIZES if is_quick else SIZES, options.seeds or (1 if is_quick else 2)
    study = DataSizeStudy(workspace, parts, sizes, seeds, options.dapt_budget or ("5s" if is_quick else "60s"))
    if options.known is not None:
        workspace.import_results(options.known)
    print(f"about {study.estimate() / 60:.0f} minutes on 2 cores; results are saved in {options.out}", flush=True)
    found = run_all(study)
    svg, results = (options.write.with_suffix(suffix) for suffix in (".svg", ".json"))
    draw(study, found, svg)
    options.write.write_text(format_page(study, found), encoding="utf-8")
    workspace.export_results(results, study.known())
    print(f"-> {options.write}, {svg}, {results}")


if __name__ == "__main__":
    run_main(main)
