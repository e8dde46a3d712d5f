"""Neural language models on the Penn Treebank, next to the perplexities that were published for their kinds.

    python bench/ptb.py [--only lstm lbl] [--seed 0] [--threads 2] [-o FOLDER]

Mikolov's preparation: 10,000 words, `<unk>` for others, `N` for numbers. The test text is read as one stream, ends of
sentences are predicted and counted. The validation text decides which parameters of a run are kept and how models are
mixed. The last line mixes the LSTM with Kneser-Ney five-grams and a cache. With -o the models are kept there: those
that are there already are not trained again, and one that was interrupted goes on.
"""

from __future__ import annotations

import argparse
import gzip
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent))
import data
import firth
from firth.abilities import Score, total

NEAR = 1.03
"""How far above the published perplexity still counts as reached."""
COUNTS = "kn5-cache"


class Case(NamedTuple):
    """A recipe as it is trained here, and what was published."""

    published: float
    where: str
    settings: str


COMMON = "rows.length=64 learning.batch=2048 learning.warmup=0.05 learning.beta2=0.999 learning.decay=0"
CASES = {
    "ffnn": Case(
        140.2,
        "Mikolov et al. 2011",
        "output.kind=adaptive encoder.direct=false encoder.context=5 embedding.width=200 encoder.width=300 "
        "embedding.dropout=0.4 encoder.dropout=0.5 learning.rate=0.003 learning.epochs=12",
    ),
    "lbl": Case(
        144.5,
        "Mikolov et al. 2011",
        "embedding.width=200 encoder.width=200 "
        "embedding.dropout=0.1 encoder.dropout=0.2 learning.rate=0.002 learning.epochs=8",
    ),
    "rnn": Case(
        124.7,
        "Mikolov et al. 2011",
        "output.kind=adaptive embedding.width=300 encoder.width=300 "
        "embedding.dropout=0.4 encoder.dropout=0.5 learning.rate=0.003 learning.epochs=12",
    ),
    "lstm": Case(
        114.5,
        "Zaremba et al. 2014",
        "output.kind=adaptive embedding.width=300 encoder.width=300 "
        "embedding.dropout=0.4 encoder.dropout=0.5 learning.rate=0.003 learning.epochs=12",
    ),
}
MIXED = Case(90.0, "to stay below", "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--epochs", type=int, help="passes over the text instead of those in the table")
    parser.add_argument("-o", "--out", type=Path, help="keep the models here")
    options = parser.parse_args()
    if not (data.SHARED / "ptb.train.txt.gz").exists():
        print("the Penn Treebank does not lie beside the repository: nothing to do")
        return
    with tempfile.TemporaryDirectory() as name:
        compare(options, options.out or Path(name))


def compare(options: argparse.Namespace, folder: Path) -> None:
    """Trains, scores and prints all that was asked for."""
    folder.mkdir(parents=True, exist_ok=True)
    train, valid = data.SHARED / "ptb.train.txt.gz", data.SHARED / "ptb.valid.txt.gz"
    with gzip.open(data.SHARED / "ptb.test.txt.gz", "rt") as file:
        test = [line.strip() for line in file]
    reading: dict[str, Any] = {"valid": valid, "layout": "lines", "threads": options.threads, "seed": options.seed}
    tokens = folder / "words"
    trained("words", train, tokens, layout="lines", settings=["split=space"])
    print(f"test text: {len(test):,} sentences; {options.threads} threads\n")
    print(f"{'model':<17}{'parameters':>11}{'minutes':>9}{'perplexity':>12}{'published':>11}")
    for recipe in options.only:
        case = CASES[recipe]
        settings = [*COMMON.split(), *case.settings.split()]
        settings += [f"learning.epochs={options.epochs}"] if options.epochs else []
        model, minutes = trained(recipe, train, folder / recipe, tokenizer=tokens, settings=settings, **reading)
        print_line(recipe, size_of(model), minutes, model.score(test, together=True), case)
    if "lstm" in options.only:
        _, minutes = trained(COUNTS, train, folder / COUNTS, tokenizer=tokens, **reading)
        mixed = firth.mix([folder / "lstm", folder / COUNTS], valid, layout="lines")
        scores = mixed.score(test, together=True)
        print_line(f"lstm + {COUNTS}", None, minutes + spent(folder / "lstm"), scores, MIXED)


def trained(recipe: str, train: Path, out: Path, **settings: Any) -> tuple[Any, float]:
    """The model, as far as it is not there already, and the minutes that it took."""
    model = firth.train(recipe, train, out=out, resume=out.exists(), **settings)
    return model, spent(out)


def spent(out: Path) -> float:
    """The minutes that a model took."""
    return float(firth.info(out)["budget"]["spent"]["seconds"]) / 60


def size_of(model: Any) -> int:
    return sum(parameter.numel() for parameter in model.network.parameters())


def print_line(name: str, parameters: int | None, minutes: float, scores: list[Score], case: Case) -> None:
    reached = total(scores).perplexity
    verdict = "reached" if reached <= case.published * (1 if case is MIXED else NEAR) else "NOT REACHED"
    size = "" if parameters is None else f"{parameters / 1e6:.1f} M"
    print(
        f"{name:<17}{size:>11}{minutes:>9.1f}{reached:>12.1f}{case.published:>11.1f}  {verdict} ({case.where})",
        flush=True,
    )


if __name__ == "__main__":
    main()
