"""Nets against `transformers`: the same rows, masks, dropout, optimiser and threads; one process for each.

    python bench/nets.py [--steps 20] [--rounds 1] [--threads 2] [--only masked,causal,base,lines]

Both are given the same batches, made before the clock starts, and the same number of steps; what is printed is the
median step, the loss of the last steps, and the peak memory of the process. For Firth also the share of the speed of
matrix products that was measured in the same process, and what else takes time.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

if TYPE_CHECKING:
    from firth.nets.network import Network
    from firth.nets.recipe import NetRecipe

Arrays = dict[str, np.ndarray[Any, Any]]
WORDS, LENGTH, LINES, RATE = 16_000, 128, 32, 5e-4


@dataclass(frozen=True)
class Job:
    """One comparison: what both are to do."""

    title: str
    kind: str
    """bert or gpt2."""
    layers: int
    width: int
    heads: int
    words: int
    rows: int
    dropout: float
    lines: bool = False
    """Each line by itself: padded to the longest of its batch there, packed here."""


@dataclass(frozen=True)
class Setting:
    """What all comparisons have in common."""

    folder: Path
    steps: int
    rounds: int
    threads: int


def masked(setting: Setting) -> None:
    for dropout in (0.1, 0.0):
        compare(setting, Job(f"masked LM, dropout {dropout}", "bert", 4, 256, 4, WORDS, 32, dropout))


def causal(setting: Setting) -> None:
    for dropout in (0.1, 0.0):
        compare(setting, Job(f"causal LM, dropout {dropout}", "gpt2", 4, 256, 4, WORDS, 32, dropout))


def base(setting: Setting) -> None:
    few = replace(setting, steps=max(3, setting.steps // 4))
    compare(few, Job("BERT-base, dropout 0.1", "bert", 12, 768, 12, 30_522, 16, 0.1))


def lines(setting: Setting) -> None:
    few = replace(setting, steps=max(3, setting.steps // 2))
    compare(few, Job("masked LM line by line, dropout 0.1", "bert", 4, 256, 4, WORDS, 32, 0.1, lines=True))


PARTS: dict[str, Callable[[Setting], None]] = {"masked": masked, "causal": causal, "base": base, "lines": lines}


def compare(setting: Setting, job: Job) -> None:
    """Runs both in turn, each in a process of its own, and prints what came of it."""
    batches = setting.folder / f"{job.kind}-{job.rows}-{job.lines}.npz"
    if not batches.exists():
        np.savez(batches, **make_batches(setting, job))
    print(f"\n{job.title}: L{job.layers} H{job.width} A{job.heads} V{job.words}, {job.rows} x {LENGTH}", flush=True)
    found: dict[str, list[dict[str, Any]]] = {"transformers": [], "firth": []}
    for _ in range(setting.rounds):
        for who, outcomes in found.items():
            outcomes.append(start(who, setting, job, batches))
    best = {who: max(outcomes, key=lambda one: one["speed"]) for who, outcomes in found.items()}
    for who, one in best.items():
        reached = f"{one['reached']:4.0f} of {one['products']:.0f} GFLOP/s"
        print(
            f"  {who:<13}{one['speed']:8,.0f} tokens/s {one['megabytes']:7,.0f} MB  loss {one['loss']:.3f}  {reached}"
        )
    print(f"  {best['firth']['speed'] / best['transformers']['speed']:.2f} times as fast; {best['firth']['shares']}")


def start(who: str, setting: Setting, job: Job, batches: Path) -> dict[str, Any]:
    """What the process of one of both tells."""
    told = json.dumps(asdict(job) | {"steps": setting.steps, "threads": setting.threads, "batches": str(batches)})
    command = [sys.executable, "-W", "ignore", __file__, "--child", who, told]
    quiet = os.environ | {"KINETO_LOG_LEVEL": "99"}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=quiet)
    outcome: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return outcome


def make_batches(setting: Setting, job: Job) -> Arrays:
    """The batches of all steps, by the packing and the masking of Firth; arrays for each step."""
    import data
    from firth.fit.batches import Batches, Cursor, vocabulary_of
    from firth.objectives.objective import make_objectives
    from firth.text.corpus import read_corpus
    from firth.tokens.build import open_tokens

    text = setting.folder / "text.txt"
    if not text.exists():
        data.write(data.english, text, 4_000_000)
    recipe = recipe_of(job)
    tokenizer, store = open_tokens(replace(recipe.tokenizer, vocab_size=WORDS), read_corpus(text))
    objectives = make_objectives(recipe, vocabulary_of(tokenizer, store))
    made, cursor, arrays = Batches(recipe, store, list(objectives.values()), 0), Cursor(), {}
    for step in range(setting.steps):
        (batch,), cursor = made.step(cursor)
        places = next(iter(objectives.values())).places(batch)
        assert places is not None
        ids = batch.ids.flatten()
        targets = batch.marks["mlm.targets"] if job.kind == "bert" else ids[places + 1]
        known = {"ids": batch.ids, "parts": batch.parts, "positions": batch.positions}
        arrays |= {f"{step}.{name}": value.numpy() for name, value in known.items() if value is not None}
        arrays |= {f"{step}.places": places.numpy(), f"{step}.targets": targets.numpy()}
        arrays[f"{step}.tokens"] = np.array(batch.tokens)
    return arrays


def recipe_of(job: Job) -> NetRecipe:
    """The recipe of a job's network."""
    from firth.recipes.nets import bert, gpt2

    made = bert() if job.kind == "bert" else gpt2()
    form = "stream" if job.kind == "gpt2" else "sentences" if job.lines else "full-sentences"
    return replace(
        made,
        tokenizer=bert().tokenizer,
        embedding=replace(made.embedding, width=job.width, dropout=job.dropout),
        encoder=replace(
            made.encoder,
            layers=job.layers,
            width=job.width,
            heads=job.heads,
            inner=4 * job.width,
            dropout=job.dropout,
            attention_dropout=job.dropout,
        ),
        objectives="mlm" if job.kind == "bert" else "clm",
        masking=replace(made.masking, masks="dynamic"),
        rows=replace(made.rows, format=form, length=LENGTH),
        learning=replace(made.learning, batch=job.rows * LENGTH),
    )


