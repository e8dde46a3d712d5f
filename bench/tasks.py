"""Tasks against `transformers`: the same weights, examples, steps and threads; a process for each.

    python bench/tasks.py [--only finetune,predict,embed,read] [--examples 5000] [--rounds 1] [--model DIR]

finetune  a BERT of four layers of width 256 on SST-2, dropout 0.1, one epoch, batches of 32. Both start from the same
          weights, including the head's. The Trainer of `transformers` needs `accelerate`; this runs its loop without
          it: shuffled examples, dynamic padding, fused AdamW, a linear schedule with warmup, gradient clipping. Texts
          are tokenised before the clock starts, for both.
predict   the fine-tuned model against the pipeline with batches of 32, from texts to probabilities.
embed     sentence embeddings by all-MiniLM-L6-v2, in the folder FIRTH_MINILM, against sentence-transformers or, if it
          is not installed, the same in plain `transformers`: sorted by length, batches of 32.
read      a TSV of a million rows: runs bench/read_tasks.py.

Without --model a BERT is pre-trained briefly; with it a better one is used, such as bench/results.py makes.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import data
import task_data
from harness import make_parser, peak_kilobytes, run_child, timed

BATCH_SIZE, LENGTH, LR, WARMUP, WEIGHT_DECAY = 32, 128, 1.5e-4, 0.1, 0.01
LEARNING = [
    *(f"learning.batch={BATCH_SIZE}", "learning.epochs=1"),
    *(f"learning.warmup={WARMUP}", f"learning.weight_decay={WEIGHT_DECAY}", "linear_weight=0"),
]
TASK = task_data.DATASETS["sst2"]
BUDGET = os.environ.get("FIRTH_BENCH_BUDGET", "30s")
"""Of pre-training without --model."""
MAX_WORDS = 150  # of an embedded sentence: neither truncates it


class TaskBenchmark(NamedTuple):
    """The options of all comparisons."""

    folder: Path
    model: Path | None
    examples: int
    rounds: int
    threads: int

    def best_run(self, what: str) -> dict[str, Any]:
        """The measurements of the fastest of several child processes."""
        runs = [run_child(__file__, what, self.folder, self.threads) for _ in range(self.rounds)]
        return max(runs, key=lambda run: run["speed"])


def finetune(benchmark: TaskBenchmark) -> None:
    prepare(benchmark)
    ours, theirs = benchmark.best_run("finetune_ours"), benchmark.best_run("finetune_theirs")
    print(f"\nfine-tuning, {benchmark.examples:,} examples of {TASK.title}, batches of {BATCH_SIZE}, dropout 0.1")
    print_comparison(ours, theirs, "examples/s", f"accuracy {ours['accuracy']:.3f} and {theirs['accuracy']:.3f} on dev")


def predict(benchmark: TaskBenchmark) -> None:
    prepare(benchmark)
    if not (benchmark.folder / "tuned.hf").exists():
        benchmark.best_run("finetune_ours")
    ours, theirs = benchmark.best_run("predict_ours"), benchmark.best_run("predict_theirs")
    print(f"\npredicting, {ours['count']:,} texts, the pipeline with batches of {BATCH_SIZE}")
    print_comparison(ours, theirs, "texts/s", max_difference(benchmark, "predict", "probabilities"))


def embed(benchmark: TaskBenchmark) -> None:
    if not Path(os.environ.get("FIRTH_MINILM", ""), "modules.json").is_file():
        print("\nembed: skipped, FIRTH_MINILM does not name the folder of all-MiniLM-L6-v2")
        return
    if not (benchmark.folder / "sentences.json").exists():
        write_sentences(benchmark)
    ours, theirs = benchmark.best_run("embed_ours"), benchmark.best_run("embed_theirs")
    print(f"\nembeddings of {ours['count']:,} sentences by MiniLM, against {theirs['by']}")
    print_comparison(ours, theirs, "sentences/s", max_difference(benchmark, "embed", "components"))


def read(benchmark: TaskBenchmark) -> None:
    print("\nreading a TSV", flush=True)
    subprocess.run([sys.executable, str(Path(__file__).parent / "read_tasks.py")], check=True)


PARTS = {"finetune": finetune, "predict": predict, "embed": embed, "read": read}


def print_comparison(ours: dict[str, Any], theirs: dict[str, Any], unit: str, results: str) -> None:
    """Print both speeds, their ratio, and how the results compare."""
    for library, one in (("firth", ours), ("transformers", theirs)):
        print(f"  {library:<13}{one['speed']:9,.0f} {unit} {one['megabytes']:7,.0f} MB")
    print(f"  {ours['speed'] / theirs['speed']:.2f} times as fast; {results}", flush=True)


def max_difference(benchmark: TaskBenchmark, what: str, unit: str) -> str:
    ours, theirs = (np.load(benchmark.folder / f"{what}_{who}.npy") for who in ("ours", "theirs"))
    return f"{unit} differ by at most {np.abs(ours - theirs).max():.1e}"


def prepare(benchmark: TaskBenchmark) -> None:
    """Write the examples, the pre-trained model, and its export with an untrained head."""
    import firth

    folder = benchmark.folder
    if (folder / "start.hf").exists():
        return
    task_data.write_subset(TASK.train, benchmark.examples, folder / "train.tsv")
    task_data.write_subset(TASK.train, BATCH_SIZE, folder / "few.tsv")
    task_data.write_subset(TASK.dev, 10_000, folder / "dev.tsv")
    if benchmark.model is not None:
        (folder / "bert").symlink_to(benchmark.model.resolve())
    else:
        data.write(data.english, folder / "text.txt", 4_000_000)
        options: dict[str, Any] = {"size": "mini", "budget": BUDGET, "threads": benchmark.threads, "reload": False}
        firth.train("bert", folder / "text.txt", out=folder / "bert", **options)
    # With a learning rate of almost zero the exported weights are those that fine-tuning starts from.
    few, settings = folder / "few.tsv", [*LEARNING, "learning.lr=1e-12"]
    options = {"train": few, "dev": few, "out": folder / "start", "settings": settings, "threads": 1}
    model = firth.finetune(folder / "bert", TASK.task, **options)
    firth.export_model(model, "huggingface", folder / "start.hf")


def finetune_ours(folder: Path, threads: int) -> dict[str, Any]:
    import firth
    from firth.records import METRICS

    with tempfile.TemporaryDirectory(dir=folder) as name:
        out = Path(name) / "tuned"
        settings = [*LEARNING, f"learning.lr={LR}"]
        # Validation on few examples, so that training takes the time; accuracy is measured afterwards.
        paths: dict[str, Any] = {"train": folder / "train.tsv", "dev": folder / "few.tsv"}
        model = firth.finetune(folder / "bert", TASK.task, **paths, out=out, settings=settings, threads=threads)
        records = [json.loads(line) for line in (out / METRICS).read_text().splitlines()]
        if not (folder / "tuned.hf").exists():
            firth.export_model(model, "huggingface", folder / "tuned.hf")
            out.rename(folder / "tuned")
    first, last = records[0], records[-1]
    seconds = last["seconds"] - first["seconds"]
    trained_on = len(read_examples(folder / "train.tsv")[0]) - first["step"] * BATCH_SIZE
    labels, texts = read_examples(folder / "dev.tsv")
    predicted = [one["label"] for one in model.predict(texts)]
    return {"speed": trained_on / seconds, "accuracy": accuracy(predicted, labels)}


def finetune_theirs(folder: Path, threads: int) -> dict[str, Any]:
    import torch
    from torch.nn.utils import clip_grad_norm_
    from transformers import AutoModelForSequenceClassification, AutoTokenizer, get_linear_schedule_with_warmup

    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(folder / "start.hf")
    model = AutoModelForSequenceClassification.from_pretrained(folder / "start.hf").train()
    label_ids = model.config.label2id
    labels, texts = read_examples(folder / "train.tsv")
    encoded = tokenizer(texts, truncation=True, max_length=LENGTH)
    steps = -(-len(texts) // BATCH_SIZE)
    groups = [
        {"params": [one for one in model.parameters() if one.ndim > 1], "weight_decay": WEIGHT_DECAY},
        {"params": [one for one in model.parameters() if one.ndim <= 1], "weight_decay": 0.0},
    ]
    optimiser = torch.optim.AdamW(groups, LR, (0.9, 0.999), 1e-6, fused=True)
    schedule = get_linear_schedule_with_warmup(optimiser, round(WARMUP * steps), steps)
    order = torch.randperm(len(texts)).tolist()
    started, done = 0.0, 0
    for step, begin in enumerate(range(0, len(order), BATCH_SIZE)):
        if step == 1:
            started, done = time.perf_counter(), 0
        chosen = order[begin : begin + BATCH_SIZE]
        batch = tokenizer.pad({name: [encoded[name][one] for one in chosen] for name in encoded}, return_tensors="pt")
        batch["labels"] = torch.tensor([label_ids[labels[one]] for one in chosen])
        model(**batch).loss.backward()
        clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        model.zero_grad()
        done += len(chosen)
    seconds = time.perf_counter() - started
    labels, texts = read_examples(folder / "dev.tsv")
    predicted = []
    with torch.inference_mode():
        for begin in range(0, len(texts), BATCH_SIZE):
            batch = tokenizer(texts[begin : begin + BATCH_SIZE], padding=True, truncation=True, max_length=LENGTH,
                              return_tensors="pt")  # fmt: skip
            logits = model.eval()(**batch).logits
            predicted += [model.config.id2label[one] for one in logits.argmax(1).tolist()]
    return {"speed": done / seconds, "accuracy": accuracy(predicted, labels)}


def predict_ours(folder: Path, threads: int) -> dict[str, Any]:
    import firth

    model = firth.load(folder / "tuned")

    def run(texts: Sequence[str]) -> list[list[float]]:
        return [[one["probabilities"][label] for label in model.labels] for one in model.predict(texts)]

    return measure(folder, "predict_ours", read_examples(folder / "train.tsv")[1], run)


def predict_theirs(folder: Path, threads: int) -> dict[str, Any]:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline

    model = AutoModelForSequenceClassification.from_pretrained(folder / "tuned.hf")
    tokenizer = AutoTokenizer.from_pretrained(folder / "tuned.hf")
    classify = pipeline("text-classification", model=model, tokenizer=tokenizer, device="cpu")
    labels = list(model.config.id2label.values())

    def run(texts: Sequence[str]) -> list[list[float]]:
        found = classify(list(texts), batch_size=BATCH_SIZE, top_k=None, truncation=True, max_length=LENGTH)
        by_label = [{one["label"]: one["score"] for one in scores} for scores in found]
        return [[scores[label] for label in labels] for scores in by_label]

    return measure(folder, "predict_theirs", read_examples(folder / "train.tsv")[1], run)


def embed_ours(folder: Path, threads: int) -> dict[str, Any]:
    import firth

    if not (folder / "minilm").exists():
        firth.import_model("huggingface", Path(os.environ["FIRTH_MINILM"]), folder / "minilm")
    model = firth.load(folder / "minilm")

    def run(texts: Sequence[str]) -> Any:
        found = model.embed(texts, pooling="whole")
        return found / np.linalg.norm(found, axis=1, keepdims=True)

    return measure(folder, "embed_ours", read_sentences(folder), run)


def embed_theirs(folder: Path, threads: int) -> dict[str, Any]:
    path = os.environ["FIRTH_MINILM"]
    if find_spec("sentence_transformers"):
        from sentence_transformers import SentenceTransformer

        peer, by = SentenceTransformer(path, device="cpu"), "sentence-transformers"

        def run(texts: Sequence[str]) -> Any:
            return peer.encode(texts, batch_size=BATCH_SIZE)
    else:
        run, by = plain_encoder(path), "plain transformers"
    return measure(folder, "embed_theirs", read_sentences(folder), run) | {"by": by}


def plain_encoder(path: str) -> Callable[[Sequence[str]], Any]:
    """The steps of sentence-transformers: longest texts first, mean pooling, L2 normalisation."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    model, tokenizer = AutoModel.from_pretrained(path).eval(), AutoTokenizer.from_pretrained(path)

    @torch.inference_mode()
    def run(texts: Sequence[str]) -> Any:
        order = np.argsort([-len(text) for text in texts], kind="stable")
        found = np.empty((len(texts), model.config.hidden_size), dtype=np.float32)
        for begin in range(0, len(order), BATCH_SIZE):
            chosen = order[begin : begin + BATCH_SIZE]
            batch = tokenizer([texts[one] for one in chosen], padding=True, truncation=True, max_length=256,
                              return_tensors="pt")  # fmt: skip
            mask = batch["attention_mask"][..., None].float()
            means = (model(**batch).last_hidden_state * mask).sum(1) / mask.sum(1)
            found[chosen] = torch.nn.functional.normalize(means).numpy()
        return found

    return run


