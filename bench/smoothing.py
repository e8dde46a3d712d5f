"""The comparison of smoothing methods by Chen and Goodman (1998): the baseline is Jelinek-Mercer.

    python bench/smoothing.py [-o FOLDER] [--max-power 7]

Bigrams and trigrams, all methods, 10^3 to 10^7 words of training text; cross-entropy of held-out text in bits per word,
and its difference from Jelinek-Mercer's. One vocabulary for all sizes: the 20,000 most frequent words of the whole
text; other words are `<unk>`. Free parameters are tuned on a second held-out text. Writes smoothing.json and
smoothing.svg.
"""

from __future__ import annotations

import json
import math
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import data
from firth.abilities import total
from firth.counts.counting import count_store
from firth.counts.recipe import NgramRecipe
from firth.counts.train import train_ngram
from firth.text.corpus import read_corpus
from firth.tokens.build import build_store
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.train import train_tokenizer
from harness import make_parser

BASELINE = "jelinek-mercer"
METHODS: dict[str, dict[str, Any]] = {
    "jelinek-mercer": {"smoothing": "jelinek-mercer"},
    "additive": {"smoothing": "additive"},
    "laplace": {"smoothing": "additive", "delta": 1.0},
    "good-turing": {"smoothing": "good-turing"},
    "katz": {"smoothing": "katz"},
    "church-gale": {"smoothing": "church-gale"},
    "witten-bell": {"smoothing": "witten-bell"},
    "witten-bell back-off": {"smoothing": "witten-bell", "interpolate": False},
    "absolute": {"smoothing": "absolute"},
    "absolute back-off": {"smoothing": "absolute", "interpolate": False},
    "kneser-ney": {"smoothing": "kneser-ney"},
    "kneser-ney back-off": {"smoothing": "kneser-ney", "interpolate": False},
    "modified kneser-ney": {"smoothing": "modified-kneser-ney"},
    "modified kneser-ney back-off": {"smoothing": "modified-kneser-ney", "interpolate": False},
    "bayes": {"smoothing": "bayes"},
    "pitman-yor": {"smoothing": "pitman-yor"},
}
MAX_PITMAN_YOR_WORDS = 10**6  # Gibbs sampling takes too long beyond


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("-o", "--out", type=Path, default=Path("bench-smoothing"))
    parser.add_argument("--max-power", type=float, default=7, help="log10 of the largest number of training words")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    rows = list(compare(options.max_power))
    (options.out / "smoothing.json").write_text(json.dumps(rows, indent=1) + "\n")
    print_table(rows)
    draw(rows, options.out / "smoothing.svg")
    print(f"\n{options.out / 'smoothing.svg'}")


def compare(max_power: float) -> Iterator[dict[str, Any]]:
    """Train and score every method at every order and size; yields a record for each."""
    train, valid, test = split_documents()
    with tempfile.TemporaryDirectory() as name:
        corpus = read_corpus(train, layout="lines")
        recipe = TokenizerRecipe(model="words", lowercase=True, split="punctuation", vocab_size=20_000)
        tokenizer = train_tokenizer(recipe, corpus)
        store = build_store(corpus, tokenizer, Path(name))
        heldout = build_store(read_corpus(valid, layout="lines"), tokenizer, Path(name))
        lines = [line for document in test for line in document]
        sizes = [10**power for power in range(3, math.floor(max_power) + 1) if 10**power <= len(store)]
        for order in (2, 3):
            valid_counts = count_store(heldout, len(tokenizer), order)
            for size in sizes:
                end = max(1, int(np.searchsorted(store.sentences, size)))
                trie = count_store(store, len(tokenizer), order, 0, end)
                for method, fields in METHODS.items():
                    if (method == "church-gale" and order != 2) or (
                        method == "pitman-yor" and size > MAX_PITMAN_YOR_WORDS
                    ):
                        continue
                    started = time.perf_counter()
                    chosen = NgramRecipe(order=order, tokenizer=recipe, **fields)
                    model = train_ngram(chosen, trie, tokenizer, "lines", heldout=valid_counts)
                    score = total(model.score(lines))
                    bits = -score.logprob / score.tokens / math.log(2)
                    seconds = time.perf_counter() - started
                    yield {"order": order, "words": size, "method": method, "bits": bits, "seconds": seconds}


def split_documents() -> tuple[list[list[str]], list[list[str]], list[list[str]]]:
    """Documents in random order: most to train on, 200 to tune parameters on, 400 to test on."""
    documents: list[list[str]] = [[]]
    for line in data.english():
        if line.strip():
            documents[-1].append(line.strip())
        elif documents[-1]:
            documents.append([])
    random.Random(0).shuffle(documents)
    documents = [document for document in documents if document]
    return documents[600:], documents[:200], documents[200:600]


def print_table(rows: list[dict[str, Any]]) -> None:
    """Print the bits per word of the baseline and the differences of the other methods from it."""
    for order in (2, 3):
        sizes = sorted({row["words"] for row in rows if row["order"] == order})
        found = {(row["method"], row["words"]): row["bits"] for row in rows if row["order"] == order}
        print(f"\n{order}-grams: bits per word ({BASELINE}) and differences from it")
        print(f"{'words':<30}" + "".join(f"{size:>10.0e}" for size in sizes))
        for method in METHODS:
            values = [
                found.get((method, size), math.nan) - (0 if method == BASELINE else found[BASELINE, size])
                for size in sizes
            ]
            if not all(map(math.isnan, values)):
                cells = (
                    "" if math.isnan(value) else f"{value:+.3f}".lstrip("+" if method == BASELINE else "")
                    for value in values
                )
                print(f"{method:<30}" + "".join(f"{cell:>10}" for cell in cells))


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Two charts side by side: a colour for each method, dashed lines for back-off."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "smoothing"}
    from matplotlib import pyplot

    families = list(dict.fromkeys(fields["smoothing"] for fields in METHODS.values()))
    colours = dict(zip(families, ["black", *(f"C{number}" for number in range(1, 10)), "C0"], strict=False))
    figure, axes = pyplot.subplots(1, 2, figsize=(13, 5.5), sharey=True)
    for order, axis in zip((2, 3), axes, strict=True):
        found = {(row["method"], row["words"]): row["bits"] for row in rows if row["order"] == order}
        sizes = sorted({size for _, size in found})
        for method, fields in METHODS.items():
            points = [(size, found[method, size] - found[BASELINE, size]) for size in sizes if (method, size) in found]
            if points and method != "laplace":
                style = "--" if "back-off" in method else "-"
                colour = colours[fields["smoothing"]]
                axis.plot(*zip(*points, strict=True), style, marker="o", ms=3, color=colour, label=method)
        name = {2: "bigrams", 3: "trigrams"}[order]
        axis.set(xscale="log", xlabel="words of training text", title=name, ylim=(-0.2, 0.7))
        axis.grid(alpha=0.3)
    axes[0].set_ylabel(f"bits per word above {BASELINE}")
    handles, labels = axes[0].get_legend_handles_labels()
    axes[1].legend(handles, labels, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main()