def run_child(who: str, told: dict[str, Any]) -> None:
    """What the process of one of both does."""
    import torch

    steps, threads, path = told.pop("steps"), told.pop("threads"), told.pop("batches")
    job = Job(**told)
    torch.set_num_threads(threads)
    with np.load(path) as file:
        arrays = {name: torch.from_numpy(file[name]) for name in file.files}
    products = measure_products()
    made = (make_ours if who == "firth" else make_theirs)(job)
    speeds, losses = [], []
    for step in range(steps):
        given = {name.partition(".")[2]: value for name, value in arrays.items() if name.startswith(f"{step}.")}
        started = time.perf_counter()
        losses.append(made.step(given, step))
        speeds.append(int(given["tokens"]) / (time.perf_counter() - started))
    speed = statistics.median(speeds[1:])
    outcome = {
        "speed": speed,
        "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "loss": statistics.mean(losses[-3:]),
        "products": products,
        "reached": speed * made.work / 1e9,
        "shares": describe(lambda: made.step(given, 0)) if who == "firth" else "",
    }
    print(json.dumps(outcome))


def measure_products() -> float:
    """GFLOP/s of a large matrix product, the best of some."""
    import torch

    one, best = torch.randn(2048, 2048), 0.0
    for _ in range(10):
        started = time.perf_counter()
        one @ one
        best = max(best, 2 * 2048**3 / (time.perf_counter() - started) / 1e9)
    return best


class Ours:
    """A network of Firth and its optimiser."""

    def __init__(self, job: Job) -> None:
        from firth.fit.optimisers import make_optimiser
        from firth.nets.heap import keep_memory
        from firth.nets.network import Vocabulary, build_network

        keep_memory()
        recipe = recipe_of(job)
        words = Vocabulary([""] * job.words, np.ones(job.words, dtype=np.int64))
        self.network: Network = build_network(recipe, words, 0)
        self.optimiser = make_optimiser(recipe.learning, self.network, RATE)
        self.work = 0.0

    def step(self, given: dict[str, Any], number: int) -> float:
        import torch
        from torch.nn.utils import clip_grad_norm_

        from firth.nets.batch import Batch
        from firth.nets.noise import Noise

        batch = Batch(given["ids"], given["ids"] > 0, given.get("parts"), given.get("positions"))
        noise, places = Noise(0, number), given["places"]
        states = self.network(batch, places, noise)
        loss = self.network.output.loss(states.at(places), given["targets"], None, noise) / len(places)
        loss.backward()
        clip_grad_norm_(self.network.parameters(), 1.0)
        self.optimiser.step()
        self.optimiser.zero_grad()
        rows, length = batch.shape
        whole = 3 * rows * length * self.network.work(length, len(places) / (rows * length))
        self.work = whole / int(given["tokens"])
        return float(torch.as_tensor(loss).detach())


