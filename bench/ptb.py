"""Neural language models on the Penn Treebank, beside published perplexities of models of the same kind.

    python bench/ptb.py [--only lstm lbl] [--seed 0] [--threads 2] [-o FOLDER]

Mikolov's preparation: 10,000 words, `<unk>` for others, `N` for numbers. The test text is scored as one stream,
including ends of sentences. The validation text selects the checkpoint of each run and the weights of the mixture. The
last line mixes the LSTM with Kneser-Ney five-grams and a cache. With -o the models are saved there: finished ones are
not trained again, interrupted ones are resumed.
"""

from __future__ import annotations

import argparse
import gzip
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import data
import firth
from firth.abilities import Score, total
from harness import make_parser

TOLERANCE = 1.03
"""A perplexity of up to this factor times the published one counts as reached."""
NGRAMS = "kn5-cache"


class PublishedResult(NamedTuple):
    """A published perplexity and the settings with which the recipe is trained here."""

    perplexity: float
    source: str
    settings: str


COMMON = "sequence.length=64 learning.batch=2048 learning.warmup=0.05 learning.beta2=0.999 learning.weight_decay=0"
CASES = {
    "ffnn": PublishedResult(
        140.2,
        "Mikolov et al. 2011",
        "output.kind=adaptive encoder.direct_connections=false encoder.context=5 embedding.width=200 encoder.width=300 "
        "embedding.dropout=0.4 encoder.dropout=0.5 learning.lr=0.003 learning.epochs=12",
    ),
    "lbl": PublishedResult(
        144.5,
        "Mikolov et al. 2011",
        "embedding.width=200 encoder.width=200 "
        "embedding.dropout=0.1 encoder.dropout=0.2 learning.lr=0.002 learning.epochs=8",
    ),
    "rnn": PublishedResult(
        124.7,
        "Mikolov et al. 2011",
        "output.kind=adaptive embedding.width=300 encoder.width=300 "
        "embedding.dropout=0.4 encoder.dropout=0.5 learning.lr=0.003 learning.epochs=12",
    ),
    "lstm": PublishedResult(
        114.5,
        "Zaremba et al. 2014",
        "output.kind=adaptive embedding.width=300 encoder.width=300 "
        "embedding.dropout=0.4 encoder.dropout=0.5 learning.lr=0.003 learning.epochs=12",
    ),
}
MIXTURE = PublishedResult(90.0, "upper bound", "")


def main() -> None:
    parser = make_parser(__doc__, threads=True)
    parser.add_argument("--only", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, help="instead of those in the table of settings")
    parser.add_argument("-o", "--out", type=Path, help="save the models here")
    options = parser.parse_args()
    if not (data.SHARED / "ptb.train.txt.gz").exists():
        print("the Penn Treebank is not beside the repository: nothing to do")
        return
    with tempfile.TemporaryDirectory() as name:
        compare(options, options.out or Path(name))


def compare(options: argparse.Namespace, folder: Path) -> None:
    """Train and score the chosen recipes and print a line for each."""
    folder.mkdir(parents=True, exist_ok=True)
    train, valid = data.SHARED / "ptb.train.txt.gz", data.SHARED / "ptb.valid.txt.gz"
    with gzip.open(data.SHARED / "ptb.test.txt.gz", "rt") as file:
        test = [line.strip() for line in file]
    common: dict[str, Any] = {"valid": valid, "layout": "lines", "threads": options.threads, "seed": options.seed}
    tokenizer = folder / "words"
    train_or_resume("words", train, tokenizer, layout="lines", settings=["split=space"])
    print(f"test text: {len(test):,} sentences; {options.threads} threads\n")
    print(f"{'model':<17}{'parameters':>11}{'minutes':>9}{'perplexity':>12}{'published':>11}")
    for recipe in options.only:
        published = CASES[recipe]
        settings = [*COMMON.split(), *published.settings.split()]
        settings += [f"learning.epochs={options.epochs}"] if options.epochs else []
        model, minutes = train_or_resume(
            recipe, train, folder / recipe, tokenizer=tokenizer, settings=settings, **common
        )
        parameters = sum(parameter.numel() for parameter in model.network.parameters())
        print_line(recipe, parameters, minutes, model.score(test, as_document=True), published)
    if "lstm" in options.only:
        _, minutes = train_or_resume(NGRAMS, train, folder / NGRAMS, tokenizer=tokenizer, **common)
        mixed = firth.mix([folder / "lstm", folder / NGRAMS], valid, layout="lines")
        scores = mixed.score(test, as_document=True)
        print_line(f"lstm + {NGRAMS}", None, minutes + training_minutes(folder / "lstm"), scores, MIXTURE)


def train_or_resume(recipe: str, train: Path, out: Path, **options: Any) -> tuple[Any, float]:
    """The model and its training time in minutes."""
    model = firth.train(recipe, train, out=out, resume=out.exists(), **options)
    return model, training_minutes(out)


def training_minutes(out: Path) -> float:
    return float(firth.info(out)["budget"]["spent"]["seconds"]) / 60


def print_line(
    name: str, parameters: int | None, minutes: float, scores: list[Score], published: PublishedResult
) -> None:
    perplexity = total(scores).perplexity
    verdict = (
        "reached" if perplexity <= published.perplexity * (1 if published is MIXTURE else TOLERANCE) else "NOT REACHED"
    )
    size = "" if parameters is None else f"{parameters / 1e6:.1f} M"
    numbers = f"{size:>11}{minutes:>9.1f}{perplexity:>12.1f}{published.perplexity:>11.1f}"
    print(f"{name:<17}{numbers}  {verdict} ({published.source})", flush=True)


if __name__ == "__main__":
    main()
