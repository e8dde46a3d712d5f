"""Labelled datasets of the real data, and subsets of them.

    python bench/task_data.py NAME EXAMPLES FILE    writes a subset of a dataset's training examples

Subsets are drawn with a fixed seed, and a smaller one is contained in every larger one.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import data

SHARED = data.SHARED.parent
UNLIMITED = 1_000_000


class Dataset(NamedTuple):
    """A labelled dataset and how much of it is used."""

    title: str
    language: str
    task: str
    train: str
    dev: str
    metric: str
    max_examples: int
    """For training: fewer where an example takes many sequences."""
    epochs: int
    tokens: int
    """Per example, roughly, over all of its sequences."""
    dev_examples: int
    max_dev: int = UNLIMITED
    second_metric: str = ""


DATASETS = {
    "sst2": Dataset(
        "SST-2", "en", "classify", "classify/sst2.train.tsv.gz", "classify/sst2.dev.tsv", "accuracy", 5000, 5, 12, 872
    ),
    "mrpc": Dataset("MRPC", "en", "pair", "pair/mrpc.train.tsv.gz", "pair/mrpc.dev.tsv", "accuracy", 3576, 3, 55, 500),
    "conll2003": Dataset(
        "CoNLL-2003", "en", "tag", "tag/conll2003_ner.train.txt.gz", "tag/conll2003_ner.dev.txt.gz", "entity_f1",
        5000, 3, 20, 3250,
    ),
    "squad2": Dataset(
        "SQuAD 2.0 part", "en", "span", "qa/squad2_part.train.json.gz", "qa/squad2_part.dev.json.gz", "f1",
        1000, 2, 280, 1321, 600, "span_f1",
    ),
    "chnsenticorp": Dataset(
        "ChnSentiCorp", "zh", "classify", "classify/chnsenticorp.train.tsv.gz", "classify/chnsenticorp.dev.tsv.gz",
        "accuracy", 3000, 3, 100, 1160,
    ),
    "ocnli": Dataset(
        "OCNLI", "zh", "pair", "pair/ocnli.train.tsv.gz", "pair/ocnli.dev.tsv.gz", "accuracy", 5000, 3, 40, 2950, 1500
    ),
    "msra": Dataset(
        "MSRA NER", "zh", "tag", "tag/msra_ner.train.txt.gz", "tag/msra_ner.dev.txt.gz", "entity_f1", 4000, 3, 45,
        2318, 1500,
    ),
    "c3": Dataset(
        "C3", "zh", "choice", "choice/c3.train.jsonl.gz", "choice/c3.dev.jsonl.gz", "accuracy", 800, 2, 420, 3816, 600
    ),
}  # fmt: skip
LANGUAGES = {"en": "English", "zh": "Chinese"}


def data_path(name: str) -> Path:
    """The path of a file of the real data; raises `SystemExit` if it is missing."""
    path = SHARED / name
    if not path.exists():
        raise SystemExit(f"{name} is not in ../shared/data: these benchmarks need the real data beside the repository.")
    return path


def write_subset(name: str, count: int, path: Path, skip: int = 0) -> int:
    """Write at most `count` examples of a file of the real data, in their order; returns how many.

    `skip`: exclude the examples of the subset of this size.
    """
    text = read_text(data_path(name))
    kind = name.removesuffix(".gz").rpartition(".")[2]
    if kind == "json":
        squad, written = subset_squad(json.loads(text), count, skip)
        content = json.dumps(squad, ensure_ascii=False)
    else:
        header, examples, separator = split_examples(kind, text)
        chosen = sample_indices(len(examples), count, skip)
        content, written = header + separator.join(examples[index] for index in chosen) + separator, len(chosen)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.part{os.getpid()}.{threading.get_ident()}")
    unfinished.write_text(content, encoding="utf-8")
    unfinished.replace(path)
    return written


def split_examples(kind: str, text: str) -> tuple[str, list[str], str]:
    """The header of a file, its examples, and the separator between them."""
    if kind == "conllu" or (kind == "txt" and "\n\n" in text):
        return "", text.strip("\n").split("\n\n"), "\n\n"
    lines = text.rstrip("\n").split("\n")
    return (lines[0] + "\n", lines[1:], "\n") if kind == "tsv" else ("", lines, "\n")


def sample_indices(total: int, count: int, skip: int = 0) -> list[int]:
    """The sorted indices of a random subset; smaller subsets are contained in larger ones.

    >>> set(sample_indices(100, 5)) < set(sample_indices(100, 9))
    True
    >>> set(sample_indices(100, 5)) & set(sample_indices(100, 4, skip=5))
    set()
    """
    return sorted(np.random.default_rng(0).permutation(total)[skip : skip + count].tolist())


def subset_squad(squad: dict[str, Any], count: int, skip: int = 0) -> tuple[dict[str, Any], int]:
    """A dataset in SQuAD's format with some of the questions and their passages, and the number of questions."""
    passages = [passage for article in squad["data"] for passage in article["paragraphs"]]
    questions = [(number, question) for number, passage in enumerate(passages) for question in passage["qas"]]
    chosen = sample_indices(len(questions), count, skip)
    by_passage: dict[int, list[Any]] = {}
    for index in chosen:
        number, question = questions[index]
        by_passage.setdefault(number, []).append(question)
    paragraphs = [{"context": passages[number]["context"], "qas": qas} for number, qas in by_passage.items()]
    return squad | {"data": [{"title": "part", "paragraphs": paragraphs}]}, len(chosen)


def read_text(path: Path) -> str:
    if path.suffix == ".gz":
        with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
            return file.read()
    return path.read_text(encoding="utf-8")


def main(arguments: Sequence[str]) -> None:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(__doc__, f"The datasets: {', '.join(DATASETS)}.", sep="\n")
    elif len(arguments) != 3 or arguments[0] not in DATASETS or not arguments[1].isdigit():
        raise SystemExit(f"give one of {', '.join(DATASETS)}, a number of examples and a file.")
    else:
        print(f"{write_subset(DATASETS[arguments[0]].train, int(arguments[1]), Path(arguments[2])):,} examples")


if __name__ == "__main__":
    main(sys.argv[1:])