class Theirs:
    """A network of `transformers` and the same optimiser."""

    def __init__(self, job: Job) -> None:
        import torch
        import transformers

        transformers.logging.set_verbosity_error()
        torch.manual_seed(0)
        if job.kind == "bert":
            config = transformers.BertConfig(
                vocab_size=job.words, hidden_size=job.width, num_hidden_layers=job.layers,
                num_attention_heads=job.heads, intermediate_size=4 * job.width, max_position_embeddings=LENGTH,
                hidden_dropout_prob=job.dropout, attention_probs_dropout_prob=job.dropout,
            )  # fmt: skip
            self.network = transformers.BertForMaskedLM(config)
        else:
            config = transformers.GPT2Config(
                vocab_size=job.words, n_embd=job.width, n_layer=job.layers, n_head=job.heads, n_positions=LENGTH,
                resid_pdrop=job.dropout, embd_pdrop=job.dropout, attn_pdrop=job.dropout, bos_token_id=3, eos_token_id=3,
            )  # fmt: skip
            self.network = transformers.GPT2LMHeadModel(config)
        self.network.train()
        self.job, self.work = job, 0.0
        parameters = list(self.network.parameters())
        groups = [
            {"params": [one for one in parameters if one.ndim > 1], "weight_decay": 0.01},
            {"params": [one for one in parameters if one.ndim <= 1], "weight_decay": 0.0},
        ]
        self.optimiser = torch.optim.AdamW(groups, RATE, (0.9, 0.98), 1e-6, fused=True)

    def step(self, given: dict[str, Any], number: int) -> float:
        from torch.nn.utils import clip_grad_norm_

        count, whole, places = len(given["targets"]), 0.0, 0
        for ids, labels in self.batches(given):
            more = {} if not self.job.lines else {"attention_mask": (ids > 0).long()}
            share = int((labels[:, 1:] if self.job.kind == "gpt2" else labels).ge(0).sum()) / count
            loss = self.network(input_ids=ids, labels=labels, **more).loss * share
            loss.backward()
            whole += float(loss.detach())
            places += ids.numel()
        clip_grad_norm_(self.network.parameters(), 1.0)
        self.optimiser.step()
        self.optimiser.zero_grad()
        width = self.job.width
        layers = self.job.layers * (24 * width * width + 4 * LENGTH * width)
        self.work = 3 * places * (layers + 2 * width * self.job.words) / int(given["tokens"])
        return whole

    def batches(self, given: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
        """Ids and labels: the rows as they are, or their lines by themselves, some at a time."""
        import torch

        ids = given["ids"]
        labels = torch.full((ids.numel(),), -100).index_copy(0, given["places"], given["targets"]).view_as(ids)
        if self.job.kind == "gpt2":
            yield ids, ids
        elif not self.job.lines:
            yield ids, labels
        else:
            keys = (given["parts"] + 1000 * torch.arange(len(ids))[:, None])[given["parts"] >= 0]
            parted = [one[given["parts"] >= 0].split(torch.unique_consecutive(keys, return_counts=True)[1].tolist())
                      for one in (ids, labels)]  # fmt: skip
            for begin in range(0, len(parted[0]), LINES):
                some = [one[begin : begin + LINES] for one in parted]
                pad = torch.nn.utils.rnn.pad_sequence
                yield pad(some[0], True, 0), pad(some[1], True, -100)


def make_ours(job: Job) -> Ours:
    return Ours(job)


def make_theirs(job: Job) -> Theirs:
    return Theirs(job)


GROUPS = {
    "matrix products": ("mm", "addmm", "addmm_", "bmm", "baddbmm", "mkldnn::_linear_pointwise"),
    "activations": ("gelu", "gelu_backward"),
    "softmax": ("_softmax", "_softmax_backward_data", "_log_softmax", "exp_"),
    "norms": ("native_layer_norm", "native_layer_norm_backward"),
    "optimiser": ("_fused_adamw_", "_foreach_norm", "_foreach_mul_", "linalg_vector_norm"),
    "sums and factors": ("add", "add_", "mul", "mul_", "addcmul", "sum", "ge", "fill_"),
    "copies": ("copy_", "index_select", "index_copy", "embedding_dense_backward", "index", "cat"),
}


def describe(step: Callable[[], object]) -> str:
    """What takes the time of a step, by torch's profiler."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        step()
    times = {one.key.removeprefix("aten::"): one.self_cpu_time_total for one in profiler.key_averages()}
    whole = sum(times.values())
    shares = {group: sum(times.get(name, 0) for name in names) / whole for group, names in GROUPS.items()}
    shares["the rest"] = 1 - sum(shares.values())
    return ", ".join(f"{group} {share:.0%}" for group, share in shares.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=1, help="times that both are run; the better run of each counts")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        run_child(options.child[0], json.loads(options.child[1]))
        return
    with tempfile.TemporaryDirectory(prefix="firth-bench-") as name:
        os.environ["FIRTH_CACHE"] = str(Path(name, "cache"))
        setting = Setting(Path(name), options.steps, options.rounds, options.threads)
        for part in options.only.split(","):
            PARTS[part](setting)


if __name__ == "__main__":
    main()