def measure(folder: Path, what: str, texts: Sequence[str], run: Callable[[Sequence[str]], Any]) -> dict[str, Any]:
    """The speed of a function after a short warm-up; its results are saved for `max_difference`."""
    run(texts[:BATCH_SIZE])
    found, seconds = timed(lambda: run(texts))
    np.save(folder / f"{what}.npy", np.asarray(found, dtype=np.float32))
    return {"speed": len(texts) / seconds, "count": len(texts)}


def read_examples(path: Path) -> tuple[list[str], list[str]]:
    """The labels and the texts of a file."""
    rows = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()[1:]]
    return [row[0] for row in rows], [row[1].strip() for row in rows]


def accuracy(predicted: Sequence[str], labels: Sequence[str]) -> float:
    return float(np.mean([one == other for one, other in zip(predicted, labels, strict=True)]))


def write_sentences(benchmark: TaskBenchmark) -> None:
    """Write sentences of English prose, in their order."""
    from firth.text.corpus import read_corpus

    data.write(data.english, benchmark.folder / "prose.txt", 200 * benchmark.examples)
    every = (line for document in read_corpus(benchmark.folder / "prose.txt") for line in document.sentences)
    short = (line for line in every if len(line.split()) <= MAX_WORDS)
    chosen = list(itertools.islice(short, benchmark.examples))
    (benchmark.folder / "sentences.json").write_text(json.dumps(chosen), encoding="utf-8")


