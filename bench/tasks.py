"""Tasks against `transformers`: the same weights, examples, steps and threads; one process for each.

    python bench/tasks.py [--only finetune,predict,embed,read] [--examples 5000] [--rounds 1] [--model DIR]

finetune  a BERT of four layers of 256 on SST-2, dropout 0.1, one pass in steps of 32 examples. Both begin with the very
          same parameters, the head's among them. The Trainer of `transformers` needs `accelerate`; what runs here is
          its loop without it: examples in random order, padded to the longest of their step, a fused AdamW, rates that
          rise and fall linearly, gradients clipped. Texts are cut into tokens before the clock starts, for both.
predict   the model that was fine-tuned, against the pipeline with batches of 32, from texts to probabilities.
embed     vectors of sentences by all-MiniLM-L6-v2, whose folder FIRTH_MINILM names, against sentence-transformers or,
          where that is not installed, the same in plain `transformers`: sorted by length, batches of 32.
read      a TSV of a million rows: runs bench/read_tasks.py.

Without --model a BERT is pre-trained for a moment; with it a better one is used, such as bench/results.py makes.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
import data
import task_data

TOGETHER, LENGTH, RATE, WARMUP, DECAY = 32, 128, 1.5e-4, 0.1, 0.01
LEARNING = [f"learning.{name}" for name in (f"batch={TOGETHER}", "epochs=1", f"warmup={WARMUP}", f"decay={DECAY}")]
TASK = task_data.DATASETS["sst2"]
BUDGET = os.environ.get("FIRTH_BENCH_BUDGET", "30s")
"""Of pre-training, where no model is given."""
LONGEST = 150  # words of a sentence whose vector is made: both read it whole


class Setting(NamedTuple):
    """What all comparisons have in common."""

    folder: Path
    model: Path | None
    examples: int
    rounds: int
    threads: int

    def child(self, what: str) -> dict[str, Any]:
        """What the best of some processes tells."""
        told = [self._child(what) for _ in range(self.rounds)]
        return max(told, key=lambda one: one["speed"])

    def _child(self, what: str) -> dict[str, Any]:
        command = [sys.executable, "-W", "ignore", __file__, "--child", what, str(self.folder), str(self.threads)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        outcome: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return outcome


def finetune(setting: Setting) -> None:
    prepare(setting)
    ours, theirs = setting.child("finetune_ours"), setting.child("finetune_theirs")
    print(f"\nfine-tuning, {setting.examples:,} examples of {TASK.title}, {TOGETHER} a step, dropout 0.1")
    tell(ours, theirs, "examples/s", f"accuracy {ours['accuracy']:.3f} and {theirs['accuracy']:.3f} on dev")


def predict(setting: Setting) -> None:
    prepare(setting)
    if not (setting.folder / "tuned.hf").exists():
        setting.child("finetune_ours")
    ours, theirs = setting.child("predict_ours"), setting.child("predict_theirs")
    print(f"\npredicting, {ours['count']:,} texts, the pipeline with batches of {TOGETHER}")
    tell(ours, theirs, "texts/s", apart(setting, "predict", "probabilities"))


def embed(setting: Setting) -> None:
    given = os.environ.get("FIRTH_MINILM", "")
    if not Path(given, "modules.json").is_file():
        print("\nembed: left out, FIRTH_MINILM does not name the folder of all-MiniLM-L6-v2")
        return
    if not (setting.folder / "sentences.json").exists():
        write_sentences(setting)
    ours, theirs = setting.child("embed_ours"), setting.child("embed_theirs")
    print(f"\nvectors of {ours['count']:,} sentences by MiniLM, against {theirs['by']}")
    tell(ours, theirs, "sentences/s", apart(setting, "embed", "numbers of vectors"))


def read(setting: Setting) -> None:
    print("\nreading a TSV", flush=True)
    subprocess.run([sys.executable, str(Path(__file__).parent / "read_tasks.py")], check=True)


PARTS: dict[str, Callable[[Setting], None]] = {"finetune": finetune, "predict": predict, "embed": embed, "read": read}


def tell(ours: dict[str, Any], theirs: dict[str, Any], unit: str, results: str) -> None:
    """Both speeds, the ratio, and both results."""
    for who, one in (("firth", ours), ("transformers", theirs)):
        print(f"  {who:<13}{one['speed']:9,.0f} {unit} {one['megabytes']:7,.0f} MB")
    print(f"  {ours['speed'] / theirs['speed']:.2f} times as fast; {results}", flush=True)


def apart(setting: Setting, what: str, of: str) -> str:
    """How far the results of both are from each other."""
    mine, their = (np.load(setting.folder / f"{what}_{who}.npy") for who in ("ours", "theirs"))
    return f"{of} differ by {np.abs(mine - their).max():.1e} at most"


def prepare(setting: Setting) -> None:
    """A pre-trained model, the examples, and both with a head that has learnt nothing."""
    import firth
    from firth.fit.finetune import finetune as learn

    folder = setting.folder
    if (folder / "start.hf").exists():
        return
    task_data.cut(TASK.train, setting.examples, folder / "train.tsv")
    task_data.cut(TASK.train, TOGETHER, folder / "few.tsv")
    task_data.cut(TASK.dev, 10_000, folder / "dev.tsv")
    if setting.model is not None:
        (folder / "bert").symlink_to(setting.model.resolve())
    else:
        data.write(data.english, folder / "text.txt", 4_000_000)
        plan: dict[str, Any] = {"size": "mini", "budget": BUDGET, "threads": setting.threads, "reload": False}
        firth.train("bert", folder / "text.txt", out=folder / "bert", **plan)
    # A rate of next to nothing: what is exported are the parameters that fine-tuning begins with.
    few, still = folder / "few.tsv", [*LEARNING, "learning.rate=1e-12"]
    model = learn(folder / "bert", TASK.task, train=few, dev=few, out=folder / "start", settings=still, threads=1)
    firth.export_model(model, "huggingface", folder / "start.hf")


def finetune_ours(folder: Path, threads: int) -> dict[str, Any]:
    import firth
    from firth.fit.curves import METRICS
    from firth.fit.finetune import finetune as learn

    with tempfile.TemporaryDirectory(dir=folder) as name:
        out = Path(name) / "tuned"
        settings = [*LEARNING, f"learning.rate={RATE}"]
        # Few examples to validate on, so that what takes time is learning; accuracy is measured afterwards.
        paths = {"train": folder / "train.tsv", "dev": folder / "few.tsv"}
        model = learn(folder / "bert", TASK.task, **paths, out=out, settings=settings, threads=threads)
        records = [json.loads(line) for line in (out / METRICS).read_text().splitlines()]
        if not (folder / "tuned.hf").exists():
            firth.export_model(model, "huggingface", folder / "tuned.hf")
            out.rename(folder / "tuned")
    first, last = records[0], records[-1]
    seconds = last["seconds"] - first["seconds"]
    learnt = len(examples(folder / "train.tsv")[0]) - first["step"] * TOGETHER
    labels, texts = examples(folder / "dev.tsv")
    given = [one["label"] for one in model.predict(texts)]
    return {"speed": learnt / seconds, "accuracy": same(given, labels)}


def finetune_theirs(folder: Path, threads: int) -> dict[str, Any]:
    import torch
    from torch.nn.utils import clip_grad_norm_
    from transformers import AutoModelForSequenceClassification, AutoTokenizer, get_linear_schedule_with_warmup

    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(folder / "start.hf")
    model = AutoModelForSequenceClassification.from_pretrained(folder / "start.hf").train()
    names = model.config.label2id
    labels, texts = examples(folder / "train.tsv")
    rows = tokenizer(texts, truncation=True, max_length=LENGTH)
    steps = -(-len(texts) // TOGETHER)
    plain = [one for one in model.parameters() if one.ndim <= 1]
    groups = [{"params": [one for one in model.parameters() if one.ndim > 1], "weight_decay": DECAY},
              {"params": plain, "weight_decay": 0.0}]  # fmt: skip
    optimiser = torch.optim.AdamW(groups, RATE, (0.9, 0.999), 1e-6, fused=True)
    schedule = get_linear_schedule_with_warmup(optimiser, round(WARMUP * steps), steps)
    order = torch.randperm(len(texts)).tolist()
    began, done = 0.0, 0
    for step, begin in enumerate(range(0, len(order), TOGETHER)):
        if step == 1:
            began, done = time.perf_counter(), 0
        chosen = order[begin : begin + TOGETHER]
        batch = tokenizer.pad({name: [rows[name][one] for one in chosen] for name in rows}, return_tensors="pt")
        batch["labels"] = torch.tensor([names[labels[one]] for one in chosen])
        model(**batch).loss.backward()
        clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        model.zero_grad()
        done += len(chosen)
    seconds = time.perf_counter() - began
    labels, texts = examples(folder / "dev.tsv")
    given, of = [], model.config.id2label
    with torch.inference_mode():
        for begin in range(0, len(texts), TOGETHER):
            some = tokenizer(texts[begin : begin + TOGETHER], padding=True, truncation=True, max_length=LENGTH,
                             return_tensors="pt")  # fmt: skip
            given += [of[one] for one in model.eval()(**some).logits.argmax(1).tolist()]
    return {"speed": done / seconds, "accuracy": same(given, labels)}


def predict_ours(folder: Path, threads: int) -> dict[str, Any]:
    import firth

    model = firth.load(folder / "tuned")
    return timed(folder, "predict_ours", examples(folder / "train.tsv")[1], lambda texts: [
        [one["probabilities"][label] for label in model.labels] for one in model.predict(texts)
    ])  # fmt: skip


def predict_theirs(folder: Path, threads: int) -> dict[str, Any]:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline

    model = AutoModelForSequenceClassification.from_pretrained(folder / "tuned.hf")
    tokenizer = AutoTokenizer.from_pretrained(folder / "tuned.hf")
    classify = pipeline("text-classification", model=model, tokenizer=tokenizer, device="cpu")
    labels = list(model.config.id2label.values())

    def run(texts: Sequence[str]) -> list[list[float]]:
        found = classify(list(texts), batch_size=TOGETHER, top_k=None, truncation=True, max_length=LENGTH)
        by_label = [{one["label"]: one["score"] for one in scores} for scores in found]
        return [[scores[label] for label in labels] for scores in by_label]

    return timed(folder, "predict_theirs", examples(folder / "train.tsv")[1], run)


def embed_ours(folder: Path, threads: int) -> dict[str, Any]:
    import firth

    if not (folder / "minilm").exists():
        firth.import_model("huggingface", Path(os.environ["FIRTH_MINILM"]), folder / "minilm")
    model = firth.load(folder / "minilm")

    def run(texts: Sequence[str]) -> Any:
        found = model.embed(texts, pooling="whole")
        return found / np.linalg.norm(found, axis=1, keepdims=True)

    return timed(folder, "embed_ours", sentences(folder), run)


def embed_theirs(folder: Path, threads: int) -> dict[str, Any]:
    given = os.environ["FIRTH_MINILM"]
    if find_spec("sentence_transformers"):
        from sentence_transformers import SentenceTransformer

        peer = SentenceTransformer(given, device="cpu")
        found = timed(folder, "embed_theirs", sentences(folder), lambda texts: peer.encode(texts, batch_size=TOGETHER))
        return found | {"by": "sentence-transformers"}
    return timed(folder, "embed_theirs", sentences(folder), plain_encoder(given)) | {"by": "plain transformers"}


def plain_encoder(given: str) -> Callable[[Sequence[str]], Any]:
    """What sentence-transformers does: the longest texts first, means of states, divided by their lengths."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    model, tokenizer = AutoModel.from_pretrained(given).eval(), AutoTokenizer.from_pretrained(given)

    @torch.inference_mode()
    def run(texts: Sequence[str]) -> Any:
        order = np.argsort([-len(text) for text in texts], kind="stable")
        found = np.empty((len(texts), model.config.hidden_size), dtype=np.float32)
        for begin in range(0, len(order), TOGETHER):
            chosen = order[begin : begin + TOGETHER]
            rows = tokenizer([texts[one] for one in chosen], padding=True, truncation=True, max_length=256,
                             return_tensors="pt")  # fmt: skip
            seen = rows["attention_mask"][..., None].float()
            means = (model(**rows).last_hidden_state * seen).sum(1) / seen.sum(1)
            found[chosen] = torch.nn.functional.normalize(means).numpy()
        return found

    return run


