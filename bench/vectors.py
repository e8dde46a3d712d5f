"""Static vectors against gensim, fastText, word2vec.c and GloVe: same text, same settings, two threads, one run.

    python bench/vectors.py [--seeds 3] [--megabytes 80] [--only skipgram,cbow,...]

Every program runs by itself from the text file to the vectors, so times and memory include starting and reading.
word2vec (as `word2vec`) and the GloVe programs (`vocab_count`, `cooccur`, `shuffle`, `glove`) take part if they are on
the PATH. Quality is measured by gensim's own evaluators for all.
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
from pathlib import Path

import numpy as np

import data

WORDS = data.SHARED.parent / "words"
SIZE, WINDOW, NEGATIVES, SAMPLE, LEAST = 100, 5, 5, 1e-4, 5
SAME = (f"subsample={SAMPLE}", "subsample_rule=program")
FIRTH = [str(Path(sys.executable).with_name("firth"))]


@dataclass
class Outcome:
    """What a program took and what came of it, a value for each seed."""

    seconds: list[float] = field(default_factory=list)
    megabytes: list[float] = field(default_factory=list)
    scores: list[dict[str, float]] = field(default_factory=list)

    def row(self, words: float, names: Sequence[str]) -> str:
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
"""A small program that starts another: what is started counts the memory of whoever starts it as its own."""


def measure(command: Sequence[str | Path], cache: Path | None = None) -> tuple[float, float]:
    """Seconds and peak megabytes of a program."""
    environment = os.environ | ({"FIRTH_CACHE": str(cache)} if cache else {})
    started = time.perf_counter()
    launch = [sys.executable, "-S", "-c", _LAUNCH, *map(str, command)]
    code, peak = subprocess.run(launch, env=environment, check=True, capture_output=True, text=True).stdout.split()
    if int(code):
        raise SystemExit(f"failed: {' '.join(map(str, command))}")
    return time.perf_counter() - started, int(peak) / 1024


def firth(recipe: str, text: Path, out: Path, *settings: str, seed: int = 0) -> tuple[float, float]:
    """Trains a recipe with an empty cache."""
    options = [
        part for one in ("tokenizer.split=space", f"tokenizer.min_count={LEAST}", *settings) for part in ("--set", one)
    ]
    with tempfile.TemporaryDirectory(dir=text.parent) as cache:
        train = [*FIRTH, "train", recipe, text, "-o", out, "--layout", "lines", "--threads", "2", "--seed", str(seed)]
        return measure([*train, *options], Path(cache))


def peer(what: str, text: Path, out: Path, epochs: int, seed: int = 0) -> tuple[float, float]:
    """Runs a Python library in a process of its own: see `run_peer`."""
    return measure([sys.executable, __file__, "--peer", what, text, out, str(epochs), str(seed)])


def run_peer(what: str, text: str, out: str, epochs: int, seed: int) -> None:
    """What the process of a peer does."""
    library, _, kind = what.partition(":")
    if library == "gensim" and kind == "dbow":
        from gensim.models import Doc2Vec

        model = Doc2Vec(
            dm=0, vector_size=SIZE, negative=NEGATIVES, sample=SAMPLE, min_count=LEAST, workers=2, seed=seed
        )
        model.build_vocab(corpus_file=text)
        model.train(
            corpus_file=text, total_words=model.corpus_total_words, total_examples=model.corpus_count, epochs=epochs
        )
        np.save(out, model.dv.vectors)
    elif library == "gensim":
        from gensim.models import Word2Vec

        skip, tree = kind != "cbow", kind == "tree"
        model = Word2Vec(
            sg=int(skip), hs=int(tree), negative=0 if tree else NEGATIVES, vector_size=SIZE, window=WINDOW,
            sample=SAMPLE, min_count=LEAST, workers=2, alpha=0.025 if skip else 0.05, seed=seed,
        )  # fmt: skip
        model.build_vocab(corpus_file=text)
        model.train(
            corpus_file=text, total_words=model.corpus_total_words, total_examples=model.corpus_count, epochs=epochs
        )
        model.wv.save_word2vec_format(out, binary=True)
    else:
        import fasttext

        most = 6 if kind == "subwords" else 0
        model = fasttext.train_unsupervised(
            text, "skipgram", dim=SIZE, ws=WINDOW, neg=NEGATIVES, t=SAMPLE, minCount=LEAST, lr=0.05, epoch=epochs,
            minn=3 if most else 0, maxn=most, bucket=2_000_000 if most else 0, thread=2, verbose=0,
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
    """The words of the text that are frequent enough."""
    counts: Counter[str] = Counter()
    with open(text, encoding="utf-8") as file:
        for line in file:
            counts.update(line.split())
    return sum(count for count in counts.values() if count >= LEAST)


NAMES = ("ws353", "men3000", "simlex999", "analogies")


def compare(
    title: str, words: float, seeds: int, runs: dict[str, Callable[[Path, int], tuple[float, float]]], folder: Path
) -> None:
    """Runs every program for every seed, and prints a row for each and how much faster Firth is."""
    print(f"\n{title}", flush=True)
    outcomes: dict[str, Outcome] = {}
    for name, run in runs.items():
        outcome = outcomes[name] = Outcome()
        for seed in range(1, seeds + 1):
            out = folder / f"{name.replace(' ', '-')}-{seed}"
            seconds, megabytes = run(out, seed)
            outcome.seconds.append(seconds)
            outcome.megabytes.append(megabytes)
            outcome.scores.append(quality(exported(out)))
            shutil.rmtree(out) if out.is_dir() else out.unlink()
        print(f"  {name:<16}{outcome.row(words, NAMES)}", flush=True)
    best = min(statistics.mean(o.seconds) for name, o in outcomes.items() if not name.startswith("firth"))
    for name, outcome in outcomes.items():
        if name.startswith("firth"):
            print(f"  {name}: {best / statistics.mean(outcome.seconds):.1f} times as fast as the fastest peer")


def exported(out: Path) -> Path:
    """Vectors in word2vec's binary format, whoever made them."""
    if not out.is_dir():
        return out
    path = out.with_suffix(".bin")
    path.unlink(missing_ok=True)
    subprocess.run([*FIRTH, "export", out, "word2vec", path], check=True, stdout=subprocess.DEVNULL)
    return path


