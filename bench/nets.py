"""Nets against `transformers`: the same sequences, masks, dropout, optimiser and threads; a process for each.

    python bench/nets.py [--steps 20] [--rounds 1] [--threads 2] [--only masked,causal,base,lines]

Both train on the same batches, made beforehand, for the same number of steps. Prints the median speed of a step, the
loss of the last steps, the peak memory of the process, and the FLOP/s beside those of a large matrix product in the
same process; for Firth also a profile of a step.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from harness import make_parser, peak_kilobytes, run_child, timed

if TYPE_CHECKING:
    from firth.nets.recipe import NetRecipe

Arrays = dict[str, np.ndarray[Any, Any]]
VOCAB_SIZE, LENGTH, LINES_PER_BATCH, LR = 16_000, 128, 32, 5e-4


@dataclass(frozen=True, kw_only=True)
class NetComparison:
    """A network and the batches that both libraries train it on."""

    title: str
    kind: str = "bert"
    """bert or gpt2."""
    layers: int = 4
    width: int = 256
    heads: int = 4
    vocab_size: int = VOCAB_SIZE
    sequences: int = 32
    dropout: float = 0.1
    single_lines: bool = False
    """Each line is a sequence of its own: `transformers` pads it to the longest of its batch, Firth packs it."""
    fewer_steps: int = 1
    """Divisor of the number of steps."""


PARTS = {
    "masked": [NetComparison(title=f"masked LM, dropout {dropout}", dropout=dropout) for dropout in (0.1, 0.0)],
    "causal": [
        NetComparison(title=f"causal LM, dropout {dropout}", kind="gpt2", dropout=dropout) for dropout in (0.1, 0.0)
    ],
    "base": [
        NetComparison(
            title="BERT-base, dropout 0.1",
            layers=12,
            width=768,
            heads=12,
            vocab_size=30_522,
            sequences=16,
            fewer_steps=4,
        )
    ],
    "lines": [NetComparison(title="masked LM line by line, dropout 0.1", single_lines=True, fewer_steps=2)],
}


def compare(comparison: NetComparison, folder: Path, options: argparse.Namespace) -> None:
    """Train with both libraries in turn, each in a process of its own, and print the results."""
    steps = options.steps if comparison.fewer_steps == 1 else max(3, options.steps // comparison.fewer_steps)
    batches = folder / f"{comparison.kind}-{comparison.sequences}-{comparison.single_lines}.npz"
    if not batches.exists():
        np.savez(batches, **make_batches(folder, comparison, steps))
    size = f"L{comparison.layers} H{comparison.width} A{comparison.heads} V{comparison.vocab_size}"
    print(f"\n{comparison.title}: {size}, {comparison.sequences} x {LENGTH}", flush=True)
    arguments = (json.dumps(asdict(comparison)), steps, options.threads, batches)
    results: dict[str, list[dict[str, Any]]] = {library: [] for library in LIBRARIES}
    for _ in range(options.rounds):
        for library, outcomes in results.items():
            outcomes.append(run_child(__file__, library, *arguments))
    best = {library: max(outcomes, key=lambda one: one["speed"]) for library, outcomes in results.items()}
    for library, one in best.items():
        print(
            f"  {library:<13}{one['speed']:8,.0f} tokens/s {one['megabytes']:7,.0f} MB  loss {one['loss']:.3f}  "
            f"{one['gflops']:4.0f} of {one['peak_gflops']:.0f} GFLOP/s"
        )
    print(f"  {best['firth']['speed'] / best['transformers']['speed']:.2f} times as fast; {best['firth']['profile']}")


def make_batches(folder: Path, comparison: NetComparison, steps: int) -> Arrays:
    """Arrays for all steps, packed and masked by Firth, under keys `STEP.NAME`."""
    import data
    from firth.fit.batches import Batches, Cursor, vocabulary_of
    from firth.nets.network import build_network
    from firth.objectives.heads.build import make_heads
    from firth.text.corpus import read_corpus
    from firth.tokens.build import open_tokens

    text = folder / "text.txt"
    if not text.exists():
        data.write(data.english, text, 4_000_000)
    recipe = make_recipe(comparison)
    tokenizer, store = open_tokens(replace(recipe.tokenizer, vocab_size=VOCAB_SIZE), read_corpus(text))
    objectives = make_heads(recipe, build_network(recipe, vocabulary_of(tokenizer, store), 0))
    batches, cursor, arrays = Batches(recipe, store, list(objectives.values()), 0), Cursor(), {}
    for step in range(steps):
        (batch,), cursor = batches.step(cursor)
        positions = next(iter(objectives.values())).positions(batch)
        assert positions is not None
        targets = batch.labels["mlm.targets"] if comparison.kind == "bert" else batch.ids.flatten()[positions + 1]
        tensors = {
            "ids": batch.ids,
            "sequence_ids": batch.sequence_ids,
            "position_ids": batch.position_ids,
            "positions": positions,
            "targets": targets,
        }
        arrays |= {f"{step}.{name}": tensor.numpy() for name, tensor in tensors.items() if tensor is not None}
        arrays[f"{step}.tokens"] = np.array(batch.tokens)
    return arrays


def make_recipe(comparison: NetComparison) -> NetRecipe:
    from firth.objectives.registry import parse_objectives
    from firth.recipes.nets import bert, gpt2

    is_bert, width, dropout = comparison.kind == "bert", comparison.width, comparison.dropout
    recipe = bert() if is_bert else gpt2()
    return replace(
        recipe,
        tokenizer=bert().tokenizer,
        embedding=replace(recipe.embedding, width=width, dropout=dropout),
        encoder=replace(
            recipe.encoder,
            layers=comparison.layers,
            width=width,
            heads=comparison.heads,
            ffn_width=4 * width,
            dropout=dropout,
            attention_dropout=dropout,
        ),
        objectives=parse_objectives("mlm" if is_bert else "clm"),
        sequence=replace(
            recipe.sequence,
            format="stream" if not is_bert else "sentences" if comparison.single_lines else "full-sentences",
            length=LENGTH,
        ),
        learning=replace(recipe.learning, batch=comparison.sequences * LENGTH),
    )


def train(library: str, comparison: NetComparison, steps: int, threads: int, path: str) -> dict[str, Any]:
    """The child process: train on all batches and return the measurements."""
    import torch

    torch.set_num_threads(threads)
    with np.load(path) as file:
        arrays = {name: torch.from_numpy(file[name]) for name in file.files}
    matrix = torch.randn(2048, 2048)
    peak = max(2 * 2048**3 / timed(lambda: matrix @ matrix)[1] / 1e9 for _ in range(10))
    trainer = LIBRARIES[library](comparison)
    speeds, losses = [], []
    for step in range(steps):
        batch = {name.partition(".")[2]: value for name, value in arrays.items() if name.startswith(f"{step}.")}
        loss, seconds = timed(lambda: trainer.step(batch, step))  # noqa: B023
        losses.append(loss)
        speeds.append(int(batch["tokens"]) / seconds)
    speed = statistics.median(speeds[1:])
    return {
        "speed": speed,
        "megabytes": peak_kilobytes() / 1024,
        "loss": statistics.mean(losses[-3:]),
        "peak_gflops": peak,
        "gflops": speed * trainer.flops_per_token / 1e9,
        "profile": profile_step(lambda: trainer.step(batch, 0)) if library == "firth" else "",
    }


class FirthNet:
    """A network of Firth and its optimiser."""

    def __init__(self, comparison: NetComparison) -> None:
        from firth.fit.optimisers import make_optimiser
        from firth.memory import retain_freed_memory
        from firth.nets.network import Vocabulary, build_network

        retain_freed_memory()
        recipe, size = make_recipe(comparison), comparison.vocab_size
        self.network = build_network(recipe, Vocabulary([""] * size, np.ones(size, dtype=np.int64)), 0)
        self.optimiser = make_optimiser(recipe.learning, self.network, LR)
        self.flops_per_token = 0.0

    def step(self, arrays: dict[str, Any], number: int) -> float:
        import torch
        from torch.nn.utils import clip_grad_norm_

        from firth.nets.batch import Batch
        from firth.nets.dropout import DropoutRng

        ids, positions, rng = arrays["ids"], arrays["positions"], DropoutRng(0, number)
        batch = Batch(ids, ids > 0, arrays.get("sequence_ids"), arrays.get("position_ids"))
        states = self.network(batch, positions, rng)
        loss = self.network.output.loss(states.at(positions), arrays["targets"], None, rng) / len(positions)
        loss.backward()
        clip_grad_norm_(self.network.parameters(), 1.0)
        self.optimiser.step()
        self.optimiser.zero_grad()
        sequences, length = batch.shape
        flops = 3 * sequences * length * self.network.flops(length, len(positions) / (sequences * length))
        self.flops_per_token = flops / int(arrays["tokens"])
        return float(torch.as_tensor(loss).detach())


class TransformersNet:
    """A network of `transformers` and the same optimiser."""

    def __init__(self, comparison: NetComparison) -> None:
        import torch
        import transformers

        transformers.logging.set_verbosity_error()
        torch.manual_seed(0)
        self.comparison, self.flops_per_token = comparison, 0.0
        size, width, layers = comparison.vocab_size, comparison.width, comparison.layers
        heads, dropout = comparison.heads, comparison.dropout
        if comparison.kind == "bert":
            config = transformers.BertConfig(
                vocab_size=size, hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads,
                intermediate_size=4 * width, max_position_embeddings=LENGTH, hidden_dropout_prob=dropout,
                attention_probs_dropout_prob=dropout,
            )  # fmt: skip
            self.network = transformers.BertForMaskedLM(config)
        else:
            config = transformers.GPT2Config(
                vocab_size=size, n_embd=width, n_layer=layers, n_head=heads, n_positions=LENGTH,
                resid_pdrop=dropout, embd_pdrop=dropout, attn_pdrop=dropout, bos_token_id=3, eos_token_id=3,
            )  # fmt: skip
            self.network = transformers.GPT2LMHeadModel(config)
        self.network.train()
        parameters = list(self.network.parameters())
        groups = [
            {"params": [one for one in parameters if one.ndim > 1], "weight_decay": 0.01},
            {"params": [one for one in parameters if one.ndim <= 1], "weight_decay": 0.0},
        ]
        self.optimiser = torch.optim.AdamW(groups, LR, (0.9, 0.98), 1e-6, fused=True)

    def step(self, arrays: dict[str, Any], number: int) -> float:
        from torch.nn.utils import clip_grad_norm_

        targets, total, positions = len(arrays["targets"]), 0.0, 0
        for ids, labels in self.batches(arrays):
            mask = {"attention_mask": (ids > 0).long()} if self.comparison.single_lines else {}
            predicted = labels[:, 1:] if self.comparison.kind == "gpt2" else labels
            fraction = int(predicted.ge(0).sum()) / targets
            loss = self.network(input_ids=ids, labels=labels, **mask).loss * fraction
            loss.backward()
            total += float(loss.detach())
            positions += ids.numel()
        clip_grad_norm_(self.network.parameters(), 1.0)
        self.optimiser.step()
        self.optimiser.zero_grad()
        width = self.comparison.width
        layers = self.comparison.layers * (24 * width * width + 4 * LENGTH * width)
        flops = 3 * positions * (layers + 2 * width * self.comparison.vocab_size)
        self.flops_per_token = flops / int(arrays["tokens"])
        return total

    def batches(self, arrays: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
        """Ids and labels: the sequences of Firth's batch, or padded batches of its lines."""
        import torch
        from torch.nn.utils.rnn import pad_sequence

        ids = arrays["ids"]
        labels = torch.full((ids.numel(),), -100).index_copy(0, arrays["positions"], arrays["targets"]).view_as(ids)
        if self.comparison.kind == "gpt2":
            yield ids, ids
        elif not self.comparison.single_lines:
            yield ids, labels
        else:
            is_token = arrays["sequence_ids"] >= 0
            line_keys = (arrays["sequence_ids"] + 1000 * torch.arange(len(ids))[:, None])[is_token]
            lengths = torch.unique_consecutive(line_keys, return_counts=True)[1].tolist()
            lines, line_labels = ids[is_token].split(lengths), labels[is_token].split(lengths)
            for begin in range(0, len(lines), LINES_PER_BATCH):
                some = slice(begin, begin + LINES_PER_BATCH)
                yield pad_sequence(lines[some], True, 0), pad_sequence(line_labels[some], True, -100)


