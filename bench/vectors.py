"""Static vectors against gensim, fastText, word2vec.c and GloVe: same text, same settings, two threads, one run.

    python bench/vectors.py [--seeds 3] [--megabytes 80] [--only skipgram,cbow,...]

Every program runs in a process of its own from the text file to the vectors, so times and memory include startup and
reading. word2vec (as `word2vec`) and the GloVe programs (`vocab_count`, `cooccur`, `shuffle`, `glove`) are included if
they are on the PATH. Quality is measured by gensim's evaluators for all.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

import data
from harness import make_parser, timed

WORDS = data.SHARED.parent / "words"
SIZE, WINDOW, NEGATIVES, SAMPLE, MIN_COUNT = 100, 5, 5, 1e-4, 5
SUBSAMPLING = (f"subsample={SAMPLE}", "subsample_rule=program")
FIRTH = [str(Path(sys.executable).with_name("firth"))]


@dataclass
class VectorRuns:
    """Time, peak memory and quality of a program, a value for each seed."""

    seconds: list[float] = field(default_factory=list)
    megabytes: list[float] = field(default_factory=list)
    scores: list[dict[str, float]] = field(default_factory=list)

    def format_row(self, words: float, names: Sequence[str]) -> str:
        speed = words / statistics.mean(self.seconds) / 1e6
        cells = [f"{statistics.mean(self.seconds):8.1f} s", f"{speed:7.2f} M words/s", f"{max(self.megabytes):7.0f} MB"]
        for name in names:
            values = [score[name] for score in self.scores if name in score]
            spread = f"±{statistics.stdev(values):.3f}" if len(values) > 1 else ""
            cells.append(f"{name} {statistics.mean(values):.3f}{spread}" if values else f"{name} -")
        return "  ".join(cells)


_LAUNCH = """import resource, subprocess, sys
code = subprocess.call(sys.argv[1:], stdout=subprocess.DEVNULL)
print(code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"""
"""A small launcher: the peak memory of a process starts at the memory of the process that launches it."""


def measure(command: Sequence[str | Path], cache: Path | None = None) -> tuple[float, float]:
    """The seconds and the peak memory (in MB) of a program."""
    environment = os.environ | ({"FIRTH_CACHE": str(cache)} if cache else {})
    started = time.perf_counter()
    launch = [sys.executable, "-S", "-c", _LAUNCH, *map(str, command)]
    code, peak = subprocess.run(launch, env=environment, check=True, capture_output=True, text=True).stdout.split()
    if int(code):
        raise SystemExit(f"failed: {' '.join(map(str, command))}")
    return time.perf_counter() - started, int(peak) / 1024


def firth(recipe: str, text: Path, out: Path, seed: int = 0, settings: Sequence[str] = ()) -> tuple[float, float]:
    """Train a recipe with an empty cache."""
    settings = ("tokenizer.split=space", f"tokenizer.min_count={MIN_COUNT}", *settings)
    options = [part for setting in settings for part in ("--set", setting)]
    with tempfile.TemporaryDirectory(dir=text.parent) as cache:
        train = [*FIRTH, "train", recipe, text, "-o", out, "--layout", "lines", "--threads", "2", "--seed", str(seed)]
        return measure([*train, *options], Path(cache))


def peer(what: str, text: Path, out: Path, epochs: int, seed: int = 0) -> tuple[float, float]:
    """Train with a Python library in a process of its own: see `run_peer`."""
    return measure([sys.executable, __file__, "--peer", what, text, out, str(epochs), str(seed)])


def run_peer(what: str, text: str, out: str, epochs: int, seed: int) -> None:
    """The child process: train with gensim or fastText and save the vectors."""
    library, _, kind = what.partition(":")
    if library == "gensim":
        from gensim.models import Doc2Vec, Word2Vec

        common = {"vector_size": SIZE, "sample": SAMPLE, "min_count": MIN_COUNT, "workers": 2, "seed": seed}
        if kind == "dbow":
            model = Doc2Vec(dm=0, negative=NEGATIVES, **common)
        else:
            skip, tree = kind != "cbow", kind == "tree"
            model = Word2Vec(
                sg=int(skip), hs=int(tree), negative=0 if tree else NEGATIVES, window=WINDOW,
                alpha=0.025 if skip else 0.05, **common,
            )  # fmt: skip
        model.build_vocab(corpus_file=text)
        model.train(
            corpus_file=text, total_words=model.corpus_total_words, total_examples=model.corpus_count, epochs=epochs
        )
        if kind == "dbow":
            np.save(out, model.dv.vectors)
        else:
            model.wv.save_word2vec_format(out, binary=True)
    else:
        import fasttext

        max_n = 6 if kind == "subwords" else 0
        model = fasttext.train_unsupervised(
            text, "skipgram", dim=SIZE, ws=WINDOW, neg=NEGATIVES, t=SAMPLE, minCount=MIN_COUNT, lr=0.05, epoch=epochs,
            minn=3 if max_n else 0, maxn=max_n, bucket=2_000_000 if max_n else 0, thread=2, verbose=0,
        )  # fmt: skip
        words = model.get_words()
        with open(out, "wb") as file:
            file.write(f"{len(words)} {SIZE}\n".encode())
            for word in words:
                file.write(word.encode() + b" " + model.get_word_vector(word).astype(np.float32).tobytes() + b"\n")


def quality(path: Path) -> dict[str, float]:
    """Spearman on three sets of pairs and accuracy on analogies, by gensim."""
    from gensim.models import KeyedVectors

    if not WORDS.exists():
        return {}
    vectors = KeyedVectors.load_word2vec_format(str(path), binary=True)
    scores = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in ("ws353", "men3000", "simlex999"):
            pairs = Path(folder, name)
            pairs.write_text("".join((WORDS / f"{name}.tsv").read_text().splitlines(keepends=True)[1:]))
            scores[name] = float(vectors.evaluate_word_pairs(str(pairs))[1][0])
        questions = Path(folder, "questions")
        questions.write_bytes(gzip.decompress((WORDS / "google_analogies.txt.gz").read_bytes()))
        scores["analogies"] = float(vectors.evaluate_word_analogies(str(questions), restrict_vocab=30_000)[0])
    return scores


def count_words(text: Path) -> int:
    """The number of words of the text with at least the minimum count."""
    counts: Counter[str] = Counter()
    with open(text, encoding="utf-8") as file:
        for line in file:
            counts.update(line.split())
    return sum(count for count in counts.values() if count >= MIN_COUNT)


NAMES = ("ws353", "men3000", "simlex999", "analogies")


class VectorComparison(NamedTuple):
    """A recipe with the settings of a peer, and variants of it."""

    title: str
    recipe: str
    peer: str
    """An argument of `run_peer`."""
    epochs: int
    settings: tuple[str, ...]
    variants: dict[str, tuple[str, ...]]
    """More settings by name."""


NEGATIVE_SAMPLING = (f"negatives={NEGATIVES}", *SUBSAMPLING)
FAST_AND_EXACT: dict[str, tuple[str, ...]] = {"firth fast": ("mode=fast",), "firth exact": ()}
COMPARISONS = {
    "skipgram": VectorComparison(
        f"skip-gram, {NEGATIVES} negatives, 5 epochs (learning rates: firth 0.04, 'as gensim' and the peers 0.025)",
        "skipgram", "gensim:skip", 5, NEGATIVE_SAMPLING,
        FAST_AND_EXACT | {"firth as gensim": ("mode=fast", "lr=0.025")},
    ),
    "cbow": VectorComparison(
        f"continuous bag of words, {NEGATIVES} negatives, 5 epochs", "cbow", "gensim:cbow", 5, NEGATIVE_SAMPLING,
        FAST_AND_EXACT,
    ),
    "tree": VectorComparison(
        "skip-gram, hierarchical softmax, 1 epoch", "skipgram", "gensim:tree", 1, ("loss=hierarchical", *SUBSAMPLING),
        {"firth fast": ("mode=fast", "lr=0.025")},
    ),
    "subwords": VectorComparison(
        "skip-gram with character n-grams of 3 to 6, 1 epoch", "fasttext", "fastText:subwords", 1,
        (*NEGATIVE_SAMPLING, "lr=0.05"), FAST_AND_EXACT,
    ),
}  # fmt: skip


def compare(part: str, text: Path, folder: Path, words: int, seeds: int) -> None:
    """Run every program with every seed, and print a row for each and the ratios to the fastest peer."""
    title, recipe, peer_name, epochs, settings, variants = COMPARISONS[part]
    runs: dict[str, Callable[[Path, int], tuple[float, float]]] = {
        peer_name.partition(":")[0]: lambda out, seed: peer(peer_name, text, out, epochs, seed)
    }
    for name, more in variants.items():
        runs[name] = partial(firth, recipe, text, settings=(f"epochs={epochs}", *settings, *more))
    if part == "skipgram" and shutil.which("word2vec"):
        runs["word2vec.c"] = partial(word2vec_c, text, epochs)
    print(f"\n{title}", flush=True)
    outcomes: dict[str, VectorRuns] = {}
    for name, run in runs.items():
        outcome = outcomes[name] = VectorRuns()
        for seed in range(1, seeds + 1):
            out = folder / f"{name.replace(' ', '-')}-{seed}"
            seconds, megabytes = run(out, seed)
            outcome.seconds.append(seconds)
            outcome.megabytes.append(megabytes)
            outcome.scores.append(quality(exported(out)))
            shutil.rmtree(out) if out.is_dir() else out.unlink()
        print(f"  {name:<16}{outcome.format_row(epochs * words, NAMES)}", flush=True)
    best = min(statistics.mean(o.seconds) for name, o in outcomes.items() if not name.startswith("firth"))
    for name in variants:
        print(f"  {name}: {best / statistics.mean(outcomes[name].seconds):.1f} times as fast as the fastest peer")


def word2vec_c(text: Path, epochs: int, out: Path, seed: int) -> tuple[float, float]:
    command = ["word2vec", "-train", text, "-size", SIZE, "-window", WINDOW, "-sample", SAMPLE, "-min-count", MIN_COUNT]
    command += ["-threads", 2, "-binary", 1, "-iter", epochs, "-cbow", 0, "-hs", 0, "-negative", NEGATIVES]
    return measure([str(part) for part in [*command, "-output", out]])


def exported(out: Path) -> Path:
    """The path of the vectors in word2vec's binary format; models of Firth are exported."""
    if not out.is_dir():
        return out
    path = out.with_suffix(".bin")
    path.unlink(missing_ok=True)
    subprocess.run([*FIRTH, "export", out, "word2vec", path], check=True, stdout=subprocess.DEVNULL)
    return path


def glove(text: Path, folder: Path, words: int, seeds: int) -> None:
    epochs = 15
    print(f"\nGloVe, window 10, {epochs} epochs")
    out = folder / "glove"
    seconds, megabytes = firth("glove", text, out, settings=[f"epochs={epochs}"])
    outcome = VectorRuns([seconds], [megabytes], [quality(exported(out))])
    print(f"  {'firth':<16}{outcome.format_row(words, NAMES)}", flush=True)
    if all(map(shutil.which, ("vocab_count", "cooccur", "shuffle", "glove"))):
        theirs = glove_programs(text, folder, epochs)
        print(f"  {'GloVe':<16}{theirs:8.1f} s\n  firth: {theirs / seconds:.1f} times as fast")
    else:
        print("  GloVe's programs are not on the PATH: nothing to compare with")


def glove_programs(text: Path, folder: Path, epochs: int) -> float:
    """The seconds of the four programs one after the other."""
    script = (
        f"vocab_count -min-count {MIN_COUNT} < {text} > vocab.txt && "
        f"cooccur -memory 8 -vocab-file vocab.txt -window-size 10 < {text} > pairs.bin && "
        "shuffle -memory 8 < pairs.bin > shuffled.bin && glove -save-file vectors -threads 2 -input-file shuffled.bin "
        f"-x-max 10 -iter {epochs} -vector-size {SIZE} -binary 0 -vocab-file vocab.txt"
    )
    started = time.perf_counter()
    subprocess.run(["sh", "-c", script], cwd=folder, check=True, capture_output=True)
    return time.perf_counter() - started


def paragraphs(text: Path, folder: Path, words: int, seeds: int) -> None:
    """pv-dbow on at most 200,000 documents of one sentence."""
    short = folder / "documents.txt"
    with open(text, encoding="utf-8") as source, open(short, "w", encoding="utf-8") as target:
        lines = [line for line, _ in zip(source, range(200_000), strict=False)]
        target.writelines(lines)
    num_words, epochs = sum(len(line.split()) for line in lines), 10
    print(f"\npv-dbow, {len(lines):,} documents, {num_words / 1e6:.1f} M words, {epochs} epochs")
    theirs = peer("gensim:dbow", short, folder / "documents.npy", epochs)
    runs = {"gensim": theirs}
    for mode in ("fast", "exact"):
        settings = [f"epochs={epochs}", *NEGATIVE_SAMPLING, f"mode={mode}"]
        runs[f"firth {mode}"] = firth("pv-dbow", short, folder / f"dbow-{mode}", settings=settings)
    for name, (seconds, megabytes) in runs.items():
        speed = epochs * num_words / seconds / 1e6
        ratio = "" if name == "gensim" else f"  {theirs[0] / seconds:.1f} times as fast"
        print(f"  {name:<12} {seconds:8.1f} s  {speed:6.2f} M words/s {megabytes:6.0f} MB{ratio}", flush=True)


def vocabulary(text: Path, folder: Path, words: int, seeds: int) -> None:
    """Words per second by vocabulary size: only cache misses should cost more as it grows."""
    from dataclasses import replace

    from firth.recipes.vectors import skipgram
    from firth.vectors.job import VectorJob
    from firth.vectors.loop import train_blocks
    from firth.vectors.text import TrainingText
    from firth.vectors.word2vec import Word2vecTrainer

    print("\nskip-gram by vocabulary size (4 M random words, Zipf's law, fast, 5 negatives)")
    rng = np.random.default_rng(0)
    for size in (10_000, 100_000, 1_000_000):
        weights = 1 / np.arange(1, size + 1)
        ids = (5 + rng.choice(size, 4_000_000, p=weights / weights.sum())).astype(np.uint32)
        bounds = np.arange(0, ids.size + 1, 20).astype(np.uint64)
        training_text = TrainingText(ids, bounds, np.array([0, bounds.size - 1], dtype=np.uint64), [""] * (size + 5))
        settings = replace(skipgram(), mode="fast", epochs=1, negatives=NEGATIVES, buckets=0)
        trainer = Word2vecTrainer(settings, training_text, 0)
        job = VectorJob(training_text, None, "lines", threads=2)  # type: ignore[arg-type]
        train_blocks(trainer, settings, 0.025, replace(job, tokens=100_000))
        started = time.perf_counter()
        train_blocks(trainer, settings, 0.025, job)
        print(f"  {size:>9,} words  {ids.size / (time.perf_counter() - started) / 1e6:5.2f} M words/s", flush=True)


def neighbours(text: Path, folder: Path, words: int, seeds: int) -> None:
    """Ten nearest neighbours among a million vectors: trained ones, repeated with noise."""
    from firth.vectors.index import build_index
    from firth.vectors.neighbours import ExactIndex

    out = folder / "base"
    firth("skipgram", text, out, settings=["epochs=1", "mode=fast"])
    from firth.artifact.models import load

    base = np.asarray(load(out).vectors[5:])
    rng = np.random.default_rng(0)
    rows = base[rng.integers(len(base), size=1_000_000)]
    rows = rows + 0.3 * base.std() * rng.standard_normal(rows.shape, dtype=np.float32)
    exact_index = ExactIndex(rows.astype(np.float32), 0)
    queries = [rows[row] for row in rng.integers(len(rows), size=100)]
    exact_index.nearest(queries[0], 10)
    exact, exact_seconds = timed(lambda: [exact_index.nearest(query, 10) for query in queries])
    index, build_seconds = timed(lambda: build_index(exact_index))
    index.nearest(queries[0], 10)
    found, index_seconds = timed(lambda: [index.nearest(query, 10) for query in queries])
    recalls = [len({r for r, _ in a} & {r for r, _ in b}) / 10 for a, b in zip(exact, found, strict=True)]
    print(f"\nten nearest neighbours among 1,000,000 x {SIZE}: exact {1e3 * exact_seconds / 100:.1f} ms; "
          f"index {1e3 * index_seconds / 100:.2f} ms, recall {statistics.mean(recalls):.3f}, "
          f"built in {build_seconds:.0f} s", flush=True)  # fmt: skip


PARTS: dict[str, Callable[[Path, Path, int, int], None]] = {
    **{name: partial(compare, name) for name in COMPARISONS},
    "glove": glove,
    "paragraphs": paragraphs,
    "vocabulary": vocabulary,
    "neighbours": neighbours,
}


def write_text(folder: Path, megabytes: int) -> Path:
    """Write the text that all programs read: lower-cased, a sentence per line, tokens between spaces."""
    from firth.recipes.table import find_recipe
    from firth.text.corpus import read_corpus
    from firth.tokens.build import open_tokens

    raw, path = folder / "raw.txt", folder / "text.txt"
    data.write(data.english, raw, megabytes * 1_000_000)
    tokenizer, store = open_tokens(find_recipe("skipgram").tokenizer, read_corpus(raw))
    words = np.array(tokenizer.vocabulary, dtype=object)
    bounds = np.asarray(store.sentences).astype(int)
    with open(path, "w", encoding="utf-8") as file:
        for begin, end in itertools.pairwise(bounds):
            ids = store.ids[begin:end]
            known = ids[ids >= 5]
            if known.size:
                file.write(" ".join(words[known]) + "\n")
    return path


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--megabytes", type=int, default=75)
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--peer", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        what, text, out, epochs, seed = options.peer
        return run_peer(what, text, out, int(epochs), int(seed))
    with tempfile.TemporaryDirectory(prefix="firth-bench-") as name:
        folder = Path(name)
        os.environ["FIRTH_CACHE"] = str(folder / "cache")
        text = write_text(folder, options.megabytes)
        words = count_words(text)
        print(json.dumps({"words": words, "cores": os.cpu_count()}))
        for part in options.only.split(","):
            PARTS[part](text, folder, words, options.seeds)
    return None


if __name__ == "__main__":
    main()