def word2vec_c(text: Path, epochs: int, *options: str) -> Callable[[Path, int], tuple[float, float]]:
    command = ["word2vec", "-train", text, "-size", SIZE, "-window", WINDOW, "-sample", SAMPLE, "-min-count", LEAST]
    rest = ["-threads", 2, "-binary", 1, "-iter", epochs, *options]
    return lambda out, seed: measure([str(part) for part in [*command, *rest, "-output", out]])


def skipgram(text: Path, folder: Path, words: int, seeds: int) -> None:
    epochs = 5
    equal = [f"epochs={epochs}", f"negatives={NEGATIVES}", *SAME]
    runs = {
        "gensim": lambda out, seed: peer("gensim:skip", text, out, epochs, seed),
        "firth fast": lambda out, seed: firth("skipgram", text, out, *equal, "mode=fast", seed=seed),
        "firth exact": lambda out, seed: firth("skipgram", text, out, *equal, seed=seed),
        "firth as gensim": lambda out, seed: firth(
            "skipgram", text, out, *equal, "mode=fast", "learning_rate=0.025", seed=seed
        ),
    }
    if shutil.which("word2vec"):
        runs["word2vec.c"] = word2vec_c(text, epochs, "-cbow", "0", "-hs", "0", "-negative", str(NEGATIVES))
    compare(f"skip-gram, {NEGATIVES} negatives, {epochs} epochs (firth's learning rate 0.04, the peers' 0.025; "
            "'as gensim' has 0.025)", epochs * words, seeds, runs, folder)  # fmt: skip


def cbow(text: Path, folder: Path, words: int, seeds: int) -> None:
    epochs = 5
    equal = [f"epochs={epochs}", f"negatives={NEGATIVES}", *SAME]
    runs = {
        "gensim": lambda out, seed: peer("gensim:cbow", text, out, epochs, seed),
        "firth fast": lambda out, seed: firth("cbow", text, out, *equal, "mode=fast", seed=seed),
        "firth exact": lambda out, seed: firth("cbow", text, out, *equal, seed=seed),
    }
    compare(f"continuous bag of words, {NEGATIVES} negatives, {epochs} epochs", epochs * words, seeds, runs, folder)


