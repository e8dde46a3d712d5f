"""Every labelled set of the real data through finetune, predict and evaluate: makes docs/every-set.md.

    python bench/every_set.py [-o FOLDER] [--minutes 15] [--most 1000] [--dev 300] [--only cola,trec-fine]

A BERT of each language learns a part of every set; a file without a part for validation is divided. What is told of
each is what `firth evaluate --json` says, after `firth predict` has answered all that is measured. The folder
is that of bench/results.py: models that are there are used, results are kept, and what was interrupted goes on.
"""

from __future__ import annotations

import argparse
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent))
from task_data import LANGUAGES, Bench, show


class Labelled(NamedTuple):
    """A set: where it is, and what it is for."""

    task: str
    language: str
    train: str
    dev: str = ""
    """Nothing: the same file, divided."""
    more: tuple[str, ...] = ()
    share: float = 1.0
    """Of the examples that others have: fewer where they are long."""


FIELD, SKIP = "--field", "--skip-bad"
SETS = {
    "SST-2": Labelled("classify", "en", "classify/sst2.train.tsv.gz", "classify/sst2.dev.tsv"),
    "CoLA": Labelled("classify", "en", "classify/cola.train.tsv.gz", "classify/cola.dev.tsv"),
    "AG News": Labelled("classify", "en", "classify/ag_news_small.train.tsv.gz", "classify/ag_news_small.dev.tsv"),
    "MR": Labelled("classify", "en", "sentences/mr.tsv.gz"),
    "SUBJ": Labelled("classify", "en", "sentences/subj.tsv.gz"),
    "CR": Labelled("classify", "en", "sentences/cr.tsv.gz"),
    "MPQA": Labelled("classify", "en", "sentences/mpqa.tsv.gz"),
    "TREC": Labelled("classify", "en", "sentences/trec.train.tsv.gz", "sentences/trec.test.tsv"),
    "TREC, fine": Labelled(
        "classify",
        "en",
        "sentences/trec.train.tsv.gz",
        "sentences/trec.test.tsv",
        (FIELD, "label=fine_label", SKIP),
    ),
    "BBC topics": Labelled(
        "classify", "en", "generate/bbc_news.train.jsonl.gz", "generate/bbc_news.dev.jsonl.gz", share=0.3
    ),
    "ChnSentiCorp": Labelled(
        "classify", "zh", "classify/chnsenticorp.train.tsv.gz", "classify/chnsenticorp.dev.tsv.gz", share=0.5
    ),
    "Douban books": Labelled(
        "classify", "zh", "classify/douban_book_review.train.tsv.gz", "classify/douban_book_review.dev.tsv.gz"
    ),
    "SMP2020 emotion": Labelled(
        "classify", "zh", "classify/smp2020_emotion.train.tsv.gz", "classify/smp2020_emotion.dev.tsv.gz"
    ),
    "THUCNews titles": Labelled(
        "classify", "zh", "classify/thucnews_title.train.tsv.gz", "classify/thucnews_title.dev.tsv"
    ),
    "TNEWS, few": Labelled("classify", "zh", "classify/tnews_fewclue.train.tsv", "classify/tnews_fewclue.dev.tsv"),
    "EPRSTMT, few": Labelled(
        "classify", "zh", "classify/eprstmt_fewclue.train.tsv", "classify/eprstmt_fewclue.dev.tsv"
    ),
    "MRPC": Labelled("pair", "en", "pair/mrpc.train.tsv.gz", "pair/mrpc.dev.tsv"),
    "RTE": Labelled("pair", "en", "pair/rte.train.tsv.gz", "pair/rte.dev.tsv", share=0.6),
    "STS-B": Labelled("pair", "en", "pair/stsb.train.tsv.gz", "pair/stsb.dev.tsv.gz"),
    "SICK, entailment": Labelled("pair", "en", "pair/sick.train.tsv.gz", "pair/sick.dev.tsv"),
    "SICK, relatedness": Labelled("pair", "en", "pair/sick.train.tsv.gz", "pair/sick.dev.tsv", (FIELD, "label=score")),
    "SNLI": Labelled("pair", "en", "pair/snli.dev.tsv.gz", "pair/snli.test.tsv.gz"),
    "ATEC": Labelled("pair", "zh", "pair/atec.train.tsv.gz", "pair/atec.dev.tsv.gz"),
    "OCNLI": Labelled("pair", "zh", "pair/ocnli.train.tsv.gz", "pair/ocnli.dev.tsv.gz"),
    "BUSTM, few": Labelled("pair", "zh", "pair/bustm_fewclue.train.tsv", "pair/bustm_fewclue.dev.tsv"),
    "CoNLL-2003": Labelled("tag", "en", "tag/conll2003_ner.train.txt.gz", "tag/conll2003_ner.dev.txt.gz"),
    "UD English EWT": Labelled("tag", "en", "tag/ud_en_ewt.train.conllu.gz", "tag/ud_en_ewt.dev.conllu.gz"),
    "UD English EWT, XPOS": Labelled(
        "tag", "en", "tag/ud_en_ewt.train.conllu.gz", "tag/ud_en_ewt.dev.conllu.gz", (FIELD, "tag=xpos", SKIP)
    ),
    "MSRA NER": Labelled("tag", "zh", "tag/msra_ner.train.txt.gz", "tag/msra_ner.dev.txt.gz"),
    "medical NER": Labelled("tag", "zh", "tag/medical_ner.train.txt.gz", "tag/medical_ner.dev.txt.gz"),
    "UD Chinese GSD": Labelled("tag", "zh", "tag/ud_zh_gsd.train.conllu.gz", "tag/ud_zh_gsd.dev.conllu.gz"),
    "People's Daily POS": Labelled("tag", "zh", "tag/pd199801_pos.txt.gz", more=(SKIP,)),
    "PKU words": Labelled(
        "tag", "zh", "tag/pd199801_pos.txt.gz", "tag/sighan2005_pku_cws.test.txt.gz", (FIELD, "tag=segment")
    ),
    "SQuAD 2.0 part": Labelled("span", "en", "qa/squad2_part.train.json.gz", "qa/squad2_part.dev.json.gz", share=0.3),
    "CMRC 2018": Labelled("span", "zh", "qa/cmrc2018.dev.json.gz", "qa/cmrc2018.trial.json.gz", share=0.2),
    "DRCD": Labelled("span", "zh", "qa/drcd.dev.json.gz", share=0.2),
    "CODAH": Labelled("choice", "en", "choice/codah.train.jsonl.gz", "choice/codah.dev.jsonl"),
    "MCTest": Labelled("choice", "en", "choice/mctest.train.jsonl.gz", "choice/mctest.dev.jsonl.gz", share=0.1),
    "C3": Labelled("choice", "zh", "choice/c3.train.jsonl.gz", "choice/c3.dev.jsonl.gz", share=0.2),
    "ChID, few": Labelled(
        "choice", "zh", "choice/chid_fewclue.train.jsonl", "choice/chid_fewclue.dev.jsonl", share=0.2
    ),
    "BBC headlines": Labelled(
        "generate", "en", "generate/bbc_news.train.jsonl.gz", "generate/bbc_news.dev.jsonl.gz", share=0.2
    ),
    "Multi30k, English to German": Labelled(
        "generate", "en", "generate/multi30k_en_de.train.tsv.gz", "generate/multi30k_en_de.dev.tsv", share=0.3
    ),
    "Tatoeba, English to Chinese": Labelled(
        "generate", "zh", "generate/tatoeba_en_zh.train.tsv.gz", "generate/tatoeba_en_zh.dev.tsv", share=0.3
    ),
    "couplets": Labelled("generate", "zh", "generate/couplet_zh.train.tsv", "generate/couplet_zh.dev.tsv", share=0.3),
    "LCSTS part 3": Labelled(
        "generate", "zh", "generate/lcsts_part3.train.jsonl.gz", "generate/lcsts_part3.dev.jsonl", share=0.3
    ),
}