LIBRARIES: dict[str, Callable[[NetComparison], Any]] = {"transformers": TransformersNet, "firth": FirthNet}
OPERATIONS = {
    "matrix products": ("mm", "addmm", "addmm_", "bmm", "baddbmm", "mkldnn::_linear_pointwise"),
    "activations": ("gelu", "gelu_backward"),
    "softmax": ("_softmax", "_softmax_backward_data", "_log_softmax", "exp_"),
    "norms": ("native_layer_norm", "native_layer_norm_backward"),
    "optimiser": ("_fused_adamw_", "_foreach_norm", "_foreach_mul_", "linalg_vector_norm"),
    "elementwise": ("add", "add_", "mul", "mul_", "addcmul", "sum", "ge", "fill_"),
    "copies": ("copy_", "index_select", "index_copy", "embedding_dense_backward", "index", "cat"),
}


def profile_step(step: Callable[[], object]) -> str:
    """The fraction of the time of a step by kind of operation, by torch's profiler."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        step()
    times = {one.key.removeprefix("aten::"): one.self_cpu_time_total for one in profiler.key_averages()}
    total = sum(times.values())
    fractions = {kind: sum(times.get(name, 0) for name in names) / total for kind, names in OPERATIONS.items()}
    fractions["the rest"] = 1 - sum(fractions.values())
    return ", ".join(f"{kind} {fraction:.0%}" for kind, fraction in fractions.items())


def main() -> None:
    parser = make_parser(__doc__, threads=True)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=1, help="runs of each library, of which the fastest counts")
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--child", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        library, comparison, steps, threads, batches = options.child
        found = train(library, NetComparison(**json.loads(comparison)), int(steps), int(threads), batches)
        return print(json.dumps(found))
    os.environ["KINETO_LOG_LEVEL"] = "99"  # silences the profiler
    with tempfile.TemporaryDirectory(prefix="firth-bench-") as name:
        os.environ["FIRTH_CACHE"] = str(Path(name, "cache"))
        for part in options.only.split(","):
            for comparison in PARTS[part]:
                compare(comparison, Path(name), options)
    return None


if __name__ == "__main__":
    main()