def read_sentences(folder: Path) -> list[str]:
    return list(json.loads((folder / "sentences.json").read_text(encoding="utf-8")))


SIDES: dict[str, Callable[[Path, int], dict[str, Any]]] = {
    one.__name__: one
    for one in (finetune_ours, finetune_theirs, predict_ours, predict_theirs, embed_ours, embed_theirs)
}


def run_side(what: str, folder: Path, threads: int) -> None:
    """The child process: run one side of a comparison and print the measurements."""
    import torch

    torch.set_num_threads(threads)
    if what.endswith("theirs"):
        import transformers

        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
    print(json.dumps(SIDES[what](folder, threads) | {"megabytes": peak_kilobytes() / 1024}))


def main() -> None:
    parser = make_parser(__doc__, threads=True)
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--examples", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=1, help="runs of each side, of which the fastest counts")
    parser.add_argument("--model", type=Path, help="a pre-trained BERT of size mini; otherwise one is trained")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return run_side(options.child[0], Path(options.child[1]), int(options.child[2]))
    with tempfile.TemporaryDirectory() as name:
        benchmark = TaskBenchmark(Path(name), options.model, options.examples, options.rounds, options.threads)
        for part in options.only.split(","):
            PARTS[part](benchmark)
    return None


if __name__ == "__main__":
    main()