def place(name: str) -> str:
    """What a set is called in paths and on the command line.

    >>> place("People's Daily POS")
    'peoples-daily-pos'
    """
    return name.lower().replace(",", "").replace("'", "").replace(" ", "-")


class Round(NamedTuple):
    """What is to be made."""

    bench: Bench
    most: int
    dev: int

    def files(self, name: str) -> tuple[str, str]:
        """The parts of a set that are used, as files of the folder."""
        found = SETS[name]
        most, held = (max(20, int(found.share * one)) for one in (self.most, self.dev))
        dev = self.bench.file(found.dev or found.train, held, 0 if found.dev else most)
        return self.bench.file(found.train, most, 0), dev

    def commands(self, name: str) -> list[list[str]]:
        """finetune, predict and evaluate, in this order."""
        found, (train, dev) = SETS[name], self.files(name)
        out, bad = f"sets/{place(name)}", [SKIP] * (SKIP in found.more)
        model = self.bench.model("bert", found.language)
        return [
            ["finetune", model, found.task, "--train", train, "--dev", dev, *found.more, "-o", out],
            ["predict", out, dev, *bad, "-o", f"{out}.jsonl"],
            ["evaluate", out, "task", dev, *bad, "--json"],
        ]

    def make(self, name: str) -> dict[str, Any]:
        """What came of a set; what is known is not made again."""
        facts = self.bench.verbs(self.commands(name))
        print(f"{name:<30}{facts.get('error') or line_of(facts)} ({facts.get('seconds', 0)} s)", flush=True)
        return facts