def tree(text: Path, folder: Path, words: int, seeds: int) -> None:
    equal = ["epochs=1", "loss=hierarchical", *SAME]
    runs = {
        "gensim": lambda out, seed: peer("gensim:tree", text, out, 1, seed),
        "firth fast": lambda out, seed: firth(
            "skipgram", text, out, *equal, "mode=fast", "learning_rate=0.025", seed=seed
        ),
    }
    compare("skip-gram, hierarchical softmax, 1 epoch", words, seeds, runs, folder)


def subwords(text: Path, folder: Path, words: int, seeds: int) -> None:
    equal = ["epochs=1", f"negatives={NEGATIVES}", *SAME, "learning_rate=0.05"]
    runs = {
        "fastText": lambda out, seed: peer("fasttext:subwords", text, out, 1, seed),
        "firth fast": lambda out, seed: firth("fasttext", text, out, *equal, "mode=fast", seed=seed),
        "firth exact": lambda out, seed: firth("fasttext", text, out, *equal, seed=seed),
    }
    compare("skip-gram with character n-grams of 3 to 6, 1 epoch", words, seeds, runs, folder)


def glove(text: Path, folder: Path, words: int, seeds: int) -> None:
    epochs = 15
    print(f"\nGloVe, window 10, {epochs} epochs")
    out = folder / "glove"
    seconds, megabytes = firth("glove", text, out, f"epochs={epochs}")
    outcome = Outcome([seconds], [megabytes], [quality(exported(out))])
    print(f"  {'firth':<16}{outcome.row(words, NAMES)}", flush=True)
    if all(map(shutil.which, ("vocab_count", "cooccur", "shuffle", "glove"))):
        theirs = glove_programs(text, folder, epochs)
        print(f"  {'GloVe':<16}{theirs:8.1f} s\n  firth: {theirs / seconds:.1f} times as fast")
    else:
        print("  GloVe's programs are not on the PATH: nothing to compare with")


def glove_programs(text: Path, folder: Path, epochs: int) -> float:
    """Seconds of the four programs one after the other."""
    script = (
        f"vocab_count -min-count {LEAST} < {text} > vocab.txt && "
        f"cooccur -memory 8 -vocab-file vocab.txt -window-size 10 < {text} > pairs.bin && "
        "shuffle -memory 8 < pairs.bin > shuffled.bin && glove -save-file vectors -threads 2 -input-file shuffled.bin "
        f"-x-max 10 -iter {epochs} -vector-size {SIZE} -binary 0 -vocab-file vocab.txt"
    )
    started = time.perf_counter()
    subprocess.run(["sh", "-c", script], cwd=folder, check=True, capture_output=True)
    return time.perf_counter() - started


def paragraphs(text: Path, folder: Path, words: int, seeds: int) -> None:
    """Documents of one sentence: 200,000 of them, or as many as there are."""
    short = folder / "documents.txt"
    with open(text, encoding="utf-8") as source, open(short, "w", encoding="utf-8") as target:
        lines = [line for line, _ in zip(source, range(200_000), strict=False)]
        target.writelines(lines)
    amount, epochs = sum(len(line.split()) for line in lines), 10
    equal = [f"epochs={epochs}", f"negatives={NEGATIVES}", *SAME]
    print(f"\npv-dbow, {len(lines):,} documents, {amount / 1e6:.1f} M words, {epochs} epochs")
    theirs = peer("gensim:dbow", short, folder / "documents.npy", epochs)
    print(f"  gensim       {theirs[0]:8.1f} s  {epochs * amount / theirs[0] / 1e6:6.2f} M words/s {theirs[1]:6.0f} MB")
    for mode in ("fast", "exact"):
        ours = firth("pv-dbow", short, folder / f"dbow-{mode}", *equal, f"mode={mode}")
        print(f"  firth {mode:<6} {ours[0]:8.1f} s  {epochs * amount / ours[0] / 1e6:6.2f} M words/s {ours[1]:6.0f} MB"
              f"  {theirs[0] / ours[0]:.1f} times as fast", flush=True)  # fmt: skip