def timed(folder: Path, what: str, texts: Sequence[str], run: Callable[[Sequence[str]], Any]) -> dict[str, Any]:
    """The speed of a run after a short one; what it gives is kept to be compared."""
    run(texts[:TOGETHER])
    began = time.perf_counter()
    found = run(texts)
    seconds = time.perf_counter() - began
    np.save(folder / f"{what}.npy", np.asarray(found, dtype=np.float32))
    return {"speed": len(texts) / seconds, "count": len(texts)}


def examples(path: Path) -> tuple[list[str], list[str]]:
    """Labels and texts of a file."""
    rows = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()[1:]]
    return [row[0] for row in rows], [row[1].strip() for row in rows]


def same(given: Sequence[str], labels: Sequence[str]) -> float:
    return float(np.mean([one == other for one, other in zip(given, labels, strict=True)]))


def write_sentences(setting: Setting) -> None:
    """Sentences of English prose as they come, some short and some long."""
    from firth.text.corpus import read_corpus

    data.write(data.english, setting.folder / "prose.txt", 200 * setting.examples)
    every = (line for document in read_corpus(setting.folder / "prose.txt") for line in document.sentences)
    fitting = (line for line in every if len(line.split()) <= LONGEST)
    kept = list(itertools.islice(fitting, setting.examples))
    (setting.folder / "sentences.json").write_text(json.dumps(kept), encoding="utf-8")


def sentences(folder: Path) -> list[str]:
    return list(json.loads((folder / "sentences.json").read_text(encoding="utf-8")))


CHILDREN: dict[str, Callable[[Path, int], dict[str, Any]]] = {
    one.__name__: one
    for one in (finetune_ours, finetune_theirs, predict_ours, predict_theirs, embed_ours, embed_theirs)
}


def run_child(what: str, folder: Path, threads: int) -> None:
    """What the process of one of both does."""
    import torch

    torch.set_num_threads(threads)
    if what.endswith("theirs"):
        import transformers

        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
    outcome = CHILDREN[what](folder, threads)
    print(json.dumps(outcome | {"megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--examples", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=1, help="times that both are run; the better run of each counts")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--model", type=Path, help="a pre-trained BERT of size mini instead of one made on the way")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        run_child(options.child[0], Path(options.child[1]), int(options.child[2]))
        return
    with tempfile.TemporaryDirectory() as name:
        setting = Setting(Path(name), options.model, options.examples, options.rounds, options.threads)
        for part in options.only.split(","):
            PARTS[part](setting)


if __name__ == "__main__":
    main()