def line_of(facts: dict[str, Any]) -> str:
    """The main metric of a set with its interval, and what a trivial baseline reaches."""
    found = facts["found"]
    main = found["main"]
    low, high = found[f"{main}_interval"]
    baseline = f"{found['baseline'][main]:.3f}" if main in found["baseline"] else "–"
    return f"{main.replace('_', ' ')} | {found[main]:.3f} [{low:.3f}, {high:.3f}] | {baseline}"


def page(every: Round, results: dict[str, dict[str, Any]]) -> str:
    """The page."""
    bench = every.bench
    lines = [
        "# Every set once",
        "",
        f"Made by `python bench/every_set.py --minutes {bench.minutes:g} --most {every.most} --dev {every.dev}`. A "
        f"BERT of each language (pre-trained for {bench.minutes:g} minutes on 2 cores) learns "
        f"at most {every.most:,} examples of each set, fewer where they are long, and is "
        f"measured on at most {every.dev}: every kind of file goes through the three verbs, and "
        "this is what a small model learns from little. "
        "The interval is of 95%; the baseline gives the majority label, no entity, no answer, or copies the source.",
    ]
    for language, called in LANGUAGES.items():
        rows = [name for name in results if SETS[name].language == language]
        lines += ["", f"## {called}", "", "| set | task | metric | value, interval | baseline |"]
        lines.append("|---|---|---|---|---|")
        for name in rows:
            told = results[name].get("error") or line_of(results[name])
            lines.append(f"| {name} | {SETS[name].task} | {told} |")
        lines += ["", "```sh", *(show(command) for name in rows for command in every.commands(name)), "```"]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--out", type=Path, default=Path("results"), help="keep models and results here")
    parser.add_argument("--write", type=Path, default=Path("docs/every-set.md"))
    parser.add_argument("--minutes", type=float, default=15.0, help="of pre-training")
    parser.add_argument("--most", type=int, default=1000, help="examples to learn from")
    parser.add_argument("--dev", type=int, default=300, help="examples to measure on")
    parser.add_argument("--only", default="", help="sets, with commas between")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="sets side by side")
    options = parser.parse_args()
    only = options.only.split(",") if options.only else list(map(place, SETS))
    if unknown := set(only) - set(map(place, SETS)):
        parser.error(f"there is no set {min(unknown)}: choose from {', '.join(map(place, SETS))}.")
    names = [name for name in SETS if place(name) in only]
    every = Round(Bench(options.out.resolve(), options.minutes, options.jobs), options.most, options.dev)
    for language in dict.fromkeys(SETS[name].language for name in names):
        if why := every.bench.pretrain("bert", language):
            raise SystemExit(why)
    results = every.bench.each([partial(every.make, name) for name in names])
    options.write.write_text(page(every, dict(zip(names, results, strict=True))), encoding="utf-8")
    print(f"-> {options.write}")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("interrupted: the same command goes on.") from None