def vocabulary(text: Path, folder: Path, words: int, seeds: int) -> None:
    """Words a second as the vocabulary grows: nothing costs more for a larger one but the caches."""
    from dataclasses import replace

    from firth.recipes.vectors import skipgram as recipe
    from firth.vectors.job import Job
    from firth.vectors.loop import run_loop
    from firth.vectors.text import TrainingText
    from firth.vectors.word2vec import WordBlocks

    print("\nskip-gram by size of the vocabulary (4 M random words, Zipf's law, fast, 5 negatives)")
    rng = np.random.default_rng(0)
    for size in (10_000, 100_000, 1_000_000):
        shares = 1 / np.arange(1, size + 1)
        ids = (5 + rng.choice(size, 4_000_000, p=shares / shares.sum())).astype(np.uint32)
        bounds = np.arange(0, ids.size + 1, 20).astype(np.uint64)
        made = TrainingText(ids, bounds, np.array([0, bounds.size - 1], dtype=np.uint64), [""] * (size + 5))
        settled = replace(recipe(), mode="fast", epochs=1, negatives=NEGATIVES, buckets=0)
        blocks, job = WordBlocks(settled, made, 0), Job(made, None, "lines", threads=2)  # type: ignore[arg-type]
        run_loop(blocks, settled, 0.025, replace(job, tokens=100_000))
        started = time.perf_counter()
        run_loop(blocks, settled, 0.025, job)
        print(f"  {size:>9,} words  {ids.size / (time.perf_counter() - started) / 1e6:5.2f} M words/s", flush=True)


def neighbours(text: Path, folder: Path, words: int, seeds: int) -> None:
    """Ten neighbours among a million vectors: real ones again and again with noise, where there are any."""
    from firth.vectors.index import build_index
    from firth.vectors.neighbours import Neighbours

    out = folder / "base"
    firth("skipgram", text, out, "epochs=1", "mode=fast")
    from firth.artifact.models import load

    base = np.asarray(load(out).vectors[5:])
    rng = np.random.default_rng(0)
    rows = base[rng.integers(len(base), size=1_000_000)]
    rows = rows + 0.3 * base.std() * rng.standard_normal(rows.shape, dtype=np.float32)
    near = Neighbours(rows.astype(np.float32), 0)
    queries = [rows[row] for row in rng.integers(len(rows), size=100)]
    near.nearest(queries[0], 10)
    started = time.perf_counter()
    exact = [near.nearest(query, 10) for query in queries]
    each = (time.perf_counter() - started) / len(queries)
    started = time.perf_counter()
    index = build_index(near)
    built = time.perf_counter() - started
    index.nearest(queries[0], 10)
    started = time.perf_counter()
    found = [index.nearest(query, 10) for query in queries]
    quick = (time.perf_counter() - started) / len(queries)
    same = [len({r for r, _ in a} & {r for r, _ in b}) / 10 for a, b in zip(exact, found, strict=True)]
    print(f"\nten neighbours among 1,000,000 x {SIZE}: exact {1e3 * each:.1f} ms; index {1e3 * quick:.2f} ms, "
          f"recall {statistics.mean(same):.3f}, built in {built:.0f} s", flush=True)  # fmt: skip


PARTS = {
    "skipgram": skipgram, "cbow": cbow, "tree": tree, "subwords": subwords, "glove": glove, "paragraphs": paragraphs,
    "vocabulary": vocabulary, "neighbours": neighbours,
}  # fmt: skip


def tokenised(folder: Path, megabytes: int) -> Path:
    """The text that all programs read: a sentence a line, tokens between spaces, lower case."""
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
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
        text = tokenised(folder, options.megabytes)
        words = count_words(text)
        print(json.dumps({"words": words, "cores": os.cpu_count()}))
        for part in options.only.split(","):
            PARTS[part](text, folder, words, options.seeds)
    return None


if __name__ == "__main__":
    main()
