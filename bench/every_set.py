"""Every labelled dataset of the real data through finetune, predict and evaluate: makes docs/every-set.md.

    python bench/every_set.py [-o FOLDER] [--minutes 15] [--max-examples 1000] [--max-dev 300] [--only cola,trec-fine]

A BERT of each language is fine-tuned on a part of every dataset; a file without a validation part is split. Scores are
those of `firth evaluate --json` after `firth predict` has run on the same examples. The folder is that of
bench/results.py: its models are reused, and interrupted runs are resumed.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from task_data import LANGUAGES
from workspace import Result, Workspace, format_command, make_page_parser, run_main, verb_commands


class LabelledSet(NamedTuple):
    """The files and the task of a dataset."""

    task: str
    language: str
    train: str
    dev: str = ""
    """Empty: the training file is split."""
    options: tuple[str, ...] = ()
    scale: float = 1.0
    """Of the number of examples: smaller where they are long."""


FIELD, SKIP = "--field", "--skip-bad"
SETS = {
    "SST-2": LabelledSet("classify", "en", "classify/sst2.train.tsv.gz", "classify/sst2.dev.tsv"),
    "CoLA": LabelledSet("classify", "en", "classify/cola.train.tsv.gz", "classify/cola.dev.tsv"),
    "AG News": LabelledSet("classify", "en", "classify/ag_news_small.train.tsv.gz", "classify/ag_news_small.dev.tsv"),
    "MR": LabelledSet("classify", "en", "sentences/mr.tsv.gz"),
    "SUBJ": LabelledSet("classify", "en", "sentences/subj.tsv.gz"),
    "CR": LabelledSet("classify", "en", "sentences/cr.tsv.gz"),
    "MPQA": LabelledSet("classify", "en", "sentences/mpqa.tsv.gz"),
    "TREC": LabelledSet("classify", "en", "sentences/trec.train.tsv.gz", "sentences/trec.test.tsv"),
    "TREC, fine": LabelledSet(
        "classify",
        "en",
        "sentences/trec.train.tsv.gz",
        "sentences/trec.test.tsv",
        (FIELD, "label=fine_label", SKIP),
    ),
    "BBC topics": LabelledSet(
        "classify", "en", "generate/bbc_news.train.jsonl.gz", "generate/bbc_news.dev.jsonl.gz", scale=0.3
    ),
    "ChnSentiCorp": LabelledSet(
        "classify", "zh", "classify/chnsenticorp.train.tsv.gz", "classify/chnsenticorp.dev.tsv.gz", scale=0.5
    ),
    "Douban books": LabelledSet(
        "classify", "zh", "classify/douban_book_review.train.tsv.gz", "classify/douban_book_review.dev.tsv.gz"
    ),
    "SMP2020 emotion": LabelledSet(
        "classify", "zh", "classify/smp2020_emotion.train.tsv.gz", "classify/smp2020_emotion.dev.tsv.gz"
    ),
    "THUCNews titles": LabelledSet(
        "classify", "zh", "classify/thucnews_title.train.tsv.gz", "classify/thucnews_title.dev.tsv"
    ),
    "TNEWS, few": LabelledSet("classify", "zh", "classify/tnews_fewclue.train.tsv", "classify/tnews_fewclue.dev.tsv"),
    "EPRSTMT, few": LabelledSet(
        "classify", "zh", "classify/eprstmt_fewclue.train.tsv", "classify/eprstmt_fewclue.dev.tsv"
    ),
    "MRPC": LabelledSet("pair", "en", "pair/mrpc.train.tsv.gz", "pair/mrpc.dev.tsv"),
    "RTE": LabelledSet("pair", "en", "pair/rte.train.tsv.gz", "pair/rte.dev.tsv", scale=0.6),
    "STS-B": LabelledSet("pair", "en", "pair/stsb.train.tsv.gz", "pair/stsb.dev.tsv.gz"),
    "SICK, entailment": LabelledSet("pair", "en", "pair/sick.train.tsv.gz", "pair/sick.dev.tsv"),
    "SICK, relatedness": LabelledSet(
        "pair", "en", "pair/sick.train.tsv.gz", "pair/sick.dev.tsv", (FIELD, "label=score")
    ),
    "SNLI": LabelledSet("pair", "en", "pair/snli.dev.tsv.gz", "pair/snli.test.tsv.gz"),
    "ATEC": LabelledSet("pair", "zh", "pair/atec.train.tsv.gz", "pair/atec.dev.tsv.gz"),
    "OCNLI": LabelledSet("pair", "zh", "pair/ocnli.train.tsv.gz", "pair/ocnli.dev.tsv.gz"),
    "BUSTM, few": LabelledSet("pair", "zh", "pair/bustm_fewclue.train.tsv", "pair/bustm_fewclue.dev.tsv"),
    "CoNLL-2003": LabelledSet("tag", "en", "tag/conll2003_ner.train.txt.gz", "tag/conll2003_ner.dev.txt.gz"),
    "UD English EWT": LabelledSet("tag", "en", "tag/ud_en_ewt.train.conllu.gz", "tag/ud_en_ewt.dev.conllu.gz"),
    "UD English EWT, XPOS": LabelledSet(
        "tag", "en", "tag/ud_en_ewt.train.conllu.gz", "tag/ud_en_ewt.dev.conllu.gz", (FIELD, "tag=xpos", SKIP)
    ),
    "MSRA NER": LabelledSet("tag", "zh", "tag/msra_ner.train.txt.gz", "tag/msra_ner.dev.txt.gz"),
    "medical NER": LabelledSet("tag", "zh", "tag/medical_ner.train.txt.gz", "tag/medical_ner.dev.txt.gz"),
    "UD Chinese GSD": LabelledSet("tag", "zh", "tag/ud_zh_gsd.train.conllu.gz", "tag/ud_zh_gsd.dev.conllu.gz"),
    "People's Daily POS": LabelledSet("tag", "zh", "tag/pd199801_pos.txt.gz", options=(SKIP,)),
    "PKU words": LabelledSet(
        "tag", "zh", "tag/pd199801_pos.txt.gz", "tag/sighan2005_pku_cws.test.txt.gz", (FIELD, "tag=segment")
    ),
    "SQuAD 2.0 part": LabelledSet(
        "span", "en", "qa/squad2_part.train.json.gz", "qa/squad2_part.dev.json.gz", scale=0.3
    ),
    "CMRC 2018": LabelledSet("span", "zh", "qa/cmrc2018.dev.json.gz", "qa/cmrc2018.trial.json.gz", scale=0.2),
    "DRCD": LabelledSet("span", "zh", "qa/drcd.dev.json.gz", scale=0.2),
    "CODAH": LabelledSet("choice", "en", "choice/codah.train.jsonl.gz", "choice/codah.dev.jsonl"),
    "MCTest": LabelledSet("choice", "en", "choice/mctest.train.jsonl.gz", "choice/mctest.dev.jsonl.gz", scale=0.1),
    "C3": LabelledSet("choice", "zh", "choice/c3.train.jsonl.gz", "choice/c3.dev.jsonl.gz", scale=0.2),
    "ChID, few": LabelledSet(
        "choice", "zh", "choice/chid_fewclue.train.jsonl", "choice/chid_fewclue.dev.jsonl", scale=0.2
    ),
    "BBC headlines": LabelledSet(
        "generate", "en", "generate/bbc_news.train.jsonl.gz", "generate/bbc_news.dev.jsonl.gz", scale=0.2
    ),
    "Multi30k, English to German": LabelledSet(
        "generate", "en", "generate/multi30k_en_de.train.tsv.gz", "generate/multi30k_en_de.dev.tsv", scale=0.3
    ),
    "Tatoeba, English to Chinese": LabelledSet(
        "generate", "zh", "generate/tatoeba_en_zh.train.tsv.gz", "generate/tatoeba_en_zh.dev.tsv", scale=0.3
    ),
    "couplets": LabelledSet(
        "generate", "zh", "generate/couplet_zh.train.tsv", "generate/couplet_zh.dev.tsv", scale=0.3
    ),
    "LCSTS part 3": LabelledSet(
        "generate", "zh", "generate/lcsts_part3.train.jsonl.gz", "generate/lcsts_part3.dev.jsonl", scale=0.3
    ),
}


def slug(name: str) -> str:
    """The name of a dataset in paths and on the command line.

    >>> slug("People's Daily POS")
    'peoples-daily-pos'
    """
    return name.lower().replace(",", "").replace("'", "").replace(" ", "-")


class DatasetRuns(NamedTuple):
    """The number of examples, and where models and results are."""

    workspace: Workspace
    max_examples: int
    max_dev: int

    def files(self, name: str) -> tuple[str, str]:
        """Files of training and validation examples."""
        dataset = SETS[name]
        train, dev = (max(20, int(dataset.scale * count)) for count in (self.max_examples, self.max_dev))
        dev_file = self.workspace.subset(dataset.dev or dataset.train, dev, 0 if dataset.dev else train)
        return self.workspace.subset(dataset.train, train, 0), dev_file

    def commands(self, name: str) -> list[list[str]]:
        dataset, model = SETS[name], self.workspace.model_path("bert", SETS[name].language)
        reading = [SKIP] * (SKIP in dataset.options)
        return verb_commands(model, dataset.task, *self.files(name), f"sets/{slug(name)}", dataset.options, reading)

    def run(self, name: str) -> Result:
        result = self.workspace.run_verbs(self.commands(name))
        print(f"{name:<30}{format_result(result)} ({result.get('seconds', 0)} s)", flush=True)
        return result


def format_result(result: Result) -> str:
    """The main metric of a dataset with its interval, and that of a trivial baseline; or the error."""
    if error := result.get("error"):
        return str(error)
    found = result["found"]
    main = found["main"]
    low, high = found[f"{main}_interval"]
    baseline = f"{found['baseline'][main]:.3f}" if main in found["baseline"] else "–"
    return f"{main.replace('_', ' ')} | {found[main]:.3f} [{low:.3f}, {high:.3f}] | {baseline}"


def format_page(runs: DatasetRuns, results: dict[str, Result]) -> str:
    minutes = runs.workspace.minutes
    options = f"--minutes {minutes:g} --max-examples {runs.max_examples} --max-dev {runs.max_dev}"
    lines = [
        "# Every dataset once",
        "",
        f"Made by `python bench/every_set.py {options}`. A "
        f"BERT of each language (pre-trained for {minutes:g} minutes on 2 cores) is fine-tuned on "
        f"at most {runs.max_examples:,} examples of each dataset, fewer where they are long, and "
        f"measured on at most {runs.max_dev}: every file format goes through the three verbs, and "
        "this is what a small model reaches with little data. "
        "Intervals are 95%; the baseline predicts the majority label, no entity, no answer, or copies the source.",
    ]
    for language, called in LANGUAGES.items():
        names = [name for name in results if SETS[name].language == language]
        lines += ["", f"## {called}", "", "| dataset | task | metric | value, interval | baseline |"]
        lines.append("|---|---|---|---|---|")
        lines += [f"| {name} | {SETS[name].task} | {format_result(results[name])} |" for name in names]
        lines += ["", "```sh", *(format_command(one) for name in names for one in runs.commands(name)), "```"]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = make_page_parser(__doc__, "docs/every-set.md")
    parser.add_argument("--max-examples", type=int, default=1000, help="for training")
    parser.add_argument("--max-dev", type=int, default=300, help="examples for evaluation")
    parser.add_argument("--only", default="", help="comma-separated datasets")
    options = parser.parse_args()
    slugs = {slug(name): name for name in SETS}
    only = options.only.split(",") if options.only else list(slugs)
    if unknown := set(only) - set(slugs):
        parser.error(f"there is no dataset {min(unknown)}: choose from {', '.join(slugs)}.")
    names = [name for one, name in slugs.items() if one in only]
    workspace = Workspace(options.out.resolve(), options.minutes or 15.0, options.jobs)
    runs = DatasetRuns(workspace, options.max_examples, options.max_dev)
    workspace.pretrain_berts(SETS[name].language for name in names)
    results = workspace.run_parallel([partial(runs.run, name) for name in names])
    options.write.write_text(format_page(runs, dict(zip(names, results, strict=True))), encoding="utf-8")
    print(f"-> {options.write}")


if __name__ == "__main__":
    run_main(main)
